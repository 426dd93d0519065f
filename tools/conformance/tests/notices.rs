//! The suite notices: an endpoint that breaks one promise fails the probe that looks at it.

use petasos_conformance::{
    Fixture, RealTime, World, driving, faults, keys, lifecycle, messages, mix, run, tagged,
};
use petasos_fabric::{
    Address, Done, Endpoint, Event, InjectError, Notifier, Notify, OpError, Operation, Peer, Time,
    Token, delegate,
};
use petasos_self::Local;
use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

/// Which promise is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sin {
    None,
    /// Completes the fifth operation twice.
    Twice,
    /// Never completes the fifth operation.
    Never,
    /// Swaps neighbours among the events.
    Swap,
    /// Gives a message twice.
    Echo,
    /// Says nothing of lost peers.
    Secret,
    /// Reports errors without the peer.
    Nameless,
    /// Ignores `cancel`.
    Stubborn,
    /// Has a notifier that does nothing.
    Deaf,
    /// Says that a region is closed before it is.
    Hasty,
    /// Takes whole queues, and loses what it has no room for.
    Forgetful,
}

struct Sinner {
    inner: Local,
    sin: Sin,
    done: u32,
    messages: u32,
    early: Vec<Token>,
}

impl Sinner {
    fn twist(&mut self, mut new: Vec<Event>, events: &mut Vec<Event>) {
        if self.sin == Sin::Swap && new.len() > 1 {
            let last = new.len() - 1;
            if matches!((&new[0], &new[last]), (Event::Message { .. }, Event::Message { .. })) {
                new.swap(0, last);
            }
        }
        for event in new {
            match event {
                Event::Done { token, result } => {
                    self.done += 1;
                    if self.early.contains(&token) || self.sin == Sin::Never && self.done == 5 {
                        continue;
                    }
                    if self.sin == Sin::Twice && self.done == 5 {
                        let result = result.clone();
                        events.push(Event::Done { token, result });
                    }
                    let result = match result {
                        Err(error) if self.sin == Sin::Nameless => Err(OpError::local(error.kind)),
                        result => result,
                    };
                    events.push(Event::Done { token, result });
                }
                Event::Message { peer, message } => {
                    self.messages += 1;
                    if self.sin == Sin::Echo && self.messages == 7 {
                        let message = petasos_fabric::Lease::inline(&message[..8]);
                        events.push(Event::Message { peer, message });
                    }
                    events.push(Event::Message { peer, message });
                }
                Event::PeerLost { .. } if self.sin == Sin::Secret => {}
                other => events.push(other),
            }
        }
    }
}

impl Endpoint for Sinner {
    fn inject(&mut self, peer: Peer, parts: &[&[u8]]) -> Result<(), InjectError> {
        match self.inner.inject(peer, parts) {
            Err(InjectError::Full) if self.sin == Sin::Forgetful => Ok(()),
            result => result,
        }
    }

    fn submit(&mut self, operations: &mut VecDeque<Operation>) {
        if self.sin == Sin::Hasty {
            for operation in operations.iter() {
                if let Operation::Deregister { token, .. } = operation {
                    self.early.push(*token);
                }
            }
            let hasty = |o: &Operation| matches!(o, Operation::Deregister { .. });
            operations.retain(|operation| !hasty(operation));
        }
        self.inner.submit(operations);
    }

    fn cancel(&mut self, token: Token) {
        if self.sin != Sin::Stubborn {
            self.inner.cancel(token);
        }
    }

    fn progress(&mut self, now: Time, budget: usize, events: &mut Vec<Event>) -> bool {
        let mut new = Vec::new();
        let worked = self.inner.progress(now, budget, &mut new);
        self.twist(new, events);
        for token in std::mem::take(&mut self.early) {
            let result = Ok(Done::Deregistered);
            events.push(Event::Done { token, result });
        }
        worked
    }

    fn notifier(&self) -> Notifier {
        struct Nothing;
        impl Notify for Nothing {
            fn notify(&self) {}
        }
        if self.sin == Sin::Deaf {
            return Notifier::new(Arc::new(Nothing));
        }
        self.inner.notifier()
    }

    delegate! {
        inner: address incarnation capabilities resolve peer forget arm fd register export import release
    }
}

struct Sinners(Sin, RealTime);

impl Fixture for Sinners {
    fn fresh(&self) -> Address {
        Address::parse(&format!("self://{}", self.1.name())).unwrap()
    }
    fn open(&self, at: &Address) -> Box<dyn Endpoint> {
        Box::new(Sinner {
            inner: Local::open(at).unwrap(),
            sin: self.0,
            done: 0,
            messages: 0,
            early: Vec::new(),
        })
    }
    fn now(&self) -> Time {
        self.1.now()
    }
    fn deadline(&self) -> Duration {
        Duration::from_millis(600)
    }
}

#[track_caller]
fn notices(sin: Sin, probe: fn(&mut World)) {
    run(&Sinners(Sin::None, RealTime::default()), probe);
    let guilty = || run(&Sinners(sin, RealTime::default()), probe);
    let noticed = catch_unwind(AssertUnwindSafe(guilty)).is_err();
    assert!(noticed, "{sin:?} went unnoticed");
}

#[test]
fn a_second_completion() {
    notices(Sin::Twice, messages::order_of_mixed_messages);
    notices(Sin::Twice, mix::random_operations);
}

#[test]
fn a_missing_completion() {
    notices(Sin::Never, messages::many_peers);
    notices(Sin::Never, mix::random_operations);
}

#[test]
fn messages_out_of_order_or_twice() {
    notices(Sin::Swap, messages::order_of_mixed_messages);
    notices(Sin::Echo, messages::many_peers);
}

#[test]
fn messages_that_were_taken_and_dropped() {
    notices(Sin::Forgetful, messages::back_pressure);
}

#[test]
fn losses_unsaid_or_unnamed() {
    notices(Sin::Secret, lifecycle::killed_peer);
    notices(Sin::Nameless, faults::loss_under_each);
}

#[test]
fn cancels_ignored() {
    notices(Sin::Stubborn, tagged::cancelled_receive);
}

#[test]
fn wake_ups_missed() {
    notices(Sin::Deaf, driving::notifier);
}

#[test]
fn regions_that_are_not_closed() {
    notices(Sin::Hasty, keys::closed_regions);
    notices(Sin::Hasty, keys::closing_waits_for_access);
}

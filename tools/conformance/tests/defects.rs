//! The suite finds defects: an endpoint that breaks one promise fails the probe of that promise.

use petasos_conformance::{
    Fixture, RealTime, World, capabilities, completions, driving, faults, fences, flush, keys,
    lifecycle, messages, mix, part_keys, run, tagged,
};
use petasos_fabric::{
    Access, Address, Capabilities, Completion, Done, Endpoint, Event, ExportError, InjectError,
    Key, KeyId, Notifier, Notify, OpError, Operation, Peer, Refused, RegionId, Time, Token,
    delegate,
};
use petasos_self::Local;
use std::{
    collections::VecDeque,
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

/// Which promise is broken, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    None,
    /// Completes the fifth operation twice.
    CompletesTwice,
    /// Never completes the fifth operation.
    NeverCompletes,
    /// Swaps two messages among the events.
    Reorders,
    /// Delivers a message twice.
    DuplicatesMessages,
    /// Raises no event for lost peers.
    HidesLoss,
    /// Reports errors without the peer.
    OmitsPeer,
    /// Ignores `cancel`.
    IgnoresCancel,
    /// Its notifier does nothing.
    IgnoresNotifier,
    /// Says that a region is closed before it is.
    ClosesEarly,
    /// Says that a key is revoked, and does not revoke it.
    RevokesNothing,
    /// Gives keys to parts all the rights of the region, and all of its bytes.
    ForgetsTheRange,
    /// Completes flushes before what they wait for.
    FlushesEarly,
    /// Carries out what carries a fence as if it carried none.
    ForgetsFences,
    /// Tells of no refusal by a flush.
    ForgetsRefusals,
    /// Takes whole queues, and drops operations for which it has no room.
    LosesOperations,
    /// Says of unknown peers what it can do with them.
    PromisesToAll,
    /// Polls for a completion behind messages, and drops these.
    PollsPastEvents,
    /// Reports a completion that was polled as an event, too.
    PollsAndReports,
}

struct Defective {
    inner: Local,
    defect: Defect,
    done: u32,
    messages: u32,
    early: Vec<Token>,
    revoked: Vec<Token>,
    flushes: Vec<Token>,
    /// Puts that are begun once no flush is to complete early.
    puts: VecDeque<Operation>,
    /// What was found by `poll_completion`, and is reported by the next pass.
    polled: Vec<Event>,
    now: Time,
}

impl Defective {
    fn twist(&mut self, mut new: Vec<Event>, events: &mut Vec<Event>) {
        if self.defect == Defect::Reorders && new.len() > 1 {
            let last = new.len() - 1;
            if matches!((&new[0], &new[last]), (Event::Message { .. }, Event::Message { .. })) {
                new.swap(0, last);
            }
        }
        for event in new {
            match event {
                Event::Done { token, result } => {
                    self.done += 1;
                    if self.early.contains(&token)
                        || self.defect == Defect::NeverCompletes && self.done == 5
                    {
                        continue;
                    }
                    if self.defect == Defect::CompletesTwice && self.done == 5 {
                        let result = result.clone();
                        events.push(Event::Done { token, result });
                    }
                    let result = match result {
                        Err(error) if self.defect == Defect::OmitsPeer => {
                            Err(OpError::local(error.into_kind()))
                        }
                        Err(_)
                            if self.defect == Defect::ForgetsRefusals
                                && self.flushes.contains(&token) =>
                        {
                            Ok(Done::Flushed)
                        }
                        result => result,
                    };
                    events.push(Event::Done { token, result });
                }
                Event::Message { peer, message } => {
                    self.messages += 1;
                    if self.defect == Defect::DuplicatesMessages && self.messages == 7 {
                        let message = petasos_fabric::Lease::inline(&message[..8]);
                        events.push(Event::Message { peer, message });
                    }
                    events.push(Event::Message { peer, message });
                }
                Event::PeerLost { .. } if self.defect == Defect::HidesLoss => {}
                other => events.push(other),
            }
        }
    }
}

impl Endpoint for Defective {
    fn inject(&mut self, peer: Peer, parts: &[&[u8]]) -> Result<(), InjectError> {
        match self.inner.inject(peer, parts) {
            Err(InjectError::Full) if self.defect == Defect::LosesOperations => Ok(()),
            result => result,
        }
    }

    fn try_submit(&mut self, operation: Operation) -> Result<(), Refused> {
        let (token, defect) = (operation.token(), self.defect);
        let operation = match operation {
            Operation::Fenced(fenced) if defect == Defect::ForgetsFences => fenced.into_plain(),
            operation => operation,
        };
        if let Operation::Flush { .. } = operation {
            self.flushes.push(token);
        }
        match operation {
            Operation::Deregister { .. } if defect == Defect::ClosesEarly => self.early.push(token),
            Operation::Flush { .. } if defect == Defect::FlushesEarly => self.early.push(token),
            Operation::Put { .. } if defect == Defect::FlushesEarly => {
                self.puts.push_back(operation);
            }
            Operation::Revoke { .. } if defect == Defect::RevokesNothing => {
                self.revoked.push(token);
            }
            _ => return self.inner.try_submit(operation),
        }
        Ok(())
    }

    fn export(&self, region: RegionId) -> Result<Key, ExportError> {
        self.inner.export(region)
    }

    fn export_part(
        &mut self,
        region: RegionId,
        range: Range<u64>,
        access: Access,
    ) -> Result<(KeyId, Key), ExportError> {
        if self.defect == Defect::ForgetsTheRange {
            let whole = self.inner.export(region)?.parse().expect("a key");
            let (id, key) = self.inner.export_part(region, 0..whole.len, whole.access)?;
            let mut parts = key.parse().expect("a key");
            (parts.len, parts.access) = (range.end.saturating_sub(range.start), access);
            return Ok((id, Key::compose(&parts)?));
        }
        self.inner.export_part(region, range, access)
    }

    fn cancel(&mut self, token: Token) {
        if self.defect != Defect::IgnoresCancel {
            self.inner.cancel(token);
        }
    }

    fn poll_completion(&mut self) -> Option<Completion> {
        if !matches!(self.defect, Defect::PollsPastEvents | Defect::PollsAndReports) {
            return None;
        }
        let mut events = Vec::new();
        self.inner.progress(self.now, 8, &mut events);
        let at = events.iter().position(|event| matches!(event, Event::Done { .. }));
        let completion = at.map(|at| Completion::from_event(events.remove(at)));
        match self.defect {
            // What else there was is lost.
            Defect::PollsPastEvents => {
                self.polled
                    .extend(events.into_iter().filter(|e| !matches!(e, Event::Message { .. })));
            }
            _ => {
                if let Some(Ok(completion)) = &completion {
                    let result = Ok(Done::Put);
                    self.polled.push(Event::Done { token: completion.token(), result });
                }
                self.polled.extend(events);
            }
        }
        completion?.ok()
    }

    fn progress(&mut self, now: Time, budget: usize, events: &mut Vec<Event>) -> bool {
        self.now = now;
        events.append(&mut self.polled);
        if self.early.is_empty() {
            self.inner.submit(&mut self.puts);
        }
        let mut new = Vec::new();
        let worked = self.inner.progress(now, budget, &mut new);
        self.twist(new, events);
        for token in std::mem::take(&mut self.early) {
            let result = match self.flushes.contains(&token) {
                true => Ok(Done::Flushed),
                false => Ok(Done::Deregistered),
            };
            events.push(Event::Done { token, result });
        }
        for token in self.revoked.drain(..) {
            events.push(Event::Done { token, result: Ok(Done::Revoked) });
        }
        worked
    }

    fn notifier(&self) -> Notifier {
        struct Nothing;
        impl Notify for Nothing {
            fn notify(&self) {}
        }
        if self.defect == Defect::IgnoresNotifier {
            return Notifier::new(Arc::new(Nothing));
        }
        self.inner.notifier()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn capabilities_of(&self, peer: Peer) -> Option<&Capabilities> {
        match self.defect {
            Defect::PromisesToAll => Some(self.inner.capabilities()),
            _ => self.inner.capabilities_of(peer),
        }
    }

    delegate! {
        inner: address incarnation resolve peer forget in_use arm fd register import release
    }
}

struct DefectiveFixture(Defect, RealTime);

impl Fixture for DefectiveFixture {
    fn fresh(&self) -> Address {
        Address::parse(&format!("self://{}", self.1.name())).unwrap()
    }
    fn open(&self, at: &Address) -> Box<dyn Endpoint> {
        Box::new(Defective {
            inner: Local::open(at).unwrap(),
            defect: self.0,
            done: 0,
            messages: 0,
            early: Vec::new(),
            polled: Vec::new(),
            now: self.1.now(),
            revoked: Vec::new(),
            flushes: Vec::new(),
            puts: VecDeque::new(),
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
fn is_found(defect: Defect, probe: fn(&mut World)) {
    run(&DefectiveFixture(Defect::None, RealTime::default()), probe);
    let defective = || run(&DefectiveFixture(defect, RealTime::default()), probe);
    let found = catch_unwind(AssertUnwindSafe(defective)).is_err();
    assert!(found, "{defect:?} was not found");
}

#[test]
fn a_second_completion() {
    is_found(Defect::CompletesTwice, messages::order_of_mixed_messages);
    is_found(Defect::CompletesTwice, mix::random_operations);
}

#[test]
fn a_missing_completion() {
    is_found(Defect::NeverCompletes, messages::many_peers);
    is_found(Defect::NeverCompletes, mix::random_operations);
}

#[test]
fn messages_out_of_order_or_twice() {
    is_found(Defect::Reorders, messages::order_of_mixed_messages);
    is_found(Defect::DuplicatesMessages, messages::many_peers);
}

#[test]
fn messages_that_were_taken_and_dropped() {
    is_found(Defect::LosesOperations, messages::back_pressure);
}

#[test]
fn losses_without_event_or_peer() {
    is_found(Defect::HidesLoss, lifecycle::killed_peer);
    is_found(Defect::OmitsPeer, faults::loss_under_each);
}

#[test]
fn cancels_ignored() {
    is_found(Defect::IgnoresCancel, tagged::cancelled_receive);
}

#[test]
fn wake_ups_missed() {
    is_found(Defect::IgnoresNotifier, driving::notifier);
}

#[test]
fn promises_for_unknown_peers() {
    is_found(Defect::PromisesToAll, capabilities::of_each_peer);
}

#[test]
fn completions_that_pass_events_or_come_twice() {
    is_found(Defect::PollsPastEvents, completions::among_other_events);
    is_found(Defect::PollsAndReports, completions::each_kind);
}

#[test]
fn flushes_that_lie() {
    is_found(Defect::FlushesEarly, flush::puts_are_visible);
    is_found(Defect::FlushesEarly, flush::every_access);
    is_found(Defect::ForgetsRefusals, flush::refusals_are_told_once);
    is_found(Defect::ForgetsRefusals, flush::cancelled);
}

#[test]
fn fences_that_hold_up_nothing() {
    is_found(Defect::ForgetsFences, fences::what_follows_waits);
    is_found(Defect::ForgetsFences, fences::of_one_among_others);
    is_found(Defect::ForgetsFences, fences::held);
}

#[test]
fn regions_that_are_not_closed() {
    is_found(Defect::ClosesEarly, keys::closed_regions);
    is_found(Defect::ClosesEarly, keys::closing_waits_for_access);
}

#[test]
fn keys_that_are_not_revoked() {
    is_found(Defect::RevokesNothing, part_keys::one_of_two_revoked);
    is_found(Defect::RevokesNothing, part_keys::revoked_for_good);
}

#[test]
fn keys_that_reach_too_far() {
    is_found(Defect::ForgetsTheRange, part_keys::rights);
    is_found(Defect::ForgetsTheRange, part_keys::ranges);
}

//! Memory that peers still reach when it is closed: for tests of protocols above the contract,
//! which have to keep it and to ask again.

use petasos_fabric::{
    Endpoint, Event, OpError, OpErrorKind, Operation, Peer, Refused, Sleep, Time, delegate,
};
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

/// How often memory is still reached, and how often its end was asked for.
#[derive(Debug, Default)]
pub struct Reaching {
    /// So many more closes end with [`OpErrorKind::StillReached`], all regions together.
    pub times: AtomicUsize,
    /// Closes that were asked for.
    pub asked: AtomicUsize,
}

/// An endpoint some of whose closes end with [`OpErrorKind::StillReached`].
pub struct Reached {
    inner: Box<dyn Endpoint>,
    reaching: Arc<Reaching>,
    held: VecDeque<Event>,
}

impl Reached {
    /// This endpoint, and the counters, which begin with so many closes.
    pub fn new(inner: impl Endpoint + 'static, times: usize) -> (Reached, Arc<Reaching>) {
        let reaching = Arc::new(Reaching { times: times.into(), asked: 0.into() });
        let held = VecDeque::new();
        (Reached { inner: Box::new(inner), reaching: reaching.clone(), held }, reaching)
    }
}

impl Endpoint for Reached {
    fn try_submit(&mut self, operation: Operation) -> Result<(), Refused> {
        let Operation::Deregister { token, .. } = operation else {
            return self.inner.try_submit(operation);
        };
        self.reaching.asked.fetch_add(1, SeqCst);
        let one_less = |times: usize| times.checked_sub(1);
        if self.reaching.times.fetch_update(SeqCst, SeqCst, one_less).is_err() {
            return self.inner.try_submit(operation);
        }
        let result = Err(OpError::local(OpErrorKind::StillReached));
        self.held.push_back(Event::Done { token, result });
        Ok(())
    }

    fn progress(&mut self, now: Time, budget: usize, events: &mut Vec<Event>) -> bool {
        let before = events.len();
        let worked = self.inner.progress(now, budget, events);
        events.extend(self.held.drain(..));
        worked || events.len() > before
    }

    fn arm(&mut self, now: Time) -> Sleep {
        if self.held.is_empty() { self.inner.arm(now) } else { Sleep::Busy }
    }

    fn inject(&mut self, peer: Peer, parts: &[&[u8]]) -> Result<(), petasos_fabric::InjectError> {
        self.inner.inject(peer, parts)
    }

    delegate! {
        inner: address incarnation capabilities resolve peer forget cancel fd notifier alloc
        register export import release
    }
}

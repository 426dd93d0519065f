//! The engine's clock, and its timers in the order in which they are due.

use super::{ClientId, RequestId};
use petasos_fabric::Time;
use petasos_pmix::{Group, Node};
use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

/// With more timers than this, those that no longer matter are dropped.
const CROWDED: usize = 1024;

/// What becomes due.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Request(ClientId, RequestId),
    Census(Group, u64),
    Probe(Group, u64),
    DeferredGets,
    Lookups,
    Query(u64),
    Connect,
    Premature,
    Progress,
    /// This node has not answered the measurement so far.
    Echo(Node),
}

/// A clock that is set from outside, and a queue of timers.
#[derive(Debug)]
pub(super) struct Timers<T: Ord> {
    now: Time,
    heap: BinaryHeap<Reverse<(Time, T)>>,
    /// With more timers than these it is time to tidy up.
    crowded: usize,
}

impl<T: Ord> Timers<T> {
    pub(super) fn new(now: Time) -> Timers<T> {
        Timers { now, heap: BinaryHeap::new(), crowded: CROWDED }
    }

    pub(super) fn now(&self) -> Time {
        self.now
    }

    /// Time never goes back.
    pub(super) fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    pub(super) fn set(&mut self, at: Time, timer: T) {
        self.heap.push(Reverse((at, timer)));
    }

    /// Sets a timer that is due after this time, and says when that is.
    pub(super) fn set_after(&mut self, delay: Duration, timer: T) -> Time {
        let at = self.now.after(delay);
        self.set(at, timer);
        at
    }

    pub(super) fn next(&self) -> Time {
        self.heap.peek().map_or(Time::NEVER, |Reverse((at, _))| *at)
    }

    /// The next timer, if it is due. What it was set for may be over by now.
    pub(super) fn pop_due(&mut self) -> Option<T> {
        let due = self.next() <= self.now;
        due.then(|| self.heap.pop()).flatten().map(|Reverse((_, timer))| timer)
    }

    /// Whether there are so many timers that obsolete ones should be dropped: a request is answered
    /// within microseconds, and its timer stays here for minutes.
    pub(super) fn is_crowded(&self) -> bool {
        self.heap.len() > self.crowded
    }

    /// Keeps the timers that still matter.
    pub(super) fn retain(&mut self, mut matters: impl FnMut(&T) -> bool) {
        self.heap.retain(|Reverse((_, timer))| matters(timer));
        // Not again before their number has doubled, so that each is examined only a few times.
        self.crowded = CROWDED.max(2 * self.heap.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn obsolete_timers_are_dropped_and_the_others_keep_their_order() {
        let mut timers = Timers::new(Time::ZERO);
        (0..3 * CROWDED).for_each(|n| timers.set(Time(n as u64), n));
        assert!(timers.is_crowded());
        timers.retain(|n| *n >= CROWDED);
        assert!(!timers.is_crowded(), "not again before there are twice as many");
        assert_eq!(timers.next(), Time(CROWDED as u64));
        timers.advance(Time(CROWDED as u64));
        assert_eq!(timers.pop_due(), Some(CROWDED));
        timers.retain(|_| false);
        timers.advance(Time::NEVER);
        assert_eq!((timers.pop_due(), timers.is_crowded()), (None, false));
    }
}

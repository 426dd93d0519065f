//! What is to be looked at when.

use petasos_fabric::Time;
use std::{cmp::Reverse, collections::BinaryHeap};

/// So many timers may be there before it is asked which of them still matter.
const MANY: usize = 1024;

#[derive(Debug)]
pub(super) struct Agenda<T: Ord> {
    heap: BinaryHeap<Reverse<(Time, T)>>,
    /// With more than these it is time to tidy up.
    many: usize,
}

impl<T: Ord> Default for Agenda<T> {
    fn default() -> Agenda<T> {
        Agenda { heap: BinaryHeap::new(), many: MANY }
    }
}

impl<T: Ord> Agenda<T> {
    pub(super) fn set(&mut self, at: Time, timer: T) {
        self.heap.push(Reverse((at, timer)));
    }

    pub(super) fn next(&self) -> Time {
        self.heap.peek().map_or(Time::NEVER, |Reverse((at, _))| *at)
    }

    /// The next one that is due, if any is. What it was about may be over by now.
    pub(super) fn due(&mut self, now: Time) -> Option<T> {
        (self.next() <= now).then(|| self.heap.pop()).flatten().map(|Reverse((_, timer))| timer)
    }

    /// Whether there are so many that those should go whose matter is over: a request is answered
    /// within microseconds, and its timer lies here for minutes.
    pub(super) fn is_crowded(&self) -> bool {
        self.heap.len() > self.many
    }

    /// Keeps those that still matter.
    pub(super) fn tidy(&mut self, mut matters: impl FnMut(&T) -> bool) {
        self.heap.retain(|Reverse((_, timer))| matters(timer));
        // The next time is when there are twice as many, so that each is looked at a few times only.
        self.many = MANY.max(2 * self.heap.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_goes_and_the_rest_stays_in_order() {
        let mut agenda = Agenda::default();
        (0..3 * MANY).for_each(|n| agenda.set(Time(n as u64), n));
        assert!(agenda.is_crowded());
        agenda.tidy(|n| *n >= MANY);
        assert!(!agenda.is_crowded(), "not again before there are twice as many");
        assert_eq!(agenda.next(), Time(MANY as u64));
        assert_eq!(agenda.due(Time(MANY as u64)), Some(MANY));
        agenda.tidy(|_| false);
        assert_eq!((agenda.due(Time::NEVER), agenda.is_crowded()), (None, false));
    }
}

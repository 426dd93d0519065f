//! What is to be looked at when.

use petasos_fabric::Time;
use std::{cmp::Reverse, collections::BinaryHeap};

#[derive(Debug)]
pub(super) struct Agenda<T: Ord>(BinaryHeap<Reverse<(Time, T)>>);

impl<T: Ord> Default for Agenda<T> {
    fn default() -> Agenda<T> {
        Agenda(BinaryHeap::new())
    }
}

impl<T: Ord> Agenda<T> {
    pub(super) fn set(&mut self, at: Time, timer: T) {
        self.0.push(Reverse((at, timer)));
    }

    pub(super) fn next(&self) -> Time {
        self.0.peek().map_or(Time::NEVER, |Reverse((at, _))| *at)
    }

    /// The next one that is due, if any is. What it was about may be over by now.
    pub(super) fn due(&mut self, now: Time) -> Option<T> {
        (self.next() <= now).then(|| self.0.pop()).flatten().map(|Reverse((_, timer))| timer)
    }
}

//! What will happen, in the order of virtual time: what drives both networks.

use petasos_fabric::Time;
use slab::Slab;
use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

/// Plans by time; those of one time in the order in which they were made.
#[derive(Debug)]
pub(crate) struct Agenda<P> {
    pub(crate) now: Time,
    order: BinaryHeap<Reverse<(Time, u64, usize)>>,
    plans: Slab<P>,
    count: u64,
}

impl<P> Agenda<P> {
    /// Nothing is planned. The time is a second after its beginning.
    pub(crate) fn new() -> Agenda<P> {
        let now = Time::ZERO.after(Duration::from_secs(1));
        Agenda { now, order: BinaryHeap::new(), plans: Slab::new(), count: 0 }
    }

    /// A number that is new each time.
    pub(crate) fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    pub(crate) fn plan(&mut self, at: Time, plan: P) {
        let slot = self.plans.insert(plan);
        let number = self.number();
        self.order.push(Reverse((at, number, slot)));
    }

    /// When the next thing happens.
    pub(crate) fn next(&self) -> Option<Time> {
        self.order.peek().map(|Reverse((at, _, _))| *at)
    }

    /// The next thing, and then it is its time.
    pub(crate) fn take(&mut self) -> Option<P> {
        let Reverse((at, _, slot)) = self.order.pop()?;
        self.reach(at);
        Some(self.plans.remove(slot))
    }

    /// It is this time, or later.
    pub(crate) fn reach(&mut self, time: Time) {
        self.now = self.now.max(time);
    }

    /// Plans that there are.
    pub(crate) fn len(&self) -> usize {
        self.plans.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_order_of_time_and_then_of_planning() {
        let mut agenda = Agenda::new();
        let begin = agenda.now;
        let at = |micros| begin.after(Duration::from_micros(micros));
        for (micros, plan) in [(3, 'c'), (1, 'a'), (3, 'd'), (2, 'b')] {
            agenda.plan(at(micros), plan);
        }
        assert_eq!((agenda.len(), agenda.next()), (4, Some(at(1))));
        let mut taken = Vec::new();
        while let Some(plan) = agenda.take() {
            taken.push((plan, agenda.now));
            // What comes too late happens now.
            if plan == 'b' {
                agenda.plan(at(1), 'e');
            }
        }
        let order = [('a', at(1)), ('b', at(2)), ('e', at(2)), ('c', at(3)), ('d', at(3))];
        assert_eq!(taken, order);
        agenda.reach(at(9));
        assert_eq!((agenda.now, agenda.next()), (at(9), None));
    }
}

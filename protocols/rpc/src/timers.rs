//! Deadlines of calls, both ways.
//!
//! Most calls end before the clock is next read. So a deadline begins as a duration: that of a call
//! of ours is kept with the call ([`Calls::take_recent`](crate::calls::Calls::take_recent)), that
//! of a call that we serve in a list. Only those of calls that are not over when the clock is read
//! become points in time and enter the heap. An entry whose call has ended is recognised when it
//! comes up, and the heap is swept when most of it is stale.

use crate::sleepers::Sleepers;
use petasos_fabric::Time;
use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

/// What a deadline is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// A call of ours: slot, generation.
    Call(u32, u32),
    /// A call that we serve: slot, serial number.
    Served(u32, u64),
}

#[derive(Debug, Default)]
pub(crate) struct Timers {
    fresh: Vec<(Duration, Due)>,
    heap: BinaryHeap<Reverse<(Time, Due)>>,
    /// Futures that wake at a time.
    pub(crate) sleepers: Sleepers,
}

impl Timers {
    /// A deadline `left` from now, whenever "now" turns out to be.
    #[inline]
    pub(crate) fn add(&mut self, left: Duration, due: Due) {
        self.fresh.push((left, due));
    }

    /// To be called when the clock was read: `alive` says whether a deadline still matters. Returns
    /// those that have passed.
    pub(crate) fn expired(&mut self, now: Time, mut alive: impl FnMut(Due) -> bool) -> Vec<Due> {
        for (left, due) in self.fresh.drain(..) {
            if alive(due) {
                self.heap.push(Reverse((now.after(left), due)));
            }
        }
        let mut over = Vec::new();
        while let Some(Reverse((at, due))) = self.heap.peek() {
            if *at > now {
                break;
            }
            if alive(*due) {
                over.push(*due);
            }
            self.heap.pop();
        }
        over
    }

    /// Drops stale deadlines when they are many; `live` is how many can matter at most.
    pub(crate) fn sweep(&mut self, live: usize, mut alive: impl FnMut(Due) -> bool) {
        if self.heap.len() > 2 * live + 1024 {
            self.heap.retain(|Reverse((_, due))| alive(*due));
        }
    }

    /// The next deadline, at the latest.
    pub(crate) fn next(&self, now: Time) -> Time {
        let fixed = self.heap.peek().map_or(Time::NEVER, |Reverse((at, _))| *at);
        let fixed = fixed.min(self.sleepers.next());
        let fresh = self.fresh.iter().map(|(left, _)| *left).min();
        fresh.map_or(fixed, |left| fixed.min(now.after(left)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_come_in_order_and_stale_ones_not_at_all() {
        let mut timers = Timers::default();
        for slot in [3u32, 1, 2, 4] {
            timers.add(Duration::from_secs(slot.into()), Due::Call(slot, 0));
        }
        let alive = |due| due != Due::Call(2, 0);
        let at = |seconds| Time::ZERO.after(Duration::from_secs(seconds));
        assert_eq!(timers.expired(at(10), alive), []);
        assert_eq!(timers.next(at(10)), at(11));
        assert_eq!(timers.expired(at(13), alive), [Due::Call(1, 0), Due::Call(3, 0)]);
        assert_eq!(timers.next(at(13)), at(14));
    }

    #[test]
    fn stale_deadlines_do_not_pile_up() {
        let mut timers = Timers::default();
        for slot in 0..5000 {
            timers.add(Duration::from_secs(30), Due::Call(slot, 0));
        }
        timers.expired(Time::ZERO, |_| true);
        timers.sweep(1, |due| due == Due::Call(7, 0));
        assert_eq!(timers.heap.len(), 1);
    }
}

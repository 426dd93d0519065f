//! The futures that sleep, beside the deadlines of calls.

use petasos_fabric::Time;
use std::{collections::BTreeMap, mem, task::Waker};

/// The futures that sleep, by the time at which they wake. One that is dropped leaves at once.
#[derive(Debug, Default)]
pub(crate) struct Sleepers {
    waiting: BTreeMap<(Time, u64), Option<Waker>>,
    last: u64,
}

impl Sleepers {
    /// Adds a sleeper, which has no waker yet.
    pub(crate) fn add(&mut self, until: Time) -> (Time, u64) {
        self.last += 1;
        self.waiting.insert((until, self.last), None);
        (until, self.last)
    }

    /// Notes the waker of a sleeper. False if its time has come.
    pub(crate) fn wait(&mut self, entry: (Time, u64), waker: &Waker) -> bool {
        let Some(waiting) = self.waiting.get_mut(&entry) else { return false };
        match waiting {
            Some(known) => known.clone_from(waker),
            waiting => *waiting = Some(waker.clone()),
        }
        true
    }

    /// Removes a sleeper that is dropped, and returns its waker.
    pub(crate) fn remove(&mut self, entry: (Time, u64)) -> Option<Waker> {
        self.waiting.remove(&entry)?
    }

    /// Removes those whose time has come. Returns their wakers, to wake once nothing is borrowed.
    #[inline]
    pub(crate) fn due(&mut self, now: Time) -> Vec<Waker> {
        if self.next() > now {
            return Vec::new();
        }
        // Those due at `now` itself are due, whatever their number.
        let later = self.waiting.split_off(&(now, u64::MAX));
        mem::replace(&mut self.waiting, later).into_values().flatten().collect()
    }

    /// When the first wakes.
    #[inline]
    pub(crate) fn next(&self) -> Time {
        self.waiting.first_key_value().map_or(Time::NEVER, |((until, _), _)| *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn sleepers_wake_in_order_and_once() {
        let at = |millis| Time::ZERO.after(Duration::from_millis(millis));
        let mut sleepers = Sleepers::default();
        let entries = [5, 3, 3, 9].map(|millis| sleepers.add(at(millis)));
        for entry in entries {
            sleepers.waiting.insert(entry, Some(Waker::noop().clone()));
        }
        assert_eq!((sleepers.next(), sleepers.due(at(2)).len()), (at(3), 0));
        assert_eq!((sleepers.due(at(3)).len(), sleepers.next()), (2, at(5)));
        // One that is not awaited is over, too.
        sleepers.waiting.insert(entries[0], None);
        assert_eq!((sleepers.due(at(8)).len(), sleepers.next()), (0, at(9)));
        assert_eq!((sleepers.due(Time::NEVER).len(), sleepers.next()), (1, Time::NEVER));
    }
}

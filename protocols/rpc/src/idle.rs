//! Looking for more to do before sleep, without keeping the processor from threads that work.
//!
//! A thread that has polled for a moment offers the processor now and then: where there are more
//! threads than processors, the one that is to answer may wait for it. Such an offer usually comes
//! back within microseconds. Where another thread computes, it comes back late, after that thread's
//! share of time; then for a while it is not offered, but the thread sleeps after the moment, and
//! what comes wakes the sleeper at once.

use std::{
    cell::Cell,
    thread,
    time::{Duration, Instant},
};

/// Idle passes that are a moment, a microsecond or two: most short calls are answered within it.
const MOMENT: u32 = 16;

/// Idle passes between two offers, and two looks at the clock.
const OFFER: u32 = 4;

/// An offer that comes back after so long was taken by a thread that computes.
const LONG: Duration = Duration::from_micros(500);

/// For how long it is not offered then.
const CROWDED: Duration = Duration::from_millis(100);

/// Since when there is nothing to do, and whether it is worth while to look again.
#[derive(Debug, Default)]
pub(crate) struct Looking {
    since: Cell<Option<(Instant, u32)>>,
    crowded: Cell<Option<Instant>>,
}

impl Looking {
    /// There was something to do.
    #[inline]
    pub(crate) fn found(&self) {
        self.since.set(None);
    }

    /// After a pass that found nothing: whether to look again, where that is done for `longest`.
    pub(crate) fn goes_on(&self, longest: Duration) -> bool {
        let Some((since, passes)) = self.since.get() else {
            self.since.set((!longest.is_zero()).then(|| (Instant::now(), 0)));
            return !longest.is_zero();
        };
        self.since.set(Some((since, passes + 1)));
        if passes < MOMENT || !passes.is_multiple_of(OFFER) {
            return true;
        }
        let now = Instant::now();
        let crowded = self.crowded.get().is_some_and(|at| now.duration_since(at) < CROWDED);
        if crowded || now.duration_since(since) >= longest {
            self.since.set(None);
            return false;
        }
        self.offer(now);
        true
    }

    fn offer(&self, begin: Instant) {
        thread::yield_now();
        let end = Instant::now();
        if end.duration_since(begin) >= LONG {
            self.crowded.set(Some(end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(looking: &Looking, longest: Duration) -> u32 {
        let mut looks = 0;
        while looking.goes_on(longest) {
            looks += 1;
        }
        looks
    }

    #[test]
    fn looks_for_so_long_and_begins_anew() {
        let looking = Looking::default();
        assert_eq!(looks(&looking, Duration::ZERO), 0);
        let begin = Instant::now();
        let longest = Duration::from_millis(20);
        let looks = looks(&looking, longest);
        let late = looking.crowded.take().is_some();
        assert!(looks > MOMENT && (late || begin.elapsed() >= longest));
        looking.goes_on(longest);
        looking.found();
        assert_eq!(looking.since.get(), None);
    }

    #[test]
    fn looks_for_a_moment_where_others_compute() {
        let looking = Looking::default();
        let day = Duration::from_secs(86_400);
        looking.crowded.set(Instant::now().checked_add(day));
        assert_eq!(looks(&looking, day), MOMENT + 1, "a moment, and no more");
        looking.crowded.set(Instant::now().checked_sub(CROWDED));
        assert!((0..MOMENT + OFFER).all(|_| looking.goes_on(day)), "they may have ended");
    }
}

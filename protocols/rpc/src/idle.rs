//! Polling before sleep, without keeping the processor from threads that work.
//!
//! A thread that has polled for a moment yields the processor now and then: if there are more
//! threads than processors, the thread that is to answer may be waiting for one. A yield usually
//! returns within microseconds. If another thread computes, it returns late, after that thread's
//! time slice; then for a while the thread does not yield, but sleeps after the moment, and what
//! arrives wakes it at once.

use std::{
    cell::Cell,
    thread,
    time::{Duration, Instant},
};

/// Idle passes that are a moment, a microsecond or two: most short calls are answered within it.
const MOMENT: u32 = 16;

/// Idle passes between two yields, and between two readings of the clock.
const YIELD: u32 = 4;

/// A yield that takes so long gave the processor to a thread that computes.
const LONG: Duration = Duration::from_micros(500);

/// For how long the thread does not yield after that.
const CROWDED: Duration = Duration::from_millis(100);

/// How long there has been nothing to do, and whether to poll again or to sleep.
#[derive(Debug)]
pub(crate) struct IdlePolling {
    /// How long to poll before sleep; `None`: for ever.
    longest: Option<Duration>,
    since: Cell<Option<(Instant, u32)>>,
    crowded: Cell<Option<Instant>>,
}

impl IdlePolling {
    pub(crate) fn new(longest: Option<Duration>) -> IdlePolling {
        IdlePolling { longest, since: Cell::new(None), crowded: Cell::new(None) }
    }

    /// There was something to do.
    #[inline]
    pub(crate) fn reset(&self) {
        self.since.set(None);
    }

    /// After a pass that found nothing: whether to poll again.
    pub(crate) fn poll_again(&self) -> bool {
        let Some(longest) = self.longest else { return true };
        let Some((since, passes)) = self.since.get() else {
            self.since.set((!longest.is_zero()).then(|| (Instant::now(), 0)));
            return !longest.is_zero();
        };
        self.since.set(Some((since, passes + 1)));
        if passes < MOMENT || !passes.is_multiple_of(YIELD) {
            return true;
        }
        let now = Instant::now();
        let crowded = self.crowded.get().is_some_and(|at| now.duration_since(at) < CROWDED);
        if crowded || now.duration_since(since) >= longest {
            self.since.set(None);
            return false;
        }
        self.yield_now(now);
        true
    }

    fn yield_now(&self, begin: Instant) {
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

    fn count(polling: &IdlePolling) -> u32 {
        let mut polls = 0;
        while polling.poll_again() {
            polls += 1;
        }
        polls
    }

    #[test]
    fn polls_for_so_long_and_begins_anew() {
        assert_eq!(count(&IdlePolling::new(Some(Duration::ZERO))), 0);
        let longest = Duration::from_millis(20);
        let polling = IdlePolling::new(Some(longest));
        let begin = Instant::now();
        let polls = count(&polling);
        let late = polling.crowded.take().is_some();
        assert!(polls > MOMENT && (late || begin.elapsed() >= longest));
        polling.poll_again();
        polling.reset();
        assert_eq!(polling.since.get(), None);
    }

    #[test]
    fn polls_for_a_moment_while_others_compute() {
        let day = Duration::from_secs(86_400);
        let polling = IdlePolling::new(Some(day));
        polling.crowded.set(Instant::now().checked_add(day));
        assert_eq!(count(&polling), MOMENT + 1, "a moment, and no more");
        polling.crowded.set(Instant::now().checked_sub(CROWDED));
        assert!((0..MOMENT + YIELD).all(|_| polling.poll_again()), "they may have ended");
    }
}

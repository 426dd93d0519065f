//! Polling before sleep, without keeping the processor from threads that work.
//!
//! A thread that has polled for a moment yields the processor now and then: if there are more
//! threads than processors, the thread that is to answer may be waiting for one. A yield usually
//! returns within microseconds. If another thread computes, it returns late, after that thread's
//! time slice; then for a while the thread does not yield, but sleeps after the moment, and what
//! arrives wakes it at once.

use std::{
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

/// How long a thread has found nothing to do, and whether it is to poll again or to sleep.
///
/// ```
/// use petasos_fabric::driver::{Idle, Spin};
/// use std::time::Duration;
///
/// let mut spin = Spin::new(Some(Duration::from_micros(50)));
/// loop {
///     // A pass over an endpoint finds nothing...
///     match spin.idle() {
///         Idle::Poll => std::hint::spin_loop(),
///         Idle::Yield => spin.yield_now(),
///         Idle::Sleep => break,
///     }
/// }
/// // ... and here the thread arms the endpoint, and sleeps.
/// ```
#[derive(Clone, Debug)]
pub struct Spin {
    longest: Option<Duration>,
    passes: u32,
    since: Option<Instant>,
    crowded: Option<Instant>,
}

/// What to do after a pass that found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Poll again.
    Poll,
    /// Let other threads have the processor ([`Spin::yield_now`]), and poll again.
    Yield,
    /// Sleep.
    Sleep,
}

impl Spin {
    /// Polls for so long before sleep; `None`: for ever.
    #[must_use]
    pub fn new(longest: Option<Duration>) -> Spin {
        Spin { longest, passes: 0, since: None, crowded: None }
    }

    /// There was something to do: counts anew.
    #[inline]
    pub fn reset(&mut self) {
        (self.passes, self.since) = (0, None);
    }

    /// How many passes have found nothing since there was something.
    #[must_use]
    #[inline]
    pub fn passes(&self) -> u32 {
        self.passes
    }

    /// After a pass that found nothing. Reads the clock once in some passes.
    #[inline]
    pub fn idle(&mut self) -> Idle {
        self.passes = self.passes.wrapping_add(1);
        match self.longest {
            None => Idle::Poll,
            Some(longest) if longest.is_zero() => Idle::Sleep,
            Some(_) if self.passes <= MOMENT || !self.passes.is_multiple_of(YIELD) => Idle::Poll,
            Some(longest) => self.after_a_moment(longest),
        }
    }

    #[inline(never)]
    fn after_a_moment(&mut self, longest: Duration) -> Idle {
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        let crowded = self.crowded.is_some_and(|at| now.duration_since(at) < CROWDED);
        if crowded || now.duration_since(since) >= longest {
            self.reset();
            return Idle::Sleep;
        }
        Idle::Yield
    }

    /// Yields the processor, and sees whether other threads compute. Not to be called with a lock
    /// that other threads need.
    pub fn yield_now(&mut self) {
        let begin = Instant::now();
        thread::yield_now();
        let end = Instant::now();
        if end.duration_since(begin) >= LONG {
            self.crowded = Some(end);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn count(spin: &mut Spin) -> u32 {
        let mut polls = 0;
        loop {
            match spin.idle() {
                Idle::Sleep => return polls,
                Idle::Yield => spin.yield_now(),
                Idle::Poll => {}
            }
            polls += 1;
        }
    }

    #[test]
    fn polls_for_so_long_and_begins_anew() {
        assert_eq!(count(&mut Spin::new(Some(Duration::ZERO))), 0);
        let longest = Duration::from_millis(20);
        let mut spin = Spin::new(Some(longest));
        let begin = Instant::now();
        let polls = count(&mut spin);
        let late = spin.crowded.take().is_some();
        assert!(polls > MOMENT && (late || begin.elapsed() >= longest));
        assert_eq!(spin.passes(), 0);
        spin.idle();
        spin.reset();
        assert_eq!((spin.passes(), spin.since), (0, None));
    }

    #[test]
    fn polls_for_a_moment_while_others_compute() {
        let day = Duration::from_secs(86_400);
        let mut spin = Spin::new(Some(day));
        spin.crowded = Instant::now().checked_add(day);
        assert_eq!(count(&mut spin), MOMENT + YIELD - 1, "a moment, and no more");
        spin.crowded = Instant::now().checked_sub(CROWDED);
        assert!((0..MOMENT + YIELD).all(|_| spin.idle() != Idle::Sleep), "they may have ended");
    }
}

//! Time: a coarse clock that the driver supplies.
//!
//! A driver reads the clock once every so many passes and hands the value to
//! [`Endpoint::progress`](crate::Endpoint::progress); the simulated network hands out virtual
//! time. Reading a clock costs about 30 ns, which a call over shared memory should not pay.

use std::time::{Duration, Instant};

/// A point in time: nanoseconds since an origin that the driver chose.
///
/// Only differences mean anything, and only within one process.
///
/// ```
/// use petasos_fabric::Time;
/// use std::time::Duration;
///
/// let later = Time::ZERO.after(Duration::from_millis(3));
/// assert_eq!(later, Time(3_000_000));
/// assert_eq!(later.since(Time::ZERO), Duration::from_millis(3));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

impl Time {
    /// The origin.
    pub const ZERO: Time = Time(0);
    /// Later than every other time: "no deadline".
    pub const NEVER: Time = Time(u64::MAX);

    /// This time plus `duration`, at most [`Time::NEVER`].
    #[must_use]
    pub fn after(self, duration: Duration) -> Time {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Time(self.0.saturating_add(nanos))
    }

    /// How long from `earlier` to this time; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// How long to wait for a peer.
///
/// Counted from when the clock is first seen to move after it was asked for: a program that
/// computes between a request and its next pass, and a driver that hands out the time of before,
/// take nothing from the peer's time.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    longest: Duration,
    /// Asked for, and not counting yet.
    asked: Option<Duration>,
    seen: Option<Time>,
    end: Time,
}

impl Patience {
    /// `duration` from now on.
    #[must_use]
    pub fn new(duration: Duration) -> Patience {
        Patience { longest: duration, asked: Some(duration), seen: None, end: Time::ZERO }
    }

    /// Another request: it ends `duration` from now on, or later if it already does.
    pub fn renew(&mut self, duration: Duration) {
        self.longest = self.longest.max(duration);
        self.asked = self.asked.max(Some(duration));
        self.seen = None;
    }

    /// The longest that was asked for.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.longest
    }

    /// Whether it is over at `now`.
    pub fn is_over(&mut self, now: Time) -> bool {
        let Some(asked) = self.asked else { return now >= self.end };
        if *self.seen.get_or_insert(now) < now {
            self.end = self.end.max(now.after(asked));
            self.asked = None;
        }
        false
    }

    /// When to check, if nothing happens before.
    #[must_use]
    pub fn end(&self) -> Time {
        if self.asked.is_some() { Time::ZERO } else { self.end }
    }
}

/// The monotonic clock of this machine, counted from when the value was made.
///
/// ```
/// use petasos_fabric::Clock;
/// use std::time::Duration;
///
/// let clock = Clock::start();
/// let deadline = clock.now().after(Duration::from_secs(5));
/// // What a driver passes to `Endpoint::progress`.
/// let now = clock.now();
/// assert!(now < deadline && deadline.since(now) <= Duration::from_secs(5));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock whose origin is now.
    #[must_use]
    pub fn start() -> Clock {
        Clock { origin: Instant::now() }
    }

    /// The time now. Starts a second after the origin, so that protocols may subtract.
    #[must_use]
    pub fn now(&self) -> Time {
        Time(1_000_000_000).after(self.origin.elapsed())
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::start()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn patience_counts_from_when_the_clock_moves() {
        let mut patience = Patience::new(SECOND);
        // What the driver knew before a long computation, and what it reads after.
        assert!(!patience.is_over(Time(1)));
        let late = Time(5_000_000_000);
        assert_eq!(patience.end(), Time::ZERO);
        assert!(!patience.is_over(late));
        assert_eq!(patience.end(), late.after(SECOND));
        patience.renew(2 * SECOND);
        assert!(!patience.is_over(late));
        assert!(!patience.is_over(late.after(SECOND)));
        // A shorter request takes nothing away.
        patience.renew(SECOND / 2);
        assert!(!patience.is_over(late.after(SECOND)));
        assert!(!patience.is_over(late.after(2 * SECOND)));
        assert!(!patience.is_over(late.after(SECOND * 5 / 2)));
        assert!(patience.is_over(late.after(3 * SECOND)));
        assert_eq!(patience.longest(), 2 * SECOND);
    }
}

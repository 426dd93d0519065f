//! Time as the fabric knows it: a coarse clock that is given from outside.
//!
//! A driver reads the clock once every so many passes and hands the value to
//! [`Endpoint::progress`](crate::Endpoint::progress); the simulated network hands out virtual
//! time. Reading a clock costs about 30 ns, a call over shared memory should not pay it.

use std::time::{Duration, Instant};

/// A point in time: nanoseconds since an origin that the driver chose.
///
/// Only differences mean anything, and only within one process.
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

/// The monotonic clock of this machine, counted from when the value was made.
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

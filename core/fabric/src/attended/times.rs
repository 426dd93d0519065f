//! The time of an endpoint that two threads drive: the program passes its own in, and the thread
//! reads the clock.

use crate::Time;
use std::time::{Duration, Instant};

/// Goes on from the program's time, and never backwards.
pub(super) struct Times {
    /// A moment, and the endpoint's time then.
    at: (Instant, Time),
    /// By how much the endpoint's time is ahead of the program's, once that is known.
    ahead: Option<Duration>,
    last: Time,
}

impl Times {
    pub(super) fn new() -> Times {
        Times { at: (Instant::now(), Time::ZERO), ahead: None, last: Time::ZERO }
    }

    fn clock(&self) -> Time {
        self.at.1.after(self.at.0.elapsed())
    }

    /// The endpoint's time where the program says that it is `now`. Reads the clock the first time
    /// alone.
    #[inline]
    pub(super) fn of_program(&mut self, now: Time) -> Time {
        let ahead = match self.ahead {
            Some(ahead) => ahead,
            None => self.meet(now),
        };
        self.last = self.last.max(now.after(ahead));
        self.last
    }

    /// The program's time is known from now on.
    #[cold]
    fn meet(&mut self, now: Time) -> Duration {
        let ahead = self.clock().since(now);
        self.ahead = Some(ahead);
        self.at = (Instant::now(), now.after(ahead));
        ahead
    }

    /// The endpoint's time by the clock.
    pub(super) fn of_thread(&mut self) -> Time {
        self.last = self.last.max(self.clock());
        self.last
    }

    /// How long it is until then, by the clock; `None` for ever.
    pub(super) fn until(&self, then: Time) -> Option<Duration> {
        (then != Time::NEVER).then(|| then.since(self.clock()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_from_the_program_and_never_backwards() {
        let hour = Time::ZERO.after(Duration::from_secs(3600));
        // The program's clock began long before, or later.
        for first in [hour, Time::ZERO] {
            let mut times = Times::new();
            std::thread::sleep(Duration::from_millis(2));
            let own = times.of_thread();
            assert!(own >= Time(2_000_000));
            let met = times.of_program(first);
            assert!(met >= own && met >= first);
            std::thread::sleep(Duration::from_millis(2));
            let later = times.of_thread();
            assert!(later.since(met) >= Duration::from_millis(2));
            assert_eq!(times.of_program(first), later);
            let next = times.of_program(first.after(Duration::from_secs(60)));
            assert_eq!(next, met.after(Duration::from_secs(60)));
            assert!(times.until(next.after(Duration::from_secs(1))) > Some(Duration::ZERO));
            assert_eq!(times.until(Time::NEVER), None);
        }
    }
}

//! The time of an endpoint that two threads drive: the program passes its own in, and the thread
//! reads the clock.

use crate::Time;
use std::time::{Duration, Instant};

/// Goes on from the thread's time, and never backwards.
pub(super) struct Times {
    begun: Instant,
    /// The program's time when it was first told, and the endpoint's then: the program's clock may
    /// have begun at any time, and what had a patience before that is not to lose it.
    met: Option<(Time, Time)>,
    last: Time,
}

impl Times {
    pub(super) fn new() -> Times {
        Times { begun: Instant::now(), met: None, last: Time::ZERO }
    }

    fn clock(&self) -> Time {
        Time::ZERO.after(self.begun.elapsed())
    }

    /// The endpoint's time where the program says that it is `now`. Reads the clock the first time
    /// alone.
    #[inline]
    pub(super) fn of_program(&mut self, now: Time) -> Time {
        let (first, then) = match self.met {
            Some(met) => met,
            None => self.meet(now),
        };
        self.last = self.last.max(then.after(now.since(first)));
        self.last
    }

    /// The program's time is known from now on.
    #[cold]
    fn meet(&mut self, now: Time) -> (Time, Time) {
        *self.met.insert((now, self.clock()))
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
    fn it_goes_on_whatever_the_programs_clock_says_and_never_backwards() {
        let hour = Time::ZERO.after(Duration::from_secs(3600));
        // The program's clock began long before, or later.
        for first in [hour, Time::ZERO] {
            let mut times = Times::new();
            std::thread::sleep(Duration::from_millis(2));
            let own = times.of_thread();
            assert!(own >= Time(2_000_000));
            let met = times.of_program(first);
            assert!(met >= own && met < own.after(Duration::from_secs(60)), "{met:?}");
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

//! Looking for more to do before sleep, without keeping the processor from those who work.
//!
//! Who looks offers the processor now and then: where there are more threads than processors, the one
//! that is to answer may wait for it. Such an offer usually comes back within microseconds. Where
//! somebody computes it comes back late, after his share of time; then nobody looks for a while, and what
//! comes wakes the sleeper at once.

use std::{
    cell::Cell,
    thread,
    time::{Duration, Instant},
};

/// Idle passes between two looks at the clock.
const PASSES: u32 = 32;

/// Idle passes before the first offer: most answers come within them.
const FIRST: u32 = 8;

/// Idle passes between two offers.
const OFFER: u32 = 4;

/// An offer that comes back after so long was taken by somebody who computes.
const LONG: Duration = Duration::from_micros(500);

/// For how long nobody looks then.
const CROWDED: Duration = Duration::from_millis(50);

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
        let Some((since, passes)) = self.since.get() else { return self.begin(longest) };
        let passes = passes + 1;
        if passes.is_multiple_of(PASSES) && since.elapsed() >= longest {
            self.since.set(None);
            return false;
        }
        self.since.set(Some((since, passes)));
        if passes >= FIRST && passes.is_multiple_of(OFFER) {
            self.offer();
        }
        true
    }

    fn begin(&self, longest: Duration) -> bool {
        if longest.is_zero() {
            return false;
        }
        let now = Instant::now();
        if self.crowded.get().is_some_and(|at| now.duration_since(at) < CROWDED) {
            return false;
        }
        self.since.set(Some((now, 0)));
        true
    }

    fn offer(&self) {
        let begin = Instant::now();
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
        assert!(looks(&looking, longest) > 0 && begin.elapsed() >= longest);
        looking.crowded.set(None);
        looking.goes_on(longest);
        looking.found();
        assert_eq!(looking.since.get(), None);
    }

    #[test]
    fn does_not_look_where_others_compute() {
        let looking = Looking::default();
        looking.crowded.set(Some(Instant::now()));
        assert!(!looking.goes_on(Duration::from_secs(1)));
        looking.crowded.set(Instant::now().checked_sub(CROWDED));
        assert!(looking.goes_on(Duration::from_secs(1)), "they may have ended");
    }
}

//! How long short work usually takes: what takes less time than handing it over is done at once, on
//! the thread of the engine that got the call.
//!
//! Two threads have to wake up for what is handed over, which takes ten times as long as looking at
//! a name that is in the system's memory. On the other hand no other client is served while an
//! engine's thread works. So each kind of work is timed: when it begins to take long, as with a
//! disk that is asked, a directory that is huge, or files that take their contents along, it is
//! handed over, until it is quick again.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// What takes longer is handed over.
const QUICK: Duration = Duration::from_micros(100);

/// One of so many counts as much as all before it.
const WEIGHT: u64 = 8;

/// A kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chore {
    /// Looking at something that has a name, or is open.
    Look,
    /// Opening what is there.
    Open,
    /// Making something.
    Make,
    /// Changing attributes.
    Change,
    /// Giving another name.
    Rename,
    /// Removing a name, perhaps the last one.
    Remove,
    /// Writing a little: into memory, unless there is too much in it that is not on the disk.
    Write,
    /// Closing.
    Close,
}

/// How long each kind takes, on an average of the last ones, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Pace {
    usual: [AtomicU64; Chore::Close as usize + 1],
}

impl Pace {
    /// Whether it usually is a matter of a moment.
    pub(super) fn is_quick(&self, chore: Chore) -> bool {
        u128::from(self.usual[chore as usize].load(Relaxed)) <= QUICK.as_nanos()
    }

    /// Does it, and learns how long it takes.
    pub(super) fn watch<T>(&self, chore: Chore, work: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let done = work();
        self.learn(chore, begin.elapsed());
        done
    }

    /// Threads that learn at the same time may lose a value, which does not matter.
    fn learn(&self, chore: Chore, took: Duration) {
        let usual = &self.usual[chore as usize];
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let before = usual.load(Relaxed);
        usual.store(before - before / WEIGHT + took / WEIGHT, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_slow_is_handed_over_until_it_is_quick_again() {
        let pace = Pace::default();
        assert!(pace.is_quick(Chore::Look) && pace.is_quick(Chore::Close));
        pace.learn(Chore::Look, Duration::from_millis(20));
        assert!(!pace.is_quick(Chore::Look) && pace.is_quick(Chore::Remove));
        let again = (1..).find(|_| {
            pace.learn(Chore::Look, Duration::from_micros(5));
            pace.is_quick(Chore::Look)
        });
        assert!((10..100).contains(&again.unwrap()), "{again:?}");
        pace.learn(Chore::Look, Duration::MAX);
        pace.learn(Chore::Look, Duration::MAX);
        assert!(!pace.is_quick(Chore::Look));
        assert_eq!(pace.watch(Chore::Open, || 7), 7);
    }
}

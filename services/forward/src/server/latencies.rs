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
pub(super) enum WorkKind {
    /// Attributes of something that has a name, or is open.
    Stat,
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
pub(super) struct Latencies {
    usual: [AtomicU64; WorkKind::Close as usize + 1],
}

impl Latencies {
    /// Whether it usually is a matter of a moment.
    pub(super) fn is_quick(&self, kind: WorkKind) -> bool {
        u128::from(self.usual[kind as usize].load(Relaxed)) <= QUICK.as_nanos()
    }

    /// Does it, and learns how long it takes.
    pub(super) fn watch<T>(&self, kind: WorkKind, work: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let done = work();
        self.learn(kind, begin.elapsed());
        done
    }

    /// Threads that learn at the same time may lose a value, which does not matter.
    fn learn(&self, kind: WorkKind, took: Duration) {
        let usual = &self.usual[kind as usize];
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
        let latencies = Latencies::default();
        assert!(latencies.is_quick(WorkKind::Stat) && latencies.is_quick(WorkKind::Close));
        latencies.learn(WorkKind::Stat, Duration::from_millis(20));
        assert!(!latencies.is_quick(WorkKind::Stat) && latencies.is_quick(WorkKind::Remove));
        let again = (1..).find(|_| {
            latencies.learn(WorkKind::Stat, Duration::from_micros(5));
            latencies.is_quick(WorkKind::Stat)
        });
        assert!((10..100).contains(&again.unwrap()), "{again:?}");
        latencies.learn(WorkKind::Stat, Duration::MAX);
        latencies.learn(WorkKind::Stat, Duration::MAX);
        assert!(!latencies.is_quick(WorkKind::Stat));
        assert_eq!(latencies.watch(WorkKind::Open, || 7), 7);
    }
}

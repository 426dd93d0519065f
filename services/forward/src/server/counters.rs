//! Counters that several threads add to.

use crate::protocol::Counters;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What was done: [`Counters`] while they count.
#[derive(Debug, Default)]
pub(super) struct Counting {
    pub(super) calls: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) read: AtomicU64,
    pub(super) written: AtomicU64,
    pub(super) gathered: AtomicU64,
}

impl Counting {
    pub(super) fn read(&self) -> Counters {
        Counters {
            calls: self.calls.load(Relaxed),
            failed: self.failed.load(Relaxed),
            read: self.read.load(Relaxed),
            written: self.written.load(Relaxed),
            gathered: self.gathered.load(Relaxed),
        }
    }
}

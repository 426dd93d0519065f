//! Short packets that arrived before their turn.

use crate::bounce::Bounce;
use petasos_fabric::Lease;

/// A packet whose turn has not come.
#[derive(Debug)]
pub(crate) struct Deferred {
    pub(crate) seq: u32,
    pub(crate) bytes: Lease,
    pub(crate) ahead: Ahead,
}

/// The data of a record that lends memory, fetched before its turn.
#[derive(Debug)]
pub(crate) enum Ahead {
    /// Not begun.
    No,
    /// Under way.
    Running,
    /// Complete.
    Done(Bounce),
}

/// Packets whose turn has not come, of all peers.
#[derive(Debug, Default)]
pub(crate) struct DeferredTotal {
    count: usize,
    /// The most that there were.
    most: usize,
    bytes: usize,
}

impl DeferredTotal {
    #[inline]
    pub(crate) fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.count += 1;
        self.most = self.most.max(self.count);
    }

    #[inline]
    pub(crate) fn remove(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.count -= 1;
    }

    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn most(&self) -> usize {
        self.most
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

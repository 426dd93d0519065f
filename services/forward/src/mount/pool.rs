//! Memory for blocks of data on their way, used again: fresh memory costs as much as a copy.

use petasos::fabric::{Exclusive, Region};
use std::sync::{Mutex, PoisonError};

/// The most bytes that one request of the kernel moves, and one block.
pub(super) const BLOCK: usize = 1 << 20;

/// Blocks that are not in use. Shared by the threads that take requests and the engine's.
#[derive(Debug)]
pub(super) struct Pool {
    free: Mutex<Vec<Exclusive>>,
    keep: usize,
}

/// A block of which so much is filled.
#[derive(Debug)]
pub(super) struct Filled {
    pub(super) memory: Exclusive,
    pub(super) len: usize,
}

impl Pool {
    /// A pool that keeps at most `bytes` bytes for later.
    pub(super) fn new(bytes: usize) -> Pool {
        Pool { free: Mutex::default(), keep: (bytes / BLOCK).max(4) }
    }

    /// A block of [`BLOCK`] bytes, whatever is in it.
    pub(super) fn take(&self) -> Exclusive {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        free.unwrap_or_else(|| {
            Region::zeroed(BLOCK).into_exclusive().expect("fresh memory is shared with nothing")
        })
    }

    /// A block that begins with `data`, which is no longer than a block.
    pub(super) fn filled(&self, data: &[u8]) -> Filled {
        let mut memory = self.take();
        memory[..data.len()].copy_from_slice(data);
        Filled { memory, len: data.len() }
    }

    /// Bytes of blocks that are not in use.
    pub(super) fn kept(&self) -> usize {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).len() * BLOCK
    }

    /// Takes a block back.
    pub(super) fn give(&self, memory: Exclusive) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < self.keep {
            free.push(memory);
        }
    }

    /// Takes a block back that was lent, unless the network still holds it.
    pub(super) fn give_region(&self, region: Region) {
        if let Ok(memory) = region.into_exclusive() {
            self.give(memory);
        }
    }
}

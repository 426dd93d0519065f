//! Memory for blocks of data on their way, used again: fresh memory costs as much as a copy.

use bytes::Bytes;
use petasos::fabric::{Exclusive, Region};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The most bytes that one request of the kernel moves, and one block.
pub(super) const BLOCK: usize = 1 << 20;

/// Data of at most so many bytes is kept as it is; more in blocks.
const LITTLE: usize = 16 << 10;

/// Blocks that are not in use. Shared by the threads that take requests and the engine's.
#[derive(Debug)]
pub(super) struct Pool {
    free: Mutex<Free>,
    keep: usize,
}

#[derive(Debug, Default)]
struct Free {
    blocks: Vec<Exclusive>,
    /// The fewest that there were since it was looked at: so many were not needed.
    spare: usize,
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
        let block = {
            let mut free = self.free();
            let block = free.blocks.pop();
            free.spare = free.spare.min(free.blocks.len());
            block
        };
        block.unwrap_or_else(|| {
            Region::zeroed(BLOCK).into_exclusive().expect("fresh memory is shared with nothing")
        })
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block that begins with `data`, which is no longer than a block.
    pub(super) fn filled(&self, data: &[u8]) -> Filled {
        let mut memory = self.take();
        memory[..data.len()].copy_from_slice(data);
        Filled { memory, len: data.len() }
    }

    /// Bytes of blocks that are not in use.
    pub(super) fn kept(&self) -> usize {
        self.free().blocks.len() * BLOCK
    }

    /// Gives back what was not needed since the last time.
    pub(super) fn trim(&self) {
        let mut free = self.free();
        let needed = free.blocks.len() - free.spare;
        let gone = free.blocks.split_off(needed);
        free.spare = needed;
        drop(free);
        // Each a call of the system's, for which no other thread waits.
        drop(gone);
    }

    /// Takes a block back.
    pub(super) fn give(&self, memory: Exclusive) {
        let mut free = self.free();
        if free.blocks.len() < self.keep {
            free.blocks.push(memory);
        }
    }

    /// Takes a block back that was lent, unless the network still holds it.
    pub(super) fn give_region(&self, region: Region) {
        if let Ok(memory) = region.into_exclusive() {
            self.give(memory);
        }
    }
}

/// Data that was written.
#[derive(Debug)]
pub(super) enum Data {
    /// Little.
    Bytes(Bytes),
    /// Much, or gathered.
    Block(Filled),
}

impl Data {
    /// A copy of what was written.
    pub(super) fn copy_of(bytes: &[u8], pool: &Pool) -> Data {
        match bytes.len() {
            0..=LITTLE => Data::Bytes(Bytes::copy_from_slice(bytes)),
            _ => Data::Block(pool.filled(bytes)),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Data::Bytes(bytes) => bytes.len(),
            Data::Block(block) => block.len,
        }
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        match self {
            Data::Bytes(bytes) => bytes,
            Data::Block(block) => &block.memory[..block.len],
        }
    }

    /// Adds more at the end; all of it is no longer than a block.
    pub(super) fn append(&mut self, more: &[u8], pool: &Pool) {
        if let Data::Bytes(bytes) = self {
            *self = Data::Block(pool.filled(bytes));
        }
        let Data::Block(block) = self else { unreachable!("it was made a block") };
        block.memory[block.len..block.len + more.len()].copy_from_slice(more);
        block.len += more.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool_with(blocks: usize) -> Pool {
        let pool = Pool::new(64 * BLOCK);
        let taken: Vec<Exclusive> = (0..blocks).map(|_| pool.take()).collect();
        taken.into_iter().for_each(|block| pool.give(block));
        pool
    }

    #[test]
    fn what_is_not_needed_goes() {
        let pool = pool_with(9);
        // In the time before all were in use.
        pool.trim();
        assert_eq!(pool.kept(), 9 * BLOCK);
        // Two of them are used at a time, again and again.
        for _ in 0..5 {
            let (one, other) = (pool.take(), pool.take());
            pool.give(one);
            pool.give(other);
        }
        pool.trim();
        assert_eq!(pool.kept(), 2 * BLOCK);
        pool.trim();
        assert_eq!(pool.kept(), 0);
    }

    #[test]
    fn no_more_is_kept_than_was_said() {
        assert_eq!(pool_with(70).kept(), 64 * BLOCK);
    }
}

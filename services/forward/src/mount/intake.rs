//! Where writes wait for the engine's thread: a write is answered by the thread that takes the
//! kernel's requests, as soon as the data is here.
//!
//! There is an intake for each file that is open to write; what comes in is kept in its order.
//! Whatever the engine's thread does about a file begins with what has come in before. It is told of
//! the first write after a pause, and then of each block that has become full: a program that writes a
//! file in little pieces wakes it once for a block.

use super::{
    behind::Data,
    pool::{BLOCK, Pool},
};
use bytes::Bytes;
use std::{
    collections::HashMap,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// Data of at most so many bytes is kept as it is; more in blocks.
const LITTLE: usize = 16 << 10;

/// The intakes of a mount.
#[derive(Debug)]
pub(super) struct Intakes {
    files: Mutex<HashMap<u64, Arc<Intake>>>,
    unwritten: AtomicUsize,
    limit: usize,
}

/// What came in for one file.
#[derive(Debug, Default)]
pub(super) struct Intake {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pieces: Vec<Incoming>,
    /// Bytes in these.
    bytes: usize,
    /// The engine's thread tends to this file: it will look here by itself.
    tended: bool,
    /// A write has failed: from now on each waits for what becomes of it.
    closed: bool,
}

/// A piece of a file.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) handle: u64,
    pub(super) offset: u64,
    pub(super) data: Data,
    /// By the kernel, out of its pages, through any open file.
    pub(super) from_cache: bool,
}

/// What became of a write that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offered {
    /// It is for the engine's thread to deal with.
    Refused,
    /// It was taken, and the engine's thread will find it.
    Taken,
    /// It was taken, and the engine's thread is to be told.
    Tell,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Data that was written, in memory of its own.
pub(super) fn data(bytes: &[u8], pool: &Pool) -> Data {
    match bytes.len() {
        0..=LITTLE => Data::Bytes(Bytes::copy_from_slice(bytes)),
        _ => Data::Block(pool.filled(bytes)),
    }
}

impl Intakes {
    /// Takes at most `limit` bytes at a time.
    pub(super) fn new(limit: usize) -> Intakes {
        Intakes { files: Mutex::default(), unwritten: AtomicUsize::new(0), limit }
    }

    /// The intake of a file that was opened to write.
    pub(super) fn open(&self, ino: u64) -> Arc<Intake> {
        Arc::clone(lock(&self.files).entry(ino).or_default())
    }

    /// No program has the file open to write any more.
    pub(super) fn close(&self, ino: u64) {
        lock(&self.files).remove(&ino);
    }

    /// Bytes that were written here and are not at the server.
    pub(super) fn add(&self, len: usize) {
        self.unwritten.fetch_add(len, Relaxed);
    }

    /// So many are, or are lost.
    pub(super) fn settle(&self, len: usize) {
        self.unwritten.fetch_sub(len, Relaxed);
    }

    /// Whether there is room for more.
    pub(super) fn has_room(&self) -> bool {
        self.unwritten.load(Relaxed) <= self.limit
    }

    /// Takes a write over, if there is room, and nothing stands against it.
    pub(super) fn offer(
        &self,
        ino: u64,
        handle: u64,
        offset: u64,
        bytes: &[u8],
        from_cache: bool,
        pool: &Pool,
    ) -> Offered {
        if !self.has_room() {
            return Offered::Refused;
        }
        let Some(intake) = lock(&self.files).get(&ino).map(Arc::clone) else {
            return Offered::Refused;
        };
        let state = &mut *lock(&intake.state);
        if state.closed {
            return Offered::Refused;
        }
        self.add(bytes.len());
        match state.pieces.last_mut() {
            Some(last)
                if last.handle == handle
                    && last.from_cache == from_cache
                    && last.offset + last.data.len() as u64 == offset
                    && last.data.len() + bytes.len() <= BLOCK =>
            {
                last.data.append(bytes, pool);
            }
            _ => {
                let data = data(bytes, pool);
                state.pieces.push(Incoming { handle, offset, data, from_cache });
            }
        }
        let (tended, before) = (mem::replace(&mut state.tended, true), state.bytes);
        state.bytes += bytes.len();
        match tended && (before >= BLOCK || state.bytes < BLOCK) {
            true => Offered::Taken,
            false => Offered::Tell,
        }
    }

    /// Whether all that was written to a file is known to be at the server.
    pub(super) fn is_settled(&self, ino: u64) -> bool {
        lock(&self.files).get(&ino).is_none_or(|intake| {
            let state = lock(&intake.state);
            !state.tended && !state.closed
        })
    }
}

impl Intake {
    /// What has come in since the last time.
    pub(super) fn take(&self) -> Vec<Incoming> {
        let state = &mut *lock(&self.state);
        state.bytes = 0;
        mem::take(&mut state.pieces)
    }

    /// The engine's thread tends to the file from now on.
    pub(super) fn tend(&self) {
        lock(&self.state).tended = true;
    }

    /// The engine's thread is to be told again when something comes in. False if something has.
    pub(super) fn rest(&self) -> bool {
        let state = &mut *lock(&self.state);
        state.tended = !state.pieces.is_empty();
        !state.tended
    }

    /// Takes nothing any more.
    pub(super) fn refuse(&self) {
        lock(&self.state).closed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_gathered_and_bounded() {
        let (pool, intakes) = (Pool::new(0), Intakes::new(100_000));
        let offer = |at: u64, len: usize, cache| {
            intakes.offer(7, 1, at, &vec![at as u8; len], cache, &pool)
        };
        assert_eq!(offer(0, 10, false), Offered::Refused, "it is not open to write");
        let intake = intakes.open(7);
        assert!(intakes.is_settled(7));
        assert_eq!(offer(0, 10, false), Offered::Tell);
        assert_eq!(offer(10, 10, false), Offered::Taken);
        assert_eq!(offer(30, 10, false), Offered::Taken);
        assert_eq!(offer(40, 10, true), Offered::Taken);
        let pieces: Vec<_> = intake.take().iter().map(|p| (p.offset, p.data.len())).collect();
        assert_eq!(pieces, [(0, 20), (30, 10), (40, 10)]);
        assert_eq!(offer(50, 200_000, false), Offered::Taken, "it will be looked for");
        assert_eq!(offer(300_000, 1, false), Offered::Refused, "too much");
        intakes.settle(200_000);
        assert_eq!(offer(300_000, 1, false), Offered::Taken);
        assert!(!intake.rest(), "there is something");
        assert_eq!(intake.take().len(), 2);
        assert!(!intakes.is_settled(7) && intake.rest() && intakes.is_settled(7));
        assert_eq!(offer(0, 1, false), Offered::Tell, "told again");
        assert_eq!(offer(1, 1, false), Offered::Taken);
        assert!(intake.take().len() == 1 && intake.rest());
        intake.refuse();
        assert_eq!(offer(0, 1, false), Offered::Refused);
        assert!(!intakes.is_settled(7), "an error is to be told");
        intakes.close(7);
        assert!(intakes.is_settled(7), "it is not open to write any more");
    }
    #[test]
    fn each_block_that_is_full_is_told_of() {
        let (pool, intakes) = (Pool::new(0), Intakes::new(usize::MAX));
        let intake = intakes.open(7);
        let page = vec![0; 4096];
        let told = |pages: std::ops::Range<u64>| {
            let offer =
                |at: &u64| intakes.offer(7, 1, at * 4096, &page, false, &pool) == Offered::Tell;
            pages.filter(offer).collect::<Vec<_>>()
        };
        assert_eq!(told(0..1000), [0, 255], "once, until it is looked at");
        intake.take();
        assert_eq!(told(1000..1300), [1255]);
    }
}

//! Queues of write requests, from the FUSE dispatcher to the engine's thread: a write is answered
//! as soon as its data is in the queue.
//!
//! Each file that is open to write has a queue, in the order of arrival. Whatever the engine's
//! thread does about a file begins with what is queued. It is notified of the first write after a
//! pause, and then of each block that has become full: a program that writes a file in little
//! pieces wakes it once for a block.

use super::pool::{BLOCK, Data, Pool};
use futures_channel::oneshot;
use std::{
    collections::HashMap,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

/// The queues of a mount, by file.
#[derive(Debug)]
pub(super) struct RequestQueues {
    files: Mutex<HashMap<u64, Arc<RequestQueue>>>,
    unwritten: AtomicUsize,
    limit: usize,
    /// Writers that wait until less is unwritten: dropped then.
    waiting: Mutex<Vec<oneshot::Sender<()>>>,
}

/// The write requests for one file.
#[derive(Debug, Default)]
pub(super) struct RequestQueue {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pieces: Vec<WriteRequest>,
    /// Bytes in these.
    bytes: usize,
    /// The engine's thread works on this file, and will poll the queue by itself.
    served: bool,
    /// A write has failed: from now on each write waits for its result.
    closed: bool,
}

/// Data for a part of a file.
#[derive(Debug)]
pub(super) struct WriteRequest {
    pub(super) handle: u64,
    pub(super) offset: u64,
    pub(super) data: Data,
    /// Written by the kernel, out of its pages, through any open file.
    pub(super) from_cache: bool,
}

/// What became of a write that was offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offered {
    /// Not queued: the engine's thread has to do it.
    Declined,
    /// Queued, and the engine's thread will find it.
    Queued,
    /// Queued, and the engine's thread is to be notified.
    Notify,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RequestQueues {
    /// Takes at most `limit` bytes at a time.
    pub(super) fn new(limit: usize) -> RequestQueues {
        let (files, unwritten, waiting) = (Mutex::default(), AtomicUsize::new(0), Mutex::default());
        RequestQueues { files, unwritten, limit, waiting }
    }

    /// The queue of a file that was opened to write.
    pub(super) fn open(&self, ino: u64) -> Arc<RequestQueue> {
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

    /// So many of them are at the server now, or lost.
    pub(super) fn settle(&self, len: usize) {
        self.unwritten.fetch_sub(len, Relaxed);
        if self.has_room() {
            // Unlocked before it is dropped, which wakes them.
            let waiting = mem::take(&mut *lock(&self.waiting));
            drop(waiting);
        }
    }

    /// Whether there is room for more.
    fn has_room(&self) -> bool {
        self.unwritten.load(Relaxed) <= self.limit
    }

    /// Waits until there is room for more. Only the thread that settles may wait.
    pub(super) async fn room(&self) {
        while !self.has_room() {
            let (sender, room) = oneshot::channel();
            lock(&self.waiting).push(sender);
            let _ = room.await;
        }
    }

    /// Queues a write, if there is room and no earlier write has failed.
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
            return Offered::Declined;
        }
        let Some(queue) = lock(&self.files).get(&ino).map(Arc::clone) else {
            return Offered::Declined;
        };
        let state = &mut *lock(&queue.state);
        if state.closed {
            return Offered::Declined;
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
                let data = Data::copy_of(bytes, pool);
                state.pieces.push(WriteRequest { handle, offset, data, from_cache });
            }
        }
        let (served, before) = (mem::replace(&mut state.served, true), state.bytes);
        state.bytes += bytes.len();
        match served && (before >= BLOCK || state.bytes < BLOCK) {
            true => Offered::Queued,
            false => Offered::Notify,
        }
    }

    /// Whether all that was written to a file is known to be at the server.
    pub(super) fn is_settled(&self, ino: u64) -> bool {
        lock(&self.files).get(&ino).is_none_or(|queue| {
            let state = lock(&queue.state);
            !state.served && !state.closed
        })
    }
}

impl RequestQueue {
    /// Takes what is queued.
    pub(super) fn take(&self) -> Vec<WriteRequest> {
        let state = &mut *lock(&self.state);
        state.bytes = 0;
        mem::take(&mut state.pieces)
    }

    /// The engine's thread works on the file from now on.
    pub(super) fn set_served(&self) {
        lock(&self.state).served = true;
    }

    /// The engine's thread is to be notified again of the next write. False if one is queued.
    pub(super) fn try_idle(&self) -> bool {
        let state = &mut *lock(&self.state);
        state.served = !state.pieces.is_empty();
        !state.served
    }

    /// Declines all later writes.
    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_gathered_and_bounded() {
        let (pool, queues) = (Pool::new(0), RequestQueues::new(100_000));
        let offer =
            |at: u64, len: usize, cache| queues.offer(7, 1, at, &vec![at as u8; len], cache, &pool);
        assert_eq!(offer(0, 10, false), Offered::Declined, "it is not open to write");
        let queue = queues.open(7);
        assert!(queues.is_settled(7));
        assert_eq!(offer(0, 10, false), Offered::Notify);
        assert_eq!(offer(10, 10, false), Offered::Queued);
        assert_eq!(offer(30, 10, false), Offered::Queued);
        assert_eq!(offer(40, 10, true), Offered::Queued);
        let pieces: Vec<_> = queue.take().iter().map(|p| (p.offset, p.data.len())).collect();
        assert_eq!(pieces, [(0, 20), (30, 10), (40, 10)]);
        assert_eq!(offer(50, 200_000, false), Offered::Queued, "it will be polled for");
        assert_eq!(offer(300_000, 1, false), Offered::Declined, "too much");
        queues.settle(200_000);
        assert_eq!(offer(300_000, 1, false), Offered::Queued);
        assert!(!queue.try_idle(), "there is something");
        assert_eq!(queue.take().len(), 2);
        assert!(!queues.is_settled(7) && queue.try_idle() && queues.is_settled(7));
        assert_eq!(offer(0, 1, false), Offered::Notify, "notified again");
        assert_eq!(offer(1, 1, false), Offered::Queued);
        assert!(queue.take().len() == 1 && queue.try_idle());
        queue.close();
        assert_eq!(offer(0, 1, false), Offered::Declined);
        assert!(!queues.is_settled(7), "an error is to be told");
        queues.close(7);
        assert!(queues.is_settled(7), "it is not open to write any more");
    }

    #[test]
    fn each_full_block_is_notified() {
        let (pool, queues) = (Pool::new(0), RequestQueues::new(usize::MAX));
        let queue = queues.open(7);
        let page = vec![0; 4096];
        let notified = |pages: std::ops::Range<u64>| {
            let offer =
                |at: &u64| queues.offer(7, 1, at * 4096, &page, false, &pool) == Offered::Notify;
            pages.filter(offer).collect::<Vec<_>>()
        };
        assert_eq!(notified(0..1000), [0, 255], "once, until it is taken");
        queue.take();
        assert_eq!(notified(1000..1300), [1255]);
    }
}

//! Small requests to one file that wait together and touch each other are served as one.
//!
//! Each request has its own entry in the queue of the pool's threads. The first of them to be
//! served takes its neighbours along, whose entries then find nothing left to do. So no request
//! waits for a neighbour that may come.

use super::budget::Memory;
use crate::{FsResult, storage::StoredFile};
use bytes::Bytes;
use futures_channel::oneshot;
use petasos::fabric::Buffer;
use std::{
    collections::BTreeMap,
    fmt,
    io::IoSlice,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Requests that are served as one, at most.
const PIECES: usize = 64;

/// Bytes of them, at most.
const BYTES: usize = 1 << 20;

/// Where a request begins, and a number that makes it unique.
pub(super) type RequestKey = (u64, u64);

/// Requests to one file that wait.
#[derive(Default)]
pub(super) struct Gather {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    serial: u64,
    writes: BTreeMap<RequestKey, Write>,
    reads: BTreeMap<RequestKey, Read>,
}

struct Write {
    data: Bytes,
    answer: oneshot::Sender<FsResult<u64>>,
    _memory: Memory,
}

struct Read {
    len: usize,
    answer: oneshot::Sender<FsResult<Bytes>>,
    _memory: Memory,
}

/// A request that others may join.
trait Request {
    fn len(&self) -> usize;
    /// Whether no caller waits for it any more.
    fn is_gone(&self) -> bool;
}

impl Request for Write {
    fn len(&self) -> usize {
        self.data.len()
    }
    fn is_gone(&self) -> bool {
        self.answer.is_canceled()
    }
}

impl Request for Read {
    fn len(&self) -> usize {
        self.len
    }
    fn is_gone(&self) -> bool {
        self.answer.is_canceled()
    }
}

impl Gather {
    /// A write that waits from now on. It is to be served by [`Gather::write`].
    pub(super) fn add_write(
        &self,
        offset: u64,
        data: Bytes,
        memory: Memory,
    ) -> (RequestKey, oneshot::Receiver<FsResult<u64>>) {
        let (answer, receiver) = oneshot::channel();
        let mut waiting = self.lock();
        let key = waiting.key(offset);
        waiting.writes.insert(key, Write { data, answer, _memory: memory });
        (key, receiver)
    }

    /// A read that waits from now on. It is to be served by [`Gather::read`].
    pub(super) fn add_read(
        &self,
        offset: u64,
        len: usize,
        memory: Memory,
    ) -> (RequestKey, oneshot::Receiver<FsResult<Bytes>>) {
        let (answer, receiver) = oneshot::channel();
        let mut waiting = self.lock();
        let key = waiting.key(offset);
        waiting.reads.insert(key, Read { len, answer, _memory: memory });
        (key, receiver)
    }

    /// Takes a request back that is not to be served.
    pub(super) fn forget(&self, key: RequestKey) {
        let mut waiting = self.lock();
        let gone = (waiting.writes.remove(&key), waiting.reads.remove(&key));
        drop(waiting);
        drop(gone);
    }

    /// Serves a write that waits, and its neighbours; gives how many there were in all. Blocks.
    pub(super) fn write(&self, key: RequestKey, file: &dyn StoredFile) -> Gathered {
        let writes = take(&mut self.lock().writes, key);
        let Some((offset, _)) = writes.first().map(|(key, _)| *key) else {
            return Gathered::default();
        };
        let slices: Vec<_> = writes.iter().map(|(_, write)| IoSlice::new(&write.data)).collect();
        let done = file.write_at(offset, &slices);
        let (together, count) = (done.is_ok(), writes.len());
        let mut served =
            Gathered { count: if together && count > 1 { count } else { 0 }, bytes: 0 };
        for ((at, _), write) in writes {
            // Each caller gets the failure of its own request only.
            let result = match &done {
                Ok(end) if count == 1 => Ok(*end),
                Ok(_) => Ok(at + write.data.len() as u64),
                Err(error) if count == 1 => Err(error.clone()),
                Err(_) => file.write_at(at, &[IoSlice::new(&write.data)]),
            };
            if result.is_ok() {
                served.bytes += write.data.len() as u64;
            }
            let _ = write.answer.send(result);
        }
        served
    }

    /// Serves a read that waits, and its neighbours; gives how many there were in all. Blocks.
    pub(super) fn read(&self, key: RequestKey, file: &dyn StoredFile) -> Gathered {
        let reads = take(&mut self.lock().reads, key);
        let Some((offset, _)) = reads.first().map(|(key, _)| *key) else {
            return Gathered::default();
        };
        let len = reads.iter().map(|(_, read)| read.len).sum();
        let mut buffer = Buffer::scratch(len);
        let done = file.read_at(offset, &mut buffer).map(|count| {
            let all = Bytes::from_owner(Owned(buffer));
            all.slice(..count.min(len))
        });
        let (together, count) = (done.is_ok(), reads.len());
        let mut served =
            Gathered { count: if together && count > 1 { count } else { 0 }, bytes: 0 };
        for ((at, _), read) in reads {
            let from = (at - offset) as usize;
            let result = match &done {
                Ok(all) => Ok(all.slice(from.min(all.len())..(from + read.len).min(all.len()))),
                Err(error) if count == 1 => Err(error.clone()),
                Err(_) => read_alone(file, at, read.len),
            };
            served.bytes += result.as_ref().map_or(0, |data| data.len() as u64);
            let _ = read.answer.send(result);
        }
        served
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was served at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Gathered {
    /// Requests that were joined with others.
    pub(super) count: usize,
    /// Bytes read or written.
    pub(super) bytes: u64,
}

/// Reads into new memory. Blocks.
pub(super) fn read_alone(file: &dyn StoredFile, offset: u64, len: usize) -> FsResult<Bytes> {
    let mut buffer = Buffer::scratch(len);
    let count = file.read_at(offset, &mut buffer)?.min(len);
    Ok(Bytes::from_owner(Owned(buffer)).slice(..count))
}

/// Reads into new memory without waiting, if that is possible.
pub(super) fn read_at_once(
    file: &dyn StoredFile,
    offset: u64,
    len: usize,
) -> Option<FsResult<Bytes>> {
    let mut buffer = Buffer::scratch(len);
    let read = file.read_at_once(offset, &mut buffer)?;
    Some(read.map(|count| Bytes::from_owner(Owned(buffer)).slice(..count.min(len))))
}

/// A buffer as the owner of bytes.
struct Owned(Buffer);

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Waiting {
    fn key(&mut self, offset: u64) -> RequestKey {
        self.serial += 1;
        (offset, self.serial)
    }
}

/// Takes a request out, and those that touch it, in order: nothing if it is gone.
fn take<R: Request>(
    waiting: &mut BTreeMap<RequestKey, R>,
    key: RequestKey,
) -> Vec<(RequestKey, R)> {
    let Some(first) = waiting.remove(&key) else { return Vec::new() };
    if first.is_gone() {
        return Vec::new();
    }
    let mut bytes = first.len();
    let mut start = key.0;
    let mut end = start + bytes as u64;
    let mut taken = std::collections::VecDeque::from([(key, first)]);
    while taken.len() < PIECES {
        let before = waiting.range(..(start, 0)).next_back();
        let before = before.filter(|(at, request)| at.0 + request.len() as u64 == start);
        let after = waiting.range((end, 0)..=(end, u64::MAX)).next();
        let fits = |found: Option<(&RequestKey, &R)>| {
            let (at, request) = found?;
            (bytes + request.len() <= BYTES && !request.is_gone()).then_some(*at)
        };
        if let Some(at) = fits(after) {
            let Some(request) = waiting.remove(&at) else { break };
            bytes += request.len();
            end += request.len() as u64;
            taken.push_back((at, request));
        } else if let Some(at) = fits(before) {
            let Some(request) = waiting.remove(&at) else { break };
            bytes += request.len();
            start = at.0;
            taken.push_front((at, request));
        } else {
            break;
        }
    }
    taken.into()
}

impl fmt::Debug for Gather {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gather")
    }
}

//! Buffers for received messages: a bounded number at a time.

use crate::{Buffer, Lease, Quota, Share, memory::retain_freed_memory};
use std::{fmt, sync::Arc};

/// The buffers from which an endpoint lends: at most so many at a time.
///
/// What comes back stays with the thread that drops it, and is used again there. So in the usual
/// case, where messages are dropped by the thread that receives them, nothing is allocated, no lock
/// is taken, and buffers are zeroed but once.
#[derive(Clone)]
pub struct Pool(Arc<Quota>);

impl Pool {
    /// A pool that lends at most `limit` buffers, and 256 MiB in all. The first one of a process
    /// has glibc keep up to 64 MiB of memory that was freed.
    #[must_use]
    pub fn new(limit: usize) -> Pool {
        Pool::with_bytes(limit, 256 << 20)
    }

    /// A pool that lends at most `limit` buffers, and another one while less than `bytes` bytes are
    /// lent: so one more buffer at most, however long, than these hold.
    #[must_use]
    pub fn with_bytes(limit: usize, bytes: usize) -> Pool {
        retain_freed_memory();
        Pool(Arc::new(Quota::with_bytes(limit, bytes)))
    }

    /// What is taken of it.
    pub(crate) fn quota(&self) -> &Arc<Quota> {
        &self.0
    }

    /// Whether another buffer can be lent. Short leases are always to be had.
    #[inline]
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.0.has_room()
    }

    /// Buffers that are lent now, or promised ([`Share`]).
    #[inline]
    #[must_use]
    pub fn lent(&self) -> usize {
        self.0.taken()
    }

    /// A lease of `len` bytes that `fill` writes; `None` when the limit is reached. `fill` sees
    /// zeroes or bytes of earlier messages, and must write all.
    #[inline]
    #[must_use]
    pub fn lend(&self, len: usize, fill: impl FnOnce(&mut [u8])) -> Option<Lease> {
        if len <= Lease::LINES {
            return Some(Lease::short(len, fill));
        }
        let mut buffer = self.buffer(len)?;
        fill(&mut buffer);
        Some(buffer.into_lease())
    }

    /// A buffer of `len` bytes, zeroes or bytes of earlier messages, to be filled bit by bit.
    /// Counts as lent until it, or the lease that it becomes, is dropped. `None` when the limit is
    /// reached.
    #[inline]
    #[must_use]
    pub fn buffer(&self, len: usize) -> Option<Buffer> {
        self.0.take(len).then(|| Buffer::of_pool(len, Arc::clone(&self.0)))
    }

    /// The part of a sender whose messages have up to `longest` bytes.
    #[must_use]
    pub fn share(&self, longest: usize) -> Share {
        Share::new(Arc::clone(&self.0), longest)
    }
}

impl Share {
    /// A buffer of `len` bytes in the place of a promise. What that was too long is given back by
    /// [`Share::lighten`], of several at a time: [`Share::excess`].
    #[inline]
    pub(crate) fn buffer(&self, len: usize) -> Buffer {
        Buffer::of_share(len, self.clone())
    }

    /// A lease of `len` bytes that `fill` writes, without a promise before; `None` when there is no
    /// room for this sender. Other senders may lend from their shares on other threads. `fill` sees
    /// zeroes or bytes of earlier messages, and must write all.
    #[must_use]
    pub fn lend(&self, len: usize, fill: impl FnOnce(&mut [u8])) -> Option<Lease> {
        if len <= Lease::LINES {
            return Some(Lease::short(len, fill));
        }
        if !self.take(len) {
            return None;
        }
        let mut buffer = self.buffer(len);
        fill(&mut buffer);
        Some(buffer.into_lease())
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} of {} lent)", self.lent(), self.0.limit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lends_so_many_and_gets_them_back() {
        let pool = Pool::new(2);
        let first = pool.lend(1000, |b| b.fill(1)).unwrap();
        let second = pool.lend(2000, |b| b.fill(2)).unwrap();
        assert!(pool.lend(1000, |_| ()).is_none());
        assert!(pool.lend(10, |b| b.fill(3)).is_some(), "short leases need no buffer");
        assert!(first.iter().all(|b| *b == 1) && second.len() == 2000);
        drop(first);
        assert_eq!(pool.lent(), 1);
        assert_eq!(pool.lend(3000, |b| b.fill(4)).unwrap().len(), 3000);
        drop(second);
        assert_eq!(pool.lent(), 0);
    }

    #[test]
    fn bytes_are_bounded_as_well() {
        let pool = Pool::with_bytes(10, 100_000);
        let first = pool.buffer(99_999).unwrap();
        let second = pool.buffer(1 << 20).expect("one more");
        assert!(!pool.has_room() && pool.buffer(160).is_none());
        drop(second.into_lease());
        assert!(pool.has_room() && pool.buffer(1).is_some());
        drop(first);
        assert_eq!(pool.lent(), 0);
    }

    #[test]
    fn lengths_of_all_sizes() {
        let pool = Pool::new(1);
        for len in [0, 1, 57, 112, 113, 4096, 4097, 65536, 65537, 1 << 20] {
            for fill in 1..4 {
                let lease = pool.lend(len, |room| room.fill(fill)).unwrap();
                assert!(lease.len() == len && lease.iter().all(|byte| *byte == fill));
                assert_eq!(pool.lent(), usize::from(len > Lease::LINES));
            }
        }
        let short = pool.buffer(5).unwrap();
        assert_eq!((pool.lent(), short.len()), (1, 5));
        assert_eq!(short.into_lease().len(), 5);
        assert_eq!(pool.lent(), 0, "what is short is no loan");
    }

    #[test]
    fn buffers_are_used_again_on_their_thread() {
        let pool = Pool::new(2);
        let first = pool.buffer(5000).unwrap();
        let at = first.as_ptr();
        drop(first.into_lease());
        let (again, other) = (pool.buffer(16_000).unwrap(), pool.buffer(16_000).unwrap());
        assert!(again.as_ptr() == at && other.as_ptr() != at);
        // Dropped by another thread, which ends with them.
        std::thread::spawn(|| drop((again, other))).join().expect("no panic");
        assert_eq!(pool.lent(), 0);
    }
}

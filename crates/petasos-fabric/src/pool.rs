//! Buffers for received messages: so many at a time, and used again.

use crate::Lease;
use std::{
    cell::RefCell,
    fmt, mem,
    ops::{Deref, DerefMut},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// The buffers from which an endpoint lends: at most so many at a time.
///
/// What comes back stays with the thread that drops it, and is used again there. So in the usual
/// case, where messages are dropped by the thread that receives them, nothing is allocated, no lock
/// is taken, and buffers are zeroed but once.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

struct Shared {
    lent: AtomicUsize,
    limit: usize,
}

/// Lengths of the buffers that are kept, and how many of each a thread keeps: 1.25 MiB in all.
const CLASSES: [(usize, usize); 2] = [(4 << 10, 64), (64 << 10, 16)];

thread_local! {
    static FREE: RefCell<[Vec<Vec<u8>>; CLASSES.len()]> =
        const { RefCell::new([const { Vec::new() }; CLASSES.len()]) };
}

impl Pool {
    /// A pool that lends at most `limit` buffers.
    #[must_use]
    pub fn new(limit: usize) -> Pool {
        Pool(Arc::new(Shared { lent: AtomicUsize::new(0), limit }))
    }

    /// Whether another buffer can be lent. Inline leases are always to be had.
    #[inline]
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.lent() < self.0.limit
    }

    /// Buffers lent now.
    #[inline]
    #[must_use]
    pub fn lent(&self) -> usize {
        self.0.lent.load(Ordering::Relaxed)
    }

    /// A lease of `len` bytes that `fill` writes; `None` when the limit is reached. `fill` sees
    /// zeroes or bytes of earlier messages, and must write all.
    #[inline]
    #[must_use]
    pub fn lend(&self, len: usize, fill: impl FnOnce(&mut [u8])) -> Option<Lease> {
        if len <= Lease::INLINE {
            return Some(Lease::inline_with(len, fill));
        }
        let mut buffer = self.buffer(len)?;
        fill(&mut buffer);
        Some(buffer.into_lease())
    }

    /// A buffer of `len` bytes, zeroes or bytes of earlier messages, to be filled bit by bit. Counts
    /// as lent until it, or the lease that it becomes, is dropped. `None` when the limit is reached.
    #[inline]
    #[must_use]
    pub fn buffer(&self, len: usize) -> Option<Buffer> {
        if self.0.lent.fetch_add(1, Ordering::Relaxed) >= self.0.limit {
            self.0.lent.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Buffer { bytes: take(len), len, pool: Some(self.clone()) })
    }
}

/// Memory of at least `len` bytes.
#[inline]
fn take(len: usize) -> Vec<u8> {
    let Some(class) = CLASSES.iter().position(|(most, _)| len <= *most) else {
        return vec![0; len];
    };
    // Without the list of a thread that ends, as without anything in it.
    let kept = FREE.try_with(|free| free.borrow_mut()[class].pop()).ok().flatten();
    kept.unwrap_or_else(|| vec![0; CLASSES[class].0])
}

/// Keeps memory for later if it is of a length that is kept, and there is not too much of it.
#[inline]
fn keep(bytes: Vec<u8>) {
    let Some(class) = CLASSES.iter().position(|(len, _)| bytes.len() == *len) else { return };
    let _ = FREE.try_with(|free| {
        let list = &mut free.borrow_mut()[class];
        if list.len() < CLASSES[class].1 {
            list.push(bytes);
        }
    });
}

/// Memory for a message, on loan from a [`Pool`], or one's own.
///
/// Goes back when it is dropped.
pub struct Buffer {
    /// At least `len` bytes: what is behind them stays as it is for the next message.
    bytes: Vec<u8>,
    len: usize,
    pool: Option<Pool>,
}

impl Buffer {
    /// Zeroes, on loan from nobody.
    #[must_use]
    pub fn zeroed(len: usize) -> Buffer {
        Buffer::from(vec![0; len])
    }

    /// A message of these bytes. A short one moves into the lease itself, and the buffer goes back.
    #[inline]
    #[must_use]
    pub fn into_lease(self) -> Lease {
        match self.len <= Lease::INLINE {
            true => Lease::inline(&self),
            false => Lease::of(self),
        }
    }
}

/// Bytes of one's own, on loan from nobody.
impl From<Vec<u8>> for Buffer {
    #[inline]
    fn from(bytes: Vec<u8>) -> Buffer {
        Buffer { len: bytes.len(), bytes, pool: None }
    }
}

impl Deref for Buffer {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

impl Drop for Buffer {
    #[inline]
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            pool.0.lent.fetch_sub(1, Ordering::Relaxed);
            keep(mem::take(&mut self.bytes));
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} of {} lent)", self.lent(), self.0.limit)
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
        assert!(pool.lend(10, |b| b.fill(3)).is_some(), "inline leases need no buffer");
        assert!(first.iter().all(|b| *b == 1) && second.len() == 2000);
        drop(first);
        assert_eq!(pool.lent(), 1);
        assert_eq!(pool.lend(3000, |b| b.fill(4)).unwrap().len(), 3000);
        drop(second);
        assert_eq!(pool.lent(), 0);
    }

    #[test]
    fn lengths_of_all_sizes() {
        let pool = Pool::new(1);
        for len in [0, 1, 57, 4096, 4097, 65536, 65537, 1 << 20] {
            for fill in 1..4 {
                let lease = pool.lend(len, |room| room.fill(fill)).unwrap();
                assert!(lease.len() == len && lease.iter().all(|byte| *byte == fill));
                assert_eq!(pool.lent(), usize::from(len > Lease::INLINE));
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
        let (again, other) = (pool.buffer(60_000).unwrap(), pool.buffer(60_000).unwrap());
        assert!(again.as_ptr() == at && other.as_ptr() != at);
        // Dropped by another thread, which ends with them.
        std::thread::spawn(|| drop((again, other))).join().expect("no panic");
        assert_eq!(pool.lent(), 0);
    }
}

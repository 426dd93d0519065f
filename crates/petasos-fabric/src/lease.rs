//! Received messages: bytes on loan from a bounded pool.

use std::{
    fmt, mem,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use zerocopy::IntoBytes;

/// The bytes of a received message.
///
/// Short ones lie in the value itself, longer ones in a buffer of the endpoint's [`Pool`] that goes
/// back when this is dropped, or in a vector of somebody's own. A pool lends a bounded number of
/// buffers, and then the endpoint stops receiving: do not hoard leases, use
/// [`to_vec`](slice::to_vec) for what is to stay.
pub struct Lease(Repr);

enum Repr {
    Empty,
    /// Whole words: they are written and read one by one, which is fast only where both meet at the
    /// same boundaries.
    Inline {
        len: u8,
        words: [u64; Lease::INLINE / 8],
    },
    Buffer {
        bytes: Vec<u8>,
        pool: Option<Arc<Shared>>,
    },
}

impl Lease {
    /// Messages up to this length need no buffer: most calls with small arguments. With its length
    /// such a message is a cache line; more room would cost those who do not need it.
    pub const INLINE: usize = 56;

    /// A short message.
    ///
    /// # Panics
    /// If it is longer than [`Lease::INLINE`].
    #[inline]
    #[must_use]
    pub fn inline(message: &[u8]) -> Lease {
        Lease::inline_with(message.len(), |room| room.copy_from_slice(message))
    }

    /// Puts a short message in the place of this one, at the beginning of some words, in the order of
    /// memory. For who moves all of them, which is cheaper than to look how many there are: `words`
    /// gives them when nothing is left to be done but to store them.
    ///
    /// # Panics
    /// If `len` is more than [`Lease::INLINE`].
    #[inline]
    pub fn put_words(&mut self, len: usize, words: impl FnOnce() -> [u64; Lease::INLINE / 8]) {
        assert!(len <= Lease::INLINE);
        if let Repr::Buffer { .. } = self.0 {
            self.let_go();
        }
        let before = mem::replace(&mut self.0, Repr::Inline { len: len as u8, words: words() });
        // There is nothing in it that would have to be dropped, which the compiler does not see.
        mem::forget(before);
    }

    /// Leaves an empty message.
    #[cold]
    fn let_go(&mut self) {
        *self = Lease::default();
    }

    /// A short message that `fill` writes in place.
    ///
    /// # Panics
    /// If `len` is more than [`Lease::INLINE`].
    #[inline]
    #[must_use]
    pub fn inline_with(len: usize, fill: impl FnOnce(&mut [u8])) -> Lease {
        let mut words = [0; Lease::INLINE / 8];
        fill(&mut words.as_mut_bytes()[..len]);
        Lease(Repr::Inline { len: len as u8, words })
    }
}

impl Deref for Lease {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Empty => &[],
            Repr::Inline { len, words } => &words.as_bytes()[..usize::from(*len)],
            Repr::Buffer { bytes, .. } => bytes,
        }
    }
}

impl Drop for Lease {
    #[inline]
    fn drop(&mut self) {
        if let Repr::Buffer { bytes, pool: Some(pool) } = &mut self.0 {
            pool.take_back(mem::take(bytes));
        }
    }
}

/// Bytes of one's own, on loan from nobody.
impl From<Vec<u8>> for Lease {
    #[inline]
    fn from(bytes: Vec<u8>) -> Lease {
        Lease(Repr::Buffer { bytes, pool: None })
    }
}

/// An empty message.
impl Default for Lease {
    #[inline]
    fn default() -> Lease {
        Lease(Repr::Empty)
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({} bytes)", self.len())
    }
}

/// The buffers from which an endpoint lends: at most so many at a time, kept for reuse.
#[derive(Clone)]
pub struct Pool(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    limit: usize,
    /// Buffers larger than this are not kept.
    keep: usize,
}

#[derive(Default)]
struct State {
    free: Vec<Vec<u8>>,
    lent: usize,
}

/// How many free buffers a pool keeps for reuse.
const KEPT_BUFFERS: usize = 64;

impl Pool {
    /// A pool that lends at most `limit` buffers, and keeps those of up to `keep` bytes.
    #[must_use]
    pub fn new(limit: usize, keep: usize) -> Pool {
        Pool(Arc::new(Shared { state: Mutex::default(), limit, keep }))
    }

    /// Whether another buffer can be lent. Inline leases are always to be had.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.lent() < self.0.limit
    }

    /// Buffers lent now.
    #[must_use]
    pub fn lent(&self) -> usize {
        self.0.state().lent
    }

    /// A lease of `len` bytes that `fill` writes; `None` when the limit is reached. `fill` sees
    /// zeroes or bytes of earlier messages of this endpoint, and must write all.
    #[inline]
    #[must_use]
    pub fn lend(&self, len: usize, fill: impl FnOnce(&mut [u8])) -> Option<Lease> {
        if len <= Lease::INLINE {
            return Some(Lease::inline_with(len, fill));
        }
        let mut buffer = self.buffer(len)?;
        fill(&mut buffer);
        Some(self.lease(buffer))
    }

    /// A buffer of `len` bytes to be filled bit by bit, and then made a lease of with
    /// [`Pool::lease`] or given back with [`Pool::give_back`]. Counts as lent from now on.
    #[must_use]
    pub fn buffer(&self, len: usize) -> Option<Vec<u8>> {
        let mut state = self.0.state();
        if state.lent >= self.0.limit {
            return None;
        }
        state.lent += 1;
        let mut buffer = state.free.pop().unwrap_or_default();
        drop(state);
        // A shorter length keeps the initialised rest out of sight; growing zeroes the new part.
        buffer.resize(len, 0);
        Some(buffer)
    }

    /// Makes a lease of a buffer from [`Pool::buffer`].
    #[must_use]
    pub fn lease(&self, buffer: Vec<u8>) -> Lease {
        Lease(Repr::Buffer { bytes: buffer, pool: Some(Arc::clone(&self.0)) })
    }

    /// Takes back a buffer from [`Pool::buffer`] that did not become a lease.
    pub fn give_back(&self, buffer: Vec<u8>) {
        self.0.take_back(buffer);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_back(&self, buffer: Vec<u8>) {
        let mut state = self.state();
        state.lent -= 1;
        if buffer.capacity() <= self.keep && state.free.len() < KEPT_BUFFERS {
            state.free.push(buffer);
        }
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
        let pool = Pool::new(2, 4096);
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
}

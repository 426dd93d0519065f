//! Received messages: bytes on loan from a bounded pool.

use std::{
    cell::Cell,
    fmt, mem,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use zerocopy::IntoBytes;

/// The bytes of a received message.
///
/// Short ones lie in the value itself, or in a few lines of memory of its own, longer ones in a
/// buffer of the endpoint's [`Pool`] that goes back when this is dropped, or in a vector of
/// somebody's own. A pool lends a bounded number of buffers, and then the endpoint stops receiving:
/// do not hoard leases, use [`to_vec`](slice::to_vec) for what is to stay.
pub struct Lease(Repr);

enum Repr {
    Empty,
    /// Whole words: they are written and read one by one, which is fast only where both meet at the
    /// same boundaries.
    Inline {
        len: u8,
        words: Line,
    },
    /// Apart, as a lease is moved a few times on its way, and mostly there is but one line.
    Lines {
        len: u8,
        words: Box<[Line; 2]>,
    },
    Buffer {
        bytes: Vec<u8>,
        pool: Option<Arc<Shared>>,
    },
}

/// What a cache line holds beside one other word.
type Line = [u64; 7];

thread_local! {
    /// Two lines of a message that was dropped on this thread: calls that follow each other allocate
    /// nothing.
    static SPARE: Cell<Option<Box<[Line; 2]>>> = const { Cell::new(None) };
}

impl Lease {
    /// Messages up to this length need no memory but the value: most calls with small arguments.
    /// With its length such a message is a cache line; more room would cost those who do not need
    /// it.
    pub const INLINE: usize = size_of::<Line>();

    /// The longest message of two lines.
    pub const LINES: usize = 2 * Lease::INLINE;

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
    pub fn put_words(&mut self, len: usize, words: impl FnOnce() -> [u64; 7]) {
        assert!(len <= Lease::INLINE);
        if !self.is_plain() {
            self.let_go();
        }
        let before = mem::replace(&mut self.0, Repr::Inline { len: len as u8, words: words() });
        // There is nothing in it that would have to be dropped, which the compiler does not see.
        mem::forget(before);
    }

    /// The same for a message that may have twice the length, and twice the words.
    ///
    /// # Panics
    /// If `len` is more than [`Lease::LINES`].
    #[inline]
    pub fn put_lines(&mut self, len: usize, lines: impl FnOnce() -> [[u64; 7]; 2]) {
        assert!(len <= Lease::LINES);
        if !self.is_plain() {
            self.let_go();
        }
        let mut words = SPARE.try_with(Cell::take).ok().flatten().unwrap_or_default();
        *words = lines();
        let before = mem::replace(&mut self.0, Repr::Lines { len: len as u8, words });
        mem::forget(before);
    }

    /// Whether there is nothing in it that would have to be dropped.
    #[inline]
    fn is_plain(&self) -> bool {
        matches!(self.0, Repr::Empty | Repr::Inline { .. })
    }

    /// Leaves an empty message.
    #[cold]
    fn let_go(&mut self) {
        *self = Lease::default();
    }

    /// Gives back what is on loan, or of use for the next message.
    #[inline(never)]
    fn give_back(&mut self) {
        match mem::replace(&mut self.0, Repr::Empty) {
            // A thread that ends keeps nothing.
            Repr::Lines { words, .. } => drop(SPARE.try_with(|spare| spare.set(Some(words)))),
            Repr::Buffer { bytes, pool: Some(pool) } => pool.take_back(bytes),
            _ => {}
        }
    }

    /// A short message that `fill` writes in place.
    ///
    /// # Panics
    /// If `len` is more than [`Lease::INLINE`].
    #[inline]
    #[must_use]
    pub fn inline_with(len: usize, fill: impl FnOnce(&mut [u8])) -> Lease {
        let mut words = Line::default();
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
            Repr::Lines { len, words } => &words.as_bytes()[..usize::from(*len)],
            Repr::Buffer { bytes, .. } => bytes,
        }
    }
}

impl Drop for Lease {
    #[inline]
    fn drop(&mut self) {
        if !self.is_plain() {
            self.give_back();
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

    /// Two lines as words, counted up from 1, and as bytes.
    fn lines() -> ([Line; 2], Vec<u8>) {
        let lines = [std::array::from_fn(|i| i as u64 + 1), std::array::from_fn(|i| i as u64 + 8)];
        (lines, lines.as_bytes().to_vec())
    }

    #[test]
    fn words_take_the_place_of_anything() {
        let pool = Pool::new(1, 4096);
        let (lines, bytes) = lines();
        let before: [&dyn Fn() -> Lease; 5] = [
            &Lease::default,
            &|| Lease::inline(b"before"),
            &|| Lease::from(vec![9; 200]),
            &|| pool.lend(1000, |b| b.fill(1)).expect("the only one"),
            &|| {
                let mut lease = Lease::default();
                lease.put_lines(112, || [[9; 7]; 2]);
                lease
            },
        ];
        for before in before {
            for len in 0..=Lease::LINES {
                let mut lease = before();
                lease.put_lines(len, || lines);
                assert_eq!(lease[..], bytes[..len]);
                assert_eq!(mem::take(&mut lease)[..], bytes[..len]);
                assert!(lease.is_empty());
            }
            for len in 0..=Lease::INLINE {
                let mut lease = before();
                lease.put_words(len, || lines[0]);
                assert_eq!(lease[..], bytes[..len]);
            }
        }
        assert_eq!(pool.lent(), 0);
    }

    #[test]
    fn lines_are_used_again_on_their_thread() {
        let (lines, bytes) = lines();
        let lease = || {
            let mut lease = Lease::default();
            lease.put_lines(112, || lines);
            lease
        };
        let first = lease();
        let at = first.as_ptr();
        drop(first);
        let (again, other) = (lease(), lease());
        assert!(again.as_ptr() == at && other.as_ptr() != at);
        assert_eq!((&again[..], &other[..]), (&bytes[..], &bytes[..]));
        // Dropped by another thread, which ends with them.
        std::thread::spawn(|| drop((again, other))).join().expect("no panic");
        assert_eq!(lease()[..], bytes[..]);
    }

    #[test]
    #[should_panic(expected = "assertion failed")]
    fn more_than_two_lines_are_refused() {
        Lease::default().put_lines(113, || lines().0);
    }

    #[test]
    fn a_lease_is_no_more_than_a_cache_line() {
        assert_eq!(size_of::<Lease>(), 64);
    }
}

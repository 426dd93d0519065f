//! Received messages: bytes on loan from a bounded pool.

use crate::Buffer;
use std::{
    cell::{Cell, RefCell},
    fmt, mem,
    ops::Deref,
};
use zerocopy::IntoBytes;

/// The bytes of a received message.
///
/// Short ones lie in the value itself, or in a few lines of memory of its own, longer ones in a
/// buffer of the endpoint's [`Pool`](crate::Pool) that goes back when this is dropped, or in a
/// vector of the program's own. A pool lends a bounded number of buffers, and then longer messages
/// stay with their senders: do not hoard leases, use [`to_vec`](slice::to_vec) for what is to stay.
///
/// ```
/// use petasos_fabric::{Lease, Pool};
///
/// let pool = Pool::new(64);
/// // A short message needs no buffer of the pool.
/// let short = Lease::inline(b"hello");
/// let long = pool.lend(4096, |bytes| bytes.fill(1)).expect("64 buffers are free");
/// assert!(short.is_plain() && !long.is_plain());
/// assert_eq!(&short[..], b"hello");
/// // What is to stay is copied, so that the buffer can be lent again.
/// let kept = long.to_vec();
/// drop(long);
/// assert_eq!((kept.len(), pool.lent()), (4096, 0));
/// ```
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
    Buffer(Buffer),
}

/// What a cache line holds beside one other word.
type Line = [u64; 7];

thread_local! {
    /// Two lines of a message that was dropped on this thread: calls that follow each other
    /// allocate nothing.
    static SPARE: Cell<Option<Box<[Line; 2]>>> = const { Cell::new(None) };
    /// The same of other messages, up to [`SPARES`]: where several come in one pass and are dropped
    /// after it.
    #[expect(clippy::vec_box, reason = "a box is what a lease gives, and takes")]
    static MORE: RefCell<Vec<Box<[Line; 2]>>> = const { RefCell::new(Vec::new()) };
}

/// No fewer than come in one pass: 7 KiB.
const SPARES: usize = 64;

/// Two lines, of a message that was dropped if there is one.
#[inline]
fn spare() -> Box<[Line; 2]> {
    SPARE.try_with(Cell::take).ok().flatten().unwrap_or_else(another)
}

#[cold]
fn another() -> Box<[Line; 2]> {
    MORE.try_with(|more| more.borrow_mut().pop()).ok().flatten().unwrap_or_default()
}

/// Keeps two lines for the next message. A thread that ends keeps nothing.
fn keep(words: Box<[Line; 2]>) {
    let before = SPARE.try_with(|spare| spare.replace(Some(words))).ok().flatten();
    let Some(words) = before else { return };
    let _ = MORE.try_with(|more| {
        let more = &mut *more.borrow_mut();
        if more.len() < SPARES {
            more.push(words);
        }
    });
}

impl Lease {
    /// Messages up to this length need no memory but the value: most calls with small arguments.
    /// With its length such a message is a cache line; more room would cost those that do not need
    /// it.
    pub const INLINE: usize = size_of::<Line>();

    /// The longest message of two lines. Up to this length a message needs no buffer of a pool.
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

    /// Puts a short message in the place of this one, at the beginning of some words, in the order
    /// of memory. For code that moves all of them, which is cheaper than to look how many there
    /// are: `word` gives each when nothing is left to be done but to store it.
    ///
    /// # Panics
    /// If `len` is more than [`Lease::INLINE`].
    #[inline(always)]
    pub fn put_words(&mut self, len: usize, word: impl Fn(usize) -> u64) {
        assert!(len <= Lease::INLINE);
        if !matches!(self.0, Repr::Inline { .. }) {
            self.release();
            let inline = Repr::Inline { len: 0, words: Line::default() };
            // There is nothing in it that would have to be dropped, which the compiler does not
            // see.
            mem::forget(mem::replace(&mut self.0, inline));
        }
        if let Repr::Inline { len: length, words } = &mut self.0 {
            *length = len as u8;
            // One after the other: all at once would take all registers.
            for (at, to) in words.iter_mut().enumerate() {
                *to = word(at);
            }
        }
    }

    /// The same for a message that may have twice the length, and twice the words.
    ///
    /// # Panics
    /// If `len` is more than [`Lease::LINES`].
    #[inline]
    pub fn put_lines(&mut self, len: usize, lines: impl FnOnce() -> [[u64; 7]; 2]) {
        assert!(len <= Lease::LINES);
        self.release();
        let mut words = spare();
        *words = lines();
        let before = mem::replace(&mut self.0, Repr::Lines { len: len as u8, words });
        // There is nothing in it that would have to be dropped, which the compiler does not see.
        mem::forget(before);
    }

    /// Gives back what is on loan: an empty message is left, or a short one in the value itself.
    #[inline]
    pub fn release(&mut self) {
        if !self.is_plain() {
            self.give_back();
        }
    }

    /// What lies in a buffer.
    #[inline]
    fn of(buffer: Buffer) -> Lease {
        Lease(Repr::Buffer(buffer))
    }

    /// Whether nothing is on loan: an empty message, or a short one in the value itself.
    #[inline]
    #[must_use]
    pub fn is_plain(&self) -> bool {
        matches!(self.0, Repr::Empty | Repr::Inline { .. })
    }

    /// Gives back what is on loan, or of use for the next message: an empty message is left.
    #[cold]
    #[inline(never)]
    fn give_back(&mut self) {
        match mem::replace(&mut self.0, Repr::Empty) {
            Repr::Lines { words, .. } => keep(words),
            // A buffer knows where it came from.
            other => drop(other),
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

impl Lease {
    /// A message that needs no buffer, and that `fill` writes in place.
    ///
    /// # Panics
    /// If it is longer than [`Lease::LINES`].
    #[inline]
    #[must_use]
    pub fn short(len: usize, fill: impl FnOnce(&mut [u8])) -> Lease {
        if len <= Lease::INLINE {
            return Lease::inline_with(len, fill);
        }
        let mut words = spare();
        fill(&mut words.as_mut_bytes()[..len]);
        Lease(Repr::Lines { len: len as u8, words })
    }
}

impl Buffer {
    /// A message of these bytes. A short one is copied, and the buffer goes back.
    #[inline]
    #[must_use]
    pub fn into_lease(self) -> Lease {
        match self.len() <= Lease::LINES {
            true => Lease::short(self.len(), |room| room.copy_from_slice(&self)),
            false => Lease::of(self),
        }
    }
}

impl Deref for Lease {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, words } => &words.as_bytes()[..usize::from(*len)],
            apart => apart.bytes(),
        }
    }
}

impl Repr {
    /// Its bytes, wherever they lie. A call of its own, so that where they mostly lie they are
    /// found by one comparison, and not by a jump through a table.
    #[inline(never)]
    fn bytes(&self) -> &[u8] {
        match self {
            Repr::Empty => &[],
            Repr::Inline { len, words } => &words.as_bytes()[..usize::from(*len)],
            Repr::Lines { len, words } => &words.as_bytes()[..usize::from(*len)],
            Repr::Buffer(buffer) => buffer,
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

/// Bytes of the program's own, of no pool.
impl From<Vec<u8>> for Lease {
    #[inline]
    fn from(bytes: Vec<u8>) -> Lease {
        Lease::of(Buffer::from(bytes))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;

    /// Two lines as words, counted up from 1, and as bytes.
    fn lines() -> ([Line; 2], Vec<u8>) {
        let lines = [std::array::from_fn(|i| i as u64 + 1), std::array::from_fn(|i| i as u64 + 8)];
        (lines, lines.as_bytes().to_vec())
    }

    #[test]
    fn words_take_the_place_of_anything() {
        let pool = Pool::new(1);
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
                lease.put_words(len, |at| lines[0][at]);
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

//! Buffers for received messages: so many at a time, and used again.

use crate::{Lease, Share, memory::retain_freed_memory, quota::Quota};
use std::{
    cell::RefCell,
    fmt, mem,
    ops::{Deref, DerefMut},
    sync::Arc,
};

/// The buffers from which an endpoint lends: at most so many at a time.
///
/// What comes back stays with the thread that drops it, and is used again there. So in the usual
/// case, where messages are dropped by the thread that receives them, nothing is allocated, no lock
/// is taken, and buffers are zeroed but once.
#[derive(Clone)]
pub struct Pool(Arc<Quota>);

/// Lengths of the buffers that are kept, and how many of each a thread keeps, no fewer than come in
/// one pass: 3.25 MiB in all.
const CLASSES: [(usize, usize); 3] = [(4 << 10, 64), (16 << 10, 64), (64 << 10, 32)];
/// Longer ones are kept up to this length, so many bytes of them in all. Fresh memory of that
/// length costs more than to copy it, for the system clears it page by page.
const LARGE: usize = 4 << 20;
const LARGE_IN_ALL: usize = 16 << 20;

/// What a thread keeps.
struct Kept {
    classes: [Vec<Vec<u8>>; CLASSES.len()],
    large: Vec<Vec<u8>>,
    /// Bytes of those.
    large_bytes: usize,
}

thread_local! {
    static KEPT: RefCell<Kept> = const {
        let classes = [const { Vec::new() }; CLASSES.len()];
        RefCell::new(Kept { classes, large: Vec::new(), large_bytes: 0 })
    };
}

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
        self.0.take(len).then(|| Buffer { bytes: take(len), len, loan: Loan::Pool(self.clone()) })
    }
}

/// Memory of at least `len` bytes.
#[inline]
fn take(len: usize) -> Vec<u8> {
    let Some(class) = CLASSES.iter().position(|(most, _)| len <= *most) else {
        let mut bytes = take_large(len);
        if bytes.len() < len {
            bytes.resize(len, 0);
        }
        return bytes;
    };
    // Without the list of a thread that ends, as without anything in it.
    let kept = KEPT.try_with(|kept| kept.borrow_mut().classes[class].pop()).ok().flatten();
    kept.unwrap_or_else(|| vec![0; CLASSES[class].0])
}

/// Room for `len` bytes, of which the first ones may be there.
#[cold]
fn take_large(len: usize) -> Vec<u8> {
    let fit = |kept: &Kept| {
        let fits = kept.large.iter().enumerate().filter(|(_, bytes)| bytes.capacity() >= len);
        fits.min_by_key(|(_, bytes)| bytes.capacity()).map(|(at, _)| at)
    };
    let kept = KEPT.try_with(|kept| {
        let kept = &mut *kept.borrow_mut();
        let bytes = kept.large.swap_remove(fit(kept)?);
        kept.large_bytes -= bytes.capacity();
        Some(bytes)
    });
    kept.ok().flatten().unwrap_or_else(|| match len {
        len if len <= LARGE => vec![0; len.next_multiple_of(CLASSES[CLASSES.len() - 1].0)],
        len => vec![0; len],
    })
}

/// Keeps memory for later if it is of a length that is kept, and there is not too much of it.
#[inline]
fn keep(bytes: Vec<u8>) {
    let class = CLASSES.iter().position(|(len, _)| bytes.len() == *len);
    let large = bytes.capacity() > CLASSES[CLASSES.len() - 1].0 && bytes.capacity() <= LARGE;
    let _ = KEPT.try_with(|kept| {
        let kept = &mut *kept.borrow_mut();
        match class {
            Some(class) if kept.classes[class].len() < CLASSES[class].1 => {
                kept.classes[class].push(bytes);
            }
            None if large && kept.large_bytes + bytes.capacity() <= LARGE_IN_ALL => {
                kept.large_bytes += bytes.capacity();
                kept.large.push(bytes);
            }
            _ => {}
        }
    });
}

/// Memory for a message, on loan from a [`Pool`], or one's own.
///
/// Goes back to the pool when it is dropped, and its memory is used again by the thread that drops
/// it.
pub struct Buffer {
    /// At least `len` bytes: what is behind them stays as it is for the next message.
    bytes: Vec<u8>,
    len: usize,
    loan: Loan,
}

/// The pool from which a buffer is on loan.
enum Loan {
    None,
    Pool(Pool),
    Share(Share),
}

/// An empty vector with room for about so many bytes, more than [`Pool`]s lend as a rule: memory
/// that was used before, if there is any. It is used again if it becomes a [`Buffer`].
#[must_use]
pub fn spare_vec(len: usize) -> Vec<u8> {
    let mut bytes = take_large(len);
    bytes.clear();
    bytes
}

impl Buffer {
    /// Zeroes, of no pool.
    #[must_use]
    pub fn zeroed(len: usize) -> Buffer {
        Buffer::from(vec![0; len])
    }

    /// Zeroes or bytes of earlier messages, of no pool: to be filled.
    #[must_use]
    pub fn scratch(len: usize) -> Buffer {
        Buffer { bytes: take(len), len, loan: Loan::None }
    }

    /// The same on loan from a share, which accounts for it.
    #[inline]
    pub(crate) fn of_share(len: usize, share: Share) -> Buffer {
        Buffer { bytes: take(len), len, loan: Loan::Share(share) }
    }

    /// All of its memory, and how much of that is the buffer's.
    pub(crate) fn into_parts(mut self) -> (Vec<u8>, usize) {
        (mem::take(&mut self.bytes), self.len)
    }

    /// The buffer that such memory was.
    pub(crate) fn from_parts(bytes: Vec<u8>, len: usize) -> Buffer {
        debug_assert!(len <= bytes.len());
        Buffer { bytes, len, loan: Loan::None }
    }

    /// A message of these bytes. A short one is copied, and the buffer goes back.
    #[inline]
    #[must_use]
    pub fn into_lease(self) -> Lease {
        match self.len <= Lease::LINES {
            true => Lease::short(self.len, |room| room.copy_from_slice(&self)),
            false => Lease::of(self),
        }
    }
}

/// Bytes of the program's own, of no pool.
impl From<Vec<u8>> for Buffer {
    #[inline]
    fn from(bytes: Vec<u8>) -> Buffer {
        Buffer { len: bytes.len(), bytes, loan: Loan::None }
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
        match &self.loan {
            Loan::None => {}
            Loan::Pool(pool) => pool.0.give_back(self.len),
            Loan::Share(share) => share.give_back(self.len),
        }
        keep(mem::take(&mut self.bytes));
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
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
    use crate::Region;

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

    /// As frames, as memory of operations and as bodies, large buffers go around and stay the same.
    #[test]
    fn large_memory_goes_around() {
        let frame = spare_vec(300_000);
        let at = frame.as_ptr();
        assert!(frame.is_empty() && frame.capacity() >= 300_000);
        let mut frame = frame;
        frame.resize(300_000, 7);
        let region = Region::from_buffer(Buffer::from(frame));
        assert_eq!((region.len(), region.as_ptr().cast_const()), (300_000, at));
        let part = region.slice(5, 7).unwrap();
        drop(region);
        let other = Buffer::scratch(300_000);
        assert!(other.as_ptr() != at, "it is held");
        drop(part);
        let shorter = Region::from_buffer(Buffer::scratch(299_999));
        assert_eq!((shorter.len(), shorter.as_ptr().cast_const()), (299_999, at));
        let Ok(exclusive) = shorter.into_exclusive() else { panic!("nothing else holds it") };
        let lease = exclusive.into_buffer().into_lease();
        assert!(lease.as_ptr() == at && lease.len() == 299_999 && lease[..9] == [7; 9]);
        drop(lease);
        assert_eq!(Buffer::scratch(1 << 18).as_ptr(), at);
        let vec = Region::from_vec(vec![1; 9]).into_exclusive().ok().unwrap();
        assert_eq!(vec.into_buffer()[..], [1; 9]);
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

    /// As many as come in a pass are all kept, long ones up to so many bytes.
    #[test]
    fn what_a_thread_keeps_is_bounded() {
        let lens = || KEPT.with_borrow(|kept| kept.classes.each_ref().map(Vec::len));
        let pool = Pool::new(1000);
        for (class, (len, most)) in CLASSES.into_iter().enumerate() {
            let all: Vec<_> = (0..2 * most).map(|_| pool.buffer(len).unwrap()).collect();
            drop(all);
            assert_eq!(lens()[class], most);
        }
        let all: Vec<_> = (0..10).map(|_| pool.buffer(3 << 20).unwrap()).collect();
        drop(all);
        KEPT.with_borrow(|kept| {
            assert_eq!((kept.large.len(), kept.large_bytes), (5, 15 << 20));
        });
        let again = pool.buffer(2 << 20).unwrap();
        KEPT.with_borrow(|kept| assert_eq!((kept.large.len(), kept.large_bytes), (4, 12 << 20)));
        drop(again);
    }
}

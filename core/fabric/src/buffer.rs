//! Memory for messages, which is used again by the thread that drops it.

use crate::{Quota, Share};
use std::{
    cell::RefCell,
    fmt, mem,
    ops::{Deref, DerefMut},
    sync::Arc,
};

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

/// Memory for a message, on loan from a [`Pool`](crate::Pool), or one's own.
///
/// Goes back to the pool when it is dropped, and its memory is used again by the thread that drops
/// it.
pub struct Buffer {
    /// At least `len` bytes: what is behind them stays as it is for the next message.
    bytes: Vec<u8>,
    len: usize,
    loan: Loan,
}

/// What a buffer is on loan from.
enum Loan {
    None,
    Pool(Arc<Quota>),
    Share(Share),
}

/// An empty vector with room for about so many bytes, more than a [`Pool`](crate::Pool) lends as a rule: memory
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

    /// The same on loan from a pool, which has counted it.
    #[inline]
    pub(crate) fn of_pool(len: usize, pool: Arc<Quota>) -> Buffer {
        Buffer { bytes: take(len), len, loan: Loan::Pool(pool) }
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
            Loan::Pool(pool) => pool.give_back(self.len),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Pool, Region};

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

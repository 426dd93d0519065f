//! Where the cells of a ring lie.

use super::WORDS;
use crate::sync::AtomicU64;
#[cfg(test)]
use crate::sync::Ordering;
use petasos_fabric::memory::copy_opaque;
use std::{any::Any, ptr::NonNull, sync::Arc};

/// Memory that somebody else may write at any time: words as atomics, bytes by opaque copies.
///
/// # Safety
/// `words()` words are there for as long as the value lives, `word` and `cell` give the same ones as
/// the copies reach, at eight bytes each.
pub(crate) unsafe trait Memory {
    /// How many words there are.
    fn words(&self) -> usize;
    /// One of them.
    fn word(&self, index: usize) -> &AtomicU64;
    /// Those of a cell.
    fn cell(&self, cell: usize) -> &[AtomicU64; WORDS];
    /// Copies bytes in, from the byte `at` on.
    ///
    /// # Safety
    /// `at + len` is within the words; `from` is readable for `len` bytes and lies elsewhere.
    unsafe fn copy_in(&self, at: usize, from: *const u8, len: usize);
    /// Copies bytes out, from the byte `at` on.
    ///
    /// # Safety
    /// `at + len` is within the words; `to` is writable for `len` bytes and lies elsewhere.
    unsafe fn copy_out(&self, at: usize, to: *mut u8, len: usize);
}

/// Words of a mapping that other processes share.
pub(crate) struct Shared {
    base: NonNull<AtomicU64>,
    words: usize,
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the words are reached only by atomics and opaque copies, from any thread.
unsafe impl Send for Shared {}

impl Shared {
    /// Words from `base` on, which `owner` keeps mapped.
    ///
    /// # Safety
    /// `base` is aligned to eight bytes, and from there `words` words stay mapped, readable and
    /// writable, while `owner` lives. This process has no references into them but to atomics.
    pub(crate) unsafe fn new(
        base: NonNull<u8>,
        words: usize,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Shared {
        Shared { base: base.cast(), words, _owner: owner }
    }
}

// SAFETY: `new`'s promise, and `_owner` lives as long as this.
unsafe impl Memory for Shared {
    #[inline]
    fn words(&self) -> usize {
        self.words
    }

    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.words);
        // SAFETY: within the words, which are mapped and aligned; others reach them as memory that
        // may change at any time, which an atomic is made for.
        unsafe { self.base.add(index).as_ref() }
    }

    #[inline]
    fn cell(&self, cell: usize) -> &[AtomicU64; WORDS] {
        assert!(cell < self.words / WORDS);
        // SAFETY: as for `word`; so many words from there on are within.
        unsafe { self.base.add(cell * WORDS).cast::<[AtomicU64; WORDS]>().as_ref() }
    }

    #[inline]
    unsafe fn copy_in(&self, at: usize, from: *const u8, len: usize) {
        debug_assert!(at + len <= self.words * 8);
        // SAFETY: the caller's promise; the words are mapped and writable, nobody has references.
        unsafe { copy_opaque(from, self.base.as_ptr().cast::<u8>().add(at), len) }
    }

    #[inline]
    unsafe fn copy_out(&self, at: usize, to: *mut u8, len: usize) {
        debug_assert!(at + len <= self.words * 8);
        // SAFETY: the caller's promise; the words are mapped and readable.
        unsafe { copy_opaque(self.base.as_ptr().cast::<u8>().add(at), to, len) }
    }
}

/// Words on the heap: for tests and models.
#[cfg(test)]
#[derive(Clone)]
pub(crate) struct Heap(Arc<Vec<AtomicU64>>);

#[cfg(test)]
impl Heap {
    pub(crate) fn new(words: usize) -> Heap {
        Heap(Arc::new((0..words).map(|_| AtomicU64::new(0)).collect()))
    }
}

// SAFETY: the vector never changes its length, and every copy goes through its words.
#[cfg(test)]
unsafe impl Memory for Heap {
    fn words(&self) -> usize {
        self.0.len()
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.0[index]
    }

    fn cell(&self, cell: usize) -> &[AtomicU64; WORDS] {
        self.0[cell * WORDS..].first_chunk().expect("a cell of the ring")
    }

    unsafe fn copy_in(&self, at: usize, from: *const u8, len: usize) {
        for index in at / 8..(at + len).div_ceil(8) {
            let mut bytes = self.0[index].load(Ordering::Relaxed).to_ne_bytes();
            for i in at.max(index * 8)..(at + len).min(index * 8 + 8) {
                // SAFETY: `i` is from `at` to `at + len`: the caller's promise.
                bytes[i % 8] = unsafe { from.add(i - at).read() };
            }
            self.0[index].store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
    }

    unsafe fn copy_out(&self, at: usize, to: *mut u8, len: usize) {
        for index in at / 8..(at + len).div_ceil(8) {
            let bytes = self.0[index].load(Ordering::Relaxed).to_ne_bytes();
            for i in at.max(index * 8)..(at + len).min(index * 8 + 8) {
                // SAFETY: `i` is from `at` to `at + len`: the caller's promise.
                unsafe { to.add(i - at).write(bytes[i % 8]) }
            }
        }
    }
}

//! Where the cells of a ring lie.

use super::{CELL, WORDS};
use crate::sync::AtomicU64;
#[cfg(test)]
use crate::sync::Ordering;
use petasos_fabric::memory::copy_opaque;
use std::{any::Any, ptr::NonNull, sync::Arc};

/// Memory that another process may write at any time: words as atomics, bytes by opaque copies.
///
/// # Safety
/// `cells()` cells are there for as long as the value lives, `cell` gives the same words as the
/// copies reach, at eight bytes each.
pub(crate) unsafe trait Memory {
    /// How many cells there are: a power of two.
    fn cells(&self) -> usize;
    /// The words of the cell at this position, which goes around as often as it likes.
    fn cell(&self, position: u64) -> &[AtomicU64; WORDS];
    /// Copies bytes in, from the byte `at` on.
    ///
    /// # Safety
    /// `at + len` is within the cells; `from` is readable for `len` bytes and lies elsewhere.
    unsafe fn copy_in(&self, at: usize, from: *const u8, len: usize);
    /// Copies bytes out, from the byte `at` on.
    ///
    /// # Safety
    /// `at + len` is within the cells; `to` is writable for `len` bytes and lies elsewhere.
    unsafe fn copy_out(&self, at: usize, to: *mut u8, len: usize);
}

/// Cells of a mapping that other processes share.
pub(crate) struct Shared {
    base: NonNull<[AtomicU64; WORDS]>,
    /// One less than there are: a cell of any position is found without a question.
    mask: usize,
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the cells are reached only by atomics and opaque copies, from any thread.
unsafe impl Send for Shared {}

impl Shared {
    /// Cells from `base` on, which `owner` keeps mapped.
    ///
    /// # Safety
    /// `base` is aligned to eight bytes, and from there `cells` cells stay mapped, readable and
    /// writable, while `owner` lives. This process has no references into them but to atomics.
    ///
    /// # Panics
    /// If `cells` is not a power of two.
    pub(crate) unsafe fn new(
        base: NonNull<u8>,
        cells: usize,
        owner: Arc<dyn Any + Send + Sync>,
    ) -> Shared {
        assert!(cells.is_power_of_two());
        Shared { base: base.cast(), mask: cells - 1, _owner: owner }
    }
}

// SAFETY: `new`'s promise, and `_owner` lives as long as this.
unsafe impl Memory for Shared {
    #[inline]
    fn cells(&self) -> usize {
        self.mask + 1
    }

    #[inline]
    fn cell(&self, position: u64) -> &[AtomicU64; WORDS] {
        // SAFETY: at most `mask`, so within the cells, which are mapped and aligned; others reach
        // them as memory that may change at any time, which an atomic is made for.
        unsafe { self.base.add(position as usize & self.mask).as_ref() }
    }

    #[inline]
    unsafe fn copy_in(&self, at: usize, from: *const u8, len: usize) {
        debug_assert!(at + len <= self.cells() * CELL);
        // SAFETY: the caller's promise; the words are mapped and writable, no code has references.
        unsafe { copy_opaque(from, self.base.as_ptr().cast::<u8>().add(at), len) }
    }

    #[inline]
    unsafe fn copy_out(&self, at: usize, to: *mut u8, len: usize) {
        debug_assert!(at + len <= self.cells() * CELL);
        // SAFETY: the caller's promise; the words are mapped and readable.
        unsafe { copy_opaque(self.base.as_ptr().cast::<u8>().add(at), to, len) }
    }
}

/// Cells on the heap: for tests and models.
#[cfg(test)]
#[derive(Clone)]
pub(crate) struct Heap(Arc<Vec<AtomicU64>>);

#[cfg(test)]
impl Heap {
    pub(crate) fn new(cells: usize) -> Heap {
        Heap(Arc::new((0..cells * WORDS).map(|_| AtomicU64::new(0)).collect()))
    }
}

// SAFETY: the vector never changes its length, and every copy goes through its words.
#[cfg(test)]
unsafe impl Memory for Heap {
    fn cells(&self) -> usize {
        self.0.len() / WORDS
    }

    fn cell(&self, position: u64) -> &[AtomicU64; WORDS] {
        let cell = position as usize % self.cells();
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

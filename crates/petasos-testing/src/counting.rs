//! An allocator that counts, for tests of how much memory something takes.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering},
};

/// The system's allocator, and how many bytes it has given out:
/// `#[global_allocator] static HEAP: Counting = Counting::new();` in a test's own binary.
#[derive(Debug, Default)]
pub struct Counting {
    live: AtomicUsize,
}

impl Counting {
    /// Nothing was given out yet.
    #[must_use]
    pub const fn new() -> Counting {
        Counting { live: AtomicUsize::new(0) }
    }

    /// Bytes that were asked for and not given back, by all threads. Memory that was mapped is not
    /// among them.
    #[must_use]
    pub fn live(&self) -> usize {
        self.live.load(Ordering::Relaxed)
    }
}

// SAFETY: all is left to the system's allocator, which keeps the contract; counting touches none of
// the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.live.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is the one that is wanted here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.live.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        self.live.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above; what was given out came from the system's allocator.
        unsafe { System.dealloc(at, layout) }
    }
}

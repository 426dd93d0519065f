//! The words of the first page that one side writes and the other reads.

use super::CONTROL;
use crate::sync::AtomicU64;
use petasos_fabric::memory::memfd::Mapping;
use std::{ops::Deref, ptr::NonNull, sync::Arc};

/// Two words of the first page.
pub(super) struct Line {
    words: NonNull<[AtomicU64; 2]>,
    _owner: Arc<Mapping>,
}

// SAFETY: the words are reached only as atomics, from any thread, and `Mapping` may go there, too.
unsafe impl Send for Line {}

impl Line {
    pub(super) fn new(control: &Arc<Mapping>, at: usize) -> Line {
        assert!(at + 16 <= CONTROL && at.is_multiple_of(8) && CONTROL <= control.len());
        // SAFETY: within the mapping, as was checked just now.
        let words = unsafe { control.base().add(at).cast() };
        Line { words, _owner: control.clone() }
    }
}

impl Deref for Line {
    type Target = [AtomicU64; 2];
    #[inline]
    fn deref(&self) -> &[AtomicU64; 2] {
        // SAFETY: `new` found them in the mapping, which is aligned to a page and writable, and
        // which `_owner` keeps; an atomic is made for memory that others write.
        unsafe { self.words.as_ref() }
    }
}

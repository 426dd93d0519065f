//! Completions that were read from the library at once, and are taken one by one.

use crate::sys::fi_cq_data_entry;
use std::ptr;

/// Completions read at a time.
pub(super) const BATCH: usize = 16;

/// A batch of completions.
pub(super) struct Batch {
    entries: [fi_cq_data_entry; BATCH],
    /// How many were read, and how many of them were taken.
    filled: usize,
    taken: usize,
}

impl Batch {
    pub(super) fn new() -> Batch {
        let nothing = fi_cq_data_entry {
            op_context: ptr::null_mut(),
            flags: 0,
            len: 0,
            buf: ptr::null_mut(),
            data: 0,
        };
        Batch { entries: [nothing; BATCH], filled: 0, taken: 0 }
    }

    /// Room for [`BATCH`] completions. Those of before are discarded.
    #[inline]
    pub(super) fn room(&mut self) -> &mut [fi_cq_data_entry; BATCH] {
        (self.filled, self.taken) = (0, 0);
        &mut self.entries
    }

    /// The library has written this many completions to the room; an error code counts as none.
    #[inline]
    pub(super) fn filled(&mut self, count: isize) {
        self.filled = usize::try_from(count).unwrap_or(0).min(BATCH);
    }

    /// Whether there are completions that were not taken.
    #[inline]
    pub(super) fn has_more(&self) -> bool {
        self.taken < self.filled
    }

    /// Takes the next completion.
    #[inline]
    pub(super) fn take(&mut self) -> Option<fi_cq_data_entry> {
        let entry = self.has_more().then(|| self.entries[self.taken])?;
        self.taken += 1;
        Some(entry)
    }
}

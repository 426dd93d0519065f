//! Large memory straight from the system: zeroes that cost nothing before they are touched, in
//! huge pages where the system has them.
//!
//! Transfers between processes look up each page of both sides; with pages of 2 MiB that cost all
//! but disappears.

use std::ptr::NonNull;

/// Memory from so many bytes on is had this way.
pub(super) const LARGE: usize = 1 << 20;

/// Page size assumed for alignment; larger pages only make it less than ideal.
pub(super) const PAGE: usize = 4096;

/// A huge page of the common machines; with others it is only the alignment.
const HUGE: usize = 2 << 20;

/// An anonymous private mapping of this process.
pub(super) struct Pages {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process and to no thread of it, and nothing is accessed here.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// `len` bytes of zeroes, or nothing when there is no room for them.
    pub(super) fn map(len: usize) -> Option<Pages> {
        // Enough that an aligned part of the length lies within, wherever it comes to lie.
        let align = if len >= HUGE { HUGE } else { 0 };
        let all = len.checked_next_multiple_of(PAGE)?.checked_add(align)?;
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, at a place that the system chooses.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), all, protection, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return None;
        }
        let mut pages = Pages { base: NonNull::new(at.cast())?, len: all };
        if align > 0 {
            pages.trim(len.next_multiple_of(PAGE));
            // SAFETY: our own mapping; the advice changes no contents. Where it is not taken, the
            // pages are small.
            unsafe { libc::madvise(pages.base.as_ptr().cast(), pages.len, libc::MADV_HUGEPAGE) };
        }
        Some(pages)
    }

    /// Gives back what lies before the first huge page and after `len` bytes from there.
    fn trim(&mut self, len: usize) {
        let before = self.base.as_ptr().align_offset(HUGE);
        let after = self.len - before - len;
        // SAFETY: both parts lie within the mapping, page by page, and they were not given out yet.
        unsafe {
            if before > 0 {
                libc::munmap(self.base.as_ptr().cast(), before);
            }
            self.base = self.base.add(before);
            if after > 0 {
                libc::munmap(self.base.as_ptr().add(len).cast(), after);
            }
        }
        self.len = len;
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: our mapping, which ends with this value.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "parts of mappings are not unmapped there")]
    fn aligned_zeroes_from_the_first_byte_to_the_last() {
        for len in [LARGE, LARGE + 1, HUGE, HUGE + 1, 3 * HUGE - 5] {
            let pages = Pages::map(len).expect("memory");
            let base = pages.base().as_ptr();
            if len >= HUGE {
                assert_eq!(base.align_offset(HUGE), 0);
            }
            // SAFETY: within the mapping, which nothing else knows.
            let bytes = unsafe { std::slice::from_raw_parts_mut(base, len) };
            assert!(bytes.iter().all(|byte| *byte == 0));
            bytes.fill(7);
        }
        assert!(Pages::map(usize::MAX - 10).is_none());
    }
}

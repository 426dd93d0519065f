//! Copying memory that somebody else may write at the same time.

/// Copies `len` bytes; other processes, or the network, may write to either side meanwhile, and
/// then the bytes that are copied are unspecified, but nothing else is.
///
/// The language's own copies (`copy_nonoverlapping`, slices) assume that nobody else writes: the
/// compiler may read twice, or derive facts from what it read. This calls the C library's
/// `memcpy` through a pointer that the compiler cannot see through, so that the copy happens
/// outside of the language, as a system call's would.
///
/// # Safety
/// Both ranges must be mapped for the whole call, `src` readable and `dst` writable, and must not
/// overlap. No reference (`&` or `&mut`) to any of the bytes of `dst`, and no `&mut` to those of
/// `src`, may be alive in this process.
#[inline]
pub unsafe fn copy_opaque(src: *const u8, dst: *mut u8, len: usize) {
    #[cfg(miri)]
    // SAFETY: the caller's promise; under Miri no other process writes.
    unsafe {
        std::ptr::copy_nonoverlapping(src, dst, len);
    }
    #[cfg(not(miri))]
    {
        type Memcpy = unsafe extern "C" fn(
            *mut libc::c_void,
            *const libc::c_void,
            libc::size_t,
        ) -> *mut libc::c_void;
        let memcpy: Memcpy = std::hint::black_box(libc::memcpy);
        // SAFETY: the caller's promise is what memcpy asks for.
        unsafe {
            memcpy(dst.cast(), src.cast(), len);
        }
    }
}

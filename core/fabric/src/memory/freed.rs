//! Whether the allocator keeps what was freed.

use std::sync::Once;

/// Has glibc keep large memory that was freed, of which up to 64 MiB lie at the end of the heap,
/// rather than give it back to the system at once and get it again, page by page, with the next
/// message: that costs ten times what copying it does. So it does of itself in a process that once
/// freed a block of many megabytes; and that is what happens here, once; every
/// [`Pool`](crate::Pool) sees to it. Other allocators take no notice.
pub fn retain_freed_memory() {
    /// No more than what glibc takes as a hint (`DEFAULT_MMAP_THRESHOLD_MAX`).
    const HINT: usize = 31 << 20;
    static ONCE: Once = Once::new();
    // It is never touched, so no page of it is ever there.
    ONCE.call_once(|| drop(std::hint::black_box(Vec::<u8>::with_capacity(HINT))));
}

/// Has glibc give back to the system what it kept of freed memory, in a process that rests. It
/// looks through all of it, for some milliseconds where there is much, in which other threads that
/// allocate may wait. Other allocators take no notice.
pub fn return_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes the locks of the allocator as `free` does, and touches nothing that is in
    // use.
    unsafe {
        libc::malloc_trim(0);
    }
}

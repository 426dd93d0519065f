//! A process that forks: the one thing that tests do and no safe interface offers.

#![allow(unsafe_code)]

/// The number of the child's process; 0 in the child, which has this thread alone. Another thread
/// may have held a lock when the process forked, so the child does as little as it can and ends, or
/// becomes another program.
#[must_use]
pub fn fork() -> i32 {
    // SAFETY: the child goes on in a copy of this thread, which uses its own memory, the allocator
    // (whose locks the C library puts in order for the child), and system calls.
    unsafe { libc::fork() }
}

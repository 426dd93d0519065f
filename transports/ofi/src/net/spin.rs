//! The lock in an endpoint's memory of the shm provider.
//!
//! Up to 1.19 of the library, senders take it to queue what they send, and the owner while it
//! copies what was queued. A process that is killed or stopped meanwhile leaves it held, and the
//! library spins on it without end. So it is looked at before each call that takes it: while it is
//! held, a node is full, and nothing arrived. What is left is the moment between this look and the
//! library's own; and an endpoint whose own lock is held receives nothing until it is released.
//!
//! The lock is found by the layout of the library's versions that have it, and not trusted to be
//! there: the endpoint's own memory must fit that layout in all that is known of it.

use crate::{leftovers, sys::library::Library};
use std::{
    hint,
    os::fd::AsRawFd,
    ptr::{self, NonNull},
    sync::atomic::{AtomicI32, Ordering::Relaxed},
};

/// What is mapped of an endpoint's memory, in bytes.
const LEN: usize = 4096;
/// Where the version, the process and the lock lie in `struct smr_region`.
const VERSION: usize = 0;
const PROCESS: usize = 4;
const LOCK: usize = 24;
/// `SMR_VERSION` of layouts with the lock at this place.
const WITH_LOCK: [u8; 2] = [4, 5];
/// Looks before a lock is said to be held: longer than it is to queue a packet.
const LOOKS: u32 = 200;

/// The head of an endpoint's memory, where its lock lies.
pub(super) struct SpinLock {
    at: NonNull<u8>,
    /// Its value when nothing holds it, which is the C library's choice.
    free: i32,
}

// SAFETY: a mapping belongs to the process and to no thread of it; all that is read of it is read
// by atomic or volatile loads.
unsafe impl Send for SpinLock {}

impl SpinLock {
    /// That of an endpoint of this process which was just opened under this name, and which no
    /// other one knows. `None` if this library has none.
    pub(super) fn own(library: &Library, name: &[u8]) -> Option<SpinLock> {
        let mut lock = SpinLock::map(name, 0).filter(|_| library.major() == 1)?;
        lock.free = lock.value();
        (lock.number(PROCESS) == std::process::id()).then_some(lock)
    }

    /// That of a node with this name, for an endpoint whose own is `self`. `None` if there is none
    /// to be seen: then the library is called without a look.
    pub(super) fn of(&self, name: &[u8]) -> Option<SpinLock> {
        SpinLock::map(name, self.free)
    }

    fn map(name: &[u8], free: i32) -> Option<SpinLock> {
        let file = leftovers::memory(name)?;
        (file.metadata().ok()?.len() >= LEN as u64).then_some(())?;
        let (fd, flags) = (file.as_raw_fd(), libc::MAP_SHARED);
        // SAFETY: a new mapping, at a place that the system chooses, of a file that is as long as
        // that. One that its owner makes shorter ends this process when it is read; so it does when
        // the library reads its own mapping of it, which every call does.
        let at = unsafe { libc::mmap(ptr::null_mut(), LEN, libc::PROT_READ, flags, fd, 0) };
        if at == libc::MAP_FAILED {
            return None;
        }
        let lock = SpinLock { at: NonNull::new(at.cast())?, free };
        WITH_LOCK.contains(&(lock.number(VERSION) as u8)).then_some(lock)
    }

    fn number(&self, offset: usize) -> u32 {
        debug_assert!(offset + 4 <= LEN && offset.is_multiple_of(4));
        // SAFETY: within the mapping, which lives as long as this value, and aligned; other
        // processes write to it, so the load is volatile. Every value is one.
        unsafe { self.at.as_ptr().add(offset).cast::<u32>().read_volatile() }
    }

    #[inline]
    fn value(&self) -> i32 {
        // SAFETY: within the mapping, which lives as long as this value, and aligned; other
        // processes change it by atomic operations.
        unsafe { AtomicI32::from_ptr(self.at.as_ptr().add(LOCK).cast()) }.load(Relaxed)
    }

    /// Whether it is held, and stays so for as long as this looks.
    #[inline]
    pub(super) fn stays_held(&self) -> bool {
        self.value() != self.free && self.stays()
    }

    #[cold]
    fn stays(&self) -> bool {
        (0..LOOKS).all(|_| {
            hint::spin_loop();
            self.value() != self.free
        })
    }
}

impl Drop for SpinLock {
    fn drop(&mut self) {
        // SAFETY: our mapping, which ends with this value.
        unsafe { libc::munmap(self.at.as_ptr().cast(), LEN) };
    }
}

//! Notices that this process is a forked child: engines of the parent are not used there.

use std::sync::{
    Once,
    atomic::{AtomicU64, Ordering::Relaxed},
};

static FORKS: AtomicU64 = AtomicU64::new(0);

/// How many forks lie between this process and the one that loaded the module.
#[inline]
pub(crate) fn generation() -> u64 {
    FORKS.load(Relaxed)
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Relaxed);
}

/// Counts from now on.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    // SAFETY: the function is of this module, which an interpreter never unloads, and does nothing
    // but add to an atomic, which is allowed in a child of a process with threads.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(None, None, Some(in_child));
    });
}

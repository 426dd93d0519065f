//! Where the module may be used: in one interpreter of a process, and not by a forked child with
//! what belongs to its parent.

use pyo3::{exceptions::PyImportError, ffi, prelude::*};
use std::sync::{
    Once, OnceLock,
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

/// Refuses to be loaded by a second interpreter of the process: objects of one would be used with
/// the lock of the other.
pub(crate) fn refuse_other_interpreters() -> PyResult<()> {
    static FIRST: OnceLock<i64> = OnceLock::new();
    // SAFETY: the module is being loaded, with an interpreter attached.
    let this = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    match *FIRST.get_or_init(|| this) == this {
        true => Ok(()),
        false => Err(PyImportError::new_err(
            "petasos is loaded by another interpreter of this process: it does not support \
             subinterpreters; use a process in place of each",
        )),
    }
}

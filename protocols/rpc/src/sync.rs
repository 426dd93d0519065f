//! Atomics and thread identity, which loom replaces in its models.

use std::ptr;

#[cfg(not(all(loom, test)))]
pub(crate) use std::sync::atomic::{AtomicBool, Ordering, fence};

#[cfg(all(loom, test))]
pub(crate) use loom::sync::atomic::{AtomicBool, Ordering, fence};

/// A number that differs between living threads: the address of a thread-local.
#[cfg(not(all(loom, test)))]
pub(crate) fn this_thread() -> usize {
    thread_local! {
        static MARK: u8 = const { 0 };
    }
    MARK.with(|mark| ptr::from_ref(mark).addr())
}

/// The same for the threads of a model, all of which are one thread of the system.
#[cfg(all(loom, test))]
pub(crate) fn this_thread() -> usize {
    loom::thread_local! {
        static MARK: Box<u8> = Box::new(0);
    }
    MARK.with(|mark| ptr::from_ref(&**mark).addr())
}

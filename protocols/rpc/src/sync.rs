//! Atomics come from here, and what tells threads apart, so that loom can stand in for them.

use std::ptr;

#[cfg(not(all(loom, test)))]
pub(crate) use std::sync::atomic::{AtomicBool, Ordering, fence};

#[cfg(all(loom, test))]
pub(crate) use loom::sync::atomic::{AtomicBool, Ordering, fence};

/// Tells living threads apart, at the price of an address.
#[cfg(not(all(loom, test)))]
pub(crate) fn this_thread() -> usize {
    thread_local! {
        static MARK: u8 = const { 0 };
    }
    MARK.with(|mark| ptr::from_ref(mark).addr())
}

/// The same of the threads of a model, which are one for the system.
#[cfg(all(loom, test))]
pub(crate) fn this_thread() -> usize {
    loom::thread_local! {
        static MARK: Box<u8> = Box::new(0);
    }
    MARK.with(|mark| ptr::from_ref(&**mark).addr())
}

//! What loom replaces in its models.

#[cfg(not(all(loom, test)))]
pub(super) use std::{
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, fence},
    },
    thread::yield_now,
};

#[cfg(all(loom, test))]
pub(super) use loom::{
    sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, fence},
    },
    thread::yield_now,
};

pub(super) use std::sync::{PoisonError, atomic::Ordering};

/// A number that differs between living threads: the address of a thread-local.
#[cfg(not(all(loom, test)))]
pub(super) fn this_thread() -> usize {
    thread_local! {
        static MARK: u8 = const { 0 };
    }
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

/// The same for the threads of a model, all of which are one thread of the system.
#[cfg(all(loom, test))]
pub(super) fn this_thread() -> usize {
    loom::thread_local! {
        static MARK: Box<u8> = Box::new(0);
    }
    MARK.with(|mark| std::ptr::from_ref(&**mark).addr())
}

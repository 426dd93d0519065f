//! Atomics come from here, so that loom can stand in for them.

#[cfg(not(all(loom, test)))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(all(loom, test))]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};

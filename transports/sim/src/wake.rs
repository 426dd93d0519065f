//! What wakes a driver in virtual time: there is no descriptor to sleep on.

use petasos_fabric::Notify;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the notifier was used.
#[derive(Default)]
pub(crate) struct WakeFlag(AtomicBool);

impl WakeFlag {
    /// Whether it was woken since the last call.
    pub(crate) fn take(&self) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }
}

impl Notify for WakeFlag {
    fn notify(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

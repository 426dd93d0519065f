//! Ends an endpoint's sleep: an event descriptor, written only while somebody sleeps on it.

use petasos_fabric::Notify;
use rustix::{
    event::{EventfdFlags, eventfd},
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::{read, write},
};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

pub(crate) struct Bell {
    fd: OwnedFd,
    /// The owner armed, and nobody has rung since.
    sleeping: AtomicBool,
    /// The notifier was used, and no `arm` has seen it.
    notified: AtomicBool,
}

impl Bell {
    pub(crate) fn new() -> Result<Bell, rustix::io::Errno> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Bell { fd, sleeping: AtomicBool::new(false), notified: AtomicBool::new(false) })
    }

    /// To be called after the change that the owner should see.
    pub(crate) fn ring(&self) {
        if self.sleeping.load(SeqCst) && self.sleeping.swap(false, SeqCst) {
            // Fails only when the counter is at its end: then it is readable all the more.
            let _ = write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// Announces a sleep. What is looked at after this and found unchanged will ring.
    pub(crate) fn prepare(&self) {
        self.sleeping.store(true, SeqCst);
    }

    /// Whether the notifier was used since the last call.
    pub(crate) fn take_notice(&self) -> bool {
        self.notified.swap(false, SeqCst)
    }

    /// The sleep is over, or did not come about.
    pub(crate) fn awake(&self) {
        self.sleeping.store(false, SeqCst);
        // Whoever rang may not have written yet: then the next sleep ends at once, which is harmless.
        let _ = read(&self.fd, &mut [0; 8]);
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Notify for Bell {
    fn notify(&self) {
        self.notified.store(true, SeqCst);
        self.ring();
    }
}

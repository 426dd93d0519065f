//! Ends an endpoint's sleep: an event descriptor, written only while somebody sleeps on it.

use petasos_fabric::{Doze, Notify};
use rustix::{
    event::{EventfdFlags, eventfd},
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::{read, write},
};

pub(crate) struct Bell {
    fd: OwnedFd,
    doze: Doze,
}

impl Bell {
    pub(crate) fn new() -> Result<Bell, rustix::io::Errno> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Bell { fd, doze: Doze::default() })
    }

    /// To be called after the change that the owner should see.
    pub(crate) fn ring(&self) {
        if self.doze.rouse() {
            self.write();
        }
    }

    fn write(&self) {
        // Fails only when the counter is at its end: then it is readable all the more.
        let _ = write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Announces a sleep. What is looked at after this and found unchanged will ring.
    pub(crate) fn prepare(&self) {
        self.doze.fall_asleep();
    }

    /// Whether the notifier was used since the last call.
    pub(crate) fn take_notice(&self) -> bool {
        self.doze.take_notice()
    }

    /// The sleep is over, or did not come about.
    pub(crate) fn awake(&self) {
        self.doze.awake();
        // Whoever rang may not have written yet: then the next sleep ends at once, which is harmless.
        let _ = read(&self.fd, &mut [0; 8]);
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Notify for Bell {
    fn notify(&self) {
        if self.doze.notice() {
            self.write();
        }
    }
}

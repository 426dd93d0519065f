//! Doorbells: an eventfd, and one that is written only while its owner sleeps.

use crate::{EventCount, Notify};
use rustix::{
    event::{EventfdFlags, eventfd},
    io::{Errno, read, write},
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// An event counter of the kernel (`eventfd(2)`): readable from when it is signalled until that is
/// taken. Neither blocks, nor is inherited by other programs.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A counter that is not signalled.
    ///
    /// # Errors
    /// The process or the system has no descriptor or memory for it.
    pub fn new() -> Result<EventFd, Errno> {
        Ok(EventFd(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes it readable, from any thread. One system call; it never blocks.
    pub fn signal(&self) {
        // It fails only when the counter is at its maximum, and then it is readable anyway.
        let _ = write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Whether it was signalled since the last call. One system call.
    pub fn take(&self) -> bool {
        read(&self.0, &mut [0; 8]).is_ok()
    }
}

impl From<OwnedFd> for EventFd {
    /// The counter of another process. It is trusted to be one: [`EventFd::signal`] writes to it,
    /// whatever it is.
    fn from(fd: OwnedFd) -> EventFd {
        EventFd(fd)
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A transport's doorbell: an [`EventFd`] that is rung only while the endpoint's driver says that
/// it sleeps (see [`EventCount`]), and once for each sleep. It is also the endpoint's [`Notify`].
///
/// The endpoint's `arm` calls [`Doorbell::prepare`], and then looks for all that others may have
/// left; the next `progress` calls [`Doorbell::awake`].
///
/// ```
/// use petasos_fabric::{Doorbell, Notify};
///
/// let doorbell = Doorbell::new()?;
/// // The driver is about to sleep on the descriptor.
/// assert!(!doorbell.prepare());
/// doorbell.notify();
/// // The descriptor is readable; and the wake-up is still there when the next sleep is prepared.
/// doorbell.awake();
/// assert!(doorbell.take());
/// assert!(doorbell.prepare());
/// # Ok::<(), rustix::io::Errno>(())
/// ```
#[derive(Debug)]
pub struct Doorbell {
    fd: EventFd,
    sleeper: EventCount,
}

impl Doorbell {
    /// A doorbell for an endpoint that is awake.
    ///
    /// # Errors
    /// The process or the system has no descriptor or memory for it.
    pub fn new() -> Result<Doorbell, Errno> {
        Ok(Doorbell { fd: EventFd::new()?, sleeper: EventCount::default() })
    }

    /// Rings if the driver sleeps: to be called after the change that it should see.
    #[inline]
    pub fn ring(&self) {
        if self.sleeper.rouse() {
            self.fd.signal();
        }
    }

    /// Announces a sleep. True if there was a wake-up since the last time: do not sleep. What is
    /// looked at after this and found unchanged will ring.
    pub fn prepare(&self) -> bool {
        self.sleeper.fall_asleep();
        self.sleeper.take_wakeup()
    }

    /// The sleep is over, or did not come about. The descriptor stays readable if it was rung: that
    /// is for [`Doorbell::take`], unless it is waited for by the edge.
    #[inline]
    pub fn awake(&self) {
        self.sleeper.awake();
    }

    /// Whether it was rung since the last call; the descriptor is not readable after it. A ring for
    /// a sleep that ended otherwise may come later: the next sleep then ends at once, which is
    /// harmless.
    pub fn take(&self) -> bool {
        self.fd.take()
    }
}

impl Notify for Doorbell {
    fn notify(&self) {
        if self.sleeper.wake() {
            self.fd.signal();
        }
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn is_readable(fd: impl AsFd) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)).unwrap() == 1
    }

    #[test]
    fn signals_are_merged_and_taken_once() {
        let event = EventFd::new().unwrap();
        assert!(!is_readable(&event) && !event.take());
        event.signal();
        event.signal();
        assert!(is_readable(&event));
        assert!(event.take() && !event.take());
        assert!(!is_readable(&event));
    }

    #[test]
    fn a_full_counter_blocks_no_one_and_is_readable() {
        let event = EventFd::new().unwrap();
        write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        event.signal();
        assert!(is_readable(&event) && event.take());
    }

    #[test]
    fn it_rings_for_a_sleeper_only() {
        let doorbell = Doorbell::new().unwrap();
        doorbell.ring();
        doorbell.notify();
        assert!(!is_readable(&doorbell), "the driver is awake");
        assert!(doorbell.prepare(), "there was a wake-up");
        doorbell.awake();
        assert!(!doorbell.prepare());
        doorbell.ring();
        assert!(is_readable(&doorbell));
        doorbell.awake();
        assert!(doorbell.take());
        assert!(!doorbell.prepare(), "a ring is no wake-up");
        doorbell.awake();
        doorbell.ring();
        assert!(!is_readable(&doorbell), "awake again");
    }

    #[test]
    fn a_sleep_in_another_thread_ends() {
        let doorbell = Doorbell::new().unwrap();
        std::thread::scope(|threads| {
            for _ in 0..100 {
                let woken = doorbell.prepare();
                threads.spawn(|| doorbell.notify());
                if !woken {
                    poll(&mut [PollFd::new(&doorbell, PollFlags::IN)], None).unwrap();
                }
                doorbell.awake();
                doorbell.take();
            }
        });
    }
}

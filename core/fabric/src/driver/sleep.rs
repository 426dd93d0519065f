//! Sleeping on descriptors, and the place where the thread sleeps that drives.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{os::fd::BorrowedFd, time::Duration};

/// Sleeps until one of these descriptors is readable, or for so long (`None`: for ever), or until
/// a signal comes: the caller finds nothing then, and sleeps again. Whether each is readable.
pub fn sleep_on<const N: usize>(fds: [BorrowedFd<'_>; N], longest: Option<Duration>) -> [bool; N] {
    let timeout = longest.and_then(|longest| Timespec::try_from(longest).ok());
    let mut waits = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    match poll(&mut waits, timeout.as_ref()) {
        Ok(_) => waits.map(|wait| !wait.revents().is_empty()),
        Err(_) => [false; N],
    }
}

#[cfg(all(loom, test))]
pub(super) use model::Bed;
#[cfg(not(all(loom, test)))]
pub(super) use real::Bed;

#[cfg(not(all(loom, test)))]
mod real {
    use super::sleep_on;
    use crate::EventFd;
    use rustix::io::Errno;
    use std::{
        os::fd::{AsFd, OwnedFd},
        time::Duration,
    };

    /// The sleep of a thread whose endpoint has no descriptor.
    const NAP: Duration = Duration::from_micros(50);

    /// Where one thread sleeps: on the endpoint's descriptor, and on one by which others wake it.
    /// The endpoint's own notifier does not do that once another thread has used the endpoint.
    #[derive(Debug)]
    pub(crate) struct Bed {
        wakeup: EventFd,
        fd: Option<OwnedFd>,
    }

    impl Bed {
        pub(crate) fn new(fd: Option<OwnedFd>) -> Result<Bed, Errno> {
            Ok(Bed { wakeup: EventFd::new()?, fd })
        }

        /// Ends the sleep there, now or the next.
        pub(crate) fn wake(&self) {
            self.wakeup.signal();
        }

        /// `deaf`: what comes to the endpoint does not end the sleep.
        pub(crate) fn sleep(&self, deaf: bool, longest: Option<Duration>) {
            let woken = match &self.fd {
                Some(fd) if !deaf => sleep_on([self.wakeup.as_fd(), fd.as_fd()], longest)[0],
                Some(_) => sleep_on([self.wakeup.as_fd()], longest)[0],
                None => {
                    let nap = longest.map_or(NAP, |longest| longest.min(NAP));
                    sleep_on([self.wakeup.as_fd()], Some(nap))[0]
                }
            };
            if woken {
                self.wakeup.take();
            }
        }
    }
}

#[cfg(all(loom, test))]
mod model {
    use crate::driver::sync::{Condvar, Mutex};
    use rustix::io::Errno;
    use std::{os::fd::OwnedFd, time::Duration};

    /// The same without descriptors, and without limits of time.
    #[derive(Debug)]
    pub(crate) struct Bed {
        woken: Mutex<bool>,
        signal: Condvar,
    }

    impl Bed {
        pub(crate) fn new(_: Option<OwnedFd>) -> Result<Bed, Errno> {
            Ok(Bed { woken: Mutex::new(false), signal: Condvar::new() })
        }

        pub(crate) fn wake(&self) {
            *self.woken.lock().unwrap() = true;
            self.signal.notify_one();
        }

        pub(crate) fn sleep(&self, _: bool, _: Option<Duration>) {
            let mut woken = self.woken.lock().unwrap();
            while !*woken {
                woken = self.signal.wait(woken).unwrap();
            }
            *woken = false;
        }
    }
}

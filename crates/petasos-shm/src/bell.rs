//! Bells: what ends a sleep. Rung only for somebody who said that he sleeps.

use crate::{hello::Note, socket};
use petasos_fabric::{Doze, Notify};
use rustix::{
    event::{EventfdFlags, eventfd},
    fd::OwnedFd,
    io::{Errno, write},
};

/// An event descriptor to be waited for, by the edge, so that it need not be read.
pub(crate) fn event() -> Result<OwnedFd, Errno> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
}

/// How one peer is woken.
pub(crate) enum Bell {
    /// By an event descriptor that it made for us alone: the cheapest way.
    Event(OwnedFd),
    /// By a word over the socket: for peers of other users, who could make a write to a
    /// descriptor of theirs block us.
    Socket,
}

impl Bell {
    /// Never blocks. What fails, fails because the peer has been rung for already, or is gone.
    pub(crate) fn ring(&self, socket: &OwnedFd) {
        match self {
            Bell::Event(fd) => {
                let _ = write(fd, &1u64.to_ne_bytes());
            }
            Bell::Socket => {
                let _ = socket::send(socket, &Note::Bell.encode(), &[]);
            }
        }
    }
}

/// The endpoint's own bell, for notifiers.
pub(crate) struct OwnBell {
    pub(crate) fd: OwnedFd,
    doze: Doze,
}

impl OwnBell {
    pub(crate) fn new() -> Result<OwnBell, Errno> {
        Ok(OwnBell { fd: event()?, doze: Doze::default() })
    }

    /// Announces a sleep. True if the notifier was used since the last time: do not sleep.
    pub(crate) fn prepare(&self) -> bool {
        self.doze.fall_asleep();
        self.doze.take_notice()
    }

    /// The sleep is over.
    pub(crate) fn awake(&self) {
        self.doze.awake();
    }
}

impl Notify for OwnBell {
    fn notify(&self) {
        if self.doze.notice() {
            let _ = write(&self.fd, &1u64.to_ne_bytes());
        }
    }
}

//! How a peer is woken. Rung only for a peer that said that it sleeps.

use crate::{hello::Note, socket};
use petasos_fabric::EventFd;
use rustix::fd::OwnedFd;

/// How one peer is woken.
pub(crate) enum Bell {
    /// By an event descriptor that it made for us alone: the cheapest way. It is waited for by the
    /// edge, so that it need not be read.
    Event(EventFd),
    /// By a word over the socket: for peers of other users, who could make a write to a
    /// descriptor of theirs block us.
    Socket,
}

impl Bell {
    /// Never blocks. What fails, fails because the peer has been rung for already, or is gone.
    pub(crate) fn ring(&self, socket: &OwnedFd) {
        match self {
            Bell::Event(event) => event.signal(),
            Bell::Socket => {
                let _ = socket::send(socket, &Note::Bell.encode(), &[]);
            }
        }
    }
}

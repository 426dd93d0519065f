//! How a peer is woken. Rung only for a peer that said that it sleeps.

use crate::{control::ControlMessage, socket};
use petasos_fabric::EventFd;
use rustix::fd::OwnedFd;

/// How one peer is woken.
pub(crate) enum PeerDoorbell {
    /// By an event descriptor that it made for us alone: the cheapest way. It is polled
    /// edge-triggered, so that it need not be read.
    Event(EventFd),
    /// By a message over the socket: for peers of other users, which could make a write to a
    /// descriptor of theirs block us.
    Socket,
}

impl PeerDoorbell {
    /// Never blocks. It fails only if the peer has been rung for already, or has ended.
    pub(crate) fn ring(&self, socket: &OwnedFd) {
        match self {
            PeerDoorbell::Event(event) => event.signal(),
            PeerDoorbell::Socket => {
                let _ = socket::send(socket, &ControlMessage::Doorbell.encode(), &[]);
            }
        }
    }
}

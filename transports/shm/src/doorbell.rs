//! How a peer is woken, and the channels in which that may be due. A doorbell is rung only for a
//! peer that said that it sleeps.

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

/// No channel: the end of the list of pending doorbells.
const END: u32 = u32::MAX;

/// What a channel that is not in that list has as the next.
const NOT_PENDING: u32 = u32::MAX - 1;

/// The channels in which something was published since their peers were last looked at: a peer may
/// have fallen asleep in between, and is looked at again after a fence, once for all that a pass
/// publishes. The list runs through the channels.
pub(crate) struct PendingDoorbells(u32);

/// The next channel in that list.
pub(crate) struct NextPending(u32);

impl NextPending {
    pub(crate) const NONE: NextPending = NextPending(NOT_PENDING);

    /// Takes the channel out of the list; gives the next one.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> u32 {
        std::mem::replace(&mut self.0, NOT_PENDING)
    }
}

impl PendingDoorbells {
    pub(crate) const EMPTY: PendingDoorbells = PendingDoorbells(END);

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0 == END
    }

    /// Empties the list; gives its first channel, of which [`NextPending::take`] gives the next.
    /// There is no channel at the end.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> u32 {
        std::mem::replace(&mut self.0, END)
    }

    /// Adds a channel, if it is not in the list.
    #[inline(always)]
    pub(crate) fn add(&mut self, index: u32, next: &mut NextPending) {
        if next.0 == NOT_PENDING {
            next.0 = std::mem::replace(&mut self.0, index);
        }
    }
}

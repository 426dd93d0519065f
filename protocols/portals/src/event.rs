//! What an interface tells its program: events, and the queues they lie in.

use crate::{
    Handle, List, MatchEntry, Memory, Target, descriptor::Descriptor, matching::Refusal,
    message::Arrival,
};
use std::collections::VecDeque;

/// Something that happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// An operation of another process begins at an entry (Portals 3).
    Start(Served),
    /// An operation of another process has ended at an entry: PUT, GET, ATOMIC, FETCH_ATOMIC.
    Served(Served),
    /// A message that came before its entry was appended: PUT_OVERFLOW and the like. The data is in
    /// [`Served::memory`].
    Overflow(Served),
    /// The answer to a search for headers: SEARCH. With [`Failure::NoMatch`] there was none.
    Search {
        /// What the search was given.
        user_data: u64,
        /// What was found.
        found: Result<Box<Served>, Failure>,
    },
    /// An entry is in its list: LINK.
    Link(Listed),
    /// An entry was used up, and has gone: AUTO_UNLINK. With [`Failure::Dropped`] it could not be
    /// put in at all.
    AutoUnlink(Listed),
    /// No header refers to the memory of an entry of an overflow list any more, which has gone:
    /// AUTO_FREE.
    AutoFree(Listed),
    /// A portal takes no messages any more, for want of room: PT_DISABLED.
    Disabled {
        /// Which.
        portal: u16,
    },
    /// Of an operation of one's own: the request is about to leave (Portals 3).
    SendStart(Completed),
    /// The memory of a put may be used again: SEND.
    Send(Completed),
    /// The target has done what it was asked for: ACK.
    Ack(Completed),
    /// The reply of the target begins to come (Portals 3).
    ReplyStart(Completed),
    /// What the target sent is there: REPLY.
    Reply(Completed),
    /// A descriptor for operations of one's own was used up, and has gone (Portals 3).
    Released {
        /// Which. Stale by now.
        descriptor: Handle<Descriptor>,
        /// What it was given.
        user_data: u64,
        /// The operation that used it up.
        link: u64,
    },
}

/// An operation at the target.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Served {
    /// Which process asked for what.
    pub arrival: Arrival,
    /// The entry that took it.
    pub entry: Handle<MatchEntry>,
    /// What that was given.
    pub user_data: u64,
    /// Bytes moved.
    pub len: u64,
    /// Where in the memory.
    pub offset: u64,
    /// The memory, where it is not that of the entry: of messages that came before it.
    pub memory: Option<Box<Memory>>,
    /// The list in which it was taken: of messages that came before their entry the overflow list.
    pub list: List,
    /// The same in the start, the end and the unlinking of one operation.
    pub link: u64,
    /// What the entry still takes.
    pub left: Left,
    /// How it went. What failed may have changed the memory.
    pub result: Result<(), Failure>,
    /// Which memory of the entry (Portals 3).
    pub(crate) serial: u32,
}

/// Something about an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    /// Which. Stale by now, if it has gone.
    pub entry: Handle<MatchEntry>,
    /// Its portal.
    pub portal: u16,
    /// What it was given.
    pub user_data: u64,
    /// The operation that brought it about (Portals 3), or 0.
    pub link: u64,
    /// What it still takes.
    pub left: Left,
    /// Which memory of the entry (Portals 3).
    pub(crate) serial: u32,
}

/// How an entry stood when an event was raised: with the memory, what Portals 3 tells of a
/// descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// How many operations it still takes; `None` for any number.
    pub operations: Option<u64>,
    /// Its own offset in bytes: where the next message goes, if it says that.
    pub offset: u64,
}

/// An operation at its initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completed {
    /// Its descriptor. Stale, if it was released.
    pub descriptor: Handle<Descriptor>,
    /// What the operation was given.
    pub user_data: u64,
    /// Where it went: what the operation was given.
    pub target: Target,
    /// What the operation gave the target along.
    pub header_data: u64,
    /// Bytes that were asked for.
    pub requested: u64,
    /// Bytes that the target took or gave.
    pub len: u64,
    /// Where at the target.
    pub offset: u64,
    /// The list of the target's in which it was taken; of answers that tell of a success.
    pub list: Option<List>,
    /// The same in all events of one operation.
    pub link: u64,
    /// How much its descriptor may still do (Portals 3); `None` for any number of operations.
    pub left: Option<u64>,
    /// How it went.
    pub result: Result<(), Failure>,
    /// The memory of an entry that it was started from (Portals 3).
    pub(crate) attached: Option<(Handle<MatchEntry>, u32)>,
}

/// Why an operation failed, as its initiator and its target learn it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// No entry took it there, or there is no such portal.
    #[error("nothing matched at the target")]
    Dropped,
    /// The portal is disabled: quiesce, and try again.
    #[error("the portal is disabled")]
    PortalDisabled,
    /// The entry that it matched, or the access control, is for others.
    #[error("the target does not permit it to this user")]
    Permission,
    /// The entry that it matched does not let that be done, or its memory cannot do it.
    #[error("the entry does not let that be done")]
    Operation,
    /// The other process is gone, or was never there.
    #[error("the other process is gone")]
    Unreachable,
    /// The interface ended before it did.
    #[error("the interface has ended")]
    Aborted,
    /// No header matched a search.
    #[error("no header matches")]
    NoMatch,
    /// The data could not be brought to the memory.
    #[error("the data did not arrive whole")]
    Undelivered,
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        match refusal {
            Refusal::NoMatch | Refusal::NoPortal | Refusal::NoHeader => Failure::Dropped,
            Refusal::Disabled => Failure::PortalDisabled,
            Refusal::Permission => Failure::Permission,
            Refusal::Operation => Failure::Operation,
        }
    }
}

/// An event that was taken from a queue.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The event.
    pub event: Event,
    /// Events that were overwritten before it, since the last one was taken.
    pub lost: u64,
    /// Its number among all events of the queue, from 1 on.
    pub sequence: u64,
}

/// A queue of events: of a bounded length. When it is full, the oldest events are overwritten.
///
/// Slots are set aside for what must be told later: the end of what began, and that a portal was
/// disabled.
#[derive(Debug)]
pub struct EventQueue {
    events: VecDeque<Event>,
    capacity: usize,
    /// Slots for events that are sure to come.
    reserved: usize,
    /// Slots for the event that a portal with flow control was disabled: one for each of those.
    flow_control: usize,
    lost: u64,
    /// Events that there were.
    sequence: u64,
    /// When an event was last taken by a poll of several queues.
    pub(crate) polled: u64,
}

impl EventQueue {
    pub(crate) fn new(capacity: usize) -> EventQueue {
        let events = VecDeque::with_capacity(capacity.min(1024));
        EventQueue {
            events,
            capacity,
            reserved: 0,
            flow_control: 0,
            lost: 0,
            sequence: 0,
            polled: 0,
        }
    }

    /// Sets a slot aside for a portal with flow control; false if then none would be left for other
    /// events.
    pub(crate) fn add_flow_control(&mut self) -> bool {
        let possible = self.flow_control + 1 < self.capacity;
        self.flow_control += usize::from(possible);
        possible
    }

    pub(crate) fn remove_flow_control(&mut self) {
        self.flow_control = self.flow_control.saturating_sub(1);
    }

    /// Whether there is room for all events of one message: three, or as many as there can be.
    pub(crate) fn has_room(&self) -> bool {
        let all = self.capacity - self.flow_control;
        self.events.len() + self.reserved + all.min(3) <= all
    }

    /// Sets a slot aside for an event that is sure to come.
    pub(crate) fn reserve(&mut self) {
        self.reserved += 1;
    }

    /// The event for which a slot was set aside comes now, or never will.
    pub(crate) fn unreserve(&mut self) {
        self.reserved = self.reserved.saturating_sub(1);
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, event: Event) {
        let set_aside = if matches!(event, Event::Disabled { .. }) { 0 } else { self.flow_control };
        if self.events.len() >= self.capacity - set_aside {
            self.make_room(set_aside);
        }
        self.sequence += 1;
        self.events.push_back(event);
    }

    /// Drops the oldest events.
    #[cold]
    fn make_room(&mut self, set_aside: usize) {
        while self.events.len() >= self.capacity - set_aside {
            self.events.pop_front();
            self.lost += 1;
        }
    }

    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<Taken> {
        let sequence = (self.sequence + 1).saturating_sub(self.events.len() as u64);
        let event = self.events.pop_front()?;
        Some(Taken { event, lost: std::mem::take(&mut self.lost), sequence })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}

//! Events, and the queues that they lie in.

use crate::{
    Handle, List, MatchEntry, Memory, Target, descriptor::Descriptor, matching::Refusal,
    message::Arrival,
};
use std::collections::VecDeque;

/// Something that happened, named as in Portals 4 (section *Events and event queues*): at the
/// target down to [`Event::Disabled`], the rest at the initiator.
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
    /// The result of a search for headers: SEARCH. [`Failure::NoMatch`] if there was none.
    Search {
        /// The user data of the search.
        user_data: u64,
        /// What was found.
        found: Result<Box<Served>, Failure>,
    },
    /// An entry is in its list: LINK.
    Link(Listed),
    /// An entry was used up, and is unlinked: AUTO_UNLINK.
    AutoUnlink(Listed),
    /// No header refers any more to the memory of an overflow entry that was unlinked: AUTO_FREE.
    AutoFree(Listed),
    /// A portal was disabled, as there was no room: PT_DISABLED.
    Disabled {
        /// The portal.
        portal: u16,
    },
    /// The request of an operation is about to leave (Portals 3).
    SendStart(Completed),
    /// The memory of a put may be used again: SEND.
    Send(Completed),
    /// The target has done the operation: ACK.
    Ack(Completed),
    /// The reply begins to arrive (Portals 3).
    ReplyStart(Completed),
    /// The data that the target sent is there: REPLY.
    Reply(Completed),
    /// A bound descriptor was used up, and is unlinked (Portals 3).
    Released {
        /// The descriptor. Stale by now.
        descriptor: Handle<Descriptor>,
        /// Its user data.
        user_data: u64,
        /// The operation that used it up.
        link: u64,
    },
}

/// An operation at the target.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Served {
    /// The header of the request.
    pub arrival: Arrival,
    /// The entry that took it.
    pub entry: Handle<MatchEntry>,
    /// The user data of the entry.
    pub user_data: u64,
    /// Bytes moved.
    pub len: u64,
    /// The offset in the memory, in bytes.
    pub offset: u64,
    /// The memory, where it is not that of the entry: that of an overflow entry, for a message that
    /// came before.
    pub memory: Option<Box<Memory>>,
    /// The list in which it was matched: for a message that came before its entry the overflow
    /// list.
    pub list: List,
    /// A number that is the same in the start, the end and the unlinking of one operation.
    pub link: u64,
    /// How much the entry still takes.
    pub left: Left,
    /// The result. An operation that failed may have changed the memory.
    pub result: Result<(), Failure>,
    /// Which memory of the entry (Portals 3).
    pub(crate) serial: u32,
}

/// An entry was linked, was unlinked, or its memory is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    /// The entry. Stale by now, if it was unlinked.
    pub entry: Handle<MatchEntry>,
    /// Its portal.
    pub portal: u16,
    /// Its user data.
    pub user_data: u64,
    /// The number of the operation that caused it (Portals 3), or 0.
    pub link: u64,
    /// How much it still takes.
    pub left: Left,
    /// Which memory of the entry (Portals 3).
    pub(crate) serial: u32,
}

/// How much an entry still took when an event was raised: with the memory, what Portals 3 says of a
/// descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// How many operations it still takes; `None` for any number.
    pub operations: Option<u64>,
    /// Its own offset in bytes, where the next message goes with `local_offset`.
    pub offset: u64,
}

/// An operation at its initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Completed {
    /// Its descriptor. Stale, if that was released.
    pub descriptor: Handle<Descriptor>,
    /// The user data of the operation.
    pub user_data: u64,
    /// Where it went.
    pub target: Target,
    /// Its header data.
    pub header_data: u64,
    /// Bytes that the operation was for.
    pub requested: u64,
    /// Bytes that were moved.
    pub len: u64,
    /// The offset at the target, in bytes.
    pub offset: u64,
    /// The target's list in which it was matched, if this is a successful answer.
    pub list: Option<List>,
    /// A number that is the same in all events of one operation.
    pub link: u64,
    /// How much its descriptor may still do (Portals 3); `None` for any number of operations.
    pub left: Option<u64>,
    /// The result.
    pub result: Result<(), Failure>,
    /// The memory of an entry that it was started from (Portals 3).
    pub(crate) attached: Option<(Handle<MatchEntry>, u32)>,
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// No entry of the target matched, or there is no such portal.
    #[error("nothing matched at the target")]
    Dropped,
    /// The portal is disabled: let it be drained and enabled, and try again.
    #[error("the portal is disabled")]
    PortalDisabled,
    /// The entry that it matched, or the access control, is for other users.
    #[error("the target does not permit it to this user")]
    Permission,
    /// The entry that it matched does not allow the operation, or its memory cannot do it.
    #[error("the entry does not let that be done")]
    Operation,
    /// The other process is lost, or was never there.
    #[error("the other process is gone")]
    Unreachable,
    /// The interface ended before it did.
    #[error("the interface has ended")]
    Aborted,
    /// No header matched a search.
    #[error("no header matches")]
    NoMatch,
    /// The data could not be moved to the memory.
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
    /// How many events were overwritten before it, since the last one was taken.
    pub lost: u64,
    /// Its number among all events of the queue, from 1 on.
    pub sequence: u64,
}

/// An event queue of a bounded length. When it is full, the oldest events are overwritten, and the
/// next event that is taken says how many were lost ([`Taken::lost`]).
///
/// With flow control, slots are set aside for events that must not be lost: the end of an operation
/// whose data is being moved, and that a portal was disabled.
///
/// ```
/// # use petasos_portals::{ProcessMap, Config, Interface};
/// # use petasos_fabric::Endpoint;
/// # use std::sync::Arc;
/// use petasos_portals::{Event, List, MatchEntry, Error, PortalOptions};
///
/// # let endpoint = petasos_self::Local::open(&"self://*".parse()?)?;
/// # let map = Arc::new(ProcessMap::ranks([endpoint.address().clone()]));
/// # let interface = Interface::open(Box::new(endpoint), map, Config::default())?;
/// let queue = interface.queue(2)?;
/// let portal = interface.portal(PortalOptions { queue: Some(queue), ..Default::default() })?;
/// for user_data in 1..=3 {
///     let entry = MatchEntry { user_data, ..MatchEntry::new(vec![0; 8]) };
///     interface.append(portal, List::Priority, entry)?;
/// }
/// // The event of the first entry was overwritten.
/// let taken = interface.take_event(queue)?;
/// let Event::Link(linked) = taken.event else { panic!() };
/// assert_eq!((linked.user_data, taken.lost, taken.sequence), (2, 1, 2));
/// interface.take_event(queue)?;
/// assert_eq!(interface.take_event(queue).unwrap_err(), Error::Empty);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct EventQueue {
    events: VecDeque<Event>,
    capacity: usize,
    /// Slots for events that are sure to come.
    reserved: usize,
    /// Slots for the event that a portal with flow control was disabled: one for each of those.
    flow_control: usize,
    lost: u64,
    /// How many events there were.
    sequence: u64,
    /// The number of the poll of several queues that last took an event.
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

//! Events: what a program learns of operations, of its entries and of its portals.

use crate::{Arrival, Descriptor, Failure, Handle, Left, List, MatchEntry, Memory, Target};

/// Something that happened, named as in Portals 4 (section *Events and event queues*): at the
/// target down to [`Event::Disabled`], the rest at the initiator.
///
/// ```
/// use petasos_portals::Event;
///
/// /// How an event reads in a log.
/// fn describe(event: &Event) -> String {
///     match event {
///         Event::Served(served) => {
///             let (from, len) = (served.arrival.initiator, served.len);
///             format!("{len} bytes of process {from:?} at offset {}", served.offset)
///         }
///         Event::Ack(ack) => match ack.result {
///             Ok(()) => format!("operation {} is done: {} bytes", ack.user_data, ack.len),
///             Err(failure) => format!("operation {} failed: {failure}", ack.user_data),
///         },
///         Event::Disabled { portal } => format!("portal {portal} was disabled"),
///         other => format!("{other:?}"),
///     }
/// }
/// assert_eq!(describe(&Event::Disabled { portal: 4 }), "portal 4 was disabled");
/// ```
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
    /// The address of the first byte of the memory, or [`NOWHERE`].
    pub(crate) start: u64,
}

/// Stands for the address of memory that has none: in several pieces, or of a device.
pub(crate) const NOWHERE: u64 = u64::MAX;

impl Served {
    /// The address in this process at which its data is, if the memory is one piece; for other
    /// languages.
    #[must_use]
    pub fn address(&self) -> Option<u64> {
        (self.start != NOWHERE).then(|| self.start.wrapping_add(self.offset))
    }
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

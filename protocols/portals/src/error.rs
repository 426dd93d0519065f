//! Return codes: which argument was at fault, or what has run out.

use crate::{Limits, matching::EntryError};
use petasos_fabric::ResolveError;

/// Why a call did nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The directory does not know this endpoint's address.
    #[error("the directory does not know {0}, the address of this endpoint")]
    NotInDirectory(String),
    /// A handle that is stale, or of another interface: of what.
    #[error("the handle of {0} is stale, or of another interface")]
    Handle(&'static str),
    /// No such portal: it is not open, or beyond the limit.
    #[error("portal {0} is not open, or beyond the limit")]
    Portal(u16),
    /// A portal that is to be opened, and is open.
    #[error("portal {0} is taken")]
    PortalTaken(u16),
    /// A list has as many entries as it may have: how many.
    #[error("the list has {limit} entries, the most that it may have")]
    ListTooLong {
        /// How many there can be.
        limit: u64,
    },
    /// No portal is free.
    #[error("no portal is free")]
    NoPortal,
    /// No such process, or one that cannot be reached.
    #[error("process {process} of node {node} cannot be named: {why}")]
    Process {
        /// Its node.
        node: u32,
        /// Its number or rank.
        process: u32,
        /// What is wrong.
        why: String,
    },
    /// Something has operations under way, headers, or entries.
    #[error("{0} is in use")]
    InUse(&'static str),
    /// A limit of the interface: which.
    #[error("no room for more {what}: {limit} are the most")]
    NoSpace {
        /// Of what.
        what: &'static str,
        /// How many there can be.
        limit: u64,
    },
    /// A part that is beyond the end of its descriptor's memory.
    #[error("{offset}+{len} is beyond the {bound} bytes of the descriptor")]
    OutOfBounds {
        /// Where it starts.
        offset: u64,
        /// Its length.
        len: u64,
        /// The length of the memory.
        bound: u64,
    },
    /// An argument that makes no sense: which.
    #[error("{0}")]
    Argument(&'static str),
    /// The length of an atomic operation is beyond the limit.
    #[error("an atomic operation of {len} bytes: at most {limit}")]
    AtomicTooLong {
        /// Its length.
        len: u64,
        /// The limit.
        limit: u64,
    },
    /// Memory that is read-only stands where others, or replies, would write.
    #[error("the memory is read-only")]
    ReadOnly,
    /// Nothing came in time.
    #[error("nothing came in time")]
    Timeout,
    /// The queue has no event.
    #[error("the event queue is empty")]
    Empty,
    /// The interface was ended while this waited.
    #[error("the interface has ended")]
    Aborted,
    /// The system refused something.
    #[error("the system said: {0}")]
    System(String),
    /// An update that asked for an empty queue did not find it so (Portals 3).
    #[error("the event queue is not empty: nothing was updated")]
    NoUpdate,
}

impl Error {
    pub(crate) fn of_entry(error: EntryError, portal: u16, limits: &Limits) -> Error {
        match error {
            EntryError::Stale => Error::Handle("an entry"),
            EntryError::NoPortal => Error::Portal(portal),
            EntryError::InUse => Error::InUse("the entry"),
            EntryError::Full => Error::NoSpace { what: "entries", limit: limits.entries as u64 },
            EntryError::ListFull => Error::ListTooLong { limit: limits.list as u64 },
        }
    }

    pub(crate) fn process(process: crate::ProcessId, why: impl ToString) -> Error {
        let (node, process) = (process.node, process.process);
        Error::Process { node, process, why: why.to_string() }
    }
}

impl From<(crate::ProcessId, ResolveError)> for Error {
    fn from((process, error): (crate::ProcessId, ResolveError)) -> Error {
        Error::process(process, error)
    }
}

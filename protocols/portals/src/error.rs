//! Why a call did nothing, and why an operation failed.

use petasos_fabric::ResolveError;

/// Why a call did nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The directory does not know this endpoint's address.
    #[error("the directory does not know {0}, the address of this endpoint")]
    NotInDirectory(String),
    /// A handle is stale, or of another interface: a handle of what.
    #[error("the handle of {0} is stale, or of another interface")]
    Handle(&'static str),
    /// No such portal: it is not open, or beyond the limit.
    #[error("portal {0} is not open, or beyond the limit")]
    Portal(u16),
    /// The portal is open already.
    #[error("portal {0} is taken")]
    PortalTaken(u16),
    /// A list has as many entries as it may have ([`Limits::list`](crate::Limits)).
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
    /// A limit of the interface is reached ([`Limits`](crate::Limits)).
    #[error("no room for more {what}: {limit} are the most")]
    NoSpace {
        /// Of what.
        what: &'static str,
        /// How many there can be.
        limit: u64,
    },
    /// A part reaches beyond the end of its descriptor's memory.
    #[error("{offset}+{len} is beyond the {bound} bytes of the descriptor")]
    OutOfBounds {
        /// Where it starts.
        offset: u64,
        /// Its length.
        len: u64,
        /// The length of the memory.
        bound: u64,
    },
    /// An argument that makes no sense, and why.
    #[error("{0}")]
    Argument(&'static str),
    /// The length of an atomic operation is beyond [`Limits::atomic`](crate::Limits).
    #[error("an atomic operation of {len} bytes: at most {limit}")]
    AtomicTooLong {
        /// Its length.
        len: u64,
        /// The limit.
        limit: u64,
    },
    /// Memory that other processes, or replies, would write is read-only.
    #[error("the memory is read-only")]
    ReadOnly,
    /// What was waited for did not come in time.
    #[error("nothing came in time")]
    Timeout,
    /// The queue has no event.
    #[error("the event queue is empty")]
    Empty,
    /// The interface was ended while this waited.
    #[error("the interface has ended")]
    Aborted,
    /// A call of the operating system failed.
    #[error("the system said: {0}")]
    System(String),
    /// Nothing was updated, as the queue has events, or an operation is under way (Portals 3).
    #[error("the event queue is not empty: nothing was updated")]
    NoUpdate,
}

impl Error {
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
    /// There is no memory at that address, or none for it
    /// ([`AddressSpace`](petasos_fabric::memory::AddressSpace)).
    #[error("there is no such memory at the target")]
    Fault,
    /// The data could not be moved to the memory.
    #[error("the data did not arrive whole")]
    Undelivered,
}

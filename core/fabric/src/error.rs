//! Errors: one enum per kind of operation, with what a person needs to act.

use crate::{Access, Address, AddressError};
use std::{
    fmt,
    ops::{Deref, DerefMut},
    time::Duration,
};

/// Why a peer is lost.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LostReason {
    /// It ended, or closed the connection.
    #[error("it ended or closed the connection")]
    Closed,
    /// Nothing was heard of it for so long.
    #[error("nothing was heard of it for {0:?}")]
    Silent(Duration),
    /// It was never reached within the patience given to `resolve`; zero if it was not waited for.
    #[error("it could not be reached{within}: {1}", within = Within(*.0))]
    Unreachable(Duration, String),
    /// It, or we, failed to show the credentials.
    #[error("credentials refused: {0}")]
    Refused(String),
    /// It broke the protocol, and was cut off.
    #[error("it broke the protocol: {0}")]
    Protocol(String),
    /// The address is now another incarnation's.
    #[error("another process has taken its address")]
    Restarted,
    /// This endpoint let it go.
    #[error("this side let it go")]
    Forgotten,
    /// The system refused something.
    #[error("the system said: {0}")]
    System(String),
}

/// How long a peer was waited for, if it was.
struct Within(Duration);

impl fmt::Display for Within {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Duration::ZERO => Ok(()),
            patience => write!(f, " within {patience:?}"),
        }
    }
}

impl LostReason {
    /// What became of the peer, in words: that it is lost, and why. Of one that never was there,
    /// only why.
    #[must_use]
    pub fn of_peer(&self) -> String {
        match self {
            LostReason::Unreachable(..) | LostReason::Refused(_) => self.to_string(),
            _ => format!("the peer is lost: {self}"),
        }
    }
}

/// An operation that failed: why, and with which peer.
///
/// ```
/// use petasos_fabric::{Address, LostReason, OpError, OpErrorKind};
///
/// let address: Address = "shm://worker-3".parse()?;
/// let error = OpError::with_peer(OpErrorKind::PeerLost(LostReason::Closed), &address);
/// assert!(error.to_string().starts_with("shm://worker-3: the peer is lost"));
/// assert!(matches!(error.kind, OpErrorKind::PeerLost(LostReason::Closed)));
/// assert_eq!(error.peer, Some(address));
/// # Ok::<(), petasos_fabric::AddressError>(())
/// ```
///
/// A word: what it says lies apart, so that completions stay small, as most of them went well. Its
/// fields are those of [`OpFailure`]. Its text is made when it is displayed.
#[derive(Clone, thiserror::Error)]
#[error("{}: {}", .0.peer.as_ref().map_or("this endpoint", |a| a.as_str()), .0.kind)]
pub struct OpError(Box<OpFailure>);

/// What an [`OpError`] says.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpFailure {
    /// Why.
    pub kind: OpErrorKind,
    /// The peer's address, where a peer was involved.
    pub peer: Option<Address>,
}

impl OpError {
    /// A failure, with the address of the peer where one was involved.
    #[must_use]
    #[cold]
    pub fn new(kind: OpErrorKind, peer: Option<Address>) -> OpError {
        OpError(Box::new(OpFailure { kind, peer }))
    }

    /// A failure with the peer at `address`.
    #[must_use]
    pub fn with_peer(kind: OpErrorKind, address: &Address) -> OpError {
        OpError::new(kind, Some(address.clone()))
    }

    /// A failure in which no peer had a part.
    #[must_use]
    pub fn local(kind: OpErrorKind) -> OpError {
        OpError::new(kind, None)
    }

    /// Why.
    #[must_use]
    pub fn into_kind(self) -> OpErrorKind {
        self.0.kind
    }
}

impl Deref for OpError {
    type Target = OpFailure;
    fn deref(&self) -> &OpFailure {
        &self.0
    }
}

impl DerefMut for OpError {
    fn deref_mut(&mut self) -> &mut OpFailure {
        &mut self.0
    }
}

impl fmt::Debug for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OpFailure { kind, peer } = &*self.0;
        f.debug_struct("OpError").field("kind", kind).field("peer", peer).finish()
    }
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpErrorKind {
    /// The peer is gone. Final: nothing is retried.
    #[error("{}", .0.of_peer())]
    PeerLost(LostReason),
    /// It was cancelled before it took effect, or with an effect that cannot be known.
    #[error("cancelled")]
    Cancelled,
    /// The peer handle is stale or of another endpoint.
    #[error("the peer handle is stale")]
    UnknownPeer,
    /// The region is not registered here any more, the key that was to be revoked is none, or the
    /// remote handle was released.
    #[error("the memory handle is stale")]
    UnknownRegion,
    /// The key was revoked, its region was deregistered, or it belongs to an earlier incarnation.
    #[error("the remote memory is not registered any more")]
    StaleKey,
    /// The key does not give this right.
    #[error("the key allows {allowed:?}, the operation needs {needed:?}")]
    Denied {
        /// What the key allows, as far as is known here: of memory that was imported by its number,
        /// everything but what the owner refused.
        allowed: Access,
        /// What the operation needs.
        needed: Access,
    },
    /// Beyond the end of local or remote memory.
    #[error("{offset}+{len} is beyond the {bound} bytes of the memory")]
    OutOfBounds {
        /// Where the access starts.
        offset: u64,
        /// How long it is.
        len: u64,
        /// The length of the memory.
        bound: u64,
    },
    /// Local and remote pieces add up to different lengths.
    #[error("local pieces hold {local} bytes, remote pieces {remote}")]
    LengthMismatch {
        /// Local bytes.
        local: u64,
        /// Remote bytes.
        remote: u64,
    },
    /// A limit of this endpoint is exceeded.
    #[error("{what} is {value}, at most {limit} are allowed")]
    TooLarge {
        /// Which limit.
        what: &'static str,
        /// What was asked for.
        value: u64,
        /// The limit.
        limit: u64,
    },
    /// The message was longer than the posted receive; the first bytes are there.
    #[error("a message of {sent} bytes came for a receive of {posted}")]
    Truncated {
        /// Length of the message.
        sent: u64,
        /// Length of the receive.
        posted: u64,
    },
    /// Not aligned to its type.
    #[error("an atomic at offset {offset} is not aligned to {align}")]
    Misaligned {
        /// The offset.
        offset: u64,
        /// The alignment it needs.
        align: usize,
    },
    /// The transport does not do this: see its capabilities.
    #[error("this transport does not support {0}")]
    Unsupported(&'static str),
    /// The body of a long message was received or discarded before, or there never was one.
    #[error("the body handle is stale")]
    UnknownBody,
    /// The claimed message was received or discarded before, or there never was one.
    #[error("the handle of the claimed message is stale")]
    UnknownMessage,
    /// The sender of a message cancelled it before its body was fetched.
    #[error("the sender withdrew the message")]
    Withdrawn,
    /// A peer may still reach the memory of a region that is being closed, or of a key that is
    /// being revoked: it is stopped, or in the middle of a copy. The endpoint keeps the memory, no
    /// access to it begins any more, and the region may be deregistered, or the key revoked, again.
    #[error(
        "it may still be reaching into the memory that is being closed, which is kept for it: \
         close it again later"
    )]
    StillReached,
    /// The peer has no room for more of our requests. Try later.
    #[error("the peer is busy")]
    Busy,
    /// The system refused something.
    #[error("the system said: {0}")]
    System(String),
}

/// Why a message was not injected. Nothing of it was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InjectError {
    /// No room now. `Event::Writable` tells when to try again.
    #[error("the queue to the peer is full")]
    Full,
    /// The peer is gone.
    #[error("the peer is lost")]
    PeerLost,
    /// The handle is stale or of another endpoint.
    #[error("the peer handle is stale")]
    UnknownPeer,
    /// Longer than the limit.
    #[error("a message of {len} bytes is too long to inject: at most {max}")]
    TooLong {
        /// Its length.
        len: usize,
        /// The limit.
        max: usize,
    },
}

/// Why an address could not be resolved.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// Not an address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Of another transport.
    #[error("{address} is not for this transport, whose addresses begin with {scheme}://")]
    WrongScheme {
        /// What was to be resolved.
        address: Address,
        /// What would have been right.
        scheme: &'static str,
    },
    /// The part after the scheme makes no sense to the transport.
    #[error("{address}: {reason}")]
    Malformed {
        /// What was to be resolved.
        address: Address,
        /// What is wrong.
        reason: String,
    },
    /// Too many peers.
    #[error("{limit} peers are the most for this endpoint")]
    TooManyPeers {
        /// The limit.
        limit: usize,
    },
}

/// Why memory was not registered.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// Too many regions.
    #[error("{limit} regions are registered, which is the most for this endpoint")]
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// Remote writing was asked for on memory that may only be read.
    #[error("the memory is read-only")]
    ReadOnly,
    /// Atomics were asked for on memory of a device.
    #[error("no atomics are done on memory of a device: register it for reading and writing")]
    DeviceAtomics,
    /// The system refused.
    #[error("the system said: {0}")]
    System(String),
}

/// Why no key was made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// Not registered here, or not any more.
    #[error("the memory handle is stale")]
    UnknownRegion,
    /// More rights than the region has.
    #[error("the region is registered for {allowed:?}, the key was to allow {wanted:?}")]
    Denied {
        /// What the region was registered for.
        allowed: Access,
        /// What the key was to allow.
        wanted: Access,
    },
    /// The part begins after its end, or ends beyond the region.
    #[error("bytes {start} to {end} are no part of a region of {bound} bytes")]
    OutOfBounds {
        /// Where the part was to begin.
        start: u64,
        /// Where it was to end.
        end: u64,
        /// The length of the region.
        bound: u64,
    },
    /// Other memory is open under this number, or it is still being closed.
    #[error("other memory is open under the number {number:#x}")]
    Taken {
        /// The number.
        number: u64,
    },
    /// Too many keys to parts of regions.
    #[error(
        "there are {limit} keys to parts of regions, the most for this endpoint: revoke some first"
    )]
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// The owner's address and the routes do not fit in a key: see
    /// [`Key::compose`](crate::Key::compose).
    #[error("a key of {len} bytes with {routes} routes is longer than a key can be")]
    TooLong {
        /// How many bytes it would have.
        len: usize,
        /// How many routes.
        routes: usize,
    },
    /// The transport does not do this: see its capabilities.
    #[error("this transport does not support {0}")]
    Unsupported(&'static str),
    /// The system refused.
    #[error("the system said: {0}")]
    System(String),
}

/// Why a key was not imported.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// Not a key, or one cut short or damaged.
    #[error("not a key: {0}")]
    Malformed(&'static str),
    /// Of a format that this version does not know.
    #[error("the key has format {0}, this version knows 1")]
    Version(u8),
    /// No route in it that this endpoint could take.
    #[error("the key of {owner} has no route for {scheme}")]
    NoRoute {
        /// The owner of the memory.
        owner: Address,
        /// This endpoint's scheme.
        scheme: &'static str,
    },
    /// The peer handle is stale or of another endpoint.
    #[error("the peer handle is stale")]
    UnknownPeer,
    /// The transport does not do this: see its capabilities.
    #[error("this transport does not support {0}")]
    Unsupported(&'static str),
    /// The owner's address could not be resolved.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The owner is known, as another incarnation. Either the key is of an earlier one, or the owner
    /// has started again and its loss is still to be reported: then the key can be imported after
    /// [`Event::PeerLost`](crate::Event::PeerLost).
    #[error("the key is of another life of {0} than the one that is connected")]
    Stale(Address),
    /// Too many imported keys.
    #[error("{limit} imported keys are the most for this endpoint")]
    TooMany {
        /// The limit.
        limit: usize,
    },
}

/// Why the transport gave no memory.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AllocError {
    /// Zero, or more than an address space holds.
    #[error("{0} bytes cannot be allocated")]
    BadLength(usize),
    /// The system refused.
    #[error("no memory of {len} bytes: {reason}")]
    System {
        /// What was asked for.
        len: usize,
        /// What the system said.
        reason: String,
    },
}

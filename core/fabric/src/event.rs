//! What an endpoint reports.

use crate::{
    Body, Claimed, Incarnation, Lease, LostReason, OpError, Peer, Region, RegionId, Token,
};
use smallvec::SmallVec;

/// Something that happened, in the order in which it did.
///
/// ```
/// use petasos_fabric::Event;
///
/// fn handle(event: Event) {
///     match event {
///         // The lease goes back to the endpoint's pool at the end of this arm.
///         Event::Message { peer, message } => println!("{peer:?}: {} bytes", message.len()),
///         Event::Done { token, result: Ok(done) } => println!("{token:?}: {done:?}"),
///         Event::Done { token, result: Err(error) } => println!("{token:?}: {error}"),
///         Event::PeerLost { peer, reason } => println!("{peer:?}: {reason}"),
///         // More may come with later versions.
///         _ => {}
///     }
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// An unexpected message came.
    Message {
        /// The sender.
        peer: Peer,
        /// Its bytes. Leases are bounded: use it, drop it, or copy it.
        message: Lease,
    },
    /// The header of a long message came; its body waits at the sender until it is received or
    /// discarded.
    LongMessage {
        /// The sender.
        peer: Peer,
        /// The header, apart, so that other events stay small.
        header: Box<Lease>,
        /// Names the body.
        body: Body,
        /// Length of the body in bytes.
        len: u64,
    },
    /// A put with event is visible in a region of this endpoint. One by a key to a part of the
    /// region is reported in terms of the region, too.
    PutArrived {
        /// The sender.
        peer: Peer,
        /// Where.
        region: RegionId,
        /// Where in the region it began, in bytes.
        offset: u64,
        /// How long it was, in bytes.
        len: u64,
        /// What the initiator sent along.
        data: u64,
    },
    /// The one completion of an operation.
    Done {
        /// Which.
        token: Token,
        /// How it went.
        result: Result<Done, OpError>,
    },
    /// A peer is connected; also for peers that connected to this endpoint. Comes before any other
    /// event of it.
    PeerUp {
        /// The peer.
        peer: Peer,
        /// Which life of it.
        incarnation: Incarnation,
    },
    /// A peer is lost. Everything that was under way with it completes, before or after this; but
    /// no message, put or `Writable` of it follows, and what had been delivered to this endpoint
    /// before the peer ended came earlier. Its handle stays readable until it is forgotten or, for
    /// peers that connected to this endpoint, reused.
    PeerLost {
        /// The peer.
        peer: Peer,
        /// Why.
        reason: LostReason,
    },
    /// Puts to a peer were refused there that had completed before, at `Level::Reusable`: nothing
    /// of the refused parts was written. One event may stand for many puts. The next
    /// [`Operation::Flush`](crate::Operation::Flush) to the peer tells of it, too.
    PutRefused {
        /// The peer.
        peer: Peer,
        /// Why the first of them was.
        why: Refusal,
    },
    /// After `InjectError::Full`, or after operations to this peer were refused or left in the queue
    /// ([`Full::Peer`](crate::Full)): there is room again.
    Writable {
        /// The peer.
        peer: Peer,
    },
}

impl Event {
    /// The peer that it is about; `None` for a completion, which is about an operation.
    #[must_use]
    pub fn peer(&self) -> Option<Peer> {
        match self {
            Event::Message { peer, .. }
            | Event::LongMessage { peer, .. }
            | Event::PutArrived { peer, .. }
            | Event::PeerUp { peer, .. }
            | Event::PeerLost { peer, .. }
            | Event::PutRefused { peer, .. }
            | Event::Writable { peer } => Some(*peer),
            Event::Done { .. } => None,
        }
    }
}

/// Why the owner of memory refused access to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The region is closed, or was never open, or the key was revoked.
    StaleKey,
    /// Without the right.
    Denied,
    /// Beyond the region's end.
    OutOfBounds,
}

/// The result of an operation that went well.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Done {
    /// A message reached the wanted level.
    Sent,
    /// The body of a long message is in place: so many bytes of it.
    Received {
        /// Bytes moved.
        len: u64,
    },
    /// The body was discarded.
    Discarded,
    /// A posted receive was filled.
    Tagged {
        /// The peer.
        peer: Peer,
        /// With which tag.
        tag: u64,
        /// Bytes that arrived.
        len: u64,
    },
    /// What a peek found: the oldest message that waits for such a receive, if there is one.
    Peeked(Option<Box<Peeked>>),
    /// A put reached the wanted level.
    Put,
    /// A get's data is in place.
    Got,
    /// An atomic took effect.
    Atomic,
    /// An atomic took effect; the old values, little-endian.
    Fetched(SmallVec<[u8; 16]>),
    /// A peer's memory can be read here.
    Mapped(Region),
    /// All accesses to the peer that were accepted before are visible there.
    Flushed,
    /// No remote access can land any more.
    Deregistered,
    /// No remote access by this key can land any more.
    Revoked,
}

/// An expected message that waits for its receive ([`Operation::Peek`](crate::Operation::Peek)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peeked {
    /// The sender.
    pub peer: Peer,
    /// With which tag.
    pub tag: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Its handle, if it was claimed.
    pub claimed: Option<Claimed>,
}

impl Peeked {
    /// A message that is not claimed.
    #[must_use]
    pub fn new(peer: Peer, tag: u64, len: u64) -> Peeked {
        Peeked { peer, tag, len, claimed: None }
    }
}

// Each completion is moved a few times on its way.
const _: () = assert!(size_of::<Result<Done, OpError>>() == 32);
const _: () = assert!(size_of::<Event>() <= size_of::<Lease>() + size_of::<Peer>());

//! What can be submitted to an endpoint.

use crate::{AtomicOp, AtomicType, Fenced, KeyId, Offered, Peer, RegionId, Slice};
use bytes::Bytes;
use smallvec::SmallVec;
use std::time::Duration;

/// The submitter's name for an operation, which comes back in its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u64);

/// Local pieces of memory, as one.
pub type Slices = SmallVec<[Slice; 1]>;
/// Remote pieces of memory, as one.
pub type Spans = SmallVec<[RemoteSpan; 1]>;

/// An operation. It owns its memory until it completes; memory that only its program keeps
/// ([`Slice::raw`]) has to stay until then, and is free from the completion on, whatever its
/// result.
///
/// ```
/// use petasos_fabric::{
///     Access, Clock, Done, Endpoint, Event, Level, Operation, Region, RemoteSpan, Token,
/// };
/// use std::collections::VecDeque;
///
/// // Owner and initiator are one process here, and one endpoint.
/// let mut endpoint = petasos_self::Local::open(&"self://*".parse()?)?;
/// let (source, target) = (Region::from_vec(vec![7; 16]), Region::zeroed(100));
/// let region = endpoint.register(&target.whole(), Access::WRITE)?;
/// let key = endpoint.export(region)?;
///
/// let put = Operation::Put {
///     token: Token(1),
///     remote: endpoint.import(&key)?,
///     local: [source.whole()].into(),
///     spans: [RemoteSpan { offset: 10, len: 16 }].into(),
///     level: Level::Visible,
///     event: None,
/// };
/// endpoint.submit(&mut VecDeque::from([put]));
/// let (clock, mut events) = (Clock::start(), Vec::new());
/// while !events.iter().any(|event| matches!(event, Event::Done { token: Token(1), .. })) {
///     endpoint.progress(clock.now(), 64, &mut events);
/// }
/// assert!(matches!(events.pop(), Some(Event::Done { result: Ok(Done::Put), .. })));
/// assert_eq!(target.slice(10, 16).unwrap().to_vec(), [7; 16]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Operation {
    /// An unexpected message of at most `limits.max_message` bytes: `Event::Message` there.
    Send {
        /// Its name.
        token: Token,
        /// The target.
        peer: Peer,
        /// What.
        payload: Payload,
        /// When it counts as complete.
        level: Level,
    },
    /// An unexpected message of any length. The target sees the header first
    /// (`Event::LongMessage`), and chooses where the body goes with `Receive`, or discards it.
    /// Completes when the target is done with the body.
    SendLong {
        /// Its name.
        token: Token,
        /// The target.
        peer: Peer,
        /// At most `limits.max_header` bytes.
        header: Bytes,
        /// Stays in place until the target fetched it.
        body: Slice,
    },
    /// Fetches the body of a long message into local memory, the first `into.len()` bytes of it.
    /// `Done::Received` tells how many were moved. A receive that fails or is cancelled discards
    /// the body, and completes its sender's operation, as `Discard` does; one whose sender has
    /// cancelled fails with [`OpErrorKind::Withdrawn`](crate::OpErrorKind::Withdrawn).
    Receive {
        /// Its name.
        token: Token,
        /// Which body. Each is received or discarded once.
        body: Body,
        /// Where to.
        into: Slice,
    },
    /// Discards the body of a long message; completes its sender's operation. `Done::Discarded`.
    Discard {
        /// Its name.
        token: Token,
        /// Which body.
        body: Body,
    },
    /// An expected message of any length: goes to the receive that the target posted for its tag.
    /// Until there is one it waits, here or there, without holding up messages of other kinds.
    SendTagged {
        /// Its name.
        token: Token,
        /// The target.
        peer: Peer,
        /// Matched against the posted receives.
        tag: u64,
        /// What.
        payload: Payload,
        /// When it counts as complete.
        level: Level,
    },
    /// Posts memory for an expected message. Receives match in the order of posting, messages of
    /// one sender in the order of sending. Completes with `Done::Tagged`.
    PostReceive {
        /// Its name.
        token: Token,
        /// The source; `None` takes any.
        source: Option<Peer>,
        /// The wanted tag.
        tag: u64,
        /// Bits of the tag that do not count.
        ignore: u64,
        /// Where to.
        into: Slice,
    },
    /// Posts memory that other endpoints are offered, too, for an expected message from any source:
    /// the first of them that has a message takes it. In the order of posting it is a receive as
    /// any other. Completes with `Done::Tagged` where it was taken, and with `Cancelled` elsewhere:
    /// when a message would match it, or at the latest when it is cancelled. For endpoints that are
    /// made of others; [`Capabilities::offers`](crate::Capabilities::offers) tells which processes
    /// take it.
    PostOffered {
        /// Its name.
        token: Token,
        /// The wanted tag.
        tag: u64,
        /// Bits of the tag that do not count.
        ignore: u64,
        /// Where to.
        into: Offered,
    },
    /// Asks which message a receive with this source, tag and mask would take now: the oldest of
    /// those that have come and found no receive. `Done::Peeked` names it and its length, or says
    /// that there is none, at once. Nothing is moved, and the message stays where it is.
    ///
    /// With `claim` the message is set aside: no other receive takes it, and later messages of its
    /// sender may be received before it. It keeps the room that it has, and its sender's operation
    /// waits as before, until `ReceiveClaimed` or `DiscardClaimed`.
    ///
    /// A message has come when `progress` has taken it in. Its sender may still withdraw it. From
    /// any source, an endpoint that is made of others finds the oldest message of one of them.
    Peek {
        /// Its name.
        token: Token,
        /// The source; `None` takes any.
        source: Option<Peer>,
        /// The wanted tag.
        tag: u64,
        /// Bits of the tag that do not count.
        ignore: u64,
        /// Whether the message is set aside.
        claim: bool,
    },
    /// Receives a claimed message, as a posted receive does. Completes with `Done::Tagged`.
    ReceiveClaimed {
        /// Its name.
        token: Token,
        /// Which message. Each is received or discarded once.
        message: Claimed,
        /// Where to.
        into: Slice,
    },
    /// Discards a claimed message; completes its sender's operation. `Done::Discarded`.
    DiscardClaimed {
        /// Its name.
        token: Token,
        /// Which message.
        message: Claimed,
    },
    /// Writes local pieces to remote pieces of one region. Pieces, and the whole, may be empty;
    /// bounds are checked all the same.
    Put {
        /// Its name.
        token: Token,
        /// The region, from `import`.
        remote: Remote,
        /// From where; in all as long as `spans`.
        local: Slices,
        /// Where to.
        spans: Spans,
        /// When it counts as complete.
        level: Level,
        /// Carried to the target's `Event::PutArrived`, which promises that this put is visible.
        event: Option<u64>,
    },
    /// Reads remote pieces of one region into local pieces. Complete when the data is there.
    ///
    /// With an error it may end before a library below has released the local memory, as when its
    /// peer was stopped and is lost: then the memory is held, and may be written, for as long as
    /// [`Region::into_exclusive`](crate::Region::into_exclusive) says that others hold it. Not so
    /// [raw](Slice::raw) slices, which such a library is not given.
    Get {
        /// Its name.
        token: Token,
        /// The region, from `import`.
        remote: Remote,
        /// Where to; in all as long as `spans`.
        local: Slices,
        /// From where.
        spans: Spans,
    },
    /// Changes remote memory atomically, element by element.
    Atomic {
        /// Its name.
        token: Token,
        /// The region, from `import`.
        remote: Remote,
        /// Where, in bytes; aligned to the type.
        offset: u64,
        /// What to do.
        op: AtomicOp,
        /// Of which type the elements are.
        kind: AtomicType,
        /// One little-endian element or more, at most `limits.max_atomic` bytes.
        operand: SmallVec<[u8; 16]>,
        /// For `AtomicOp::CompareSwap`: as many elements, to compare with.
        compare: SmallVec<[u8; 16]>,
        /// Whether the old value is wanted (`Done::Fetched`).
        fetch: bool,
    },
    /// Maps a peer's region, where it lies in memory of the transport, to read it in place:
    /// `Done::Mapped`. The owner may change it at any time. It stays readable, and holds what it
    /// maps, for as long as the region is held here, also when the owner closes it or ends.
    Map {
        /// Its name.
        token: Token,
        /// The region, from `import`.
        remote: Remote,
    },
    /// Tells when remote access to a peer is over: `Done::Flushed` says that all puts, gets and
    /// atomics to this peer that this endpoint accepted before it have been carried out, and are
    /// visible at the target, whatever their level. Until then a put at `Level::Reusable` that has
    /// completed may still be under way. The completions of these accesses come before its own.
    ///
    /// It fails if one of these accesses did and no flush before told of it: with the error of the
    /// first that became known, those included whose own completion had it, or for which
    /// [`Event::PutRefused`](crate::Event::PutRefused) was raised. Where the target alone knows of
    /// a refusal the numbers in the error are zero. A cancelled access counts as carried out. So
    /// each failure is told by one flush, and the next one begins anew; what a flush that was
    /// cancelled did not tell, the next one does. If the peer is lost it fails with `PeerLost`.
    ///
    /// It waits for these accesses and nothing else: not for messages, and not for other peers.
    /// Accesses that are accepted later do not wait for it. See
    /// [`Capabilities::flush`](crate::Capabilities::flush).
    Flush {
        /// Its name.
        token: Token,
        /// The target.
        peer: Peer,
    },
    /// Closes a region, and with it all keys to it and to its parts. `Done::Deregistered` says that
    /// no remote access to it can land any more, and none reads it: its memory is this program's
    /// alone. From the call on, no new access begins.
    ///
    /// A peer that is stopped, or in the middle of a copy, may hold that up. After `patience` it
    /// ends with [`OpErrorKind::StillReached`](crate::OpErrorKind::StillReached), which names such
    /// a peer where the transport knows which one it is: the region stays closed to new access, the
    /// endpoint keeps its memory, and the same region may be deregistered again, as often as
    /// wanted, until that succeeds. While one is under way, another one for the same region fails
    /// with `UnknownRegion`.
    Deregister {
        /// Its name.
        token: Token,
        /// The region.
        region: RegionId,
        /// How long to wait for peers, from the next `progress` on, whose time it is measured by.
        patience: Duration,
    },
    /// Revokes one key, of [`Endpoint::export_part`](crate::Endpoint::export_part), with the
    /// promise that `Deregister` gives for the region: from the call on no access by this key
    /// begins, and `Done::Revoked` says that none by it can land or reads any more. Other keys to
    /// the region, and what is under way by them, are not touched.
    ///
    /// After `patience` it ends with [`OpErrorKind::StillReached`](crate::OpErrorKind): the key
    /// allows nothing any more, and may be revoked again until that succeeds. It fails with
    /// `UnknownRegion` if there is no such key: it was revoked, or its region was deregistered,
    /// or that is under way.
    Revoke {
        /// Its name.
        token: Token,
        /// The key.
        key: KeyId,
        /// As for `Deregister`.
        patience: Duration,
    },
    /// An operation to a peer that begins there when all those before it are over:
    /// [`Operation::fenced`] makes it. See [`Fenced`].
    Fenced(Fenced),
}

impl Operation {
    /// A patience for [`Operation::Deregister`] and [`Operation::Revoke`] that suits most programs:
    /// a peer that is alive leaves a region within milliseconds.
    pub const PATIENCE: Duration = Duration::from_secs(5);

    /// The submitter's name for it.
    #[must_use]
    pub fn token(&self) -> Token {
        match *self {
            Operation::Send { token, .. }
            | Operation::SendLong { token, .. }
            | Operation::Receive { token, .. }
            | Operation::Discard { token, .. }
            | Operation::SendTagged { token, .. }
            | Operation::PostReceive { token, .. }
            | Operation::PostOffered { token, .. }
            | Operation::Peek { token, .. }
            | Operation::ReceiveClaimed { token, .. }
            | Operation::DiscardClaimed { token, .. }
            | Operation::Put { token, .. }
            | Operation::Get { token, .. }
            | Operation::Atomic { token, .. }
            | Operation::Map { token, .. }
            | Operation::Flush { token, .. }
            | Operation::Deregister { token, .. }
            | Operation::Revoke { token, .. } => token,
            Operation::Fenced(ref fenced) => fenced.token(),
        }
    }

    /// The peer that it is sent to, and whose share of the endpoint's room it takes. `None` for
    /// what is done here, and for what ends an operation of a peer (to receive a body, say): such
    /// operations are never refused for the sake of a peer.
    #[must_use]
    pub fn target(&self) -> Option<Peer> {
        match self.plain() {
            Operation::Send { peer, .. }
            | Operation::SendLong { peer, .. }
            | Operation::SendTagged { peer, .. }
            | Operation::Flush { peer, .. } => Some(*peer),
            plain => plain.remote().map(|remote| remote.peer),
        }
    }

    /// The remote region that it accesses.
    #[must_use]
    pub fn remote(&self) -> Option<Remote> {
        match self.plain() {
            Operation::Put { remote, .. }
            | Operation::Get { remote, .. }
            | Operation::Atomic { remote, .. }
            | Operation::Map { remote, .. } => Some(*remote),
            _ => None,
        }
    }

    /// Whether it reads or writes this memory.
    #[must_use]
    pub fn uses(&self, memory: &Slice) -> bool {
        let any = |pieces: &Slices| pieces.iter().any(|piece| piece.overlaps(memory));
        match self.plain() {
            Operation::Send { payload, .. } | Operation::SendTagged { payload, .. } => {
                payload.overlaps(memory)
            }
            Operation::SendLong { body: slice, .. }
            | Operation::Receive { into: slice, .. }
            | Operation::PostReceive { into: slice, .. }
            | Operation::ReceiveClaimed { into: slice, .. } => slice.overlaps(memory),
            Operation::PostOffered { into, .. } => into.overlaps(memory),
            Operation::Put { local, .. } | Operation::Get { local, .. } => any(local),
            _ => false,
        }
    }

    /// Whether it is put, get or atomic: what a flush waits for.
    pub(crate) fn is_access(&self) -> bool {
        matches!(
            self.plain(),
            Operation::Put { .. } | Operation::Get { .. } | Operation::Atomic { .. }
        )
    }
}

/// Data of a message: bytes, or memory of a region.
///
/// ```
/// use petasos_fabric::{Level, Operation, Payload, Peer, Region, Token};
///
/// /// Sends a part of a region without a copy; complete when the target has it.
/// fn send(peer: Peer, region: &Region) -> Option<Operation> {
///     let payload = Payload::Memory(region.slice(100, 50)?);
///     assert_eq!(payload.len(), 50);
///     Some(Operation::Send { token: Token(7), peer, payload, level: Level::Delivered })
/// }
/// ```
#[derive(Clone, Debug)]
pub enum Payload {
    /// Bytes in reference-counted memory.
    Bytes(Bytes),
    /// A piece of a region. It is read when it is sent, so do not change it before completion.
    Memory(Slice),
}

impl Payload {
    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Payload::Bytes(bytes) => bytes.len(),
            Payload::Memory(slice) => slice.len(),
        }
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The body of a long message: a handle, good for one `Receive` or `Discard`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Body {
    /// The sender.
    pub peer: Peer,
    /// Its name among the sender's bodies.
    pub id: u64,
}

/// An expected message that was claimed ([`Operation::Peek`]): a handle, good for one
/// `ReceiveClaimed` or `DiscardClaimed`.
///
/// Of a peer that was lost since, a message that came with its data can still be received, until
/// the peer is forgotten; one whose data was still with the peer cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Claimed {
    /// The sender.
    pub peer: Peer,
    /// Its name among the claimed messages of the endpoint.
    pub id: u64,
}

/// When an operation counts as complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The source memory may be used again. Nothing is said of the other side: a message or a put
    /// may still be lost with the peer. A put that the target refuses later, when its completion is
    /// out, is told by [`Event::PutRefused`](crate::Event::PutRefused); a program that must know of
    /// each put asks for another level, one that must know of all of them, for a flush
    /// ([`Operation::Flush`]).
    Reusable,
    /// It has arrived at the other side's endpoint.
    Delivered,
    /// The target's program, when told, would see it in its memory.
    Visible,
}

/// A region of another endpoint's, prepared by [`Endpoint::import`](crate::Endpoint::import). A
/// handle: valid at the endpoint that gave it, until released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remote {
    /// Slot in the endpoint's table.
    pub index: u32,
    /// How often that slot was used before.
    pub generation: u32,
    /// The owner.
    pub peer: Peer,
    /// Length of the region in bytes.
    pub len: u64,
}

/// A piece of a remote region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSpan {
    /// From the start of the region, in bytes.
    pub offset: u64,
    /// In bytes.
    pub len: u64,
}

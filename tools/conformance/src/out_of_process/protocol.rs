//! The protocol between the two sides: the calls of an endpoint, as values that are encoded.

use petasos_macros::Wire;
use std::time::Duration;

/// A peer, or a region: index and generation.
pub(super) type Handle = (u32, u32);

/// A handle of imported memory, its owner, and its length.
pub(super) type Import = (Handle, Handle, u64);

/// A part of memory that both sides have.
#[derive(Clone, Copy, Debug, Wire)]
pub(super) struct Part {
    pub(super) memory: u64,
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// Bytes of memory that have changed.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub(super) enum Patch {
    Bytes { offset: u64, bytes: Vec<u8> },
    Fill { offset: u64, len: u64, byte: u8 },
}

/// A request to the other side. Each has an answer of its own type.
#[derive(Debug, Wire)]
pub(super) enum Request {
    /// `Option<String>`: why the transport cannot be tested there.
    Missing,
    /// `String`: a fresh address of that host.
    Fresh,
    /// [`Opened`].
    Open(String),
    /// `Result<Handle, Unresolved>`; whether the peer is to be running already.
    Resolve(String, Duration, bool),
    /// `Option<Known>`.
    Peer(Handle),
    /// `Option<Can>`: what can be done with this peer.
    CapabilitiesOf(Handle),
    /// `Option<bool>`: that no quota was set, and whether the peer is not known. The three numbers
    /// of the quota.
    SetQuota(Handle, [u64; 3]),
    /// `Option<Used>`.
    Usage(Handle),
    /// Nothing.
    Forget(Handle),
    /// `Result<(), Refused>`.
    Inject(Handle, Vec<Vec<u8>>),
    /// `Vec<u64>`: the tokens of those that were not accepted.
    Submit(Vec<Op>),
    /// `Option<bool>`: that it was refused, and whether its peer is full.
    TrySubmit(Op),
    /// Nothing.
    Cancel(u64),
    /// `Option<Holder>`: what there touches memory.
    InUse(Part),
    /// [`Progressed`]. Leases with these numbers are dropped before.
    Progress { budget: u32, released: Vec<u64> },
    /// `Result<(), String>`: memory of the transport's own, under this number.
    Alloc { memory: u64, len: u64 },
    /// `Result<Handle, Unregistered>`, with the rights as they travel.
    Register(Part, u8),
    /// `Option<Vec<u8>>`: the key.
    Export(Handle),
    /// `Result<(Handle, Vec<u8>), Unexported>`: the key to a part of a region, and its number.
    ExportPart(Handle, (u64, u64), u8),
    /// `Result<Handle, Unexported>`: of what is opened under this number.
    ExportNumber(Handle, (u64, u64), u8, u64),
    /// `Result<Import, Unimported>`: of this peer, the number and the length.
    ImportNumber(Handle, u64, u64),
    /// `Result<Import, Unimported>`.
    Import(Vec<u8>),
    /// Nothing.
    Release(Import),
    /// Nothing: memory of this length under this number, of zeroes but for these patches. If it is
    /// raw, the endpoint there has no hold of it; or it is a device's, or of pieces of these
    /// lengths.
    Memory {
        memory: u64,
        len: u64,
        writable: bool,
        raw: bool,
        device: bool,
        pieces: Vec<u64>,
        content: Vec<Patch>,
    },
    /// Nothing: memory was changed here.
    Write(Vec<(u64, Vec<Patch>)>),
    /// `Vec<Seen>`: the changes of memory there. This side has dropped the memory with these
    /// numbers.
    Sync { dropped: Vec<u64> },
}

/// An endpoint that was opened.
#[derive(Debug, Wire)]
pub(super) struct Opened {
    pub(super) address: String,
    pub(super) incarnation: u64,
    pub(super) can: Can,
}

/// Capabilities: enumerations as the number of the variant.
#[derive(Debug, Wire)]
pub(super) struct Can {
    pub(super) scheme: String,
    /// Put and get, atomics, tagged, put with event, flush, map, keys to parts.
    pub(super) support: [u8; 7],
    /// Passive target, third party, ordered access, processor atomics, quotas of peers.
    pub(super) flags: [bool; 6],
    pub(super) enforcement: u8,
    pub(super) credential: u8,
    /// In the order of their declaration.
    pub(super) limits: [u64; 11],
    pub(super) quota: [u64; 3],
}

/// What a peer has of its quota: leases, their bytes, bytes of expected messages; the quota of
/// each; and how often leases and room for expected messages were refused.
pub(super) type Used = ([u64; 3], [u64; 3], [u64; 2]);

/// What touches memory, in words; the operation, and the peer.
pub(super) type Holder = (String, Option<u64>, Option<Handle>);

/// What is known of a peer.
#[derive(Debug, Wire)]
pub(super) struct Known {
    pub(super) address: String,
    pub(super) incarnation: Option<u64>,
    pub(super) state: State,
    pub(super) user: Option<u32>,
}

#[derive(Debug, Wire)]
pub(super) enum State {
    Connecting,
    Up,
    Lost(Lost),
}

#[derive(Debug, Wire)]
pub(super) enum Lost {
    Closed,
    Silent(Duration),
    Unreachable(Duration, String),
    Refused(String),
    Protocol(String),
    Restarted,
    Forgotten,
    System(String),
}

#[derive(Debug, Wire)]
pub(super) enum Unresolved {
    WrongScheme(String),
    TooManyPeers(u64),
    Other(String),
}

#[derive(Debug, Wire)]
pub(super) enum Refused {
    Full,
    PeerLost,
    UnknownPeer,
    TooLong { len: u64, max: u64 },
}

#[derive(Debug, Wire)]
pub(super) enum Unregistered {
    TooMany(u64),
    ReadOnly,
    DeviceAtomics,
    System(String),
}

#[derive(Debug, Wire)]
pub(super) enum Unexported {
    UnknownRegion,
    Denied { allowed: u8, wanted: u8 },
    OutOfBounds { start: u64, end: u64, bound: u64 },
    Taken(u64),
    TooMany(u64),
    TooLong { len: u64, routes: u64 },
    Unsupported(String),
    System(String),
}

#[derive(Debug, Wire)]
pub(super) enum Unimported {
    UnknownPeer,
    Unsupported(String),
    Resolve(Unresolved),
    Stale(String),
    TooMany(u64),
    Other(String),
}

#[derive(Debug, Wire)]
pub(super) enum Load {
    Bytes(Vec<u8>),
    Memory(Part),
}

#[derive(Debug, Wire)]
pub(super) enum Op {
    Send {
        token: u64,
        peer: Handle,
        load: Load,
        level: u8,
    },
    SendLong {
        token: u64,
        peer: Handle,
        header: Vec<u8>,
        body: Part,
    },
    Receive {
        token: u64,
        body: (Handle, u64),
        into: Part,
    },
    Discard {
        token: u64,
        body: (Handle, u64),
    },
    SendTagged {
        token: u64,
        peer: Handle,
        tag: u64,
        load: Load,
        level: u8,
    },
    PostReceive {
        token: u64,
        source: Option<Handle>,
        tag: u64,
        ignore: u64,
        into: Part,
    },
    Peek {
        token: u64,
        source: Option<Handle>,
        tag: u64,
        ignore: u64,
        claim: bool,
    },
    ReceiveClaimed {
        token: u64,
        message: (Handle, u64),
        into: Part,
    },
    DiscardClaimed {
        token: u64,
        message: (Handle, u64),
    },
    Put {
        token: u64,
        remote: Import,
        local: Vec<Part>,
        spans: Vec<(u64, u64)>,
        level: u8,
        event: Option<u64>,
    },
    Get {
        token: u64,
        remote: Import,
        local: Vec<Part>,
        spans: Vec<(u64, u64)>,
    },
    Atomic {
        token: u64,
        remote: Import,
        offset: u64,
        op: u8,
        kind: u8,
        operand: Vec<u8>,
        compare: Vec<u8>,
        fetch: bool,
    },
    Map {
        token: u64,
        remote: Import,
    },
    Flush {
        token: u64,
        peer: Handle,
    },
    Deregister {
        token: u64,
        region: Handle,
        patience: Duration,
    },
    Revoke {
        token: u64,
        key: Handle,
        patience: Duration,
    },
    Fenced(#[wire(recursive)] Box<Op>),
}

/// A pass, and what it brought.
#[derive(Debug, Wire)]
pub(super) struct Progressed {
    pub(super) worked: bool,
    pub(super) events: Vec<Happened>,
}

#[derive(Debug, Wire)]
pub(super) enum Happened {
    Message { peer: Handle, message: Vec<u8> },
    LongMessage { peer: Handle, header: Vec<u8>, body: (Handle, u64), len: u64 },
    PutArrived { peer: Handle, region: Handle, offset: u64, len: u64, data: u64 },
    Done { token: u64, result: Result<Ended, Failed> },
    PeerUp { peer: Handle, incarnation: u64 },
    PeerLost { peer: Handle, reason: Lost },
    Writable { peer: Handle },
    PutRefused { peer: Handle, why: Why },
}

#[derive(Debug, Wire)]
pub(super) enum Why {
    StaleKey,
    Denied,
    OutOfBounds,
}

#[derive(Debug, Wire)]
pub(super) enum Ended {
    Sent,
    Received(u64),
    Discarded,
    Tagged {
        peer: Handle,
        tag: u64,
        len: u64,
    },
    Peeked(Option<Found>),
    Put,
    Got,
    Atomic,
    Fetched(Vec<u8>),
    /// What was in it then.
    Mapped(Vec<u8>),
    Flushed,
    Deregistered,
    Revoked,
}

/// A message that was peeked, and its number if it was claimed.
#[derive(Debug, Wire)]
pub(super) struct Found {
    pub(super) peer: Handle,
    pub(super) tag: u64,
    pub(super) len: u64,
    pub(super) claimed: Option<u64>,
}

#[derive(Debug, Wire)]
pub(super) struct Failed {
    pub(super) kind: Kind,
    pub(super) peer: Option<String>,
}

#[derive(Debug, Wire)]
pub(super) enum Kind {
    PeerLost(Lost),
    Cancelled,
    UnknownPeer,
    UnknownRegion,
    StaleKey,
    Denied { allowed: u8, needed: u8 },
    OutOfBounds { offset: u64, len: u64, bound: u64 },
    LengthMismatch { local: u64, remote: u64 },
    TooLarge { what: String, value: u64, limit: u64 },
    Truncated { sent: u64, posted: u64 },
    Misaligned { offset: u64, align: u64 },
    Unsupported(String),
    UnknownBody,
    UnknownMessage,
    Withdrawn,
    StillReached,
    Busy,
    System(String),
}

/// What became of memory.
#[derive(Debug, Wire)]
pub(super) struct Seen {
    pub(super) memory: u64,
    /// Whether the endpoint, or an operation of it, still has it.
    pub(super) held: bool,
    pub(super) changes: Vec<Patch>,
}

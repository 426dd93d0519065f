//! What a transport can do: queried, never assumed.

use crate::PeerQuota;
use std::fmt;

/// What an endpoint offers, fixed for its life: with every peer ([`Endpoint::capabilities`]), or
/// with one ([`Endpoint::capabilities_of`]).
///
/// [`Endpoint::capabilities`]: crate::Endpoint::capabilities
/// [`Endpoint::capabilities_of`]: crate::Endpoint::capabilities_of
///
/// ```
/// use petasos_fabric::{Endpoint, Support};
///
/// let endpoint = petasos_self::Local::open(&"self://*".parse()?)?;
/// let can = endpoint.capabilities();
/// // A protocol asks before it relies on anything.
/// assert_eq!(can.scheme, "self");
/// let eager = can.limits.max_inject.min(4096);
/// let one_sided = can.remote_access == Support::Native && can.passive_target;
/// assert!(eager > 0 && one_sided);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The scheme of its addresses.
    pub scheme: &'static str,
    /// Put and get.
    pub remote_access: Support,
    /// Atomics.
    pub atomics: Support,
    /// Expected messages, matched by tag with an ignore mask and by source; peeks and claims.
    pub tagged: Support,
    /// Whether a receive can be one that other endpoints are offered, too
    /// ([`Operation::PostOffered`](crate::Operation::PostOffered)).
    pub offers: bool,
    /// `put` that raises an event at the target.
    pub put_with_event: Support,
    /// From which length on the network itself writes the data of a put with event, and tells the
    /// target, so that neither side copies: in bytes. What is shorter is served by the target's
    /// engine. `None` where the length makes no such difference.
    pub native_event_from: Option<u64>,
    /// Telling when all accesses to a peer are over: see
    /// [`Operation::Flush`](crate::Operation::Flush).
    pub flush: Support,
    /// Mapping a peer's memory to read it in place (for memory from [`Endpoint::alloc`]).
    ///
    /// [`Endpoint::alloc`]: crate::Endpoint::alloc
    pub map: Support,
    /// Put and get on ordinary memory complete though the target never calls `progress`.
    /// Where this is false, its engine must run.
    pub passive_target: bool,
    /// A thread drives the endpoint while its program does not ([`Attended`](crate::Attended)): so
    /// put and get, with and without event, atomics, flushes, expected messages that find a receive
    /// and the bodies of long ones go on at it, whatever its program does. Of
    /// [`Endpoint::capabilities`]: this endpoint, as the target of others. Of
    /// [`Endpoint::capabilities_of`], asked of an endpoint that is attended itself: the peer, once
    /// it has said so; then `passive_target` is true as well. Others find it in
    /// [`PeerInfo::attended`](crate::PeerInfo).
    ///
    /// [`Endpoint::capabilities`]: crate::Endpoint::capabilities
    /// [`Endpoint::capabilities_of`]: crate::Endpoint::capabilities_of
    pub attended: bool,
    /// A key may be forwarded, and used by a third process that can reach the owner.
    pub third_party: bool,
    /// Remote access between two endpoints is seen in the order in which it was submitted, and in
    /// order with messages. No transport of this project promises it: messages pass puts, gets pass
    /// earlier puts, and a long access may be passed by a later one.
    pub ordered_access: bool,
    /// Whether an operation may carry a fence ([`Fenced`](crate::Fenced)). Where it may not, one
    /// that does fails with `Unsupported`.
    pub fences: bool,
    /// Remote atomics are coherent with atomic instructions of the target's own processor: they are
    /// carried out by a processor of its node, or by a device that is coherent with it.
    pub processor_atomics: bool,
    /// Keys to parts of regions ([`Endpoint::export_part`]), and memory under numbers
    /// ([`Endpoint::export_number`]). Where they are emulated, the owner's
    /// engine serves all accesses by such a key, whatever `remote_access` and `passive_target` say,
    /// and memory cannot be mapped by it.
    ///
    /// [`Endpoint::export_part`]: crate::Endpoint::export_part
    /// [`Endpoint::export_number`]: crate::Endpoint::export_number
    pub part_keys: Support,
    /// Whether what a peer may have of this endpoint's memory can be bounded:
    /// [`Endpoint::set_quota`].
    ///
    /// [`Endpoint::set_quota`]: crate::Endpoint::set_quota
    pub peer_quotas: bool,
    /// What checks the rights on memory when remote access comes.
    pub enforcement: Enforcement,
    /// What a peer must show before data flows.
    pub credential: Credential,
    /// The numbers.
    pub limits: Limits,
}

impl Capabilities {
    /// Those of the smallest transport: everything emulated by the layers of this crate, rights
    /// checked by the owner, no credentials.
    #[must_use]
    pub fn emulated(scheme: &'static str, limits: Limits) -> Capabilities {
        Capabilities {
            scheme,
            remote_access: Support::Emulated,
            atomics: Support::Emulated,
            tagged: Support::Emulated,
            offers: true,
            put_with_event: Support::Emulated,
            native_event_from: None,
            flush: Support::Emulated,
            map: Support::None,
            part_keys: Support::Emulated,
            passive_target: false,
            attended: false,
            third_party: true,
            ordered_access: false,
            fences: false,
            processor_atomics: true,
            peer_quotas: true,
            enforcement: Enforcement::Owner,
            credential: Credential::None,
            limits,
        }
    }
}

/// How a capability comes about, in order: the greater promises more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Support {
    /// Not there: such operations fail with `Unsupported`.
    None,
    /// By messages that the other side's engine serves.
    Emulated,
    /// By the transport itself.
    Native,
}

/// What keeps remote access within the bounds and rights of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Enforcement {
    /// The owner of the memory checks each access.
    Owner,
    /// The network device (NIC) does.
    Device,
    /// The initiator's side of this library does: no protection, between processes of one user,
    /// which could read each other's memory anyway.
    Initiator,
}

/// What a peer must show before anything else of it is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Credential {
    /// Nothing: every process that reaches the endpoint may talk to it.
    None,
    /// The kernel vouches for the peer's user.
    PeerCredentials,
    /// Proof that it knows a shared secret.
    SharedSecret,
}

/// The numbers of an endpoint. Bytes unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The longest message that [`Endpoint::inject`](crate::Endpoint::inject) takes.
    pub max_inject: usize,
    /// The longest unexpected message; longer data travels as `SendLong` or by remote access.
    pub max_message: usize,
    /// The longest header of a `SendLong`.
    pub max_header: usize,
    /// The largest operand of an atomic operation.
    pub max_atomic: usize,
    /// The longest put or get in one operation.
    pub max_transfer: u64,
    /// Pieces of memory in one operation, on each side.
    pub max_pieces: usize,
    /// Regions registered at a time.
    pub max_regions: usize,
    /// Keys to parts of regions ([`Endpoint::export_part`](crate::Endpoint::export_part)) at a
    /// time, and numbers ([`Endpoint::export_number`](crate::Endpoint::export_number)), together.
    /// Keys to whole regions are not counted.
    pub max_keys: usize,
    /// Peers at a time.
    pub max_peers: usize,
    /// Operations that were accepted and are not over, at a time. One peer has at most as many of
    /// them as are free: see [`Endpoint::try_submit`](crate::Endpoint::try_submit).
    pub max_operations: usize,
    /// Messages received and not yet given back ([`Lease`](crate::Lease)) that are longer than
    /// [`Lease::LINES`](crate::Lease::LINES), of all peers; each has a [`Share`](crate::Share) of
    /// them. What is beyond stays with its sender, which feels back-pressure.
    pub max_leases: usize,
    /// What each peer may have, for which no other quota was set
    /// ([`Endpoint::set_quota`](crate::Endpoint::set_quota)).
    pub quota: PeerQuota,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_inject: 4096,
            max_message: 4096,
            max_header: 1024,
            max_atomic: 64,
            max_transfer: 1 << 46,
            max_pieces: 1024,
            max_regions: 65_536,
            max_keys: 16_384,
            max_peers: 65_536,
            max_operations: 65_536,
            max_leases: 4096,
            quota: PeerQuota::UNLIMITED,
        }
    }
}

/// What remote processes may do with a region. A small set of flags.
///
/// ```
/// use petasos_fabric::Access;
///
/// let access = Access::READ.with(Access::ATOMIC);
/// assert!(access.allows(Access::READ) && !access.allows(Access::WRITE));
/// assert_eq!(format!("{access:?}"), "r-a");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Access(u8);

impl Access {
    /// Nothing: registered for local use only.
    pub const NONE: Access = Access(0);
    /// Remote get.
    pub const READ: Access = Access(1);
    /// Remote put.
    pub const WRITE: Access = Access(2);
    /// Remote atomics.
    pub const ATOMIC: Access = Access(4);
    /// All of them.
    pub const ALL: Access = Access(7);

    /// Both sets together.
    #[must_use]
    pub const fn with(self, other: Access) -> Access {
        Access(self.0 | other.0)
    }

    /// This set without what is in `other`.
    #[must_use]
    pub const fn without(self, other: Access) -> Access {
        Access(self.0 & !other.0)
    }

    /// Whether all of `other` is in this set.
    #[must_use]
    pub const fn allows(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }

    /// The flags as they travel.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// The set with these flags; `None` if one is unknown.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Option<Access> {
        if bits & !7 == 0 { Some(Access(bits)) } else { None }
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flag = |set: Access, letter| if self.allows(set) { letter } else { '-' };
        write!(f, "{}{}{}", flag(Self::READ, 'r'), flag(Self::WRITE, 'w'), flag(Self::ATOMIC, 'a'))
    }
}

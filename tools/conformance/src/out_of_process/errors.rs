//! Errors, peers and capabilities, encoded and decoded.

use super::protocol::{
    Can, Failed, Handle, Kind, Known, Lost, Refused, State, Unexported, Unimported, Unregistered,
    Unresolved,
};
use petasos_fabric::{
    Access, Address, Capabilities, Credential, Enforcement, ExportError, ImportError, Incarnation,
    InjectError, Limits, LostReason, OpError, OpErrorKind, Peer, PeerInfo, PeerQuota, PeerState,
    RegisterError, ResolveError, Support,
};
use std::{collections::BTreeSet, sync::Mutex};

pub(super) fn handle(peer: Peer) -> Handle {
    (peer.index, peer.generation)
}

pub(super) fn peer((index, generation): Handle) -> Peer {
    Peer { index, generation }
}

/// A text that the fabric wants to be a constant: kept for good, once.
pub(super) fn constant(text: &str) -> &'static str {
    static KEPT: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut kept = KEPT.lock().expect("no holder of the lock panics");
    if let Some(known) = kept.get(text) {
        return known;
    }
    let text: &'static str = String::leak(text.to_owned());
    kept.insert(text);
    text
}

fn access(bits: u8) -> Access {
    Access::from_bits(bits).expect("rights as the other side has them")
}

pub(super) fn address(text: &str) -> Address {
    Address::parse(text).expect("an address of the other side")
}

impl From<&LostReason> for Lost {
    fn from(reason: &LostReason) -> Lost {
        match reason {
            LostReason::Closed => Lost::Closed,
            LostReason::Silent(time) => Lost::Silent(*time),
            LostReason::Unreachable(time, why) => Lost::Unreachable(*time, why.clone()),
            LostReason::Refused(why) => Lost::Refused(why.clone()),
            LostReason::Protocol(why) => Lost::Protocol(why.clone()),
            LostReason::Restarted => Lost::Restarted,
            LostReason::Forgotten => Lost::Forgotten,
            LostReason::System(why) => Lost::System(why.clone()),
            other => panic!("a reason unknown to the suite: {other:?}"),
        }
    }
}

impl From<Lost> for LostReason {
    fn from(lost: Lost) -> LostReason {
        match lost {
            Lost::Closed => LostReason::Closed,
            Lost::Silent(time) => LostReason::Silent(time),
            Lost::Unreachable(time, why) => LostReason::Unreachable(time, why),
            Lost::Refused(why) => LostReason::Refused(why),
            Lost::Protocol(why) => LostReason::Protocol(why),
            Lost::Restarted => LostReason::Restarted,
            Lost::Forgotten => LostReason::Forgotten,
            Lost::System(why) => LostReason::System(why),
        }
    }
}

impl From<&OpError> for Failed {
    fn from(error: &OpError) -> Failed {
        let kind = match &error.kind {
            OpErrorKind::PeerLost(reason) => Kind::PeerLost(reason.into()),
            OpErrorKind::Cancelled => Kind::Cancelled,
            OpErrorKind::UnknownPeer => Kind::UnknownPeer,
            OpErrorKind::UnknownRegion => Kind::UnknownRegion,
            OpErrorKind::StaleKey => Kind::StaleKey,
            OpErrorKind::Denied { allowed, needed } => {
                Kind::Denied { allowed: allowed.bits(), needed: needed.bits() }
            }
            OpErrorKind::OutOfBounds { offset, len, bound } => {
                Kind::OutOfBounds { offset: *offset, len: *len, bound: *bound }
            }
            OpErrorKind::LengthMismatch { local, remote } => {
                Kind::LengthMismatch { local: *local, remote: *remote }
            }
            OpErrorKind::TooLarge { what, value, limit } => {
                Kind::TooLarge { what: (*what).to_owned(), value: *value, limit: *limit }
            }
            OpErrorKind::Truncated { sent, posted } => {
                Kind::Truncated { sent: *sent, posted: *posted }
            }
            OpErrorKind::Misaligned { offset, align } => {
                Kind::Misaligned { offset: *offset, align: *align as u64 }
            }
            OpErrorKind::Unsupported(what) => Kind::Unsupported((*what).to_owned()),
            OpErrorKind::UnknownBody => Kind::UnknownBody,
            OpErrorKind::UnknownMessage => Kind::UnknownMessage,
            OpErrorKind::Withdrawn => Kind::Withdrawn,
            OpErrorKind::StillReached => Kind::StillReached,
            OpErrorKind::Busy => Kind::Busy,
            OpErrorKind::System(why) => Kind::System(why.clone()),
            other => panic!("an error unknown to the suite: {other:?}"),
        };
        Failed { kind, peer: error.peer.as_ref().map(ToString::to_string) }
    }
}

impl From<Failed> for OpError {
    fn from(failed: Failed) -> OpError {
        let kind = match failed.kind {
            Kind::PeerLost(reason) => OpErrorKind::PeerLost(reason.into()),
            Kind::Cancelled => OpErrorKind::Cancelled,
            Kind::UnknownPeer => OpErrorKind::UnknownPeer,
            Kind::UnknownRegion => OpErrorKind::UnknownRegion,
            Kind::StaleKey => OpErrorKind::StaleKey,
            Kind::Denied { allowed, needed } => {
                OpErrorKind::Denied { allowed: access(allowed), needed: access(needed) }
            }
            Kind::OutOfBounds { offset, len, bound } => {
                OpErrorKind::OutOfBounds { offset, len, bound }
            }
            Kind::LengthMismatch { local, remote } => OpErrorKind::LengthMismatch { local, remote },
            Kind::TooLarge { what, value, limit } => {
                OpErrorKind::TooLarge { what: constant(&what), value, limit }
            }
            Kind::Truncated { sent, posted } => OpErrorKind::Truncated { sent, posted },
            Kind::Misaligned { offset, align } => {
                OpErrorKind::Misaligned { offset, align: align as usize }
            }
            Kind::Unsupported(what) => OpErrorKind::Unsupported(constant(&what)),
            Kind::UnknownBody => OpErrorKind::UnknownBody,
            Kind::UnknownMessage => OpErrorKind::UnknownMessage,
            Kind::Withdrawn => OpErrorKind::Withdrawn,
            Kind::StillReached => OpErrorKind::StillReached,
            Kind::Busy => OpErrorKind::Busy,
            Kind::System(why) => OpErrorKind::System(why),
        };
        match failed.peer {
            Some(peer) => OpError::with_peer(kind, &address(&peer)),
            None => OpError::local(kind),
        }
    }
}

impl From<InjectError> for Refused {
    fn from(error: InjectError) -> Refused {
        match error {
            InjectError::Full => Refused::Full,
            InjectError::PeerLost => Refused::PeerLost,
            InjectError::UnknownPeer => Refused::UnknownPeer,
            InjectError::TooLong { len, max } => {
                Refused::TooLong { len: len as u64, max: max as u64 }
            }
            other => panic!("an error unknown to the suite: {other:?}"),
        }
    }
}

impl From<Refused> for InjectError {
    fn from(refused: Refused) -> InjectError {
        match refused {
            Refused::Full => InjectError::Full,
            Refused::PeerLost => InjectError::PeerLost,
            Refused::UnknownPeer => InjectError::UnknownPeer,
            Refused::TooLong { len, max } => {
                InjectError::TooLong { len: len as usize, max: max as usize }
            }
        }
    }
}

impl From<ResolveError> for Unresolved {
    fn from(error: ResolveError) -> Unresolved {
        match error {
            ResolveError::WrongScheme { scheme, .. } => Unresolved::WrongScheme(scheme.to_owned()),
            ResolveError::TooManyPeers { limit } => Unresolved::TooManyPeers(limit as u64),
            other => Unresolved::Other(other.to_string()),
        }
    }
}

impl Unresolved {
    /// Of this address.
    pub(super) fn of(self, address: &Address) -> ResolveError {
        let address = address.clone();
        match self {
            Unresolved::WrongScheme(scheme) => {
                ResolveError::WrongScheme { address, scheme: constant(&scheme) }
            }
            Unresolved::TooManyPeers(limit) => ResolveError::TooManyPeers { limit: limit as usize },
            Unresolved::Other(reason) => ResolveError::Malformed { address, reason },
        }
    }
}

impl From<RegisterError> for Unregistered {
    fn from(error: RegisterError) -> Unregistered {
        match error {
            RegisterError::TooMany { limit } => Unregistered::TooMany(limit as u64),
            RegisterError::ReadOnly => Unregistered::ReadOnly,
            RegisterError::DeviceAtomics => Unregistered::DeviceAtomics,
            other => Unregistered::System(other.to_string()),
        }
    }
}

impl From<Unregistered> for RegisterError {
    fn from(error: Unregistered) -> RegisterError {
        match error {
            Unregistered::TooMany(limit) => RegisterError::TooMany { limit: limit as usize },
            Unregistered::ReadOnly => RegisterError::ReadOnly,
            Unregistered::DeviceAtomics => RegisterError::DeviceAtomics,
            Unregistered::System(why) => RegisterError::System(why),
        }
    }
}

impl From<ExportError> for Unexported {
    fn from(error: ExportError) -> Unexported {
        match error {
            ExportError::UnknownRegion => Unexported::UnknownRegion,
            ExportError::Denied { allowed, wanted } => {
                Unexported::Denied { allowed: allowed.bits(), wanted: wanted.bits() }
            }
            ExportError::OutOfBounds { start, end, bound } => {
                Unexported::OutOfBounds { start, end, bound }
            }
            ExportError::Taken { number } => Unexported::Taken(number),
            ExportError::TooMany { limit } => Unexported::TooMany(limit as u64),
            ExportError::TooLong { len, routes } => {
                Unexported::TooLong { len: len as u64, routes: routes as u64 }
            }
            ExportError::Unsupported(what) => Unexported::Unsupported(what.to_owned()),
            ExportError::System(why) => Unexported::System(why),
            other => panic!("an error unknown to the suite: {other:?}"),
        }
    }
}

impl From<Unexported> for ExportError {
    fn from(error: Unexported) -> ExportError {
        match error {
            Unexported::UnknownRegion => ExportError::UnknownRegion,
            Unexported::Denied { allowed, wanted } => {
                ExportError::Denied { allowed: access(allowed), wanted: access(wanted) }
            }
            Unexported::OutOfBounds { start, end, bound } => {
                ExportError::OutOfBounds { start, end, bound }
            }
            Unexported::Taken(number) => ExportError::Taken { number },
            Unexported::TooMany(limit) => ExportError::TooMany { limit: limit as usize },
            Unexported::TooLong { len, routes } => {
                ExportError::TooLong { len: len as usize, routes: routes as usize }
            }
            Unexported::Unsupported(what) => ExportError::Unsupported(constant(&what)),
            Unexported::System(why) => ExportError::System(why),
        }
    }
}

impl From<ImportError> for Unimported {
    fn from(error: ImportError) -> Unimported {
        match error {
            ImportError::UnknownPeer => Unimported::UnknownPeer,
            ImportError::Unsupported(what) => Unimported::Unsupported(what.to_owned()),
            ImportError::Resolve(error) => Unimported::Resolve(error.into()),
            ImportError::Stale(owner) => Unimported::Stale(owner.to_string()),
            ImportError::TooMany { limit } => Unimported::TooMany(limit as u64),
            other => Unimported::Other(other.to_string()),
        }
    }
}

impl Unimported {
    /// Of the endpoint at this address, if that matters.
    pub(super) fn at(self, own: &Address) -> ImportError {
        match self {
            Unimported::UnknownPeer => ImportError::UnknownPeer,
            Unimported::Unsupported(what) => ImportError::Unsupported(constant(&what)),
            Unimported::Resolve(error) => ImportError::Resolve(error.of(own)),
            Unimported::Stale(owner) => ImportError::Stale(address(&owner)),
            Unimported::TooMany(limit) => ImportError::TooMany { limit: limit as usize },
            Unimported::Other(why) => ImportError::Malformed(constant(&why)),
        }
    }
}

impl From<PeerInfo> for Known {
    fn from(info: PeerInfo) -> Known {
        Known {
            address: info.address.to_string(),
            incarnation: info.incarnation.map(Incarnation::get),
            state: match &info.state {
                PeerState::Connecting => State::Connecting,
                PeerState::Up => State::Up,
                PeerState::Lost(reason) => State::Lost(reason.into()),
                other => panic!("a state unknown to the suite: {other:?}"),
            },
            user: info.user,
        }
    }
}

impl From<Known> for PeerInfo {
    fn from(known: Known) -> PeerInfo {
        let state = match known.state {
            State::Connecting => PeerState::Connecting,
            State::Up => PeerState::Up,
            State::Lost(reason) => PeerState::Lost(reason.into()),
        };
        let incarnation = known.incarnation.and_then(Incarnation::new);
        PeerInfo::new(address(&known.address), incarnation, state).with_user(known.user)
    }
}

const SUPPORT: [Support; 3] = [Support::None, Support::Emulated, Support::Native];
const ENFORCEMENT: [Enforcement; 3] =
    [Enforcement::Owner, Enforcement::Device, Enforcement::Initiator];
const CREDENTIAL: [Credential; 3] =
    [Credential::None, Credential::PeerCredentials, Credential::SharedSecret];

pub(super) fn quota_numbers(quota: PeerQuota) -> [u64; 3] {
    [quota.leases, quota.lease_bytes, quota.unexpected].map(|number| number as u64)
}

pub(super) fn quota_of([leases, bytes, unexpected]: [u64; 3]) -> PeerQuota {
    let quota = PeerQuota::UNLIMITED.with_leases(leases as usize);
    quota.with_lease_bytes(bytes as usize).with_unexpected(unexpected as usize)
}

fn number<T: PartialEq>(all: &[T], one: &T) -> u8 {
    all.iter().position(|each| each == one).expect("one that the suite knows") as u8
}

impl From<&Capabilities> for Can {
    fn from(can: &Capabilities) -> Can {
        let support = [
            can.remote_access,
            can.atomics,
            can.tagged,
            can.put_with_event,
            can.flush,
            can.map,
            can.part_keys,
        ];
        let limits = &can.limits;
        Can {
            scheme: can.scheme.to_owned(),
            support: support.map(|support| number(&SUPPORT, &support)),
            flags: [
                can.passive_target,
                can.third_party,
                can.ordered_access,
                can.processor_atomics,
                can.peer_quotas,
                can.fences,
            ],
            quota: quota_numbers(limits.quota),
            enforcement: number(&ENFORCEMENT, &can.enforcement),
            credential: number(&CREDENTIAL, &can.credential),
            limits: [
                limits.max_inject as u64,
                limits.max_message as u64,
                limits.max_header as u64,
                limits.max_atomic as u64,
                limits.max_transfer,
                limits.max_pieces as u64,
                limits.max_regions as u64,
                limits.max_keys as u64,
                limits.max_peers as u64,
                limits.max_leases as u64,
                limits.max_operations as u64,
            ],
        }
    }
}

impl From<Can> for Capabilities {
    fn from(can: Can) -> Capabilities {
        let mut limits = Limits::default();
        let numbers = can.limits;
        limits.max_inject = numbers[0] as usize;
        limits.max_message = numbers[1] as usize;
        limits.max_header = numbers[2] as usize;
        limits.max_atomic = numbers[3] as usize;
        limits.max_transfer = numbers[4];
        limits.max_pieces = numbers[5] as usize;
        limits.max_regions = numbers[6] as usize;
        limits.max_keys = numbers[7] as usize;
        limits.max_peers = numbers[8] as usize;
        limits.max_leases = numbers[9] as usize;
        limits.max_operations = numbers[10] as usize;
        limits.quota = quota_of(can.quota);
        let mut all = Capabilities::emulated(constant(&can.scheme), limits);
        let support = can.support.map(|number| SUPPORT[usize::from(number)]);
        [
            all.remote_access,
            all.atomics,
            all.tagged,
            all.put_with_event,
            all.flush,
            all.map,
            all.part_keys,
        ] = support;
        [
            all.passive_target,
            all.third_party,
            all.ordered_access,
            all.processor_atomics,
            all.peer_quotas,
            all.fences,
        ] = can.flags;
        all.enforcement = ENFORCEMENT[usize::from(can.enforcement)];
        all.credential = CREDENTIAL[usize::from(can.credential)];
        all
    }
}

//! What one peer may take of an endpoint's memory.

/// What one peer may have of an endpoint's memory at a time. What it sends beyond waits with it,
/// and no other peer's messages do; nothing is lost. Without a quota a peer may have its part of
/// what the endpoint has for all: a [`Share`](crate::Share) of [`Limits::max_leases`], say.
///
/// It bounds what stays here for as long as the program, or the peer, likes. What a peer has in
/// packets that are not complete has no quota, as it is bounded by the transport's settings
/// whatever the peer does: one packet, or a window of short ones.
///
/// ```
/// use petasos_fabric::{Endpoint, PeerQuota};
/// use std::time::Duration;
///
/// let mut endpoint = petasos_self::Local::open(&"self://*".parse()?)?;
/// let tenant = petasos_self::Local::open(&"self://*".parse()?)?;
/// let peer = endpoint.resolve(tenant.address(), Duration::from_secs(1))?;
/// endpoint.set_quota(peer, PeerQuota::UNLIMITED.with_leases(16).with_lease_bytes(1 << 20))?;
/// let usage = endpoint.usage(peer).expect("a handle that is not stale");
/// assert_eq!((usage.quota.leases, usage.leases, usage.leases_refused), (16, 0, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`Limits::max_leases`]: crate::Limits::max_leases
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerQuota {
    /// Messages of the peer that the program holds and that need a lease: those longer than
    /// [`Lease::LINES`](crate::Lease::LINES). Places that were promised to it count, too. With 0 no
    /// such message comes.
    pub leases: usize,
    /// Bytes of them; a place counts as the longest message. A peer that holds none may send one,
    /// however long.
    pub lease_bytes: usize,
    /// Bytes of expected messages that may wait here for a receive: 64 for the header of each, and
    /// the data of those that come with it. A few headers of each peer are not counted. What was
    /// promised is not taken back if this is set to less.
    pub unexpected: usize,
    /// With this set no unexpected message of the peer comes, however short, and no put with event:
    /// they wait with it, and all else goes on. Those that are on their way still come.
    pub deferred: bool,
}

impl PeerQuota {
    /// No other bounds than those of the endpoint.
    pub const UNLIMITED: PeerQuota = PeerQuota {
        leases: usize::MAX,
        lease_bytes: usize::MAX,
        unexpected: usize::MAX,
        deferred: false,
    };

    /// With so many leases.
    #[must_use]
    pub const fn with_leases(self, leases: usize) -> PeerQuota {
        PeerQuota { leases, ..self }
    }

    /// With so many bytes of leases.
    #[must_use]
    pub const fn with_lease_bytes(self, lease_bytes: usize) -> PeerQuota {
        PeerQuota { lease_bytes, ..self }
    }

    /// With so many bytes of expected messages that wait for a receive.
    #[must_use]
    pub const fn with_unexpected(self, unexpected: usize) -> PeerQuota {
        PeerQuota { unexpected, ..self }
    }

    /// With messages and puts with event deferred, or not.
    #[must_use]
    pub const fn with_deferred(self, deferred: bool) -> PeerQuota {
        PeerQuota { deferred, ..self }
    }
}

/// [`PeerQuota::UNLIMITED`].
impl Default for PeerQuota {
    fn default() -> PeerQuota {
        PeerQuota::UNLIMITED
    }
}

/// What a peer has of its [`PeerQuota`], and how often it wanted more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerUsage {
    /// What it may have.
    pub quota: PeerQuota,
    /// Leases that it has, and places promised to it: more than the quota only as long as that was
    /// set to less a moment ago.
    pub leases: usize,
    /// Their bytes.
    pub lease_bytes: usize,
    /// Bytes promised to it for expected messages without a receive.
    pub unexpected: usize,
    /// How often messages of the peer had to wait because it had all leases of its quota.
    pub leases_refused: u64,
    /// How often it wanted more room for expected messages than its quota has.
    pub unexpected_refused: u64,
}

impl PeerUsage {
    /// Nothing, of this quota.
    #[must_use]
    pub fn new(quota: PeerQuota) -> PeerUsage {
        PeerUsage { quota, ..PeerUsage::default() }
    }
}

/// Why no quota was set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuotaError {
    /// The peer handle is stale or of another endpoint.
    #[error("the peer handle is stale")]
    UnknownPeer,
    /// The transport does not do this: see its capabilities.
    #[error("this transport does not support {0}")]
    Unsupported(&'static str),
}

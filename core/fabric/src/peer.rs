//! Peers: handles, and the incarnations of an address.

use crate::{Address, LostReason};
use std::{fmt, num::NonZeroU64};

/// The incarnation of an endpoint: a random number, new at each start, never zero.
///
/// A process that ends and starts again at the same address is another incarnation; what was meant
/// for the earlier one fails.
///
/// ```
/// use petasos_fabric::{Endpoint, Incarnation};
///
/// let first = petasos_self::Local::open(&"self://again".parse()?)?;
/// let before = first.incarnation();
/// drop(first);
/// let second = petasos_self::Local::open(&"self://again".parse()?)?;
/// assert_ne!(second.incarnation(), before);
/// assert_eq!(Incarnation::new(before.get()), Some(before));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Incarnation(NonZeroU64);

impl Incarnation {
    /// A fresh one from the system's random source.
    ///
    /// # Panics
    /// If the system has no random source, which Linux always has.
    #[must_use]
    pub fn random() -> Incarnation {
        loop {
            let drawn = getrandom::u64().expect("the system's random source answers");
            if let Some(incarnation) = Incarnation::new(drawn) {
                return incarnation;
            }
        }
    }

    /// The incarnation with this number; `None` for zero.
    #[must_use]
    pub fn new(number: u64) -> Option<Incarnation> {
        NonZeroU64::new(number).map(Incarnation)
    }

    /// Its number, as it is encoded.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A handle to a peer, valid at the endpoint that gave it out.
///
/// Small and copyable: a slot and a generation, so that a handle that outlived its peer is
/// recognised. A peer that was lost stays lost: resolve the address again to reach its successor.
///
/// ```
/// use petasos_fabric::{Endpoint, PeerState};
/// use std::time::Duration;
///
/// let mut endpoint = petasos_self::Local::open(&"self://*".parse()?)?;
/// let own = endpoint.address().clone();
/// // An endpoint can be a peer of itself.
/// let peer = endpoint.resolve(&own, Duration::from_secs(1))?;
/// assert_eq!(endpoint.peer(peer).map(|info| info.address), Some(own));
/// endpoint.forget(peer);
/// assert!(endpoint.peer(peer).is_none(), "the handle is stale");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Peer {
    /// Slot in the endpoint's table.
    pub index: u32,
    /// How often that slot was used before.
    pub generation: u32,
}

impl Peer {
    /// Both parts in one number, for hashing and logs.
    #[must_use]
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }
}

/// What an endpoint knows of a peer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PeerInfo {
    /// Its address.
    pub address: Address,
    /// Its incarnation, once it is connected.
    pub incarnation: Option<Incarnation>,
    /// The state of the connection.
    pub state: PeerState,
    /// The user that runs it, by number, where the transport knows that from another source than
    /// the peer: of a process of this node from its kernel, once there is a connection.
    pub user: Option<u32>,
    /// A thread drives its endpoint while its program does not ([`Attended`](crate::Attended)): so
    /// put, get, atomics, flushes and expected messages go on there, whatever that program does.
    /// The peer says so, soon after it is connected.
    pub attended: bool,
}

impl PeerInfo {
    /// Puts the parts together.
    #[must_use]
    pub fn new(address: Address, incarnation: Option<Incarnation>, state: PeerState) -> PeerInfo {
        PeerInfo { address, incarnation, state, user: None, attended: false }
    }

    /// The same, and the transport vouches for its user.
    #[must_use]
    pub fn with_user(self, user: Option<u32>) -> PeerInfo {
        PeerInfo { user, ..self }
    }

    /// The same, and the peer says whether a thread drives its endpoint.
    #[must_use]
    pub fn with_attended(self, attended: bool) -> PeerInfo {
        PeerInfo { attended, ..self }
    }
}

/// The state of the connection to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerState {
    /// Not connected yet; what is submitted waits, until the patience given to `resolve` ends.
    Connecting,
    /// Messages flow.
    Up,
    /// Lost for good, and why.
    Lost(LostReason),
}

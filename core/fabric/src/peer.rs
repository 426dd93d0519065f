//! Peers: a handle, and the life of the process behind an address.

use crate::{Address, LostReason};
use std::{fmt, num::NonZeroU64};

/// One life of an endpoint: random, new at each start, never zero.
///
/// A process that dies and comes back at the same address is another incarnation; what was meant
/// for the earlier one fails.
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

    /// Its number, as it travels.
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
    /// Its incarnation, once it has been heard from.
    pub incarnation: Option<Incarnation>,
    /// How things stand.
    pub state: PeerState,
    /// The user that runs it, by number, where the transport knows that from another source than
    /// the peer: of a process of this node from its kernel, once there is a connection.
    pub user: Option<u32>,
}

impl PeerInfo {
    /// Puts the parts together.
    #[must_use]
    pub fn new(address: Address, incarnation: Option<Incarnation>, state: PeerState) -> PeerInfo {
        PeerInfo { address, incarnation, state, user: None }
    }

    /// The same, and the transport vouches for its user.
    #[must_use]
    pub fn with_user(self, user: Option<u32>) -> PeerInfo {
        PeerInfo { user, ..self }
    }
}

/// How things stand with a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerState {
    /// Not heard from yet; what is submitted waits, until the patience given to `resolve` ends.
    Connecting,
    /// Messages flow.
    Up,
    /// Gone for good, and why.
    Lost(LostReason),
}

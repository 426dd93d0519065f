//! Grants: the keys of the library to regions of peers, as the initiator has them.

use crate::frame::TARGET;
use petasos_fabric::{Access as Rights, Peer};
use std::collections::HashMap;

/// What names a region of a peer's, in its key.
pub(crate) type Target = [u8; TARGET];

/// The state of the grant of a region.
#[derive(Debug)]
pub(crate) enum Grant<K> {
    /// The owner was asked.
    Asked,
    /// Granted, with this many accesses under way; completion data to the owner begins
    /// with `name`.
    Given { key: K, rights: Rights, name: u64, running: u32 },
    /// It was revoked, and accesses are under way.
    Revoked { running: u32 },
    /// The owner refused it.
    Refused,
}

/// All grants.
#[derive(Debug)]
pub(crate) struct Grants<K> {
    list: HashMap<(Peer, Target), Grant<K>>,
}

impl<K> Grants<K> {
    pub(crate) fn new() -> Grants<K> {
        Grants { list: HashMap::new() }
    }

    /// The grant of a region.
    #[inline]
    pub(crate) fn get_mut(&mut self, peer: Peer, target: Target) -> Option<&mut Grant<K>> {
        self.list.get_mut(&(peer, target))
    }

    /// The owner is asked.
    pub(crate) fn ask(&mut self, peer: Peer, target: Target) {
        self.list.insert((peer, target), Grant::Asked);
    }

    /// An access has completed.
    pub(crate) fn completed(&mut self, peer: Peer, target: Target) {
        if let Some(Grant::Given { running, .. } | Grant::Revoked { running }) =
            self.get_mut(peer, target)
        {
            *running -= 1;
        }
    }

    /// The owner revokes a grant. False if that was not given.
    pub(crate) fn revoke(&mut self, peer: Peer, target: Target) -> bool {
        let Some(grant) = self.get_mut(peer, target) else { return false };
        let Grant::Given { running, .. } = *grant else { return false };
        *grant = Grant::Revoked { running };
        true
    }

    /// Removes a grant that was revoked, if nothing is under way by it. False if it is not so.
    pub(crate) fn remove_returnable(&mut self, peer: Peer, target: Target) -> bool {
        let returnable = matches!(self.get_mut(peer, target), Some(Grant::Revoked { running: 0 }));
        if returnable {
            self.list.remove(&(peer, target));
        }
        returnable
    }

    /// Whether a peer granted, or may grant, access to its memory, and nothing is under way by
    /// that.
    pub(crate) fn can_return(&self, peer: Peer) -> bool {
        let mut held = false;
        for (_, grant) in self.list.iter().filter(|((of, _), _)| *of == peer) {
            match grant {
                Grant::Asked | Grant::Given { running: 0, .. } => held = true,
                Grant::Given { .. } | Grant::Revoked { .. } => return false,
                Grant::Refused => {}
            }
        }
        held
    }

    /// The peer is lost.
    pub(crate) fn forget(&mut self, peer: Peer) {
        self.list.retain(|(of, _), _| *of != peer);
    }
}

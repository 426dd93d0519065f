//! Grants: the keys of the library to regions of peers, as the initiator has them.

use crate::frame::TARGET;
use petasos_fabric::{Access as Rights, Peer};
use std::collections::{HashMap, VecDeque};

/// Refusals that are remembered: beyond, owners are asked again.
const REFUSALS: usize = 1024;

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
    /// Granted, and of no use here: the library takes no such key. It is returned as any other.
    Useless,
    /// The owner refused it.
    Refused,
}

/// All grants.
#[derive(Debug)]
pub(crate) struct Grants<K> {
    list: HashMap<(Peer, Target), Grant<K>>,
    /// The last refusals, oldest first. Their owners do not say when that memory is closed.
    refused: VecDeque<(Peer, Target)>,
}

impl<K> Grants<K> {
    pub(crate) fn new() -> Grants<K> {
        Grants { list: HashMap::new(), refused: VecDeque::new() }
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

    /// The owner has answered. False if it was not asked.
    pub(crate) fn answer(&mut self, peer: Peer, target: Target, answer: Grant<K>) -> bool {
        let Some(grant @ Grant::Asked) = self.get_mut(peer, target) else { return false };
        let is_refusal = matches!(answer, Grant::Refused);
        *grant = answer;
        if is_refusal {
            self.refused.push_back((peer, target));
            if self.refused.len() > REFUSALS
                && let Some((peer, target)) = self.refused.pop_front()
                && let Some(Grant::Refused) = self.get_mut(peer, target)
            {
                self.list.remove(&(peer, target));
            }
        }
        true
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
        let running = match *grant {
            Grant::Given { running, .. } => running,
            Grant::Useless => 0,
            _ => return false,
        };
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
                Grant::Asked | Grant::Given { running: 0, .. } | Grant::Useless => held = true,
                Grant::Given { .. } | Grant::Revoked { .. } => return false,
                Grant::Refused => {}
            }
        }
        held
    }

    /// The peer is lost.
    pub(crate) fn forget(&mut self, peer: Peer) {
        self.list.retain(|(of, _), _| *of != peer);
        self.refused.retain(|(of, _)| *of != peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Peer = Peer { index: 3, generation: 1 };

    fn target(nth: usize) -> Target {
        let mut target = [0; TARGET];
        target[..8].copy_from_slice(&(nth as u64).to_le_bytes());
        target
    }

    /// A program that uses one region after the other, which its peer does not open, keeps the last
    /// refusals alone.
    #[test]
    fn refusals_are_bounded() {
        let mut grants: Grants<()> = Grants::new();
        for nth in 0..3 * REFUSALS {
            grants.ask(PEER, target(nth));
            assert!(grants.answer(PEER, target(nth), Grant::Refused));
            assert!(!grants.answer(PEER, target(nth), Grant::Refused), "it was asked once");
        }
        assert_eq!((grants.list.len(), grants.refused.len()), (REFUSALS, REFUSALS));
        assert!(grants.get_mut(PEER, target(3 * REFUSALS - 1)).is_some());
        grants.forget(PEER);
        assert!(grants.list.is_empty() && grants.refused.is_empty());
    }
}

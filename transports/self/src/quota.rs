//! Quotas of peers: what each may have here, on all its links.

use crate::{local::Local, peers::State};
use petasos_fabric::{Peer, PeerQuota, PeerUsage, QuotaError};

impl Local {
    pub(crate) fn set_quota_of(&mut self, peer: Peer, quota: PeerQuota) -> Result<(), QuotaError> {
        self.peers.get(peer).ok_or(QuotaError::UnknownPeer)?;
        let entry = self.peers.at(peer.index);
        entry.quota = Some(quota);
        if let State::Up { links, .. } = &entry.state {
            links.iter().for_each(|link| self.hub.allotment(*link).set_quota(&quota));
        }
        Ok(())
    }

    /// The peer has this link: what it may have here is valid there, too.
    pub(crate) fn link_up(&mut self, index: u32, link: u64) {
        if let Some(quota) = &self.peers.at(index).quota {
            self.hub.allotment(link).set_quota(quota);
        }
    }

    pub(crate) fn usage_of(&self, peer: Peer) -> Option<PeerUsage> {
        let entry = self.peers.get(peer)?;
        let mut usage = PeerUsage::new(entry.quota.unwrap_or_default());
        if let State::Up { links, .. } = &entry.state {
            links.iter().for_each(|link| self.hub.allotment(*link).count(&mut usage));
        }
        usage.quota = entry.quota.unwrap_or_default();
        Some(usage)
    }
}

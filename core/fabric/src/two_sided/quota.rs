//! What each peer may have: leases ([`Credit`](super::credit::Credit)), and room for expected
//! messages without a receive ([`Expected`](super::expected::Expected)).

use super::Engine;
use crate::{Peer, PeerQuota, PeerState, PeerUsage, QuotaError};

impl Engine {
    /// Sets what a peer may have.
    ///
    /// # Errors
    /// [`QuotaError::UnknownPeer`] for a stale handle.
    pub fn set_quota(&mut self, peer: Peer, quota: PeerQuota) -> Result<(), QuotaError> {
        let Engine { config, pool, peers, matching, ledger, .. } = self;
        let conn = peers.get_mut(peer).ok_or(QuotaError::UnknownPeer)?;
        if matches!(conn.state, PeerState::Lost(_)) {
            return Ok(());
        }
        let of = (&*pool, &config.limits);
        conn.set_quota(quota, of, ledger);
        if conn.expected.is_used() {
            conn.promise_room(of, matching, ledger);
        }
        Ok(())
    }

    /// What a peer has of its quota; `None` for a stale handle.
    #[must_use]
    pub fn usage(&self, peer: Peer) -> Option<PeerUsage> {
        let entry = self.peers.get(peer)?;
        let mut usage = PeerUsage::new(entry.credit.quota(&self.config.limits));
        entry.credit.count(&mut usage);
        usage.unexpected = entry.expected.promised();
        Some(usage)
    }
}

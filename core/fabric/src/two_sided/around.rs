//! Expected messages that a transport sends around the engine, as it does with plain ones: short
//! ones that are complete when their bytes have been taken, and for which the peer has a place.

use super::{
    Engine, MAX_EAGER,
    header::{Encoded, Header},
};
use crate::Peer;

impl Engine {
    /// The header of an expected message of `len` bytes that may go now, before anything that waits
    /// here, and whose operation is complete when it is sent ([`Level::Reusable`]). `None`: it is
    /// to be [submitted](Engine::submit). The transport sends header and bytes as a packet, behind
    /// those that it has of the engine, and then says so ([`Engine::sent_expected_around`]).
    ///
    /// [`Level::Reusable`]: crate::Level::Reusable
    #[must_use]
    pub fn expected_around(&self, peer: Peer, tag: u64, len: usize) -> Option<Encoded> {
        let (entry, conn) = self.peers.entry_and_connection(peer)?;
        // Of one sender they are matched in the order in which they were sent.
        let first = conn.is_none_or(|conn| conn.queues.tagged.is_empty());
        let short = len <= self.config.eager.min(MAX_EAGER);
        let may = entry.is_up() && !entry.own && first && short && entry.expected.eager() > 0;
        may.then(|| Header::Tagged { tag }.encode(len))
    }

    /// Such a message was sent: it has taken a place at the peer.
    pub fn sent_expected_around(&mut self, peer: Peer) {
        if let Some(entry) = self.peers.entry_mut(peer) {
            entry.expected.use_place();
        }
    }
}

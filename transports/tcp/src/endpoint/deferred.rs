//! Work that waits for a pass that finds nothing else to do.

use crate::{
    handshake::Identity,
    known_peers::KnownPeers,
    peers::{Connectivity, PeerEntry, Peers},
};
use petasos_fabric::Peer;

#[derive(Debug)]
pub(super) struct Deferred {
    /// Whether the keys of the next handshake may still have to be made.
    keys: bool,
    /// Peers from which something has come for the first time: their users are to be noted.
    owners: Vec<(Peer, Identity)>,
}

impl Deferred {
    /// `keyed`: there is a secret, so handshakes need keys.
    pub(super) fn new(keyed: bool) -> Deferred {
        Deferred { keys: keyed, owners: Vec::new() }
    }

    /// A handshake has used the keys.
    pub(super) fn replace_keys(&mut self, keyed: bool) {
        self.keys = keyed;
    }

    /// The user of this peer is to be noted.
    pub(super) fn note_owner(&mut self, peer: Peer, identity: Identity) {
        self.owners.push((peer, identity));
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.keys && self.owners.is_empty()
    }

    #[cold]
    pub(super) fn run(&mut self, peers: &Peers, known_peers: &mut KnownPeers) {
        if std::mem::take(&mut self.keys) {
            petasos_noise::prepare();
        }
        for (peer, identity) in std::mem::take(&mut self.owners) {
            let entry = peers.get(peer);
            if let Some(PeerEntry { connectivity: Connectivity::Open(connection), .. }) = entry {
                known_peers.note_owner(&identity, &connection.socket);
            }
        }
    }
}

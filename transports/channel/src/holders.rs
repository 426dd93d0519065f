//! Which peers have exclusive channels, or wait for one.

use petasos_fabric::Peer;
use std::collections::VecDeque;

/// The slots of these peers.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    /// Peers to which there is a channel, or one was asked for.
    outgoing: Vec<u32>,
    /// Peers from which there is one.
    incoming: Vec<u32>,
    /// Peers that wait until another has given its channel back, in order.
    waiting: VecDeque<Peer>,
}

impl Holders {
    // Channels to peers.

    /// Peers to which there is a channel, or one was asked for.
    pub(crate) fn outgoing(&self) -> &[u32] {
        &self.outgoing
    }

    pub(crate) fn add_outgoing(&mut self, index: u32) {
        self.outgoing.push(index);
    }

    /// There is no channel to this peer any more.
    pub(crate) fn remove_outgoing(&mut self, index: u32) {
        self.outgoing.retain(|peer| *peer != index);
    }

    // Channels from peers.

    /// Peers from which there is a channel.
    pub(crate) fn incoming(&self) -> &[u32] {
        &self.incoming
    }

    pub(crate) fn add_incoming(&mut self, index: u32) {
        self.incoming.push(index);
    }

    /// There is no channel from this peer any more.
    pub(crate) fn remove_incoming(&mut self, index: u32) {
        self.incoming.retain(|peer| *peer != index);
    }

    // Peers that wait for one.

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn add_waiting(&mut self, peer: Peer) {
        self.waiting.push_back(peer);
    }

    pub(crate) fn remove_waiting(&mut self, index: u32) {
        self.waiting.retain(|waiting| waiting.index != index);
    }

    /// The peer that has waited for the longest time.
    pub(crate) fn first_waiting(&self) -> Option<Peer> {
        self.waiting.front().copied()
    }

    pub(crate) fn pop_waiting(&mut self) {
        self.waiting.pop_front();
    }
}

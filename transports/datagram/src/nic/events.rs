//! Nodes that come and go.

use super::{Nic, receive::stashed};
use crate::{network::Network, peers::News};
use petasos_channel::{DeviceEvent, device::Node};
use petasos_fabric::{LostReason, Peer};
use std::collections::VecDeque;

impl<N: Network> Nic<N> {
    /// Takes in what there is to report of peers.
    pub(super) fn take_news(&mut self) {
        while let Some(news) = self.inner.peers.pop_news() {
            match news {
                News::Up(peer, incarnation) => {
                    let Some(address) = self.inner.peers.address(peer).cloned() else { continue };
                    let node = self.nodes.add(peer);
                    self.mail.push_back(DeviceEvent::Up { node, address, incarnation });
                }
                News::Lost(peer, reason) => self.peer_lost(peer, reason),
            }
        }
    }

    fn peer_lost(&mut self, peer: Peer, reason: LostReason) {
        let Some(node) = self.nodes.node(peer) else {
            let address = self.inner.peers.address(peer).cloned();
            self.inner.forget(peer);
            if let Some(address) = address {
                self.mail.push_back(DeviceEvent::Unreachable { address, reason });
            }
            return;
        };
        if let Some(reached) = self.nodes.live(node) {
            reached.lost = true;
            reached.owed.clear();
        }
        self.end_all(peer);
        // The packets that it sent come first.
        let stash = std::mem::take(&mut self.stash);
        let (last, rest): (VecDeque<_>, _) =
            stash.into_iter().partition(|packet| is_of(packet, node));
        self.stash = rest;
        self.mail.extend(last);
        self.mail.push_back(DeviceEvent::Lost { node, reason });
    }

    /// Forgets peers whose loss the user has seen.
    pub(super) fn forget_departed(&mut self) {
        for peer in std::mem::take(&mut self.departed) {
            // Unless the user has closed it meanwhile.
            let node = Node(peer.index);
            if self.nodes.get_mut(node).is_some_and(|reached| reached.peer == peer) {
                self.nodes.remove(node);
                self.inner.forget(peer);
            }
        }
    }

    /// Hands out events: first all others, then data packets, if they are asked for.
    pub(super) fn hand_out(&mut self, most: usize, events: &mut Vec<DeviceEvent>) {
        let before = events.len();
        for event in self.mail.drain(..self.mail.len().min(most)) {
            if let DeviceEvent::Lost { node, .. } = &event
                && let Some(reached) = self.nodes.get_mut(*node)
                && reached.lost
            {
                self.departed.push(reached.peer);
            }
            events.push(event);
        }
        if !self.data || !self.mail.is_empty() || self.stash.is_empty() {
            return;
        }
        let left = most.saturating_sub(events.len() - before).min(self.stash.len());
        for packet in self.stash.drain(..left) {
            if let DeviceEvent::Packet { node, bytes, .. } = &packet
                && let Some(reached) = self.nodes.get_mut(*node)
            {
                reached.stashed -= stashed(bytes.len());
            }
            events.push(packet);
        }
    }
}

/// Whether an event is of this node.
pub(super) fn is_of(event: &DeviceEvent, node: Node) -> bool {
    match event {
        DeviceEvent::Up { node: of, .. }
        | DeviceEvent::Lost { node: of, .. }
        | DeviceEvent::Packet { node: of, .. }
        | DeviceEvent::PutArrived { node: of, .. }
        | DeviceEvent::Refused { node: of, .. }
        | DeviceEvent::Room { node: of } => *of == node,
        _ => false,
    }
}

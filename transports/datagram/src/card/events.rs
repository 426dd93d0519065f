//! Nodes that come and go.

use super::Card;
use crate::network::Network;
use petasos_channel::{DeviceEvent, device::Node};
use petasos_fabric::{Endpoint, Event, LostReason, Peer};
use std::collections::VecDeque;

impl<N: Network> Card<N> {
    /// Takes in what the inner endpoint reports of peers.
    pub(super) fn take_news(&mut self) {
        let mut news = std::mem::take(&mut self.news);
        self.inner.engine.take_events(usize::MAX, &mut news);
        for event in news.drain(..) {
            match event {
                Event::PeerUp { peer, incarnation } => {
                    let Some(info) = self.inner.engine.peer_info(peer) else { continue };
                    let (node, address) = (self.nodes.add(peer), info.address);
                    self.mail.push_back(DeviceEvent::Up { node, address, incarnation });
                }
                Event::PeerLost { peer, reason } => self.peer_lost(peer, reason),
                _ => {}
            }
        }
        self.news = news;
        // The engine has nothing to say: each side's credit for messages is that of the channels.
        while let Some(peer) = self.inner.engine.next_output() {
            while self.inner.engine.poll_transmit(peer).is_some() {
                self.inner.engine.sent(peer);
            }
        }
    }

    fn peer_lost(&mut self, peer: Peer, reason: LostReason) {
        let Some(node) = self.nodes.node(peer) else {
            let info = self.inner.engine.peer_info(peer);
            self.inner.forget(peer);
            if let Some(info) = info {
                let address = info.address;
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
                reached.stashed -= bytes.len();
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

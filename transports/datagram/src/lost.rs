//! What is under way with peers that are lost.
//!
//! Not every library is ever done with that: of a process that was killed, or is stopped, the answer does not come, and
//! nothing else does. Until it is done, the network holds the memory and the slot of each such operation, and its node stays in the
//! table of addresses. Others take the places of these slots ([`Network::spare`]), within the bound of
//! [`Config::lost`](crate::Config::lost).

use crate::{link::Link, network::Network, network::Node, state::Datagrams};
use petasos_fabric::{LostReason, Peer, Time};
use std::collections::{BTreeMap, HashMap};

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    /// By slot and generation of the peer.
    peers: BTreeMap<(u32, u32), Remains>,
    /// Pieces of accesses that are under way: whose.
    accesses: HashMap<(u32, u32), Peer>,
    count: usize,
    /// Since when that is more than there may be.
    crowded: Option<Time>,
}

/// What a peer left.
#[derive(Debug)]
struct Remains {
    /// The serial numbers of its packets: the first, and how many.
    first: u32,
    packets: u32,
    running: u32,
    /// Its node, when it is to leave the table as soon as nothing is under way.
    node: Option<Node>,
}

impl Lost {
    /// How many operations.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// A peer is lost, with these pieces of accesses.
    fn add(&mut self, link: &Link, accesses: impl Iterator<Item = (u32, u32)>) {
        let (first, packets, running) = (link.first, link.under_way.len() as u32, link.running);
        let remains = Remains { first, packets, running, node: None };
        self.peers.insert((link.peer.index, link.peer.generation), remains);
        self.accesses.extend(accesses.map(|access| (access, link.peer)));
        self.count += running as usize;
    }

    /// One of a peer's is over. Gives a node that is to leave the table now.
    fn take(&mut self, peer: Peer) -> Option<Node> {
        let name = (peer.index, peer.generation);
        let remains = self.peers.get_mut(&name)?;
        self.count -= 1;
        remains.running -= 1;
        if remains.running > 0 {
            return None;
        }
        self.accesses.retain(|_, of| *of != peer);
        self.peers.remove(&name)?.node
    }

    fn of_slot(&self, index: u32) -> impl Iterator<Item = (Peer, &Remains)> {
        let peer = |(index, generation): (u32, u32)| Peer { index, generation };
        let of_slot = self.peers.range((index, 0)..=(index, u32::MAX));
        of_slot.map(move |(name, remains)| (peer(*name), remains))
    }

    /// Whether something of this peer's is under way: then its node leaves the table when that is over.
    pub(crate) fn keeps(&mut self, peer: Peer, node: Node) -> bool {
        let remains = self.peers.get_mut(&(peer.index, peer.generation));
        remains.map(|remains| remains.node = Some(node)).is_some()
    }
}

impl<N: Network> Datagrams<N> {
    /// A peer is lost, with what is under way.
    pub(crate) fn keep_lost(&mut self, link: &Link, accesses: Vec<(u32, u32)>) {
        if link.running == 0 {
            return;
        }
        self.lost.add(link, accesses.into_iter());
        self.make_up();
        self.net.spare(self.lost.count.min(self.config.lost));
    }

    /// Keeps the time since which there is too much.
    fn make_up(&mut self) {
        match self.lost.count > self.config.lost {
            true => _ = self.lost.crowded.get_or_insert(self.now),
            false => self.lost.crowded = None,
        }
    }

    fn lost_done(&mut self, peer: Peer) {
        if let Some(node) = self.lost.take(peer) {
            self.bury(node, peer);
        }
        self.make_up();
    }

    /// The library is done with a packet that is of no peer that there is.
    #[cold]
    pub(crate) fn lost_packet_done(&mut self, index: u32, serial: u32) {
        let of = |remains: &Remains| serial.wrapping_sub(remains.first) < remains.packets;
        let found = self.lost.of_slot(index).find(|(_, remains)| of(remains));
        if let Some((peer, _)) = found {
            self.lost_done(peer);
        }
    }

    /// The same of one whose end nobody waits for.
    #[cold]
    pub(crate) fn lost_short_done(&mut self, index: u32, generation: u32) {
        self.lost_done(Peer { index, generation });
    }

    /// The same of a piece of an access, if it is of a lost peer.
    #[cold]
    pub(crate) fn lost_piece_done(&mut self, access: u32, serial: u32) {
        if let Some(peer) = self.lost.accesses.get(&(access, serial)).copied() {
            self.lost_done(peer);
        }
    }

    /// The library has no room for something that is to go to this peer. If it never has again, the peer is lost.
    #[cold]
    pub(crate) fn full(&mut self, index: u32) {
        self.counters.again += 1;
        let Some(since) = self.lost.crowded else { return };
        let others = self.net.running() > self.lost.count;
        if others || self.now < since.after(self.config.mourning) {
            return;
        }
        let (count, most) = (self.lost.count, self.config.lost);
        let why = format!(
            "the library has not let go of {count} operations with peers that were lost, and bears no more of them; \
             {most} may be so (`lost`)"
        );
        self.end(index, LostReason::System(why));
    }
}

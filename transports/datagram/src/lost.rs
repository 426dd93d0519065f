//! Operations under way with peers that are lost.
//!
//! Not every library ever completes them: a process that was killed, or is stopped, does not
//! answer, and nothing else ends the operation. Until it completes, the network holds the memory
//! and the slot of each such operation, and its node stays in the table of addresses. Other slots
//! take the places of these ([`Network::spare`]), within the bound of
//! [`Config::lost`](crate::Config::lost).

use crate::{
    datagrams::Datagrams,
    link::Link,
    network::{Network, Node},
};
use petasos_fabric::{LostReason, Peer, Time};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    time::Duration,
};

/// Nodes that are not used any more and stay in the table of addresses, and how long any others do.
const RETIRED: usize = 32;
const RETIREMENT: Duration = Duration::from_secs(2);

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    /// By slot and generation of the peer.
    peers: BTreeMap<(u32, u32), Remains>,
    /// Pieces of accesses that are under way: whose.
    accesses: HashMap<(u32, u32), Peer>,
    count: usize,
    /// Since when there are more than there may be.
    crowded: Option<Time>,
    /// Nodes that are not used any more: until when they stay, and whose they were.
    retired: VecDeque<(Node, Time, Peer)>,
}

/// The operations that a lost peer left.
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

    /// Adds a lost peer, with these pieces of accesses.
    fn add(&mut self, link: &Link, accesses: impl Iterator<Item = (u32, u32)>) {
        let ((first, packets), running) = (link.out.serials(), link.out.running());
        let remains = Remains { first, packets, running, node: None };
        self.peers.insert((link.peer().index, link.peer().generation), remains);
        self.accesses.extend(accesses.map(|access| (access, link.peer())));
        self.count += running as usize;
    }

    /// An operation with a lost peer has completed. Returns a node that is to leave the table now.
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

    /// Whether anything is under way with this peer: then its node leaves the table when that has
    /// completed.
    fn keeps(&mut self, peer: Peer, node: Node) -> bool {
        let remains = self.peers.get_mut(&(peer.index, peer.generation));
        remains.map(|remains| remains.node = Some(node)).is_some()
    }
}

impl<N: Network> Datagrams<N> {
    /// A peer is lost, with operations under way.
    pub(crate) fn keep_lost(&mut self, link: &Link, accesses: Vec<(u32, u32)>) {
        if link.out.running() == 0 {
            return;
        }
        self.lost.add(link, accesses.into_iter());
        self.note_crowding();
        self.net.spare(self.lost.count.min(self.config.lost));
    }

    /// Keeps the time since which there are too many.
    fn note_crowding(&mut self) {
        match self.lost.count > self.config.lost {
            true => _ = self.lost.crowded.get_or_insert(self.now),
            false => self.lost.crowded = None,
        }
    }

    fn lost_done(&mut self, peer: Peer) {
        if let Some(node) = self.lost.take(peer) {
            self.retire_node(node, peer);
        }
        self.note_crowding();
    }

    /// The library has completed a packet whose peer is not there any more.
    #[cold]
    pub(crate) fn lost_packet_done(&mut self, index: u32, serial: u32) {
        let of = |remains: &Remains| serial.wrapping_sub(remains.first) < remains.packets;
        let found = self.lost.of_slot(index).find(|(_, remains)| of(remains));
        if let Some((peer, _)) = found {
            self.lost_done(peer);
        }
    }

    /// The same for a packet whose completion is not waited for.
    #[cold]
    pub(crate) fn lost_short_done(&mut self, index: u32, generation: u32) {
        self.lost_done(Peer { index, generation });
    }

    /// The same for a piece of an access, if it is of a lost peer.
    #[cold]
    pub(crate) fn lost_piece_done(&mut self, access: u32, serial: u32) {
        if let Some(peer) = self.lost.accesses.get(&(access, serial)).copied() {
            self.lost_done(peer);
        }
    }

    /// A node is not used any more. Libraries may still work for it, or find something of it in
    /// their queues, and not all of them tolerate one that has left the table. So it leaves later:
    /// when nothing is under way with it, and it had time to notice that the connection was closed.
    pub(crate) fn retire_node(&mut self, node: Node, peer: Peer) {
        let Datagrams { lost, net, now, .. } = self;
        lost.retired.push_back((node, now.after(RETIREMENT), peer));
        // The oldest of many leave the table of addresses when their time has come.
        while lost.retired.len() > RETIRED
            && let Some((node, until, peer)) = lost.retired.front().copied()
            && *now >= until
        {
            lost.retired.pop_front();
            // Operations that were not completed may refer to it.
            if !lost.keeps(peer, node) {
                net.remove(node);
            }
        }
    }

    /// The library has no room for an operation with this peer. If it never has again, the peer is
    /// lost.
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
            "the library has not completed {count} operations with peers that were lost, and has no room for more; \
             at most {most} may be so (`lost`)"
        );
        self.end(index, LostReason::System(why));
    }
}

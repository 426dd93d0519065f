//! Operations under way with peers that are lost.
//!
//! Not every library ever completes them: a process that was killed, or is stopped, does not
//! answer, and nothing else ends the operation. Until it completes, the network holds the memory
//! and the slot of each such operation, and its node stays in the table of addresses. Other slots
//! take the places of these ([`Network::spare`]), within the bound of
//! [`Config::lost`](crate::Config::lost).

use crate::{link::Link, network::Node};
use petasos_fabric::{Peer, Time};
use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

/// Nodes that are not used any more and stay in the table of addresses, and how long any others do.
const RETIRED: usize = 32;
const RETIREMENT: Duration = Duration::from_secs(2);

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    peers: HashMap<Peer, Remains>,
    count: usize,
    /// Since when there are more than there may be.
    crowded: Option<Time>,
    /// Nodes that are not used any more: until when they stay, and whose they were.
    retired: VecDeque<(Node, Time, Peer)>,
}

/// The operations that a lost peer left.
#[derive(Debug)]
struct Remains {
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

    /// Adds a lost peer.
    pub(crate) fn add(&mut self, link: &Link) {
        let running = link.out.running();
        self.peers.insert(link.peer(), Remains { running, node: None });
        self.count += running as usize;
    }

    /// An operation with a lost peer has completed. Returns a node that is to leave the table now.
    pub(crate) fn take(&mut self, peer: Peer) -> Option<Node> {
        let remains = self.peers.get_mut(&peer)?;
        self.count -= 1;
        remains.running -= 1;
        if remains.running > 0 {
            return None;
        }
        self.peers.remove(&peer)?.node
    }

    /// Keeps the time since which there are more than `most`.
    pub(crate) fn note_crowding(&mut self, most: usize, now: Time) {
        match self.count > most {
            true => _ = self.crowded.get_or_insert(now),
            false => self.crowded = None,
        }
    }

    /// Since when there are too many.
    pub(crate) fn crowded(&self) -> Option<Time> {
        self.crowded
    }

    /// A node is not used any more, and stays for a while.
    pub(crate) fn retire(&mut self, node: Node, peer: Peer, now: Time) {
        self.retired.push_back((node, now.after(RETIREMENT), peer));
    }

    /// If there are many such nodes, the oldest one whose time has come, and whose it was.
    pub(crate) fn pop_retired(&mut self, now: Time) -> Option<(Node, Peer)> {
        let (node, until, peer) = self.retired.front().copied()?;
        if self.retired.len() <= RETIRED || now < until {
            return None;
        }
        self.retired.pop_front();
        Some((node, peer))
    }

    /// Whether anything is under way with this peer: then its node leaves the table when that has
    /// completed.
    pub(crate) fn keeps(&mut self, peer: Peer, node: Node) -> bool {
        let remains = self.peers.get_mut(&peer);
        remains.map(|remains| remains.node = Some(node)).is_some()
    }
}

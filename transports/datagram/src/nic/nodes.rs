//! The nodes that a NIC reaches.

use super::packet::Header;
use petasos_channel::device::{Fault, Node};
use petasos_fabric::{Peer, Slice};
use std::collections::VecDeque;

/// What is to be sent to a node when there is room.
#[derive(Debug)]
pub(super) enum Owed {
    /// A header alone.
    Answer(Header),
    /// The rest of a put of ours: our memory, how much of it was sent, and whether the library
    /// writes the next part already.
    Put { header: Header, from: Slice, at: usize, written: bool },
    /// The rest of what the node gets from our memory: what it named, and how much is left.
    Parts { get: Header, left: usize },
}

/// A put that arrives in parts, one behind the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arriving {
    /// Where it begins, and how long it is so far.
    pub(super) offset: u64,
    pub(super) len: usize,
    /// The first fault.
    pub(super) failed: Option<Fault>,
}

/// A node that is up, or whose loss was not handed out yet.
#[derive(Debug)]
pub(super) struct Reached {
    pub(super) peer: Peer,
    /// It is lost, and the number is its own until the user has seen that.
    pub(super) lost: bool,
    /// Bytes of its packets that wait to be asked for.
    pub(super) stashed: usize,
    /// Puts and gets of ours that it has not answered.
    pub(super) asked: usize,
    /// Accesses to its memory that the library has not completed.
    pub(super) native: usize,
    pub(super) owed: VecDeque<Owed>,
    /// It is to be told that an immediate put of its was refused.
    pub(super) refused: Option<Fault>,
    /// A put of its, of which parts are still to come.
    pub(super) put: Option<Arriving>,
    /// It is in the list of those that are owed something.
    listed: bool,
    /// The user was refused, and is to be told when there is room.
    full: bool,
}

/// All of them, by their numbers, which are the slots of the peers.
#[derive(Debug, Default)]
pub(super) struct Reachable {
    list: Vec<Option<Reached>>,
    /// Those that are owed something.
    owed: Vec<u32>,
    /// Those to which the user waits for room.
    full: Vec<u32>,
}

impl Reachable {
    pub(super) fn add(&mut self, peer: Peer) -> Node {
        let index = peer.index as usize;
        if self.list.len() <= index {
            self.list.resize_with(index + 1, || None);
        }
        self.list[index] = Some(Reached {
            peer,
            lost: false,
            stashed: 0,
            asked: 0,
            native: 0,
            owed: VecDeque::new(),
            refused: None,
            put: None,
            listed: false,
            full: false,
        });
        Node(peer.index)
    }

    pub(super) fn remove(&mut self, node: Node) -> Option<Reached> {
        self.owed.retain(|index| *index != node.0);
        self.full.retain(|index| *index != node.0);
        self.list.get_mut(node.0 as usize)?.take()
    }

    /// The node in this slot, also one whose loss was not handed out yet.
    #[inline]
    pub(super) fn get_mut(&mut self, node: Node) -> Option<&mut Reached> {
        self.list.get_mut(node.0 as usize)?.as_mut()
    }

    /// The node in this slot, if it can be reached.
    #[inline]
    pub(super) fn live(&mut self, node: Node) -> Option<&mut Reached> {
        self.get_mut(node).filter(|reached| !reached.lost)
    }

    /// The number of a peer.
    #[inline]
    pub(super) fn node(&mut self, peer: Peer) -> Option<Node> {
        let node = Node(peer.index);
        self.live(node).filter(|reached| reached.peer == peer).map(|_| node)
    }

    /// Something is to be sent to a node.
    pub(super) fn owe(&mut self, node: Node) {
        if let Some(Some(reached)) = self.list.get_mut(node.0 as usize)
            && !std::mem::replace(&mut reached.listed, true)
        {
            self.owed.push(node.0);
        }
    }

    /// The nodes to which something is to be sent.
    pub(super) fn take_owed(&mut self) -> Vec<u32> {
        let owed = std::mem::take(&mut self.owed);
        for index in &owed {
            if let Some(Some(reached)) = self.list.get_mut(*index as usize) {
                reached.listed = false;
            }
        }
        owed
    }

    /// The user was refused.
    #[cold]
    pub(super) fn refuse(&mut self, node: Node) {
        if let Some(Some(reached)) = self.list.get_mut(node.0 as usize)
            && !std::mem::replace(&mut reached.full, true)
        {
            self.full.push(node.0);
        }
    }

    /// Takes out those nodes to which there is room again.
    pub(super) fn take_roomy(&mut self, has_room: impl Fn(&Reached) -> bool) -> Vec<Node> {
        let Reachable { list, full, .. } = self;
        let mut roomy = Vec::new();
        full.retain(|index| {
            let Some(Some(reached)) = list.get_mut(*index as usize) else { return false };
            let room = has_room(reached);
            if room {
                reached.full = false;
                roomy.push(Node(*index));
            }
            !room
        });
        roomy
    }

    /// Whether anything waits for room.
    pub(super) fn has_work(&self) -> bool {
        !self.owed.is_empty() || !self.full.is_empty()
    }

    pub(super) fn has_owed(&self) -> bool {
        !self.owed.is_empty()
    }

    pub(super) fn has_full(&self) -> bool {
        !self.full.is_empty()
    }
}

//! What an engine keeps of each peer: credit, what waits for it, what is done for it.

use petasos_fabric::{Address, Peer, RegionId};
use petasos_wire::rpc::CallId;
use std::collections::{HashMap, HashSet, VecDeque};

/// This engine itself, as a peer: calls to one's own address never reach the transport.
pub(crate) const SELF: Peer = Peer { index: u32::MAX, generation: u32::MAX };

/// No peer: there is never a record of it.
pub(crate) const NOWHERE: Peer = Peer { index: u32::MAX, generation: 0 };

/// Calls that a target is assumed to take before it has said so.
const FIRST_WINDOW: u32 = 32;

#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) peer: Peer,
    pub(crate) address: Address,
    /// How many calls of ours the peer takes at a time.
    pub(crate) window: u32,
    /// Calls of ours that the peer has not answered.
    pub(crate) outstanding: u32,
    /// Calls of ours that wait for credit.
    pub(crate) waiting: VecDeque<CallId>,
    /// Frames that the transport had no room for, in order.
    pub(crate) parked: VecDeque<Vec<u8>>,
    /// Frames go to the transport at once: none is pending, and it is not this engine itself.
    pub(crate) direct: bool,
    /// Calls of the peer's that are in progress here.
    pub(crate) serving: u32,
    /// Results that did not fit, until the peer has fetched them.
    pub(crate) lent: HashMap<CallId, RegionId>,
    /// There was a connection.
    pub(crate) was_up: bool,
}

impl Record {
    fn new(peer: Peer, address: Address) -> Record {
        Record {
            peer,
            address,
            window: FIRST_WINDOW,
            outstanding: 0,
            waiting: VecDeque::new(),
            parked: VecDeque::new(),
            direct: peer != SELF,
            serving: 0,
            lent: HashMap::new(),
            was_up: false,
        }
    }

    /// How many of the calls are in use that the peer may have here. Answers that it does not read
    /// and results that it does not fetch count as well; an answer may be both.
    #[inline]
    pub(crate) fn used(&self) -> usize {
        self.serving as usize + self.parked.len().max(self.lent.len())
    }

    /// Whether another call of ours may go at once.
    #[inline]
    pub(crate) fn has_credit(&self) -> bool {
        self.outstanding < self.window && self.waiting.is_empty()
    }
}

#[derive(Debug)]
pub(crate) struct Peers {
    table: Vec<Option<Box<Record>>>,
    own: Box<Record>,
}

impl Peers {
    pub(crate) fn new(own: Address) -> Peers {
        Peers { table: Vec::new(), own: Box::new(Record::new(SELF, own)) }
    }

    /// Whether there is a record.
    #[inline]
    pub(crate) fn knows(&self, peer: Peer) -> bool {
        match self.table.get(peer.index as usize) {
            Some(Some(record)) => record.peer == peer,
            _ => peer == SELF,
        }
    }

    #[inline]
    pub(crate) fn get(&mut self, peer: Peer) -> Option<&mut Record> {
        match self.table.get_mut(peer.index as usize) {
            Some(Some(record)) if record.peer == peer => Some(record),
            _ if peer == SELF => Some(&mut self.own),
            _ => None,
        }
    }

    /// Makes a record for a peer that has none.
    pub(crate) fn add(&mut self, peer: Peer, address: Address) {
        let at = peer.index as usize;
        if self.table.len() <= at {
            self.table.resize_with(at + 1, || None);
        }
        self.table[at] = Some(Box::new(Record::new(peer, address)));
    }

    pub(crate) fn remove(&mut self, peer: Peer) -> Option<Box<Record>> {
        self.get(peer)?;
        self.table.get_mut(peer.index as usize)?.take()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Record> {
        self.table.iter().flatten().map(|record| &**record).chain([&*self.own])
    }
}

/// Addresses at which there was a peer before: what has not started yet is waited for, what has
/// ended need not be.
#[derive(Debug, Default)]
pub(crate) struct Reached(HashSet<Address>);

impl Reached {
    /// So many are known at most; then all are forgotten, and calls wait for a refused connection
    /// once more.
    const MOST: usize = 4096;

    pub(crate) fn note(&mut self, address: &Address) {
        if self.0.len() >= Self::MOST {
            self.0.clear();
        }
        if !self.0.contains(address) {
            self.0.insert(address.clone());
        }
    }

    pub(crate) fn knows(&self, address: &Address) -> bool {
        self.0.contains(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_reached_is_bounded() {
        let address = |n: usize| Address::parse(&format!("self://{n}")).unwrap();
        let mut reached = Reached::default();
        for n in 0..2 * Reached::MOST {
            reached.note(&address(n));
            reached.note(&address(n));
            assert!(reached.knows(&address(n)) && reached.0.len() <= Reached::MOST);
        }
        assert!(!reached.knows(&address(0)));
    }
}

//! What an engine keeps of each peer: credit, what waits for it, what is done for it.

use petasos_fabric::{Address, Peer, RegionId};
use petasos_wire::rpc::CallId;
use std::collections::{HashMap, VecDeque};

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
    /// Frames go to the transport at once: none is parked, and it is not this engine itself.
    pub(crate) direct: bool,
    /// Calls of the peer's that are in progress here.
    pub(crate) serving: u32,
    /// Results that did not fit, until the peer has fetched them.
    pub(crate) lent: HashMap<CallId, RegionId>,
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

//! What an engine keeps of each peer: credit, what waits for it, what is done for it.

use crate::Usage;
use petasos_fabric::{Address, Peer, RegionId};
use petasos_wire::rpc::CallId;
use std::collections::{HashMap, HashSet, VecDeque};

/// This engine itself, as a peer: calls to one's own address never reach the transport.
pub(crate) const SELF: Peer = Peer { index: u32::MAX, generation: u32::MAX };

/// No peer: there is never a record of it.
pub(crate) const NO_PEER: Peer = Peer { index: u32::MAX, generation: 0 };

/// Calls that a target is assumed to take before it has said so.
const FIRST_WINDOW: u32 = 32;

#[derive(Debug)]
pub(crate) struct Record {
    peer: Peer,
    address: Address,
    /// How many calls of ours the peer takes at a time.
    window: u32,
    /// Calls of ours that the peer has not answered.
    outstanding: u32,
    /// Calls of ours that wait for credit.
    waiting: VecDeque<CallId>,
    /// Frames that the transport had no room for, in order.
    deferred: VecDeque<Vec<u8>>,
    /// Frames go to the transport at once: none is deferred, and it is not this engine itself.
    direct: bool,
    /// Calls of the peer's that are in progress here.
    serving: u32,
    /// Results that did not fit, until the peer has fetched them.
    lent: HashMap<CallId, RegionId>,
    /// There was a connection.
    was_up: bool,
}

impl Record {
    fn new(peer: Peer, address: Address) -> Record {
        Record {
            peer,
            address,
            window: FIRST_WINDOW,
            outstanding: 0,
            waiting: VecDeque::new(),
            deferred: VecDeque::new(),
            direct: peer != SELF,
            serving: 0,
            lent: HashMap::new(),
            was_up: false,
        }
    }

    #[inline(always)]
    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    // Calls of ours.

    /// Whether another call of ours may go at once.
    #[inline(always)]
    pub(crate) fn has_credit(&self) -> bool {
        self.outstanding < self.window && self.waiting.is_empty()
    }

    /// A call of ours goes.
    #[inline(always)]
    pub(crate) fn take_credit(&mut self) {
        self.outstanding += 1;
    }

    /// The peer has answered a call of ours. It may have said how many it takes. True if calls
    /// wait for credit.
    #[inline(always)]
    pub(crate) fn return_credit(&mut self, window: Option<u16>) -> bool {
        if let Some(window) = window {
            self.set_window(window);
        }
        self.outstanding = self.outstanding.saturating_sub(1);
        !self.waiting.is_empty()
    }

    /// The peer says how many calls it takes at a time.
    #[inline(always)]
    pub(crate) fn set_window(&mut self, window: u16) {
        self.window = u32::from(window.max(1));
    }

    /// Has a call of ours wait for credit. False if `most` wait already.
    pub(crate) fn queue_call(&mut self, call: CallId, most: usize) -> bool {
        let room = self.waiting.len() < most;
        if room {
            self.waiting.push_back(call);
        }
        room
    }

    /// The next call of ours that waits, if there is credit for it.
    pub(crate) fn next_queued_call(&mut self) -> Option<CallId> {
        if self.outstanding < self.window { self.waiting.pop_front() } else { None }
    }

    // Frames.

    /// Whether the next frame goes to the transport at once.
    #[inline(always)]
    pub(crate) fn is_direct(&self) -> bool {
        self.direct
    }

    /// Keeps a frame until the transport has room. True if it is the first.
    pub(crate) fn defer(&mut self, frame: Vec<u8>) -> bool {
        self.deferred.push_back(frame);
        std::mem::replace(&mut self.direct, false)
    }

    pub(crate) fn deferred_len(&self) -> usize {
        self.deferred.len()
    }

    /// Sends the deferred frames in order, until `send` finds no room. True if none is left, and
    /// some were there.
    pub(crate) fn resume(&mut self, mut send: impl FnMut(&[u8]) -> bool) -> bool {
        while let Some(frame) = self.deferred.front() {
            if !send(frame) {
                return false;
            }
            self.deferred.pop_front();
        }
        !std::mem::replace(&mut self.direct, true)
    }

    // Calls of the peer's.

    /// How many of the calls are in use that the peer may have here. Answers that it does not read
    /// and results that it does not fetch count as well; an answer may be both.
    #[inline(always)]
    pub(crate) fn used(&self) -> usize {
        self.serving as usize + self.deferred.len().max(self.lent.len())
    }

    /// A call of the peer's goes on in a task.
    pub(crate) fn begin_serving(&mut self) {
        self.serving += 1;
    }

    pub(crate) fn end_serving(&mut self) {
        self.serving = self.serving.saturating_sub(1);
    }

    /// The result of this call is lent to the peer. Returns what was lent for the same call before.
    pub(crate) fn lend_result(&mut self, call: CallId, region: RegionId) -> Option<RegionId> {
        self.lent.insert(call, region)
    }

    /// The peer has fetched the result of this call.
    pub(crate) fn take_result(&mut self, call: CallId) -> Option<RegionId> {
        self.lent.remove(&call)
    }

    /// All results that are lent to the peer.
    pub(crate) fn lent_results(&self) -> impl Iterator<Item = RegionId> {
        self.lent.values().copied()
    }
}

#[derive(Debug)]
pub(crate) struct Peers {
    table: Vec<Option<Box<Record>>>,
    own: Box<Record>,
    reached: Reached,
}

impl Peers {
    pub(crate) fn new(own: Address) -> Peers {
        let own = Box::new(Record::new(SELF, own));
        Peers { table: Vec::new(), own, reached: Reached::default() }
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

    /// A peer is connected.
    pub(crate) fn set_up(&mut self, peer: Peer) {
        let Some(Some(record)) = self.table.get_mut(peer.index as usize) else { return };
        if record.peer == peer {
            record.was_up = true;
            // A program that asks for it again may know of its end before this engine does.
            self.reached.note(&record.address);
        }
    }

    /// Removes a peer that is lost.
    pub(crate) fn remove(&mut self, peer: Peer) -> Option<Box<Record>> {
        self.get(peer)?;
        let record = self.table.get_mut(peer.index as usize)?.take()?;
        if record.was_up {
            self.reached.note(&record.address);
        }
        Some(record)
    }

    /// Whether a peer was connected at this address before.
    pub(crate) fn was_reached(&self, address: &Address) -> bool {
        self.reached.knows(address)
    }

    /// Adds up what is kept of all peers.
    pub(crate) fn count(&self, usage: &mut Usage) {
        let records = self.table.iter().flatten().map(|record| &**record);
        for record in records.chain([&*self.own]) {
            usage.credit += record.outstanding as usize;
            usage.waiting += record.waiting.len();
            usage.serving += record.serving as usize;
            usage.lent_results += record.lent.len();
            usage.deferred += record.deferred.len();
        }
    }
}

/// Addresses at which there was a peer before. A call waits for a peer that has not started yet;
/// it need not wait for one that has ended.
#[derive(Debug, Default)]
struct Reached(HashSet<Address>);

impl Reached {
    /// So many are known at most; then all are forgotten, and calls wait for a refused connection
    /// once more.
    const MOST: usize = 4096;

    fn note(&mut self, address: &Address) {
        if self.0.len() >= Self::MOST {
            self.0.clear();
        }
        if !self.0.contains(address) {
            self.0.insert(address.clone());
        }
    }

    fn knows(&self, address: &Address) -> bool {
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

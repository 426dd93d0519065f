//! Which connections are read next.

use crate::poller::Source;
use petasos_fabric::Peer;
use std::collections::VecDeque;

/// With so few busy connections each is read without a poll, which saves a system call.
pub(crate) const FEW: usize = 2;
/// Every so many passes all connections are polled.
const ALL: u32 = 32;

/// The connections that are read without being reported, and those that were not read to the end.
#[derive(Debug, Default)]
pub(crate) struct ReadQueue {
    /// Connections on which something came lately.
    busy: Vec<Peer>,
    /// Connections that were not read to the end, each once, in turn.
    unread: VecDeque<Peer>,
    /// The last pass took as much as it may: others may have more to say than the busy ones.
    filled: bool,
    passes: u32,
    /// What the last poll reported: kept for its memory.
    pub(crate) ready: Vec<Source>,
}

impl ReadQueue {
    /// Another pass. True if the busy connections are enough for it: they are few, and all others
    /// were polled a short while ago.
    pub(crate) fn begin_pass(&mut self) -> bool {
        self.passes = self.passes.wrapping_add(1);
        let few = (1..=FEW).contains(&self.busy.len());
        few && !self.filled && !self.passes.is_multiple_of(ALL)
    }

    /// The pass is over; `filled` if it took as much as it may.
    pub(crate) fn end_pass(&mut self, filled: bool) {
        self.filled = filled;
    }

    pub(crate) fn busy(&self) -> &[Peer] {
        &self.busy
    }

    /// The busy connection at this place of the list is not busy any more.
    pub(crate) fn remove_busy(&mut self, at: usize) {
        self.busy.swap_remove(at);
    }

    /// Something came on a connection.
    pub(crate) fn add_busy(&mut self, peer: Peer) {
        if self.busy.len() <= FEW && !self.busy.contains(&peer) {
            self.busy.push(peer);
        }
    }

    /// Where many are busy, the poller is cheaper: those that still are will be reported.
    pub(crate) fn end_poll(&mut self) {
        if self.busy.len() > FEW {
            self.busy.clear();
        }
    }

    /// A connection was not read to the end.
    pub(crate) fn add_unread(&mut self, peer: Peer) {
        self.unread.push_back(peer);
    }

    /// How many were not read to the end.
    pub(crate) fn unread(&self) -> usize {
        self.unread.len()
    }

    pub(crate) fn next_unread(&mut self) -> Option<Peer> {
        self.unread.pop_front()
    }
}

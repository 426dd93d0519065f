//! The peers of an endpoint: a small entry for each, and more for those with traffic.

use crate::{
    Garbage,
    device::Node,
    flow::Flow,
    header::distance,
    policy::{Hot, Traffic},
};
use petasos_fabric::{Peer, Time};
use std::collections::VecDeque;

/// Lost peers that connected to us, whose handles are still known.
const REMEMBERED: usize = 64;

/// What is kept for every peer.
#[derive(Debug, Default)]
pub(crate) struct Entry {
    node: Option<Node>,
    /// The number of the next record to it.
    next_out: u32,
    /// It has acknowledged all records before this one.
    heard: u32,
    /// The number of the next record from it.
    next_in: u32,
    /// We have acknowledged all records before this one.
    told: u32,
    traffic: Traffic,
    /// The program has resolved the peer.
    resolved: bool,
    flow: Option<Box<Flow>>,
}

impl Entry {
    #[inline]
    pub(crate) fn next_out(&self) -> u32 {
        self.next_out
    }

    /// The record with this number was sent.
    #[inline]
    pub(crate) fn record_sent(&mut self, seq: u32) {
        self.next_out = seq.wrapping_add(1);
    }

    #[inline]
    pub(crate) fn next_in(&self) -> u32 {
        self.next_in
    }

    /// The next record from the peer was taken.
    #[inline]
    pub(crate) fn record_taken(&mut self) {
        self.next_in = self.next_in.wrapping_add(1);
    }

    /// The peer has acknowledged all records before this one.
    #[inline]
    pub(crate) fn acknowledged(&self) -> u32 {
        self.heard
    }

    /// Takes in an acknowledgement. False if it says nothing new.
    ///
    /// # Errors
    /// It acknowledges what was never sent.
    #[inline]
    pub(crate) fn acknowledge(&mut self, ack: u32) -> Result<bool, Garbage> {
        if distance(ack, self.next_out) < 0 {
            return Err(Garbage::new("an acknowledgement of what was never sent", ack.into()));
        }
        // A later acknowledgement may have overtaken this one.
        let news = distance(self.heard, ack) > 0;
        if news {
            self.heard = ack;
        }
        Ok(news)
    }

    /// Whether it has not acknowledged all records that were sent.
    pub(crate) fn has_records_under_way(&self) -> bool {
        self.heard != self.next_out
    }

    /// We have acknowledged all records before this one.
    #[inline]
    pub(crate) fn told(&self) -> u32 {
        self.told
    }

    /// An acknowledgement was sent. False if it said nothing new.
    #[inline]
    pub(crate) fn tell(&mut self, ack: u32) -> bool {
        std::mem::replace(&mut self.told, ack) != ack
    }

    /// Counts a message to the peer, and says whether the peer is hot.
    #[inline]
    pub(crate) fn count_message(&mut self, hot: &Hot, now: Time) -> bool {
        self.traffic.note(hot, now)
    }

    #[inline]
    pub(crate) fn is_resolved(&self) -> bool {
        self.resolved
    }

    #[inline]
    pub(crate) fn set_resolved(&mut self) {
        self.resolved = true;
    }

    #[inline]
    pub(crate) fn node(&self) -> Option<Node> {
        self.node
    }

    #[inline]
    pub(crate) fn clear_node(&mut self) {
        self.node = None;
    }

    /// Takes the flow out of the entry, if there is one.
    #[inline]
    pub(crate) fn into_flow(self) -> Option<Box<Flow>> {
        self.flow
    }
}

/// All peers.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    /// By the peer's slot.
    entries: Vec<Entry>,
    /// By node: the peer's slot plus 1, or 0.
    nodes: Vec<u32>,
    /// The slots of peers with a flow.
    active: Vec<u32>,
    /// Lost peers that connected to us, oldest first.
    lost: VecDeque<Peer>,
}

impl Peers {
    /// Makes an entry for a new peer.
    pub(crate) fn add(&mut self, peer: Peer, resolved: bool) {
        let index = peer.index as usize;
        if self.entries.len() <= index {
            if self.entries.capacity() <= index {
                self.entries.reserve_exact(16 + self.entries.len() / 8);
            }
            self.entries.resize_with(index + 1, Entry::default);
        }
        self.entries[index] = Entry { resolved, ..Entry::default() };
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> &Entry {
        &self.entries[index as usize]
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut Entry {
        &mut self.entries[index as usize]
    }

    /// Takes a peer's entry out.
    pub(crate) fn remove(&mut self, index: u32) -> Entry {
        let entry = std::mem::take(&mut self.entries[index as usize]);
        if let Some(node) = entry.node {
            self.nodes[node.0 as usize] = 0;
        }
        if entry.flow.is_some() {
            self.active.retain(|active| *active != index);
        }
        entry
    }

    // Nodes.

    /// The node of a peer that is up; `None` for a slot that is not in use, too.
    #[inline]
    pub(crate) fn node(&self, index: u32) -> Option<Node> {
        self.entries.get(index as usize)?.node
    }

    /// The slot of the peer at a node.
    #[inline]
    pub(crate) fn at_node(&self, node: Node) -> Option<u32> {
        self.nodes.get(node.0 as usize)?.checked_sub(1)
    }

    /// The peer is reached at this node.
    pub(crate) fn set_node(&mut self, index: u32, node: Node) {
        let slot = node.0 as usize;
        if self.nodes.len() <= slot {
            self.nodes.resize(slot + 1, 0);
        }
        self.nodes[slot] = index + 1;
        self.entries[index as usize].node = Some(node);
    }

    /// No peer is reached at this node any more.
    #[inline]
    pub(crate) fn forget_node(&mut self, node: Node) {
        self.nodes[node.0 as usize] = 0;
    }

    // Flows.

    /// Takes a flow out, to be put back; makes one if there is none.
    #[inline]
    pub(crate) fn open_flow(&mut self, index: u32) -> Box<Flow> {
        let flow = self.entries[index as usize].flow.take();
        let mut flow = flow.unwrap_or_else(|| {
            self.active.push(index);
            Box::default()
        });
        flow.used = true;
        flow
    }

    /// Takes a flow out, to be put back, if there is one.
    #[inline]
    pub(crate) fn take_flow(&mut self, index: u32) -> Option<Box<Flow>> {
        self.entries[index as usize].flow.take()
    }

    #[inline]
    pub(crate) fn put_flow(&mut self, index: u32, flow: Box<Flow>) {
        self.entries[index as usize].flow = Some(flow);
    }

    #[inline]
    pub(crate) fn flow(&self, index: u32) -> Option<&Flow> {
        self.entries[index as usize].flow.as_deref()
    }

    #[inline]
    pub(crate) fn flow_mut(&mut self, index: u32) -> Option<&mut Flow> {
        self.entries[index as usize].flow.as_deref_mut()
    }

    /// Peers with a flow.
    #[inline]
    pub(crate) fn active(&self) -> &[u32] {
        &self.active
    }

    /// Drops the flows that were not used since the last call and hold nothing. `dropped` is called
    /// with the slot of each.
    pub(crate) fn drop_idle_flows(&mut self, now: Time, mut dropped: impl FnMut(u32)) {
        let Peers { entries, active, .. } = self;
        active.retain(|index| {
            let slot = &mut entries[*index as usize].flow;
            let Some(flow) = slot else { return false };
            flow.end_refusal(now);
            let keep = std::mem::take(&mut flow.used) || !flow.is_idle();
            if !keep {
                *slot = None;
                dropped(*index);
            }
            keep
        });
        active.shrink_to(2 * active.len());
    }

    // Lost peers.

    /// Remembers the handle of a lost peer that connected to us. Returns one that is to be
    /// forgotten.
    pub(crate) fn remember_lost(&mut self, peer: Peer) -> Option<Peer> {
        self.lost.push_back(peer);
        if self.lost.len() > REMEMBERED { self.lost.pop_front() } else { None }
    }
}

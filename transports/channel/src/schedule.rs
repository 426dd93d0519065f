//! Which peers have something to send or to deliver, and what waits for a time.

use crate::{deferred::Deferred, flow::Flow};
use petasos_fabric::{Peer, Time};
use std::{collections::VecDeque, time::Duration};

/// Lists of peers, by their slots. A peer is at most once in each.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    /// Peers with something to send.
    output: VecDeque<u32>,
    /// Peers with something to deliver.
    input: VecDeque<u32>,
    /// Deferred packets of these.
    waiting: usize,
    /// Peers that wait for memory to lend.
    starved_output: Vec<u32>,
    /// Peers that wait for memory to fetch into.
    starved_input: Vec<u32>,
    /// Acknowledgements that wait for a record to ride on: until when.
    acks: VecDeque<(Time, Peer)>,
    /// When idle flows are dropped next.
    sweep: Time,
}

impl Schedule {
    // Output.

    /// The peer has something to send, or may go on.
    #[inline]
    pub(crate) fn list_output(&mut self, index: u32, flow: &mut Flow) {
        if !flow.in_output {
            flow.in_output = true;
            self.output.push_back(index);
        }
    }

    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    #[inline]
    pub(crate) fn output_len(&self) -> usize {
        self.output.len()
    }

    /// The next peer that may send.
    #[inline]
    pub(crate) fn pop_output(&mut self) -> Option<u32> {
        self.output.pop_front()
    }

    // Input.

    /// The peer may have something to deliver.
    #[inline]
    pub(crate) fn list_input(&mut self, index: u32, flow: &mut Flow) {
        if !flow.in_input {
            flow.in_input = true;
            self.waiting += flow.deferred.len();
            self.input.push_back(index);
        }
    }

    /// The peer, which was taken from the list, or is gone, has nothing to deliver for now: what is
    /// deferred of it waits for the peer itself.
    #[inline]
    pub(crate) fn input_taken(&mut self, flow: &mut Flow) {
        if std::mem::take(&mut flow.in_input) {
            self.waiting -= flow.deferred.len();
        }
    }

    /// A packet of the peer is deferred.
    #[inline]
    pub(crate) fn defer(&mut self, index: u32, flow: &mut Flow, packet: Deferred) {
        self.list_input(index, flow);
        self.waiting += 1;
        flow.deferred.push_back(packet);
    }

    /// The first deferred packet of the peer.
    #[inline]
    pub(crate) fn undefer(&mut self, flow: &mut Flow) -> Option<Deferred> {
        let packet = flow.deferred.pop_front()?;
        self.waiting -= usize::from(flow.in_input);
        Some(packet)
    }

    /// Deferred packets that wait for this side: they are of peers that may have something to
    /// deliver. All others wait for their own sender, whose memory is being fetched, or of which an
    /// earlier record is missing.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    #[inline]
    pub(crate) fn has_input(&self) -> bool {
        !self.input.is_empty()
    }

    #[inline]
    pub(crate) fn input_len(&self) -> usize {
        self.input.len()
    }

    #[inline]
    pub(crate) fn first_input(&self) -> Option<u32> {
        self.input.front().copied()
    }

    #[inline]
    pub(crate) fn pop_input(&mut self) -> Option<u32> {
        self.input.pop_front()
    }

    /// The first peer with input becomes the last.
    #[inline]
    pub(crate) fn rotate_input(&mut self) {
        self.input.rotate_left(1);
    }

    // Peers that wait for memory.

    pub(crate) fn starve_output(&mut self, index: u32) {
        if !self.starved_output.contains(&index) {
            self.starved_output.push(index);
        }
    }

    pub(crate) fn starve_input(&mut self, index: u32) {
        if !self.starved_input.contains(&index) {
            self.starved_input.push(index);
        }
    }

    pub(crate) fn take_starved_output(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.starved_output)
    }

    pub(crate) fn take_starved_input(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.starved_input)
    }

    // Timers.

    /// An acknowledgement to this peer may wait until then. Times are in order.
    #[inline]
    pub(crate) fn delay_ack(&mut self, until: Time, peer: Peer) {
        self.acks.push_back((until, peer));
    }

    /// The next peer whose acknowledgement has waited long enough.
    #[inline]
    pub(crate) fn pop_due_ack(&mut self, now: Time) -> Option<Peer> {
        let due = self.acks.front().is_some_and(|(until, _)| *until <= now);
        due.then(|| self.acks.pop_front()).flatten().map(|(_, peer)| peer)
    }

    /// Whether idle flows are to be dropped now, as every `interval`.
    #[inline]
    pub(crate) fn sweep_is_due(&mut self, now: Time, interval: Duration) -> bool {
        let due = now >= self.sweep;
        if due {
            self.sweep = now.after(interval);
        }
        due
    }

    /// When the next timer ends. `active` says whether there are flows.
    #[inline]
    pub(crate) fn deadline(&self, active: bool) -> Time {
        let ack = self.acks.front().map_or(Time::NEVER, |(until, _)| *until);
        if active { ack.min(self.sweep) } else { ack }
    }
}

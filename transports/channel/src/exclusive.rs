//! Control packets: acknowledgements, and how exclusive channels are granted and recalled.

use crate::{
    Channels, Device, Force, Garbage,
    device::{Class, Target},
    events::fifo_tag,
    fifo::{self, CELL, ReceiveFifo, SendFifo},
    flow::{Flow, In, InFifo, Out, OutFifo},
    header::{Header, Kind, grant, granted},
    policy::{Share, Verdict},
};
use petasos_fabric::{Access, Peer, Time};
use std::collections::VecDeque;

/// Which peers have exclusive channels, or wait for one.
#[derive(Debug, Default)]
pub(crate) struct Exclusives {
    /// Peers to which there is a channel, or one was asked for.
    out: Vec<u32>,
    /// Peers from which there is one.
    inward: Vec<u32>,
    /// Peers that wait until another has given its channel back, in order.
    waiting: VecDeque<Peer>,
}

impl Exclusives {
    /// There is no channel to this peer any more.
    pub(crate) fn remove_out(&mut self, index: u32) {
        self.out.retain(|peer| *peer != index);
    }
}

impl<D: Device> Channels<D> {
    // Acknowledgements.

    /// The number before which all records of a peer have been taken.
    pub(crate) fn taken(&self, index: u32, flow: &Flow) -> u32 {
        let fetching = flow.assembly.as_ref().and_then(|assembly| assembly.lent.front());
        fetching.map_or(self.peers.get(index).next_in(), |(seq, _)| *seq)
    }

    /// An acknowledgement was sent: in a packet of its own, if it was `explicit`.
    pub(crate) fn acknowledgement_sent(
        &mut self,
        index: u32,
        flow: &mut Flow,
        ack: u32,
        explicit: bool,
    ) {
        if self.peers.get_mut(index).tell(ack) {
            match explicit {
                true => self.counters.acks_explicit += 1,
                false => self.counters.acks_ridden += 1,
            }
        }
        (flow.records, flow.cells, flow.urgent) = (0, 0, false);
    }

    /// Acknowledges now, if that is needed, or sets the timer.
    pub(crate) fn settle_ack(&mut self, peer: Peer, flow: &mut Flow) {
        if self.taken(peer.index, flow) == self.peers.get(peer.index).told() {
            return;
        }
        let (cells, leaving) = match &flow.inward {
            In::Open(inward) => (inward.fifo.cells(), inward.leaving),
            _ => (u32::MAX, false),
        };
        let many = flow.records >= self.config.window / 2 || flow.cells >= cells / 4;
        if many || leaving || flow.urgent {
            flow.control.ack = true;
            self.flush_control(peer.index, flow);
        } else if !flow.timed {
            flow.timed = true;
            self.schedule.delay_ack(self.now.after(self.config.ack_delay), peer);
        }
    }

    /// Acknowledges where no record came along to ride on, and drops idle flows.
    pub(crate) fn run_timers(&mut self) {
        while let Some(peer) = self.schedule.pop_due_ack(self.now) {
            if self.engine.peer_at(peer.index) != Some(peer) {
                continue;
            }
            let Some(mut flow) = self.peers.take_flow(peer.index) else { continue };
            flow.timed = false;
            if self.taken(peer.index, &flow) != self.peers.get(peer.index).told() {
                flow.control.ack = true;
                self.flush_control(peer.index, &mut flow);
            }
            self.peers.put_flow(peer.index, flow);
        }
        if self.schedule.sweep_is_due(self.now, self.config.idle) {
            let Channels { peers, engine, .. } = self;
            peers.drop_idle_flows(self.now, |index| {
                if let Some(peer) = engine.peer_at(index) {
                    engine.trim(peer);
                }
            });
        }
    }

    // Control packets.

    /// Sends the control packets that are due, as far as there is room.
    pub(crate) fn flush_control(&mut self, index: u32, flow: &mut Flow) {
        let Some(node) = self.peers.node(index).filter(|_| flow.control.any()) else { return };
        loop {
            let control = &flow.control;
            let (kind, body) = if control.closed {
                (Kind::Closed, Vec::new())
            } else if control.ask {
                (Kind::Ask, self.config.exclusive.cells.to_le_bytes().to_vec())
            } else if control.recall {
                (Kind::Recall, Vec::new())
            } else if control.refuse {
                (Kind::Refuse, Vec::new())
            } else if let In::Open(inward) = &flow.inward
                && control.grant
            {
                (Kind::Grant, grant(inward.fifo.cells(), &inward.key))
            } else if control.ack {
                (Kind::Ack, Vec::new())
            } else {
                return;
            };
            let ack = self.taken(index, flow);
            let header = Header { len: body.len() as u32, seq: 0, ack, kind, flags: 0 };
            if self
                .port
                .device_mut()
                .send(node, Class::Control, &[&header.encode(), &body])
                .is_err()
            {
                self.counters.retries += 1;
                return;
            }
            match kind {
                Kind::Closed => flow.control.closed = false,
                Kind::Ask => flow.control.ask = false,
                Kind::Recall => flow.control.recall = false,
                Kind::Refuse => flow.control.refuse = false,
                Kind::Grant => flow.control.grant = false,
                Kind::Ack | Kind::Record => {}
            }
            flow.control.ack = false;
            self.acknowledgement_sent(index, flow, ack, true);
        }
    }

    /// A control packet came.
    pub(crate) fn control(&mut self, peer: Peer, packet: &[u8]) -> Result<(), Garbage> {
        let mut flow = self.peers.open_flow(peer.index);
        let result = self.control_within(peer, &mut flow, packet);
        self.peers.put_flow(peer.index, flow);
        result
    }

    fn control_within(
        &mut self,
        peer: Peer,
        flow: &mut Flow,
        packet: &[u8],
    ) -> Result<(), Garbage> {
        let (header, body) = self.read_header(peer, flow, packet)?;
        let index = peer.index;
        match header.kind {
            Kind::Ask | Kind::Grant => {}
            Kind::Record => return Err(Garbage::new("a record as a control packet", 0)),
            _ if !body.is_empty() => {
                return Err(Garbage::new("a body where none belongs", header.len.into()));
            }
            _ => {}
        }
        match header.kind {
            Kind::Ack | Kind::Record => {}
            Kind::Ask => {
                let cells = body.try_into().map(u32::from_le_bytes);
                let cells = cells.unwrap_or(0).min(self.config.exclusive.cells);
                if cells < fifo::MIN_CELLS || !matches!(flow.inward, In::None) {
                    return Err(Garbage::new("an invalid request for a channel", 0));
                }
                self.channel_asked_for(peer, flow, cells);
            }
            Kind::Grant => {
                let (cells, key) = granted(body)?;
                let most = self.config.exclusive.cells;
                if !matches!(flow.out, Out::Asked) || !(fifo::MIN_CELLS..=most).contains(&cells) {
                    return Err(Garbage::new("a channel that was not asked for", cells.into()));
                }
                let fifo = SendFifo::new(cells);
                match self.port.device_mut().register(&fifo.image().whole(), Access::NONE, 0) {
                    Ok((registration, _)) => {
                        flow.fifo_used = self.now;
                        let target = Target { key, offset: 0 };
                        flow.out = Out::Open(Box::new(OutFifo { fifo, target, registration }));
                    }
                    Err(_) => {
                        self.exclusives.remove_out(index);
                        flow.out = Out::Refused(self.now.after(self.config.exclusive.pause));
                        flow.control.closed = true;
                        self.flush_control(index, flow);
                    }
                }
                self.schedule.list_output(index, flow);
            }
            Kind::Refuse => {
                if !matches!(flow.out, Out::Asked) {
                    return Err(Garbage::new("a refusal that was not asked for", 0));
                }
                self.counters.denied += 1;
                self.exclusives.remove_out(index);
                flow.out = Out::Refused(self.now.after(self.config.exclusive.pause));
                self.schedule.list_output(index, flow);
            }
            Kind::Recall => self.close_out(index, flow),
            Kind::Closed => {
                let In::Open(inward) = &mut flow.inward else {
                    return Err(Garbage::new("an end of a channel that does not exist", 0));
                };
                if let Some(front) = inward.fifo.front()? {
                    return Err(Garbage::new(
                        "a record in a channel that ended",
                        front.seq().into(),
                    ));
                }
                self.end_inward(index, flow);
            }
        }
        Ok(())
    }

    // As a sender.

    /// A peer is worth an exclusive channel: asks for one.
    pub(crate) fn ask_for_channel(&mut self, index: u32, flow: &mut Flow) {
        match flow.out {
            Out::None => {}
            Out::Refused(until) if self.now >= until => {}
            _ => return,
        }
        let bytes = self.config.exclusive.cells as usize * CELL;
        let shares: Vec<Share> =
            self.exclusives.out.iter().filter_map(|peer| self.share_out(*peer)).collect();
        match self.config.exclusive.keep.decide(&shares, bytes, 0, self.now) {
            Verdict::Grant => {
                self.exclusives.out.push(index);
                flow.out = Out::Asked;
                flow.control.ask = true;
                self.flush_control(index, flow);
            }
            Verdict::Take(victim) => {
                flow.out = Out::None;
                let Some(mut other) = self.peers.take_flow(victim) else { return };
                self.close_out(victim, &mut other);
                self.peers.put_flow(victim, other);
            }
            Verdict::Wait => flow.out = Out::None,
            Verdict::Refuse => flow.out = Out::Refused(self.now.after(self.config.exclusive.pause)),
        }
    }

    fn share_out(&self, index: u32) -> Option<Share> {
        let flow = self.peers.flow(index)?;
        let bytes = self.config.exclusive.cells as usize * CELL;
        let (used, leaving) = match &flow.out {
            Out::Asked => (Time::NEVER, false),
            Out::Closing(_) => (flow.fifo_used, true),
            _ => (flow.fifo_used, false),
        };
        Some(Share { holder: index, bytes, used, leaving })
    }

    /// No more goes through the exclusive channel to a peer.
    fn close_out(&mut self, index: u32, flow: &mut Flow) {
        match std::mem::take(&mut flow.out) {
            Out::Open(out) => flow.out = Out::Closing(out),
            other => flow.out = other,
        }
        self.close_drained(index, flow);
        self.schedule.list_output(index, flow);
    }

    /// Ends an exclusive channel whose records have all been taken.
    pub(crate) fn close_drained(&mut self, index: u32, flow: &mut Flow) {
        let Out::Closing(out) = &flow.out else { return };
        if out.fifo.is_drained() {
            self.port.device_mut().deregister(out.registration, None);
            self.exclusives.remove_out(index);
            flow.out = Out::None;
            flow.control.closed = true;
            self.flush_control(index, flow);
        }
    }

    // As a receiver.

    fn channel_asked_for(&mut self, peer: Peer, flow: &mut Flow, cells: u32) {
        let bytes = cells as usize * CELL;
        let shares: Vec<Share> =
            self.exclusives.inward.iter().filter_map(|peer| self.share_inward(*peer)).collect();
        let waiting = self.exclusives.waiting.len();
        let verdict = match self.config.force {
            Force::Mp | Force::Shared => Verdict::Refuse,
            _ => self.config.exclusive.give.decide(&shares, bytes, waiting, self.now),
        };
        if let Verdict::Take(victim) = verdict {
            self.recall(victim);
        }
        match verdict {
            Verdict::Grant => self.give(peer, flow, cells),
            // A sender that uses nothing else would stand still meanwhile.
            Verdict::Take(_) | Verdict::Wait if self.config.force == Force::None => {
                flow.inward = In::Waiting(cells);
                self.exclusives.waiting.push_back(peer);
            }
            _ => {
                self.counters.refused += 1;
                flow.control.refuse = true;
                self.flush_control(peer.index, flow);
            }
        }
    }

    fn share_inward(&self, index: u32) -> Option<Share> {
        let flow = self.peers.flow(index)?;
        let In::Open(inward) = &flow.inward else { return None };
        let bytes = inward.fifo.memory().len();
        Some(Share { holder: index, bytes, used: inward.used, leaving: inward.leaving })
    }

    fn recall(&mut self, victim: u32) {
        let Some(mut flow) = self.peers.take_flow(victim) else { return };
        if let In::Open(inward) = &mut flow.inward {
            inward.leaving = true;
            flow.control.recall = true;
            self.flush_control(victim, &mut flow);
        }
        self.peers.put_flow(victim, flow);
    }

    fn give(&mut self, peer: Peer, flow: &mut Flow, cells: u32) {
        let fifo = ReceiveFifo::new(cells);
        let tag = fifo_tag(peer.index);
        // Also readable: it holds only what its one writer wrote, and some networks register no
        // memory that can only be written.
        let access = Access::WRITE.with(Access::READ);
        match self.port.device_mut().register(&fifo.memory().whole(), access, tag) {
            Ok((registration, key)) => {
                self.counters.given += 1;
                self.exclusives.inward.push(peer.index);
                let (used, leaving) = (self.now, false);
                flow.inward = In::Open(Box::new(InFifo { fifo, registration, key, used, leaving }));
                flow.control.grant = true;
            }
            Err(_) => {
                self.counters.refused += 1;
                flow.inward = In::None;
                flow.control.refuse = true;
            }
        }
        self.flush_control(peer.index, flow);
    }

    /// The exclusive channel from a peer has ended; peers that wait for one get it now.
    pub(crate) fn end_inward(&mut self, index: u32, flow: &mut Flow) {
        match std::mem::take(&mut flow.inward) {
            In::None => return,
            In::Waiting(_) => self.exclusives.waiting.retain(|waiting| waiting.index != index),
            In::Open(inward) => {
                self.port.device_mut().deregister(inward.registration, None);
                self.exclusives.inward.retain(|peer| *peer != index);
                self.counters.taken += u64::from(inward.leaving);
            }
        }
        (flow.control.grant, flow.control.recall) = (false, false);
        while let Some(next) = self.exclusives.waiting.front().copied() {
            let shares: Vec<Share> =
                self.exclusives.inward.iter().filter_map(|peer| self.share_inward(*peer)).collect();
            let slot = self.peers.take_flow(next.index);
            let Some(mut other) = slot else {
                self.exclusives.waiting.pop_front();
                continue;
            };
            let cells = match other.inward {
                In::Waiting(cells) => Some(cells),
                _ => None,
            };
            let give = &self.config.exclusive.give;
            let fits = cells.is_none_or(|cells| {
                let bytes = cells as usize * CELL;
                give.decide(&shares, bytes, 0, self.now) == Verdict::Grant
            });
            if fits {
                self.exclusives.waiting.pop_front();
                if let Some(cells) = cells {
                    self.give(next, &mut other, cells);
                }
            }
            self.peers.put_flow(next.index, other);
            if !fits {
                return;
            }
        }
    }
}

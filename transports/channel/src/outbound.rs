//! Sending: packets of the engine's are cut into records, and each record takes its channel.

use crate::{
    Channels, Device, Force, Garbage,
    device::{Class, Node, Refusal},
    fifo::{self, Reservation},
    flow::{Flow, Out},
    header::{HEADER, Header, Kind, LENT},
    packet::OutPacket,
    short::WHOLE,
};
use petasos_fabric::{
    Peer,
    two_sided::header::{self, PREFIX},
};
use smallvec::{SmallVec, smallvec};

/// The most records that are sent to one peer before others have their turn.
const TURN: usize = 64;

/// What became of a record.
pub(crate) enum Step {
    Sent,
    /// There was no room; an event says when there is.
    Blocked,
}

impl<D: Device> Channels<D> {
    /// Sends what there is for a peer. True if something went.
    pub(crate) fn serve_peer(&mut self, index: u32) -> bool {
        let (Some(peer), Some(node)) = (self.engine.peer_at(index), self.peers.node(index)) else {
            if let Some(flow) = self.peers.flow_mut(index) {
                flow.in_output = false;
            }
            return false;
        };
        let mut flow = self.peers.open_flow(index);
        flow.in_output = false;
        self.flush_control(index, &mut flow);
        let mut worked = self.send_records(peer, node, &mut flow);
        worked |= self.serve_accesses(node, &mut flow);
        self.peers.put_flow(index, flow);
        worked
    }

    fn send_records(&mut self, peer: Peer, node: Node, flow: &mut Flow) -> bool {
        for turn in 0..TURN {
            if flow.current.is_none() {
                let forced = self.config.force == Force::Exclusive && self.fifo_wanted(peer, flow);
                if forced || !flow.pending {
                    return turn > 0;
                }
                let Some(packet) = self.engine.poll_transmit(peer) else {
                    flow.pending = false;
                    return turn > 0;
                };
                let len = packet.len();
                self.count_message(peer, flow, len);
                let exclusive = self.suits_exclusive(len);
                let shared = match self.config.force {
                    Force::Mp | Force::Exclusive => false,
                    Force::Shared => true,
                    Force::None if exclusive && matches!(flow.out, Out::Open(_)) => false,
                    Force::None => len > self.thresholds.mp(),
                };
                let shared = shared && !packet.payload.is_empty();
                flow.current = Some(OutPacket::new(packet, shared, exclusive));
            }
            let Some(mut current) = flow.current.take() else { break };
            let through = current.exclusive && matches!(flow.out, Out::Open(_));
            let step = match (current.shared, through) {
                (true, _) => self.lend(peer, node, flow, &mut current),
                (false, true) => self.put_part(peer, node, flow, &mut current),
                (false, false) => self.send_part(peer, node, flow, &mut current),
            };
            if let Step::Blocked = step {
                flow.current = Some(current);
                return turn > 0;
            }
            self.counters.records += 1;
            let len = current.len();
            if current.at < len {
                flow.current = Some(current);
                continue;
            }
            self.counters.bytes += len as u64;
            match (current.shared, through) {
                (true, _) => self.counters.shared += 1,
                (false, true) => self.counters.exclusive += 1,
                (false, false) => self.counters.mp += 1,
            }
            // The engine is told that it is sent: at once if the bytes were copied, else when the
            // memory is free again.
            flow.sent.add_unreported(current.lent);
            self.report_sent(peer, flow);
        }
        self.schedule.list_output(peer.index, flow);
        true
    }

    /// Whether what is so long goes through an exclusive channel, if there is one.
    #[inline]
    pub(crate) fn suits_exclusive(&self, len: usize) -> bool {
        match self.config.force {
            Force::None => self.thresholds.suits_exclusive(len),
            Force::Exclusive => true,
            Force::Mp | Force::Shared => false,
        }
    }

    /// Counts a message of `len` bytes, and asks for an exclusive channel if many go to the peer
    /// that such a channel would carry.
    pub(crate) fn count_message(&mut self, peer: Peer, flow: &mut Flow, len: usize) {
        if !self.asks || !self.thresholds.suits_exclusive(len) {
            return;
        }
        let entry = self.peers.get_mut(peer.index);
        let hot = entry.count_message(&self.config.exclusive.hot, self.now);
        if hot {
            self.ask_for_channel(peer.index, flow);
        }
    }

    /// Whether to wait for an exclusive channel, where nothing else is to be used.
    fn fifo_wanted(&mut self, peer: Peer, flow: &mut Flow) -> bool {
        if flow.pending && matches!(flow.out, Out::None | Out::Refused(_)) {
            self.ask_for_channel(peer.index, flow);
        }
        matches!(flow.out, Out::Asked)
    }

    fn header(&self, peer: Peer, flow: &Flow, flags: u8, len: usize) -> Header {
        Header {
            len: len as u32,
            seq: self.peers.get(peer.index).next_out(),
            ack: self.taken(peer.index, flow),
            kind: Kind::Record,
            flags,
        }
    }

    /// A record was sent, with an acknowledgement.
    fn record_sent(&mut self, peer: Peer, flow: &mut Flow, header: &Header) {
        self.peers.get_mut(peer.index).record_sent(header.seq);
        self.acknowledgement_sent(peer.index, flow, header.ack, false);
    }

    fn refused(&mut self, refusal: Refusal) -> Step {
        // If the node is lost, the loss of the peer follows.
        self.counters.retries += u64::from(refusal == Refusal::Full);
        Step::Blocked
    }

    fn window_is_full(&self, flow: &Flow) -> bool {
        flow.sent.len() >= self.config.window as usize
    }

    /// Sends a record as a short packet, with a body of `len` bytes that `fill` appends.
    pub(crate) fn send(
        &mut self,
        peer: Peer,
        node: Node,
        flow: &mut Flow,
        (flags, len): (u8, usize),
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Step {
        if self.window_is_full(flow) {
            return Step::Blocked;
        }
        let header = self.header(peer, flow, flags, len);
        if let Err(refusal) = self.port.send_record(node, &header, fill) {
            return self.refused(refusal);
        }
        flow.sent.add(header.seq, None);
        self.record_sent(peer, flow, &header);
        Step::Sent
    }

    /// Sends a message that is a record as a short packet, from where its parts lie.
    #[inline]
    pub(crate) fn send_now(
        &mut self,
        peer: Peer,
        node: Node,
        flow: &mut Flow,
        (prefix, parts, len): ([u8; PREFIX], &[&[u8]], usize),
    ) -> Step {
        if self.window_is_full(flow) {
            return Step::Blocked;
        }
        let header = self.header(peer, flow, WHOLE, len);
        let (encoded, device) = (header.encode(), self.port.device_mut());
        let sent = match parts {
            [part] => device.send(node, Class::Data, &[&encoded, &prefix, part]),
            _ => {
                // As one, for a device that takes a few parts without memory of its own for them.
                let mut first = [0; HEADER + PREFIX];
                first[..HEADER].copy_from_slice(&encoded);
                first[HEADER..].copy_from_slice(&prefix);
                let mut whole: SmallVec<[&[u8]; 8]> = smallvec![&first[..]];
                whole.extend_from_slice(parts);
                device.send(node, Class::Data, &whole)
            }
        };
        if let Err(refusal) = sent {
            return self.refused(refusal);
        }
        flow.sent.add(header.seq, None);
        self.record_sent(peer, flow, &header);
        Step::Sent
    }

    fn send_part(
        &mut self,
        peer: Peer,
        node: Node,
        flow: &mut Flow,
        current: &mut OutPacket,
    ) -> Step {
        let (at, most) = (current.at, self.port.packet() - HEADER);
        if at == 0 && current.len() <= most {
            return self.send_whole(peer, node, flow, current);
        }
        let len = (current.len() - at).min(most);
        let part = (current.flags(at + len), len);
        let step = self.send(peer, node, flow, part, |out| current.copy(at, len, out));
        current.at += if let Step::Sent = step { len } else { 0 };
        step
    }

    /// Sends a packet that is a record as a short packet, from where it lies.
    fn send_whole(
        &mut self,
        peer: Peer,
        node: Node,
        flow: &mut Flow,
        current: &mut OutPacket,
    ) -> Step {
        if self.window_is_full(flow) {
            return Step::Blocked;
        }
        let header = self.header(peer, flow, WHOLE, current.len());
        let (packet, payload) = current.whole();
        let mut first = [0; HEADER + header::MAX];
        first[..HEADER].copy_from_slice(&header.encode());
        let len = HEADER + packet.len();
        first[HEADER..len].copy_from_slice(packet);
        let device = self.port.device_mut();
        if let Err(refusal) = device.send_payload(node, Class::Data, &first[..len], payload) {
            return self.refused(refusal);
        }
        current.at = current.len();
        flow.sent.add(header.seq, None);
        self.record_sent(peer, flow, &header);
        Step::Sent
    }

    /// Sends a record whose data the receiver fetches.
    fn lend(&mut self, peer: Peer, node: Node, flow: &mut Flow, current: &mut OutPacket) -> Step {
        if self.window_is_full(flow) {
            return Step::Blocked;
        }
        let from = current.at.max(current.header());
        let (device, to) = (self.port.device_mut(), &mut flow.lent);
        let Some((loan, lent)) = self.loans.lend(device, to, current, from) else {
            if flow.lent.is_empty() {
                // What others have may never come back, so this packet goes without a loan.
                current.shared = false;
                return self.send_part(peer, node, flow, current);
            }
            self.counters.retries += 1;
            self.schedule.starve_output(peer.index);
            return Step::Blocked;
        };
        let (at, end) = (current.at, from + lent.len as usize);
        let len = lent.encoded_len() + from - at;
        let header = self.header(peer, flow, current.flags(end) | LENT, len);
        let sent = self.port.send_record(node, &header, |out| {
            lent.encode(out);
            current.copy(at, from - at, out);
        });
        if let Err(refusal) = sent {
            self.loans.end(self.port.device_mut(), &mut flow.lent, loan);
            return self.refused(refusal);
        }
        flow.sent.add(header.seq, Some(loan));
        (current.lent, current.at) = (Some(header.seq), end);
        self.record_sent(peer, flow, &header);
        Step::Sent
    }

    /// Puts a record into the exclusive channel, with a body of `len` bytes that `fill` appends.
    pub(crate) fn put(
        &mut self,
        peer: Peer,
        node: Node,
        flow: &mut Flow,
        (flags, len): (u8, usize),
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Step {
        let header = self.header(peer, flow, flags, len);
        let Out::Open(out) = &mut flow.out else { return Step::Blocked };
        let Some(at) = out.fifo.reserve(len) else { return Step::Blocked };
        if let Some(offset) = at.pad {
            out.target.offset = offset;
            if let Err(refusal) = self.port.put_pad(node, &out.target) {
                return self.refused(refusal);
            }
            out.fifo.pad(header.seq);
        }
        out.target.offset = at.offset;
        let immediate = match self.port.put_record((peer, node), out, &at, &header, fill) {
            Ok(immediate) => immediate,
            Err(refusal) => return self.refused(refusal),
        };
        self.counters.immediate += u64::from(immediate);
        out.used = self.now;
        out.fifo.take(&Reservation { pad: None, ..at }, header.seq, immediate);
        self.record_sent(peer, flow, &header);
        Step::Sent
    }

    fn put_part(
        &mut self,
        peer: Peer,
        node: Node,
        flow: &mut Flow,
        current: &mut OutPacket,
    ) -> Step {
        let Out::Open(out) = &flow.out else { return Step::Blocked };
        let at = current.at;
        let len = (current.len() - at).min(fifo::max_body(out.fifo.cells()));
        let part = (current.flags(at + len), len);
        let step = self.put(peer, node, flow, part, |out| current.copy(at, len, out));
        current.at += if let Step::Sent = step { len } else { 0 };
        step
    }

    /// The device has completed a put of the FIFO's image.
    pub(crate) fn put_done(&mut self, peer: Peer, seq: u32) {
        if self.engine.peer_at(peer.index) != Some(peer) {
            return;
        }
        let Some(mut flow) = self.peers.take_flow(peer.index) else { return };
        if let Some(out) = flow.out.fifo() {
            out.fifo.completed(seq);
        }
        self.credit_returned(peer.index, &mut flow);
        self.peers.put_flow(peer.index, flow);
    }

    /// Credit came back from a peer: its output may go on.
    fn credit_returned(&mut self, index: u32, flow: &mut Flow) {
        self.close_drained(index, flow);
        if flow.current.is_some() || flow.pending {
            self.schedule.list_output(index, flow);
        }
    }

    /// The peer has taken all records before this one.
    pub(crate) fn acknowledged(
        &mut self,
        peer: Peer,
        flow: &mut Flow,
        ack: u32,
    ) -> Result<(), Garbage> {
        if !self.peers.get_mut(peer.index).acknowledge(ack)? {
            return Ok(());
        }
        let mut lent = false;
        while let Some(loan) = flow.sent.remove_acknowledged(ack) {
            if let Some(loan) = loan {
                self.loans.end(self.port.device_mut(), &mut flow.lent, loan);
                lent = true;
            }
        }
        if let Some(out) = flow.out.fifo() {
            out.fifo.acknowledged(ack);
        }
        self.report_sent(peer, flow);
        self.credit_returned(peer.index, flow);
        if lent {
            self.resume_starved_output();
        }
        Ok(())
    }

    /// Tells the engine of packets whose memory is free again.
    fn report_sent(&mut self, peer: Peer, flow: &mut Flow) {
        let heard = self.peers.get(peer.index).acknowledged();
        while flow.sent.remove_free(heard) {
            self.engine.sent(peer);
        }
    }
}

//! What goes out: packets of the engine's are cut into records, and each record takes its channel.

use crate::{
    Channels, Device, Force, Garbage,
    channels::Pending,
    device::{Class, Node, Refusal, Target},
    fifo::{self, PAD_MARK, Reservation},
    flow::{Flow, Loan, Out, Sent, Train},
    head::{HEAD, Head, Kind, LENT, Lent, distance},
};
use petasos_fabric::{Access, Peer, Region};

/// Records for one peer before others have their turn.
const TURN: usize = 64;

/// What became of a record.
pub(crate) enum Step {
    Sent,
    /// There was no room; somebody will say when there is.
    Blocked,
}

impl<D: Device> Channels<D> {
    /// Sends what there is for a peer. True if something went.
    pub(crate) fn serve(&mut self, index: u32) -> bool {
        let (Some(peer), Some(node)) = (self.engine.peer_at(index), self.node(index)) else {
            if let Some(flow) = &mut self.entries[index as usize].flow {
                flow.listed = false;
            }
            return false;
        };
        let mut flow = self.lift(index);
        flow.listed = false;
        self.flush_control(index, &mut flow);
        let mut worked = self.pump(peer, node, &mut flow);
        worked |= self.serve_accesses(node, &mut flow);
        self.lay(index, flow);
        worked
    }

    fn pump(&mut self, peer: Peer, node: Node, flow: &mut Flow) -> bool {
        for turn in 0..TURN {
            if flow.train.is_none() {
                let forced = self.config.force == Force::Exclusive && self.fifo_wanted(peer, flow);
                if forced || !flow.pending {
                    return turn > 0;
                }
                let Some(packet) = self.engine.poll_transmit(peer) else {
                    flow.pending = false;
                    return turn > 0;
                };
                self.heat(peer, flow);
                let (len, open) = (packet.len(), matches!(flow.out, Out::Open(_)));
                let shared = match self.config.force {
                    Force::Mp | Force::Exclusive => false,
                    Force::Shared => true,
                    Force::None if open => len > self.thresholds.exclusive(),
                    Force::None => len > self.thresholds.mp(),
                };
                let shared = shared && !packet.payload.is_empty();
                flow.train = Some(Train { packet, at: 0, shared, lent: None });
            }
            let Some(mut train) = flow.train.take() else { break };
            let step = match (train.shared, &flow.out) {
                (true, _) => self.lend(peer, node, flow, &mut train),
                (false, Out::Open(_)) => self.put_part(peer, node, flow, &mut train),
                (false, _) => self.send_part(peer, node, flow, &mut train),
            };
            if let Step::Blocked = step {
                flow.train = Some(train);
                return turn > 0;
            }
            self.counters.records += 1;
            let len = train.packet.len();
            if train.at < len {
                flow.train = Some(train);
                continue;
            }
            self.counters.bytes += len as u64;
            match (train.shared, &flow.out) {
                (true, _) => self.counters.shared += 1,
                (false, Out::Open(_)) => self.counters.exclusive += 1,
                (false, _) => self.counters.mp += 1,
            }
            // Its bytes are copied or, if they were lent, told when they come back.
            flow.packets.push_back(train.lent);
            self.tell_sent(peer, flow);
        }
        self.list_output(peer.index, flow);
        true
    }

    /// Counts a packet, and wishes for an exclusive channel if the peer is hot.
    pub(crate) fn heat(&mut self, peer: Peer, flow: &mut Flow) {
        let traffic = &mut self.entries[peer.index as usize].traffic;
        let hot = traffic.note(&self.config.exclusive.hot, self.now);
        if hot && self.config.force == Force::None {
            self.wish(peer.index, flow);
        }
    }

    /// Whether to wait for an exclusive channel, where they are to be used alone.
    fn fifo_wanted(&mut self, peer: Peer, flow: &mut Flow) -> bool {
        if flow.pending && matches!(flow.out, Out::None | Out::Refused(_)) {
            self.wish(peer.index, flow);
        }
        matches!(flow.out, Out::Asked)
    }

    fn head(&self, peer: Peer, flow: &Flow, flags: u8, len: usize) -> Head {
        Head {
            len: len as u32,
            seq: self.entries[peer.index as usize].next_out,
            ack: self.taken(peer.index, flow),
            kind: Kind::Record,
            flags,
        }
    }

    /// A record has gone.
    fn gone(&mut self, peer: Peer, flow: &mut Flow, head: &Head) {
        self.entries[peer.index as usize].next_out = head.seq.wrapping_add(1);
        self.told(peer.index, flow, head.ack, false);
    }

    fn refused(&mut self, refusal: Refusal) -> Step {
        // Whose node is gone hears of it soon.
        self.counters.retries += u64::from(refusal == Refusal::Full);
        Step::Blocked
    }

    fn window_is_full(&self, flow: &Flow) -> bool {
        flow.sent.len() >= self.config.window as usize
    }

    /// Sends a short packet, whose body `fill` appends.
    fn post(
        &mut self,
        node: Node,
        head: &Head,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Refusal> {
        self.scratch.clear();
        self.scratch.extend_from_slice(&head.encode());
        fill(&mut self.scratch);
        debug_assert_eq!(self.scratch.len(), HEAD + head.len as usize);
        self.device.send(node, Class::Data, &[&self.scratch])
    }

    /// A record as a short packet, of `len` bytes that `fill` appends.
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
        let head = self.head(peer, flow, flags, len);
        if let Err(refusal) = self.post(node, &head, fill) {
            return self.refused(refusal);
        }
        flow.sent.push_back(Sent { seq: head.seq, lent: None });
        self.gone(peer, flow, &head);
        Step::Sent
    }

    fn send_part(&mut self, peer: Peer, node: Node, flow: &mut Flow, train: &mut Train) -> Step {
        let at = train.at;
        let len = (train.packet.len() - at).min(self.device.limits().packet - HEAD);
        let part = (train.flags(at + len), len);
        let step = self.send(peer, node, flow, part, |out| train.copy(at, len, out));
        train.at += if let Step::Sent = step { len } else { 0 };
        step
    }

    /// A record whose data the receiver fetches.
    fn lend(&mut self, peer: Peer, node: Node, flow: &mut Flow, train: &mut Train) -> Step {
        if self.window_is_full(flow) {
            return Step::Blocked;
        }
        let header = train.header();
        let from = train.at.max(header);
        let Some((loan, lent)) = self.loan(train, from) else {
            if self.lent == 0 {
                // Nothing of ours will come back, so this goes without.
                train.shared = false;
                return self.send_part(peer, node, flow, train);
            }
            self.counters.retries += 1;
            if !self.starved_out.contains(&peer.index) {
                self.starved_out.push(peer.index);
            }
            return Step::Blocked;
        };
        self.lent += 1;
        let (at, end) = (train.at, from + lent.len as usize);
        let len = lent.encoded_len() + from - at;
        let head = self.head(peer, flow, train.flags(end) | LENT, len);
        let sent = self.post(node, &head, |out| {
            lent.encode(out);
            train.copy(at, from - at, out);
        });
        if let Err(refusal) = sent {
            self.take_back(Some(loan));
            return self.refused(refusal);
        }
        flow.sent.push_back(Sent { seq: head.seq, lent: Some(loan) });
        (train.lent, train.at) = (Some(head.seq), end);
        self.gone(peer, flow, &head);
        Step::Sent
    }

    /// Opens memory to be fetched from: the packet's own, or a copy of some of its bytes.
    fn loan(&mut self, train: &Train, from: usize) -> Option<(Loan, Lent)> {
        if self.lent >= self.config.lent {
            return None;
        }
        if let Some(piece) = train.piece(from) {
            let len = piece.len().min(1 << 30);
            let piece = piece.part(0, len)?;
            let (registration, key) = self.device.register(&piece, Access::READ, 0).ok()?;
            return Some((Loan::Memory(registration), Lent { len: len as u32, key }));
        }
        let bounce = self.sending.take(&mut self.device)?;
        let len = (train.packet.len() - from).min(self.sending.len());
        let mut bytes = Vec::with_capacity(len);
        train.copy(from, len, &mut bytes);
        bounce.part(len).write(0, &bytes);
        let lent = Lent { len: len as u32, key: bounce.key.clone() };
        Some((Loan::Bounce(bounce), lent))
    }

    /// A record through the exclusive channel, of `len` bytes that `fill` appends.
    pub(crate) fn put(
        &mut self,
        peer: Peer,
        node: Node,
        flow: &mut Flow,
        (flags, len): (u8, usize),
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Step {
        let head = self.head(peer, flow, flags, len);
        let Out::Open(out) = &mut flow.out else { return Step::Blocked };
        let Some(place) = out.fifo.reserve(len) else { return Step::Blocked };
        if let Some(offset) = place.pad {
            out.target.offset = offset;
            if let Err(refusal) = self.put_pad(node, &out.target) {
                return self.refused(refusal);
            }
            out.fifo.pad(head.seq);
        }
        out.target.offset = place.offset;
        let mark = head.mark();
        let offers = self.device.limits();
        let immediate = HEAD + len <= offers.immediate.min(self.thresholds.immediate());
        self.scratch.clear();
        self.scratch.extend_from_slice(&head.encode());
        // The mark comes with the event.
        self.scratch[..8].fill(0);
        fill(&mut self.scratch);
        debug_assert_eq!(self.scratch.len(), HEAD + len);
        let result = match immediate {
            true => self.device.put_immediate(node, &out.target, &self.scratch, Some(mark)),
            false => {
                let image = out.fifo.slice(&place, len);
                image.write(0, &self.scratch);
                let ticket = self.ticket(Pending::Put { peer, seq: head.seq });
                let result = self.device.put(node, &out.target, &image, Some(mark), ticket);
                if result.is_err() {
                    self.tickets.try_remove(ticket.0 as usize);
                }
                result
            }
        };
        if let Err(refusal) = result {
            return self.refused(refusal);
        }
        self.counters.immediate += u64::from(immediate);
        flow.fifo_used = self.now;
        out.fifo.take(&Reservation { pad: None, ..place }, head.seq, immediate);
        self.gone(peer, flow, &head);
        Step::Sent
    }

    fn put_part(&mut self, peer: Peer, node: Node, flow: &mut Flow, train: &mut Train) -> Step {
        let Out::Open(out) = &flow.out else { return Step::Blocked };
        let at = train.at;
        let len = (train.packet.len() - at).min(fifo::max_body(out.fifo.cells()));
        let part = (train.flags(at + len), len);
        let step = self.put(peer, node, flow, part, |out| train.copy(at, len, out));
        train.at += if let Step::Sent = step { len } else { 0 };
        step
    }

    fn put_pad(&mut self, node: Node, target: &Target) -> Result<(), Refusal> {
        if self.device.limits().immediate > 0 {
            return self.device.put_immediate(node, target, &[], Some(PAD_MARK));
        }
        let ticket = self.ticket(Pending::Pad);
        let nothing = Region::zeroed(0).whole();
        let result = self.device.put(node, target, &nothing, Some(PAD_MARK), ticket);
        if result.is_err() {
            self.tickets.try_remove(ticket.0 as usize);
        }
        result
    }

    /// A put of the FIFO's image is over.
    pub(crate) fn put_done(&mut self, peer: Peer, seq: u32) {
        if self.engine.peer_at(peer.index) != Some(peer) {
            return;
        }
        let Some(mut flow) = self.entries[peer.index as usize].flow.take() else { return };
        if let Some(out) = flow.out.fifo() {
            out.fifo.completed(seq);
        }
        self.went_on(peer.index, &mut flow);
        self.lay(peer.index, flow);
    }

    /// Something came back from a peer: its output may go on.
    fn went_on(&mut self, index: u32, flow: &mut Flow) {
        self.close_drained(index, flow);
        if flow.train.is_some() || flow.pending {
            self.list_output(index, flow);
        }
    }

    /// The peer has taken all records before this one.
    pub(crate) fn acknowledged(
        &mut self,
        peer: Peer,
        flow: &mut Flow,
        ack: u32,
    ) -> Result<(), Garbage> {
        let entry = &mut self.entries[peer.index as usize];
        if distance(ack, entry.next_out) < 0 {
            return Err(Garbage::new("an acknowledgement of what was never sent", ack.into()));
        }
        // One that was overtaken by a later one says nothing new.
        if distance(entry.heard, ack) <= 0 {
            return Ok(());
        }
        entry.heard = ack;
        let mut lent = false;
        while flow.sent.front().is_some_and(|sent| distance(sent.seq, ack) > 0) {
            if let Some(Sent { lent: Some(loan), .. }) = flow.sent.pop_front() {
                self.take_back(Some(loan));
                lent = true;
            }
        }
        if let Some(out) = flow.out.fifo() {
            out.fifo.acknowledged(ack);
        }
        self.tell_sent(peer, flow);
        self.went_on(peer.index, flow);
        if lent {
            self.feed(true);
        }
        Ok(())
    }

    /// Tells the engine which packets' memory is free again.
    fn tell_sent(&mut self, peer: Peer, flow: &mut Flow) {
        let heard = self.entries[peer.index as usize].heard;
        let free = |lent: &Option<u32>| lent.is_none_or(|seq| distance(seq, heard) > 0);
        while flow.packets.front().is_some_and(free) {
            flow.packets.pop_front();
            self.engine.sent(peer);
        }
    }
}

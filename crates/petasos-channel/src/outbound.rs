//! What goes out: packets of the engine's are cut into records, and each record takes its channel.

use crate::{
    Channels, Device, Force, Garbage,
    channels::Pending,
    device::{Class, Node, Refusal, Target},
    fifo::{self, PAD_MARK, Place},
    flow::{Flow, Loan, Out, Sent, Train},
    head::{FIRST, HEAD, Head, Kind, LAST, LENT, Lent, distance},
};
use petasos_fabric::{Access, Peer, Region};

/// Records for one peer before others have their turn.
const TURN: usize = 64;

/// What became of a record.
enum Step {
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
                    Force::None if open => len > self.config.thresholds.exclusive(),
                    Force::None => len > self.config.thresholds.mp(),
                };
                let shared = shared && !packet.payload.is_empty();
                flow.train = Some(Train { packet, at: 0, shared, lent: None });
            }
            let Some(mut train) = flow.train.take() else { break };
            let step = match (train.shared, &flow.out) {
                (true, _) => self.lend(peer, node, flow, &mut train),
                (false, Out::Open(_)) => self.put(peer, node, flow, &mut train),
                (false, _) => self.send(peer, node, flow, &mut train),
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
    fn heat(&mut self, peer: Peer, flow: &mut Flow) {
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

    fn head(&self, peer: Peer, flow: &Flow, train: &Train, len: usize, end: usize) -> Head {
        let first = if train.at == 0 { FIRST } else { 0 };
        let last = if end == train.packet.len() { LAST } else { 0 };
        Head {
            len: len as u32,
            seq: self.entries[peer.index as usize].next_out,
            ack: self.taken(peer.index, flow),
            kind: Kind::Record,
            flags: first | last,
        }
    }

    /// A record has gone.
    fn gone(&mut self, peer: Peer, flow: &mut Flow, train: &mut Train, head: &Head, end: usize) {
        train.at = end;
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

    /// A record as a short packet.
    fn send(&mut self, peer: Peer, node: Node, flow: &mut Flow, train: &mut Train) -> Step {
        if self.window_is_full(flow) {
            return Step::Blocked;
        }
        let most = self.device.limits().packet - HEAD;
        let len = (train.packet.len() - train.at).min(most);
        let end = train.at + len;
        let head = self.head(peer, flow, train, len, end);
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        train.copy(train.at, len, &mut bytes);
        let result = self.device.send(node, Class::Data, &[&head.encode(), &bytes]);
        self.scratch = bytes;
        if let Err(refusal) = result {
            return self.refused(refusal);
        }
        flow.sent.push_back(Sent { seq: head.seq, lent: None });
        self.gone(peer, flow, train, &head, end);
        Step::Sent
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
                return self.send(peer, node, flow, train);
            }
            self.counters.retries += 1;
            if !self.starved_out.contains(&peer.index) {
                self.starved_out.push(peer.index);
            }
            return Step::Blocked;
        };
        self.lent += 1;
        let end = from + lent.len as usize;
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        lent.encode(&mut bytes);
        train.copy(train.at, from - train.at, &mut bytes);
        let mut head = self.head(peer, flow, train, bytes.len(), end);
        head.flags |= LENT;
        let result = self.device.send(node, Class::Data, &[&head.encode(), &bytes]);
        self.scratch = bytes;
        if let Err(refusal) = result {
            self.take_back(Some(loan));
            return self.refused(refusal);
        }
        flow.sent.push_back(Sent { seq: head.seq, lent: Some(loan) });
        train.lent = Some(head.seq);
        self.gone(peer, flow, train, &head, end);
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

    /// A record through the exclusive channel.
    fn put(&mut self, peer: Peer, node: Node, flow: &mut Flow, train: &mut Train) -> Step {
        let Out::Open(out) = &mut flow.out else { return Step::Blocked };
        let most = fifo::max_body(out.fifo.cells());
        let len = (train.packet.len() - train.at).min(most);
        let Some(place) = out.fifo.reserve(len) else { return Step::Blocked };
        let (key, end) = (out.key.clone(), train.at + len);
        let mut head = self.head(peer, flow, train, len, end);
        if let Some(offset) = place.pad {
            let target = Target { key: key.clone(), offset };
            if let Err(refusal) = self.put_pad(node, &target) {
                return self.refused(refusal);
            }
            if let Out::Open(out) = &mut flow.out {
                out.fifo.pad(head.seq);
            }
        }
        let mark = head.mark();
        let target = Target { key, offset: place.offset };
        let offers = self.device.limits();
        let immediate = HEAD + len <= offers.immediate.min(self.config.thresholds.immediate());
        // The mark comes with the event.
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        bytes.extend_from_slice(&head.encode());
        bytes[..8].fill(0);
        train.copy(train.at, len, &mut bytes);
        let result = match immediate {
            true => self.device.put_immediate(node, &target, &bytes, Some(mark)),
            false => {
                let Out::Open(out) = &flow.out else { return Step::Blocked };
                let image = out.fifo.slice(&place, len);
                image.write(0, &bytes);
                let ticket = self.ticket(Pending::Put { peer, seq: head.seq });
                let result = self.device.put(node, &target, &image, Some(mark), ticket);
                if result.is_err() {
                    self.tickets.try_remove(ticket.0 as usize);
                }
                result
            }
        };
        self.scratch = bytes;
        if let Err(refusal) = result {
            return self.refused(refusal);
        }
        self.counters.immediate += u64::from(immediate);
        flow.fifo_used = self.now;
        if let Out::Open(out) = &mut flow.out {
            out.fifo.take(&Place { pad: None, ..place }, head.seq, immediate);
        }
        head.flags = 0;
        self.gone(peer, flow, train, &head, end);
        Step::Sent
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

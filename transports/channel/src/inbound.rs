//! Receiving: records are taken in the order of their numbers, whichever channel they came by.

use crate::{
    Channels, Device, Garbage,
    assembly::{Assembly, Body, Into},
    bounce::Bounce,
    deferred::{Ahead, Deferred},
    device::{Node, Refusal, Target},
    flow::{Flow, In},
    header::{FIRST, Header, Kind, LAST, LENT, Lent, distance},
    port::Pending,
};
use petasos_fabric::{Lease, Peer, two_sided::header};

/// Packets of up to this many bytes are copied out of the cells at once, which costs less than to
/// find the place of each part.
const SHORT: usize = 512;

impl<D: Device> Channels<D> {
    /// A short packet of the data class came.
    pub(crate) fn packet(&mut self, peer: Peer, bytes: Lease) -> Result<(), Garbage> {
        let mut flow = self.peers.open_flow(peer.index);
        let result = self.defer(peer, &mut flow, bytes);
        self.peers.put_flow(peer.index, flow);
        result
    }

    /// Keeps a packet until its turn comes, which is mostly at once.
    fn defer(&mut self, peer: Peer, flow: &mut Flow, bytes: Lease) -> Result<(), Garbage> {
        let (header, _) = self.read_header(peer, flow, &bytes)?;
        if header.kind != Kind::Record {
            return Err(Garbage::new("no record in a data packet", header.kind as u64));
        }
        let next = self.peers.get(peer.index).next_in();
        if distance(next, header.seq) < 0 || flow.deferred.len() >= self.config.window as usize {
            return Err(Garbage::new("a packet outside of the window", header.seq.into()));
        }
        if flow.deferred.back().is_some_and(|last| distance(last.seq, header.seq) <= 0) {
            return Err(Garbage::new("short packets out of order", header.seq.into()));
        }
        self.deferred.add(bytes.len());
        let packet = Deferred { seq: header.seq, bytes, ahead: Ahead::No };
        self.schedule.defer(peer.index, flow, packet);
        Ok(())
    }

    /// Takes up to `most` records of a peer. Returns how many there were.
    pub(crate) fn deliver(&mut self, peer: Peer, most: usize) -> Result<usize, Garbage> {
        let Some(mut flow) = self.peers.take_flow(peer.index) else { return Ok(0) };
        self.schedule.input_taken(&mut flow);
        flow.used = true;
        let result = self.deliver_within(peer, &mut flow, most);
        self.fetch(peer.index, &mut flow);
        if result.is_ok() {
            self.settle_ack(peer, &mut flow);
        }
        self.peers.put_flow(peer.index, flow);
        result
    }

    fn deliver_within(
        &mut self,
        peer: Peer,
        flow: &mut Flow,
        most: usize,
    ) -> Result<usize, Garbage> {
        for count in 0..most {
            let most = self.config.gets;
            if flow.assembly.as_ref().is_some_and(|assembly| !assembly.takes_more(most)) {
                return Ok(count);
            }
            let next = self.peers.get(peer.index).next_in();
            if let Some(deferred) = flow.deferred.front()
                && deferred.seq == next
            {
                if let Ahead::Running = deferred.ahead {
                    return Ok(count);
                }
                self.take_deferred(peer, flow)?;
            } else if let In::Open(inward) = &mut flow.inward
                && let Some(front) = inward.fifo.front()?
            {
                match distance(next, front.seq()) {
                    0 => {}
                    1.. => return Ok(count),
                    _ => return Err(Garbage::new("a record that was there", front.seq().into())),
                }
                self.take(peer, flow, &front.header, &Body::Cells(&front.body), None)?;
                if let In::Open(inward) = &mut flow.inward {
                    flow.ack.add_cells(inward.fifo.consume(&front));
                }
            } else {
                return Ok(count);
            }
            self.peers.get_mut(peer.index).record_taken();
        }
        self.schedule.list_input(peer.index, flow);
        Ok(most)
    }

    fn take_deferred(&mut self, peer: Peer, flow: &mut Flow) -> Result<(), Garbage> {
        let Some(deferred) = self.schedule.undefer(flow) else { return Ok(()) };
        let ahead = match &deferred.ahead {
            Ahead::Done(bounce) => Some(bounce),
            _ => None,
        };
        let taken = Header::split(&deferred.bytes)
            .and_then(|(header, body)| self.take(peer, flow, &header, &Body::Packet(body), ahead));
        self.forget_deferred(deferred);
        flow.ack.add_packet();
        taken
    }

    /// Takes the record whose turn it is.
    fn take(
        &mut self,
        peer: Peer,
        flow: &mut Flow,
        header: &Header,
        body: &Body<'_>,
        ahead: Option<&Bounce>,
    ) -> Result<(), Garbage> {
        if header.flags == FIRST | LAST && flow.assembly.is_none() {
            match body {
                Body::Packet(bytes) => return Ok(self.engine.deliver(peer, bytes)?),
                Body::Cells(slice) if slice.len() <= SHORT => {
                    let mut room = [0; SHORT];
                    let bytes = &mut room[..slice.len()];
                    slice.read(0, bytes);
                    return Ok(self.engine.deliver(peer, bytes)?);
                }
                Body::Cells(_) => {}
            }
        }
        let (mut skip, mut lent) = (0, None);
        let (bytes, len) = body.peek::<{ Lent::MAX + header::MAX }>();
        if header.is(LENT) {
            let (found, took) = Lent::decode(&bytes[..len])?;
            (lent, skip) = (Some(found), took);
        }
        if header.is(FIRST) {
            let rest = &bytes[skip..len];
            let short = Garbage::new("a header cut short", rest.len() as u64);
            let frame = header::frame(*rest.first_chunk().ok_or(short)?)?;
            let encoded = rest.get(..frame.header).ok_or(short)?;
            if flow.assembly.is_some() {
                return Err(Garbage::new("a packet within a packet", header.seq.into()));
            }
            let placement = self.engine.accept(peer, encoded)?;
            skip += frame.header;
            flow.assembly = Some(Assembly::new(placement, frame.payload));
        }
        let Some(assembly) = &mut flow.assembly else {
            return Err(Garbage::new("the rest of nothing", header.seq.into()));
        };
        let inline = body.len() - skip;
        let here = inline + lent.as_ref().map_or(0, |lent| lent.len as usize);
        if here > assembly.left() || (lent.is_some() && inline > 0) {
            return Err(Garbage::new("more than the packet holds", here as u64));
        }
        assembly.write(body, skip);
        if let Some(lent) = lent {
            match ahead.map(|bounce| bounce.part(lent.len as usize)) {
                Some(data) => assembly.write_fetched(&data),
                None => {
                    let most = self.port.device().limits().transfer;
                    assembly.plan(header.seq, &lent, most, self.fetching.len());
                }
            }
            flow.ack.set_urgent();
        }
        if header.is(LAST) {
            assembly.end()?;
            self.land(peer, flow)?;
        }
        Ok(())
    }

    /// Hands a packet to the engine if all of it has arrived.
    fn land(&mut self, peer: Peer, flow: &mut Flow) -> Result<(), Garbage> {
        if let Some(assembly) = flow.assembly.take_if(|assembly| assembly.is_whole()) {
            self.engine.landed(peer, assembly.into_placement())?;
        }
        Ok(())
    }

    // Fetching.

    /// Begins fetches, as far as there is room for them.
    pub(crate) fn fetch(&mut self, index: u32, flow: &mut Flow) {
        let (Some(peer), Some(node)) = (self.engine.peer_at(index), self.peers.node(index)) else {
            return;
        };
        self.fetch_next(peer, node, flow);
        if !flow.deferred.is_empty() {
            self.fetch_ahead(peer, node, flow);
        }
    }

    /// Begins fetches for the packet that is being received: straight to where the data belongs, as
    /// far as that is memory.
    fn fetch_next(&mut self, peer: Peer, node: Node, flow: &mut Flow) {
        let index = peer.index;
        let ahead = flow.ahead();
        let Some(assembly) = &mut flow.assembly else { return };
        while let Some(fetch) = assembly.next_fetch(self.config.gets) {
            let target = Target { key: fetch.key.clone(), offset: fetch.offset };
            let (memory, bounce) = match &fetch.into {
                Into::Memory(memory) => (memory.clone(), None),
                Into::Buffer { at, len } => {
                    let next = assembly.buffers() - 1;
                    let device = self.port.device_mut();
                    let Some(bounce) =
                        self.fetching.take_next(device, next + ahead, next == 0, *len)
                    else {
                        assembly.fetch_refused(fetch);
                        self.counters.retries += 1;
                        self.schedule.starve_input(index);
                        return;
                    };
                    (bounce.part(*len), Some((bounce, *at, *len)))
                }
            };
            let pending = Pending::Get { peer, seq: fetch.seq, bounce };
            let ticket = self.port.issue(pending);
            if let Err(refusal) = self.port.device_mut().get(node, &target, &memory, ticket) {
                self.counters.retries += u64::from(refusal == Refusal::Full);
                if let Some(Pending::Get { bounce: Some((bounce, _, _)), .. }) =
                    self.port.redeem(ticket)
                {
                    self.fetching.give_back(bounce, self.port.device_mut());
                }
                assembly.fetch_refused(fetch);
                return;
            }
        }
    }

    /// Begins fetches for packets whose turn has not come, into bounce buffers: latency counts
    /// here, and not the copy.
    fn fetch_ahead(&mut self, peer: Peer, node: Node, flow: &mut Flow) {
        let longest = self.fetching.len().min(self.port.device().limits().transfer);
        let next = flow.assembly.as_ref().is_some_and(|a| a.first_lent().is_some());
        let buffers = flow.assembly.as_ref().map_or(0, Assembly::buffers);
        let mut ahead = flow.ahead();
        for deferred in &mut flow.deferred {
            if usize::from(next) + ahead >= self.config.ahead || self.config.ahead == 1 {
                return;
            }
            // An invalid packet is dealt with when its turn comes.
            let (Ahead::No, Ok((header, body))) = (&deferred.ahead, Header::split(&deferred.bytes))
            else {
                continue;
            };
            if !header.is(LENT) {
                continue;
            }
            let Ok((lent, _)) = Lent::decode(body) else { continue };
            let len = lent.len as usize;
            if len > longest {
                continue;
            }
            let device = self.port.device_mut();
            let Some(bounce) = self.fetching.take(device, buffers + ahead) else { return };
            let (memory, target) = (bounce.part(len), Target { key: lent.key, offset: 0 });
            let pending = Pending::Ahead { peer, seq: deferred.seq, bounce };
            let ticket = self.port.issue(pending);
            if self.port.device_mut().get(node, &target, &memory, ticket).is_err() {
                if let Some(Pending::Ahead { bounce, .. }) = self.port.redeem(ticket) {
                    self.fetching.give_back(bounce, self.port.device_mut());
                }
                return;
            }
            deferred.ahead = Ahead::Running;
            self.counters.ahead += 1;
            ahead += 1;
        }
    }

    /// Data was fetched ahead of its turn. Returns the buffer if no packet waits for it.
    pub(crate) fn fetched_ahead(&mut self, peer: Peer, seq: u32, bounce: Bounce) -> Option<Bounce> {
        if self.engine.peer_at(peer.index) != Some(peer) {
            return Some(bounce);
        }
        let Some(mut flow) = self.peers.take_flow(peer.index) else {
            return Some(bounce);
        };
        let running = |deferred: &&mut Deferred| {
            deferred.seq == seq && matches!(deferred.ahead, Ahead::Running)
        };
        let unclaimed = match flow.deferred.iter_mut().find(running) {
            Some(deferred) => {
                deferred.ahead = Ahead::Done(bounce);
                None
            }
            None => Some(bounce),
        };
        self.schedule.list_input(peer.index, &mut flow);
        self.peers.put_flow(peer.index, flow);
        unclaimed
    }

    /// Data was fetched.
    pub(crate) fn fetched(
        &mut self,
        peer: Peer,
        seq: u32,
        bounce: Option<&(Bounce, usize, usize)>,
    ) -> Result<(), Garbage> {
        if self.engine.peer_at(peer.index) != Some(peer) {
            return Ok(());
        }
        let Some(mut flow) = self.peers.take_flow(peer.index) else { return Ok(()) };
        if let Some(assembly) = &mut flow.assembly {
            let bounce = bounce.map(|(bounce, at, len)| (bounce.part(*len), *at));
            assembly.fetched(seq, bounce.as_ref().map(|(data, at)| (data, *at)));
        }
        let result = self.land(peer, &mut flow);
        self.fetch(peer.index, &mut flow);
        flow.ack.set_urgent();
        self.settle_ack(peer, &mut flow);
        self.schedule.list_input(peer.index, &mut flow);
        self.peers.put_flow(peer.index, flow);
        result
    }
}

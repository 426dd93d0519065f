//! What comes in and is no plain message: packets of the two-sided engine, and of this transport.

use super::receive::weight_of;
use crate::{
    Shm,
    assembly::{Assembly, place},
    channel::{Arrival, kind, numbers},
    control::ControlMessage,
    exports::Export,
    ring::Incoming,
    segment::Segment,
    socket,
    watchlist::PER_PEER,
};
use petasos_fabric::{
    Access, Event, Key, Lease, RegionId,
    two_sided::{Placement, header},
};
use rustix::fd::AsFd;

impl Shm {
    /// Takes what is no plain message, and what follows. In the same pass, which may be the last
    /// one, sends what the engine answers, and reports its events.
    #[cold]
    #[inline(never)]
    pub(super) fn receive_and_answer(
        &mut self,
        index: u32,
        end: usize,
        events: &mut Vec<Event>,
    ) -> bool {
        let worked = self.receive_others(index, end, events);
        self.answer(end, events);
        worked
    }

    /// Sends what the engine answers, and reports its events.
    pub(super) fn answer(&mut self, end: usize, events: &mut Vec<Event>) {
        if self.engine.has_output() {
            self.transmit_all();
            self.ring_pending();
        }
        self.hear_engine(end, events);
    }

    fn receive_others(&mut self, index: u32, end: usize, events: &mut Vec<Event>) -> bool {
        let mut weighed = 0;
        while weighed < PER_PEER {
            let before = events.len();
            match self.receive_any(index, events) {
                Ok(false) => return weighed > 0,
                // The engine's events came before what follows.
                Ok(true) if self.hear_engine(end, events) && events.len() < end => {}
                Ok(true) => return true,
                Err(what) => {
                    self.violated(index, what);
                    return true;
                }
            }
            weighed += events[before..].iter().map(weight_of).sum::<usize>().max(1);
        }
        true
    }

    /// Takes the engine's events. False if there was no room for all of them.
    fn hear_engine(&mut self, end: usize, events: &mut Vec<Event>) -> bool {
        self.engine.take_events(end.saturating_sub(events.len()), events);
        !self.engine.has_events()
    }

    /// Takes whatever comes next. False if there is nothing, or if it has to wait.
    fn receive_any(&mut self, index: u32, events: &mut Vec<Event>) -> Result<bool, String> {
        let mut message = Lease::default();
        if let Some(peer) = self.receive_message(index, &mut message) {
            events.push(Event::Message { peer, message });
            return Ok(true);
        }
        let Some(channel) = self.channel(index) else { return Ok(false) };
        let peeked = channel.pair.peek().map_err(|broken| broken.to_string())?;
        let Some(incoming) = peeked else { return Ok(false) };
        let taken = match incoming.kind {
            _ if channel.pair.is_within() => self.receive_part(index, &incoming)?,
            kind::PACKET => self.receive_packet(index, &incoming)?,
            kind::MESSAGE | kind::ASKING if channel.overdrawn => {
                return Err(format!("a message of {} bytes without credit", incoming.len));
            }
            // It has come just now.
            kind::SHORT => return Ok(false),
            kind::MESSAGE | kind::ASKING if incoming.len <= self.config.max_message => {
                return Ok(false);
            }
            kind => {
                self.receive_other(index, kind, &incoming, events)?;
                true
            }
        };
        let Some(channel) = self.channel(index) else { return Ok(false) };
        if taken {
            let starving = channel.pair.finish(incoming);
            if starving {
                channel.ring();
            }
            self.counters.received += 1;
            self.counters.wake_ups += u64::from(starving);
            if incoming.announced {
                self.channels.add_partial(index);
            }
        }
        Ok(taken)
    }

    /// Takes in a packet of the engine's. False if the peer is lost.
    fn receive_packet(&mut self, index: u32, incoming: &Incoming) -> Result<bool, String> {
        let Some(channel) = self.channel(index) else { return Ok(false) };
        if incoming.announced {
            channel.assembly = Some(Assembly::Packet);
            return Ok(true);
        }
        let (mut placement, header) = self.place_packet(index, incoming, incoming.len)?;
        let Shm { channels, engine, .. } = self;
        let Some(channel) = channels.get(index) else { return Ok(false) };
        place(channel.pair.lies_in(), incoming, header, &mut placement, 0);
        let landed = engine.landed(channel.handle, placement);
        landed.map(|()| true).map_err(|violation| violation.to_string())
    }

    /// Takes in a part of such a packet. False if it is of a message, and has to wait.
    fn receive_part(&mut self, index: u32, part: &Incoming) -> Result<bool, String> {
        let Some(channel) = self.channel(index) else { return Ok(false) };
        let left = channel.pair.missing();
        let (mut placement, header, at) = match channel.assembly.take() {
            Some(Assembly::Payload(placement, at)) => (placement, 0, at),
            Some(Assembly::Packet) => {
                let (placement, header) = self.place_packet(index, part, left)?;
                (placement, header, 0)
            }
            // A part of a message, which has come just now.
            message => {
                channel.assembly = message;
                return Ok(false);
            }
        };
        let Shm { channels, engine, .. } = self;
        let Some(channel) = channels.get_mut(index) else { return Ok(false) };
        place(channel.pair.lies_in(), part, header, &mut placement, at);
        if part.len < left {
            channel.assembly = Some(Assembly::Payload(placement, at + part.len - header));
            return Ok(true);
        }
        let landed = engine.landed(channel.handle, placement);
        landed.map(|()| true).map_err(|violation| violation.to_string())
    }

    /// Where the payload of a packet of `len` bytes goes, the first of which lie here, and the
    /// length of its header.
    fn place_packet(
        &mut self,
        index: u32,
        incoming: &Incoming,
        len: usize,
    ) -> Result<(Placement, usize), String> {
        let Shm { channels, engine, .. } = self;
        let Some(channel) = channels.get_mut(index) else {
            return Err("a packet of no known peer".to_owned());
        };
        let mut bytes = [0; header::MAX];
        // Copied once, and only the copy is looked at.
        let most = incoming.len.min(bytes.len());
        channel.pair.lies_in().read(incoming, 0, &mut bytes[..most]);
        let prefix = bytes.first_chunk().filter(|_| most >= header::PREFIX);
        let prefix = prefix.ok_or("a packet without a header")?;
        let frame = header::frame(*prefix).map_err(|violation| violation.to_string())?;
        if frame.header + frame.payload != len || frame.header > most {
            return Err(format!("a packet of {len} bytes that says otherwise"));
        }
        let placement = engine.accept(channel.handle, &bytes[..frame.header]);
        Ok((placement.map_err(|violation| violation.to_string())?, frame.header))
    }

    /// Takes in a packet of this transport's own.
    fn receive_other(
        &mut self,
        index: u32,
        kind: u8,
        incoming: &Incoming,
        events: &mut Vec<Event>,
    ) -> Result<(), String> {
        let Some(channel) = self.channel(index) else { return Ok(()) };
        let mut bytes = [0; 40];
        if incoming.len > bytes.len() || incoming.announced {
            return Err(format!("a packet of kind {kind} with {} bytes", incoming.len));
        }
        let bytes = &mut bytes[..incoming.len];
        channel.pair.consumer.read(incoming, 0, bytes);
        match kind {
            kind::EVENT => {
                let arrival = Arrival::decode(bytes).ok_or("an event of a bad length")?;
                let peer = channel.handle;
                if let Some(region) = self.arrived(&arrival) {
                    let Arrival { offset, len, data, .. } = arrival;
                    events.push(Event::PutArrived { peer, region, offset, len, data });
                }
            }
            kind::WANT => {
                let wanted = numbers::<5>(bytes).ok_or("a request of a bad length")?;
                self.give_segment(index, wanted);
            }
            kind::UNUSED => {
                let [id] = numbers(bytes).ok_or("a number of a bad length")?;
                channel.segments.unmap(id);
            }
            kind::MESSAGE | kind::ASKING => {
                return Err(format!("a message of {} bytes", incoming.len));
            }
            kind => return Err(format!("a packet of the unknown kind {kind}")),
        }
        Ok(())
    }

    /// The region in which a put has landed, if it could.
    fn arrived(&self, arrival: &Arrival) -> Option<RegionId> {
        let Export { region, tag } = self.exports.at(arrival.slot)?;
        let (memory, access) = self.engine.region(region)?;
        let end = arrival.offset.checked_add(arrival.len)?;
        let right = tag == arrival.tag && access.allows(Access::WRITE);
        (right && end <= memory.len() as u64).then_some(region)
    }

    /// Answers a request for the descriptor of a segment: of a region whose key the peer has.
    fn give_segment(&mut self, index: u32, [slot, id, first, second, writable]: [u64; 5]) {
        let writable = writable != 0;
        let region = self.exports.at(slot).map(|export| export.region).filter(|region| {
            let parts = self.engine.key_parts(*region).ok();
            let route = parts.as_ref().and_then(|p| p.route(Key::ROUTE_TWO_SIDED));
            route.is_some_and(|route| numbers::<2>(route) == Some([first, second]))
        });
        let memory = region.and_then(|region| self.engine.region(region));
        let Some(channel) = self.channels.get_mut(index) else { return };
        let segment = memory.and_then(|(memory, access)| {
            let changes = access.allows(Access::WRITE) || access.allows(Access::ATOMIC);
            let segment = memory.backing::<Segment>().filter(|s| s.id == id)?;
            let unsealed = changes || channel.process.may_write_anyway();
            let given = (changes || !writable).then(|| segment.descriptor(unsealed, writable));
            Some((given?, segment.alive()))
        });
        let note = |given| ControlMessage::Segment { id, given, writable }.encode();
        if let Some((Ok(fd), alive)) = segment
            && socket::send(channel.process.socket(), &note(true), &[fd.as_fd()]).is_ok()
        {
            channel.granted.add(id, alive);
            return;
        }
        let _ = socket::send(channel.process.socket(), &note(false), &[]);
    }
}

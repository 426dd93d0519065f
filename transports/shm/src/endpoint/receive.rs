//! What comes in: messages out of the rings of the peers that are watched.

use crate::{
    Shm,
    assembly::{Assembly, place},
    channel::{Arrival, kind},
    control::ControlMessage,
    exports::Export,
    ring::Incoming,
    segment::Segment,
    socket,
    watchlist::{FRONT, PER_PEER},
};
use petasos_fabric::{
    Access, Event, Lease, Peer,
    two_sided::{Placement, header},
};

/// A long message counts as one for each so many bytes: a peer that sends long ones does not keep
/// out others for longer than one that sends short ones.
const AS_ONE: usize = 4 << 10;

/// The room that each of so many peers gets in a pass: some for each, if there is that much.
fn share(room: usize, peers: usize) -> usize {
    (room / peers.max(1)).clamp(1, PER_PEER)
}

impl Shm {
    /// Whether something has come from a peer: a cheap test, which may be mistaken for a moment.
    #[inline]
    pub(super) fn has_come(&self, index: u32) -> bool {
        self.channels.get(index).is_some_and(|channel| !channel.pair.is_empty())
    }

    /// The same, for parts of a message as well.
    fn is_there(&self, index: u32) -> bool {
        let channel = self.channels.get(index);
        channel.is_some_and(|channel| !channel.pair.is_empty() || channel.pair.is_within())
    }

    /// Takes what has come from the peers in front, if there are no others. Most passes end here,
    /// with nothing, and most others with messages from one peer.
    #[inline]
    pub(super) fn receive_come(&mut self, room: usize, events: &mut Vec<Event>) -> bool {
        let sent = |index: &u32| self.has_come(*index);
        match self.watched.iter().enumerate().rfind(|(_, index)| sent(index)) {
            None => false,
            Some((0, &first)) => self.receive(first, room, events),
            Some((last, _)) => self.receive_front(last + 1, room, events),
        }
    }

    /// The same in a pass after something was sent. Apart, so that the pass without is short.
    #[inline(never)]
    pub(super) fn ring_and_receive(&mut self, room: usize, events: &mut Vec<Event>) -> bool {
        self.ring_pending();
        self.receive_come(room, events)
    }

    /// Takes what has come from so many peers in front, the last of them first. True if there was
    /// something.
    #[inline(never)]
    pub(super) fn receive_front(
        &mut self,
        count: usize,
        room: usize,
        events: &mut Vec<Event>,
    ) -> bool {
        let end = events.len().saturating_add(room);
        let mut worked = false;
        let front = self.watched.iter().take(count);
        let busy = front.filter(|index| self.has_come(**index)).count();
        let share = share(room, busy);
        // Where there is not room for all, another one is the first each time.
        let turn = if room < busy { self.schedule.passes() } else { 0 };
        // Backwards, as a peer that is lost is gone from the list; another one seldom, with it.
        for at in (0..count).rev() {
            let Some(index) = self.watched.get((at + turn) % count) else { continue };
            let room = end.saturating_sub(events.len()).min(share);
            worked |= self.has_come(index) && self.receive(index, room, events);
        }
        worked
    }

    /// The same for some of the peers behind the front, in turns.
    pub(super) fn receive_round(&mut self, room: usize, events: &mut Vec<Event>) -> bool {
        let end = events.len().saturating_add(room);
        let mut worked = false;
        let polls = self.watched.behind_front().len().min(FRONT);
        let share = share(room, polls);
        for _ in 0..polls {
            if events.len() >= end {
                break;
            }
            let Some((at, index)) = self.watched.next_behind_front() else { break };
            let room = (end - events.len()).min(share);
            if self.has_come(index) && self.receive(index, room, events) {
                worked = true;
                self.watched.promote(at);
            }
        }
        worked
    }

    /// Goes on with the peers that have sent a long message in part.
    pub(super) fn receive_parts(&mut self, room: usize, events: &mut Vec<Event>) -> bool {
        let end = events.len().saturating_add(room);
        let mut worked = false;
        for index in std::mem::take(&mut self.partial) {
            worked |= self.receive(index, end.saturating_sub(events.len()), events);
            if self.channel(index).is_some_and(|channel| channel.pair.is_within())
                && !self.partial.contains(&index)
            {
                self.partial.push(index);
            }
        }
        worked
    }

    /// Takes a message from one of the peers in front.
    #[inline(never)]
    pub(super) fn receive_one(&mut self, message: &mut Lease) -> Option<Peer> {
        self.watched.begin_turn();
        for _ in 0..self.watched.front_len() {
            let index = self.watched.turn()?;
            if self.has_come(index)
                && let Some(from) = self.receive_message(index, message)
            {
                self.watched.took(weight(message));
                return Some(from);
            }
            self.watched.next_turn();
        }
        None
    }

    /// Takes what has come from the peers in front, and from some of the others, which have half of
    /// the room.
    #[inline(never)]
    pub(super) fn receive_many(&mut self, room: usize, events: &mut Vec<Event>) -> bool {
        let before = events.len();
        let half = match self.watched.len() > FRONT {
            true => (room + self.schedule.passes() % 2) / 2,
            false => room,
        };
        let front = self.receive_front(FRONT, half, events);
        self.receive_round(room.saturating_sub(events.len() - before), events) || front
    }

    /// Takes the next message of a peer, if it is there.
    #[inline]
    pub(super) fn receive_message(&mut self, index: u32, message: &mut Lease) -> Option<Peer> {
        match self.receive_short(index, message) {
            Some(&peer) => Some(peer),
            None => self.receive_longer(index, message),
        }
    }

    /// The same for a message that is not to be taken plainly.
    #[inline]
    pub(super) fn receive_further(&mut self, index: u32, message: &mut Lease) -> Option<Peer> {
        let channel = self.channels.get_mut(index)?;
        match channel.receive_two(message, self.now, &mut self.counters) {
            Some(&peer) => Some(peer),
            None => self.receive_longer(index, message),
        }
    }

    /// The same for one that is not short. Of one that comes in parts, those that are there are
    /// taken.
    #[inline(never)]
    fn receive_longer(&mut self, index: u32, message: &mut Lease) -> Option<Peer> {
        loop {
            let Shm { channels, engine, config, counters, .. } = self;
            let channel = channels.get_mut(index)?;
            let incoming = channel.pair.peek().ok()??;
            let (within, kind) = (channel.pair.is_within(), incoming.kind);
            let ring = channel.pair.lies_in();
            let mut whole = None;
            if within {
                let Some(Assembly::Message(buffer, at)) = &mut channel.assembly else {
                    return None;
                };
                ring.read(&incoming, 0, &mut buffer[*at..*at + incoming.len]);
                *at += incoming.len;
                if *at == buffer.len()
                    && let Some(Assembly::Message(buffer, _)) = channel.assembly.take()
                {
                    whole = Some(buffer);
                }
            } else if kind == kind::SHORT {
                // A pad was in front of it.
                return self.receive_short(index, message).copied();
            } else if kind == kind::MESSAGE && incoming.len <= config.max_message {
                let Ok(mut buffer) = engine.buffer(channel.handle, incoming.len) else {
                    channel.overdrawn = true;
                    return None;
                };
                if incoming.announced {
                    channel.assembly = Some(Assembly::Message(buffer, 0));
                } else {
                    ring.read(&incoming, 0, &mut buffer);
                    whole = Some(buffer);
                }
            } else {
                return None;
            }
            if channel.pair.finish(incoming) {
                counters.wake_ups += 1;
                channel.ring();
            }
            if incoming.announced {
                self.partial.push(index);
            }
            if let Some(buffer) = whole {
                *message = buffer.into_lease();
                channel.touched = self.now;
                self.counters.received += 1;
                return Some(channel.handle);
            }
        }
    }

    /// Takes the next message of a peer, if it has one cell, and nothing else is to be done about
    /// it.
    #[inline(always)]
    pub(super) fn receive_plainly(&mut self, index: u32, message: &mut Lease) -> Option<&Peer> {
        let channel = self.channels.get_mut(index)?;
        let taken = channel.receive_plainly(message, self.now);
        taken.then(|| {
            self.counters.received += 1;
            &channel.handle
        })
    }

    /// Takes the next message of a peer, if it is there, and short.
    #[inline(always)]
    fn receive_short(&mut self, index: u32, message: &mut Lease) -> Option<&Peer> {
        let channel = self.channels.get_mut(index)?;
        channel.receive_short(message, self.now, &mut self.counters)
    }

    /// Takes from a peer from which something has come, as far as there is room in `events`. True
    /// if anything could be taken.
    #[inline(never)]
    pub(super) fn receive(&mut self, index: u32, room: usize, events: &mut Vec<Event>) -> bool {
        self.schedule.put_off(self.counters.received);
        let before = events.len();
        let end = before + room.min(PER_PEER);
        let mut message = Lease::default();
        let mut weighed = 0;
        while events.len() < end && weighed < PER_PEER {
            let Some(peer) = self.receive_message(index, &mut message) else {
                let others = self.is_there(index) && self.receive_and_answer(index, end, events);
                return others || events.len() > before;
            };
            weighed += weight(&message);
            events.push(Event::Message { peer, message: std::mem::take(&mut message) });
        }
        room > 0
    }

    /// Takes what is no plain message, and what follows. In the same pass, which may be the last
    /// one, sends what the engine answers, and reports its events.
    #[cold]
    #[inline(never)]
    fn receive_and_answer(&mut self, index: u32, end: usize, events: &mut Vec<Event>) -> bool {
        let worked = self.receive_others(index, end, events);
        if self.engine.has_output() {
            self.transmit_all();
            self.ring_pending();
        }
        self.hear_engine(end, events);
        worked
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
            kind::MESSAGE if channel.overdrawn => {
                return Err(format!("a message of {} bytes without credit", incoming.len));
            }
            // It has come just now.
            kind::SHORT => return Ok(false),
            kind::MESSAGE if incoming.len <= self.config.max_message => return Ok(false),
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
                self.partial.push(index);
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
                let wanted =
                    crate::channel::numbers::<5>(bytes).ok_or("a request of a bad length")?;
                self.give_segment(index, wanted);
            }
            kind::UNUSED => {
                let [id] = crate::channel::numbers(bytes).ok_or("a number of a bad length")?;
                channel.segments.unmap(id);
            }
            kind::MESSAGE => return Err(format!("a message of {} bytes", incoming.len)),
            kind => return Err(format!("a packet of the unknown kind {kind}")),
        }
        Ok(())
    }

    /// The region in which a put has landed, if it could.
    fn arrived(&self, arrival: &Arrival) -> Option<petasos_fabric::RegionId> {
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
            let route = parts.as_ref().and_then(|p| p.route(petasos_fabric::Key::ROUTE_TWO_SIDED));
            route.is_some_and(|route| crate::channel::numbers::<2>(route) == Some([first, second]))
        });
        let memory = region.and_then(|region| self.engine.region(region));
        let Some(channel) = self.channels.get_mut(index) else { return };
        let segment = memory.and_then(|(memory, access)| {
            let changes = access.allows(Access::WRITE) || access.allows(Access::ATOMIC);
            let segment = memory.region().backing::<Segment>().filter(|s| s.id == id)?;
            let unsealed = changes || channel.process.may_write_anyway();
            let given = (changes || !writable).then(|| segment.descriptor(unsealed, writable));
            Some((given?, segment.alive()))
        });
        let note = |given| ControlMessage::Segment { id, given, writable }.encode();
        if let Some((Ok(fd), alive)) = segment {
            use rustix::fd::AsFd;
            if socket::send(channel.process.socket(), &note(true), &[fd.as_fd()]).is_ok() {
                channel.granted.add(id, alive);
                return;
            }
        }
        let _ = socket::send(channel.process.socket(), &note(false), &[]);
    }

    /// Ends the peers that have hung up, once what they sent is taken.
    pub(super) fn end_all(&mut self, room: usize, events: &mut Vec<Event>) -> bool {
        let end = events.len().saturating_add(room);
        let mut worked = false;
        for index in self.channels.ending().to_vec() {
            let room = end.saturating_sub(events.len());
            worked |= self.has_come(index) && self.receive(index, room, events);
            if let Some(channel) = self.channel(index)
                && channel.pair.peek() == Ok(None)
                && let Some(reason) = channel.ending.take()
            {
                self.lose(index, reason);
                worked = true;
            }
        }
        worked
    }
}

/// For how many messages an event counts.
fn weight_of(event: &Event) -> usize {
    match event {
        Event::Message { message, .. } => weight(message),
        _ => 1,
    }
}

/// For how many messages one of this length counts.
#[inline]
fn weight(message: &[u8]) -> usize {
    1 + message.len() / AS_ONE
}

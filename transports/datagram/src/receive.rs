//! Receiving packets.

use crate::{
    datagrams::Datagrams,
    frame::{HEADER_LEN, Header, WAITS},
    link::Watch,
    network::{Happened, Mark, Network, Packet},
};
use petasos_fabric::{
    Event, Lease, LostReason, Peer,
    two_sided::{Placement, Violation, header},
};
use zerocopy::IntoBytes;

/// What became of a packet.
enum Taken {
    Yes,
    Wrong(Violation),
}

/// Bytes before a message: our header, and that of the engine's packet.
const BEFORE: usize = HEADER_LEN + header::PREFIX;
/// The most completions that a pass takes in: many make no event, and a peer that never pauses must
/// not hold up the rest.
const MOST: usize = 256;

impl<N: Network> Datagrams<N> {
    /// Takes in what has arrived, until there are `limit` events, or it was enough for a pass. True
    /// if there was anything.
    pub(crate) fn receive(&mut self, limit: usize, events: &mut Vec<Event>) -> bool {
        let mut worked = false;
        for _ in 0..MOST {
            if events.len() >= limit {
                break;
            }
            let Some(happened) = self.net.next() else { break };
            worked = true;
            self.happened(happened, events);
        }
        worked
    }

    #[inline]
    pub(crate) fn happened(&mut self, happened: Happened, events: &mut Vec<Event>) {
        match happened {
            Happened::Packet(packet) => {
                if let Some(header) = self.read_header(packet) {
                    self.packet(header, packet, events);
                }
            }
            Happened::Done(mark, result) => self.done(mark, result),
            Happened::CompletionData(data) => self.completion_arrived(data, events),
            Happened::Broken(code) => self.broken(code),
        }
    }

    /// Reads the header of a packet, and takes in its acknowledgement. Returns the header if a
    /// packet of the engine's follows it.
    #[inline]
    pub(crate) fn read_header(&mut self, packet: Packet) -> Option<Header> {
        if packet.len < HEADER_LEN {
            self.counters.strays += 1;
            return None;
        }
        let mut bytes = [0; HEADER_LEN];
        self.net.read(packet, 0, &mut bytes);
        let header = Header::from_bytes(bytes);
        let slot = header.slot & !WAITS;
        let known = self.links.get_mut(slot);
        let Some(link) = known.filter(|link| link.ticket() == header.ticket) else {
            self.counters.strays += 1;
            return None;
        };
        let had = link.out.has_window();
        if !link.out.acknowledge(header.taken) {
            self.cut_off(slot, "packets were acknowledged that were not sent");
            return None;
        }
        if !had && link.out.has_packets() {
            self.lists.queue(link);
        }
        (packet.len > HEADER_LEN).then_some(header)
    }

    /// Takes a packet of this peer's, or defers it.
    #[inline]
    fn packet(&mut self, header: Header, packet: Packet, events: &mut Vec<Event>) {
        let Some(peer) = self.admit(header, packet) else { return };
        match self.take(peer, packet, events) {
            Taken::Yes => {
                self.took(peer.index);
                self.pause(peer.index);
            }
            Taken::Wrong(violation) => self.cut_off(peer.index, &violation.to_string()),
        }
    }

    /// A packet has arrived. Returns its sender if it is to be taken now; else it is deferred, or
    /// wrong.
    #[inline]
    pub(crate) fn admit(&mut self, header: Header, packet: Packet) -> Option<Peer> {
        let (index, number) = (header.slot & !WAITS, header.number);
        let link = self.links.get_mut(index)?;
        self.counters.packets_in += 1;
        let received = link.inward.count_received();
        if let Watch::Owed(count) = link.watch
            && received.wrapping_sub(count) as i32 >= 0
        {
            link.watch = Watch::Rings;
        }
        let Some(distance) = link.inward.distance(number) else {
            self.cut_off(index, "a packet with a number that it cannot have");
            return None;
        };
        if header.slot & WAITS != 0 {
            link.inward.wait_for_completion(number);
        }
        if link.is_greeted() && distance == 0 && !link.inward.waits_for_completion() {
            return Some(link.peer());
        }
        let mut bytes = vec![0; packet.len - HEADER_LEN];
        self.net.read(packet, HEADER_LEN, &mut bytes);
        let link = self.links.get_mut(index)?;
        self.counters.deferred += 1;
        link.inward.defer(distance, bytes);
        self.lists.pause(link);
        None
    }

    /// Lists a peer if a deferred packet of it is due.
    #[inline]
    pub(crate) fn pause(&mut self, index: u32) {
        if let Some(link) = self.links.get_mut(index) {
            self.lists.pause(link);
        }
    }

    #[inline]
    fn take(&mut self, peer: Peer, packet: Packet, events: &mut Vec<Event>) -> Taken {
        let len = packet.len - HEADER_LEN;
        if len < header::PREFIX {
            return Taken::Wrong(Violation { what: "packet cut short", value: len as u64 });
        }
        let mut prefix = [0; header::PREFIX];
        self.net.read(packet, HEADER_LEN, &mut prefix);
        if let Some(message) = header::message_len(prefix) {
            let message = message as usize;
            if message != len - header::PREFIX || message > self.capabilities.limits.max_message {
                return Taken::Wrong(Violation {
                    what: "message of a bad length",
                    value: message as u64,
                });
            }
            let net = &self.net;
            let lent = self.engine.lend(peer, message, |room| net.read(packet, BEFORE, room));
            let lease = match lent {
                Ok(lease) => lease,
                Err(violation) => return Taken::Wrong(violation),
            };
            if self.engine.has_events() {
                self.engine.take_events(usize::MAX, events);
            }
            events.push(Event::Message { peer, message: lease });
            return Taken::Yes;
        }
        match self.land(peer, packet, prefix) {
            Ok(()) => Taken::Yes,
            Err(violation) => Taken::Wrong(violation),
        }
    }

    /// Hands a packet to the engine, and copies its payload to where it belongs.
    fn land(
        &mut self,
        peer: Peer,
        packet: Packet,
        prefix: [u8; header::PREFIX],
    ) -> Result<(), Violation> {
        let frame = header::frame(prefix)?;
        let len = packet.len - HEADER_LEN;
        if frame.header + frame.payload != len {
            return Err(Violation { what: "packet of a bad length", value: len as u64 });
        }
        let mut bytes = [0; header::MAX];
        let bytes = &mut bytes[..frame.header];
        self.net.read(packet, HEADER_LEN, bytes);
        let mut at = HEADER_LEN + frame.header;
        let mut placement = self.engine.accept(peer, bytes)?;
        match &mut placement {
            Placement::Discard => {}
            Placement::Buffer(buffer) => self.net.read(packet, at, buffer),
            Placement::Memory(pieces) => {
                for piece in pieces {
                    at += self.net.copy(packet, at, piece);
                }
            }
        }
        self.engine.landed(peer, placement)
    }

    /// Goes on with packets whose turn had not come, or for whose events there was no room.
    pub(crate) fn resume(&mut self, limit: usize, events: &mut Vec<Event>) -> bool {
        let mut worked = false;
        for index in self.lists.take_paused() {
            if let Some(link) = self.links.get_mut(index) {
                link.inward.leave_paused();
                worked |= self.take_deferred(index, limit, events);
            }
        }
        worked
    }

    /// Takes the deferred packets of a peer that are due; lists it if there are too many. True if
    /// there were any.
    pub(crate) fn take_deferred(
        &mut self,
        index: u32,
        limit: usize,
        events: &mut Vec<Event>,
    ) -> bool {
        let mut worked = false;
        while let Some(link) = self.links.get_mut(index)
            && let Some(packet) = link.inward.due()
        {
            if !link.is_greeted() || events.len() >= limit {
                self.pause(index);
                break;
            }
            match self.engine.deliver(link.peer(), packet) {
                Ok(()) => {
                    self.took(index);
                    worked = true;
                }
                Err(violation) => {
                    self.cut_off(index, &violation.to_string());
                    break;
                }
            }
            // In order with the events that follow.
            let room = limit.saturating_sub(events.len());
            self.engine.take_events(room, events);
        }
        worked
    }

    /// The library has completed an operation.
    pub(crate) fn done(&mut self, mark: Mark, result: Result<(), i32>) {
        if let Mark::Payload { link, serial } = mark {
            self.payload_done(link, serial);
        }
        let (index, failed) = match mark {
            Mark::Packet { link: index, serial } | Mark::Payload { link: index, serial } => {
                let Datagrams { links, engine, .. } = self;
                let Some(link) = links.get_mut(index) else {
                    return self.lost_packet_done(index, serial);
                };
                let Some(done) = link.out.arrive(serial) else {
                    return self.lost_packet_done(index, serial);
                };
                link.out.end_operation();
                for _ in 0..done {
                    engine.sent(link.peer());
                }
                (index, result.err())
            }
            Mark::Short { link: index, serial } => {
                let link = self.links.get_mut(index);
                let Some(link) = link.filter(|link| link.peer().generation == serial) else {
                    return self.lost_short_done(index, serial);
                };
                link.out.end_operation();
                (index, result.err())
            }
            Mark::Access { access, serial } => return self.access_done(access, serial, result),
        };
        if let Some(code) = failed {
            self.fail(index, code as isize);
        } else if self.rings {
            self.ring_late(index);
        }
    }

    /// Stores a short message in `message`, if it is the next event.
    #[inline]
    pub(crate) fn poll_short(&mut self, message: &mut Lease) -> Option<Peer> {
        if self.engine.has_events() || !self.lists.paused().is_empty() || !self.early.is_empty() {
            return None;
        }
        let Some(happened) = self.net.next() else {
            self.pace.library_was_empty();
            return None;
        };
        self.pace.arrived();
        if let Happened::Packet(packet) = happened
            && let Some(peer) = self.short(packet, message)
        {
            return Some(peer);
        }
        let mut early = std::mem::take(&mut self.early);
        self.happened(happened, &mut early);
        self.early = early;
        self.early_message(message)
    }

    /// Takes a short message whose turn it is, if nothing else is to be done about its packet,
    /// which is read in one go. Otherwise nothing has happened.
    #[inline]
    fn short(&mut self, packet: Packet, message: &mut Lease) -> Option<Peer> {
        if packet.len < BEFORE || packet.len > BEFORE + Lease::LINES {
            return None;
        }
        let mut words = [0u64; BEFORE / 8 + Lease::LINES / 8];
        self.net.read(packet, 0, &mut words.as_mut_bytes()[..packet.len]);
        let [low, high, prefix, rest @ ..] = words;
        let len = packet.len - BEFORE;
        let header = Header::from_words(u64::from_le(low), u64::from_le(high));
        if prefix.to_ne_bytes() != header::message_header(len as u32) {
            return None;
        }
        let link = self.links.get_mut(header.slot)?;
        let next = link.inward.taken() as u16 == header.number;
        let due = link.ticket() == header.ticket && link.is_up() && next;
        let plain = !link.inward.has_deferred()
            && link.out.has_window()
            && !matches!(link.watch, Watch::Owed(_));
        if !due || !plain || !link.out.acknowledge(header.taken) {
            return None;
        }
        link.inward.count_received();
        let peer = link.peer();
        let [first @ .., _, _, _, _, _, _, _] = rest;
        if len <= Lease::INLINE {
            message.put_words(len, |at| first[at]);
        } else {
            let [_, _, _, _, _, _, _, second @ ..] = rest;
            message.put_lines(len, || [first, second]);
        }
        self.counters.packets_in += 1;
        self.pace.message_taken();
        self.took(header.slot);
        Some(peer)
    }

    /// The message, if it is the only event that was made.
    fn early_message(&mut self, message: &mut Lease) -> Option<Peer> {
        if let [Event::Message { .. }] = &self.early[..]
            && let Some(Event::Message { peer, message: lease }) = self.early.pop()
        {
            *message = lease;
            return Some(peer);
        }
        None
    }

    /// The library cannot receive any more: all peers are lost.
    #[cold]
    pub(crate) fn broken(&mut self, code: i32) {
        let why = self.net.error(code as isize);
        for index in 0..self.links.slots() {
            self.end(index, LostReason::System(why.clone()));
        }
    }
}

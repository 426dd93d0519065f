//! The fast path of packets that arrive: what is whole, and whose turn it is, is copied from the
//! device's memory to where it belongs, and nothing else is made of it.

use crate::{
    Channels, Device, Garbage,
    device::{Node, Search},
    flow::In,
    header::{HEADER, Header, Kind},
    short::{WHOLE, is_message},
};
use petasos_fabric::{
    Event, Lease, Peer,
    two_sided::{
        Placement,
        header::{self, Frame, PREFIX},
    },
};

/// What stands before a message: the header of the record, and that of the engine's packet.
const BEFORE: usize = HEADER + PREFIX;

/// The most packets that a pass takes so: many make no event, and a peer that never pauses must not
/// hold up the rest.
const MOST: usize = 256;

/// A record that is a whole packet of the engine's, and is next.
struct Whole {
    peer: Peer,
    header: Header,
    prefix: [u8; PREFIX],
    /// Of the engine's packet, in bytes.
    len: usize,
}

impl<D: Device> Channels<D> {
    /// Takes packets that the device finds, until there are `limit` events. True if there were any.
    pub(crate) fn take_found(&mut self, limit: usize, events: &mut Vec<Event>) -> bool {
        // The device was just asked, by `poll_message`, and had nothing.
        if std::mem::take(&mut self.searched) {
            return false;
        }
        let mut worked = false;
        for _ in 0..MOST {
            if events.len() >= limit || !self.takes_data() {
                break;
            }
            let Search::Found(node, len) = self.port.device_mut().find_packet() else { break };
            let Some(whole) = self.examine(node, len) else { break };
            let mut message = Lease::default();
            if self.take_plain(&whole, &mut message) {
                // In order with what the engine reports.
                if !self.engine.is_quiet() {
                    self.engine.take_events(usize::MAX, events);
                }
                events.push(Event::Message { peer: whole.peer, message });
            } else if !self.take_other(&whole) {
                break;
            } else if !self.engine.is_quiet() {
                self.engine.take_events(limit.saturating_sub(events.len()), events);
            }
            worked = true;
        }
        worked
    }

    /// Takes the next message, if the device finds it; `None` if it found nothing at all. Whatever
    /// else there is, is left to its events.
    #[inline]
    pub(crate) fn find_message(&mut self, message: &mut Lease) -> Option<Option<Peer>> {
        self.searched = false;
        if !self.takes_data() {
            return Some(None);
        }
        match self.port.device_mut().find_packet() {
            Search::Found(node, len) => {
                let whole = self.examine(node, len);
                let taken = whole.filter(|whole| self.take_plain(whole, message));
                self.counters.short_in += u64::from(taken.is_some());
                Some(taken.map(|whole| whole.peer))
            }
            Search::Poll => Some(None),
            Search::Nothing => {
                self.searched = true;
                None
            }
        }
    }

    /// The packet that was found, if it is whole, and its turn is now. Nothing has happened yet.
    #[inline]
    fn examine(&self, node: Node, len: usize) -> Option<Whole> {
        let body = len.checked_sub(HEADER)?;
        if body < PREFIX {
            return None;
        }
        let mut first = [0; BEFORE];
        self.port.device().read_found(0, &mut first);
        let (header, prefix) = first.split_first_chunk()?;
        let header = Header::decode(*header).ok()?;
        let peer = self.peer_of(node)?;
        let next = header.seq == self.peers.get(peer.index).next_in();
        let record = header.kind == Kind::Record && header.flags == WHOLE;
        let whole = record && next && header.len as usize == body;
        let plain = self
            .peers
            .flow(peer.index)
            .is_none_or(|flow| flow.assembly.is_none() && flow.deferred.is_empty());
        let prefix = *prefix.first_chunk()?;
        (whole && plain).then_some(Whole { peer, header, prefix, len: body })
    }

    /// Takes a packet that is a message. False if it is none, or an invalid one, which the usual
    /// path deals with.
    #[inline]
    fn take_plain(&mut self, whole: &Whole, message: &mut Lease) -> bool {
        let most = self.config.limits.max_message;
        if !is_message(whole.header, whole.prefix, whole.len, most) {
            return false;
        }
        let device = self.port.device();
        let fill = |room: &mut [u8]| device.read_found(BEFORE, room);
        let Ok(lease) = self.engine.lend(whole.peer, whole.len - PREFIX, fill) else {
            return false;
        };
        *message = lease;
        self.taken_whole(whole);
        true
    }

    /// Takes a packet that is no message. False if it is invalid, and is dealt with on the usual
    /// path.
    fn take_other(&mut self, whole: &Whole) -> bool {
        let Ok(frame) = header::frame(whole.prefix) else { return false };
        if frame.header + frame.payload != whole.len || header::message_len(whole.prefix).is_some()
        {
            return false;
        }
        let placed = self.place(whole.peer, &frame);
        self.taken_whole(whole);
        self.check(whole.peer, placed);
        true
    }

    /// Hands the packet that was found to the engine, and copies its payload to where it belongs.
    fn place(&mut self, peer: Peer, frame: &Frame) -> Result<(), Garbage> {
        let mut first = [0; header::MAX];
        let first = &mut first[..frame.header];
        let device = self.port.device();
        device.read_found(HEADER, first);
        let mut placement = self.engine.accept(peer, first)?;
        let mut at = HEADER + frame.header;
        match &mut placement {
            Placement::Discard => {}
            Placement::Buffer(buffer) => device.read_found(at, buffer),
            Placement::Memory(pieces) => {
                for piece in pieces {
                    device.copy_found(at, piece);
                    at += piece.len();
                }
            }
        }
        Ok(self.engine.landed(peer, placement)?)
    }

    /// The packet that was found was taken.
    #[inline]
    fn taken_whole(&mut self, whole: &Whole) {
        let peer = whole.peer;
        self.port.device_mut().take_found();
        let mut flow = self.peers.open_flow(peer.index);
        let acknowledged = self.acknowledged(peer, &mut flow, whole.header.ack);
        self.peers.get_mut(peer.index).record_taken();
        flow.ack.add_packet();
        if let In::Open(_) = flow.inward {
            // The next record may be there already.
            self.schedule.list_input(peer.index, &mut flow);
        }
        self.settle_ack(peer, &mut flow);
        self.peers.put_flow(peer.index, flow);
        if acknowledged.is_err() {
            self.check(peer, acknowledged);
        }
    }
}

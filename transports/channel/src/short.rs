//! The fast path of short messages: sent at once, and received without an event.
//!
//! Most messages are short, and meet an open stream with nothing before them. Such a message is one
//! record. [`inject`](petasos_fabric::Endpoint::inject) composes it in a buffer that is used again
//! and hands it to the device; the receiver copies it from where it arrived to the lease of its
//! user. Neither side allocates anything for it. If anything is in the way (no room, a message
//! before it, an event to be reported first), the message takes the usual path, through the engine.

use crate::{
    Channels, Device, Force,
    device::Node,
    fifo,
    flow::{Flow, In, Out},
    header::{FIRST, HEADER, Header, LAST, distance},
    outbound::Step,
};
use petasos_fabric::{
    Lease, Peer,
    two_sided::header::{PREFIX, message_header, message_len},
};

/// The most events that are taken from the device for one message.
const FEW: usize = 16;
/// A packet in one record.
pub(crate) const WHOLE: u8 = FIRST | LAST;

/// What the next record of a peer is.
enum Next {
    Message,
    /// There is none whose turn has come.
    Nothing,
    /// Something for the usual path.
    Other,
}

impl<D: Device> Channels<D> {
    /// Sends a message at once, if nothing is before it and there is room.
    pub(crate) fn inject_now(&mut self, peer: Peer, parts: &[&[u8]]) -> bool {
        let Some(node) = self.peers.node(peer.index) else { return false };
        let len = parts.iter().map(|part| part.len()).sum();
        if len > self.config.limits.max_inject || !self.engine.may_send(peer, len) {
            return false;
        }
        let mut flow = self.peers.open_flow(peer.index);
        let sent = self.inject_within(peer, node, &mut flow, parts, len);
        self.peers.put_flow(peer.index, flow);
        sent
    }

    fn inject_within(
        &mut self,
        peer: Peer,
        node: Node,
        flow: &mut Flow,
        parts: &[&[u8]],
        len: usize,
    ) -> bool {
        if flow.pending || flow.current.is_some() {
            return false;
        }
        let total = PREFIX + len;
        let exclusive = match &flow.out {
            Out::Open(out) if self.suits_exclusive(total) => Some(fifo::max_body(out.fifo.cells())),
            _ => None,
        };
        let packet = self.port.packet() - HEADER;
        let most = match (self.config.force, exclusive) {
            (Force::Exclusive, None) | (Force::Shared, _) => return false,
            (_, Some(record)) => record,
            (Force::None, None) => packet.min(self.thresholds.mp()),
            (Force::Mp, None) => packet,
        };
        if total > most {
            return false;
        }
        let prefix = message_header(len as u32);
        let step = match exclusive {
            Some(_) => self.put(peer, node, flow, (WHOLE, total), |out| {
                out.extend_from_slice(&prefix);
                parts.iter().for_each(|part| out.extend_from_slice(part));
            }),
            None => self.send_now(peer, node, flow, (prefix, parts, total)),
        };
        if let Step::Blocked = step {
            return false;
        }
        let counters = &mut self.counters;
        match exclusive {
            Some(_) => counters.exclusive += 1,
            None => counters.mp += 1,
        }
        counters.short_out += 1;
        counters.records += 1;
        counters.bytes += total as u64;
        self.engine.sent_around(peer, len);
        self.count_message(peer, flow, total);
        true
    }

    /// Takes the next message, if it has arrived and nothing else is to be reported or done before
    /// it.
    pub(crate) fn take_short(&mut self, message: &mut Lease) -> Option<Peer> {
        if self.has_chores() {
            return None;
        }
        let peer = self.next_short(message);
        if peer.is_some() || self.schedule.has_input() {
            return peer;
        }
        if let found @ Some(_) = self.find_message(message)? {
            return found;
        }
        if !self.poll_device(FEW) || self.has_chores() {
            return None;
        }
        self.next_short(message)
    }

    /// Whether there is something to report or to do first.
    fn has_chores(&self) -> bool {
        self.schedule.has_output() || !self.engine.is_quiet()
    }

    fn next_short(&mut self, message: &mut Lease) -> Option<Peer> {
        while let Some(index) = self.schedule.first_input() {
            let slot = self.peers.take_flow(index);
            let (Some(peer), Some(mut flow)) = (self.engine.peer_at(index), slot) else {
                self.schedule.pop_input();
                continue;
            };
            flow.used = true;
            let next = self.take_message(peer, &mut flow, message);
            match next {
                // The other peers have their turn.
                Next::Message => self.schedule.rotate_input(),
                Next::Nothing => {
                    self.schedule.pop_input();
                    self.schedule.input_taken(&mut flow);
                    self.fetch(index, &mut flow);
                }
                Next::Other => {}
            }
            if !matches!(next, Next::Other) {
                self.settle_ack(peer, &mut flow);
            }
            self.peers.put_flow(index, flow);
            match next {
                Next::Message => {
                    self.counters.short_in += 1;
                    return Some(peer);
                }
                Next::Nothing => {}
                Next::Other => return None,
            }
        }
        None
    }

    /// Takes the peer's next record, if that is a message.
    fn take_message(&mut self, peer: Peer, flow: &mut Flow, message: &mut Lease) -> Next {
        if flow.assembly.is_some() {
            return Next::Other;
        }
        let next = self.peers.get(peer.index).next_in();
        let most = self.config.limits.max_message;
        let engine = &mut self.engine;
        if let Some(deferred) = flow.deferred.front()
            && deferred.seq == next
        {
            let Ok((header, body)) = Header::split(&deferred.bytes) else { return Next::Other };
            let Some((prefix, bytes)) = body.split_first_chunk() else { return Next::Other };
            if !is_message(header, *prefix, body.len(), most) {
                return Next::Other;
            }
            let lent = engine.lend(peer, bytes.len(), |room| room.copy_from_slice(bytes));
            let Ok(lease) = lent else { return Next::Other };
            *message = lease;
            if let Some(deferred) = self.schedule.undefer(flow) {
                self.forget_deferred(deferred);
            }
            flow.ack.add_packet();
        } else if let In::Open(inward) = &mut flow.inward {
            // An invalid record is dealt with on the usual path.
            let Ok(front) = inward.fifo.front() else { return Next::Other };
            let Some(front) = front else { return Next::Nothing };
            match distance(next, front.seq()) {
                0 => {}
                1.. => return Next::Nothing,
                _ => return Next::Other,
            }
            let (mut prefix, len) = ([0; PREFIX], front.body.len());
            if len < PREFIX {
                return Next::Other;
            }
            front.body.read(0, &mut prefix);
            if !is_message(front.header, prefix, len, most) {
                return Next::Other;
            }
            let lent = engine.lend(peer, len - PREFIX, |room| front.body.read(PREFIX, room));
            let Ok(lease) = lent else { return Next::Other };
            *message = lease;
            flow.ack.add_cells(inward.fifo.consume(&front));
        } else {
            return Next::Nothing;
        }
        self.peers.get_mut(peer.index).record_taken();
        Next::Message
    }
}

/// Whether a record of a body of `len` bytes, which begins with `prefix`, is a message and nothing
/// else.
pub(crate) fn is_message(header: Header, prefix: [u8; PREFIX], len: usize, most: usize) -> bool {
    let message = message_len(prefix).map(|message| message as usize);
    header.flags == WHOLE
        && message.is_some_and(|message| message + PREFIX == len && message <= most)
}

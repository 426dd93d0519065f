//! The short ways of short messages: out at once, and in without an event.
//!
//! Most messages are short, and meet an open stream with nothing before them. Such a message is one
//! record, put together in a buffer that is used again and given to the device within
//! [`inject`](petasos_fabric::Endpoint::inject); and the receiver copies it from where it came to the
//! lease of its user. Neither side allocates anything for it. Whatever is in the way (no room, a message
//! before it, an event to be told first) leaves it to the usual way, through the engine.

use crate::{
    Channels, Device, Force,
    device::Node,
    fifo,
    flow::{Flow, In, Out},
    head::{FIRST, HEAD, Head, LAST, distance},
    outbound::Step,
};
use petasos_fabric::{
    Lease, Peer,
    two_sided::header::{PREFIX, message_header, message_len},
};

/// What is taken from the device for one message.
const FEW: usize = 16;
/// A packet in one record.
const WHOLE: u8 = FIRST | LAST;

/// What a peer has for who takes short messages.
enum Next {
    Message,
    /// Nothing whose turn has come.
    Nothing,
    /// Something for the usual way.
    Other,
}

impl<D: Device> Channels<D> {
    /// Sends a message at once, if nothing is before it and there is room.
    pub(crate) fn inject_now(&mut self, peer: Peer, parts: &[&[u8]]) -> bool {
        let node = self.entries.get(peer.index as usize).and_then(|entry| entry.node);
        let Some(node) = node.filter(|_| self.engine.is_up(peer)) else { return false };
        let len = parts.iter().map(|part| part.len()).sum();
        if len > self.config.limits.max_inject || !self.engine.may_send(peer, len) {
            return false;
        }
        let mut flow = self.lift(peer.index);
        let sent = self.inject_within(peer, node, &mut flow, parts, len);
        self.lay(peer.index, flow);
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
        if flow.pending || flow.train.is_some() {
            return false;
        }
        let exclusive = match &flow.out {
            Out::Open(out) => Some(fifo::max_body(out.fifo.cells())),
            _ => None,
        };
        let packet = self.device.limits().packet - HEAD;
        let thresholds = &self.thresholds;
        let most = match (self.config.force, exclusive) {
            (Force::Exclusive, None) | (Force::Shared, _) => return false,
            (Force::None, Some(record)) => record.min(thresholds.exclusive()),
            (Force::None, None) => packet.min(thresholds.mp()),
            (_, Some(record)) => record,
            (_, None) => packet,
        };
        let total = PREFIX + len;
        if total > most {
            return false;
        }
        let fill = |out: &mut Vec<u8>| {
            out.extend_from_slice(&message_header(len as u32));
            parts.iter().for_each(|part| out.extend_from_slice(part));
        };
        let step = match exclusive {
            Some(_) => self.put(peer, node, flow, (WHOLE, total), fill),
            None => self.send(peer, node, flow, (WHOLE, total), fill),
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
        self.heat(peer, flow);
        true
    }

    /// Takes the next message, if it has come and nothing else is to be told or done before it.
    pub(crate) fn take_short(&mut self, message: &mut Lease) -> Option<Peer> {
        if self.has_chores() {
            return None;
        }
        let peer = self.next_short(message);
        if peer.is_some() || !self.input.is_empty() {
            return peer;
        }
        if !self.poll_device(FEW) || self.has_chores() {
            return None;
        }
        self.next_short(message)
    }

    /// Whether there is something to tell or to do first.
    fn has_chores(&self) -> bool {
        !self.output.is_empty() || !self.engine.is_quiet()
    }

    fn next_short(&mut self, message: &mut Lease) -> Option<Peer> {
        while let Some(&index) = self.input.front() {
            let slot = self.entries[index as usize].flow.take();
            let (Some(peer), Some(mut flow)) = (self.engine.peer_at(index), slot) else {
                self.input.pop_front();
                continue;
            };
            flow.used = true;
            let next = self.take_message(peer, &mut flow, message);
            match next {
                // The others have their turn.
                Next::Message => self.input.rotate_left(1),
                Next::Nothing => {
                    flow.stirred = false;
                    self.input.pop_front();
                    self.fetch(index, &mut flow);
                }
                Next::Other => {}
            }
            if !matches!(next, Next::Other) {
                self.settle_ack(peer, &mut flow);
            }
            self.lay(index, flow);
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
        let next = self.entries[peer.index as usize].next_in;
        let most = self.config.limits.max_message;
        let engine = &mut self.engine;
        if let Some(deferred) = flow.deferred.front()
            && deferred.seq == next
        {
            let Ok((head, body)) = Head::split(&deferred.bytes) else { return Next::Other };
            let Some((prefix, bytes)) = body.split_first_chunk() else { return Next::Other };
            if !is_message(head, *prefix, body.len(), most) {
                return Next::Other;
            }
            let lent = engine.lend(peer, bytes.len(), |room| room.copy_from_slice(bytes));
            let Ok(lease) = lent else { return Next::Other };
            *message = lease;
            if let Some(deferred) = flow.deferred.pop_front() {
                self.forget_deferred(deferred);
            }
            flow.records += 1;
        } else if let In::Open(inward) = &mut flow.inward {
            // What makes no sense is judged in the usual way.
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
            if !is_message(front.head, prefix, len, most) {
                return Next::Other;
            }
            let lent = engine.lend(peer, len - PREFIX, |room| front.body.read(PREFIX, room));
            let Ok(lease) = lent else { return Next::Other };
            *message = lease;
            flow.cells += inward.fifo.consume(&front);
        } else {
            return Next::Nothing;
        }
        self.entries[peer.index as usize].next_in = next.wrapping_add(1);
        Next::Message
    }
}

/// Whether a record of a body of `len` bytes, which begins with `prefix`, is a message and nothing else.
fn is_message(head: Head, prefix: [u8; PREFIX], len: usize, most: usize) -> bool {
    let message = message_len(prefix).map(|message| message as usize);
    head.flags == WHOLE && message.is_some_and(|message| message + PREFIX == len && message <= most)
}

//! Sending packets: those of the engine, short messages past it, and acknowledgements.

use crate::{
    datagrams::Datagrams,
    frame::{Control, HEADER_LEN, WAITS},
    link::Link,
    network::{Mark, Network, Node, Refusal, Taken},
    slots::Slots,
};
use petasos_fabric::{
    InjectError, LostReason, Peer,
    two_sided::{
        Engine, Outgoing, Packet,
        header::{MAX, message_header},
    },
};
use std::mem;

/// The most packets to one peer before others have their turn.
const TURN: usize = 32;

/// Posts the next packet to a peer; if it is refused, nothing has changed. A packet whose payload
/// the library already writes completes with that write.
fn post<N: Network>(
    net: &mut N,
    engine: &mut Engine,
    link: &mut Link,
    node: Node,
    packet: &mut Packet,
) -> Result<(), Refusal> {
    let total = HEADER_LEN + packet.len();
    let mut whole = [0; HEADER_LEN + MAX];
    let header = packet.header.len();
    whole[..HEADER_LEN].copy_from_slice(&link.header().to_bytes());
    whole[3] |= if link.out.is_payload_written() { (WAITS >> 24) as u8 } else { 0 };
    whole[HEADER_LEN..HEADER_LEN + header].copy_from_slice(&packet.header);
    let whole = &whole[..HEADER_LEN + header];
    let peer = link.peer();
    let mark = match link.out.is_payload_written() {
        true => Mark::Short { link: peer.index, serial: peer.generation },
        false => Mark::Packet { link: peer.index, serial: link.out.next_serial() },
    };
    let taken = if total <= net.facts().inject {
        let fill = |room: &mut [u8]| {
            room[..whole.len()].copy_from_slice(whole);
            packet.payload.read(&mut room[whole.len()..]);
        };
        net.inject(node, total, fill, mark)?
    } else {
        if packet.payload.is_raw() && total > Slots::<()>::BUFFER {
            packet.payload.copy();
        }
        let payload = mem::replace(&mut packet.payload, Outgoing::Nothing);
        if let Err((refusal, payload)) = net.send(node, whole, payload, mark) {
            packet.payload = payload;
            return Err(refusal);
        }
        Taken::Waits
    };
    link.out.begin_operations(u32::from(taken == Taken::Waits));
    if !link.out.is_payload_written() {
        let serial = link.out.depart();
        if taken == Taken::Left {
            for _ in 0..link.out.arrive(serial).unwrap_or_default() {
                engine.sent(peer);
            }
        }
    }
    Ok(())
}

impl<N: Network> Datagrams<N> {
    /// Sends a message past the engine. `None` if that is not possible now, and the engine is to
    /// take it.
    #[inline]
    pub(crate) fn inject_now(
        &mut self,
        peer: Peer,
        parts: &[&[u8]],
    ) -> Option<Result<(), InjectError>> {
        let Datagrams { links, net, engine, .. } = self;
        let link = links.get_mut(peer.index)?;
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let total = HEADER_LEN + 8 + len;
        if link.peer() != peer
            || !link.is_up()
            || !link.out.has_window()
            || link.out.has_refused()
            || total > N::SHORT
            || !engine.may_send(peer, len)
        {
            return None;
        }
        let node = link.node()?;
        let (header, message) = (link.header().to_bytes(), message_header(len as u32));
        let mark = Mark::Short { link: peer.index, serial: peer.generation };
        let sent = if total <= net.facts().inject {
            let fill = |room: &mut [u8]| {
                room[..HEADER_LEN].copy_from_slice(&header);
                room[HEADER_LEN..HEADER_LEN + 8].copy_from_slice(&message);
                let mut at = HEADER_LEN + 8;
                for part in parts {
                    room[at..at + part.len()].copy_from_slice(part);
                    at += part.len();
                }
            };
            net.inject(node, total, fill, mark)
        } else {
            net.send_short(node, &[&header, &message], parts, mark).map(|()| Taken::Waits)
        };
        match sent {
            Ok(taken) => {
                link.out.begin_operations(u32::from(taken == Taken::Waits));
                link.out.packet_sent();
                link.inward.acknowledged();
                engine.sent_around(peer, len);
                self.counters.packets_out += 1;
                if link.rings && self.rings {
                    self.ring(peer.index);
                }
                Some(Ok(()))
            }
            // The engine keeps it, and the next pass tries again.
            Err(Refusal::Full) => {
                self.counters.again += 1;
                None
            }
            Err(Refusal::Failed(code)) => {
                self.fail(peer.index, code);
                None
            }
        }
    }

    /// Sends the engine's packets to all peers that have room. True if anything was sent.
    pub(crate) fn flush(&mut self) -> bool {
        while let Some(peer) = self.engine.next_output() {
            if let Some(link) = self.links.of(peer) {
                link.out.set_has_packets(true);
                self.lists.queue(link);
            }
        }
        let mut sent = false;
        for _ in 0..self.lists.outgoing_len() {
            let Some(index) = self.lists.pop_outgoing() else { break };
            sent |= self.write(index);
        }
        sent
    }

    /// Sends to one peer. True if anything was sent.
    fn write(&mut self, index: u32) -> bool {
        let mut count = 0;
        let mut failed = None;
        let long = self.long_payload();
        let Some(link) = self.links.get_mut(index) else { return false };
        link.out.leave_queue();
        let Some(node) = link.node().filter(|_| link.is_up()) else { return false };
        let (mut again, mut refused_full) = (false, false);
        // Without window the peer is queued again when it has taken something.
        while let Some(link) = self.links.get_mut(index)
            && link.out.has_window()
        {
            if count == TURN {
                again = true;
                break;
            }
            let packet = link.out.take_refused();
            let packet = packet.or_else(|| self.engine.poll_transmit(link.peer()));
            let Some(mut packet) = packet else {
                link.out.set_has_packets(false);
                break;
            };
            let refused = match packet.payload.len() >= long {
                true => self.write_payload(index, &mut packet).err(),
                false => None,
            };
            let Datagrams { links, net, engine, .. } = self;
            let Some(link) = links.get_mut(index) else { break };
            let sent = match refused {
                Some(refusal) => Err(refusal),
                None => post(net, engine, link, node, &mut packet),
            };
            match sent {
                Ok(()) => {
                    link.out.packet_sent();
                    link.inward.acknowledged();
                    count += 1;
                }
                Err(refusal) => {
                    link.out.keep_refused(packet);
                    match refusal {
                        Refusal::Full => (again, refused_full) = (true, true),
                        Refusal::Failed(code) => failed = Some(code),
                    }
                    break;
                }
            }
        }
        self.counters.packets_out += count as u64;
        if refused_full {
            self.full(index);
        }
        let stuck = again && count < TURN;
        let ring = self.rings && self.links.get(index).is_some_and(|link| link.rings);
        if (count > 0 || stuck) && ring {
            // The peer may have to poll before there is room.
            self.ring(index);
        }
        if let Some(code) = failed {
            self.fail(index, code);
        } else if again && let Some(link) = self.links.get_mut(index) {
            self.lists.queue(link);
        }
        count > 0
    }

    /// From which length on the library may write payloads: see [`crate::completion`].
    fn long_payload(&self) -> usize {
        let from = usize::try_from(self.payloads_from()).unwrap_or(usize::MAX);
        if self.grants.is_empty() { usize::MAX } else { from }
    }

    /// A packet of this peer was taken. The peer is told now and then, if no packet does so.
    #[inline]
    pub(crate) fn took(&mut self, index: u32) {
        let Some(link) = self.links.get_mut(index) else { return };
        link.inward.advance();
        self.lists.owe(link);
    }

    /// Tells peers how many of their packets were taken.
    pub(crate) fn acknowledge(&mut self) -> bool {
        let mut told = false;
        for index in self.lists.take_owing() {
            let Datagrams { links, net, .. } = self;
            let Some(link) = links.get_mut(index) else { continue };
            link.inward.leave_owing();
            let Some(node) = link.node().filter(|_| link.is_up()) else { continue };
            if !link.inward.owes() {
                continue;
            }
            let header = link.header().to_bytes();
            let mark = Mark::Short { link: index, serial: link.peer().generation };
            let sent = if HEADER_LEN <= net.facts().inject {
                net.inject(node, HEADER_LEN, |room| room.copy_from_slice(&header), mark)
            } else {
                net.send_short(node, &[&header], &[], mark).map(|()| Taken::Waits)
            };
            match sent {
                Ok(taken) => {
                    link.out.begin_operations(u32::from(taken == Taken::Waits));
                    link.inward.acknowledged();
                    self.counters.acknowledgements += 1;
                    told = true;
                    if link.rings && self.rings {
                        self.ring(index);
                    }
                }
                Err(Refusal::Full) => {
                    self.lists.owe(link);
                    self.full(index);
                }
                Err(Refusal::Failed(code)) => self.fail(index, code),
            }
        }
        told
    }

    /// Rings for a peer that may sleep.
    #[cold]
    pub(crate) fn ring(&mut self, index: u32) {
        let Some(link) = self.links.get_mut(index) else { return };
        self.counters.rings += 1;
        let rung = self.control.inject(link.control(), &[&Control::Ring.to_bytes()]);
        link.controls.set_ring(false);
        if rung.is_err() {
            self.ring_later(index);
        }
    }

    /// The library cannot send to this peer.
    #[cold]
    pub(crate) fn fail(&mut self, index: u32, code: isize) {
        let reason = LostReason::System(self.net.error(code));
        self.end(index, reason);
    }
}

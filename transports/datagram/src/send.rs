//! Packets that go: from the engine, around it, and acknowledgements.

use crate::{
    frame::{Control, HEAD, Header, WAITS},
    link::{Link, WINDOW},
    network::{Mark, Network, Node, Refusal, Taken},
    state::Datagrams,
};
use petasos_fabric::{
    InjectError, LostReason, Peer,
    two_sided::{
        Engine, Outgoing, Packet,
        header::{MAX, message_header},
    },
};
use std::mem;

/// Packets to one peer in one go.
const TURN: usize = 32;

fn head(link: &Link) -> [u8; HEAD] {
    let (taken, number) = (link.taken as u16, link.sent as u16);
    Header { slot: link.slot_there, taken, number, ticket: link.ticket_there }.to_bytes()
}

/// Posts the next packet to a peer; refused, it is as it was. One whose payload the library brings ends with that, which
/// is under way by now.
fn post<N: Network>(
    net: &mut N,
    engine: &mut Engine,
    link: &mut Link,
    node: Node,
    packet: &mut Packet,
) -> Result<(), Refusal> {
    let total = HEAD + packet.len();
    let mut whole = [0; HEAD + MAX];
    let header = packet.header.len();
    whole[..HEAD].copy_from_slice(&head(link));
    whole[3] |= if link.brought { (WAITS >> 24) as u8 } else { 0 };
    whole[HEAD..HEAD + header].copy_from_slice(&packet.header);
    let whole = &whole[..HEAD + header];
    let peer = link.peer;
    let mark = match link.brought {
        true => Mark::Short { link: peer.index, serial: peer.generation },
        false => Mark::Packet { link: peer.index, serial: link.next_serial() },
    };
    let taken = if total <= net.facts().inject {
        let fill = |room: &mut [u8]| {
            room[..whole.len()].copy_from_slice(whole);
            copy_payload(&packet.payload, &mut room[whole.len()..]);
        };
        net.inject(node, total, fill, mark)?
    } else {
        let payload = mem::replace(&mut packet.payload, Outgoing::Nothing);
        if let Err((refusal, payload)) = net.send(node, whole, payload, mark) {
            packet.payload = payload;
            return Err(refusal);
        }
        Taken::Waits
    };
    link.running += u32::from(taken == Taken::Waits);
    if !link.brought {
        let serial = link.depart();
        if taken == Taken::Left {
            for _ in 0..link.arrive(serial).unwrap_or_default() {
                engine.sent(peer);
            }
        }
    }
    Ok(())
}

impl<N: Network> Datagrams<N> {
    /// Sends a message around the engine. `None` if that is not possible now, and the engine is to take it.
    #[inline]
    pub(crate) fn inject_now(
        &mut self,
        peer: Peer,
        parts: &[&[u8]],
    ) -> Option<Result<(), InjectError>> {
        let Datagrams { links, net, engine, .. } = self;
        let link = links.get_mut(peer.index as usize)?.as_deref_mut()?;
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let total = HEAD + 8 + len;
        if link.peer != peer
            || !link.is_up()
            || !link.has_window()
            || link.stuck.is_some()
            || total > N::SHORT
            || !engine.may_send(peer, len)
        {
            return None;
        }
        let node = link.node?;
        let (head, message) = (head(link), message_header(len as u32));
        let mark = Mark::Short { link: peer.index, serial: peer.generation };
        let sent = if total <= net.facts().inject {
            let fill = |room: &mut [u8]| {
                room[..HEAD].copy_from_slice(&head);
                room[HEAD..HEAD + 8].copy_from_slice(&message);
                let mut at = HEAD + 8;
                for part in parts {
                    room[at..at + part.len()].copy_from_slice(part);
                    at += part.len();
                }
            };
            net.inject(node, total, fill, mark)
        } else {
            net.send_short(node, &[&head, &message], parts, mark).map(|()| Taken::Waits)
        };
        match sent {
            Ok(taken) => {
                link.running += u32::from(taken == Taken::Waits);
                link.sent = link.sent.wrapping_add(1);
                link.told = link.taken;
                engine.sent_around(peer, len);
                self.counters.packets_out += 1;
                if link.ring && self.rings {
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

    /// Sends what the engine has, to all who have room. True if anything was sent.
    pub(crate) fn flush(&mut self) -> bool {
        while let Some(peer) = self.engine.next_output() {
            if let Some(link) = self.link(peer) {
                link.listed = true;
                self.queue(peer.index);
            }
        }
        let mut sent = false;
        for _ in 0..self.outgoing.len() {
            let Some(index) = self.outgoing.pop_front() else { break };
            sent |= self.write(index);
        }
        sent
    }

    /// It is this peer's turn soon.
    pub(crate) fn queue(&mut self, index: u32) {
        if let Some(Some(link)) = self.links.get_mut(index as usize)
            && !link.queued
        {
            link.queued = true;
            self.outgoing.push_back(index);
        }
    }

    /// Sends to one peer. True if anything was sent.
    fn write(&mut self, index: u32) -> bool {
        let mut count = 0;
        let mut failed = None;
        let long = self.long_payload();
        let Some(Some(link)) = self.links.get_mut(index as usize) else { return false };
        link.queued = false;
        let Some(node) = link.node.filter(|_| link.is_up()) else { return false };
        let (mut again, mut refused_full) = (false, false);
        // Without window it comes again when the peer has taken something.
        while let Some(Some(link)) = self.links.get_mut(index as usize)
            && link.has_window()
        {
            if count == TURN {
                again = true;
                break;
            }
            let packet = link.stuck.take().or_else(|| self.engine.poll_transmit(link.peer));
            let Some(mut packet) = packet else {
                link.listed = false;
                break;
            };
            let refused = match packet.payload.len() >= long {
                true => self.bring(index, &mut packet).err(),
                false => None,
            };
            let Datagrams { links, net, engine, .. } = self;
            let Some(Some(link)) = links.get_mut(index as usize) else { break };
            let sent = match refused {
                Some(refusal) => Err(refusal),
                None => post(net, engine, link, node, &mut packet),
            };
            match sent {
                Ok(()) => {
                    link.sent = link.sent.wrapping_add(1);
                    link.told = link.taken;
                    link.brought = false;
                    count += 1;
                }
                Err(refusal) => {
                    link.stuck = Some(packet);
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
        let ring = self.rings && self.links[index as usize].as_ref().is_some_and(|link| link.ring);
        if (count > 0 || stuck) && ring {
            // Who has no room for us may have to look before there is any.
            self.ring(index);
        }
        if let Some(code) = failed {
            self.fail(index, code);
        } else if again {
            self.queue(index);
        }
        count > 0
    }

    /// From which length on payloads may go past their packets: see [`crate::notice`].
    fn long_payload(&self) -> usize {
        let from = usize::try_from(self.accesses.notices_from).unwrap_or(usize::MAX);
        if self.accesses.grants.is_empty() { usize::MAX } else { from }
    }

    /// Something was taken of this peer: it is told now and then, if no packet does.
    #[inline]
    pub(crate) fn took(&mut self, index: u32) {
        let Some(Some(link)) = self.links.get_mut(index as usize) else { return };
        link.step();
        if link.taken.wrapping_sub(link.told) >= WINDOW / 2 && !link.owing {
            link.owing = true;
            self.owing.push(index);
        }
    }

    /// Tells peers what was taken of them.
    pub(crate) fn acknowledge(&mut self) -> bool {
        let owing = mem::take(&mut self.owing);
        let mut told = false;
        for index in owing {
            let Datagrams { links, net, .. } = self;
            let Some(Some(link)) = links.get_mut(index as usize) else { continue };
            link.owing = false;
            let Some(node) = link.node.filter(|_| link.is_up()) else { continue };
            if link.taken.wrapping_sub(link.told) < WINDOW / 2 {
                continue;
            }
            let head = head(link);
            let mark = Mark::Short { link: index, serial: link.peer.generation };
            let sent = if HEAD <= net.facts().inject {
                net.inject(node, HEAD, |room| room.copy_from_slice(&head), mark)
            } else {
                net.send_short(node, &[&head], &[], mark).map(|()| Taken::Waits)
            };
            match sent {
                Ok(taken) => {
                    link.running += u32::from(taken == Taken::Waits);
                    link.told = link.taken;
                    self.counters.acknowledgements += 1;
                    told = true;
                    if link.ring && self.rings {
                        self.ring(index);
                    }
                }
                Err(Refusal::Full) => {
                    link.owing = true;
                    self.owing.push(index);
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
        let Some(Some(link)) = self.links.get_mut(index as usize) else { return };
        self.counters.rings += 1;
        link.ring_owed = self.control.inject(link.control, &[&Control::Ring.to_bytes()]).is_err();
        if link.ring_owed {
            self.errand(index);
        }
    }

    /// The library cannot send to this peer.
    #[cold]
    pub(crate) fn fail(&mut self, index: u32, code: isize) {
        let reason = LostReason::System(self.net.error(code));
        self.end(index, reason);
    }
}

fn copy_payload(payload: &petasos_fabric::two_sided::Outgoing, mut room: &mut [u8]) {
    use petasos_fabric::two_sided::Outgoing;
    match payload {
        Outgoing::Nothing => {}
        Outgoing::Bytes(bytes) => room.copy_from_slice(bytes),
        Outgoing::Memory(pieces) => {
            for piece in pieces {
                let (here, rest) = room.split_at_mut(piece.len());
                piece.read(0, here);
                room = rest;
            }
        }
    }
}

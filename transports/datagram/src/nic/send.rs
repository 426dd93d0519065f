//! Sending: packets of the user's at once or not at all, and what is owed to nodes as soon as there
//! is room.

use super::{Nic, body::Body, nodes::Owed, packet::Header};
use crate::{
    frame::{HEADER_LEN, WAITS},
    network::{self, Mark, Network, Taken},
    slots::Slots,
};
use petasos_channel::{
    DeviceEvent,
    device::{Class, Fault, Node, Refusal},
    immediate::{Name, Opened, PutHeader},
};
use petasos_fabric::Access;

/// The most packets to one node before others have their turn.
const TURN: usize = 32;

impl<N: Network> Nic<N> {
    /// Sends a packet of the user's, who is told when there is room, if there is none now.
    pub(super) fn send_now(
        &mut self,
        to: Node,
        header: &Header,
        body: Body<'_>,
    ) -> Result<(), Refusal> {
        self.nodes.live(to).ok_or(Refusal::Gone)?;
        let sent = self.post_as(to, header, body);
        if let Err(Refusal::Full) = sent {
            self.nodes.refuse(to);
        }
        sent
    }

    /// The same of a packet without more of a header than its class.
    #[inline]
    pub(super) fn send_packet(
        &mut self,
        to: Node,
        class: Class,
        body: Body<'_>,
    ) -> Result<(), Refusal> {
        self.nodes.live(to).ok_or(Refusal::Gone)?;
        let sent = self.post(to.0, &u64::from(class as u8).to_le_bytes(), body, false);
        if let Err(Refusal::Full) = sent {
            self.nodes.refuse(to);
        }
        sent
    }

    fn post_as(&mut self, to: Node, header: &Header, body: Body<'_>) -> Result<(), Refusal> {
        let waits = matches!(header, Header::Written { .. });
        self.post(to.0, header.encode().as_bytes(), body, waits)
    }

    /// Hands the next packet of the stream to the library. `waits`: it is to be taken when its
    /// completion data has arrived.
    #[inline]
    fn post(
        &mut self,
        index: u32,
        header: &[u8],
        body: Body<'_>,
        waits: bool,
    ) -> Result<(), Refusal> {
        let inner = &mut self.inner;
        let link = inner.links.get_mut(index).filter(|link| link.is_up());
        let link = link.ok_or(Refusal::Gone)?;
        let node = link.node().ok_or(Refusal::Gone)?;
        if !link.out.has_window() || link.out.is_payload_written() != waits {
            return Err(Refusal::Full);
        }
        let mut before = link.header().to_bytes();
        before[3] |= if waits { (WAITS >> 24) as u8 } else { 0 };
        let total = HEADER_LEN + header.len() + body.len();
        let mark = Mark::Packet { link: index, serial: link.peer().generation };
        let net = &mut inner.net;
        let sent = match body {
            _ if total <= net.facts().inject => {
                let fill = |room: &mut [u8]| {
                    let (first, rest) = room.split_at_mut(HEADER_LEN);
                    let (second, rest) = rest.split_at_mut(header.len());
                    first.copy_from_slice(&before);
                    second.copy_from_slice(header);
                    body.copy(rest);
                };
                net.inject(node, total, fill, mark)
            }
            Body::Parts(parts) if total <= N::SHORT => {
                net.send_short(node, &[&before, header], parts, mark).map(|()| Taken::Waits)
            }
            _ => {
                let copied = total <= Slots::<()>::BUFFER;
                let (header, payload) = body.to_held([&before, header], copied);
                let sent = net.send(node, &header, payload, mark);
                sent.map(|()| Taken::Waits).map_err(|(refusal, _)| refusal)
            }
        };
        match sent {
            Ok(taken) => {
                link.out.begin_operations(u32::from(taken == Taken::Waits));
                link.out.packet_sent();
                link.inward.acknowledged();
                inner.counters.packets_out += 1;
                if link.rings && inner.rings {
                    inner.ring(index);
                }
                Ok(())
            }
            Err(network::Refusal::Full) => {
                if link.rings && inner.rings {
                    // The peer may have to poll before there is room.
                    inner.ring(index);
                }
                inner.full(index);
                Err(Refusal::Full)
            }
            Err(network::Refusal::Failed(code)) => {
                inner.fail(index, code);
                Err(Refusal::Gone)
            }
        }
    }

    /// Owes something to a node, and sends it, if there is room.
    pub(super) fn owe(&mut self, node: Node, owed: Owed) {
        let Some(reached) = self.nodes.live(node) else { return };
        reached.owed.push_back(owed);
        match reached.owed.len() {
            1 => _ = self.pay(node),
            _ => self.nodes.owe(node),
        }
    }

    /// Sends what is owed, as far as there is room. True if anything was sent.
    pub(super) fn pay_all(&mut self) -> bool {
        let mut sent = false;
        for index in self.nodes.take_owed() {
            sent |= self.pay(Node(index));
        }
        sent
    }

    fn pay(&mut self, node: Node) -> bool {
        for turn in 0..TURN {
            let Some(reached) = self.nodes.live(node) else { return turn > 0 };
            let next_is_written =
                matches!(reached.owed.front(), Some(Owed::Put { written: true, .. }));
            if let Some(fault) = reached.refused.filter(|_| !next_is_written) {
                if self.post_as(node, &Header::Refused(fault), Body::NONE).is_err() {
                    self.nodes.owe(node);
                    return turn > 0;
                }
                if let Some(reached) = self.nodes.live(node) {
                    reached.refused = None;
                }
                continue;
            }
            let Some(owed) = reached.owed.pop_front() else { return turn > 0 };
            let rest = self.pay_part(node, owed);
            match (rest, self.nodes.live(node)) {
                // Other things come between the parts of a long one.
                (Ok(Some(rest @ Owed::Parts { .. })), Some(reached)) => {
                    reached.owed.push_back(rest);
                }
                (Ok(Some(rest)), Some(reached)) => reached.owed.push_front(rest),
                (Err(rest), Some(reached)) => {
                    reached.owed.push_front(rest);
                    self.nodes.owe(node);
                    return turn > 0;
                }
                _ => {}
            }
        }
        self.nodes.owe(node);
        true
    }

    /// Sends one packet of what is owed. Returns what is left; as an error if there was no room.
    fn pay_part(&mut self, node: Node, owed: Owed) -> Result<Option<Owed>, Owed> {
        let most = self.inner.net.facts().fragment;
        match owed {
            Owed::Answer(header) => match self.post_as(node, &header, Body::NONE) {
                Err(Refusal::Full) => Err(Owed::Answer(header)),
                _ => Ok(None),
            },
            Owed::Put { header, from, at, written } => {
                let Header::Put { id, put, .. } = header else { return Ok(None) };
                let len = (from.len() - at).min(most);
                let last = at + len == from.len();
                let Some(part) = from.part(at, len) else { return Ok(None) };
                let offset = put.offset.wrapping_add(at as u64);
                let put = PutHeader { offset, event: put.event.filter(|_| last), ..put };
                let written = written || self.write_part(node, id, &put, &part);
                let posted = match written {
                    true => {
                        let header = Header::Written { id, put, len: len as u32, last };
                        self.post_as(node, &header, Body::NONE)
                    }
                    false => {
                        let header = Header::Put { id, put, last };
                        self.post_as(node, &header, Body::Memory(&part))
                    }
                };
                match posted {
                    Err(Refusal::Full) => Err(Owed::Put { header, from, at, written }),
                    Err(_) => Ok(None),
                    Ok(()) if last => Ok(None),
                    Ok(()) => Ok(Some(Owed::Put { header, from, at: at + len, written: false })),
                }
            }
            Owed::Parts { get, left } => {
                let Header::Get { id, name, offset, len } = get else { return Ok(None) };
                let at = len - left as u64;
                let now = left.min(most);
                let found = self.opened.readable(name, offset.wrapping_add(at), now as u64);
                let (header, part) = match found {
                    Ok(part) => (Header::Part { id }, Some(part)),
                    // It was closed meanwhile.
                    Err(fault) => (Header::Over { id, result: Err(fault) }, None),
                };
                let body = part.as_ref().map_or(Body::NONE, Body::Memory);
                match self.post_as(node, &header, body) {
                    Err(Refusal::Full) => Err(Owed::Parts { get, left }),
                    Err(_) => Ok(None),
                    Ok(()) if part.is_none() || left == now => Ok(None),
                    Ok(()) => Ok(Some(Owed::Parts { get, left: left - now })),
                }
            }
        }
    }

    /// Tells the user of nodes to which there is room again.
    pub(super) fn tell_room(&mut self) {
        let (links, sends) = (&self.inner.links, self.inner.config.sends);
        let left = self.operations.native_left(sends);
        let roomy = self.nodes.take_roomy(|reached| {
            let link = links.get(reached.peer.index);
            let up = link.filter(|link| link.peer() == reached.peer && link.is_up());
            let asked = reached.asked < Nic::<N>::ASKED;
            let native = reached.native < left;
            !reached.lost
                && asked
                && native
                && up.is_some_and(|link| link.out.has_window() && !link.out.is_payload_written())
        });
        self.mail.extend(roomy.into_iter().map(|node| DeviceEvent::Room { node }));
    }

    /// The memory that a node names to put to, ours or a program's, with the secret that it showed.
    pub(super) fn named(&self, name: Name) -> Result<(&Opened, u64), Fault> {
        match self.exposures.named(name) {
            Some(found) => Ok(found),
            None => self.opened.named(name),
        }
    }

    /// Writes what a node put, if it may.
    pub(super) fn write(
        &self,
        put: &PutHeader,
        source: &super::receive::Source<'_>,
        skip: usize,
    ) -> Result<(), Fault> {
        let (opened, secret) = self.named(put.name)?;
        let part = opened.part(secret, put.offset, source.len() - skip, Access::WRITE)?;
        source.copy(&self.inner.net, skip, &part);
        Ok(())
    }

    /// Raises the event of a put of so many bytes that a node made, if it has one, and all of it is
    /// in that memory.
    pub(super) fn raise(&mut self, node: Node, put: &PutHeader, len: usize) -> Result<(), Fault> {
        let (opened, secret) = self.named(put.name)?;
        opened.part(secret, put.offset, len, Access::WRITE)?;
        let event = opened.arrived(node, put, len);
        self.mail.extend(event);
        Ok(())
    }
}

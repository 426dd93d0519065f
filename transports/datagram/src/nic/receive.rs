//! Receiving: packets of nodes, in the order of their numbers, and what the library completes.

use super::{
    Nic,
    nodes::{Arriving, Owed},
    operations::Kind,
    packet::Header,
};
use crate::{
    frame::{Garbled, HEADER_LEN},
    network::{Happened, Mark, Network, Packet},
};
use petasos_channel::{
    DeviceEvent,
    device::{Class, Fault, Node, gather_with},
    immediate::PutHeader,
};
use petasos_fabric::{Access, Peer, Slice};

/// The most completions that a pass takes in: many make no event, and a peer that never pauses must
/// not hold up the rest.
pub(super) const MOST: usize = 256;
/// The most bytes of data packets of one node that wait to be asked for: more than the windows of a
/// correct peer hold.
const STASHED: usize = 256 << 20;
/// What a short one counts as: no window has room for more packets than 65,536.
const LEAST_STASHED: usize = STASHED >> 16;
/// The most answers that one node may wait for, and not take: a correct one has far fewer puts and
/// gets under way.
const OWED: usize = 1024;

/// What a data packet of so many bytes counts as, while it waits.
pub(super) fn stashed(len: usize) -> usize {
    len.max(LEAST_STASHED)
}

/// Where a packet lies, without the header of the stream.
pub(super) enum Source<'p> {
    /// In memory of the network.
    Network(Packet),
    /// It was deferred.
    Bytes(&'p [u8]),
}

impl Source<'_> {
    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Source::Network(packet) => packet.len - HEADER_LEN,
            Source::Bytes(bytes) => bytes.len(),
        }
    }

    /// Copies from it: as many bytes as there is room for, which it must have.
    #[inline]
    fn read(&self, net: &impl Network, at: usize, room: &mut [u8]) {
        match self {
            Source::Network(packet) => net.read(*packet, HEADER_LEN + at, room),
            Source::Bytes(bytes) => room.copy_from_slice(&bytes[at..at + room.len()]),
        }
    }

    /// Copies from it into memory, as much as there is room for.
    pub(super) fn copy(&self, net: &impl Network, at: usize, into: &Slice) {
        match self {
            // The network's memory is copied to the processor's.
            Source::Network(packet) if into.device().is_none() => {
                net.copy(*packet, HEADER_LEN + at, into);
            }
            Source::Network(_) => {
                let mut bytes = vec![0; into.len()];
                self.read(net, at, &mut bytes);
                into.write(0, &bytes);
            }
            Source::Bytes(bytes) => into.write(0, &bytes[at..at + into.len()]),
        }
    }
}

impl<N: Network> Nic<N> {
    /// Takes in what has arrived, until there are `limit` events, or it was enough for a pass. True
    /// if there was anything.
    pub(super) fn receive(&mut self, limit: usize) -> bool {
        let mut worked = false;
        for _ in 0..MOST {
            if self.mail.len() >= limit {
                break;
            }
            let Some(happened) = self.inner.net.next() else { break };
            worked = true;
            self.happened(happened);
        }
        worked
    }

    /// Takes in what the library reports.
    pub(super) fn happened(&mut self, happened: Happened) {
        match happened {
            Happened::Packet(packet) => {
                if let Some(header) = self.inner.read_header(packet)
                    && let Some(peer) = self.inner.admit(header, packet)
                {
                    self.take(peer, &Source::Network(packet));
                    self.inner.pause(peer.index);
                }
            }
            Happened::Done(Mark::Access { access, serial }, result) => {
                self.native_done(access, serial, result);
            }
            Happened::Done(Mark::Packet { link, serial }, result) => {
                self.inner.done(link, serial, result);
            }
            // The packet that waited for it is taken now.
            Happened::CompletionData(data) => {
                if let Some(index) = self.inner.completion_of(data) {
                    self.inner.pause(index);
                }
            }
            Happened::Broken(code) => self.inner.broken(code),
        }
    }

    /// Goes on with packets whose turn had not come, or for whose events there was no room.
    pub(super) fn resume(&mut self, limit: usize) -> bool {
        let mut worked = false;
        for index in self.inner.lists.take_paused() {
            let Some(link) = self.inner.links.get_mut(index) else { continue };
            link.inward.leave_paused();
            let peer = link.peer();
            while let Some(link) = self.inner.links.of(peer)
                && link.inward.is_due()
            {
                if !link.is_greeted() || self.mail.len() >= limit {
                    self.inner.pause(index);
                    break;
                }
                let Some(bytes) = link.inward.take_due() else { break };
                self.take(peer, &Source::Bytes(&bytes));
                worked = true;
            }
        }
        worked
    }

    /// Takes the packet of a peer whose turn it is.
    pub(super) fn take(&mut self, peer: Peer, source: &Source<'_>) {
        // The event that it is up comes before.
        if self.inner.peers.has_news() {
            self.take_news();
        }
        let taken = match self.nodes.node(peer) {
            Some(node) => self.take_from(node, peer, source),
            // Its loss is reported already.
            None => Ok(()),
        };
        match taken {
            Ok(()) => self.inner.took(peer.index),
            Err(garbled) => self.inner.cut_off(peer.index, garbled.0),
        }
    }

    fn take_from(&mut self, node: Node, peer: Peer, source: &Source<'_>) -> Result<(), Garbled> {
        let mut first = [0; Header::MAX];
        let first = &mut first[..source.len().min(Header::MAX)];
        source.read(&self.inner.net, 0, first);
        let (header, skip) = Header::decode(first, source.len())?;
        let len = source.len() - skip;
        match header {
            Header::Packet(class) => {
                let net = &self.inner.net;
                let bytes = gather_with(len, |room| source.read(net, skip, room));
                let packet = DeviceEvent::Packet { node, class, bytes };
                match class {
                    Class::Data if !self.data || !self.stash.is_empty() => {
                        return self.stash(node, len, packet);
                    }
                    _ => self.mail.push_back(packet),
                }
            }
            Header::Immediate(put) => {
                if let Err(fault) =
                    self.write(&put, source, skip).and_then(|()| self.raise(node, &put, len))
                    && let Some(reached) = self.nodes.live(node)
                {
                    // The first is enough, so that a node that takes nothing cannot make many wait.
                    reached.refused.get_or_insert(fault);
                    self.nodes.owe(node);
                }
            }
            Header::Refused(fault) => self.mail.push_back(DeviceEvent::Refused { node, fault }),
            Header::Put { id, put, last } => {
                let result = self.write(&put, source, skip);
                self.put_part(node, id, &put, len, result, last)?;
            }
            Header::Written { id, put, len, last } => {
                let (len, named) = (len as usize, self.named(put.name));
                let part = named.and_then(|(opened, secret)| {
                    opened.part(secret, put.offset, len, Access::WRITE)
                });
                self.put_part(node, id, &put, len, part.map(drop), last)?;
            }
            Header::Over { id, result } => self.asked_over(node, peer, id, result)?,
            Header::Get { id, name, offset, len } => {
                let owed = match self.opened.readable(name, offset, len) {
                    Ok(part) => Owed::Parts { get: header, left: part.len() },
                    Err(fault) => Owed::Answer(Header::Over { id, result: Err(fault) }),
                };
                self.answer(node, owed)?;
            }
            Header::Part { id } => self.part_arrived(node, peer, id, source, skip)?,
        }
        Ok(())
    }

    /// A part of a put has arrived.
    fn put_part(
        &mut self,
        node: Node,
        id: u32,
        put: &PutHeader,
        len: usize,
        result: Result<(), Fault>,
        last: bool,
    ) -> Result<(), Garbled> {
        let reached = self.nodes.live(node).ok_or(Garbled("a put of one that is lost"))?;
        let begun = Arriving { offset: put.offset, len: 0, failed: None };
        let arriving = reached.put.get_or_insert(begun);
        arriving.len += len;
        arriving.failed = arriving.failed.or(result.err());
        if !last {
            return Ok(());
        }
        let Arriving { offset, len, failed } = *arriving;
        reached.put = None;
        let whole = PutHeader { offset, ..*put };
        let result = failed.map_or_else(|| self.raise(node, &whole, len), Err);
        self.answer(node, Owed::Answer(Header::Over { id, result }))
    }

    /// Owes a node an answer.
    fn answer(&mut self, node: Node, owed: Owed) -> Result<(), Garbled> {
        let waits = self.nodes.live(node).map_or(0, |reached| reached.owed.len());
        if waits >= OWED {
            return Err(Garbled("more puts and gets than it takes answers to"));
        }
        self.owe(node, owed);
        Ok(())
    }

    /// Keeps a data packet until it is asked for.
    fn stash(&mut self, node: Node, len: usize, packet: DeviceEvent) -> Result<(), Garbled> {
        let Some(reached) = self.nodes.live(node) else { return Ok(()) };
        reached.stashed += stashed(len);
        if reached.stashed > STASHED {
            return Err(Garbled("more packets that wait than its window holds"));
        }
        self.stash.push_back(packet);
        Ok(())
    }

    /// A node says that a put or get of ours is over.
    fn asked_over(
        &mut self,
        node: Node,
        peer: Peer,
        id: u32,
        result: Result<(), Fault>,
    ) -> Result<(), Garbled> {
        let known = self.operations.of_peer(id, peer);
        let running = known.ok_or(Garbled("an answer to nothing"))?;
        if let (Kind::Get { .. }, Ok(())) = (&running.kind, result) {
            return Err(Garbled("a get that ended early"));
        }
        self.end_asked(node, id, result);
        Ok(())
    }

    /// The next part of what is got from a node.
    fn part_arrived(
        &mut self,
        node: Node,
        peer: Peer,
        id: u32,
        source: &Source<'_>,
        skip: usize,
    ) -> Result<(), Garbled> {
        let running = self.operations.of_peer(id, peer);
        let Some(Kind::Get { into, filled }) = running.map(|running| &mut running.kind) else {
            return Err(Garbled("a part of nothing"));
        };
        let len = source.len() - skip;
        let part = into.part(*filled, len).ok_or(Garbled("more than was asked for"))?;
        if len == 0 && !into.is_empty() {
            return Err(Garbled("a part without bytes"));
        }
        *filled += len;
        let whole = *filled == into.len();
        source.copy(&self.inner.net, skip, &part);
        if whole {
            self.end_asked(node, id, Ok(()));
        }
        Ok(())
    }
}

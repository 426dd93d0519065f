//! Gets and puts of a NIC: by the library, or by asking the node's NIC.

use super::{
    Nic,
    nodes::Owed,
    opened::Location,
    operations::{Kind, Native, Running},
    packet::Header,
};
use crate::{
    frame::CompletionData,
    grants::Grant,
    network::{self, Mark, Network, RemoteOp},
};
use petasos_channel::{
    DeviceEvent,
    device::{Fault, Node, Refusal, RemoteKey, Target, Ticket},
    immediate::PutHeader,
};
use petasos_fabric::{Access, Buffer, Peer, Region, Slice};
use smallvec::SmallVec;

/// For whom the library does an access.
#[derive(Clone, Copy)]
enum Whose {
    /// The user, with this ticket.
    User(Ticket),
    /// A put, of which it is a part.
    Put(u32),
}

impl<N: Network> Nic<N> {
    /// Puts and gets of ours that one node has not answered, at most.
    pub(super) const ASKED: usize = 64;

    /// The name of the memory, once the node and the range are checked; `None` if the operation has
    /// ended, with this fault.
    fn check<'k>(
        &mut self,
        key: &'k RemoteKey,
        offset: u64,
        len: usize,
    ) -> Result<Location<'k>, Fault> {
        let location = Location::decode(key).ok_or(Fault::Stale)?;
        let end = offset.checked_add(len as u64).ok_or(Fault::OutOfBounds)?;
        if end > location.len {
            return Err(Fault::OutOfBounds);
        }
        Ok(location)
    }

    /// The peer at a node of which one more thing may be asked.
    fn askable(&mut self, node: Node) -> Result<Peer, Refusal> {
        let reached = self.nodes.live(node).ok_or(Refusal::Gone)?;
        let peer = reached.peer;
        if reached.asked >= Self::ASKED {
            self.nodes.refuse(node);
            return Err(Refusal::Full);
        }
        Ok(peer)
    }

    fn fail_at_once(&mut self, ticket: Ticket, fault: Fault) {
        self.mail.push_back(DeviceEvent::Done { ticket, result: Err(fault) });
    }

    pub(super) fn begin_put(
        &mut self,
        to: Node,
        target: &Target,
        from: &Slice,
        event: Option<u64>,
        ticket: Ticket,
    ) -> Result<(), Refusal> {
        let peer = self.askable(to)?;
        let location = match self.check(&target.key, target.offset, from.len()) {
            Ok(location) => location,
            Err(fault) => {
                self.fail_at_once(ticket, fault);
                return Ok(());
            }
        };
        if event.is_none() && self.is_granted(peer, &location) {
            let put = RemoteOp::Put;
            let whose = Whose::User(ticket);
            return self.begin_native(to, (peer, put), &location, target.offset, from, whose);
        }
        let name = location.name;
        let kind = Kind::Put { writes: 0, over: None };
        let (id, _) = self.operations.add(peer, Some(ticket), kind);
        let put = PutHeader { name, offset: target.offset, event };
        let header = Header::Put { id, put, last: true };
        if let Some(reached) = self.nodes.live(to) {
            reached.asked += 1;
        }
        self.owe(to, Owed::Put { header, from: from.clone(), at: 0, written: false });
        Ok(())
    }

    pub(super) fn begin_get(
        &mut self,
        from: Node,
        target: &Target,
        into: &Slice,
        ticket: Ticket,
    ) -> Result<(), Refusal> {
        let peer = self.askable(from)?;
        let location = match self.check(&target.key, target.offset, into.len()) {
            Ok(location) => location,
            Err(fault) => {
                self.fail_at_once(ticket, fault);
                return Ok(());
            }
        };
        let readable = !location.place.is_empty() && self.reads && !into.is_empty();
        if readable || self.is_granted(peer, &location) {
            let get = RemoteOp::Get;
            let whose = Whose::User(ticket);
            return self.begin_native(from, (peer, get), &location, target.offset, into, whose);
        }
        let (id, _) =
            self.operations.add(peer, Some(ticket), Kind::Get { into: into.clone(), filled: 0 });
        let (name, offset, len) = (location.name, target.offset, into.len() as u64);
        if let Some(reached) = self.nodes.live(from) {
            reached.asked += 1;
        }
        self.owe(from, Owed::Answer(Header::Get { id, name, offset, len }));
        Ok(())
    }

    /// Whether a key is to memory of a program, and there is a grant of it.
    fn is_granted(&mut self, peer: Peer, location: &Location<'_>) -> bool {
        let grant = self.inner.grants.get_mut(peer, location.name);
        matches!(grant, Some(Grant::Given { .. }))
    }

    /// Has the library read or write.
    fn begin_native(
        &mut self,
        node: Node,
        what: (Peer, RemoteOp),
        location: &Location<'_>,
        offset: u64,
        local: &Slice,
        whose: Whose,
    ) -> Result<(), Refusal> {
        let begun = self.try_native(node, what, location, offset, local, whose);
        if begun == Err(Refusal::Full) {
            self.nodes.refuse(node);
        }
        begun
    }

    /// The same; the user is not told when there is room.
    fn try_native(
        &mut self,
        node: Node,
        (peer, op): (Peer, RemoteOp),
        location: &Location<'_>,
        offset: u64,
        local: &Slice,
        whose: Whose,
    ) -> Result<(), Refusal> {
        let left = self.operations.native_left(self.inner.config.sends);
        if self.nodes.live(node).is_none_or(|reached| reached.native >= left) {
            return Err(Refusal::Full);
        }
        let lower = &mut self.inner;
        let link = lower.links.get_mut(node.0).filter(|link| link.is_up());
        let link = link.ok_or(Refusal::Gone)?;
        let at = link.node().ok_or(Refusal::Gone)?;
        // The library may go on when the node is lost, and there is no pointer to a device's
        // memory.
        let copied = local.is_raw() || local.device().is_some();
        let copy = copied.then(|| {
            let copy = Region::from_buffer(Buffer::scratch(local.len())).whole();
            if op != RemoteOp::Get {
                local.copy_to(&copy);
            }
            (copy, local.clone())
        });
        let memory = copy.as_ref().map_or(local, |(copy, _)| copy).clone();
        let granted = location.place.is_empty().then_some(location.name);
        let (ticket, part_of) = match whose {
            Whose::User(ticket) => (Some(ticket), None),
            Whose::Put(id) => (None, Some(id)),
        };
        let native = Native { get: op == RemoteOp::Get, copy, granted, part_of };
        let (slot, serial) = self.operations.add(peer, ticket, Kind::Native(native));
        let mark = Mark::Access { access: slot, serial };
        let begun = match (granted, lower.grants.get_mut(peer, location.name)) {
            (Some(_), Some(Grant::Given { key, running, .. })) => {
                let begun = lower.net.access(at, op, memory, key, offset, mark);
                *running += u32::from(begun.is_ok());
                begun
            }
            _ => match lower.net.key(at, location.place) {
                Some(key) => lower.net.access(at, op, memory, &key, offset, mark),
                None => {
                    self.operations.remove(slot);
                    ticket.into_iter().for_each(|ticket| self.fail_at_once(ticket, Fault::Stale));
                    return Ok(());
                }
            },
        };
        let Err(refusal) = begun else {
            match part_of {
                Some(_) => lower.counters.completion_data_out += 1,
                None => lower.counters.accesses += 1,
            }
            link.out.begin_operations(1);
            if link.rings && lower.rings {
                lower.ring(node.0);
            }
            if let Some(reached) = self.nodes.live(node) {
                reached.native += 1;
            }
            return Ok(());
        };
        self.operations.remove(slot);
        Err(match refusal {
            network::Refusal::Full => {
                self.inner.full(node.0);
                Refusal::Full
            }
            network::Refusal::Failed(code) => {
                self.inner.fail(node.0, code);
                Refusal::Gone
            }
        })
    }

    /// The library has completed an access.
    pub(super) fn native_done(&mut self, slot: u32, serial: u32, result: Result<(), i32>) {
        let Some(running) = self.operations.native_done(slot, serial) else { return };
        let Running { peer, ticket, kind: Kind::Native(access), lost, .. } = running else {
            return;
        };
        match self.inner.links.of(peer) {
            Some(link) => {
                link.out.end_operation();
                if let Err(code) = result {
                    // The loss of the peer, which follows, says why.
                    self.inner.fail(peer.index, code as isize);
                } else if self.inner.rings {
                    self.inner.ring_late(peer.index);
                }
            }
            None => self.inner.lost_done(peer),
        }
        if let Some(target) = access.granted {
            self.grant_used(peer, target);
        }
        if let Some(node) = self.nodes.node(peer).filter(|_| !lost) {
            if let Some(reached) = self.nodes.live(node) {
                reached.native -= 1;
            }
            if let Some(id) = access.part_of {
                self.part_written(node, id);
            }
        }
        // Otherwise its end was told, as the node is lost.
        let Some(ticket) = ticket else { return };
        if let (Ok(()), true, Some((copy, into))) = (result, access.get, &access.copy) {
            copy.copy_to(into);
        }
        let result = result.map(|()| SmallVec::new()).map_err(|_| Fault::Lost);
        self.mail.push_back(DeviceEvent::Done { ticket, result });
    }

    /// Has the library write a part of a put with event to memory of a program, if it can: the
    /// owner is told by completion data, and by the next packet. True if it does.
    ///
    /// So the data passes no processor. The packet, which comes without it, is taken when both have
    /// arrived, in either order. Nothing depends on the content of completion data, which is short,
    /// may come from any process, and has no room for the content of an event: all of that is in
    /// the packet, which has a ticket, and is checked. Nor does anything depend on the order of
    /// writes. A process that guesses a link's name ([`CompletionData`]) and writes to the
    /// library's port can at most have a packet taken before its data has arrived.
    pub(super) fn write_part(
        &mut self,
        node: Node,
        id: u32,
        put: &PutHeader,
        part: &Slice,
    ) -> bool {
        let lower = &mut self.inner;
        if (part.len() as u64) < lower.payloads_from {
            return false;
        }
        let Some(peer) = self.nodes.live(node).map(|reached| reached.peer) else { return false };
        let Some(Grant::Given { rights, name, .. }) = lower.grants.get_mut(peer, put.name) else {
            return false;
        };
        // There is no completion data for what is beyond the window.
        let link = lower.links.of(peer).filter(|link| link.out.has_window());
        let Some(link) = link else { return false };
        let data = CompletionData { name: *name, number: link.out.sent() as u8 };
        let data = data.to_data(lower.net.facts().data_bits);
        let Some(data) = data.filter(|_| rights.allows(Access::WRITE)) else { return false };
        let op = RemoteOp::PutWithData(data);
        let location = Location { name: put.name, len: 0, place: &[] };
        let whose = Whose::Put(id);
        if self.try_native(node, (peer, op), &location, put.offset, part, whose).is_err() {
            return false;
        }
        if let Some(Kind::Put { writes, .. }) = self.operations.kind(id, peer) {
            *writes += 1;
        }
        // No other packet may have its number.
        if let Some(link) = self.inner.links.of(peer) {
            link.out.set_payload_written();
        }
        true
    }

    /// The library has written a part of a put.
    fn part_written(&mut self, node: Node, id: u32) {
        let peer = self.nodes.live(node).map(|reached| reached.peer);
        let kind = peer.and_then(|peer| self.operations.kind(id, peer));
        let Some(Kind::Put { writes, over }) = kind else { return };
        *writes -= 1;
        if let (0, Some(result)) = (*writes, *over) {
            self.end_asked(node, id, result);
        }
    }

    /// A put or get that the node's NIC does is over. A put ends when the library has written all
    /// of it, too: until then it has its memory.
    pub(super) fn end_asked(&mut self, node: Node, id: u32, result: Result<(), Fault>) {
        let peer = self.nodes.live(node).map(|reached| reached.peer);
        let kind = peer.and_then(|peer| self.operations.kind(id, peer));
        if let Some(Kind::Put { writes: 1.., over }) = kind {
            *over = Some(result);
            return;
        }
        let Some(running) = self.operations.remove(id) else { return };
        if let Some(reached) = self.nodes.live(node) {
            reached.asked -= 1;
        }
        if let Some(ticket) = running.ticket {
            let result = result.map(|()| SmallVec::new());
            self.mail.push_back(DeviceEvent::Done { ticket, result });
        }
    }

    /// A node is lost: everything under way with it has ended, but gets of programs that the
    /// library has not completed.
    pub(super) fn end_all(&mut self, peer: Peer) {
        let until = self.inner.now.after(self.inner.config.mourning);
        for ticket in self.operations.lose(peer, until) {
            self.fail_at_once(ticket, Fault::Lost);
        }
        self.opened.note_loss(self.inner.now);
        if let Some(address) = self.inner.peers.address(peer) {
            self.exposures.lose(peer, address, until);
        }
    }

    /// Ends gets from lost nodes that the library has not completed for long.
    pub(super) fn end_late(&mut self) {
        for ticket in self.operations.take_late(self.inner.now) {
            self.fail_at_once(ticket, Fault::Lost);
        }
    }
}

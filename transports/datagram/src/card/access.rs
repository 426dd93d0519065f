//! Gets and puts of a card: by the library, or by asking the node's card.

use super::{
    Card,
    nodes::Owed,
    opened::Location,
    operations::{Kind, Running},
    packet::Header,
};
use crate::network::{self, Mark, Network, RemoteOp};
use petasos_channel::{
    DeviceEvent,
    device::{Fault, Node, Refusal, RemoteKey, Target, Ticket},
    immediate::PutHeader,
};
use petasos_fabric::{Peer, Region, Slice};
use smallvec::SmallVec;

impl<N: Network> Card<N> {
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
        let name = match self.check(&target.key, target.offset, from.len()) {
            Ok(location) => location.name,
            Err(fault) => {
                self.fail_at_once(ticket, fault);
                return Ok(());
            }
        };
        let (id, _) = self.operations.add(peer, ticket, Kind::Put);
        let put = PutHeader { name, offset: target.offset, event };
        let header = Header::Put { id, put, last: true };
        if let Some(reached) = self.nodes.live(to) {
            reached.asked += 1;
        }
        self.owe(to, Owed::Put { header, from: from.clone(), at: 0 });
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
        if !location.place.is_empty() && self.reads && !into.is_empty() {
            let read = self.begin_read(from, peer, &location, target.offset, into, ticket);
            return read.inspect_err(|refusal| {
                if *refusal == Refusal::Full {
                    self.nodes.refuse(from);
                }
            });
        }
        let (id, _) =
            self.operations.add(peer, ticket, Kind::Get { into: into.clone(), filled: 0 });
        let (name, offset, len) = (location.name, target.offset, into.len() as u64);
        if let Some(reached) = self.nodes.live(from) {
            reached.asked += 1;
        }
        self.owe(from, Owed::Answer(Header::Get { id, name, offset, len }));
        Ok(())
    }

    /// Has the library read.
    fn begin_read(
        &mut self,
        node: Node,
        peer: Peer,
        location: &Location<'_>,
        offset: u64,
        into: &Slice,
        ticket: Ticket,
    ) -> Result<(), Refusal> {
        let left = self.operations.reads_left(self.inner.config.sends);
        if self.nodes.live(node).is_none_or(|reached| reached.reads >= left) {
            return Err(Refusal::Full);
        }
        let link = self.inner.links.get_mut(node.0).filter(|link| link.is_up());
        let at = link.and_then(|link| link.node()).ok_or(Refusal::Gone)?;
        let Some(key) = self.inner.net.key(at, location.place) else {
            self.fail_at_once(ticket, Fault::Stale);
            return Ok(());
        };
        // The library may go on when the node is lost.
        let copied = into.is_raw() || into.device().is_some();
        let copy = copied.then(|| (Region::zeroed(into.len()).whole(), into.clone()));
        let local = copy.as_ref().map_or(into, |(copy, _)| copy).clone();
        let (slot, serial) = self.operations.add(peer, ticket, Kind::Read { copy });
        let mark = Mark::Access { access: slot, serial };
        let begun = self.inner.net.access(at, RemoteOp::Get, local, &key, offset, mark);
        let Err(refusal) = begun else {
            self.inner.counters.accesses += 1;
            if let Some(reached) = self.nodes.live(node) {
                reached.reads += 1;
            }
            if let Some(link) = self.inner.links.get_mut(node.0) {
                link.out.begin_operations(1);
                if link.rings && self.inner.rings {
                    self.inner.ring(node.0);
                }
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

    /// The library has completed a read.
    pub(super) fn read_done(&mut self, slot: u32, serial: u32, result: Result<(), i32>) {
        let Some(Running { peer, ticket, kind, .. }) = self.operations.read(slot, serial) else {
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
        // Otherwise the node is lost, and what was counted with it.
        let Some(ticket) = ticket else { return };
        if let Some(node) = self.nodes.node(peer)
            && let Some(reached) = self.nodes.live(node)
        {
            reached.reads -= 1;
        }
        if let (Ok(()), Kind::Read { copy: Some((copy, into)) }) = (result, &kind) {
            copy.copy_to(into);
        }
        let result = result.map(|()| SmallVec::new()).map_err(|_| Fault::Lost);
        self.mail.push_back(DeviceEvent::Done { ticket, result });
    }

    /// A put or get that the node's card does is over.
    pub(super) fn end_asked(&mut self, node: Node, id: u32, result: Result<(), Fault>) {
        let Some(running) = self.operations.remove(id) else { return };
        if let Some(reached) = self.nodes.live(node) {
            reached.asked -= 1;
        }
        if let Some(ticket) = running.ticket {
            let result = result.map(|()| SmallVec::new());
            self.mail.push_back(DeviceEvent::Done { ticket, result });
        }
    }

    /// A node is lost: everything under way with it has ended.
    pub(super) fn end_all(&mut self, peer: Peer) {
        for ticket in self.operations.lose(peer) {
            self.fail_at_once(ticket, Fault::Lost);
        }
        self.opened.note_loss(self.inner.now);
    }
}

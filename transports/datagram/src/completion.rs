//! Payloads of packets that the library writes to where they belong, with completion data for the
//! owner: so the data of a put with event passes no processor.
//!
//! The engine takes a put with event apart into packets, of which the last one raises the event,
//! and is answered. Such a packet says where its payload belongs. Where the initiator has a grant
//! for that region, and the payload is long enough to be worth it, the packet is sent without it;
//! the library writes it to its place, by the grant's key, and the owner gets completion data when
//! all of it has arrived ([`Happened::CompletionData`]). The packet is taken when both have
//! arrived, in either order, and in its turn, as if it had carried the payload.
//!
//! So nothing depends on the content of completion data, which is short (8 bytes, or 4), may come
//! from any process, and has no room for the content of an event: which region, from where on, how
//! long, and 64 bits. All of that is in the packet, which has a ticket, arrives once, and is
//! checked by the engine: a region that is closed raises no event. Nor does anything depend on the
//! order of writes: each has completion data of its own, which arrives with that write, and an
//! event is raised behind all packets of its put. No write waits for the completion of the one
//! before.
//!
//! A process that guesses a link's name ([`CompletionData`]) and writes to the library's port can
//! at most have a packet taken before its payload has arrived.
//!
//! [`Happened::CompletionData`]: crate::Happened::CompletionData

use crate::{
    datagrams::Datagrams,
    frame::{CompletionData, Control},
    grants::{Grant, Target},
    network::{Mark, Network, Refusal, RemoteOp},
};
use petasos_fabric::{
    Access, Event, Peer,
    two_sided::{Outgoing, Packet, header::put_place},
};

impl<N: Network> Datagrams<N> {
    /// From which length on the library may write payloads; `u64::MAX` if it does not.
    pub(crate) fn payloads_from(&self) -> u64 {
        self.capabilities.native_event_from.unwrap_or(u64::MAX)
    }

    /// A put with event of `total` bytes goes to a region: asks for a grant of it, if that is worth
    /// it. Until the grant arrives, payloads travel in their packets.
    pub(crate) fn ask_for_grant(&mut self, peer: Peer, target: Target, total: u64) {
        if total >= self.payloads_from() && self.grants.ask(peer, target, None) {
            self.send_control(peer, Control::Ask(target));
        }
    }

    /// With what completion data from a peer begins: chosen when the peer first needs to know. 0 if
    /// there is no completion data here.
    pub(crate) fn completion_name(&mut self, peer: Peer) -> u64 {
        let names = CompletionData::names(self.net.facts().data_bits);
        let known = self.links.of(peer).map_or(0, |link| link.inward.completion_name());
        if names == 0 || known > 0 {
            return known;
        }
        for _ in 0..64 {
            let random = getrandom::u64().expect("the system's random source answers");
            let name = random & names;
            if name > 0 && self.links.name_completion(peer.index, name) {
                return name;
            }
        }
        0
    }

    /// Has the library write the payload of the next packet to a peer, if it can, and takes it out
    /// of the packet. True if it does.
    ///
    /// # Errors
    /// The library had no room, and nothing has happened.
    pub(crate) fn write_payload(
        &mut self,
        index: u32,
        packet: &mut Packet,
    ) -> Result<bool, Refusal> {
        let Datagrams { accesses, grants, net, links, config, counters, .. } = self;
        let Outgoing::Memory(pieces) = &packet.payload else { return Ok(false) };
        let [piece] = &pieces[..] else { return Ok(false) };
        let Some((target, offset)) = put_place(&packet.header) else { return Ok(false) };
        let Some(link) = links.get_mut(index) else { return Ok(false) };
        let facts = net.facts();
        // Memory that only its program keeps goes in the packet, as a copy.
        let fits = piece.len() <= facts.access.unwrap_or(0)
            && accesses.running() < config.sends / 2
            && !piece.is_raw();
        let grant = grants.get_mut(link.peer(), target);
        let (Some(Grant::Given { key, rights, name, running }), Some(node), true) =
            (grant, link.node(), fits)
        else {
            return Ok(false);
        };
        let data = CompletionData { name: *name, number: link.out.sent() as u8 };
        let Some(data) = data.to_data(facts.data_bits) else { return Ok(false) };
        if !rights.allows(Access::WRITE) {
            return Ok(false);
        }
        let serial = link.out.next_serial();
        let mark = Mark::Payload { link: index, serial };
        net.access(node, RemoteOp::PutWithData(data), piece.clone(), key, offset, mark)?;
        accesses.add_payload(index, serial, link.peer(), target);
        // The packet is under way until the library has written the payload, whenever the packet is
        // sent.
        link.out.depart();
        link.out.begin_operations(1);
        link.out.set_payload_written();
        *running += 1;
        counters.completion_data_out += 1;
        packet.payload = Outgoing::Nothing;
        packet.header = packet.header.without_payload();
        Ok(true)
    }

    /// The library has written a payload: the grant may be returned.
    pub(crate) fn payload_done(&mut self, link: u32, serial: u32) {
        let Some((peer, target)) = self.accesses.payload_done(link, serial) else { return };
        self.grants.completed(peer, target);
        self.return_grant(peer, target);
    }

    /// Takes in completion data as if a process had written to our memory: for tests, as a write
    /// needs a key of the library's.
    #[doc(hidden)]
    pub fn take_completion_data(&mut self, data: u64, events: &mut Vec<Event>) {
        self.completion_arrived(data, events);
    }

    /// Completion data of a write to our memory has arrived.
    pub(crate) fn completion_arrived(&mut self, data: u64, events: &mut Vec<Event>) {
        // The packet that waited for it is taken now.
        if let Some(index) = self.completion_of(data) {
            self.take_deferred(index, usize::MAX, events);
        }
    }

    /// Notes completion data. Returns the slot of a peer of which a packet is due now.
    pub(crate) fn completion_of(&mut self, data: u64) -> Option<u32> {
        let data = CompletionData::from_data(data);
        let index = self.links.by_completion(data.name);
        let link = index.and_then(|index| self.links.get_mut(index));
        let (Some(index), Some(link)) = (index, link) else {
            self.counters.stray_completion_data += 1;
            return None;
        };
        match link.inward.complete(data.number) {
            true => self.counters.completion_data_in += 1,
            false => self.counters.stray_completion_data += 1,
        }
        (link.inward.is_due() && !link.inward.is_paused()).then_some(index)
    }
}

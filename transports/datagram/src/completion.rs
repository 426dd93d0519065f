//! Payloads of packets that the library writes to where they belong, with word of it for the owner: how a put with event
//! goes past the processors.
//!
//! The engine takes a put with event apart into packets, of which the last one raises the event, and is answered. Such a
//! packet says where its payload goes. Where the initiator has a grant for that region, and the payload is long enough to
//! be worth it, the packet is sent without it; the library writes it to its place, by the grant's key, and tells the owner
//! when all of it is there ([`Happened::Noticed`]). The packet is taken when both have come, in whichever order, and in
//! its turn, as if the payload had come with it.
//!
//! So nothing is built on what is said in completion data, which is short (8 bytes, or 4), comes from anybody, and
//! has no room for what an event says: which region, from where on, how long, and 64 bits. All of that is in the packet,
//! which has a ticket, comes once, and is checked by the engine: a region that is closed raises no event. Nor on any order
//! of writes: each has a notice of its own, which comes when that write is there, and an event comes behind all packets of
//! its put. Nobody waits for a completion before the next is posted.
//!
//! Whoever guesses a link's name ([`Notice`]) and writes to the library's port can at most have a packet taken before its
//! payload is there.
//!
//! [`Happened::Noticed`]: crate::Happened::Noticed

use crate::{
    access::{Grant, Target},
    frame::{Control, Notice},
    network::{Mark, Network, Reach, Refusal},
    state::Datagrams,
};
use petasos_fabric::{
    Access, Event, Peer,
    two_sided::{Outgoing, Packet, header::put_place},
};
use std::collections::hash_map::Entry;

impl<N: Network> Datagrams<N> {
    /// A put with event of `total` bytes goes to a region: asks for leave to write there, if that is worth it. Until it
    /// comes payloads go within their packets.
    pub(crate) fn ask_for_notices(&mut self, peer: Peer, target: Target, total: u64) {
        if total < self.accesses.notices_from {
            return;
        }
        if let Entry::Vacant(vacant) = self.accesses.grants.entry((peer, target)) {
            vacant.insert(Grant::Asked(Vec::new()));
            self.write_letter(peer, Control::Ask(target));
        }
    }

    /// What notices of a peer begin with: made when it first needs to know. 0 if there are none here.
    pub(crate) fn notice_name(&mut self, peer: Peer) -> u64 {
        let names = Notice::names(self.net.facts().notice_bits);
        let known = self.link(peer).map_or(0, |link| link.notice);
        if names == 0 || known > 0 {
            return known;
        }
        for _ in 0..64 {
            let random = getrandom::u64().expect("the system's random source answers");
            let name = random & names;
            if name > 0
                && let Entry::Vacant(vacant) = self.notices.entry(name)
                && let Some(Some(link)) = self.links.get_mut(peer.index as usize)
            {
                vacant.insert(peer.index);
                link.notice = name;
                return name;
            }
        }
        0
    }

    /// Has the library write the payload of the next packet to a peer, if it can: then the packet is left without. True
    /// if it does; refused for want of room, nothing has happened.
    pub(crate) fn bring(&mut self, index: u32, packet: &mut Packet) -> Result<bool, Refusal> {
        let Datagrams { accesses, net, links, config, counters, .. } = self;
        let Outgoing::Memory(pieces) = &packet.payload else { return Ok(false) };
        let [piece] = &pieces[..] else { return Ok(false) };
        let Some((target, offset)) = put_place(&packet.header) else { return Ok(false) };
        let Some(Some(link)) = links.get_mut(index as usize) else { return Ok(false) };
        let facts = net.facts();
        let fits = piece.len() <= facts.access.unwrap_or(0) && accesses.running < config.sends / 2;
        let grant = accesses.grants.get_mut(&(link.peer, target));
        let (Some(Grant::Given { key, rights, notice, running }), Some(node), true) =
            (grant, link.node, fits)
        else {
            return Ok(false);
        };
        let notice = Notice { name: *notice, number: link.sent as u8 };
        let Some(data) = notice.to_data(facts.notice_bits) else { return Ok(false) };
        if !rights.allows(Access::WRITE) {
            return Ok(false);
        }
        let serial = link.next_serial();
        let mark = Mark::Brought { link: index, serial };
        net.access(node, Reach::Noticed(data), piece.clone(), key, offset, mark)?;
        accesses.brought.insert((index, serial), (link.peer, target));
        // It is under way until the library is done with the payload, whenever the packet goes.
        link.depart();
        (link.running, link.brought) = (link.running + 1, true);
        (*running, accesses.running) = (*running + 1, accesses.running + 1);
        counters.noticed_out += 1;
        packet.payload = Outgoing::Nothing;
        packet.header = packet.header.without_payload();
        Ok(true)
    }

    /// The library is done with a payload: the grant may be given back.
    pub(crate) fn brought(&mut self, link: u32, serial: u32) {
        let Some((peer, target)) = self.accesses.brought.remove(&(link, serial)) else { return };
        self.accesses.running -= 1;
        if let Some(Grant::Given { running, .. } | Grant::Revoked { running }) =
            self.accesses.grants.get_mut(&(peer, target))
        {
            *running -= 1;
        }
        self.give_back(peer, target);
    }

    /// As if somebody wrote to memory of ours, and said this: for tests, for it takes a key of the library's.
    #[doc(hidden)]
    pub fn hear_notice(&mut self, data: u64, events: &mut Vec<Event>) {
        self.noticed(data, events);
    }

    /// Somebody wrote to memory of ours, and says this.
    pub(crate) fn noticed(&mut self, data: u64, events: &mut Vec<Event>) {
        let notice = Notice::from_data(data);
        let index = self.notices.get(&notice.name).copied();
        let link = index.and_then(|index| self.links.get_mut(index as usize)?.as_deref_mut());
        let (Some(index), Some(link)) = (index, link) else {
            self.counters.stray_notices += 1;
            return;
        };
        match link.note(notice.number) {
            true => self.counters.noticed_in += 1,
            false => self.counters.stray_notices += 1,
        }
        // What waited for it is told now.
        if link.is_due() && !link.paused {
            self.take_deferred(index, usize::MAX, events);
        }
    }
}

//! Receiving packets, in the order of their numbers.

use crate::{
    datagrams::Datagrams,
    frame::{HEADER_LEN, Header, WAITS},
    link::Watch,
    network::{Network, Packet},
};
use petasos_fabric::{LostReason, Peer};

impl<N: Network> Datagrams<N> {
    /// Reads the header of a packet, and takes in its acknowledgement. Returns the header if
    /// anything follows it.
    #[inline]
    pub(crate) fn read_header(&mut self, packet: Packet) -> Option<Header> {
        if packet.len < HEADER_LEN {
            self.counters.strays += 1;
            return None;
        }
        let mut bytes = [0; HEADER_LEN];
        self.net.read(packet, 0, &mut bytes);
        let header = Header::from_bytes(bytes);
        let slot = header.slot & !WAITS;
        let known = self.links.get_mut(slot);
        let Some(link) = known.filter(|link| link.ticket() == header.ticket) else {
            self.counters.strays += 1;
            return None;
        };
        if !link.out.acknowledge(header.taken) {
            self.cut_off(slot, "packets were acknowledged that were not sent");
            return None;
        }
        (packet.len > HEADER_LEN).then_some(header)
    }

    /// A packet has arrived. Returns its sender if it is to be taken now; else it is deferred, or
    /// wrong.
    #[inline]
    pub(crate) fn admit(&mut self, header: Header, packet: Packet) -> Option<Peer> {
        let (index, number) = (header.slot & !WAITS, header.number);
        let link = self.links.get_mut(index)?;
        self.counters.packets_in += 1;
        let received = link.inward.count_received();
        if let Watch::Owed(count) = link.watch
            && received.wrapping_sub(count) as i32 >= 0
        {
            link.watch = Watch::Rings;
        }
        let Some(distance) = link.inward.distance(number) else {
            self.cut_off(index, "a packet with a number that it cannot have");
            return None;
        };
        if header.slot & WAITS != 0 {
            link.inward.wait_for_completion(number);
        }
        if link.is_greeted() && distance == 0 && !link.inward.waits_for_completion() {
            return Some(link.peer());
        }
        let mut bytes = vec![0; packet.len - HEADER_LEN];
        self.net.read(packet, HEADER_LEN, &mut bytes);
        let link = self.links.get_mut(index)?;
        self.counters.deferred += 1;
        link.inward.defer(distance, bytes);
        self.lists.pause(link);
        None
    }

    /// Lists a peer if a deferred packet of it is due.
    #[inline]
    pub(crate) fn pause(&mut self, index: u32) {
        if let Some(link) = self.links.get_mut(index) {
            self.lists.pause(link);
        }
    }

    /// The library has completed the sending of a packet.
    pub(crate) fn done(&mut self, index: u32, generation: u32, result: Result<(), i32>) {
        let link = self.links.get_mut(index);
        let Some(link) = link.filter(|link| link.peer().generation == generation) else {
            return self.lost_done(Peer { index, generation });
        };
        link.out.end_operation();
        if let Err(code) = result {
            self.fail(index, code as isize);
        } else if self.rings {
            self.ring_late(index);
        }
    }

    /// The library cannot receive any more: all peers are lost.
    #[cold]
    pub(crate) fn broken(&mut self, code: i32) {
        let why = self.net.error(code as isize);
        for index in 0..self.links.slots() {
            self.end(index, LostReason::System(why.clone()));
        }
    }
}

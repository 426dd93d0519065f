//! The fast path of packets that arrive: one that is next in all respects is read where it lies.

use super::{
    Nic,
    packet::Header,
    receive::{MOST, Source},
};
use crate::{
    frame::{self, HEADER_LEN},
    link::Watch,
    network::{Happened, Network, Packet},
};
use petasos_channel::device::{Class, Node, Search};
use petasos_fabric::{Peer, Slice};
use zerocopy::IntoBytes;

/// Before the bytes of a packet of the data class: the header of the stream, and ours.
const BEFORE: usize = HEADER_LEN + Header::PACKET;

/// A packet that was found, and not taken yet.
#[derive(Clone, Copy)]
pub(super) struct Found {
    node: Node,
    peer: Peer,
    packet: Packet,
}

impl Found {
    /// How many bytes its user sent.
    #[inline]
    fn len(&self) -> usize {
        self.packet.len - BEFORE
    }
}

impl<N: Network> Nic<N> {
    /// The found packet: the one that is there, or the next that the library has, if nothing is to
    /// be reported or done before.
    #[inline]
    pub(super) fn find(&mut self) -> Search {
        if let Some(found) = &self.found {
            return Search::Found(found.node, found.len());
        }
        for _ in 0..MOST {
            if self.has_news() {
                break;
            }
            let Some(happened) = self.inner.net.next() else {
                self.inner.pace.library_was_empty();
                return Search::Nothing;
            };
            self.inner.pace.arrived();
            if let Happened::Packet(packet) = happened
                && let Some(found) = self.plain(packet)
            {
                self.found = Some(found);
                return Search::Found(found.node, found.len());
            }
            self.happened(happened);
        }
        Search::Poll
    }

    /// Whether something is to be reported, or packets that waited are to be taken.
    #[inline]
    fn has_news(&self) -> bool {
        let (inner, waits) = (&self.inner, !self.mail.is_empty() || !self.stash.is_empty());
        waits || inner.peers.has_news() || !inner.lists.paused().is_empty()
    }

    /// Whether a packet is of the data class, and its turn is now. Otherwise nothing has happened.
    #[inline]
    fn plain(&mut self, packet: Packet) -> Option<Found> {
        if packet.len < BEFORE {
            return None;
        }
        let mut words = [0_u64; BEFORE / 8];
        self.inner.net.read(packet, 0, words.as_mut_bytes());
        let [low, ticket, class] = words.map(u64::from_le);
        let header = frame::Header::from_words(low, ticket);
        if class as u8 != Class::Data as u8 {
            return None;
        }
        let link = self.inner.links.get_mut(header.slot)?;
        let next = link.inward.taken() as u16 == header.number;
        let due = link.ticket() == header.ticket && link.is_up() && next;
        let plain = !link.inward.has_deferred()
            && link.out.has_window()
            && !matches!(link.watch, Watch::Owed(_));
        let peer = link.peer();
        let node = self.nodes.node(peer).filter(|_| due && plain)?;
        if !link.out.acknowledge(header.taken) {
            return None;
        }
        link.inward.count_received();
        self.inner.counters.packets_in += 1;
        Some(Found { node, peer, packet })
    }

    /// # Panics
    /// If that is beyond the end of the found packet, or there is none.
    #[inline]
    pub(super) fn read(&self, at: usize, room: &mut [u8]) {
        let found = self.found.as_ref().expect("a packet that was found");
        self.inner.net.read(found.packet, BEFORE + at, room);
    }

    /// The same into memory, as much as it has room for.
    pub(super) fn copy(&self, at: usize, into: &Slice) {
        let found = self.found.as_ref().expect("a packet that was found");
        Source::Network(found.packet).copy(&self.inner.net, BEFORE - HEADER_LEN + at, into);
    }

    /// The found packet was taken.
    #[inline]
    pub(super) fn found_taken(&mut self) {
        if let Some(found) = self.found.take() {
            self.inner.took(found.peer.index);
            self.inner.pace.message_taken();
            self.took = true;
        }
    }

    /// The found packet is reported as an event like any other.
    #[cold]
    pub(super) fn report_found(&mut self) {
        if let Some(found) = self.found.take() {
            self.take(found.peer, &Source::Network(found.packet));
            self.inner.pause(found.peer.index);
        }
    }

    /// A node is closed.
    pub(super) fn forget_found(&mut self, node: Node) {
        self.found.take_if(|found| found.node == node);
    }
}

const _: () = assert!(BEFORE <= HEADER_LEN + Header::MAX);

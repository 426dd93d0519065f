//! A packet of the engine's on its way into records.

use crate::header::{FIRST, LAST};
use petasos_fabric::{
    Slice,
    two_sided::{Outgoing, Packet},
};

/// A packet of the engine's that is sent in as many records as it takes.
#[derive(Debug)]
pub(crate) struct OutPacket {
    packet: Packet,
    /// Bytes that were sent, the header's included.
    pub(crate) at: usize,
    /// Its payload is lent, and fetched by the receiver.
    pub(crate) shared: bool,
    /// It goes through an exclusive channel as long as there is one.
    pub(crate) exclusive: bool,
    /// The last record that lends memory.
    pub(crate) lent: Option<u32>,
}

impl OutPacket {
    /// The packet, of which nothing was sent. `shared` says whether its payload is to be lent,
    /// `exclusive` whether the rest is for an exclusive channel.
    #[inline]
    pub(crate) fn new(packet: Packet, shared: bool, exclusive: bool) -> OutPacket {
        OutPacket { packet, at: 0, shared, exclusive, lent: None }
    }

    /// Its length with the header, in bytes.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.packet.len()
    }

    /// The length of its header, in bytes.
    #[inline]
    pub(crate) fn header(&self) -> usize {
        self.packet.header.len()
    }

    /// The flags of a record from where it is up to `end`.
    #[inline]
    pub(crate) fn flags(&self, end: usize) -> u8 {
        let first = if self.at == 0 { FIRST } else { 0 };
        let last = if end == self.packet.len() { LAST } else { 0 };
        first | last
    }

    /// Its header and its payload.
    #[inline]
    pub(crate) fn whole(&self) -> (&[u8], &Outgoing) {
        (&self.packet.header, &self.packet.payload)
    }

    /// Appends bytes of the packet to `out`.
    pub(crate) fn copy(&self, at: usize, len: usize, out: &mut Vec<u8>) {
        let header = self.header();
        let (from, to) = (at.min(header), (at + len).min(header));
        out.extend_from_slice(&self.packet.header[from..to]);
        let (mut skip, mut left) = (at.max(header) - header, len - (to - from));
        match &self.packet.payload {
            Outgoing::Nothing => {}
            Outgoing::Bytes(bytes) => out.extend_from_slice(&bytes[skip..skip + left]),
            Outgoing::Memory(pieces) => {
                for piece in pieces {
                    let from = skip.min(piece.len());
                    let now = left.min(piece.len() - from);
                    piece.append_to(from, now, out);
                    (skip, left) = (skip - from, left - now);
                }
            }
        }
    }

    /// The longest piece of memory from `at` on, if the payload lies in memory that may be lent:
    /// what only its program keeps would have to stay after the peer is lost.
    pub(crate) fn piece(&self, at: usize) -> Option<Slice> {
        let Outgoing::Memory(pieces) = &self.packet.payload else { return None };
        if self.packet.payload.is_raw() {
            return None;
        }
        let mut skip = at - self.header();
        for piece in pieces {
            if skip < piece.len() {
                return piece.part(skip, piece.len() - skip);
            }
            skip -= piece.len();
        }
        None
    }
}

//! What waits to be sent on one connection.

use crate::io::Gather;
use petasos_fabric::{
    Peer,
    two_sided::{Engine, Outgoing, Packet, header::message_header},
};
use std::{collections::VecDeque, io, os::fd::BorrowedFd};

/// Payload up to this length is copied, so that many small packets are one piece.
const COPIED: usize = 4096;
/// Beyond so many bytes, no more is taken.
const ENOUGH: usize = 256 * 1024;

/// Packets in order, and how much of the first is sent.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    chunks: VecDeque<Chunk>,
    /// Bytes of the first chunk that are sent.
    sent: usize,
    /// Bytes in all chunks, those sent included.
    len: usize,
    /// An emptied buffer, for reuse.
    spare: Vec<u8>,
    /// Bytes until the end of the last note about closing; 0: it is sent.
    note: usize,
}

#[derive(Debug)]
enum Chunk {
    /// Whole packets, copied; so many of them are the engine's.
    Bytes(Vec<u8>, usize),
    /// A packet whose payload is sent from where it lies. The engine is told when it is sent.
    Packet(Packet),
}

impl Chunk {
    fn len(&self) -> usize {
        match self {
            Chunk::Bytes(bytes, _) => bytes.len(),
            Chunk::Packet(packet) => packet.len(),
        }
    }
}

impl Outbox {
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Whether more should be taken now.
    pub(crate) fn has_room(&self) -> bool {
        self.len - self.sent < ENOUGH
    }

    /// The buffer at the end, and its count of packets.
    fn tail(&mut self) -> (&mut Vec<u8>, &mut usize) {
        if !matches!(self.chunks.back(), Some(Chunk::Bytes(..))) {
            self.chunks.push_back(Chunk::Bytes(std::mem::take(&mut self.spare), 0));
        }
        match self.chunks.back_mut() {
            Some(Chunk::Bytes(bytes, packets)) => (bytes, packets),
            _ => unreachable!("a buffer was pushed"),
        }
    }

    /// Takes a plain message of `len` bytes.
    #[inline]
    pub(crate) fn message(&mut self, len: usize, parts: &[&[u8]]) {
        let header = message_header(len as u32);
        let (tail, _) = self.tail();
        tail.extend_from_slice(&header);
        for part in parts {
            tail.extend_from_slice(part);
        }
        self.len += header.len() + len;
    }

    /// Takes a note of the transport's own.
    pub(crate) fn note(&mut self, bytes: &[u8]) {
        self.tail().0.extend_from_slice(bytes);
        self.len += bytes.len();
        self.note = self.len - self.sent;
    }

    /// Whether a note of the transport's own still waits here.
    pub(crate) fn has_note(&self) -> bool {
        self.note > 0
    }

    /// Takes a packet of the engine's.
    pub(crate) fn packet(&mut self, packet: Packet) {
        self.len += packet.len();
        if packet.payload.len() <= COPIED {
            let (tail, packets) = self.tail();
            packet.copy_to(tail);
            *packets += 1;
        } else {
            self.chunks.push_back(Chunk::Packet(packet));
        }
    }

    /// Takes the memory of closed regions out of the packets.
    pub(crate) fn release_closed(&mut self, peer: Peer, engine: &mut Engine) {
        let mut nth = 0;
        for chunk in &mut self.chunks {
            match chunk {
                Chunk::Bytes(_, packets) => nth += *packets,
                Chunk::Packet(packet) => {
                    engine.detach(peer, nth, &mut packet.payload);
                    nth += 1;
                }
            }
        }
    }

    /// Sends what the socket takes. Gives the number of bytes, and of the engine's packets that are
    /// sent. No bytes: the socket is full.
    pub(crate) fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<(usize, usize)> {
        let mut gather = Gather::default();
        let mut skip = self.sent;
        for chunk in &self.chunks {
            if gather.is_full() || gather.len() > 4 * ENOUGH {
                break;
            }
            match chunk {
                Chunk::Bytes(bytes, _) => gather.bytes(&bytes[skip..]),
                Chunk::Packet(packet) => gather_packet(&mut gather, packet, skip),
            }
            skip = 0;
        }
        let sent = match gather.send(socket) {
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        drop(gather);
        Ok((sent, self.advance(sent)))
    }

    /// Moves the next bytes, at most so many, to the end of `out`. Gives their number, and that of
    /// the engine's packets that ended with them.
    pub(crate) fn take(&mut self, most: usize, out: &mut Vec<u8>) -> (usize, usize) {
        let start = out.len();
        let mut skip = self.sent;
        for chunk in &self.chunks {
            let left = most - (out.len() - start);
            if left == 0 {
                break;
            }
            match chunk {
                Chunk::Bytes(bytes, _) => {
                    let rest = &bytes[skip..];
                    out.extend_from_slice(&rest[..rest.len().min(left)]);
                }
                Chunk::Packet(packet) => copy_packet(packet, skip, left, out),
            }
            skip = 0;
        }
        let taken = out.len() - start;
        (taken, self.advance(taken))
    }

    /// Drops what is sent; gives the number of packets that were.
    fn advance(&mut self, sent: usize) -> usize {
        self.note = self.note.saturating_sub(sent);
        self.sent += sent;
        let mut packets = 0;
        while let Some(first) = self.chunks.front()
            && self.sent >= first.len()
        {
            let len = first.len();
            self.sent -= len;
            self.len -= len;
            match self.chunks.pop_front() {
                Some(Chunk::Packet(_)) => packets += 1,
                Some(Chunk::Bytes(mut bytes, count)) => {
                    packets += count;
                    if bytes.capacity() <= ENOUGH {
                        bytes.clear();
                        self.spare = bytes;
                    }
                }
                None => {}
            }
        }
        packets
    }
}

/// Copies at most `left` bytes of a packet, from `skip` on.
fn copy_packet(packet: &Packet, skip: usize, left: usize, out: &mut Vec<u8>) {
    let header = &packet.header[..];
    let end = out.len() + left;
    let mut skip = skip;
    let mut bytes = |bytes: &[u8], out: &mut Vec<u8>| {
        let rest = &bytes[skip.min(bytes.len())..];
        skip = skip.saturating_sub(bytes.len());
        let left = end - out.len();
        out.extend_from_slice(&rest[..rest.len().min(left)]);
    };
    bytes(header, out);
    match &packet.payload {
        Outgoing::Nothing => {}
        Outgoing::Bytes(payload) => bytes(payload, out),
        Outgoing::Memory(pieces) => {
            for piece in pieces {
                let from = skip.min(piece.len());
                let len = (piece.len() - from).min(end - out.len());
                skip -= from;
                piece.append_to(from, len, out);
            }
        }
    }
}

fn gather_packet<'a>(gather: &mut Gather<'a>, packet: &'a Packet, skip: usize) {
    let header = &packet.header[..];
    gather.bytes(&header[skip.min(header.len())..]);
    let mut skip = skip.saturating_sub(header.len());
    match &packet.payload {
        Outgoing::Nothing => {}
        Outgoing::Bytes(bytes) => gather.bytes(&bytes[skip..]),
        Outgoing::Memory(pieces) => {
            for piece in pieces {
                let here = skip.min(piece.len());
                gather.memory(piece, here);
                skip -= here;
            }
        }
    }
}

//! What goes between the engine and the transport.

use super::header::Encoded;
use crate::{Buffer, Slice, Slices, memory::Fault};
use bytes::Bytes;

/// A packet to be sent: the header's bytes, then the payload's.
#[derive(Debug)]
pub struct Packet {
    /// The header, which also says how long the payload is.
    pub header: Encoded,
    /// The payload.
    pub payload: Outgoing,
}

impl Packet {
    /// Header and payload together, in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.header.len() + self.payload.len()
    }

    /// Never: a packet has a header.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Copies the whole packet to the end of `out`.
    pub fn copy_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.header);
        self.payload.append_to(out);
    }
}

/// The payload of a packet to be sent.
#[derive(Clone, Debug)]
pub enum Outgoing {
    /// None.
    Nothing,
    /// Bytes of the engine's or the user's.
    Bytes(Bytes),
    /// Memory of the host, to be sent from where it lies, before [`Engine::sent`] is called.
    ///
    /// [`Engine::sent`]: super::Engine::sent
    Memory(Slices),
}

impl Outgoing {
    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Outgoing::Nothing => 0,
            Outgoing::Bytes(bytes) => bytes.len(),
            Outgoing::Memory(pieces) => pieces.iter().map(Slice::len).sum(),
        }
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies it to the end of `out`.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        match self {
            Outgoing::Nothing => {}
            Outgoing::Bytes(bytes) => out.extend_from_slice(bytes),
            Outgoing::Memory(pieces) => {
                pieces.iter().for_each(|piece| piece.append_to(0, piece.len(), out));
            }
        }
    }

    /// Copies it to where there is room for just as many bytes.
    ///
    /// # Panics
    /// If there is less room, or, where it is bytes, more.
    #[inline]
    pub fn read(&self, mut room: &mut [u8]) {
        match self {
            Outgoing::Nothing => {}
            Outgoing::Bytes(bytes) => room.copy_from_slice(bytes),
            Outgoing::Memory(pieces) => {
                for piece in pieces {
                    let (here, rest) = room.split_at_mut(piece.len());
                    piece.read(0, here);
                    room = rest;
                }
            }
        }
    }

    /// Whether some of it is memory that the program keeps ([`Slice::raw`]): not to be given to a
    /// library that may still read it when the peer is lost.
    #[must_use]
    pub fn is_raw(&self) -> bool {
        matches!(self, Outgoing::Memory(pieces) if pieces.iter().any(Slice::is_raw))
    }

    /// Becomes memory of the host, to which transports have pointers: that of a device is copied,
    /// and what is made of a few pieces becomes these.
    #[inline]
    pub(super) fn make_reachable(&mut self) -> Result<(), Fault> {
        match self {
            Outgoing::Memory(pieces) if pieces.iter().any(|piece| piece.device().is_some()) => {
                self.fetch()
            }
            _ => Ok(()),
        }
    }

    #[cold]
    fn fetch(&mut self) -> Result<(), Fault> {
        let Outgoing::Memory(pieces) = self else { return Ok(()) };
        if expand(pieces) {
            return Ok(());
        }
        let mut copy = vec![0; pieces.iter().map(Slice::len).sum()];
        let mut rest = &mut copy[..];
        for piece in pieces.iter() {
            let (now, later) = rest.split_at_mut(piece.len());
            piece.try_read(0, now)?;
            rest = later;
        }
        *self = Outgoing::Bytes(Bytes::from(copy));
        Ok(())
    }

    /// Becomes a copy, if it is memory: that is used no more.
    pub fn copy(&mut self) {
        if let Outgoing::Memory(pieces) = &*self {
            let mut copy = Vec::with_capacity(self.len());
            pieces.iter().for_each(|piece| piece.append_to(0, piece.len(), &mut copy));
            *self = Outgoing::Bytes(Bytes::from(copy));
        }
    }
}

/// Where the payload of an incoming packet shall go.
#[derive(Debug)]
#[must_use = "the payload follows, and then the placement goes back to the engine"]
pub enum Placement {
    /// Nowhere: read it and throw it away. Also when there is no payload.
    Discard,
    /// Into this buffer, which is as long as the payload.
    Buffer(Buffer),
    /// Straight into memory of the host, all pieces in order; together as long as the payload.
    Memory(Slices),
}

impl Placement {
    /// Copies bytes of the payload, from `at` in it on, to where they belong.
    ///
    /// # Panics
    /// If they are more than the payload holds.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        match self {
            Placement::Discard => {}
            Placement::Buffer(buffer) => buffer[at..at + bytes.len()].copy_from_slice(bytes),
            Placement::Memory(pieces) => {
                let (mut skip, mut rest) = (at, bytes);
                for piece in pieces {
                    let from = skip.min(piece.len());
                    let (now, later) = rest.split_at(rest.len().min(piece.len() - from));
                    piece.write(from, now);
                    (skip, rest) = (skip - from, later);
                }
                assert!(rest.is_empty(), "more bytes than the payload holds");
            }
        }
    }
}

/// How many pieces become part of a packet as they are.
const FEW: usize = 16;

/// Puts the pieces in the place of memory that is made of some, unless these are many or there is no
/// pointer to one. False if the memory is as before.
#[cold]
pub(super) fn expand(memory: &mut Slices) -> bool {
    let mut all = Slices::new();
    for slice in memory.iter() {
        match slice.pieces() {
            Some(pieces) => all.extend(pieces.take(FEW + 1)),
            None => all.push(slice.clone()),
        }
        if all.len() > FEW {
            return false;
        }
    }
    let reachable = all.iter().all(|piece| piece.host_ptr().is_some());
    if reachable {
        *memory = all;
    }
    reachable
}

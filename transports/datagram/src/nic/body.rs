//! What stands behind the header of a NIC's packet.

use bytes::Bytes;
use petasos_fabric::{Slice, two_sided::Outgoing};
use smallvec::SmallVec;

/// The body of a packet.
#[derive(Clone, Copy)]
pub(super) enum Body<'b> {
    /// Its concatenation.
    Parts(&'b [&'b [u8]]),
    /// Bytes of memory, which may be sent from where they lie.
    Memory(&'b Slice),
    /// A header of the user's, and a payload, of which memory is the user's again at once.
    Payload(&'b [u8], &'b Outgoing),
}

impl Body<'_> {
    pub(super) const NONE: Body<'static> = Body::Parts(&[]);

    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Body::Parts(parts) => parts.iter().map(|part| part.len()).sum(),
            Body::Memory(memory) => memory.len(),
            Body::Payload(header, payload) => header.len() + payload.len(),
        }
    }

    /// Copies it to where there is room for all of it.
    #[inline]
    pub(super) fn copy(&self, mut room: &mut [u8]) {
        match self {
            Body::Parts(parts) => {
                for part in *parts {
                    let (here, rest) = room.split_at_mut(part.len());
                    here.copy_from_slice(part);
                    room = rest;
                }
            }
            Body::Memory(memory) => memory.read(0, room),
            Body::Payload(header, payload) => {
                let (here, rest) = room.split_at_mut(header.len());
                here.copy_from_slice(header);
                payload.read(rest);
            }
        }
    }

    /// For the library: what it takes as the header of a packet that begins with these parts, and a
    /// payload that it holds. `copied` says that it copies what it is given, and holds nothing.
    pub(super) fn to_held(
        self,
        before: [&[u8]; 2],
        copied: bool,
    ) -> (SmallVec<[u8; 128]>, Outgoing) {
        let mut header: SmallVec<[u8; 128]> = SmallVec::new();
        before.iter().for_each(|part| header.extend_from_slice(part));
        let payload = match self {
            Body::Memory(memory) if !memory.is_raw() && memory.device().is_none() => {
                Outgoing::Memory([memory.clone()].into_iter().collect())
            }
            Body::Memory(memory) => Outgoing::Bytes(Bytes::from(memory.to_vec())),
            Body::Parts(parts) => Outgoing::Bytes(Bytes::from(parts.concat())),
            Body::Payload(front, payload) => {
                header.extend_from_slice(front);
                let mut payload = payload.clone();
                if !copied {
                    payload.copy();
                }
                payload
            }
        };
        (header, payload)
    }
}

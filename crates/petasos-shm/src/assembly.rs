//! Messages and packets that arrive in parts: where the parts go until all are there.

use crate::ring::{Consumer, Incoming, Shared};
use petasos_fabric::{Buffer, two_sided::Placement};

/// A message, or a packet of the engine's, of which the first part has come.
pub(crate) struct Assembly {
    pub(crate) into: Destination,
    /// Bytes of the payload that have come.
    pub(crate) at: usize,
}

/// Where the payload goes.
pub(crate) enum Destination {
    Message(Buffer),
    Packet(Placement),
}

/// Copies what lies here, from `from` in it on, to its place from `at` in the payload on.
pub(crate) fn place(
    consumer: &Consumer<Shared>,
    incoming: &Incoming,
    from: usize,
    placement: &mut Placement,
    at: usize,
) {
    match placement {
        Placement::Busy | Placement::Discard => {}
        Placement::Buffer(buffer) => {
            consumer.read(incoming, from, &mut buffer[at..at + incoming.here - from]);
        }
        Placement::Memory(pieces) => {
            let (mut from, mut skip) = (from, at);
            for piece in pieces {
                let begin = skip.min(piece.len());
                let len = (piece.len() - begin).min(incoming.here - from);
                // SAFETY: memory that the engine places data in is writable, lives as long as the
                // slice, and lies in no ring; `begin + len` is within the piece.
                unsafe { consumer.read_raw(incoming, from, piece.as_ptr().add(begin), len) };
                (from, skip) = (from + len, skip - begin);
            }
        }
    }
}

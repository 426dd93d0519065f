//! Messages and packets that arrive in parts: where the parts go until all are there.

use crate::ring::{Consumer, Incoming, Shared};
use petasos_fabric::{Buffer, two_sided::Placement};

/// What was announced, and of which parts are still to come.
pub(crate) enum Assembly {
    /// A plain message, and how many of its bytes have come.
    Message(Buffer, usize),
    /// A packet of the engine's, of which nothing has come.
    Packet,
    /// Its payload, and how much of it has come.
    Payload(Placement, usize),
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
        Placement::Discard => {}
        Placement::Buffer(buffer) => {
            consumer.read(incoming, from, &mut buffer[at..at + incoming.len - from]);
        }
        Placement::Memory(pieces) => {
            let (mut from, mut skip) = (from, at);
            for piece in pieces {
                let begin = skip.min(piece.len());
                let len = (piece.len() - begin).min(incoming.len - from);
                // SAFETY: memory that the engine places data in is writable, lives as long as the
                // slice, and lies in no ring; `begin + len` is within the piece.
                unsafe { consumer.read_raw(incoming, from, piece.as_ptr().add(begin), len) };
                (from, skip) = (from + len, skip - begin);
            }
        }
    }
}

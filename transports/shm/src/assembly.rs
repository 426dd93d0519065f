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
                assert!(piece.is_writable(), "receiving into read-only memory");
                // SAFETY: the piece is writable, lives as long as the slice, and lies in no ring;
                // `begin + len` is within it.
                unsafe { consumer.read_raw(incoming, from, piece.as_ptr().add(begin), len) };
                (from, skip) = (from + len, skip - begin);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        pair::{Pair, Sizes},
        ring::Piece,
    };
    use petasos_fabric::Region;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn nothing_is_placed_in_memory_that_may_only_be_read() {
        let sizes = Sizes { ring: 16 << 10, long: 64 << 10, max: 20_000 };
        let (fd, mut a) = Pair::create(sizes).unwrap();
        let mut b = Pair::adopt(&fd, sizes).unwrap();
        assert!(a.send(3, &[Piece::of(b"bytes")], 5).unwrap());
        let incoming = b.peek().unwrap().unwrap();
        let memory = Region::from_vec(vec![0; 5]);
        let view = Region::view(&memory.whole()).unwrap();
        for (region, placed) in [(view, false), (memory.clone(), true)] {
            let mut placement = Placement::Memory([region.whole()].into_iter().collect());
            let go = || place(b.lies_in(), &incoming, 0, &mut placement, 0);
            assert_eq!(catch_unwind(AssertUnwindSafe(go)).is_ok(), placed);
            assert_eq!(memory.to_vec() == b"bytes", placed);
        }
    }
}

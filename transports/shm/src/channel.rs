//! A connected peer: the pair, what waits to be sent, and what has come in part.

use crate::{
    Counters,
    assembly::Assembly,
    doorbell::{NextPending, PendingDoorbells},
    endpoint::deliveries::Deliveries,
    pair::Pair,
    peer_segments::{GrantedSegments, PeerSegments},
    process::PeerProcess,
    ring::{MAX_SHORT, Piece, RingError},
    table::PeerTable,
};
use petasos_fabric::{
    EventFd, Incarnation, Lease, LostReason, Peer, Slice, Time,
    two_sided::{Outgoing, Packet, header},
};
use smallvec::{SmallVec, smallvec};

/// Kinds of packets in the ring.
pub(crate) mod kind {
    /// A short plain message: nothing but its bytes.
    pub(crate) use crate::ring::SHORT;
    /// A packet of the two-sided engine: its header and its payload.
    pub(crate) const PACKET: u8 = 2;
    /// A put with event has landed: see [`super::Arrival`].
    pub(crate) const EVENT: u8 = 3;
    /// Asks for the descriptor of a segment: slot and tag of a region in it, the route of its key
    /// through the engine, which shows that the key is known, and whether to write.
    pub(crate) const WANT: u8 = 4;
    /// A segment whose descriptor was given is not used any more: its number.
    pub(crate) const UNUSED: u8 = 5;
    /// A plain message of any length, contiguous: nothing but its bytes.
    pub(crate) const MESSAGE: u8 = 6;
    /// The same, of which the sender wants to know that it was taken: its cells are reported at
    /// once.
    pub(crate) const ASKING: u8 = 7;
}

/// What an event of a put says, 40 bytes little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) slot: u64,
    pub(crate) tag: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) data: u64,
}

impl Arrival {
    pub(crate) fn encode(self) -> [u8; 40] {
        let Arrival { slot, tag, offset, len, data } = self;
        words([slot, tag, offset, len, data])
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Arrival> {
        let [slot, tag, offset, len, data] = numbers(bytes)?;
        Some(Arrival { slot, tag, offset, len, data })
    }
}

/// Numbers as packets carry them.
pub(crate) fn words<const N: usize, const BYTES: usize>(numbers: [u64; N]) -> [u8; BYTES] {
    assert_eq!(N * 8, BYTES);
    let mut out = [0; BYTES];
    for (chunk, number) in out.chunks_exact_mut(8).zip(numbers) {
        chunk.copy_from_slice(&number.to_le_bytes());
    }
    out
}

/// Decodes exactly so many numbers.
pub(crate) fn numbers<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let (words, rest) = bytes.as_chunks::<8>();
    let words: &[[u8; 8]; N] = words.try_into().ok()?;
    rest.is_empty().then(|| words.map(u64::from_le_bytes))
}

/// The fields that each short message needs come first, close together.
#[repr(C)]
pub(crate) struct Channel {
    pub(crate) handle: Peer,
    /// The engine has packets or messages for it: what is injected would overtake them.
    pub(crate) served: bool,
    /// Where this is in the list of channels whose doorbell may have to be rung.
    pub(crate) next_pending: NextPending,
    /// When something last came.
    pub(crate) touched: Time,
    pub(crate) pair: Pair,

    pub(crate) incarnation: Incarnation,
    /// The peer's.
    pub(crate) table: PeerTable,
    pub(crate) process: PeerProcess,
    /// Rung by the peer.
    pub(crate) doorbell: EventFd,
    /// The peer connected by itself, and its handle was not asked for yet.
    pub(crate) uninvited: bool,

    /// A packet of the engine's for which there was no room.
    pub(crate) stuck: Option<Packet>,
    /// There was no room for a packet of this transport's own.
    pub(crate) unposted: bool,
    /// Its ring is polled, and it need not ring.
    pub(crate) watched: bool,
    /// There is a message for which the peer has no credit.
    pub(crate) overdrawn: bool,
    /// What has come in part.
    pub(crate) assembly: Option<Assembly>,
    /// Messages that complete when they have arrived.
    pub(crate) deliveries: Deliveries,
    /// Why the peer has ended: it is lost as soon as its ring is empty.
    pub(crate) ending: Option<LostReason>,

    /// Segments of the peer's.
    pub(crate) segments: PeerSegments,
    /// Segments of ours that the peer may have mapped.
    pub(crate) granted: GrantedSegments,
}

impl Channel {
    /// Sends a short packet of this transport's own. False if there is no room.
    pub(crate) fn post(&mut self, kind: u8, bytes: &[u8]) -> Result<bool, RingError> {
        let sent = self.pair.send(kind, &[Piece::of(bytes)], bytes.len());
        self.unposted = sent == Ok(false);
        sent
    }

    /// Something was published: rings if the peer plainly sleeps, and is then true. Else the
    /// channel is added to those that are looked at again.
    #[inline]
    pub(crate) fn published(&mut self, index: u32, pending: &mut PendingDoorbells) -> bool {
        let asleep = self.has_published(index, pending);
        if asleep {
            self.ring();
        }
        asleep
    }

    /// The same, but for ringing: true if the peer is to be rung.
    #[inline(always)]
    pub(crate) fn has_published(&mut self, index: u32, pending: &mut PendingDoorbells) -> bool {
        let asleep = self.pair.take_sleeper();
        if !asleep {
            pending.add(index, &mut self.next_pending);
        }
        asleep
    }

    #[cold]
    pub(crate) fn ring(&self) {
        self.process.ring();
    }

    /// Takes the next message, if it is there, and short. Gives the sender by reference, which is a
    /// register: a handle would be stored in one piece and read in others, and wait for that.
    #[inline(always)]
    pub(crate) fn receive_short(
        &mut self,
        message: &mut Lease,
        now: Time,
        counters: &mut Counters,
    ) -> Option<&Peer> {
        let Some(len) = self.pair.consumer.next().one() else {
            return self.receive_two(message, now, counters);
        };
        message.put_words(len, self.pair.consumer.words());
        Some(self.received_short(1, now, counters))
    }

    /// Takes the next message, which has one cell and this length, if what was consumed need not be
    /// reported then.
    #[inline(always)]
    pub(crate) fn receive_plainly(&mut self, len: usize, message: &mut Lease, now: Time) -> bool {
        if self.pair.consumer.is_due(1) {
            return false;
        }
        let words = self.pair.consumer.words();
        // Looked at here, where it still holds when the words are stored.
        if !message.is_plain() {
            return false;
        }
        message.put_words(len, words);
        self.touched = now;
        self.pair.consumer.pass(1);
        true
    }

    /// The same for one of one cell or two.
    #[inline]
    pub(crate) fn receive_two(
        &mut self,
        message: &mut Lease,
        now: Time,
        counters: &mut Counters,
    ) -> Option<&Peer> {
        let consumer = &self.pair.consumer;
        let (len, cells) = consumer.peek_short()?;
        if cells == 1 {
            let line = consumer.line(0);
            message.put_words(len, |at| line[at]);
        } else {
            message.put_lines(len, || [consumer.line(0), consumer.line(1)]);
        }
        Some(self.received_short(cells, now, counters))
    }

    /// So many cells of a short message were taken.
    #[inline(always)]
    fn received_short(&mut self, cells: usize, now: Time, counters: &mut Counters) -> &Peer {
        self.touched = now;
        counters.received += 1;
        if self.pair.finish_short(cells) {
            counters.wake_ups += 1;
            self.ring();
        }
        &self.handle
    }

    /// Writes a packet of the engine's into the ring. False if there is no room.
    pub(crate) fn write(&mut self, packet: &Packet) -> Result<bool, RingError> {
        let prefix = packet.header.first_chunk().copied();
        let plain = prefix.is_some_and(|prefix| header::message_len(prefix).is_some());
        if plain
            && let Outgoing::Bytes(bytes) = &packet.payload
            && bytes.len() <= MAX_SHORT
        {
            return self.pair.send_short(bytes);
        }
        let head: &[u8] = if plain { &[] } else { &packet.header };
        let mut pieces: SmallVec<[Piece<'_>; 4]> = smallvec![Piece::of(head)];
        match &packet.payload {
            Outgoing::Nothing => {}
            Outgoing::Bytes(bytes) => pieces.push(Piece::of(bytes)),
            Outgoing::Memory(memory) => {
                // SAFETY: a slice's memory is readable while it lives, and no region lies in a
                // ring: rings are mapped by `Pair` alone, which makes no regions.
                let piece = |slice: &Slice| unsafe { Piece::raw(slice.as_ptr(), slice.len()) };
                pieces.extend(memory.iter().map(piece));
            }
        }
        let kind = if plain { kind::MESSAGE } else { kind::PACKET };
        self.pair.send(kind, &pieces, head.len() + packet.payload.len())
    }

    /// Whether the other side has closed, or has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.table.is_closed() || self.process.is_over()
    }
}

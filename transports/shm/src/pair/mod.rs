//! The memory that two endpoints share: two rings each way, and a few words around them.
//!
//! | bytes | what | written by |
//! |---|---|---|
//! | 0 | consumed cells of ring 0; whether its receiver sleeps | side 1 (and the bell's answer) |
//! | 64 | consumed cells of long ring 0 | side 1 |
//! | 128 | the same of rings 1 | side 0 |
//! | 256 | whether side 0 waits for room; the region that it is reaching into; whether it gave the pair up | side 0 |
//! | 384 | the same of side 1 | side 1 |
//! | 4096 | ring 0, from side 0 to side 1 | side 0 |
//! | + ring | ring 1, from side 1 to side 0 | side 1 |
//! | + ring | long ring 0, from side 0 to side 1 | side 0 |
//! | + long ring | long ring 1, from side 1 to side 0 | side 1 |
//!
//! *Long messages.* All that goes from one side to the other goes through its ring, in order; but
//! of a message that is longer than a part (8 KiB) the ring has the announcement only, and its
//! bytes follow in parts through the long ring, so that one side copies in while the other copies
//! out. The long ring is the exclusive channel of a pair that needs one: its memory is there once a
//! long message was sent, and the sender gives it back to the system when there was none for a
//! while. So the ring of a pair stays small, and in the caches, whatever the longest message is.
//!
//! Side 0 is the one that connected, and made the file. Nothing in here is of use to a third
//! endpoint, and nothing that one side writes is trusted by the other.
//!
//! *Sleep.* A receiver that is about to sleep sets its word, fences, and looks at the ring once
//! more. A sender publishes, fences, and looks at the word: if it is set, it clears it and rings.
//! So one of them sees the other's write, and a receiver that is awake costs no system call.
//! Waiting for room works in the same way with the sides exchanged.

mod line;
mod long;
#[cfg(test)]
mod tests;

#[cfg(all(test, not(loom)))]
pub(crate) use self::long::PART;
use self::{
    line::Line,
    long::{LongReceiver, LongSender},
};
use crate::{
    channel::kind,
    hazard::{Announced, Ended},
    ring::{
        CELL, Consumer, Flag, Incoming, Piece, Producer, Report, RingError, Shared, longest, part,
    },
    sync::{Ordering, fence},
};
use petasos_fabric::memory::memfd::{self, Mapping, Unfit};
use rustix::{fd::OwnedFd, io::Errno};
use std::sync::Arc;

const CONTROL: usize = 4096;
const RECEIVER: [usize; 2] = [0, 128];
const LONG_RECEIVER: [usize; 2] = [64, 192];
const SIDE: [usize; 2] = [256, 384];
/// Within a side's line.
const END: usize = 16;
/// The smallest and the largest ring, in bytes.
pub(crate) const RING: std::ops::RangeInclusive<usize> = 16 << 10..=16 << 20;
/// Sizes of a pair: the side that connects decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Bytes of each ring, and of each long ring.
    pub(crate) ring: usize,
    pub(crate) long: usize,
    /// The longest packet.
    pub(crate) max: usize,
}

impl Sizes {
    /// Whether there can be such rings, and they take such packets.
    pub(crate) fn are_possible(&self) -> bool {
        let possible = |ring: &usize| ring.is_power_of_two() && RING.contains(ring);
        [self.ring, self.long].iter().all(possible) && self.max <= longest(self.long / CELL)
    }

    fn file_len(&self) -> usize {
        CONTROL + 2 * self.ring + 2 * self.long
    }
}

/// One side's view of a pair.
#[repr(C)]
pub(crate) struct Pair {
    pub(crate) producer: Producer<Shared>,
    /// What the receiver of our messages writes: consumed cells, whether it sleeps.
    out: Line,
    pub(crate) consumer: Consumer<Shared>,
    /// The same, written by us, of the messages to us.
    back: Line,
    /// The longest message that is in one piece.
    part: usize,
    /// Long messages to us, and ours.
    long_in: LongReceiver,
    long_out: LongSender,
    /// Of this side, and of the other: whether it waits for room, the region that it reaches into.
    ours: Line,
    theirs: Line,
    /// Whether this side, and whether the other one, gave the pair up.
    our_end: Line,
    their_end: Line,
    sizes: Sizes,
    mapping: Arc<Mapping>,
}

impl Pair {
    /// A new pair, whose maker is side 0, and its file.
    pub(crate) fn create(sizes: Sizes) -> Result<(OwnedFd, Pair), Errno> {
        let (fd, mapping) = memfd::create("petasos-pair", sizes.file_len())?;
        memfd::seal(&fd)?;
        Ok((fd, Pair::new(mapping, sizes, 0)))
    }

    /// The pair that the other side made; we are side 1. The sizes were checked to be possible.
    pub(crate) fn adopt(fd: &OwnedFd, sizes: Sizes) -> Result<Pair, Unfit> {
        let mapping = memfd::adopt(fd, sizes.file_len(), true)?;
        Ok(Pair::new(mapping, sizes, 1))
    }

    fn new(mapping: Mapping, sizes: Sizes, side: usize) -> Pair {
        assert!(sizes.are_possible() && mapping.len() == sizes.file_len());
        let Sizes { ring, long, max } = sizes;
        let mapping = Arc::new(mapping);
        let long_at = |nth: usize| CONTROL + 2 * ring + nth * long;
        let memory = |at: usize, len: usize| {
            assert!(at + len <= mapping.len());
            let owner = mapping.clone();
            // SAFETY: within the mapping, as was checked just now, at a multiple of a page; the
            // mapping is writable and lives as long as `owner`.
            unsafe { Shared::new(mapping.base().add(at), len / CELL, owner) }
        };
        let short = |nth: usize| memory(CONTROL + nth * ring, ring);
        let line = |at| Line::new(&mapping, at);
        Pair {
            producer: Producer::new(short(side)),
            out: line(RECEIVER[side]),
            consumer: Consumer::new(short(1 - side), max),
            back: line(RECEIVER[1 - side]),
            part: part(ring / CELL).min(part(long / CELL)),
            long_in: LongReceiver::new(
                Consumer::new(memory(long_at(1 - side), long), max),
                line(LONG_RECEIVER[1 - side]),
            ),
            long_out: LongSender::new(
                Producer::new(memory(long_at(side), long)),
                line(LONG_RECEIVER[side]),
                long_at(side)..long_at(side) + long,
            ),
            ours: line(SIDE[side]),
            theirs: line(SIDE[1 - side]),
            our_end: line(SIDE[side] + END),
            their_end: line(SIDE[1 - side] + END),
            sizes,
            mapping,
        }
    }

    // Sending.

    /// Sends a short message; false if there is no room. The producer may know a shorter way.
    pub(crate) fn send_short(&mut self, bytes: &[u8]) -> Result<bool, RingError> {
        let report = Report { consumed: &self.out[0] };
        self.producer.send_short(report, bytes)
    }

    /// Sends any other message; false if there is no room.
    #[inline]
    pub(crate) fn send(
        &mut self,
        kind: u8,
        pieces: &[Piece<'_>],
        len: usize,
    ) -> Result<bool, RingError> {
        if len > self.part {
            return self.send_long(kind, pieces, len);
        }
        let report = Report { consumed: &self.out[0] };
        self.producer.send(report, kind, pieces, len)
    }

    /// Sends a message of one piece of which it is to be known when it is consumed: when so many
    /// cells are. `None` if there is no room, or if it is longer than a piece.
    pub(crate) fn send_asking(&mut self, kind: u8, bytes: &[u8]) -> Result<Option<u64>, RingError> {
        if bytes.len() > self.part {
            return Ok(None);
        }
        let report = Report { consumed: &self.out[0] };
        let sent = self.producer.send(report, kind, &[Piece::of(bytes)], bytes.len())?;
        Ok(sent.then(|| self.producer.head()))
    }

    /// How many cells the receiver has consumed, as far as it has reported.
    pub(crate) fn consumed(&mut self) -> Result<u64, RingError> {
        self.producer.consumed(Report { consumed: &self.out[0] })
    }

    /// The receiver rings when it reports more. Look again after this.
    pub(crate) fn wait_for_report(&self) {
        self.starve();
        fence(Ordering::SeqCst);
    }

    /// Sends a packet of the engine's that has this header, as [`Pair::send`] does.
    #[inline]
    pub(crate) fn send_expected(
        &mut self,
        header: &[u8; 16],
        bytes: &[u8],
    ) -> Result<bool, RingError> {
        let (words, _) = header.as_chunks::<8>();
        let begin = [words[0], words[1]].map(u64::from_ne_bytes);
        if self.producer.send_line(kind::PACKET, begin, bytes) {
            return Ok(true);
        }
        let pieces = [Piece::of(header), Piece::of(bytes)];
        self.send(kind::PACKET, &pieces, header.len() + bytes.len())
    }

    #[inline(never)]
    fn send_long(&mut self, kind: u8, pieces: &[Piece<'_>], len: usize) -> Result<bool, RingError> {
        let Sizes { max, .. } = self.sizes;
        assert!(len <= max, "a packet of {len} bytes in a ring for {max}");
        let report = Report { consumed: &self.out[0] };
        self.long_out.rewind(len);
        if !self.producer.has_room_for(report, 0)? || !self.long_out.has_room(len)? {
            return Ok(false);
        }
        // First, so that the receiver copies out while we copy in.
        self.producer.announce(kind, len);
        self.long_out.send(pieces, len);
        Ok(true)
    }

    /// Whether a message of any length would find room.
    pub(crate) fn has_room(&mut self) -> Result<bool, RingError> {
        let report = Report { consumed: &self.out[0] };
        let long = self.long_out.has_room(self.sizes.max)?;
        Ok(long && self.producer.has_room_for(report, self.part)?)
    }

    /// Gives the memory of the long ring back to the system if nothing was sent through it since
    /// this was last called, and nothing is in it. False if there is nothing to give back any more.
    pub(crate) fn trim_long(&mut self) -> bool {
        self.long_out.trim(&self.mapping)
    }

    /// Whether long messages were sent, whose memory is still there.
    #[inline]
    pub(crate) fn uses_long(&self) -> bool {
        self.long_out.is_used()
    }

    /// Bytes of the pair for which there is memory.
    #[cfg(test)]
    pub(crate) fn resident(&self) -> usize {
        self.mapping.resident().expect("a mapping")
    }

    /// Whether the receiver said that it sleeps; takes the word back, so that it is rung once.
    /// A fence, or luck, must have made the message visible before.
    #[inline]
    pub(crate) fn take_sleeper(&self) -> bool {
        Flag(&self.out[1]).take()
    }

    /// Says that this side waits for room. Look again after a fence.
    pub(crate) fn starve(&self) {
        Flag(&self.ours[0]).raise();
    }

    // Receiving.

    /// Whether plainly no message begins: a cheaper look than [`Pair::peek`], which decides.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.consumer.is_empty()
    }

    /// Whether parts of a message are still to come, before which there is nothing else.
    #[inline]
    pub(crate) fn is_within(&self) -> bool {
        self.long_in.missing() > 0
    }

    /// How many bytes of it are.
    pub(crate) fn missing(&self) -> usize {
        self.long_in.missing()
    }

    /// The next message, or part of one that was announced, if there is one.
    #[inline]
    pub(crate) fn peek(&mut self) -> Result<Option<Incoming>, RingError> {
        if self.is_within() { self.long_in.peek() } else { self.consumer.peek() }
    }

    /// The ring in which lies what `peek` gave.
    #[inline]
    pub(crate) fn lies_in(&self) -> &Consumer<Shared> {
        if self.is_within() { self.long_in.ring() } else { &self.consumer }
    }

    /// Gives back the cells of what `peek` gave. True if the sender waits for room and has it now:
    /// ring.
    pub(crate) fn finish(&mut self, incoming: Incoming) -> bool {
        if self.is_within() {
            return self.finish_part(incoming);
        }
        let report = Report { consumed: &self.back[0] };
        let reported = self.consumer.finish(incoming, report);
        if incoming.announced {
            self.long_in.announced(incoming.len);
            self.consumer.pause();
        }
        reported && self.take_starving()
    }

    /// The same of a message whose sender wants to know.
    pub(crate) fn finish_asking(&mut self, incoming: Incoming) -> bool {
        if self.is_within() || incoming.announced {
            return self.finish(incoming);
        }
        let report = Report { consumed: &self.back[0] };
        if !self.consumer.finish(incoming, report) {
            self.consumer.report_all(report);
        }
        self.take_starving()
    }

    fn finish_part(&mut self, part: Incoming) -> bool {
        let reported = self.long_in.finish(part);
        if !self.is_within() {
            self.consumer.resume();
        }
        reported && self.take_starving()
    }

    /// The same for so many cells of a short message.
    #[inline(always)]
    pub(crate) fn finish_short(&mut self, cells: usize) -> bool {
        let report = Report { consumed: &self.back[0] };
        self.consumer.advance(cells, report) && self.take_starving()
    }

    /// Whether the sender waits for the room that was just reported.
    #[cold]
    fn take_starving(&self) -> bool {
        fence(Ordering::SeqCst);
        Flag(&self.theirs[0]).take()
    }

    /// Says whether this side must be rung when something comes. After `true`, fence and look.
    #[inline]
    pub(crate) fn set_asleep(&self, asleep: bool) {
        let flag = Flag(&self.back[1]);
        if asleep { flag.raise() } else { flag.lower() }
    }

    // Reaching into each other's memory.

    /// Announces that this side reaches into the region with this tag.
    pub(crate) fn announce(&self, tag: u64) {
        Announced(&self.ours[1]).announce(tag);
    }

    /// Whether the other side gave the pair up. To be asked within an announcement.
    pub(crate) fn is_ended(&self) -> bool {
        Ended(&self.their_end[0]).is()
    }

    /// Gives the pair up: the other side begins no access from now on. Look then whether it is in
    /// one.
    pub(crate) fn end(&self) {
        Ended(&self.our_end[0]).end();
    }

    /// This side is not in any region now, and what it did there is done.
    pub(crate) fn withdraw(&self) {
        Announced(&self.ours[1]).withdraw();
    }

    /// Writes a word anywhere into what the two share, as a hostile peer might.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn scribble(&self, nth: usize, word: u64) {
        assert!(nth * 8 < self.mapping.len());
        // SAFETY: within the mapping, and aligned.
        let at =
            unsafe { self.mapping.base().add(nth * 8).cast::<crate::sync::AtomicU64>().as_ref() };
        at.store(word, Ordering::Release);
    }

    /// Announces a long message whose parts are not sent.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn forge_announcement(&mut self, kind: u8, len: usize) -> Result<bool, RingError> {
        let room = self.producer.has_room_for(Report { consumed: &self.out[0] }, 0)?;
        if room {
            self.producer.announce(kind, len);
        }
        Ok(room)
    }

    /// Sends something through the long ring, announced or not.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn forge_part(&mut self, kind: u8, bytes: &[u8]) -> Result<bool, RingError> {
        self.long_out.forge(kind, bytes)
    }

    /// The region of ours that the other side says it is reaching into; zero for none.
    pub(crate) fn announced(&self) -> u64 {
        Announced(&self.theirs[1]).read()
    }
}

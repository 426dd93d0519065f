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

use crate::{
    hazard::{Announced, Ended},
    ring::{
        CELL, Consumer, Flag, Incoming, Piece, Producer, Report, RingError, Shared, longest, part,
    },
    sync::{AtomicU64, Ordering, fence},
};
use petasos_fabric::memory::memfd::{self, Mapping, Unfit};
use rustix::{fd::OwnedFd, io::Errno};
use std::{ops::Deref, ptr::NonNull, sync::Arc};

const CONTROL: usize = 4096;
const RECEIVER: [usize; 2] = [0, 128];
const LONG_RECEIVER: [usize; 2] = [64, 192];
const SIDE: [usize; 2] = [256, 384];
/// Within a side's line.
const END: usize = 16;
/// The smallest and the largest ring, in bytes.
pub(crate) const RING: std::ops::RangeInclusive<usize> = 16 << 10..=16 << 20;
/// What the parts of long messages are called in their ring.
const PART: u8 = 7;

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
    /// Of a message to us that was announced, so many bytes are still to come.
    missing: usize,
    /// The longest message that is in one piece.
    part: usize,
    long_producer: Producer<Shared>,
    long_out: Line,
    long_consumer: Consumer<Shared>,
    long_back: Line,
    /// Where our long ring lies in the mapping; whether there may be something in its pages, and
    /// whether it was used lately.
    long_at: usize,
    long_used: bool,
    long_busy: bool,
    /// Of this side, and of the other: whether it waits for room, the region that it reaches into.
    ours: Line,
    theirs: Line,
    /// Whether this side, and whether the other one, gave the pair up.
    our_end: Line,
    their_end: Line,
    sizes: Sizes,
    mapping: Arc<Mapping>,
}

/// Two words of the first page.
struct Line {
    words: NonNull<[AtomicU64; 2]>,
    _owner: Arc<Mapping>,
}

// SAFETY: the words are reached only as atomics, from any thread, and `Mapping` may go there, too.
unsafe impl Send for Line {}

impl Line {
    fn new(control: &Arc<Mapping>, at: usize) -> Line {
        assert!(at + 16 <= CONTROL && at.is_multiple_of(8) && CONTROL <= control.len());
        // SAFETY: within the mapping, as was checked just now.
        let words = unsafe { control.base().add(at).cast() };
        Line { words, _owner: control.clone() }
    }
}

impl Deref for Line {
    type Target = [AtomicU64; 2];
    #[inline]
    fn deref(&self) -> &[AtomicU64; 2] {
        // SAFETY: `new` found them in the mapping, which is aligned to a page and writable, and
        // which `_owner` keeps; an atomic is made for memory that others write.
        unsafe { self.words.as_ref() }
    }
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
            missing: 0,
            part: part(ring / CELL).min(part(long / CELL)),
            long_producer: Producer::new(memory(long_at(side), long)),
            long_out: line(LONG_RECEIVER[side]),
            long_consumer: Consumer::new(memory(long_at(1 - side), long), max),
            long_back: line(LONG_RECEIVER[1 - side]),
            long_at: long_at(side),
            long_used: false,
            long_busy: false,
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

    #[inline(never)]
    fn send_long(&mut self, kind: u8, pieces: &[Piece<'_>], len: usize) -> Result<bool, RingError> {
        let Sizes { max, .. } = self.sizes;
        assert!(len <= max, "a packet of {len} bytes in a ring for {max}");
        let report = Report { consumed: &self.out[0] };
        let of_long = Report { consumed: &self.long_out[0] };
        self.long_producer.rewind(of_long, len);
        if !self.producer.has_room_for(report, 0)?
            || !self.long_producer.has_room_for(of_long, len)?
        {
            return Ok(false);
        }
        (self.long_used, self.long_busy) = (true, true);
        // First, so that the receiver copies out while we copy in.
        self.producer.announce(kind, len);
        self.long_producer.send_parts(PART, pieces, len);
        Ok(true)
    }

    /// Whether a message of any length would find room.
    pub(crate) fn has_room(&mut self) -> Result<bool, RingError> {
        let report = Report { consumed: &self.out[0] };
        let of_long = Report { consumed: &self.long_out[0] };
        let long = self.long_producer.has_room_for(of_long, self.sizes.max)?;
        Ok(long && self.producer.has_room_for(report, self.part)?)
    }

    /// Gives the memory of the long ring back to the system if nothing was sent through it since
    /// this was last called, and nothing is in it. False if there is nothing to give back any more.
    pub(crate) fn trim_long(&mut self) -> bool {
        if std::mem::take(&mut self.long_busy) || !self.long_used {
            return self.long_used;
        }
        let of_long = Report { consumed: &self.long_out[0] };
        if self.long_producer.is_drained(of_long) {
            self.long_used = false;
            // Zeroes are what an empty ring begins with; the receiver writes nothing in it.
            if self.mapping.discard(self.long_at, self.sizes.long).is_ok() {
                self.long_producer.cleared();
            }
        }
        self.long_used
    }

    /// Whether long messages were sent, whose memory is still there.
    #[inline]
    pub(crate) fn uses_long(&self) -> bool {
        self.long_used
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
        self.missing > 0
    }

    /// How many bytes of it are.
    pub(crate) fn missing(&self) -> usize {
        self.missing
    }

    /// The next message, or part of one that was announced, if there is one.
    #[inline]
    pub(crate) fn peek(&mut self) -> Result<Option<Incoming>, RingError> {
        if self.missing > 0 { self.peek_part() } else { self.consumer.peek() }
    }

    fn peek_part(&mut self) -> Result<Option<Incoming>, RingError> {
        match self.long_consumer.peek()? {
            Some(part) if part.kind != PART || part.announced || part.len == 0 => {
                Err(RingError::NoPart { kind: part.kind, len: part.len })
            }
            Some(part) if part.len > self.missing => {
                Err(RingError::NoPart { kind: part.kind, len: part.len })
            }
            part => Ok(part),
        }
    }

    /// The ring in which lies what `peek` gave.
    #[inline]
    pub(crate) fn lies_in(&self) -> &Consumer<Shared> {
        if self.missing > 0 { &self.long_consumer } else { &self.consumer }
    }

    /// Gives back the cells of what `peek` gave. True if the sender waits for room and has it now:
    /// ring.
    pub(crate) fn finish(&mut self, incoming: Incoming) -> bool {
        if self.missing > 0 {
            return self.finish_part(incoming);
        }
        let report = Report { consumed: &self.back[0] };
        let reported = self.consumer.finish(incoming, report);
        if incoming.announced {
            self.missing = incoming.len;
            self.consumer.pause();
        }
        reported && self.take_starving()
    }

    fn finish_part(&mut self, part: Incoming) -> bool {
        self.missing -= part.len;
        let report = Report { consumed: &self.long_back[0] };
        let mut reported = self.long_consumer.finish(part, report);
        if self.missing == 0 {
            self.consumer.resume();
            // The sender shall see that its ring is empty.
            self.long_consumer.report_all(report);
            reported = true;
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
        let at = unsafe { self.mapping.base().add(nth * 8).cast::<AtomicU64>().as_ref() };
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
        let report = Report { consumed: &self.long_out[0] };
        match kind {
            crate::ring::SHORT => self.long_producer.send_short(report, bytes),
            _ => self.long_producer.send(report, kind, &[Piece::of(bytes)], bytes.len()),
        }
    }

    /// The region of ours that the other side says it is reaching into; zero for none.
    pub(crate) fn announced(&self) -> u64 {
        Announced(&self.theirs[1]).read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> (Pair, Pair) {
        let sizes = Sizes { ring: 16 << 10, long: 64 << 10, max: 20_000 };
        let (fd, a) = Pair::create(sizes).unwrap();
        (a, Pair::adopt(&fd, sizes).unwrap())
    }

    #[test]
    fn both_ways() {
        let (mut a, mut b) = two();
        assert!(
            a.send(3, &[&b"ab"[..], b"c"].map(Piece::of), 3).unwrap()
                && b.send(2, &[Piece::of(b"back")], 4).unwrap()
        );
        for (pair, kind, text) in [(&mut b, 3, &b"abc"[..]), (&mut a, 2, b"back")] {
            let incoming = pair.peek().unwrap().unwrap();
            let mut bytes = vec![0; incoming.len];
            pair.consumer.read(&incoming, 0, &mut bytes);
            assert_eq!((incoming.kind, &bytes[..]), (kind, text));
            pair.finish(incoming);
            assert_eq!(pair.peek(), Ok(None));
        }
    }

    /// Takes a long message, and says how many parts it had.
    fn take_long(pair: &mut Pair, expected: &[u8]) -> usize {
        let announced = pair.peek().unwrap().unwrap();
        assert!(announced.announced && (announced.kind, announced.len) == (3, expected.len()));
        pair.finish(announced);
        let (mut bytes, mut parts) = (Vec::new(), 0);
        while pair.is_within() {
            let part = pair.peek().unwrap().expect("all parts are there");
            let at = bytes.len();
            bytes.resize(at + part.len, 0);
            pair.lies_in().read(&part, 0, &mut bytes[at..]);
            pair.finish(part);
            parts += 1;
        }
        assert!(bytes == expected);
        parts
    }

    #[test]
    fn long_messages_go_in_parts_and_leave_no_memory() {
        let (mut a, mut b) = two();
        let blocks = Pair::resident;
        let bytes: Vec<u8> = (0..20_000u32).map(|i| (i * 7 + i / 251) as u8).collect();
        let before = blocks(&a);
        for round in 0..50 {
            for len in [4089, 8184, 8185, 20_000] {
                let bytes = &bytes[20_000 - len..];
                assert!(a.send(3, &[Piece::of(&bytes[..9]), Piece::of(&bytes[9..])], len).unwrap());
                assert!(a.send_short(b"behind").unwrap());
                assert_eq!(take_long(&mut b, bytes), len.div_ceil(8184));
                assert_eq!(b.peek().unwrap().map(|next| next.len), Some(6));
                b.finish_short(1);
                assert_eq!(b.peek(), Ok(None));
            }
            if round % 10 == 9 {
                assert!(blocks(&a) >= before + (32 << 10), "{} bytes", blocks(&a));
                assert!(a.trim_long(), "it was used lately");
                assert!(!a.trim_long() && !a.trim_long());
                assert!(blocks(&a) < before + (32 << 10), "{} bytes", blocks(&a));
            }
        }
        // While something is in there, it stays.
        assert!(a.send(3, &[Piece::of(&bytes)], bytes.len()).unwrap());
        assert!(a.trim_long() && a.trim_long() && a.trim_long());
        take_long(&mut b, &bytes);
        assert!(!a.trim_long());
    }

    #[test]
    fn parts_that_cannot_be() {
        for (kind, len) in [(3, 10), (PART, 0), (PART, 101), (crate::ring::SHORT, 5)] {
            let (mut a, mut b) = two();
            assert!(a.forge_announcement(3, 100).unwrap());
            let announced = b.peek().unwrap().unwrap();
            b.finish(announced);
            assert_eq!(b.peek(), Ok(None), "no part has come");
            assert!(a.forge_part(kind, &vec![0; len]).unwrap());
            assert_eq!(b.peek(), Err(RingError::NoPart { kind, len }));
        }
    }

    #[test]
    fn sleepers_and_starvers_are_rung_once() {
        let (mut a, mut b) = two();
        b.set_asleep(true);
        assert!(a.take_sleeper() && !a.take_sleeper());
        while a.send(2, &[Piece::of(&[0; 1000])], 1000).unwrap() {}
        a.starve();
        let mut rung = 0;
        while let Some(incoming) = b.peek().unwrap() {
            rung += u32::from(b.finish(incoming));
        }
        assert_eq!(rung, 1);
        assert!(a.has_room().unwrap());
        a.announce(7);
        assert_eq!(b.announced(), 7);
        a.withdraw();
        assert_eq!(b.announced(), 0);
    }
}

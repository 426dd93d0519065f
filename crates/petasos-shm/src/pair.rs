//! The memory that two endpoints share: a ring each way, and a few words around them.
//!
//! | bytes | what | written by |
//! |---|---|---|
//! | 0 | consumed cells of ring 0; whether its receiver sleeps | side 1 (and the bell's answer) |
//! | 128 | the same of ring 1 | side 0 |
//! | 256 | whether side 0 waits for room; the region that it is reaching into | side 0 |
//! | 384 | the same of side 1 | side 1 |
//! | 4096 | ring 0, from side 0 to side 1 | side 0 |
//! | 4096 + ring | ring 1, from side 1 to side 0 | side 1 |
//!
//! Side 0 is who connected, and made the file. Nothing in here is of use to a third endpoint, and
//! nothing that one side writes is trusted by the other.
//!
//! *Sleep.* A receiver that is about to sleep sets its word, fences, and looks at the ring once
//! more. A sender publishes, fences, and looks at the word: if it is set, it clears it and rings.
//! So one of them sees the other's write, and a receiver that is awake costs no system call.
//! Waiting for room works in the same way with the sides exchanged.

use crate::{
    memfd::{self, Mapping, Unfit},
    ring::{CELL, Consumer, Flag, Incoming, Piece, Producer, Report, RingError, Shared},
    sync::{AtomicU64, Ordering, fence},
};
use rustix::{fd::OwnedFd, io::Errno};
use std::{ops::Deref, ptr::NonNull, sync::Arc};

const CONTROL: usize = 4096;
const RECEIVER: [usize; 2] = [0, 128];
const SIDE: [usize; 2] = [256, 384];
/// The smallest and the largest ring, in bytes.
pub(crate) const RING: std::ops::RangeInclusive<usize> = 16 << 10..=16 << 20;

/// The length of a pair's file.
fn file_len(ring: usize) -> usize {
    CONTROL + 2 * ring
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
    /// Of this side, and of the other: whether it waits for room, the region that it reaches into.
    ours: Line,
    theirs: Line,
    #[cfg(any(test, feature = "fuzzing"))]
    control: Arc<Mapping>,
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
    /// A new pair with rings of `ring` bytes, whose maker is side 0, and its file.
    pub(crate) fn create(ring: usize, max: usize) -> Result<(OwnedFd, Pair), Errno> {
        let (fd, mapping) = memfd::create("petasos-pair", file_len(ring))?;
        memfd::seal(&fd)?;
        Ok((fd, Pair::new(mapping, ring, max, 0)))
    }

    /// The pair that somebody else made; we are side 1. `ring` was checked to be a possible size.
    pub(crate) fn adopt(fd: &OwnedFd, ring: usize, max: usize) -> Result<Pair, Unfit> {
        let mapping = memfd::adopt(fd, file_len(ring), true)?;
        Ok(Pair::new(mapping, ring, max, 1))
    }

    fn new(mapping: Mapping, ring: usize, max: usize, side: usize) -> Pair {
        assert!(RING.contains(&ring) && ring.is_power_of_two());
        assert_eq!(mapping.len(), file_len(ring));
        let control = Arc::new(mapping);
        let memory = |nth: usize| {
            let owner = control.clone();
            // SAFETY: both rings lie within the mapping, whose length was checked just now, at
            // multiples of a page; the mapping is writable and lives as long as `owner`.
            unsafe { Shared::new(control.base().add(CONTROL + nth * ring), ring / CELL, owner) }
        };
        let line = |at| Line::new(&control, at);
        Pair {
            producer: Producer::new(memory(side), max),
            out: line(RECEIVER[side]),
            consumer: Consumer::new(memory(1 - side), max),
            back: line(RECEIVER[1 - side]),
            ours: line(SIDE[side]),
            theirs: line(SIDE[1 - side]),
            #[cfg(any(test, feature = "fuzzing"))]
            control,
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
        let report = Report { consumed: &self.out[0] };
        self.producer.send(report, kind, pieces, len)
    }

    /// Whether a message of any length would find room.
    pub(crate) fn has_room(&mut self) -> Result<bool, RingError> {
        let report = Report { consumed: &self.out[0] };
        self.producer.has_room_for_any(report)
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

    /// Whether there is plainly nothing: a cheaper look than [`Pair::peek`], which decides.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.consumer.is_empty()
    }

    /// The next message, or part of one, if there is one.
    #[inline]
    pub(crate) fn peek(&mut self) -> Result<Option<Incoming>, RingError> {
        self.consumer.peek()
    }

    /// Gives back the cells of what `peek` gave. True if the sender waits for room and has it now: ring.
    pub(crate) fn finish(&mut self, incoming: Incoming) -> bool {
        let report = Report { consumed: &self.back[0] };
        self.consumer.finish(incoming, report) && self.take_starving()
    }

    /// The same for so many cells of a short message.
    #[inline]
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
        self.ours[1].store(tag, Ordering::SeqCst);
    }

    /// This side is not in any region now, and what it did there is done.
    pub(crate) fn withdraw(&self) {
        self.ours[1].store(0, Ordering::Release);
    }

    /// Writes a word anywhere into what the two share, as somebody might who means harm.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn scribble(&self, nth: usize, word: u64) {
        assert!(nth * 8 < self.control.len());
        // SAFETY: within the mapping, and aligned.
        let at = unsafe { self.control.base().add(nth * 8).cast::<AtomicU64>().as_ref() };
        at.store(word, Ordering::Release);
    }

    /// The region of ours that the other side says it is reaching into; zero for none.
    pub(crate) fn announced(&self) -> u64 {
        self.theirs[1].load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> (Pair, Pair) {
        let (fd, a) = Pair::create(16 << 10, 4000).unwrap();
        (a, Pair::adopt(&fd, 16 << 10, 4000).unwrap())
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
            assert_eq!((incoming.kind, &bytes[..]), (Some(kind), text));
            pair.finish(incoming);
            assert_eq!(pair.peek(), Ok(None));
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

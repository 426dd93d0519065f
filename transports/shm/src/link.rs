//! Rings between two processes for other transports: what a pair of shared memory endpoints is made
//! of, without the endpoints.
//!
//! A [`Link`] carries messages of up to [`Link::MAX`] bytes each way, in order, through a sealed
//! file that one side made and the other adopts. Neither side trusts the other: whatever is read is
//! read once and checked, and a side that breaks the rules of the rings is a [`Broken`] link, and no
//! more. Memory of regions is in files of the same kind ([`alloc`], [`file_of`], [`adopt`]).
//!
//! How a side is woken is left to its user. Before it sleeps it calls [`Link::sleep`]; the side that sends
//! asks [`Link::take_sleeper`] afterwards, and wakes the other side if that says so. A side that has
//! no room calls [`Link::starve`], and is woken when the other asks [`Link::take_room`].

use crate::{
    channel::kind,
    pair::{Pair, Sizes},
    ring::{CELL, Piece, RingError, SHORT, part},
    segment::{self, Segment},
    sync::{Ordering, fence},
};
use petasos_fabric::{AllocError, Region, memory::memfd::Unfit};
use rustix::{fd::OwnedFd, io::Errno};
use std::sync::Weak;

/// The same for all links, so that a file has one length only.
const SIZES: Sizes = Sizes { ring: 64 << 10, long: 512 << 10, max: Link::MAX };

/// Steps of one call of [`Link::receive`]: three times as many as the parts of the longest message,
/// and its announcement, need.
const STEPS: usize = 64;
const _: () = assert!(Link::MAX.div_ceil(part(SIZES.long / CELL)) < STEPS / 2);

/// The other side of a link broke its rules. Nothing more is to be expected of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Broken(#[from] RingError);

/// One side of a link.
pub struct Link {
    pair: Pair,
    /// The beginning of a message that comes in parts.
    partial: Vec<u8>,
    /// Whether room was given back for which the other side waits.
    room: bool,
}

impl Link {
    /// The longest message, in bytes.
    pub const MAX: usize = 132 << 10;
    /// No more messages than this are in one ring at a time.
    pub const MESSAGES: usize = SIZES.ring / CELL;

    /// A new link, and the file with which the other side [adopts](Link::adopt) it.
    ///
    /// # Errors
    /// If the system has no memory or no descriptor for it.
    pub fn create() -> Result<(OwnedFd, Link), Errno> {
        let (fd, pair) = Pair::create(SIZES)?;
        Ok((fd, Link::of(pair)))
    }

    /// The link that another process made.
    ///
    /// # Errors
    /// [`Unfit`] if that is no such file: of another length, or one that can still shrink.
    pub fn adopt(fd: &OwnedFd) -> Result<Link, Unfit> {
        Ok(Link::of(Pair::adopt(fd, SIZES)?))
    }

    fn of(pair: Pair) -> Link {
        Link { pair, partial: Vec::new(), room: false }
    }

    /// Sends the concatenation of `parts` as one message; false if there is no room.
    ///
    /// # Errors
    /// [`Broken`].
    ///
    /// # Panics
    /// If that is nothing, or more than [`Link::MAX`].
    pub fn send(&mut self, parts: &[&[u8]]) -> Result<bool, Broken> {
        let len = parts.iter().map(|part| part.len()).sum();
        assert!((1..=Link::MAX).contains(&len), "a message of {len} bytes");
        let pieces: smallvec::SmallVec<[Piece<'_>; 4]> =
            parts.iter().map(|part| Piece::of(part)).collect();
        Ok(self.pair.send(kind::PACKET, &pieces, len)?)
    }

    /// Receives the next message in place of what `into` holds; false if none has arrived whole. It
    /// is false, too, after a bounded number of parts, which only a sender of tiny ones reaches: what
    /// it costs to receive is not up to that. [`Link::is_empty`] says then that there is more.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn receive(&mut self, into: &mut Vec<u8>) -> Result<bool, Broken> {
        for _ in 0..STEPS {
            let within = self.pair.is_within();
            let Some(incoming) = self.pair.peek()? else { return Ok(false) };
            if incoming.kind == SHORT {
                // Not sent by a link: its format is another.
                return Err(Broken(RingError::Kind { kind: SHORT, cell: 0 }));
            }
            if incoming.announced {
                self.partial.clear();
                self.room |= self.pair.finish(incoming);
                continue;
            }
            let target = if within { &mut self.partial } else { &mut *into };
            let at = if within { target.len() } else { 0 };
            target.resize(at + incoming.len, 0);
            self.pair.lies_in().read(&incoming, 0, &mut target[at..]);
            self.room |= self.pair.finish(incoming);
            if !within {
                return Ok(true);
            }
            if !self.pair.is_within() {
                std::mem::swap(into, &mut self.partial);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether plainly nothing has arrived.
    #[must_use]
    pub fn is_empty(&mut self) -> bool {
        if self.pair.is_within() {
            return matches!(self.pair.peek(), Ok(None));
        }
        self.pair.is_empty()
    }

    /// Whether the other side sleeps, and something was sent since it was last asked: wake it.
    #[must_use]
    pub fn take_sleeper(&self) -> bool {
        fence(Ordering::SeqCst);
        self.pair.take_sleeper()
    }

    /// Whether room was given back that the other side waits for: wake it.
    #[must_use]
    pub fn take_room(&mut self) -> bool {
        std::mem::take(&mut self.room)
    }

    /// Says that this side is about to sleep. False if something is there already: do not.
    #[must_use]
    pub fn sleep(&mut self) -> bool {
        self.pair.set_asleep(true);
        fence(Ordering::SeqCst);
        self.is_empty()
    }

    /// The sleep is over, or did not come about.
    pub fn awake(&self) {
        self.pair.set_asleep(false);
    }

    /// Says that this side waits for room. True if there is some already: send again.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn starve(&mut self) -> Result<bool, Broken> {
        self.pair.wait_for_report();
        self.has_room()
    }

    /// Whether a message of any length would find room.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn has_room(&mut self) -> Result<bool, Broken> {
        Ok(self.pair.has_room()?)
    }

    /// Writes a word anywhere into what the two sides share, as a hostile peer might.
    #[cfg(any(test, feature = "fuzzing"))]
    #[doc(hidden)]
    pub fn scribble(&self, nth: usize, word: u64) {
        self.pair.scribble(nth, word);
    }

    /// How many such words there are.
    #[cfg(any(test, feature = "fuzzing"))]
    #[doc(hidden)]
    pub const WORDS: usize = (4096 + 2 * SIZES.ring + 2 * SIZES.long) / 8;
}

/// Memory of a file, as its owner has it.
#[derive(Clone, Debug)]
pub struct File {
    /// Its number: no other of this process had it.
    pub id: u64,
    /// Its length in bytes.
    pub len: usize,
    alive: Weak<()>,
}

impl File {
    /// Whether a region still lies in it.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.alive.strong_count() > 0
    }
}

/// A region of `len` zeroes in a file of its own.
///
/// # Errors
/// If the system has no memory for it.
pub fn alloc(len: usize) -> Result<Region, AllocError> {
    segment::alloc(len, false)
}

/// The file in which a region lies, if [`alloc`] made it.
#[must_use]
pub fn file_of(region: &Region) -> Option<File> {
    let segment = region.backing::<Segment>()?;
    Some(File { id: segment.id, len: segment.len(), alive: segment.alive() })
}

/// A descriptor of that file, with which another process may read and write all of it.
///
/// # Errors
/// If the system has no descriptor, or the file was given to readers before. `None` is for a region
/// that [`alloc`] did not make.
pub fn descriptor_of(region: &Region) -> Option<Result<OwnedFd, Errno>> {
    Some(region.backing::<Segment>()?.descriptor(true, true))
}

/// Memory of another process, mapped here, to be read and written.
///
/// # Errors
/// [`Unfit`] if its file is not `len` bytes long for good.
pub fn adopt(fd: &OwnedFd, len: usize) -> Result<Region, Unfit> {
    segment::adopt(fd, len, true)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn pair() -> (Link, Link) {
        let (fd, here) = Link::create().unwrap();
        (here, Link::adopt(&fd).unwrap())
    }

    #[test]
    fn messages_of_all_lengths_arrive_in_order_and_room_comes_back() {
        let (mut here, mut there) = pair();
        let message = |len: usize| (0..len).map(|at| (at ^ len) as u8).collect::<Vec<_>>();
        let lens = [1, 8, 60, 8184, 8185, 40_000, Link::MAX];
        let (mut sent, mut taken, mut into) = (0, 0, Vec::new());
        while taken < 50 * lens.len() {
            while sent < 50 * lens.len() {
                let message = message(lens[sent % lens.len()]);
                let (head, rest) = message.split_at(1);
                if !here.send(&[head, rest]).unwrap() {
                    assert!(!here.starve().unwrap(), "there was no room");
                    break;
                }
                sent += 1;
            }
            while there.receive(&mut into).unwrap() {
                assert!(into == message(lens[taken % lens.len()]), "number {taken}");
                taken += 1;
            }
            assert!(sent == 50 * lens.len() || there.take_room(), "the other side waits for room");
            assert!(here.has_room().unwrap());
        }
        assert!(there.is_empty() && !there.receive(&mut into).unwrap());
    }

    #[test]
    fn parts_of_one_byte_are_received_by_turns() {
        let (mut here, mut there) = pair();
        let (len, part) = (1000, crate::pair::PART);
        assert!(here.pair.forge_announcement(kind::PACKET, len).unwrap());
        (0..len).for_each(|at| assert!(here.pair.forge_part(part, &[at as u8]).unwrap()));
        let (mut calls, mut into) = (1, Vec::new());
        while !there.receive(&mut into).unwrap() {
            calls += 1;
            assert!(!there.is_empty() && !there.sleep(), "there is more");
        }
        assert!(into.iter().enumerate().all(|(at, byte)| *byte == at as u8) && into.len() == len);
        assert!(calls > len / STEPS, "{calls}");
        assert!(there.is_empty());
    }

    #[test]
    fn a_sleeper_is_woken_once() {
        let (mut here, mut there) = pair();
        assert!(!here.take_sleeper() && there.sleep());
        assert!(here.send(&[b"x"]).unwrap());
        assert!(here.take_sleeper() && !here.take_sleeper());
        assert!(!there.sleep(), "something is there");
        there.awake();
        assert!(!here.take_sleeper());
    }
}

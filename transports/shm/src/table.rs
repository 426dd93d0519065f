//! What an endpoint tells all its peers about itself: a file that it writes and they can only read.
//!
//! The first line says whether the endpoint is closed. Then there is an entry for each slot of
//! the table of regions: where the region lies, and what may be done with it. So bounds and rights
//! are the owner's word, however a key was damaged on its way, and an initiator finds out without
//! the owner's help whether the region still lives:
//!
//! * the initiator announces the region's tag in the memory of the pair, fences, compares the tag
//!   in the entry, copies, and withdraws the announcement;
//! * the owner takes the tag out of the entry, fences, and waits until no peer announces it.
//!
//! A tag is never used twice in the life of an endpoint.

use crate::{
    hazard::{Opened, is_open},
    sync::{AtomicU64, Ordering, fence},
};
use petasos_fabric::{
    Access,
    memory::memfd::{self, Mapping, Unfit},
};
use rustix::{fd::OwnedFd, io::Errno};

/// Regions at a time.
pub(crate) const SLOTS: usize = 65_536;
const ENTRY: usize = 64;
const LEN: usize = ENTRY + SLOTS * ENTRY;

/// A region as its owner describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Where it starts in the owner's address space.
    pub(crate) base: u64,
    /// How long it is in bytes.
    pub(crate) len: u64,
    /// What peers may do with it.
    pub(crate) access: Access,
    /// The segment in which it lies, zero for ordinary memory, and where in it it starts.
    pub(crate) segment: u64,
    pub(crate) offset: u64,
    /// The length of the segment.
    pub(crate) segment_len: u64,
}

/// Where the words of an entry lie: its tag first.
fn place(slot: u32, nth: usize) -> Option<usize> {
    let slot = slot as usize;
    (slot < SLOTS).then_some(ENTRY + slot * ENTRY + nth * 8)
}

/// The owner's table.
pub(crate) struct Table(Mapping);

impl Table {
    pub(crate) fn create() -> Result<(OwnedFd, Table), Errno> {
        let (fd, mapping) = memfd::create("petasos-table", LEN)?;
        memfd::seal_for_readers(&fd)?;
        Ok((fd, Table(mapping)))
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at + 8 <= LEN && at.is_multiple_of(8));
        // SAFETY: within the mapping, whose length is `LEN`, and aligned. It can be written, for
        // `create` made it, and is reached by atomics alone.
        unsafe { self.0.base().add(at).cast::<AtomicU64>().as_ref() }
    }

    fn field(&self, slot: u32, nth: usize) -> Option<&AtomicU64> {
        place(slot, nth).map(|at| self.word(at))
    }

    /// Opens a region.
    pub(crate) fn open(&self, slot: u32, tag: u64, entry: &Entry) {
        let access = u64::from(entry.access.bits());
        let Entry { base, len, segment, offset, segment_len, .. } = *entry;
        for (i, value) in [base, len, access, segment, offset, segment_len].into_iter().enumerate()
        {
            if let Some(word) = self.field(slot, i + 1) {
                word.store(value, Ordering::Relaxed);
            }
        }
        if let Some(word) = self.field(slot, 0) {
            Opened(word).open(tag);
        }
    }

    /// Writes a word of an entry, as a hostile owner might.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn scribble(&self, slot: u32, nth: usize, value: u64) {
        if let Some(word) = self.field(slot, nth) {
            word.store(value, Ordering::Release);
        }
    }

    /// Closes a region: from now on no peer begins to reach into it, except those that a look at
    /// the announcements, after this, shows.
    pub(crate) fn close(&self, slot: u32) {
        if let Some(word) = self.field(slot, 0) {
            Opened(word).close();
        }
    }

    /// The owner says that it is going.
    pub(crate) fn close_all(&self) {
        self.word(0).store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }
}

/// A peer's table, of which nothing is ever written: there is no way to.
pub(crate) struct PeerTable(Mapping);

impl PeerTable {
    pub(crate) fn adopt(fd: &OwnedFd) -> Result<PeerTable, Unfit> {
        Ok(PeerTable(memfd::adopt(fd, LEN, false)?))
    }

    /// What a word says, relaxed.
    fn read(&self, at: usize) -> u64 {
        self.0.load(at, std::sync::atomic::Ordering::Relaxed).unwrap_or_default()
    }

    /// The entry of a slot, if it has this tag. Good for as long as the tag is announced.
    pub(crate) fn entry(&self, slot: u32, tag: u64) -> Option<Entry> {
        let at = place(slot, 0)?;
        if !is_open(|| self.read(at), tag) {
            return None;
        }
        let read = |nth: usize| self.read(at + nth * 8);
        Some(Entry {
            base: read(1),
            len: read(2),
            access: Access::from_bits(read(3) as u8)?,
            segment: read(4),
            offset: read(5),
            segment_len: read(6),
        })
    }

    /// Whether the owner said that it is going.
    pub(crate) fn is_closed(&self) -> bool {
        let closed = self.read(0) != 0;
        fence(Ordering::Acquire);
        closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_owner_says_is_what_peers_see() {
        let (fd, mine) = Table::create().unwrap();
        let theirs = PeerTable::adopt(&fd).unwrap();
        let entry =
            Entry { base: 1, len: 2, access: Access::READ, segment: 3, offset: 4, segment_len: 5 };
        mine.open(65_535, 77, &entry);
        assert_eq!(theirs.entry(65_535, 77), Some(entry));
        assert_eq!(theirs.entry(65_535, 78), None);
        assert_eq!(theirs.entry(65_536, 77), None);
        assert_eq!(theirs.entry(0, 0), None, "no tag is no region");
        mine.close(65_535);
        assert_eq!(theirs.entry(65_535, 77), None);
        mine.close_all();
        assert!(theirs.is_closed());
    }
}

//! What an endpoint tells all its peers about itself: a file that it writes and they can only read.
//!
//! The first line says whether the endpoint is closed. Then there is an entry for each slot of
//! the table of regions: where the region lies, and what may be done with it. So bounds and rights
//! are the owner's word, however a key was damaged on its way, and an initiator finds out without
//! the owner's help whether the region still lives:
//!
//! * the initiator announces the region's tag in the memory of the pair, fences, compares the tag
//!   in the entry, copies, and takes the announcement back;
//! * the owner takes the tag out of the entry, fences, and waits until no peer announces it.
//!
//! A tag is never used twice in the life of an endpoint.

use crate::{
    reach::Opened,
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

/// A table; the owner's can be written.
pub(crate) struct Table(Mapping);

impl Table {
    pub(crate) fn create() -> Result<(OwnedFd, Table), Errno> {
        let (fd, mapping) = memfd::create("petasos-table", LEN)?;
        memfd::seal_for_readers(&fd)?;
        Ok((fd, Table(mapping)))
    }

    /// A peer's.
    pub(crate) fn adopt(fd: &OwnedFd) -> Result<Table, Unfit> {
        Ok(Table(memfd::adopt(fd, LEN, false)?))
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at + 8 <= LEN && at.is_multiple_of(8));
        // SAFETY: within the mapping, whose length is `LEN`, and aligned. Where it can only be
        // read, it is: `store` is called by the owner alone.
        unsafe { self.0.base().add(at).cast::<AtomicU64>().as_ref() }
    }

    fn field(&self, slot: u32, nth: usize) -> Option<&AtomicU64> {
        let slot = slot as usize;
        (slot < SLOTS).then(|| self.word(ENTRY + slot * ENTRY + nth * 8))
    }

    fn read(&self, slot: u32, nth: usize) -> u64 {
        self.field(slot, nth).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// The owner opens a region.
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

    /// Writes a word of an entry, as an owner might who means harm.
    #[cfg(feature = "fuzzing")]
    pub(crate) fn scribble(&self, slot: u32, nth: usize, value: u64) {
        if let Some(word) = self.field(slot, nth) {
            word.store(value, Ordering::Release);
        }
    }

    /// The owner closes a region: from now on nobody begins to reach into it whom a look at the
    /// announcements, after this, does not show.
    pub(crate) fn close(&self, slot: u32) {
        if let Some(word) = self.field(slot, 0) {
            Opened(word).close();
        }
    }

    /// The entry of a slot, if it has this tag. Good for as long as the tag is announced.
    pub(crate) fn entry(&self, slot: u32, tag: u64) -> Option<Entry> {
        let word = self.field(slot, 0)?;
        if !Opened(word).is(tag) {
            return None;
        }
        Some(Entry {
            base: self.read(slot, 1),
            len: self.read(slot, 2),
            access: Access::from_bits(self.read(slot, 3) as u8)?,
            segment: self.read(slot, 4),
            offset: self.read(slot, 5),
            segment_len: self.read(slot, 6),
        })
    }

    /// The owner says that it is going.
    pub(crate) fn close_all(&self) {
        self.word(0).store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Whether the owner said so.
    pub(crate) fn is_closed(&self) -> bool {
        self.word(0).load(Ordering::SeqCst) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_owner_says_is_what_peers_see() {
        let (fd, mine) = Table::create().unwrap();
        let theirs = Table::adopt(&fd).unwrap();
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

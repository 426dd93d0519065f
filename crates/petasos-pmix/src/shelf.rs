//! The cards that a node's daemon knows, in memory that the processes of the node map to be read: a get
//! of such a card asks nobody.
//!
//! There is a record ([`Record`]) for each rank of the job, and behind all of them the cards, encoded. A card
//! that grows gets twice the room elsewhere; what has no room is not here, and is asked for, as is what
//! changes at each look. The file comes by a link in the private directory of the job.

use crate::value::Card;
use petasos_fabric::memory::{RECORD, Record, Shared, SharedView};
use petasos_wire::{Encoding, from_bytes, to_vec};
use std::{
    collections::HashMap,
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd},
    path::{Path, PathBuf},
};

/// The name of the link in the private directory.
pub(crate) const NAME: &str = "cards";
/// Room for cards. Pages take memory when they are used.
const ROOM: usize = 64 << 20;
const PAGE: usize = 4096;
/// How often a card that changes meanwhile is looked at again.
const LOOKS: u32 = 100;

/// Where cards begin.
fn cards_at(ranks: u32) -> usize {
    (ranks as usize * RECORD).next_multiple_of(PAGE)
}

/// The daemon's side.
#[derive(Debug)]
pub(crate) struct Shelf {
    memory: Shared,
    ranks: u32,
    /// Where there is room for the next one.
    next: usize,
    /// Where the card of a rank is, and how long it may become there.
    places: HashMap<u32, (usize, usize)>,
}

impl Shelf {
    pub(crate) fn create(ranks: u32) -> io::Result<Shelf> {
        let next = cards_at(ranks);
        let memory = Shared::create("petasos-cards", next + ROOM)?;
        Ok(Shelf { memory, ranks, next, places: HashMap::new() })
    }

    /// Where processes of this user find the file, as long as this one lives.
    pub(crate) fn path(&self) -> PathBuf {
        let file = self.memory.as_fd().as_raw_fd();
        PathBuf::from(format!("/proc/{}/fd/{file}", std::process::id()))
    }

    /// The card of a rank, as processes of this node see it, in place of an older one.
    pub(crate) fn put(&mut self, rank: u32, card: &Card) {
        if rank >= self.ranks {
            return;
        }
        let bytes = to_vec(Encoding::Native, card);
        let record = rank as usize * RECORD;
        match self.place(rank, bytes.len()) {
            Some(at) => self.memory.put_record(record, at, &bytes),
            None => self.memory.put_record(record, self.next, &[]),
        }
    }

    /// Where so many bytes of a rank fit, if there is room left.
    fn place(&mut self, rank: u32, len: usize) -> Option<usize> {
        if let Some((at, room)) = self.places.get(&rank)
            && *room >= len
        {
            return Some(*at);
        }
        let (at, room) = (self.next, (2 * len).next_multiple_of(64));
        if room > self.memory.size() - at {
            self.places.remove(&rank);
            return None;
        }
        self.next += room;
        self.places.insert(rank, (at, room));
        Some(at)
    }
}

/// A process's side.
#[derive(Debug)]
pub(crate) struct Reader {
    memory: SharedView,
    ranks: u32,
}

impl Reader {
    /// The cards of the job with this private directory.
    pub(crate) fn open(directory: &Path, ranks: u32) -> io::Result<Reader> {
        Reader::map(File::open(directory.join(NAME))?, ranks)
    }

    fn map(file: impl AsFd, ranks: u32) -> io::Result<Reader> {
        let reader = Reader { memory: SharedView::open(file)?, ranks };
        // What this touches is so there before the first get.
        let _ = reader.get(0);
        Ok(reader)
    }

    /// The card of a rank, if it is here.
    pub(crate) fn get(&self, rank: u32) -> Option<Card> {
        if rank >= self.ranks {
            return None;
        }
        match self.memory.record(rank as usize * RECORD, LOOKS) {
            Record::Here(bytes) => from_bytes(Encoding::Native, &bytes).ok(),
            Record::Absent | Record::Changing => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entry, Scope, Value};

    fn card(version: u64, len: usize) -> Card {
        let value = Value::Bytes(vec![version as u8; len]);
        let entries = [("key".to_owned(), Entry { scope: Scope::Global, value })];
        Card { version, entries: entries.into() }
    }

    fn both(ranks: u32) -> (Shelf, Reader) {
        let shelf = Shelf::create(ranks).unwrap();
        let reader = Reader::map(File::open(shelf.path()).unwrap(), ranks).unwrap();
        (shelf, reader)
    }

    #[test]
    fn what_is_put_is_found() {
        let (mut shelf, reader) = both(300);
        assert_eq!(reader.get(0), None);
        for (rank, len) in [(0, 1), (299, 100_000), (7, 0)] {
            shelf.put(rank, &card(1, len));
            assert_eq!(reader.get(rank), Some(card(1, len)));
        }
        // Shorter, longer, much longer.
        for (version, len) in [(2, 3), (3, 150), (4, 5_000)] {
            shelf.put(0, &card(version, len));
            assert_eq!(reader.get(0), Some(card(version, len)));
        }
        assert_eq!(reader.get(299), Some(card(1, 100_000)));
        shelf.put(300, &card(1, 1));
        assert_eq!((reader.get(300), reader.get(u32::MAX)), (None, None));
    }

    #[test]
    fn what_has_no_room_is_not_there() {
        let (mut shelf, reader) = both(3);
        shelf.put(0, &card(1, 100));
        shelf.put(0, &card(2, ROOM));
        assert_eq!(reader.get(0), None);
        shelf.put(1, &card(1, ROOM / 2 - 4096));
        assert!(reader.get(1).is_some());
        shelf.put(2, &card(1, 10_000));
        assert_eq!(reader.get(2), None);
    }

    #[test]
    fn nobody_sees_halves() {
        let (mut shelf, reader) = both(1);
        shelf.put(0, &card(1, 1_000));
        let reading = std::thread::spawn(move || {
            let mut seen = 0;
            while seen < 5_000 {
                // Not found: it changed all the time, and the daemon would be asked.
                let Some(found) = reader.get(0) else { continue };
                seen = found.version;
                assert_eq!(found, card(seen, 1_000 + (seen as usize % 7) * (seen > 1) as usize));
            }
        });
        for version in 2..=5_000 {
            shelf.put(0, &card(version, 1_000 + version as usize % 7));
        }
        reading.join().unwrap();
    }
}

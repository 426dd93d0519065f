//! The shared-memory datastore of a node, which all its processes map read-only: the job's data,
//! which the daemon writes once (and again where a node took the place of another), and the
//! business cards that the daemon has. A process that begins copies and decodes none of it, and a
//! get of such a business card sends no request.
//!
//! ```text
//! offset of the records, count of restarts, doorbell | table of the job | a record for each rank |
//! encoded business cards
//! ```
//!
//! A record's spare word has the number of the last request of its rank that was completed there
//! and not over the socket, as fences are. One *doorbell*, a counter on which all sleep, announces
//! the completion to many processes at once.
//!
//! A business card that grows gets twice the space elsewhere. A business card for which there is no
//! space is not here, and the daemon is asked for it; so it is for a business card that changes at
//! every reading ([`Record`]). The file is found by a link in the private directory of the job. A
//! process that cannot follow the link, as in a container with a process namespace of its own,
//! reads the job's data from a plain file beside it, and asks the daemon for business cards.

use crate::{
    job::{JobMap, MAX_RANKS},
    table::{self, Memory, Table},
    value::BusinessCard,
};
use petasos_fabric::memory::{RECORD, RECORD_SPARE, Record, Shared, SharedView};
use petasos_wire::{Encoding, from_bytes, to_vec};
use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    os::fd::{AsFd, AsRawFd},
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// The name of the link in the private directory.
pub const NAME: &str = "shared";
/// The name of the file with the job's data alone.
pub const JOB: &str = "job";
/// Where the job's data begins.
const TABLE: usize = 64;
/// Where a word counts the restarts of ranks: a business card that was read before a restart may be
/// of a process that has ended.
const RESTARTS: usize = 8;
/// Where a word counts the rings of the doorbell.
const DOORBELL: usize = 16;
/// Bytes for business cards. Pages take memory when they are used.
const SPACE: usize = 64 << 20;
const PAGE: usize = 4096;
/// How often a business card that changes meanwhile is read again.
const READS: u32 = 100;
/// The longest file with a job's data that is accepted.
const MAX_JOB: u64 = 1 << 30;
/// The longest file that is mapped, with a job's data, its records and its business cards.
const MAX_SHARED: usize = MAX_JOB as usize + MAX_RANKS as usize * RECORD + SPACE + 4 * PAGE;
/// The longest business card that is accepted: there is no space for more, whatever its record
/// says.
const MAX_CARD: usize = SPACE;

/// The daemon's side.
#[derive(Debug)]
pub struct Datastore {
    memory: Shared,
    ranks: u32,
    /// Bytes of the job's data.
    table: usize,
    restarts: u64,
    rings: u64,
    /// Where the records begin.
    records: usize,
    /// Where there is space for the next business card.
    next: usize,
    /// Where the business card of a rank is, and the space that it has there.
    slots: HashMap<u32, (usize, usize)>,
}

impl Datastore {
    /// A datastore with this job's data, and no business cards.
    ///
    /// # Errors
    /// If the system gives no such memory.
    pub fn create(job: &JobMap) -> io::Result<Datastore> {
        let (table, ranks) = (table::write(job), job.size());
        let records = (TABLE + table.len()).next_multiple_of(PAGE);
        let next = (records + ranks as usize * RECORD).next_multiple_of(PAGE);
        let memory = Shared::create("petasos-job", next + SPACE)?;
        memory.write(TABLE, &table);
        memory.store(0, records as u64, Ordering::Release);
        let (table, slots) = (table.len(), HashMap::new());
        Ok(Datastore { memory, ranks, table, restarts: 0, rings: 0, records, next, slots })
    }

    /// The path at which processes of this user find the file, as long as this process lives.
    pub fn path(&self) -> PathBuf {
        let file = self.memory.as_fd().as_raw_fd();
        PathBuf::from(format!("/proc/{}/fd/{file}", std::process::id()))
    }

    /// Updates the job's data: some ranks are on another node. Everything else stays where it was,
    /// so that a process that reads meanwhile finds the old or the new word, and both are valid.
    pub fn describe(&mut self, job: &JobMap) {
        let table = table::write(job);
        debug_assert_eq!(table.len(), self.table);
        if table.len() == self.table {
            self.memory.write(TABLE, &table);
        }
    }

    /// Replaces the business card of a rank, as processes of this node see it.
    pub fn put(&mut self, rank: u32, card: &BusinessCard) {
        if rank >= self.ranks {
            return;
        }
        let bytes = to_vec(Encoding::Native, card);
        let record = self.records + rank as usize * RECORD;
        match self.slot(rank, bytes.len()) {
            Some(at) => self.memory.put_record(record, at, &bytes),
            None => self.memory.put_record(record, self.next, &[]),
        }
    }

    /// A rank is started again: removes its business card.
    pub fn forget(&mut self, rank: u32) {
        if rank < self.ranks {
            self.memory.put_record(self.records + rank as usize * RECORD, self.next, &[]);
        }
        self.restarts += 1;
        self.memory.store(RESTARTS, self.restarts, Ordering::Release);
    }

    /// Marks a request of a rank as completed. [`Datastore::ring`] wakes the process.
    pub fn complete(&mut self, rank: u32, request: u64) {
        if rank < self.ranks {
            let word = self.records + rank as usize * RECORD + RECORD_SPARE;
            self.memory.store(word, request, Ordering::Release);
        }
    }

    /// Wakes all processes that sleep on the doorbell.
    pub fn ring(&mut self) {
        self.rings += 1;
        self.memory.store(DOORBELL, self.rings, Ordering::Release);
        self.memory.wake(DOORBELL);
    }

    /// Where so many bytes of a rank fit, if there is space left.
    fn slot(&mut self, rank: u32, len: usize) -> Option<usize> {
        if let Some((at, space)) = self.slots.get(&rank)
            && *space >= len
        {
            return Some(*at);
        }
        let (at, space) = (self.next, (2 * len).next_multiple_of(64));
        if space > self.memory.size() - at {
            self.slots.remove(&rank);
            return None;
        }
        self.next += space;
        self.slots.insert(rank, (at, space));
        Some(at)
    }
}

/// The memory from which a process reads its job's data.
#[derive(Debug)]
pub(crate) enum Source {
    /// Mapped by all processes of the node.
    Shared(Arc<SharedView>),
    /// Read by this process alone.
    Own(Vec<u8>),
}

impl Table<Source> {
    /// Whether it belongs to this process alone, so that it never changes.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.memory(), Source::Own(_))
    }
}

impl Memory for Source {
    fn word(&self, at: usize) -> Option<u64> {
        match self {
            Source::Shared(memory) => memory.word(at),
            Source::Own(memory) => memory.word(at),
        }
    }

    fn bytes(&self, at: usize, len: usize) -> Option<Vec<u8>> {
        match self {
            Source::Shared(memory) => memory.bytes(at, len),
            Source::Own(memory) => memory.bytes(at, len),
        }
    }

    fn size(&self) -> usize {
        match self {
            Source::Shared(memory) => memory.size(),
            Source::Own(memory) => memory.size(),
        }
    }
}

/// A process's view of the business cards.
#[derive(Debug)]
pub(crate) struct Reader {
    memory: Arc<SharedView>,
    ranks: u32,
    records: usize,
}

/// The data of the job with this private directory, and its business cards, if they can be mapped.
///
/// # Errors
/// If there is none, or it is invalid.
pub(crate) fn open(directory: &Path) -> io::Result<(Table<Source>, Option<Reader>)> {
    if let Ok(shared) = File::open(directory.join(NAME)).and_then(map) {
        return Ok(shared);
    }
    let path = directory.join(JOB);
    let len = fs::metadata(&path)?.len();
    let none = || io::Error::new(io::ErrorKind::InvalidData, "this is no job's data");
    let bytes = if len <= MAX_JOB { fs::read(&path)? } else { return Err(none()) };
    Ok((Table::open(Source::Own(bytes), 0).ok_or_else(none)?, None))
}

fn map(file: impl AsFd) -> io::Result<(Table<Source>, Option<Reader>)> {
    let memory = Arc::new(SharedView::open(file, MAX_SHARED)?);
    let none = || io::Error::new(io::ErrorKind::InvalidData, "this is no job's data");
    let table = Table::open(Source::Shared(memory.clone()), TABLE).ok_or_else(none)?;
    let records = memory.load(0, Ordering::Acquire).and_then(|at| usize::try_from(at).ok());
    let ranks = crate::job::Facts::size(&table);
    let reader = Reader { memory, ranks, records: records.ok_or_else(none)? };
    // Touches the pages that the first get needs.
    let _ = reader.get(0);
    Ok((table, Some(reader)))
}

impl Reader {
    /// How often ranks were started again, as far as this node knows.
    pub(crate) fn restarts(&self) -> u64 {
        self.memory.load(RESTARTS, Ordering::Acquire).unwrap_or_default()
    }

    /// The last request of a rank that was completed here.
    pub(crate) fn completed(&self, rank: u32) -> Option<u64> {
        let record = (rank < self.ranks).then(|| self.records.checked_add(rank as usize * RECORD));
        self.memory.load(record??.checked_add(RECORD_SPARE)?, Ordering::Acquire)
    }

    /// How often the doorbell was rung. Read it before what it is rung for.
    pub(crate) fn rings(&self) -> u64 {
        self.memory.load(DOORBELL, Ordering::Acquire).unwrap_or_default()
    }

    /// Sleeps until the doorbell was rung more often than that, at most so long.
    pub(crate) fn sleep(&self, rings: u64, most: Duration) {
        self.memory.sleep(DOORBELL, rings, most);
    }

    /// The business card of a rank, if it is here.
    pub(crate) fn get(&self, rank: u32) -> Option<BusinessCard> {
        if rank >= self.ranks {
            return None;
        }
        let record = self.records.checked_add(rank as usize * RECORD)?;
        match self.memory.record(record, READS, MAX_CARD) {
            Record::Here(bytes) => from_bytes(Encoding::Native, &bytes).ok(),
            Record::Absent | Record::Changing => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Entry, JobId, Node, Scope, Value,
        job::{Facts, JobSpec, NodeInfo, Run},
    };

    fn card(version: u64, len: usize) -> BusinessCard {
        let value = Value::Bytes(vec![version as u8; len]);
        let entries = [("key".to_owned(), Entry { scope: Scope::Global, value })];
        BusinessCard { restarts: 0, version, entries: entries.into() }
    }

    fn job(ranks: u32) -> JobMap {
        let node = NodeInfo { name: "host".into(), base: String::new(), first: 0 };
        JobMap::new(JobSpec {
            id: JobId(0),
            name: "a-job".to_owned(),
            nodes: vec![node],
            runs: vec![Run { node: Node(0), count: ranks }],
            info: Vec::new(),
        })
        .unwrap()
    }

    fn both(ranks: u32) -> (Datastore, Reader) {
        let store = Datastore::create(&job(ranks)).unwrap();
        let (_, reader) = map(File::open(store.path()).unwrap()).unwrap();
        (store, reader.unwrap())
    }

    #[test]
    fn the_job_is_found_by_the_link_and_without_it() {
        let directory = tempfile::tempdir().unwrap();
        let map = job(300);
        let store = Datastore::create(&map).unwrap();
        assert!(open(directory.path()).is_err());
        fs::write(directory.path().join(JOB), table::write(&map)).unwrap();
        let (table, cards) = open(directory.path()).unwrap();
        assert!(cards.is_none() && table.is_own() && table.address(299) == map.address(299));
        let link = directory.path().join(NAME);
        std::os::unix::fs::symlink(store.path(), &link).unwrap();
        let (table, cards) = open(directory.path()).unwrap();
        assert!(cards.is_some() && !table.is_own() && table.address(299) == map.address(299));
        // The file ends with the process that made it.
        drop(store);
        assert!(open(directory.path()).unwrap().1.is_none());
        fs::write(directory.path().join(JOB), "nonsense").unwrap();
        assert!(open(directory.path()).is_err());
    }

    #[test]
    fn a_process_that_has_mapped_it_sees_ranks_move() {
        let node =
            |name: &str, first| NodeInfo { name: name.into(), base: "tcp://h:".into(), first };
        let runs = [(0, 1), (1, 2), (0, 1), (1, 1)];
        let map = JobMap::new(JobSpec {
            id: JobId(0),
            name: "a-job".to_owned(),
            nodes: vec![node("a", 7), node("b", 50), node("c", 300)],
            runs: runs.map(|(node, count)| Run { node: Node(node), count }).to_vec(),
            info: Vec::new(),
        });
        let map = map.unwrap();
        let mut store = Datastore::create(&map).unwrap();
        store.put(4, &card(1, 100));
        let (table, reader) = super::map(File::open(store.path()).unwrap()).unwrap();
        assert_eq!(table.address(4).unwrap(), "tcp://h:52");
        let moved = map.moved(Node(1), Node(2)).unwrap();
        assert!(moved.moved(Node(0), Node(2)).is_none() && moved.moved(Node(1), Node(0)).is_none());
        store.describe(&moved);
        for rank in 0..5 {
            assert_eq!(table.node_of(rank), moved.node_of(rank));
            assert_eq!(table.address(rank), moved.address(rank));
            let name = table.value(rank, "pmix.hname");
            assert_eq!(name, moved.value(rank, "pmix.hname"));
        }
        assert_eq!(table.address(4).unwrap(), "tcp://h:302");
        assert_eq!(table.spec(), *moved.spec());
        assert_eq!(reader.unwrap().get(4), Some(card(1, 100)));
    }

    #[test]
    fn a_card_that_is_put_is_found() {
        let (mut store, reader) = both(300);
        assert_eq!(reader.get(0), None);
        for (rank, len) in [(0, 1), (299, 100_000), (7, 0)] {
            store.put(rank, &card(1, len));
            assert_eq!(reader.get(rank), Some(card(1, len)));
        }
        // Shorter, longer, much longer.
        for (version, len) in [(2, 3), (3, 150), (4, 5_000)] {
            store.put(0, &card(version, len));
            assert_eq!(reader.get(0), Some(card(version, len)));
        }
        assert_eq!(reader.get(299), Some(card(1, 100_000)));
        store.put(300, &card(1, 1));
        assert_eq!((reader.get(300), reader.get(u32::MAX)), (None, None));
    }

    #[test]
    fn completions_are_beside_the_card() {
        let (mut store, reader) = both(3);
        store.put(1, &card(1, 100));
        store.complete(1, u64::MAX);
        store.complete(2, 7);
        store.put(1, &card(2, 1_000));
        store.forget(2);
        store.complete(3, 1);
        let completed = [0, 1, 2, 3, u32::MAX].map(|rank| reader.completed(rank));
        assert_eq!(completed, [Some(0), Some(u64::MAX), Some(7), None, None]);
        assert_eq!(reader.get(1), Some(card(2, 1_000)));
        let rings = reader.rings();
        store.ring();
        assert_eq!(reader.rings(), rings + 1);
        // It was rung since then.
        reader.sleep(rings, Duration::from_secs(3600));
    }

    #[test]
    fn a_restart_removes_the_card() {
        let (mut store, reader) = both(2);
        (0..2).for_each(|rank| store.put(rank, &card(1, 100)));
        store.forget(1);
        assert_eq!(
            (reader.restarts(), reader.get(0), reader.get(1)),
            (1, Some(card(1, 100)), None)
        );
        store.put(1, &card(1, 90));
        assert_eq!(reader.get(1), Some(card(1, 90)));
    }

    #[test]
    fn a_card_without_space_is_not_there() {
        let (mut store, reader) = both(3);
        store.put(0, &card(1, 100));
        store.put(0, &card(2, SPACE));
        assert_eq!(reader.get(0), None);
        store.put(1, &card(1, SPACE / 2 - 4096));
        assert!(reader.get(1).is_some());
        store.put(2, &card(1, 10_000));
        assert_eq!(reader.get(2), None);
    }

    #[test]
    fn a_card_is_read_whole() {
        let (mut store, reader) = both(1);
        store.put(0, &card(1, 1_000));
        let reading = std::thread::spawn(move || {
            let mut seen = 0;
            while seen < 5_000 {
                // Not found: it changed at every reading, and the daemon would be asked.
                let Some(found) = reader.get(0) else { continue };
                seen = found.version;
                assert_eq!(found, card(seen, 1_000 + (seen as usize % 7) * (seen > 1) as usize));
            }
        });
        for version in 2..=5_000 {
            store.put(0, &card(version, 1_000 + version as usize % 7));
        }
        reading.join().unwrap();
    }
}

//! The description of a job as its processes read it: from memory that the daemon of their node
//! wrote, and that all of them map. It is written once. It changes only when ranks move to another
//! node: a word at a time, and each word is valid by itself.
//!
//! A process decodes and copies nothing when it begins. A lookup reads the few words that it needs.
//! So a process of a job of a million ranks begins as fast as one of two, and takes no more memory.
//!
//! ```text
//! header | runs of ranks, in order | the same runs, by node | nodes | named values | texts
//! ```
//!
//! All are words of 64 bits, but for the texts. A reader checks what it uses: an offset outside of
//! the memory, or a text that is invalid, gives nothing, whatever else is there.

use crate::{
    job::{Facts, JobMap, JobSpec, MAX_RANKS, NodeInfo, Run},
    names::{JobId, Node},
    value::Value,
};
use petasos_fabric::memory::SharedView;
use petasos_wire::{Encoding, from_bytes, to_vec};
use std::{cell::Cell, fmt::Debug, sync::atomic::Ordering};

const MAGIC: u64 = u64::from_le_bytes(*b"PETJOB\x01\0");
const WORD: usize = 8;
/// Sizes in words: the header, a run, a node, a named value.
const HEADER: usize = 8;
const RUN: usize = 2;
const NODE: usize = 4;
const NAMED: usize = 2;
/// The longest value that is accepted, in bytes.
const LONGEST: usize = crate::value::MAX_VALUE + 1024;
/// The longest name of a node or a job, and the longest beginning of addresses, in bytes.
const LONGEST_NAME: usize = 1024;
/// The most named values that are accepted.
const MAX_NAMED: u32 = 4096;

/// The memory that has a table.
pub(crate) trait Memory: Debug + Send + Sync {
    /// The word at an offset, if it lies within, on a multiple of 8.
    fn word(&self, at: usize) -> Option<u64>;
    /// Bytes from an offset that is a multiple of 8, if they lie within.
    fn bytes(&self, at: usize, len: usize) -> Option<Vec<u8>>;
    /// How many bytes there are.
    fn size(&self) -> usize;
}

impl Memory for SharedView {
    fn word(&self, at: usize) -> Option<u64> {
        // It was written before this process began, or before this process heard of the change.
        self.load(at, Ordering::Relaxed)
    }

    fn bytes(&self, at: usize, len: usize) -> Option<Vec<u8>> {
        self.read(at, len)
    }

    fn size(&self) -> usize {
        SharedView::size(self)
    }
}

/// In a process's own memory, where the system does not let memory be shared.
impl Memory for Vec<u8> {
    fn word(&self, at: usize) -> Option<u64> {
        let word = self.get(at..at.checked_add(WORD)?)?;
        Some(u64::from_le_bytes(word.try_into().ok()?))
    }

    fn bytes(&self, at: usize, len: usize) -> Option<Vec<u8>> {
        Some(self.get(at..at.checked_add(len)?)?.to_vec())
    }

    fn size(&self) -> usize {
        self.len()
    }
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// The texts, and where each begins.
#[derive(Default)]
struct Texts(Vec<u8>);

impl Texts {
    /// Gives its offset among the texts, in words, and its length in bytes.
    fn put(&mut self, bytes: &[u8]) -> u64 {
        let at = self.0.len() / WORD;
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(WORD), 0);
        pair(at as u32, bytes.len() as u32)
    }
}

/// The bytes of a job's table.
#[must_use]
pub fn write(map: &JobMap) -> Vec<u8> {
    let spec = map.spec();
    let mut texts = Texts::default();
    let name = texts.put(spec.name.as_bytes());
    // First rank, node; index of the first rank on its node, count.
    let mut on = vec![0u32; spec.nodes.len()];
    let (mut runs, mut first) = (Vec::new(), 0);
    for run in spec.runs.iter().filter(|run| run.count > 0) {
        let local = &mut on[run.node.0 as usize];
        runs.push((first, run.node.0, *local, run.count));
        *local += run.count;
        first += run.count;
    }
    let mut by_node = runs.clone();
    by_node.sort_by_key(|(first, node, ..)| (*node, *first));
    let mut nodes = Vec::new();
    for (at, node) in (0u32..).zip(&spec.nodes) {
        let begin = by_node.partition_point(|(_, node, ..)| *node < at) as u32;
        nodes.extend([
            texts.put(node.name.as_bytes()),
            texts.put(node.base.as_bytes()),
            pair(u32::from(node.first), on[at as usize]),
            u64::from(begin),
        ]);
    }
    let mut named = Vec::new();
    for (key, value) in &spec.info {
        named.push(texts.put(key.as_bytes()));
        named.push(texts.put(&to_vec(Encoding::Native, value)));
    }
    let mut words = vec![
        MAGIC,
        pair(spec.id.0, map.size()),
        pair(runs.len() as u32, spec.nodes.len() as u32),
        pair(map.hosts().len() as u32, spec.info.len() as u32),
        name,
    ];
    words.resize(HEADER, 0);
    for (first, node, local, count) in runs.into_iter().chain(by_node) {
        words.extend([pair(first, node), pair(local, count)]);
    }
    words.extend(nodes);
    words.extend(named);
    let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    bytes.extend(texts.0);
    bytes
}

/// A reader of a table.
#[derive(Debug)]
pub(crate) struct Table<M> {
    memory: M,
    /// The offset of the table.
    at: usize,
    id: JobId,
    size: u32,
    hosts: u32,
    runs: u32,
    nodes: u32,
    named: u32,
    name: String,
}

/// One run: its first rank, its node, the index of its first rank there, its length.
#[derive(Clone, Copy)]
struct Found {
    first: u32,
    node: u32,
    local: u32,
    count: u32,
}

impl<M: Memory> Table<M> {
    /// The table at an offset, if there is one.
    pub(crate) fn open(memory: M, at: usize) -> Option<Table<M>> {
        let word = |nth: usize| memory.word(at.checked_add(nth * WORD)?);
        let (id, size) = halves(word(1)?);
        let (runs, nodes) = halves(word(2)?);
        let (hosts, named) = halves(word(3)?);
        let name_at = word(4)?;
        if word(0)? != MAGIC || size.max(nodes) > MAX_RANKS || runs > size || named > MAX_NAMED {
            return None;
        }
        let (id, name) = (JobId(id), String::new());
        let mut table = Table { memory, at, id, size, hosts, runs, nodes, named, name };
        table.name = table.text(name_at)?;
        Some(table)
    }

    /// The memory that has the table.
    pub(crate) fn memory(&self) -> &M {
        &self.memory
    }

    /// A word of the table, by its number.
    fn word(&self, nth: usize) -> Option<u64> {
        self.memory.word(self.at.checked_add(nth.checked_mul(WORD)?)?)
    }

    fn nodes_at(&self) -> usize {
        HEADER + 2 * RUN * self.runs as usize
    }

    fn named_at(&self) -> usize {
        self.nodes_at() + NODE * self.nodes as usize
    }

    fn bytes(&self, place: u64, most: usize) -> Option<Vec<u8>> {
        let (at, len) = halves(place);
        let texts = self.named_at() + NAMED * self.named as usize;
        let at = texts.checked_add(at as usize)?.checked_mul(WORD)?.checked_add(self.at)?;
        if len as usize > most {
            return None;
        }
        self.memory.bytes(at, len as usize)
    }

    fn text(&self, place: u64) -> Option<String> {
        String::from_utf8(self.bytes(place, LONGEST_NAME)?).ok()
    }

    /// A run by its number: first those in order of ranks, then those by node.
    fn run(&self, nth: usize) -> Option<Found> {
        let (first, node) = halves(self.word(HEADER + RUN * nth)?);
        let (local, count) = halves(self.word(HEADER + RUN * nth + 1)?);
        Some(Found { first, node, local, count })
    }

    fn run_of(&self, rank: u32) -> Option<Found> {
        if rank >= self.size {
            return None;
        }
        let (mut low, mut high) = (0, self.runs as usize);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match self.run(middle)?.first <= rank {
                true => low = middle,
                false => high = middle,
            }
        }
        let found = self.run(low)?;
        (found.first <= rank && rank - found.first < found.count).then_some(found)
    }

    fn node_word(&self, node: Node, nth: usize) -> Option<u64> {
        if node.0 >= self.nodes {
            return None;
        }
        self.word(self.nodes_at() + NODE * node.0 as usize + nth)
    }

    /// The ranks on a node, in order.
    #[cfg(test)]
    fn ranks_on(&self, node: Node) -> Vec<u32> {
        let begin = self.node_word(node, 3).unwrap_or_default() as usize;
        let runs = (begin..self.runs as usize).map_while(|nth| self.run(self.runs as usize + nth));
        let runs = runs.take_while(|run| run.node == node.0);
        runs.flat_map(|run| run.first..run.first.saturating_add(run.count)).collect()
    }

    /// The whole description, for callers that iterate over it. Invalid parts are left out. The
    /// bytes of texts are bounded by the size of the memory, since each text is written once: many
    /// entries that refer to one text do not copy it again and again.
    pub(crate) fn spec(&self) -> JobSpec {
        let left = Cell::new(self.memory.size());
        let counted = |place: u64| {
            left.set(left.get().checked_sub(halves(place).1 as usize)?);
            Some(place)
        };
        let node = |at: u32| {
            let place = |nth| self.node_word(Node(at), nth).and_then(counted);
            let text = |nth| place(nth).and_then(|place| self.text(place));
            let number = self.node_word(Node(at), 2).map_or(0, |word| halves(word).0);
            NodeInfo {
                name: text(0).unwrap_or_default(),
                base: text(1).unwrap_or_default(),
                first: u16::try_from(number).unwrap_or_default(),
            }
        };
        let runs = (0..self.runs as usize).filter_map(|nth| self.run(nth));
        let runs = runs.map(|run| Run { node: Node(run.node), count: run.count });
        let named = |nth| {
            let at = self.named_at() + NAMED * nth;
            counted(self.word(at)?).and(counted(self.word(at + 1)?))?;
            self.named(nth)
        };
        let info = (0..self.named as usize).filter_map(named);
        let nodes = (0..self.nodes).map_while(|at| self.node_word(Node(at), 0).map(|_| node(at)));
        JobSpec {
            id: self.id,
            name: self.name.clone(),
            nodes: nodes.collect(),
            runs: runs.collect(),
            info: info.collect(),
        }
    }

    fn named(&self, nth: usize) -> Option<(String, Value)> {
        let at = self.named_at() + NAMED * nth;
        let key = self.text(self.word(at)?)?;
        let value = from_bytes(Encoding::Native, &self.bytes(self.word(at + 1)?, LONGEST)?).ok()?;
        Some((key, value))
    }
}

impl<M: Memory> Facts for Table<M> {
    fn id(&self) -> JobId {
        self.id
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn host_count(&self) -> u32 {
        self.hosts
    }

    fn node_of(&self, rank: u32) -> Option<Node> {
        self.run_of(rank).map(|run| Node(run.node))
    }

    fn local_rank(&self, rank: u32) -> Option<u32> {
        let run = self.run_of(rank)?;
        run.local.checked_add(rank - run.first)
    }

    fn count_on(&self, node: Node) -> u32 {
        self.node_word(node, 2).map_or(0, |word| halves(word).1)
    }

    fn node_name(&self, node: Node) -> Option<String> {
        self.text(self.node_word(node, 0)?)
    }

    fn place(&self, node: Node) -> Option<(String, u16)> {
        let base = self.text(self.node_word(node, 1)?)?;
        Some((base, u16::try_from(halves(self.node_word(node, 2)?).0).ok()?))
    }

    fn info(&self, key: &str) -> Option<Value> {
        (0..self.named as usize).find_map(|nth| {
            let at = self.word(self.named_at() + NAMED * nth)?;
            // Most keys differ in their length.
            if halves(at).1 as usize != key.len() {
                return None;
            }
            self.named(nth).filter(|(name, _)| name == key).map(|(_, value)| value)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Proc;
    use petasos_fabric::memory::Shared;
    use std::sync::atomic::AtomicUsize;

    fn job(nodes: u32, runs: &[(u32, u32)]) -> JobMap {
        let node = |at| NodeInfo {
            name: format!("host{at}"),
            base: format!("tcp://10.0.0.{at}:"),
            first: 9000 + at as u16,
        };
        let run = |(node, count): &(u32, u32)| Run { node: Node(*node), count: *count };
        JobMap::new(JobSpec {
            id: JobId(7),
            name: "a job".to_owned(),
            nodes: (0..nodes).map(node).collect(),
            runs: runs.iter().map(run).collect(),
            info: vec![("petasos.command".into(), "x y".into()), ("k".into(), 5u32.into())],
        })
        .unwrap()
    }

    fn jobs() -> [JobMap; 4] {
        let turns: Vec<(u32, u32)> = (0..40).map(|nth| (nth % 3, 1)).collect();
        [
            job(1, &[(0, 5)]),
            job(3, &[(1, 2), (2, 3), (1, 1), (0, 0), (2, 2)]),
            job(3, &turns),
            job(2, &[]),
        ]
    }

    /// Both say the same of everything.
    fn same(map: &JobMap, table: &Table<impl Memory>) {
        let size = map.size();
        let keys = [
            "pmix.nspace",
            "pmix.job.size",
            "pmix.num.nodes",
            "pmix.rank",
            "pmix.lrank",
            "pmix.local.size",
            "pmix.nodeid",
            "pmix.hname",
            "pmix.petasos.address",
            "petasos.command",
            "k",
            "j",
            "nothing",
        ];
        for rank in (0..size + 2).chain([Proc::JOB]) {
            assert_eq!(table.node_of(rank), map.node_of(rank), "{rank}");
            assert_eq!(table.address(rank), map.address(rank), "{rank}");
            for key in keys {
                assert_eq!(Facts::value(table, rank, key), map.value(rank, key), "{rank} {key}");
            }
        }
        for node in (0..5).map(Node) {
            assert_eq!(table.ranks_on(node), map.ranks_on(node));
        }
        assert_eq!(&JobMap::new(table.spec()).unwrap().hosts(), &map.hosts());
        assert_eq!(JobMap::new(table.spec()).unwrap().spec().nodes, map.spec().nodes);
    }

    #[test]
    fn a_table_says_what_the_map_says() {
        for map in jobs() {
            let bytes = write(&map);
            same(&map, &Table::open(bytes.clone(), 0).unwrap());
            let shared = Shared::create("test", 64 + bytes.len()).unwrap();
            shared.write(64, &bytes);
            same(&map, &Table::open(SharedView::open(&shared, 1 << 20).unwrap(), 64).unwrap());
        }
    }

    /// Memory that counts how much of it is read.
    #[derive(Debug)]
    struct Counted(Vec<u8>, AtomicUsize);

    impl Memory for Counted {
        fn word(&self, at: usize) -> Option<u64> {
            self.1.fetch_add(WORD, Ordering::Relaxed);
            self.0.word(at)
        }

        fn bytes(&self, at: usize, len: usize) -> Option<Vec<u8>> {
            self.1.fetch_add(len, Ordering::Relaxed);
            self.0.bytes(at, len)
        }

        fn size(&self) -> usize {
            self.0.len()
        }
    }

    #[test]
    fn a_process_reads_no_more_of_a_larger_job() {
        // One rank in turn on each node: consecutive ranks are on different nodes.
        let runs: Vec<(u32, u32)> = (0..200_000).map(|nth| (nth % 10_000, 1)).collect();
        for (map, most) in [(job(2, &[(0, 1), (1, 1)]), 200), (job(10_000, &runs), 1_000)] {
            let table = Table::open(Counted(write(&map), AtomicUsize::default()), 0).unwrap();
            let last = map.size() - 1;
            assert_eq!(table.address(last), map.address(last));
            let read = table.memory.1.load(Ordering::Relaxed);
            assert!(read < most, "{read} bytes");
        }
    }

    /// Whatever the words are, every lookup returns, and reads nothing but the table.
    #[test]
    fn a_table_that_lies_is_no_danger() {
        let mut random = petasos_sim::Random::new(11);
        for map in jobs() {
            let whole = write(&map);
            for len in 0..whole.len() {
                ask_all(whole[..len].to_vec());
            }
            for _ in 0..2_000 {
                let mut bytes = whole.clone();
                for _ in 0..1 + random.below(4) {
                    let at = random.below(bytes.len() as u64) as usize;
                    bytes[at] = if random.one_in(2) { 0xff } else { random.below(256) as u8 };
                }
                ask_all(bytes);
            }
        }
    }

    /// Many entries that refer to one text give no more bytes than the table has.
    #[test]
    fn a_table_is_no_shorter_than_what_it_says() {
        let value = Value::Bytes(vec![7; 1 << 20]);
        let mut spec = job(1, &[(0, 5)]).spec().clone();
        spec.info = (0..64u32).map(|nth| (format!("key{nth:03}"), nth.into())).collect();
        spec.info.push(("long".into(), value.clone()));
        let bytes = write(&JobMap::new(spec.clone()).unwrap());
        let table = Table::open(bytes.clone(), 0).unwrap();
        assert_eq!(table.spec(), spec);
        // All of them refer to the last one.
        let word = |nth: usize| WORD * (table.named_at() + nth);
        let mut lies = bytes.clone();
        let long = bytes[word(2 * 64)..][..2 * WORD].to_vec();
        for nth in 0..64 {
            lies[word(2 * nth)..][..2 * WORD].copy_from_slice(&long);
        }
        let info = Table::open(lies, 0).unwrap().spec().info;
        assert_eq!(info, [("long".to_owned(), value)]);
    }

    fn ask_all(bytes: Vec<u8>) {
        let most = bytes.len();
        let Some(table) = Table::open(bytes, 0) else { return };
        for rank in (0..50).chain([u32::MAX]) {
            let _ = (table.address(rank), Facts::value(&table, rank, "pmix.hname"));
            let _ = Facts::value(&table, rank, "petasos.command");
        }
        let spec = table.spec();
        assert!(spec.nodes.len() + spec.runs.len() + spec.info.len() <= most);
    }
}

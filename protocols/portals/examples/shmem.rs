//! A small SHMEM: a symmetric heap, put, get, atomics, and a barrier and a reduction that run by
//! triggered operations, along a tree, without the programs on the way.
//!
//! `petasos run -n 4 shmem` runs it.

mod job;

use job::{Job, PATIENCE, Result};
use petasos_fabric::Region;
use petasos_portals::{
    Accepts, Ack, Action, Count, Counter, Counts, Datatype, Descriptor, Handle, Interface, List,
    MatchEntry, Operation, Operator, Part, PortalOptions, ProcessId, Quiet, Target,
};

/// Bytes of the symmetric heap.
const HEAP: usize = 1 << 20;

const DATA: u16 = 0;
const COLLECTIVE: u16 = 1;
/// Match bits of the two ways along the tree.
const UP: u64 = 0;
const DOWN: u64 = 1;

/// Words that a reduction takes.
const WIDTH: usize = 16;
const BYTES: u64 = 8 * WIDTH as u64;
/// Reductions follow each other in turn in so many places, so that none overtakes another's memory.
const TURNS: u64 = 2;

struct Shmem {
    interface: Interface,
    rank: u32,
    size: u32,
    heap: Region,
    /// What puts come from, and gets go to.
    scratch: Region,
    descriptor: Handle<Descriptor>,
    /// Acknowledgements, and replies.
    ended: Handle<Counter>,
    started: u64,
    /// What comes up the tree, and down: sums, and results.
    sums: (Region, Handle<Descriptor>, Handle<Counter>),
    results: (Region, Handle<Descriptor>, Handle<Counter>),
    turn: u64,
}

impl Shmem {
    fn new(job: &Job) -> Result<Shmem> {
        let interface = job.interface.clone();
        for index in [DATA, COLLECTIVE] {
            interface.portal(PortalOptions { index: Some(index), ..Default::default() })?;
        }
        let heap = Region::zeroed(HEAP);
        let both = Accepts::PUT.with(Accepts::GET);
        let whole = MatchEntry { accepts: both, ..MatchEntry::new(heap.clone()) };
        interface.append(DATA, List::Priority, whole)?;
        let (scratch, ended) = (Region::zeroed(64 << 10), interface.counter()?);
        let bound = Descriptor {
            counter: Some(ended),
            counts: Counts::ACK.with(Counts::REPLY),
            ..Descriptor::new(scratch.clone())
        };
        let descriptor = interface.bind(bound)?;
        let target = |bits| -> Result<_> {
            let (memory, counter) =
                (Region::zeroed(TURNS as usize * 8 * WIDTH), interface.counter()?);
            let entry = MatchEntry {
                bits,
                counter: Some(counter),
                counts: Counts::COMMUNICATION,
                quiet: Quiet::COMMUNICATION,
                ..MatchEntry::new(memory.clone())
            };
            interface.append(COLLECTIVE, List::Priority, entry)?;
            Ok((memory.clone(), interface.bind(Descriptor::new(memory))?, counter))
        };
        let (sums, results) = (target(UP)?, target(DOWN)?);
        let Job { rank, size, .. } = *job;
        let (started, turn) = (0, 0);
        Ok(Shmem {
            interface,
            rank,
            size,
            heap,
            scratch,
            descriptor,
            ended,
            started,
            sums,
            results,
            turn,
        })
    }

    fn target(&self, rank: u32, offset: u64) -> Target {
        Target { offset, ..Target::new(ProcessId::rank(rank), DATA) }
    }

    fn part(&self, len: usize) -> Part {
        Part::of(self.descriptor, len as u64)
    }

    /// Starts an operation that ends with an acknowledgement or a reply, and waits for that.
    fn run(&mut self, operation: Operation) -> Result<()> {
        self.interface.start(operation)?;
        self.started += 1;
        let count = self.interface.wait_count(self.ended, self.started, PATIENCE)?;
        if count.failure > 0 { Err("an operation failed".into()) } else { Ok(()) }
    }

    fn put(&mut self, rank: u32, offset: u64, bytes: &[u8]) -> Result<()> {
        self.scratch.write(0, bytes);
        let put = Operation::put(self.part(bytes.len()), self.target(rank, offset));
        self.run(Operation { ack: Ack::Completed, ..put })
    }

    fn get(&mut self, rank: u32, offset: u64, into: &mut [u8]) -> Result<()> {
        self.run(Operation::get(self.part(into.len()), self.target(rank, offset)))?;
        self.scratch.read(0, into);
        Ok(())
    }

    fn fetch_add(&mut self, rank: u32, offset: u64, value: u64) -> Result<u64> {
        self.scratch.write(0, &value.to_le_bytes());
        let (data, result) = (self.part(8), Part { offset: 8, ..self.part(8) });
        let (op, kind) = (Operator::Sum, Datatype::U64);
        self.run(Operation::fetch_atomic(op, kind, result, data, self.target(rank, offset)))?;
        let mut old = [0; 8];
        self.scratch.read(8, &mut old);
        Ok(u64::from_le_bytes(old))
    }

    fn children(&self) -> impl Iterator<Item = u32> {
        let size = self.size;
        [2 * self.rank + 1, 2 * self.rank + 2].into_iter().filter(move |child| *child < size)
    }

    /// Sums words over all processes. Each one's sum goes up the tree when those of its children
    /// and its own are in it, and the result comes down: counters set that off, not programs.
    fn sum(&mut self, words: [u64; WIDTH]) -> Result<[u64; WIDTH]> {
        self.turn += 1;
        let offset = self.turn % TURNS * BYTES;
        let comes_up = self.turn * (self.children().count() as u64 + 1);
        let collective = |rank: u32, bits| Target {
            bits,
            offset,
            ..Target::new(ProcessId::rank(rank), COLLECTIVE)
        };
        let (sums, results) = (
            Part { descriptor: self.sums.1, offset, len: BYTES },
            Part { descriptor: self.results.1, offset, len: BYTES },
        );
        let at = self.interface.clone();
        let (up, down) = (self.sums.2, self.results.2);
        let onward = match self.rank {
            // At the root the sum is the result.
            0 => Operation::put(sums, collective(0, DOWN)),
            rank => Operation::atomic(
                Operator::Sum,
                Datatype::U64,
                sums,
                collective((rank - 1) / 2, UP),
            ),
        };
        at.trigger(up, comes_up, Action::Start(onward))?;
        for child in self.children() {
            let result = Operation::put(results, collective(child, DOWN));
            at.trigger(down, self.turn, Action::Start(result))?;
        }
        // This process's own part is one of those that come up.
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.scratch.write(0, &bytes);
        let own = self.part(bytes.len());
        let own = Operation::atomic(Operator::Sum, Datatype::U64, own, collective(self.rank, UP));
        at.start(own)?;
        let count = at.wait_count(down, self.turn, PATIENCE)?;
        if count.failure > 0 {
            return Err("the reduction failed".into());
        }
        let mut there = vec![0; BYTES as usize];
        self.results.0.read(offset as usize, &mut there);
        // No process adds to this before all have come to the next reduction but one.
        self.sums.0.write(offset as usize, &vec![0; BYTES as usize]);
        let mut sum = [0; WIDTH];
        for (word, bytes) in sum.iter_mut().zip(there.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into()?);
        }
        Ok(sum)
    }

    /// Waits for all: a sum of nothing.
    fn barrier(&mut self) -> Result<()> {
        self.sum([0; WIDTH]).map(drop)
    }
}

fn main() -> Result<()> {
    let job = Job::join()?;
    let mut shmem = Shmem::new(&job)?;
    job.fence()?;
    let (rank, size) = (job.rank, job.size);
    shmem.barrier()?;
    // A ring of puts, and a look from the other side.
    let next = (rank + 1) % size;
    shmem.put(next, 8, &u64::from(rank).to_le_bytes())?;
    shmem.barrier()?;
    let mut word = [0; 8];
    shmem.heap.read(8, &mut word);
    assert_eq!(u64::from_le_bytes(word), u64::from((rank + size - 1) % size));
    shmem.get(next, 8, &mut word)?;
    assert_eq!(u64::from_le_bytes(word), u64::from(rank));
    // Tickets from a counter at rank 0.
    let tickets = 100;
    let mut last = None;
    for _ in 0..tickets {
        let ticket = shmem.fetch_add(0, 0, 1)?;
        assert!(last < Some(ticket));
        last = Some(ticket);
    }
    shmem.barrier()?;
    shmem.get(0, 0, &mut word)?;
    assert_eq!(u64::from_le_bytes(word), u64::from(size) * tickets);
    let all = u64::from(size);
    for round in 0..200 {
        let words = std::array::from_fn(|at| u64::from(rank) + at as u64 + round);
        let sum = shmem.sum(words)?;
        let expected = |at: usize| all * (at as u64 + round) + all * (all - 1) / 2;
        assert_eq!(sum, std::array::from_fn(expected));
    }
    shmem.barrier()?;
    let counted = shmem.interface.count(shmem.ended)?;
    println!("rank {rank}: {} operations ended well", Count::of(counted.success).success);
    job.leave()
}

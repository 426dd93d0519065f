//! Memory in pieces as one argument: one length, one key, and transfers that cross the pieces.

use crate::common::{engine, engine_over, engine_with, run, settle, turn_for};
use petasos_fabric::{Access, Region, Slice};
use petasos_rpc::{Bulk, BulkError, CallError, Engine, EngineConfig, Pieces, service};
use petasos_wire::{Encoding, encode_into};
use std::{cell::RefCell, time::Duration};

/// Between the pieces, and never to be touched by a transfer.
const BETWEEN: u8 = 0xee;

#[service]
trait Store {
    async fn write(&self, #[bulk(pull)] data: Region) -> u64;
    async fn read(&self, #[bulk(push)] into: Region) -> u64;
    /// Two of each, of which some are in pieces.
    async fn swap(
        &self,
        #[bulk(pull)] first: Region,
        #[bulk(push)] second: Region,
        #[bulk(push)] third: Region,
    ) -> u64;
}

#[derive(Default)]
struct Memory(RefCell<Vec<u8>>);

impl Store for Memory {
    async fn write(&self, data: Region) -> u64 {
        *self.0.borrow_mut() = data.to_vec();
        data.len() as u64
    }

    async fn read(&self, into: Region) -> u64 {
        into.write(0, &self.0.borrow()[..into.len()]);
        into.len() as u64
    }

    async fn swap(&self, first: Region, second: Region, third: Region) -> u64 {
        second.write(0, &first.to_vec());
        third.write(0, &vec![3; third.len()]);
        first.len() as u64
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 233) as u8).collect()
}

/// Memory with pieces of these lengths in it, every second one in memory of its own.
struct Scattered {
    memory: Vec<Region>,
    pieces: Vec<Slice>,
}

impl Scattered {
    fn new(lens: &[usize]) -> Scattered {
        let shared: usize = lens.iter().step_by(2).map(|len| len + 3).sum();
        let mut memory = vec![Region::from_vec(vec![BETWEEN; shared])];
        let (mut pieces, mut at) = (Vec::new(), 0);
        for (n, len) in lens.iter().enumerate() {
            if n % 2 == 1 {
                let own = Region::from_vec(vec![BETWEEN; len + 3]);
                pieces.push(own.slice(1, *len).unwrap());
                memory.push(own);
                continue;
            }
            pieces.push(memory[0].slice(at, *len).unwrap());
            at += len + 3;
        }
        Scattered { memory, pieces }
    }

    /// Of many lengths, none among them.
    fn of_many(count: usize) -> Scattered {
        let lens: Vec<_> = (0..count).map(|n| [1, 0, 33, 7, 250][n % 5]).collect();
        Scattered::new(&lens)
    }

    fn lend(&self) -> Pieces {
        self.pieces.iter().cloned().collect()
    }

    fn len(&self) -> usize {
        self.pieces.iter().map(Slice::len).sum()
    }

    fn fill(&self, bytes: &[u8]) {
        let mut rest = bytes;
        for piece in &self.pieces {
            let (now, later) = rest.split_at(piece.len());
            piece.write(0, now);
            rest = later;
        }
    }

    fn content(&self) -> Vec<u8> {
        self.pieces.iter().flat_map(Slice::to_vec).collect()
    }

    /// How many bytes are as they were between the pieces.
    fn untouched(&self) -> bool {
        let of = |bytes: Vec<u8>| bytes.iter().filter(|byte| **byte == BETWEEN).count();
        let all: usize = self.memory.iter().map(|memory| of(memory.to_vec())).sum();
        all - of(self.content()) == 3 * self.pieces.len()
    }

    /// Whether nothing but this holds the memory.
    fn let_go(self) -> bool {
        drop(self.pieces);
        self.memory.iter().all(Region::is_unique)
    }
}

/// An engine that lends and one that is lent to, over each transport.
fn pairs() -> impl Iterator<Item = (Engine, Engine)> {
    ["self://*", "shm://*", "tcp://127.0.0.1:0"].into_iter().map(|at| {
        let open = || engine_over(at, EngineConfig::default());
        (open(), open())
    })
}

#[test]
fn a_target_moves_any_part_of_many_pieces() {
    for (owner, other) in pairs() {
        let both = [&owner, &other];
        let scattered = Scattered::new(&[5, 0, 1, 70_000, 3, 64, 4096, 2, 9, 300_000, 1]);
        let bytes = pattern(scattered.len());
        scattered.fill(&bytes);
        let bulk = owner.bulk(scattered.lend(), Access::ALL).unwrap();
        assert_eq!((bulk.len(), bulk.pieces().count()), (bytes.len() as u64, 10));
        let remote = other.open(&bulk.handle()).unwrap();
        let all = bytes.len();
        for (offset, len) in
            [(0, all), (4, 3), (5, 1), (0, 0), (70_004, 70), (all - 2, 2), (6, all - 9)]
        {
            let pulled = run(&both, remote.pull(offset as u64, len as u64)).unwrap();
            assert!(pulled.to_vec() == bytes[offset..offset + len], "{len} bytes from {offset}");
        }
        // The other way, from memory in pieces too.
        let theirs = Scattered::new(&[1, 60_000, 2, 17]);
        theirs.fill(&vec![9; theirs.len()]);
        let back = run(&both, remote.push(100, theirs.lend().into())).unwrap();
        assert_eq!(back.len(), theirs.len());
        run(&both, remote.pull_into(20, theirs.lend().into())).unwrap();
        let mut expected = bytes.clone();
        expected[100..100 + theirs.len()].fill(9);
        assert!(scattered.content() == expected && scattered.untouched());
        assert!(theirs.content() == expected[20..20 + theirs.len()] && theirs.untouched());
        run(&both, bulk.close()).unwrap();
        assert!(run(&both, remote.pull(0, 4)).is_err(), "closed memory was read");
        drop((remote, back));
        settle(&both);
        assert!(scattered.let_go() && theirs.let_go());
    }
}

#[test]
fn declared_arguments_take_thousands_of_pieces() {
    for (here, there) in pairs() {
        let both = [&here, &there];
        Memory::default().serve(&there, 0).unwrap();
        let store = StoreClient::new(&here, there.address());
        let from = Scattered::of_many(5000);
        let bytes = pattern(from.len());
        from.fill(&bytes);
        let len = bytes.len() as u64;
        assert_eq!(run(&both, store.write(from.lend())).unwrap(), len);
        let into = Scattered::of_many(5000);
        assert_eq!(run(&both, store.read(&into.lend())).unwrap(), len);
        assert!(into.content() == bytes && into.untouched() && from.untouched());

        // Beside memory of one piece, and of none.
        let (whole, empty) = (Region::zeroed(bytes.len()), Pieces::of([Region::zeroed(0)]));
        assert_eq!((empty.count(), empty.len()), (0, 0));
        assert_eq!(run(&both, store.swap(from.lend(), &whole, &empty)).unwrap(), len);
        assert!(whole.to_vec() == bytes);
        assert_eq!(run(&both, store.swap(whole.clone(), &into.lend(), &whole)).unwrap(), len);
        assert!(into.content() == bytes && whole.to_vec() == vec![3; bytes.len()]);
        settle(&both);
        assert!(from.let_go() && into.let_go());
    }
}

#[test]
fn one_key_for_all_of_them() {
    let owner = engine();
    let scattered = Scattered::of_many(5000);
    let whole = owner.bulk(Region::zeroed(1000), Access::ALL).unwrap();
    let pieces = owner.bulk_of(&scattered.pieces, Access::ALL).unwrap();
    let len = |bulk: &Bulk| {
        let mut bytes = Vec::new();
        encode_into(Encoding::Native, &bulk.handle(), &mut bytes);
        bytes.len()
    };
    assert_eq!(len(&pieces), len(&whole), "the descriptor is as long as that of one piece");
    assert_eq!(pieces.pieces().count(), 4000);
    // One piece alone is lent as the memory that it is.
    let one = Pieces::of([Region::zeroed(0), Region::zeroed(7)]);
    assert_eq!((one.count(), one.as_slice().pieces().is_some()), (1, false));
}

#[test]
fn more_pieces_than_are_lent_at_a_time() {
    let (here, there) = (engine_with(EngineConfig::default().bulk_pieces(100)), engine());
    let both = [&here, &there];
    Memory::default().serve(&there, 0).unwrap();
    let store = StoreClient::new(&here, there.address());
    let lens = |count| Scattered::new(&vec![10; count]);
    let (most, more) = (lens(100), lens(101));
    most.fill(&[1; 1000]);
    assert_eq!(run(&both, store.write(most.lend())).unwrap(), 1000);
    let error = run(&both, store.read(&more.lend())).unwrap_err();
    assert!(matches!(error, CallError::TooLarge { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("101 pieces") && text.contains("the 100 that are lent"), "{text}");
    let error = here.bulk(more.lend(), Access::READ).unwrap_err();
    assert!(matches!(error, BulkError::TooManyPieces { pieces: 101, limit: 100 }), "{error}");
    settle(&both);
    assert!(most.let_go() && more.let_go(), "nothing of what failed is kept");
}

#[test]
fn bounds_and_rights_hold_for_pieces() {
    for (owner, other) in pairs() {
        let both = [&owner, &other];
        let scattered = Scattered::new(&[100, 300, 600]);
        scattered.fill(&[1; 1000]);
        let bulk = owner.bulk(scattered.lend(), Access::READ).unwrap();
        let remote = other.open(&bulk.handle()).unwrap();
        let beyond = run(&both, remote.pull(950, 51)).unwrap_err();
        assert!(matches!(beyond, BulkError::OutOfBounds { bound: 1000, .. }), "{beyond}");
        let denied = run(&both, remote.push(90, vec![9; 20].into())).unwrap_err();
        assert!(matches!(denied, BulkError::Transfer(_)), "{denied}");
        assert!(scattered.content() == [1; 1000] && scattered.untouched());
        // What may only be read is not lent to be written, were it one piece among others.
        let fixed = Region::view(&Region::zeroed(8).whole()).unwrap();
        let mixed = Pieces::of([scattered.pieces[0].clone(), fixed.whole()]);
        assert!(matches!(owner.bulk(mixed, Access::WRITE), Err(BulkError::Register(_))));
    }
}

#[test]
fn calls_that_are_dropped_give_the_pieces_back() {
    for (here, there) in pairs() {
        let both = [&here, &there];
        Memory::default().serve(&there, 0).unwrap();
        let store = StoreClient::new(&here, there.address());
        let (from, into) = (Scattered::of_many(2000), Scattered::of_many(2000));
        run(&both, store.write(from.lend())).unwrap();
        for passes in 0..30 {
            let into_pieces = into.lend();
            let calls = (store.write(from.lend()), store.read(&into_pieces));
            for _ in 0..passes {
                here.progress();
                there.progress();
            }
            drop(calls);
        }
        turn_for(&both, Duration::from_millis(5));
        settle(&both);
        let before = into.content();
        turn_for(&both, Duration::from_millis(5));
        assert!(into.content() == before && into.untouched());
        assert!(from.let_go() && into.let_go());
    }
}

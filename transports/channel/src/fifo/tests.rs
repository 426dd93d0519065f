//! Both sides against a plain queue, with puts that arrive in any order; and against garbage.
//!
//! `PETASOS_OPERATIONS` sets how many operations are generated in all (default a million).

use super::*;
use crate::header::{FIRST, HEADER, Header, Kind, LAST};
use proptest::prelude::*;
use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
};

/// Operations of one generated sequence.
const SEQUENCE: usize = 1000;

#[derive(Clone, Debug)]
enum Step {
    /// Send a record with a body of so many bytes, modulo the longest.
    Send(usize),
    /// One of the puts that are under way arrives.
    Arrive(usize),
    /// The receiver takes a record.
    Receive,
    /// The acknowledgement of all that was taken reaches the sender.
    Acknowledge,
    /// The device is done with one of the puts that arrived.
    Complete(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => any::<usize>().prop_map(Step::Send),
        5 => any::<usize>().prop_map(Step::Arrive),
        4 => Just(Step::Receive),
        1 => Just(Step::Acknowledge),
        4 => any::<usize>().prop_map(Step::Complete),
    ]
}

/// A put that is under way.
struct Flying {
    offset: usize,
    bytes: Vec<u8>,
    mark: u64,
    seq: Option<u32>,
}

struct Pair {
    send: SendFifo,
    receive: ReceiveFifo,
    model: VecDeque<(u32, Vec<u8>)>,
    flying: Vec<Flying>,
    arrived: Vec<u32>,
    /// Cells that the device may still read, by record.
    lent: HashMap<u32, Range<u64>>,
    next: u32,
    taken: u32,
    freed: u32,
    spent: u32,
}

impl Pair {
    fn new(cells: u32) -> Pair {
        // So that the numbers wrap.
        let next = u32::MAX - 20;
        Pair {
            send: SendFifo::new(cells),
            receive: ReceiveFifo::new(cells),
            model: VecDeque::new(),
            flying: Vec::new(),
            arrived: Vec::new(),
            lent: HashMap::new(),
            next,
            taken: next,
            freed: 0,
            spent: 0,
        }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Send(len) => self.send(1 + len % max_body(self.send.cells())),
            Step::Arrive(which) if !self.flying.is_empty() => {
                let put = self.flying.swap_remove(which % self.flying.len());
                self.receive.memory().write(put.offset, &put.bytes);
                let ack = self.receive.arrived(put.offset as u64, put.mark).unwrap();
                assert_eq!(ack.is_none(), put.seq.is_none(), "only pads carry nothing");
                self.arrived.extend(put.seq);
            }
            Step::Receive => self.receive(),
            Step::Acknowledge => {
                self.send.acknowledged(self.taken);
            }
            Step::Complete(which) if !self.arrived.is_empty() => {
                let seq = self.arrived.swap_remove(which % self.arrived.len());
                self.lent.remove(&seq);
                self.send.completed(seq);
            }
            Step::Arrive(_) | Step::Complete(_) => {}
        }
        assert!(self.send.used() <= self.send.cells());
        assert!(self.spent.wrapping_sub(self.freed) <= self.send.used(), "credit out of nothing");
    }

    fn send(&mut self, len: usize) {
        let Some(place) = self.send.reserve(len) else {
            assert!(self.send.used() > 0, "a record that never fits");
            return;
        };
        let seq = self.next;
        self.next = seq.wrapping_add(1);
        let before = self.send.used();
        if let Some(offset) = place.pad {
            let (offset, bytes) = (offset as usize, Vec::new());
            self.flying.push(Flying { offset, bytes, mark: PAD_MARK, seq: None });
            self.send.pad(seq);
        }
        let body: Vec<u8> = (0..len).map(|i| (i as u8) ^ (seq as u8).wrapping_mul(31)).collect();
        let flags = FIRST | LAST;
        let header = Header { len: len as u32, seq, ack: 7, kind: Kind::Record, flags };
        let slice = self.send.slice(&place, len);
        let cells = place.offset..place.offset + u64::from(place.cells) * CELL as u64;
        let free = |lent: &Range<u64>| lent.end <= cells.start || cells.end <= lent.start;
        assert!(self.lent.values().all(free), "cells that the device still reads");
        self.lent.insert(seq, cells);
        let mut bytes = header.encode().to_vec();
        bytes[..8].fill(0);
        bytes.extend_from_slice(&body);
        slice.write(0, &bytes);
        self.send.take(&place, seq, false);
        self.spent = self.spent.wrapping_add(self.send.used() - before);
        let (offset, mark) = (place.offset as usize, header.mark());
        self.flying.push(Flying { offset, bytes, mark, seq: Some(seq) });
        self.model.push_back((seq, body));
    }

    fn receive(&mut self) {
        let Some(front) = self.receive.front().unwrap() else {
            return;
        };
        let (seq, body) = self.model.pop_front().expect("a record that was not sent");
        assert_eq!((front.seq(), front.body.to_vec()), (seq, body));
        self.freed = self.freed.wrapping_add(self.receive.consume(&front));
        self.taken = seq.wrapping_add(1);
    }

    /// Everything comes through, and all credit comes back.
    fn drain(&mut self) {
        while !self.flying.is_empty() {
            self.run(Step::Arrive(0));
        }
        while !self.model.is_empty() {
            let before = self.model.len();
            self.run(Step::Receive);
            assert!(self.model.len() < before, "a record that does not come");
        }
        while !self.arrived.is_empty() {
            self.run(Step::Complete(0));
        }
        self.run(Step::Acknowledge);
        assert!(self.send.is_drained() && self.send.used() == 0);
        assert_eq!(self.freed, self.spent, "credit that is lost");
        assert!(self.receive.front().unwrap().is_none());
        let marks = self.receive.memory().to_vec();
        assert!(marks.chunks(CELL).all(|cell| cell[..8] == [0; 8]), "a mark that was left");
    }
}

fn cases() -> u32 {
    let operations = std::env::var("PETASOS_OPERATIONS").ok().and_then(|n| n.parse().ok());
    (operations.unwrap_or(1_000_000) / SEQUENCE).max(1) as u32
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn like_a_queue(
        cells in prop_oneof![8u32..40, 100u32..300],
        steps in proptest::collection::vec(step(), SEQUENCE),
    ) {
        let mut pair = Pair::new(cells);
        for step in steps {
            pair.run(step);
        }
        pair.drain();
    }
}

proptest! {
    /// A peer that writes what it likes, where it likes, with any event.
    #[test]
    fn garbage_in_the_cells(
        writes in proptest::collection::vec(
            (0usize..512, proptest::collection::vec(any::<u8>(), 1..100), any::<u64>(), any::<bool>()),
            1..60,
        ),
        cells in 8u32..16,
    ) {
        let mut receive = ReceiveFifo::new(cells);
        let len = cells as usize * CELL;
        for (at, mut bytes, mark, sane) in writes {
            // Often enough a version and a kind that are known.
            if sane && bytes.len() >= HEADER {
                let (kind, flags) = (Kind::Record, 3);
                let header = Header { len: mark as u32 % 200, seq: 0, ack: 0, kind, flags };
                bytes[..HEADER].copy_from_slice(&header.encode());
            }
            let at = if sane { at / CELL * CELL } else { at };
            bytes.truncate(len - at.min(len - 1));
            receive.memory().write(at.min(len - 1), &bytes);
            let mark = if sane { mark % 300 } else { mark };
            let _ = receive.arrived(at as u64, mark);
            while let Ok(Some(front)) = receive.front() {
                prop_assert!(front.body.len() <= max_body(cells));
                let freed = receive.consume(&front);
                prop_assert!(freed <= cells);
            }
        }
    }
}

#[test]
fn puts_beside_the_cells_are_refused() {
    let mut receive = ReceiveFifo::new(8);
    for offset in [1, 63, 512, u64::MAX - 63, u64::MAX] {
        assert!(receive.arrived(offset, 20).is_err(), "{offset}");
    }
    assert!(receive.arrived(0, 7 << 32).is_err(), "a record of nothing");
    receive.arrived(0, PAD_MARK).unwrap();
    assert!(receive.front().is_err(), "a pad at the first cell");
}

//! The ring against a plain queue, against garbage, and, under loom, in every interleaving.

use super::*;
#[cfg(not(loom))]
use crate::sync::Ordering;

/// The first lap, and the step from one to the next.
#[cfg(not(loom))]
const LAP: u64 = 1 << 32;

/// A kind of contiguous messages.
const LONG: u8 = 2;

fn producer(memory: &Heap) -> Producer<Heap> {
    Producer::new(memory.clone())
}

/// Sends a short message if nothing is in the way.
fn send_plainly(producer: &mut Producer<Heap>, bytes: &[u8]) -> bool {
    producer.send_one(bytes) || producer.send_two(bytes)
}

/// Sends as the transport does: short messages plainly, or else with all questions.
fn send(producer: &mut Producer<Heap>, report: Report<'_>, kind: u8, bytes: &[u8]) -> bool {
    let sent = match kind {
        SHORT if send_plainly(producer, bytes) => return true,
        SHORT => producer.send_short(report, bytes),
        _ => producer.send(report, kind, &[Piece::of(bytes)], bytes.len()),
    };
    sent.expect("honest reports")
}

/// Receives as the transport does: looks for one cell, then for one or two, then for all there may
/// be; a message may come between any two. What it was, and whether it was seen before the last
/// look.
fn receive(
    consumer: &mut Consumer<Heap>,
    report: Report<'_>,
) -> Result<Option<(u8, Vec<u8>, bool)>, RingError> {
    if let Some(len) = consumer.next().one() {
        let bytes = bytes_of((0..LINE / 8).map(consumer.words()), len);
        consumer.advance(1, report);
        return Ok(Some((SHORT, bytes, true)));
    }
    if let Some((len, cells)) = consumer.peek_short() {
        let bytes = lines(consumer, len);
        consumer.advance(cells, report);
        return Ok(Some((SHORT, bytes, true)));
    }
    let Some(incoming) = consumer.peek()? else { return Ok(None) };
    let mut bytes = vec![0; incoming.len];
    match incoming.kind {
        SHORT => bytes = lines(consumer, incoming.len),
        _ if incoming.announced => bytes.clear(),
        _ => consumer.read(&incoming, 0, &mut bytes),
    }
    consumer.finish(incoming, report);
    Ok(Some((incoming.kind, bytes, false)))
}

/// The bytes of a short message.
fn lines(consumer: &Consumer<Heap>, len: usize) -> Vec<u8> {
    let cells = 0..cells_for(len);
    bytes_of(cells.flat_map(|cell| consumer.line(cell)), len)
}

fn bytes_of(words: impl IntoIterator<Item = u64>, len: usize) -> Vec<u8> {
    words.into_iter().flat_map(u64::to_ne_bytes).take(len).collect()
}

#[cfg(not(loom))]
mod model {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// Operations in all, over the cases: more with `PETASOS_RING_OPERATIONS`.
    fn operations() -> usize {
        let wanted = std::env::var("PETASOS_RING_OPERATIONS").ok();
        let usual = if cfg!(miri) { 50 } else { 100_000 };
        wanted.and_then(|n| n.parse().ok()).unwrap_or(usual)
    }

    #[derive(Clone, Debug)]
    enum Step {
        Send {
            kind: u8,
            len: usize,
            fill: u8,
        },
        Receive,
        /// Looks, and leaves it there.
        Look,
    }

    fn step(max: usize) -> impl Strategy<Value = Step> {
        let len = prop_oneof![0..=8usize, 40..=LINE + 2, 0..=max, Just(max)];
        let short = prop_oneof![0..=8usize, 40..=LINE + 2, 0..=MAX_SHORT, Just(MAX_SHORT)];
        let message = prop_oneof![(Just(SHORT), short), (LONG..ANNOUNCED, len)];
        prop_oneof![
            4 => (message, any::<u8>()).prop_map(|((kind, len), fill)| Step::Send { kind, len, fill }),
            4 => Just(Step::Receive),
            1 => Just(Step::Look),
        ]
    }

    /// Payload that looks like headers of this lap and the next ones, wherever a cell begins.
    fn payload(len: usize, fill: u8, lap: u64) -> Vec<u8> {
        let forged = header(lap.wrapping_add(u64::from(fill % 3) * LAP), 7, usize::from(fill));
        let mut out: Vec<u8> = forged.to_le_bytes().into_iter().cycle().take(len).collect();
        out.iter_mut().skip(1).step_by(97).for_each(|byte| *byte ^= fill);
        out
    }

    fn agree(cells: usize, steps: &[Step]) {
        let memory = Heap::new(cells);
        let consumed = AtomicU64::new(0);
        let report = Report { consumed: &consumed };
        let mut producer = producer(&memory);
        let mut consumer = Consumer::new(memory, part(cells));
        let mut model: VecDeque<(u8, Vec<u8>)> = VecDeque::new();
        for step in steps {
            match step {
                Step::Send { kind, len, fill } => {
                    let bytes = payload(*len, *fill, lap_of(producer.head(), cells as u64));
                    let (a, b) = bytes.split_at(len / 3);
                    let sent = match (*kind, fill % 4) {
                        (SHORT, 0) => producer.send_short(report, &bytes).unwrap(),
                        (LONG.., 0) => producer
                            .send(report, *kind, &[Piece::of(a), Piece::of(b)], *len)
                            .unwrap(),
                        _ => send(&mut producer, report, *kind, &bytes),
                    };
                    if sent {
                        model.push_back((*kind, bytes));
                    } else {
                        assert!(!model.is_empty(), "no room in an empty ring");
                    }
                }
                Step::Look => {
                    let there = consumer.peek().unwrap();
                    assert_eq!(there.map(|m| m.kind), model.front().map(|m| m.0));
                }
                Step::Receive => {
                    assert_eq!(consumer.is_empty(), model.is_empty());
                    let Some((kind, got, seen)) = receive(&mut consumer, report).unwrap() else {
                        assert!(model.is_empty());
                        continue;
                    };
                    let (expected, bytes) = model.pop_front().expect("a message out of nothing");
                    assert_eq!((kind, &got), (expected, &bytes));
                    // In front of one of two cells there may be a pad.
                    assert!(seen || kind != SHORT || got.len() > LINE);
                }
            }
        }
    }

    #[test]
    fn like_a_queue() {
        let each = if cfg!(miri) { 25 } else { 500 };
        let cases = u32::try_from(operations().div_ceil(each)).unwrap();
        let config = ProptestConfig { cases, failure_persistence: None, ..Default::default() };
        const SIZES: [usize; 4] = [8, 16, 64, 2048];
        let sizes = &SIZES[..if cfg!(miri) { 2 } else { 4 }];
        let sizes = proptest::sample::select(sizes);
        let runs = sizes.prop_flat_map(move |cells| {
            let steps = proptest::collection::vec(step(part(cells)), each);
            (Just(cells), steps)
        });
        let mut runner = proptest::test_runner::TestRunner::new(config);
        runner
            .run(&runs, |(cells, steps)| {
                agree(cells, &steps);
                Ok(())
            })
            .unwrap();
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 2 } else { 256 },
            failure_persistence: None,
            ..Default::default()
        })]

        /// Whatever a hostile sender writes: no panic, nothing beyond the ring, and an end.
        #[test]
        fn garbage_is_harmless(words in proptest::collection::vec(any::<u64>(), 128), lap in 1u32..4) {
            let memory = Heap::new(16);
            for (i, word) in words.iter().enumerate() {
                // Half of the words get the right lap, and a length that may fit.
                let forged = match word % 3 {
                    0 => word & 0xFF00_07FF,
                    _ => u64::from(SHORT) << 24 | word >> 8 & 0x7F,
                } | u64::from(lap) << 32;
                memory.cell(i as u64 / 8)[i % 8].store(if i % 3 == 0 { forged } else { *word }, Ordering::Relaxed);
            }
            let consumed = AtomicU64::new(0);
            let mut consumer = Consumer::new(memory, part(16));
            for _ in 0..1000 {
                let report = Report { consumed: &consumed };
                let Ok(Some(_)) = receive(&mut consumer, report) else { break };
            }
        }

        /// Whatever a hostile receiver reports: an error, or room that is really in the ring.
        #[test]
        fn wrong_reports_are_harmless(reports in proptest::collection::vec(any::<u64>(), 50)) {
            let memory = Heap::new(16);
            let mut producer = producer(&memory);
            for report in reports {
                let consumed = AtomicU64::new(report % 64);
                let report = Report { consumed: &consumed };
                for len in [0, 56, 57, 112, 113, part(16)] {
                    let bytes = vec![7; len];
                    if len > MAX_SHORT {
                        let _ = producer.send(report, LONG, &[Piece::of(&bytes)], len);
                    } else if !send_plainly(&mut producer, &bytes) {
                        let _ = producer.send_short(report, &bytes);
                    }
                }
            }
        }
    }

    /// What the models have in every interleaving of a few messages, with many of them in one of
    /// theirs: of two threads, as the system (or Miri, with the memory that it has) runs them.
    #[test]
    fn messages_arrive_whole_from_another_thread() {
        let count = if cfg!(miri) { 150 } else { 20_000 };
        let what = move |n: usize| {
            let len = [4, 60, 0, 100, 112, part(16)][n % 6];
            let kind = if len <= MAX_SHORT && !n.is_multiple_of(5) { SHORT } else { LONG };
            (kind, vec![n as u8; len])
        };
        let memory = Heap::new(16);
        let consumed = std::sync::Arc::new(AtomicU64::new(0));
        let (mut sender, theirs) = (producer(&memory), consumed.clone());
        let thread = std::thread::spawn(move || {
            for n in 0..count {
                let (kind, bytes) = what(n);
                while !send(&mut sender, Report { consumed: &theirs }, kind, &bytes) {
                    std::thread::yield_now();
                }
            }
        });
        let mut consumer = Consumer::new(memory, part(16));
        for n in 0..count {
            let came = loop {
                match receive(&mut consumer, Report { consumed: &consumed }).unwrap() {
                    Some((kind, bytes, _)) => break (kind, bytes),
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(came, what(n), "message {n}");
        }
        thread.join().unwrap();
    }

    #[test]
    fn violations_are_named() {
        let memory = Heap::new(16);
        let mut consumer = Consumer::new(memory.clone(), 200);
        memory.cell(0)[0].store(header(LAP, 9, 201), Ordering::Relaxed);
        assert!(matches!(consumer.peek(), Err(RingError::Length { len: 201, max: 200, .. })));
        memory.cell(0)[0].store(header(LAP, SHORT, MAX_SHORT + 1), Ordering::Relaxed);
        assert!(matches!(consumer.peek(), Err(RingError::Length { len: 113, max: 112, .. })));
        memory.cell(0)[0].store(header(LAP, 0, 1), Ordering::Relaxed);
        assert_eq!(consumer.peek(), Err(RingError::Kind { kind: 0, cell: 0 }));
        memory.cell(0)[0].store(header(LAP, PAD, 0), Ordering::Relaxed);
        assert_eq!(consumer.peek(), Err(RingError::Pad(0)));
        memory.cell(0)[0].store(header(2 * LAP, 9, 1), Ordering::Relaxed);
        assert_eq!(consumer.peek(), Ok(None), "not yet");
        memory.cell(0)[0].store(header(LAP, SHORT | ANNOUNCED, 9), Ordering::Relaxed);
        assert_eq!(consumer.peek(), Err(RingError::Kind { kind: 65, cell: 0 }));
        memory.cell(0)[0].store(header(LAP, LONG | ANNOUNCED, 0), Ordering::Relaxed);
        assert_eq!(consumer.peek(), Err(RingError::Kind { kind: 66, cell: 0 }), "nothing comes");
        memory.cell(0)[0].store(header(LAP, LONG | ANNOUNCED, 201), Ordering::Relaxed);
        assert!(matches!(consumer.peek(), Err(RingError::Length { len: 201, max: 200, .. })));
        memory.cell(0)[0].store(header(LAP, LONG | ANNOUNCED, 200), Ordering::Relaxed);
        let there = consumer.peek().unwrap().expect("an announcement");
        assert!(there.announced && (there.kind, there.len) == (LONG, 200));
        let memory = Heap::new(16);
        let consumed = AtomicU64::new(1);
        let mut producer = producer(&memory);
        let mut sent = Ok(true);
        while sent == Ok(true) {
            sent = producer.send(Report { consumed: &consumed }, LONG, &[], 0);
        }
        consumed.store(99, Ordering::Relaxed);
        let sent = producer.send(Report { consumed: &consumed }, LONG, &[], 0);
        assert!(matches!(sent, Err(RingError::Consumed { reported: 99, .. })));
        let sent = producer.send_short(Report { consumed: &consumed }, &[]);
        assert!(matches!(sent, Err(RingError::Consumed { reported: 99, .. })));
    }
}

/// The short way, where it begins and ends.
#[cfg(not(loom))]
mod edges {
    use super::*;

    fn ring(cells: usize) -> (Producer<Heap>, Consumer<Heap>, AtomicU64) {
        let memory = Heap::new(cells);
        let consumer = Consumer::new(memory.clone(), part(cells));
        (producer(&memory), consumer, AtomicU64::new(0))
    }

    /// Every length at every place of the ring, and around it.
    #[test]
    fn every_length() {
        let bytes: Vec<u8> = (1..=MAX_SHORT as u8 + 1).collect();
        for (start, len) in
            (0..8).flat_map(|start| (0..=MAX_SHORT + 1).map(move |len| (start, len)))
        {
            // Under Miri those around the borders.
            if cfg!(miri) && (start % 3 != 0 || len % 56 > 1) {
                continue;
            }
            let (mut producer, mut consumer, consumed) = ring(8);
            let report = Report { consumed: &consumed };
            for _ in 0..start {
                assert!(send(&mut producer, report, SHORT, &[]));
                assert!(receive(&mut consumer, report).unwrap().is_some());
            }
            let (bytes, kind) = (&bytes[..len], if len > MAX_SHORT { LONG } else { SHORT });
            for round in 0..9 {
                assert!(send(&mut producer, report, kind, bytes), "{len} bytes, {round}");
                let (came, got, _) = receive(&mut consumer, report).unwrap().unwrap();
                assert_eq!((came, &got[..]), (kind, bytes));
                assert!(consumer.is_empty() && consumer.peek_short().is_none());
            }
        }
    }

    #[test]
    fn each_way_takes_its_lengths() {
        for len in 0..=MAX_SHORT + 1 {
            let (mut producer, ..) = ring(8);
            let bytes = vec![1; len];
            assert_eq!(producer.send_one(&bytes), len <= LINE);
            let (mut producer, ..) = ring(8);
            assert_eq!(producer.send_two(&bytes), len > LINE && len <= MAX_SHORT);
        }
    }

    #[test]
    fn the_last_cell_and_the_next_lap() {
        let (mut producer, mut consumer, consumed) = ring(8);
        let report = Report { consumed: &consumed };
        for n in 0..40u8 {
            let plain = send_plainly(&mut producer, &[n]);
            assert!(plain || send(&mut producer, report, SHORT, &[n]));
            assert!(!plain || n % 8 != 7, "the lap changes after the last cell");
            assert!(plain || n >= 7, "nothing is in the direction of {n}");
            assert_eq!(receive(&mut consumer, report), Ok(Some((SHORT, vec![n], true))));
        }
    }

    /// The last two cells are one message, or a pad takes the last one's place.
    #[test]
    fn two_cells_at_the_end() {
        for shift in 0..2u8 {
            let (mut producer, mut consumer, consumed) = ring(8);
            let report = Report { consumed: &consumed };
            for _ in 0..shift {
                assert!(send(&mut producer, report, SHORT, &[]));
                assert!(receive(&mut consumer, report).unwrap().is_some());
            }
            for n in 0..40 {
                let before = producer.head();
                let plain = producer.send_two(&[n; 57]);
                assert!(plain || producer.send_short(report, &[n; 57]).unwrap());
                let pad = before % 8 == 7;
                assert_eq!(producer.head() - before, if pad { 3 } else { 2 });
                assert!(!plain || before % 8 < 6, "the lap changes after the last cell");
                assert!(plain || before >= 6, "nothing is in the direction of {n}");
                let expected = Ok(Some((SHORT, vec![n; 57], !pad)));
                assert_eq!(receive(&mut consumer, report), expected);
                assert!(consumer.is_empty());
            }
        }
    }

    #[test]
    fn a_full_ring_goes_on_when_that_is_reported() {
        let (mut producer, mut consumer, consumed) = ring(16);
        let report = Report { consumed: &consumed };
        let (mut sent, mut came) = (0u8, 0u8);
        for _ in 0..10 {
            while send(&mut producer, report, SHORT, &[sent; 56]) {
                sent += 1;
            }
            assert_eq!(sent - came, 16 - came % 4, "all the room there is");
            // One more than what is reported at once.
            for _ in 0..5 {
                let expected = Ok(Some((SHORT, vec![came; 56], true)));
                assert_eq!(receive(&mut consumer, report), expected);
                came += 1;
            }
        }
    }

    /// Both formats in turns, in each order of four, until there is no room, again and again.
    #[test]
    fn both_formats_in_a_full_ring() {
        let messages = [(SHORT, 20), (SHORT, 112), (LONG, 30), (LONG, 113), (LONG, 180)];
        for order in (0..5usize.pow(4)).step_by(if cfg!(miri) { 313 } else { 1 }) {
            let (mut producer, mut consumer, consumed) = ring(16);
            let report = Report { consumed: &consumed };
            let message = |n: usize| {
                let (kind, len) = messages[order / 5usize.pow(n as u32 % 4) % 5];
                // Where a cell begins in the contiguous ones, there is a header of the next lap.
                let mut bytes = header(2 * LAP, SHORT, n % 100).to_ne_bytes().repeat(len / 8 + 1);
                bytes.truncate(len);
                (kind, bytes)
            };
            let (mut sent, mut came) = (0, 0);
            for _ in 0..8 {
                while let (kind, bytes) = message(sent)
                    && send(&mut producer, report, kind, &bytes)
                {
                    sent += 1;
                }
                let last = if sent % 3 == 0 { sent } else { sent.min(came + 3) };
                while came < last {
                    let (kind, bytes, _) = receive(&mut consumer, report).unwrap().unwrap();
                    assert_eq!((kind, bytes), message(came), "message {came} of order {order}");
                    came += 1;
                }
            }
            while let Some((kind, bytes, _)) = receive(&mut consumer, report).unwrap() {
                assert_eq!((kind, bytes), message(came));
                came += 1;
            }
            assert!(came == sent && sent > 16);
        }
    }

    /// The cell in front of one that began with payload in the lap before is not written plainly.
    #[test]
    fn payload_of_the_lap_before_is_cleared() {
        let (mut producer, mut consumer, consumed) = ring(8);
        let report = Report { consumed: &consumed };
        // Where the second cell of this message begins, there is a header of the next lap.
        let mut forged = [0; 64];
        forged[56..].copy_from_slice(&header(2 * LAP, SHORT, 3).to_ne_bytes());
        for (kind, bytes) in [
            (SHORT, &[0][..]),
            (SHORT, &[1]),
            (LONG, &forged),
            (SHORT, &[4]),
            (SHORT, &[5]),
            (SHORT, &[6]),
            (SHORT, &[7]),
        ] {
            assert!(send(&mut producer, report, kind, bytes));
            assert!(receive(&mut consumer, report).unwrap().is_some());
        }
        // The first one is where the sender learns of the room.
        for (n, plain) in [(0u8, false), (1, true), (2, false), (3, true)] {
            assert_eq!(producer.send_one(&[n]), plain);
            assert!(plain || send(&mut producer, report, SHORT, &[n]));
            assert_eq!(receive(&mut consumer, report), Ok(Some((SHORT, vec![n], true))));
            assert!(consumer.is_empty(), "the forged header was cleared");
        }
    }

    /// A second cell over one that began with payload: nothing of it is left.
    #[test]
    fn a_second_cell_takes_the_place_of_payload() {
        let (mut producer, mut consumer, consumed) = ring(8);
        let report = Report { consumed: &consumed };
        // Where the second cell of the first message begins: a header of the next lap but one.
        let mut forged = [0; 64];
        forged[56..].copy_from_slice(&header(3 * LAP, SHORT, 3).to_ne_bytes());
        for (kind, bytes) in
            [(LONG, &forged[..]), (SHORT, &[2; 60]), (SHORT, &[4; 60]), (SHORT, &[6; 60])]
        {
            assert!(send(&mut producer, report, kind, bytes));
            assert!(receive(&mut consumer, report).unwrap().is_some());
        }
        assert!(!producer.send_two(&[8; 60]), "it has to be told of the room, and of the payload");
        for len in [60, 60, 60, 60, 1, 1] {
            assert!(send(&mut producer, report, SHORT, &vec![7; len]));
            assert_eq!(receive(&mut consumer, report), Ok(Some((SHORT, vec![7; len], true))));
            assert!(consumer.is_empty(), "the forged header is gone");
        }
    }

    #[test]
    fn a_first_look_sees_nothing_else() {
        let memory = Heap::new(8);
        let mut consumer = Consumer::new(memory.clone(), part(8));
        let look = |consumer: &Consumer<Heap>, cell: u64, word: u64| {
            memory.cell(cell)[0].store(word, Ordering::Relaxed);
            (consumer.peek_short(), !consumer.is_empty())
        };
        for len in [0, 1, LINE, LINE + 1, MAX_SHORT] {
            assert_eq!(
                look(&consumer, 0, header(LAP, SHORT, len)),
                (Some((len, cells_for(len))), true)
            );
        }
        for other in [MAX_SHORT + 1, 0xFF_FFFF].map(|len| header(LAP, SHORT, len)) {
            assert_eq!(look(&consumer, 0, other), (None, true));
        }
        for other in [header(LAP, LONG, 1), header(LAP, 0, 1), header(LAP, PAD, 0)] {
            assert_eq!(look(&consumer, 0, other), (None, true));
        }
        for nothing in [0, header(2 * LAP, SHORT, 1), header(0, SHORT, 1), u64::MAX] {
            assert_eq!(look(&consumer, 0, nothing), (None, false));
        }
        // In the last cell there is room for one line, and not for two.
        let consumed = AtomicU64::new(0);
        consumer.advance(7, Report { consumed: &consumed });
        assert_eq!(look(&consumer, 7, header(LAP, SHORT, LINE)), (Some((LINE, 1)), true));
        assert_eq!(look(&consumer, 7, header(LAP, SHORT, LINE + 1)), (None, true));
        let (len, cell, cells, max) = (LINE + 1, 7, 8, MAX_SHORT);
        assert_eq!(consumer.peek(), Err(RingError::Length { len, cell, cells, max }));
    }

    /// What a second cell begins with is never taken for a header: not when its message is read,
    /// and, as an honest sender leaves it, not in the next lap.
    #[test]
    fn a_second_cell_is_no_message() {
        let memory = Heap::new(8);
        let (mut producer, consumed) = (producer(&memory), AtomicU64::new(0));
        let mut consumer = Consumer::new(memory.clone(), part(8));
        let report = Report { consumed: &consumed };
        assert!(producer.send_two(&[3; 100]));
        assert_eq!(memory.cell(1)[0].load(Ordering::Relaxed), 0);
        memory.cell(1)[0].store(header(LAP, PAD, 77), Ordering::Relaxed);
        assert_eq!(receive(&mut consumer, report), Ok(Some((SHORT, vec![3; 100], true))));
        assert_eq!(receive(&mut consumer, report), Ok(None));
        // Lines are one lap old where the next lap's headers are expected.
        for n in 0..30 {
            let len = if n % 3 == 0 { 9 } else { 90 };
            assert!(send(&mut producer, report, SHORT, &vec![n; len]));
            let (_, bytes, _) = receive(&mut consumer, report).unwrap().unwrap();
            assert_eq!(bytes, vec![n; len]);
            assert_eq!((consumer.is_empty(), consumer.peek_short()), (true, None));
        }
    }
}

#[cfg(loom)]
mod interleavings {
    use super::*;
    use crate::sync::Ordering;
    use loom::{sync::Arc, thread};

    /// All interleavings with a preemption or two.
    fn explore(check: impl Fn() + Sync + Send + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.max_branches = 20_000;
        model.check(check);
    }

    /// Waits for something.
    fn wait<T>(mut look: impl FnMut() -> Option<T>) -> T {
        loop {
            match look() {
                Some(found) => return found,
                None => thread::yield_now(),
            }
        }
    }

    fn send_at_last(producer: &mut Producer<Heap>, report: Report<'_>, kind: u8, bytes: &[u8]) {
        wait(|| send(producer, report, kind, bytes).then_some(()));
    }

    fn receive_at_last(consumer: &mut Consumer<Heap>, report: Report<'_>) -> (u8, Vec<u8>) {
        let (kind, bytes, _) = wait(|| receive(consumer, report).unwrap());
        (kind, bytes)
    }

    /// Messages of both formats, around the end of the ring: each arrives whole, in order.
    #[test]
    fn messages_arrive_whole() {
        explore(|| {
            let memory = Heap::new(8);
            let consumed = Arc::new(AtomicU64::new(0));
            let mut producer = producer(&memory);
            let mut consumer = Consumer::new(memory, part(8));
            // The ring has gone around once when the other thread begins.
            let report = Report { consumed: &consumed };
            for _ in 0..3 {
                let long = [0x01; 100];
                assert!(send(&mut producer, report, LONG, &long));
                let incoming = consumer.peek().unwrap().unwrap();
                consumer.finish(incoming, report);
            }
            let theirs = consumed.clone();
            let sender = thread::spawn(move || {
                let report = Report { consumed: &theirs };
                for (kind, len) in [(SHORT, 4), (LONG, 60), (SHORT, 60)] {
                    send_at_last(&mut producer, report, kind, &vec![kind; len]);
                }
            });
            for (kind, len) in [(SHORT, 4), (LONG, 60), (SHORT, 60)] {
                let came = receive_at_last(&mut consumer, report);
                assert_eq!(came, (kind, vec![kind; len]));
            }
            sender.join().unwrap();
        });
    }

    /// A long message, announced in one ring and in parts in the other, and what follows it.
    #[test]
    fn parts_arrive_whole() {
        explore(|| {
            let rings = [Heap::new(8), Heap::new(8)];
            let consumed = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
            let [mut short, mut long] = rings.each_ref().map(producer);
            let [mut first, mut parts] = rings.map(|ring| Consumer::new(ring, 240));
            let theirs = consumed.clone();
            let sender = thread::spawn(move || {
                let [of_short, of_long] = theirs.each_ref().map(|consumed| Report { consumed });
                assert!(long.has_room_for(of_long, 130).unwrap());
                short.announce(LONG, 130);
                long.send_parts(LONG, &[Piece::of(&[7; 130])], 130);
                assert!(send(&mut short, of_short, SHORT, &[9]));
            });
            let [of_first, of_parts] = consumed.each_ref().map(|consumed| Report { consumed });
            let announced = wait(|| first.peek().unwrap());
            assert!(announced.announced && announced.len == 130);
            first.finish(announced, of_first);
            let mut bytes = Vec::new();
            while bytes.len() < announced.len {
                bytes.extend(receive_at_last(&mut parts, of_parts).1);
            }
            assert_eq!(bytes, [7; 130]);
            assert_eq!(receive_at_last(&mut first, of_first), (SHORT, vec![9]));
            sender.join().unwrap();
        });
    }

    /// Short messages alone, from the last cells of a full ring into the next lap: the sender goes
    /// on when room was reported, and never over what was not read.
    #[test]
    fn short_messages_wait_for_room() {
        explore(|| {
            let memory = Heap::new(8);
            let consumed = Arc::new(AtomicU64::new(0));
            let mut producer = producer(&memory);
            let mut consumer = Consumer::new(memory, part(8));
            let report = Report { consumed: &consumed };
            for n in 0..7 {
                assert!(send(&mut producer, report, SHORT, &[n; 9]));
            }
            let theirs = consumed.clone();
            let sender = thread::spawn(move || {
                let report = Report { consumed: &theirs };
                for n in 7..10 {
                    send_at_last(&mut producer, report, SHORT, &[n; 9]);
                }
            });
            for n in 0..10 {
                let came = receive_at_last(&mut consumer, report);
                assert_eq!(came.1, [n; 9]);
            }
            sender.join().unwrap();
        });
    }

    /// Two lines over what was two lines, and payload, in the lap before: nothing old is taken for
    /// new.
    #[test]
    fn lines_follow_lines() {
        explore(|| {
            let memory = Heap::new(8);
            let consumed = Arc::new(AtomicU64::new(0));
            let mut producer = producer(&memory);
            let mut consumer = Consumer::new(memory, part(8));
            let report = Report { consumed: &consumed };
            for kind in [SHORT, SHORT, LONG] {
                assert!(send(&mut producer, report, kind, &[1; 60]));
                assert!(receive(&mut consumer, report).unwrap().is_some());
            }
            let theirs = consumed.clone();
            let sender = thread::spawn(move || {
                let report = Report { consumed: &theirs };
                // The last two cells, the first of the next lap, and two in other places.
                for len in [57, 1, 58] {
                    send_at_last(&mut producer, report, SHORT, &vec![2; len]);
                }
            });
            for len in [57, 1, 58] {
                let came = receive_at_last(&mut consumer, report);
                assert_eq!(came.1, vec![2; len]);
            }
            sender.join().unwrap();
        });
    }

    /// A sender that waits for room either finds it or is rung, as `Pair` does it: the sender says
    /// that it waits, fences, and looks again; the receiver reports, fences, and looks whether it
    /// waits.
    #[test]
    fn nobody_waits_for_room_that_is_there() {
        use crate::sync::fence;
        explore(|| {
            let memory = Heap::new(8);
            let [consumed, waits, rung] = [(); 3].map(|()| Arc::new(AtomicU64::new(0)));
            let mut producer = producer(&memory);
            let mut consumer = Consumer::new(memory, part(8));
            let report = Report { consumed: &consumed };
            let mut sent = 0;
            while send(&mut producer, report, SHORT, &[sent; 9]) {
                sent += 1;
            }
            let theirs = (consumed.clone(), waits.clone(), rung.clone());
            let receiver = thread::spawn(move || {
                let (consumed, waits, rung) = theirs;
                let report = Report { consumed: &consumed };
                for _ in 0..2 {
                    let len = consumer.next().one().expect("it is full");
                    let _ = bytes_of((0..LINE / 8).map(consumer.words()), len);
                    if consumer.advance(1, report) {
                        fence(Ordering::SeqCst);
                        if Flag(&waits).take() {
                            rung.store(1, Ordering::Relaxed);
                        }
                    }
                }
            });
            Flag(&waits).raise();
            fence(Ordering::SeqCst);
            let sent = send(&mut producer, report, SHORT, &[7; 9]);
            receiver.join().unwrap();
            assert!(sent || rung.load(Ordering::Relaxed) == 1);
        });
    }

    /// A receiver that falls asleep while something is published either sees it or is rung.
    #[test]
    fn nobody_sleeps_through_a_message() {
        use crate::sync::fence;
        loom::model(|| {
            let memory = Heap::new(8);
            let [consumed, asleep, rung] = [(); 3].map(|()| Arc::new(AtomicU64::new(0)));
            let mut producer = producer(&memory);
            let mut consumer = Consumer::new(memory, part(8));
            let theirs = (consumed, asleep.clone(), rung.clone());
            let sender = thread::spawn(move || {
                let (consumed, asleep, rung) = theirs;
                let report = Report { consumed: &consumed };
                assert!(send(&mut producer, report, SHORT, &[5]));
                fence(Ordering::SeqCst);
                if Flag(&asleep).take() {
                    rung.store(1, Ordering::Relaxed);
                }
            });
            Flag(&asleep).raise();
            fence(Ordering::SeqCst);
            let seen = consumer.peek().unwrap().is_some();
            sender.join().unwrap();
            assert!(seen || rung.load(Ordering::Relaxed) == 1);
        });
    }
}

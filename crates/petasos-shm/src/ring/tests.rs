//! The ring against a plain queue, against garbage, and, under loom, in every interleaving.

use super::*;
#[cfg(not(loom))]
use crate::sync::Ordering;

/// The first lap, and the step from one to the next.
#[cfg(not(loom))]
const LAP: u64 = 1 << 32;

/// Sends as the transport does: the short way, and the long one where that is refused.
fn send(producer: &mut Producer<Heap>, report: Report<'_>, kind: u8, bytes: &[u8]) -> bool {
    producer.send_short(kind, bytes)
        || producer.send(report, kind, &[bytes], bytes.len()).expect("honest reports")
}

/// Receives as the transport does, with an eye on short messages of this kind. What it was, and
/// whether that was seen at the first look.
fn receive(
    consumer: &mut Consumer<Heap>,
    report: Report<'_>,
    kind: u8,
) -> Result<Option<(u8, Vec<u8>, bool)>, RingError> {
    let seen = consumer.look(kind);
    if let Some(len) = seen.short() {
        let bytes = consumer.words().map(u64::to_ne_bytes).as_flattened()[..len].to_vec();
        consumer.advance(1, report);
        return Ok(Some((kind, bytes, true)));
    }
    let Some(incoming) = consumer.peek()? else { return Ok(None) };
    let mut bytes = vec![0; incoming.len];
    consumer.read(&incoming, 0, &mut bytes);
    consumer.finish(incoming, report);
    Ok(Some((incoming.kind, bytes, false)))
}

#[cfg(not(loom))]
mod model {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// Operations in all, over the cases: more with `PETASOS_RING_OPERATIONS`.
    fn operations() -> usize {
        let wanted = std::env::var("PETASOS_RING_OPERATIONS").ok();
        wanted.and_then(|n| n.parse().ok()).unwrap_or(100_000)
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
        let len = prop_oneof![0..=8usize, 40..=FIRST + 2, 0..=max, Just(max)];
        prop_oneof![
            4 => (1..PAD, len, any::<u8>()).prop_map(|(kind, len, fill)| Step::Send { kind, len, fill }),
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
        let mut producer = Producer::new(memory.clone());
        let mut consumer = Consumer::new(memory, max_packet(cells));
        let mut model: VecDeque<(u8, Vec<u8>)> = VecDeque::new();
        for step in steps {
            match step {
                Step::Send { kind, len, fill } => {
                    let bytes = payload(*len, *fill, lap_of(producer.head(), cells as u64));
                    let (a, b) = bytes.split_at(len / 3);
                    let sent = match fill % 4 {
                        0 => producer.send(report, *kind, &[a, b], *len).unwrap(),
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
                    // Of two kinds in three the short ones are expected as such.
                    let hint =
                        model.front().map_or(1, |front| front.0 - u8::from(front.0 % 3 == 2));
                    let Some((kind, got, short)) = receive(&mut consumer, report, hint).unwrap()
                    else {
                        assert!(model.is_empty());
                        continue;
                    };
                    let (expected, bytes) = model.pop_front().expect("a message out of nothing");
                    assert_eq!((kind, &got), (expected, &bytes));
                    assert_eq!(short, kind == hint && got.len() <= FIRST);
                }
            }
        }
    }

    #[test]
    fn like_a_queue() {
        let each = 500;
        let cases = u32::try_from(operations().div_ceil(each)).unwrap();
        let config = ProptestConfig { cases, failure_persistence: None, ..Default::default() };
        let sizes = prop_oneof![Just(8usize), Just(16), Just(64), Just(2048)];
        let runs = sizes.prop_flat_map(move |cells| {
            let steps = proptest::collection::vec(step(max_packet(cells)), each);
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
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// Whatever a hostile sender writes: no panic, nothing beyond the ring, and an end.
        #[test]
        fn garbage_is_harmless(words in proptest::collection::vec(any::<u64>(), 128), lap in 1u32..4) {
            let memory = Heap::new(16);
            for (i, word) in words.iter().enumerate() {
                // Half of the words get the right lap, and a length that may fit.
                let forged = word & 0xFF00_07FF | u64::from(lap) << 32;
                memory.cell(i as u64 / 8)[i % 8].store(if i % 3 == 0 { forged } else { *word }, Ordering::Relaxed);
            }
            let consumed = AtomicU64::new(0);
            let mut consumer = Consumer::new(memory, max_packet(16));
            for _ in 0..1000 {
                let report = Report { consumed: &consumed };
                let Ok(Some(_)) = receive(&mut consumer, report, 1) else { break };
            }
        }

        /// Whatever a hostile receiver reports: an error, or room that is really in the ring.
        #[test]
        fn wrong_reports_are_harmless(reports in proptest::collection::vec(any::<u64>(), 50)) {
            let memory = Heap::new(16);
            let mut producer = Producer::new(memory);
            for report in reports {
                let consumed = AtomicU64::new(report % 64);
                let report = Report { consumed: &consumed };
                for len in [0, 56, 57, max_packet(16)] {
                    let bytes = vec![7; len];
                    if !producer.send_short(1, &bytes) {
                        let _ = producer.send(report, 1, &[&bytes], len);
                    }
                }
            }
        }
    }

    #[test]
    fn violations_are_named() {
        let memory = Heap::new(16);
        let mut consumer = Consumer::new(memory.clone(), 100);
        memory.cell(0)[0].store(header(LAP, 9, 101), Ordering::Relaxed);
        assert!(matches!(consumer.peek(), Err(RingError::Length { len: 101, .. })));
        memory.cell(0)[0].store(header(LAP, 0, 1), Ordering::Relaxed);
        assert_eq!(consumer.peek(), Err(RingError::Kind(0)));
        memory.cell(0)[0].store(header(LAP, PAD, 0), Ordering::Relaxed);
        assert_eq!(consumer.peek(), Err(RingError::Pad(0)));
        memory.cell(0)[0].store(header(2 * LAP, 9, 1), Ordering::Relaxed);
        assert_eq!(consumer.peek(), Ok(None), "not yet");
        let consumed = AtomicU64::new(1);
        let mut producer = Producer::new(memory);
        let mut sent = Ok(true);
        while sent == Ok(true) {
            sent = producer.send(Report { consumed: &consumed }, 1, &[], 0);
        }
        consumed.store(99, Ordering::Relaxed);
        let sent = producer.send(Report { consumed: &consumed }, 1, &[], 0);
        assert!(matches!(sent, Err(RingError::Consumed { reported: 99, .. })));
    }
}

/// The short way, where it begins and ends.
#[cfg(not(loom))]
mod edges {
    use super::*;

    fn ring(cells: usize) -> (Producer<Heap>, Consumer<Heap>, AtomicU64) {
        let memory = Heap::new(cells);
        let consumer = Consumer::new(memory.clone(), max_packet(cells));
        (Producer::new(memory), consumer, AtomicU64::new(0))
    }

    #[test]
    fn every_length() {
        let (mut producer, mut consumer, consumed) = ring(64);
        let report = Report { consumed: &consumed };
        let bytes: Vec<u8> = (1..=FIRST as u8 + 1).collect();
        for len in 0..=FIRST + 1 {
            let bytes = &bytes[..len];
            let short = producer.send_short(9, bytes);
            assert_eq!(short, len <= FIRST);
            assert!(short || producer.send(report, 9, &[bytes], len).unwrap());
            let came = receive(&mut consumer, report, 9).unwrap().unwrap();
            assert_eq!(came, (9, bytes.to_vec(), short));
            assert!(consumer.is_empty() && !consumer.look(9).is_there());
        }
    }

    #[test]
    fn the_last_cell_and_the_next_lap() {
        let (mut producer, mut consumer, consumed) = ring(8);
        let report = Report { consumed: &consumed };
        for n in 0..40u8 {
            let plain = producer.send_short(1, &[n]);
            assert!(plain || send(&mut producer, report, 1, &[n]));
            assert!(!plain || n % 8 != 7, "the lap changes after the last cell");
            assert!(plain || n >= 7, "nothing is in the way of {n}");
            assert_eq!(receive(&mut consumer, report, 1), Ok(Some((1, vec![n], true))));
        }
    }

    #[test]
    fn a_full_ring_goes_on_when_that_is_reported() {
        let (mut producer, mut consumer, consumed) = ring(16);
        let report = Report { consumed: &consumed };
        let (mut sent, mut came) = (0u8, 0u8);
        for _ in 0..10 {
            while send(&mut producer, report, 1, &[sent; 56]) {
                sent += 1;
            }
            assert_eq!(sent - came, 16 - came % 4, "all the room there is");
            // One more than what is reported at once.
            for _ in 0..5 {
                let expected = Ok(Some((1, vec![came; 56], true)));
                assert_eq!(receive(&mut consumer, report, 1), expected);
                came += 1;
            }
        }
    }

    /// The cell in front of one that began with payload in the lap before is not written plainly.
    #[test]
    fn payload_of_the_lap_before_is_cleared() {
        let (mut producer, mut consumer, consumed) = ring(8);
        let report = Report { consumed: &consumed };
        // Where the second cell of this message begins, there is a header of the next lap.
        let mut forged = [0; 64];
        forged[56..].copy_from_slice(&header(2 * LAP, 1, 3).to_ne_bytes());
        for bytes in [&[0], &[1], &forged[..], &[4], &[5], &[6], &[7]] {
            assert!(send(&mut producer, report, 1, bytes));
            assert!(receive(&mut consumer, report, 1).unwrap().is_some());
        }
        // The first one is where the sender learns of the room.
        for (n, plain) in [(0u8, false), (1, true), (2, false), (3, true)] {
            assert_eq!(producer.send_short(1, &[n]), plain);
            assert!(plain || send(&mut producer, report, 1, &[n]));
            assert_eq!(receive(&mut consumer, report, 1), Ok(Some((1, vec![n], true))));
            assert!(consumer.is_empty(), "the forged header was cleared");
        }
    }

    #[test]
    fn a_first_look_sees_nothing_else() {
        let memory = Heap::new(8);
        let consumer = Consumer::new(memory.clone(), max_packet(8));
        let look = |word| {
            memory.cell(0)[0].store(word, Ordering::Relaxed);
            let seen = consumer.look(1);
            (seen.short(), seen.is_there())
        };
        assert_eq!(look(header(LAP, 1, 0)), (Some(0), true));
        assert_eq!(look(header(LAP, 1, FIRST)), (Some(FIRST), true));
        for other in [header(LAP, 1, FIRST + 1), header(LAP, 1, 0xFF_FFFF), header(LAP, 2, 1)] {
            assert_eq!(look(other), (None, true));
        }
        for other in [header(LAP, 0, 1), header(LAP, PAD, 0)] {
            assert_eq!(look(other), (None, true));
        }
        for nothing in [0, header(2 * LAP, 1, 1), header(0, 1, 1), u64::MAX] {
            assert_eq!(look(nothing), (None, false));
        }
    }
}

#[cfg(loom)]
mod interleavings {
    use super::*;
    use loom::{sync::Arc, thread};

    /// Messages of one cell and of two, around the end of the ring: each arrives whole, in order.
    #[test]
    fn messages_arrive_whole() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.max_branches = 20_000;
        model.check(|| {
            let memory = Heap::new(8);
            let consumed = Arc::new(AtomicU64::new(0));
            let mut producer = Producer::new(memory.clone());
            let mut consumer = Consumer::new(memory, max_packet(8));
            // The ring has gone around once when the other thread begins.
            let report = Report { consumed: &consumed };
            for _ in 0..3 {
                let long = [0x01; 100];
                assert_eq!(producer.send(report, 3, &[&long], 100), Ok(true));
                let incoming = consumer.peek().unwrap().unwrap();
                consumer.finish(incoming, report);
            }
            let theirs = consumed.clone();
            let sender = thread::spawn(move || {
                let report = Report { consumed: &theirs };
                for (kind, len) in [(1, 4), (2, 60), (4, 2)] {
                    while !send(&mut producer, report, kind, &vec![kind; len]) {
                        thread::yield_now();
                    }
                }
            });
            for (kind, len) in [(1, 4), (2, 60), (4, 2)] {
                let (came, bytes, short) = loop {
                    match receive(&mut consumer, report, kind).unwrap() {
                        Some(came) => break came,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!((came, bytes), (kind, vec![kind; len]));
                assert!(!short || len <= FIRST);
            }
            sender.join().unwrap();
        });
    }

    /// Short messages alone, from the last cells of a full ring into the next lap: the sender goes
    /// on when room was reported, and never over what was not read.
    #[test]
    fn short_messages_wait_for_room() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.max_branches = 20_000;
        model.check(|| {
            let memory = Heap::new(8);
            let consumed = Arc::new(AtomicU64::new(0));
            let mut producer = Producer::new(memory.clone());
            let mut consumer = Consumer::new(memory, max_packet(8));
            let report = Report { consumed: &consumed };
            for n in 0..7 {
                assert!(send(&mut producer, report, 1, &[n; 9]));
            }
            let theirs = consumed.clone();
            let sender = thread::spawn(move || {
                let report = Report { consumed: &theirs };
                for n in 7..10 {
                    while !send(&mut producer, report, 1, &[n; 9]) {
                        thread::yield_now();
                    }
                }
            });
            for n in 0..10 {
                let came = loop {
                    match receive(&mut consumer, report, 1).unwrap() {
                        Some(came) => break came,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!(came.1, [n; 9]);
            }
            sender.join().unwrap();
        });
    }

    /// Whoever falls asleep while something is published either sees it or is rung.
    #[test]
    fn nobody_sleeps_through_a_message() {
        use crate::sync::{Ordering, fence};
        loom::model(|| {
            let memory = Heap::new(8);
            let [consumed, asleep, rung] = [(); 3].map(|()| Arc::new(AtomicU64::new(0)));
            let mut producer = Producer::new(memory.clone());
            let mut consumer = Consumer::new(memory, max_packet(8));
            let theirs = (consumed, asleep.clone(), rung.clone());
            let sender = thread::spawn(move || {
                let (consumed, asleep, rung) = theirs;
                let report = Report { consumed: &consumed };
                assert_eq!(producer.send(report, 1, &[&[5]], 1), Ok(true));
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

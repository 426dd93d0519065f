//! The ring against a plain queue, against garbage, and, under loom, in every interleaving.

use super::*;
#[cfg(not(loom))]
use crate::sync::Ordering;

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
    fn payload(len: usize, fill: u8, lap: u32) -> Vec<u8> {
        let forged = header(lap.wrapping_add(u32::from(fill % 3)), 7, usize::from(fill));
        let mut out: Vec<u8> = forged.to_le_bytes().into_iter().cycle().take(len).collect();
        out.iter_mut().skip(1).step_by(97).for_each(|byte| *byte ^= fill);
        out
    }

    fn agree(cells: usize, steps: &[Step]) {
        let memory = Heap::new(cells * WORDS);
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
                    if producer.send(report, *kind, &[a, b], *len).unwrap() {
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
                    let Some(incoming) = consumer.peek().unwrap() else {
                        assert!(model.is_empty());
                        continue;
                    };
                    let (kind, expected) = model.pop_front().expect("a message out of nothing");
                    let mut got = vec![0; incoming.len];
                    consumer.read(&incoming, 0, &mut got);
                    consumer.finish(incoming, report);
                    assert_eq!((incoming.kind, &got), (kind, &expected));
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
            let memory = Heap::new(128);
            for (i, word) in words.iter().enumerate() {
                // Half of the words get the right lap, and a length that may fit.
                let forged = word & 0xFF00_07FF | u64::from(lap) << 32;
                memory.word(i).store(if i % 3 == 0 { forged } else { *word }, Ordering::Relaxed);
            }
            let consumed = AtomicU64::new(0);
            let mut consumer = Consumer::new(memory, max_packet(16));
            for _ in 0..1000 {
                let Ok(Some(incoming)) = consumer.peek() else { break };
                let mut bytes = vec![0; incoming.len];
                consumer.read(&incoming, 0, &mut bytes);
                consumer.finish(incoming, Report { consumed: &consumed });
            }
        }

        /// Whatever a hostile receiver reports: an error, or room that is really in the ring.
        #[test]
        fn wrong_reports_are_harmless(reports in proptest::collection::vec(any::<u64>(), 50)) {
            let memory = Heap::new(128);
            let mut producer = Producer::new(memory);
            for report in reports {
                let consumed = AtomicU64::new(report % 64);
                let report = Report { consumed: &consumed };
                for len in [0, 56, 57, max_packet(16)] {
                    let _ = producer.send(report, 1, &[&vec![7; len]], len);
                }
            }
        }
    }

    #[test]
    fn violations_are_named() {
        let memory = Heap::new(128);
        let mut consumer = Consumer::new(memory.clone(), 100);
        memory.word(0).store(header(1, 9, 101), Ordering::Relaxed);
        assert!(matches!(consumer.peek(), Err(RingError::Length { len: 101, .. })));
        memory.word(0).store(header(1, 0, 1), Ordering::Relaxed);
        assert_eq!(consumer.peek(), Err(RingError::Kind(0)));
        memory.word(0).store(header(1, PAD, 0), Ordering::Relaxed);
        assert_eq!(consumer.peek(), Err(RingError::Pad(0)));
        memory.word(0).store(header(2, 9, 1), Ordering::Relaxed);
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
            let memory = Heap::new(8 * WORDS);
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
                    while !producer.send(report, kind, &[&vec![kind; len]], len).unwrap() {
                        thread::yield_now();
                    }
                }
            });
            for (kind, len) in [(1, 4), (2, 60), (4, 2)] {
                let incoming = loop {
                    match consumer.peek().unwrap() {
                        Some(incoming) => break incoming,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!((incoming.kind, incoming.len), (kind, len));
                let mut bytes = vec![0; len];
                consumer.read(&incoming, 0, &mut bytes);
                assert_eq!(bytes, vec![kind; len]);
                if len <= FIRST {
                    assert_eq!(consumer.first(&incoming)[..len], bytes);
                }
                consumer.finish(incoming, report);
            }
            sender.join().unwrap();
        });
    }

    /// Whoever falls asleep while something is published either sees it or is rung.
    #[test]
    fn nobody_sleeps_through_a_message() {
        use crate::sync::{Ordering, fence};
        loom::model(|| {
            let memory = Heap::new(8 * WORDS);
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

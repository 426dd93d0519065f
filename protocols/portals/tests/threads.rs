//! Several threads that start operations, wait, and read counters and queues of one interface at
//! once, with an engine and without.

mod common;

use common::*;
use petasos_portals::*;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

const LONG: Duration = Duration::from_secs(30);

#[test]
fn four_threads_start_wait_and_read_at_once() {
    for (over, engines) in [(Over::Shm, false), (Over::Shm, true), (Over::Tcp, true)] {
        let job = Job::new(over, 2);
        let (a, b) = (&job.ranks[0], &job.ranks[1]);
        let door = door(b);
        let total = b.counter().unwrap();
        let counted = MatchEntry {
            counter: Some(total),
            counts: Counts::COMMUNICATION,
            quiet: Quiet::COMMUNICATION,
            ..MatchEntry::new(vec![0; 8])
        };
        append(b, &door, List::Priority, counted);
        let started = engines.then(|| [a, b].map(|end| Engine::start(end).unwrap()));
        let over_all = AtomicBool::new(false);
        let rounds = 300;
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for thread in 0..4_u8 {
                let to = to(1, door.portal, 0);
                threads.push(scope.spawn(move || {
                    let source = source(a, &[thread; 8]);
                    let put = Operation { ack: Ack::Full, ..Operation::put(source.part, to) };
                    for round in 0..rounds {
                        a.start(put).unwrap();
                        for _ in 0..2 {
                            let event = a.wait_event(source.queue, LONG);
                            event.unwrap_or_else(|error| panic!("{thread}, {round}: {error}"));
                        }
                        assert_eq!(a.take_event(source.queue).unwrap_err(), Error::Empty);
                    }
                }));
            }
            // The target: some threads wait for counts, one reads them, and they never go back.
            for part in 1..=2 {
                threads.push(scope.spawn(move || {
                    let wanted = 4 * rounds * part / 2;
                    let count = b.wait_count(total, wanted, LONG).unwrap();
                    assert!(count.success >= wanted && count.failure == 0, "{count:?}");
                }));
            }
            let done = &over_all;
            scope.spawn(move || {
                let mut last = 0;
                while !done.load(Ordering::Relaxed) {
                    let count = b.count(total).unwrap();
                    assert!(count.success >= last && count.failure == 0, "{count:?}");
                    last = count.success;
                    std::thread::yield_now();
                }
            });
            // The target's last answers need a driver.
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    b.progress();
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            over_all.store(true, Ordering::Relaxed);
            assert!(outcomes.iter().all(Result::is_ok), "{over:?}, engines: {engines}");
        });
        assert_eq!(b.count(total).unwrap(), Count::of(4 * rounds));
        drop(started);
    }
}

/// A thread that sleeps on the endpoint is woken by what another thread does, which the endpoint
/// knows nothing of.
#[test]
fn a_count_by_another_thread_ends_a_sleep() {
    let job = Job::with(Over::Shm, 1, |_, config| config.idle = Idle::Sleep);
    let interface = &job.ranks[0];
    let (mine, other) = (interface.counter().unwrap(), interface.counter().unwrap());
    for engine in [false, true] {
        let engine = engine.then(|| Engine::start(interface).unwrap());
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for counter in [mine, other] {
                scope.spawn(move || interface.wait_count(counter, 1, LONG).unwrap());
                std::thread::sleep(Duration::from_millis(20));
            }
            for counter in [mine, other] {
                interface.add(counter, Count::of(1)).unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        assert!(begin.elapsed() < LONG / 2);
        for counter in [mine, other] {
            interface.set(counter, Count::of(0)).unwrap();
        }
        drop(engine);
    }
}

/// Readers take no lock: they are answered while another thread has it.
#[test]
fn counters_and_empty_queues_are_read_while_another_thread_has_the_lock() {
    let job = Job::new(Over::Local, 1);
    let interface = &job.ranks[0];
    let (counter, queue) = (interface.counter().unwrap(), interface.queue(4).unwrap());
    let data = Part::of(interface.bind(Descriptor::new(vec![0; 8])).unwrap(), 8);
    let door = door(interface);
    let put = Operation::put(data, to(0, door.portal, 1));
    interface.add(counter, Count::of(3)).unwrap();
    let (holds, held) = std::sync::mpsc::channel();
    let (read, reads) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // The operations are made under the lock.
            let operations = std::iter::once_with(|| {
                holds.send(()).unwrap();
                reads.recv_timeout(LONG).expect("it was read meanwhile");
                put
            });
            interface.start_all(operations).unwrap();
        });
        held.recv().unwrap();
        assert_eq!(interface.count(counter).unwrap(), Count::of(3));
        assert_eq!(interface.wait_count(counter, 2, LONG).unwrap(), Count::of(3));
        assert_eq!(interface.take_event(queue).unwrap_err(), Error::Empty);
        read.send(()).unwrap();
    });
    interface.free_counter(counter).unwrap();
    interface.free_queue(queue).unwrap();
    assert_eq!(interface.count(counter), Err(Error::Handle("a counter")));
    assert_eq!(interface.take_event(queue).unwrap_err(), Error::Handle("an event queue"));
}

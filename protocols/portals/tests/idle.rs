//! Engines with nothing to do sleep, also after there was something, and after others drove.

mod common;

use common::*;
use petasos_portals::*;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// What this process has taken of processors so far.
fn spent() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Half a second in which nothing happens takes less than a third of it, of two engines together.
fn is_quiet(what: &str) {
    std::thread::sleep(Duration::from_millis(50));
    let (begin, before) = (Instant::now(), spent());
    std::thread::sleep(Duration::from_millis(500));
    let (spent, passed) = (spent() - before, begin.elapsed());
    assert!(spent < passed / 3, "{what}: {spent:?} of {passed:?}");
}

#[test]
fn engines_sleep() {
    for over in [Over::Local, Over::Shm, Over::Tcp] {
        let job = Job::new(over, 2);
        let (a, b) = (&job.ranks[0], &job.ranks[1]);
        let engines = [a, b].map(|interface| Engine::start(interface).unwrap());
        is_quiet("from the beginning");
        let door = door(b);
        append(b, &door, List::Priority, MatchEntry::new(vec![0; 64]));
        let source = source(a, &[1; 8]);
        let put = Operation::put(source.part, to(1, door.portal, 0));
        for _ in 0..1000 {
            a.start(Operation { ack: Ack::Full, ..put }).unwrap();
            for _ in 0..2 {
                a.wait_event(source.queue, Duration::from_secs(10)).unwrap();
            }
        }
        is_quiet("after work");
        // A thread that waits for an event that does not come sleeps, too.
        std::thread::scope(|scope| {
            let empty = a.queue(1).unwrap();
            scope.spawn(move || {
                let waited = a.wait_event(empty, Duration::from_millis(700));
                assert_eq!(waited.unwrap_err(), Error::Timeout);
            });
            is_quiet("while a thread waits");
        });
        drop(engines);
        std::thread::scope(|scope| {
            let empty = a.queue(1).unwrap();
            scope.spawn(move || a.wait_event(empty, Duration::from_millis(700)).unwrap_err());
            is_quiet("without an engine");
        });
    }
}

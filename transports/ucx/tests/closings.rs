//! Endpoints that are closed while they still connect: the process lives on.

mod common;

use common::is_here;
use petasos_conformance::{Network as Place, random::Random};
use petasos_datagram::{Config, Mark, Network};
use petasos_fabric::two_sided::Outgoing;
use petasos_testing::{again, role};
use petasos_ucx::Net;
use std::time::{Duration, Instant};

const NAME: &str = "endpoints_that_still_connect_can_be_closed";
const LOOPBACK: Place = Place { scheme: "ucx+tcp", host: "127.0.0.1" };
const MARK: Mark = Mark::Short { link: 0, serial: 0 };
/// What packets carry, besides their heads: in one piece, from where it lies, and in several parts.
const LENGTHS: [usize; 3] = [0, 4000, 60_000];
/// Processes, and endpoints that each of them closes.
const PROCESSES: u64 = 5;
const CLOSINGS: u64 = 20;
/// The seeds of a process begin here.
const FIRST: &str = "PETASOS_CLOSINGS_FIRST";
/// How long a process may take, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
/// An endpoint is closed within that time, and what a busy machine adds.
const AT_MOST: Duration = Duration::from_secs(30);

fn open() -> Net {
    let (kind, _) = Net::kind(&LOOPBACK.anywhere()).unwrap();
    let mut config = Config::default();
    config.sends = 16;
    Net::open(kind, Some(LOOPBACK.host), 64, &config).unwrap()
}

/// One endpoint connects to another, which may do so as well, and they send. One is closed at some
/// moment, while the other stands still.
fn meet_and_part(random: &mut Random) {
    let mut ends = [open(), open()];
    let names = [1, 0].map(|other: usize| ends[other].name().to_vec());
    let mut nodes = [None, ends[1].insert(&names[1]).ok()];
    for _ in 0..random.below(80) {
        let which = random.below(2);
        let end = &mut ends[which];
        match (random.below(16), nodes[which]) {
            (0, None) => nodes[which] = end.insert(&names[which]).ok(),
            (0 | 1, Some(node)) => {
                let payload = vec![2; LENGTHS[random.below(LENGTHS.len())]];
                let _ = end.send(node, &[1; 8], Outgoing::Bytes(payload.into()), MARK);
            }
            _ => drop(end.next()),
        }
        // To be accepted takes a thread of the library's.
        std::thread::yield_now();
    }
    let [end, peer] = ends;
    let begin = Instant::now();
    drop(end);
    assert!(begin.elapsed() < AT_MOST, "{:?}", begin.elapsed());
    // What its connection broke in the middle of something does to it is another matter: see
    // `docs/networks.md`.
    std::mem::forget(peer);
}

#[test]
fn endpoints_that_still_connect_can_be_closed() {
    if role().is_some() {
        let first: u64 = std::env::var(FIRST).unwrap().parse().unwrap();
        return (first..first + CLOSINGS).for_each(|seed| meet_and_part(&mut Random::new(seed)));
    }
    if !is_here(LOOPBACK) {
        return;
    }
    for process in 0..PROCESSES {
        let first = (process * CLOSINGS).to_string();
        let status = again(NAME, "closes").env(FIRST, &first).start().wait(PATIENCE);
        assert!(status.success(), "{status}, from seed {first} on");
    }
}

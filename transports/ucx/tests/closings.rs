//! Endpoints that are closed while they still connect: the process lives on.

mod common;

use common::{CMA, POSIX, is_here};
use petasos_conformance::{Network as Place, random::Random};
use petasos_datagram::{Config, Mark, Network, RemoteOp};
use petasos_fabric::{Access, Region, two_sided::Outgoing};
use petasos_testing::{again, role};
use petasos_ucx::Net;
use std::{
    io::Read,
    os::fd::{AsRawFd, RawFd},
    path::PathBuf,
    time::{Duration, Instant},
};

const NAME: &str = "endpoints_that_still_connect_can_be_closed";
const LOOPBACK: Place = Place { scheme: "ucx+tcp", host: "127.0.0.1" };
const MARK: Mark = Mark::Packet { link: 0, serial: 0 };
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

fn open(place: Place, sends: usize) -> Net {
    let (kind, _) = Net::kind(&place.anywhere()).unwrap();
    let mut config = Config::default();
    config.sends = sends;
    let host = (!place.host.is_empty()).then_some(place.host);
    Net::open(kind, host, 64, &config).unwrap()
}

/// One endpoint connects to another, which may do so as well, and they send. One is closed at some
/// moment, while the other stands still.
fn meet_and_part(random: &mut Random) {
    let mut ends = [open(LOOPBACK, 16), open(LOOPBACK, 16)];
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

/// Puts of a peer that are answered, by the library, into a queue that the peer does not read: more
/// than the queue has room for.
const PUTS: usize = 400;

/// A peer puts into memory of an endpoint and then stands still; the endpoint is closed.
fn owe_answers() {
    // What the library does not set has these bytes: the type of data of a list of pieces.
    let used: Vec<_> = (0..400).map(|_| vec![0x52_u8; 60_000]).collect();
    let kept: Vec<_> = used.into_iter().step_by(8).collect();
    let (mut owner, mut peer) = (open(CMA, 16), open(CMA, PUTS));
    let (to_peer, to_owner) = (owner.insert(peer.name()), peer.insert(owner.name()));
    let (to_peer, to_owner) = (to_peer.unwrap(), to_owner.unwrap());
    let memory = Region::zeroed(4096).whole();
    let opened = owner.open_memory(&memory, Access::ALL).unwrap();
    let key = peer.key(to_owner, &Net::location(&opened)).unwrap();
    // Both connect.
    for (end, node) in [(&mut owner, to_peer), (&mut peer, to_owner)] {
        let payload = Outgoing::Bytes(vec![2; 100].into());
        assert!(end.send(node, &[1; 8], payload, MARK).is_ok());
    }
    for _ in 0..2000 {
        owner.next();
        peer.next();
    }
    let access = Mark::Access { access: 0, serial: 0 };
    let piece = Region::from_vec(vec![3; 8]).whole();
    let put = |peer: &mut Net| peer.access(to_owner, RemoteOp::Put, piece.clone(), &key, 0, access);
    for _ in 0..PUTS {
        if put(&mut peer).is_err() {
            break;
        }
        owner.next();
    }
    for _ in 0..2000 {
        owner.next();
    }
    let begin = Instant::now();
    drop(owner);
    assert!(begin.elapsed() < AT_MOST, "{:?}", begin.elapsed());
    std::mem::forget(peer);
    drop(kept);
}

#[test]
fn an_endpoint_that_owes_answers_to_a_stopped_peer_can_be_closed() {
    const NAME: &str = "an_endpoint_that_owes_answers_to_a_stopped_peer_can_be_closed";
    if role().is_some() {
        return (0..CLOSINGS).for_each(|_| owe_answers());
    }
    if is_here(CMA) {
        let status = again(NAME, "closes").start().wait(PATIENCE);
        assert!(status.success(), "{status}");
    }
}

const NUMBERS: &str = "what_a_peer_opens_by_number_is_no_file_of_the_program";

/// The descriptors of UCX's segments that this process has open.
fn segments() -> Vec<RawFd> {
    let open = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let is_segment = |target: PathBuf| target.to_string_lossy().contains("ucx_shm_posix");
    open.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(is_segment))
        .map(|entry| entry.file_name().to_str().unwrap().parse().unwrap())
        .collect()
}

/// An endpoint ends, and the program opens files; a peer does not know yet, and sends.
fn close_and_open_files() {
    let before = segments();
    let owner = open(POSIX, 16);
    let its_own: Vec<_> = segments().into_iter().filter(|fd| !before.contains(fd)).collect();
    assert!(!its_own.is_empty());
    let mut peer = open(POSIX, 16);
    let node = peer.insert(owner.name()).unwrap();
    drop(owner);
    // Large enough for the peer to map as what it takes them for.
    let file = || {
        let file = tempfile::tempfile().unwrap();
        file.set_len(16 << 20).unwrap();
        file
    };
    let mut files: Vec<_> = (0..64).map(|_| file()).collect();
    let taken = files.iter().filter(|file| its_own.contains(&file.as_raw_fd())).count();
    assert_eq!(taken, 0, "of {its_own:?}");
    for _ in 0..200 {
        let payload = vec![0x77; LENGTHS[1]];
        let _ = peer.send(node, &[1; 8], Outgoing::Bytes(payload.into()), MARK);
        let _ = peer.next();
    }
    let mut read = Vec::new();
    for file in &mut files {
        read.clear();
        file.read_to_end(&mut read).unwrap();
        assert!(read.iter().all(|byte| *byte == 0), "the peer wrote to a file of the program's");
    }
}

#[test]
fn what_a_peer_opens_by_number_is_no_file_of_the_program() {
    if role().is_some() {
        return close_and_open_files();
    }
    if is_here(POSIX) {
        let status = again(NUMBERS, "closes").start().wait(PATIENCE);
        assert!(status.success(), "{status}");
    }
}

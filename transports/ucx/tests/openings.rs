//! Endpoints in whose shared memory another process writes while they are opened: none is waited
//! for without end, and none is deaf.

mod common;

use common::{POSIX, config, is_here, network};
use petasos_conformance::Network as Place;
use petasos_datagram::{Config, Happened, Mark, Network};
use petasos_fabric::{Clock, Endpoint, Event};
use petasos_testing::{again, role};
use petasos_ucx::{Net, OpenError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

const NAME: &str = "a_queue_that_is_written_to_too_early_is_replaced";
const MARK: Mark = Mark::Packet { link: 0, serial: 0 };
const PATIENCE: Duration = Duration::from_secs(60);
/// Endpoints that are opened.
const OPENINGS: usize = 100;
/// A queue of UCX's is shorter, and what else it makes is longer.
const QUEUE: u64 = 1 << 20;

fn open(place: Place) -> Result<Net, OpenError> {
    let (kind, _) = Net::kind(&place.anywhere()).unwrap();
    Net::open(kind, None, 64, &Config::default())
}

/// Queues of that process. What it has open goes on changing.
fn queues(process: u32) -> impl Iterator<Item = File> {
    let all = std::fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    all.filter_map(|entry| {
        let name = std::fs::read_link(entry.path()).ok()?;
        name.to_str()?.contains("/ucx_shm_posix_").then_some(())?;
        let file = OpenOptions::new().read(true).write(true).open(entry.path()).ok()?;
        (1..QUEUE).contains(&file.metadata().ok()?.len()).then_some(file)
    })
}

/// As a peer does that takes the first place in a queue: the first word counts them.
fn take_a_place(queue: &File) {
    let mut head = [0; 8];
    if queue.read_exact_at(&mut head, 0).is_ok() && head == [0; 8] {
        let _ = queue.write_all_at(&1_u64.to_le_bytes(), 0);
    }
}

fn is_heard(net: &mut Net, peer: &mut Net) -> bool {
    let node = net.insert(peer.name()).unwrap();
    net.send_short(node, &[b"a word"], &[], MARK).unwrap();
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        let _ = net.next();
        if let Some(Happened::Packet(_)) = peer.next() {
            return true;
        }
        std::thread::yield_now();
    }
    false
}

/// Opens endpoints, and says how many were opened; the others end with the error for that. Fails if
/// one is opened without end.
fn open_many() {
    let (done, opened) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let opens = |_: &usize| match open(POSIX) {
            Ok(_) => true,
            Err(OpenError::WrittenTo { .. }) => false,
            Err(error) => panic!("{error}"),
        };
        done.send((0..OPENINGS).filter(opens).count())
    });
    match opened.recv_timeout(PATIENCE) {
        Ok(opened) => println!("opened {opened}"),
        Err(_) => std::process::exit(1),
    }
    std::io::stdin().read_line(&mut String::new()).unwrap();
    // No process writes any more.
    assert!(is_heard(&mut open(POSIX).unwrap(), &mut open(POSIX).unwrap()));
}

#[test]
fn a_queue_that_is_written_to_too_early_is_replaced() {
    if role().is_some() {
        return open_many();
    }
    if !is_here(POSIX) {
        return;
    }
    let mut opens = again(NAME, "opens").start();
    let process = opens.id();
    let ends = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&ends);
    let writes = std::thread::spawn(move || {
        while !asked.load(Ordering::Relaxed) {
            queues(process).for_each(|queue| take_a_place(&queue));
        }
    });
    let opened: usize = opens.line("opened ").parse().unwrap();
    eprintln!("{opened} of {OPENINGS} were opened");
    assert!(opened > 0, "each queue was written to too early");
    ends.store(true, Ordering::Relaxed);
    writes.join().unwrap();
    opens.tell("go on");
    assert!(opens.wait(PATIENCE).success());
}

/// Where a process has few descriptors, an endpoint is opened or refused, and no assertion of the
/// library's ends the process.
#[test]
fn few_descriptors() {
    if let Some(limit) = role() {
        let limit = limit.parse().ok();
        setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit }).unwrap();
        for place in [POSIX, network()] {
            let opened = petasos_ucx::open(&place.anywhere(), config(place));
            println!("opened {}", opened.is_ok());
        }
        return;
    }
    if !is_here(POSIX) {
        return;
    }
    for limit in (6..48).step_by(2) {
        let mut process = again("few_descriptors", &limit.to_string()).start();
        for _ in 0..2 {
            process.line("opened ");
        }
    }
}

/// The same when a peer comes: it is connected or refused.
#[test]
fn few_descriptors_when_a_peer_comes() {
    if role().is_some() {
        return meet_with_few();
    }
    if is_here(POSIX) {
        again("few_descriptors_when_a_peer_comes", "meets").start().line("met");
    }
}

fn meet_with_few() {
    for place in [POSIX, network()] {
        for left in 0..12 {
            let mut ends =
                [(); 2].map(|()| petasos_ucx::open(&place.anywhere(), config(place)).unwrap());
            let to = ends[1].address().clone();
            let limit = Rlimit { current: Some(150), maximum: getrlimit(Resource::Nofile).maximum };
            setrlimit(Resource::Nofile, limit).unwrap();
            let null = File::open("/dev/null").unwrap();
            let mut taken: Vec<File> = std::iter::from_fn(|| null.try_clone().ok()).collect();
            taken.truncate(taken.len().saturating_sub(left));
            ends[0].resolve(&to, Duration::from_millis(50)).unwrap();
            let (clock, mut events, end) = (Clock::start(), Vec::new(), Instant::now() + PATIENCE);
            let is_over =
                |event: &Event| matches!(event, Event::PeerUp { .. } | Event::PeerLost { .. });
            while !events.iter().any(is_over) {
                for end in &mut ends {
                    end.progress(clock.now(), 64, &mut events);
                }
                assert!(Instant::now() < end, "neither up nor lost");
            }
        }
    }
    println!("met");
}

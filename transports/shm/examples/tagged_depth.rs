//! What an expected message costs behind receives that were posted before it: sent, matched and
//! received over shared memory, both ends on one thread, so that neither waits.
//!
//! ```text
//! cargo run --release -p petasos-shm --example tagged_depth
//! ```
//!
//! The receive of the message is the last of the list, and is posted again each time.

use petasos_fabric::{
    Clock, Done, Endpoint, Event, Level, Operation, Payload, Peer, Region, Token,
};
use petasos_shm::Shm;
use std::{
    collections::VecDeque,
    error::Error,
    time::{Duration, Instant},
};

const TIME: Duration = Duration::from_millis(300);

struct Pair {
    ends: [Shm; 2],
    /// The receiver at the sender, and the reverse.
    peers: [Peer; 2],
    clock: Clock,
    queue: VecDeque<Operation>,
    events: Vec<Event>,
}

impl Pair {
    fn open() -> Result<Pair, Box<dyn Error>> {
        let address = "shm://*".parse()?;
        let mut ends = [Shm::open(&address)?, Shm::open(&address)?];
        let (clock, mut events) = (Clock::start(), Vec::new());
        let there = ends[1].address().clone();
        ends[0].resolve(&there, Duration::from_secs(10))?;
        let mut up = [None; 2];
        while up.contains(&None) {
            for (end, up) in ends.iter_mut().zip(&mut up) {
                end.progress(clock.now(), 64, &mut events);
                for event in events.drain(..) {
                    match event {
                        Event::PeerUp { peer, .. } => *up = Some(peer),
                        other => return Err(format!("{other:?}").into()),
                    }
                }
            }
        }
        let peers = up.map(|peer| peer.expect("both are up"));
        Ok(Pair { ends, peers, clock, queue: VecDeque::new(), events })
    }

    fn submit(&mut self, end: usize, operation: Operation) {
        self.queue.push_back(operation);
        self.ends[end].submit(&mut self.queue);
        assert!(self.queue.is_empty(), "it was accepted");
    }

    fn post(&mut self, tag: u64, into: &Region) {
        let (source, into) = (Some(self.peers[1]), into.whole());
        let token = Token(tag);
        self.submit(1, Operation::PostReceive { token, source, tag, ignore: 0, into });
    }

    /// Sends a message to the receive with this tag, and waits for it.
    fn send(&mut self, tag: u64) {
        let (peer, level) = (self.peers[0], Level::Reusable);
        let payload = Payload::Bytes(bytes::Bytes::from_static(b"8 bytes."));
        self.submit(0, Operation::SendTagged { token: Token(0), peer, tag, payload, level });
        let mut open = 2;
        while open > 0 {
            for end in &mut self.ends {
                end.progress(self.clock.now(), 64, &mut self.events);
            }
            for event in self.events.drain(..) {
                match event {
                    Event::Done {
                        result: Ok(Done::Tagged { len: 8, .. } | Done::Sent), ..
                    } => {
                        open -= 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}

/// The median time of one message behind so many receives, in nanoseconds.
fn median(depth: u64) -> Result<f64, Box<dyn Error>> {
    let mut pair = Pair::open()?;
    let into = Region::zeroed(64);
    for tag in 1..depth {
        pair.post(tag, &into);
    }
    let mut one = || {
        pair.post(depth, &into);
        pair.send(depth);
    };
    // The first opens what the peers allow each other.
    one();
    let (begin, mut batches) = (Instant::now(), Vec::new());
    while batches.len() < 5 || begin.elapsed() < TIME {
        let begin = Instant::now();
        (0..100).for_each(|_| one());
        batches.push(begin.elapsed().as_nanos() as f64 / 100.0);
    }
    batches.sort_by(f64::total_cmp);
    Ok(batches[batches.len() / 2])
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("{:>10} {:>14}", "receives", "ns per message");
    for depth in [1, 10, 100, 1_000, 10_000, 50_000] {
        println!("{depth:>10} {:>14.1}", median(depth)?);
    }
    Ok(())
}

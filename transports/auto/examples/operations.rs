//! What an operation costs with its completion: over shared memory, and through `auto` over it,
//! alone and beside TCP. Both ends are on one thread, so that neither waits, and what is shown is
//! the time of both together: the median of many batches.
//!
//! ```text
//! cargo run --profile dist -p petasos-auto --example operations [-- WHAT]
//! ```
//!
//! The clock is read once in a batch, as by a program that polls in a loop. With `WHAT` only the
//! rows whose names contain it are measured.

use petasos_auto::{Auto, Member, Node, Scope};
use petasos_fabric::{
    Access, Clock, Done, Endpoint, Event, Lease, Level, OpError, Operation, Payload, Peer, Region,
    RemoteSpan, Slice, Support, Time, Token,
};
use petasos_shm::Shm;
use petasos_tcp::TcpEndpoint;
use std::{
    collections::VecDeque,
    error::Error,
    mem::size_of,
    time::{Duration, Instant},
};

/// How long each row is measured for.
const TIME: Duration = Duration::from_millis(200);
const BATCH: u32 = 200;
/// Receives of other messages that are posted, too.
const DEPTHS: [u64; 2] = [1000, 10_000];
const DATA: &[u8] = b"8 bytes.";

type Failure = Box<dyn Error>;

/// Two endpoints that are connected: messages go from the first to the second.
struct Pair<E> {
    ends: [E; 2],
    /// The receiver at the sender, and the reverse.
    peers: [Peer; 2],
    now: Time,
    queue: VecDeque<Operation>,
    events: Vec<Event>,
}

impl<E: Endpoint> Pair<E> {
    fn connect(mut ends: [E; 2], clock: &Clock) -> Result<Pair<E>, Failure> {
        let there = ends[1].address().clone();
        ends[0].resolve(&there, Duration::from_secs(10))?;
        let (mut up, mut events) = ([None; 2], Vec::new());
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
        Ok(Pair { ends, peers, now: clock.now(), queue: VecDeque::new(), events })
    }

    fn submit(&mut self, end: usize, operation: Operation) {
        self.queue.push_back(operation);
        self.ends[end].submit(&mut self.queue);
        assert!(self.queue.is_empty(), "it was accepted");
    }

    /// Polls one end until an operation of its own has completed.
    fn complete(&mut self, end: usize) {
        while self.events.is_empty() {
            self.ends[end].progress(self.now, 64, &mut self.events);
        }
        let event = self.events.pop();
        assert!(matches!(event, Some(Event::Done { result: Ok(_), .. })), "{event:?}");
    }

    fn inject(&mut self, message: &mut Lease) {
        self.ends[0].inject(self.peers[0], &[DATA]).expect("there is room");
        while self.ends[1].poll_message(message).is_none() {
            self.ends[1].progress(self.now, 64, &mut self.events);
            if self.events.pop().is_some() {
                return;
            }
        }
    }

    /// A message, taken by the receiver, and its completion.
    fn send(&mut self, level: Level, message: &mut Lease) {
        let payload = Payload::Bytes(bytes::Bytes::from_static(DATA));
        let (token, peer) = (Token(1), self.peers[0]);
        self.submit(0, Operation::Send { token, peer, payload, level });
        let (mut came, mut done) = (false, false);
        while !(came && done) {
            self.ends[0].progress(self.now, 64, &mut self.events);
            came |= self.ends[1].poll_message(message).is_some();
            if !came || !done {
                self.ends[1].progress(self.now, 64, &mut self.events);
            }
            for event in self.events.drain(..) {
                match event {
                    Event::Done { result: Ok(Done::Sent), .. } => done = true,
                    Event::Message { .. } => came = true,
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// A receive is posted, and a message with its tag sent to it.
    fn send_tagged(&mut self, into: &Region) {
        let (source, tag, ignore, into) = (Some(self.peers[1]), 5, 0, into.whole());
        let receive = Operation::PostReceive { token: Token(2), source, tag, ignore, into };
        self.submit(1, receive);
        let (token, peer, level) = (Token(1), self.peers[0], Level::Reusable);
        let payload = Payload::Bytes(bytes::Bytes::from_static(DATA));
        self.submit(0, Operation::SendTagged { token, peer, tag, payload, level });
        let mut open = 2;
        while open > 0 {
            for end in &mut self.ends {
                end.progress(self.now, 64, &mut self.events);
            }
            for event in self.events.drain(..) {
                assert!(matches!(event, Event::Done { result: Ok(_), .. }), "{event:?}");
                open -= 1;
            }
        }
    }
}

struct Report {
    wanted: Option<String>,
    clock: Clock,
}

impl Report {
    fn is_wanted(&self, name: &str) -> bool {
        self.wanted.as_ref().is_none_or(|wanted| name.contains(wanted))
    }

    fn row<E: Endpoint>(&self, name: &str, pair: &mut Pair<E>, mut one: impl FnMut(&mut Pair<E>)) {
        if !self.is_wanted(name) {
            return;
        }
        // The first opens what the peers allow each other.
        (0..BATCH).for_each(|_| one(pair));
        let (begin, mut batches) = (Instant::now(), Vec::new());
        while batches.len() < 5 || begin.elapsed() < TIME {
            pair.now = self.clock.now();
            let begin = Instant::now();
            (0..BATCH).for_each(|_| one(pair));
            batches.push(begin.elapsed().as_nanos() as f64 / f64::from(BATCH));
        }
        batches.sort_by(f64::total_cmp);
        println!("{:>10.1}  {name}", batches[batches.len() / 2]);
    }

    fn all<E: Endpoint>(&self, over: &str, ends: [E; 2]) -> Result<(), Failure> {
        let mut pair = Pair::connect(ends, &self.clock)?;
        let mut message = Lease::default();
        self.row(&format!("{over}: inject and poll"), &mut pair, |p| p.inject(&mut message));
        for level in [Level::Reusable, Level::Delivered, Level::Visible] {
            let name = format!("{over}: send, {level:?}");
            self.row(&name, &mut pair, |p| p.send(level, &mut message));
        }
        let into = Region::zeroed(64);
        if pair.ends[0].capabilities().tagged != Support::None {
            let name = format!("{over}: tagged, receive posted");
            self.row(&name, &mut pair, |p| p.send_tagged(&into));
            let mut posted = 0;
            for depth in DEPTHS {
                let name = format!("{over}: tagged, behind {depth} others");
                if !self.is_wanted(&name) {
                    continue;
                }
                for tag in posted..depth {
                    let (source, ignore, into) = (Some(pair.peers[1]), 0, into.whole());
                    let (token, tag) = (Token(tag), 1000 + tag);
                    let receive = Operation::PostReceive { token, source, tag, ignore, into };
                    pair.submit(1, receive);
                }
                posted = depth;
                self.row(&name, &mut pair, |p| p.send_tagged(&into));
            }
        }

        let memory = pair.ends[1].alloc(4096)?;
        let region = pair.ends[1].register(&memory.whole(), Access::ALL)?;
        let key = pair.ends[1].export(region)?;
        let remote = pair.ends[0].import(&key)?;
        let source = Region::from_vec(DATA.to_vec());
        let local: Slice = source.whole();
        let span = RemoteSpan { offset: 64, len: 8 };
        // The owner is asked for the descriptor of the memory, to write; it is mapped once that came.
        for _ in 0..100 {
            let (local, spans) = ([local.clone()].into(), [span].into());
            let (token, level) = (Token(0), Level::Visible);
            pair.submit(0, Operation::Put { token, remote, local, spans, level, event: None });
            while pair.events.is_empty() {
                let Pair { ends, now, events, .. } = &mut pair;
                ends.iter_mut().for_each(|end| _ = end.progress(*now, 64, events));
            }
            pair.events.clear();
            pair.now = self.clock.now();
            std::thread::sleep(Duration::from_micros(100));
        }
        for level in [Level::Reusable, Level::Visible] {
            self.row(&format!("{over}: put 8 bytes, mapped, {level:?}"), &mut pair, |p| {
                let (local, spans) = ([local.clone()].into(), [span].into());
                let token = Token(3);
                p.submit(0, Operation::Put { token, remote, local, spans, level, event: None });
                p.complete(0);
            });
        }
        self.row(&format!("{over}: get 8 bytes, mapped"), &mut pair, |p| {
            let (local, spans) = ([local.clone()].into(), [span].into());
            p.submit(0, Operation::Get { token: Token(4), remote, local, spans });
            p.complete(0);
        });
        Ok(())
    }
}

fn over_auto(with_tcp: bool) -> Result<Auto, Failure> {
    let shm = Box::new(Shm::open(&"shm://*".parse()?)?);
    let mut members = vec![Member { endpoint: shm, scope: Scope::Node }];
    if with_tcp {
        let tcp = TcpEndpoint::open(&"tcp://127.0.0.1:0".parse()?, petasos_tcp::Config::default())?;
        members.push(Member { endpoint: Box::new(tcp), scope: Scope::Network });
    }
    Ok(Auto::open(Node::local(), members)?)
}

fn main() -> Result<(), Failure> {
    let report = Report { wanted: std::env::args().nth(1), clock: Clock::start() };
    println!(
        "bytes: Operation {}, Event {}, Done {}, OpError {}",
        size_of::<Operation>(),
        size_of::<Event>(),
        size_of::<Done>(),
        size_of::<OpError>(),
    );
    println!("{:>10}", "ns");
    let shm = || Shm::open(&"shm://*".parse().expect("an address"));
    report.all("shm", [shm()?, shm()?])?;
    report.all("auto of shm", [over_auto(false)?, over_auto(false)?])?;
    report.all("auto of shm and tcp", [over_auto(true)?, over_auto(true)?])
}

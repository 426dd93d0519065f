//! What it costs that an endpoint has a thread ([`Attended`]), for a program that drives by itself:
//! a message of 32 bytes, sent and received, and a put of 8 bytes, over shared memory, both ends on
//! this thread. Plain and attended endpoints in turn; prints the median of the rounds.
//!
//! ```text
//! cargo run --release -p petasos --example attended
//! perf stat -e instructions:u target/release/examples/attended plain 1000000
//! ```

use petasos::{
    OpenOptions,
    fabric::{
        Access, AttendedConfig, Clock, Endpoint, Event, Lease, Level, Operation, Region,
        RemoteSpan, Token,
    },
    open,
};
use std::time::{Duration, Instant};

const ROUNDS: usize = 41;
const PER_ROUND: u32 = 20_000;

struct Pair {
    a: Box<dyn Endpoint>,
    b: Box<dyn Endpoint>,
    peer: petasos::fabric::Peer,
    remote: petasos::fabric::Remote,
    clock: Clock,
    events: Vec<Event>,
    _memory: Region,
}

impl Pair {
    fn open(attended: bool) -> Result<Pair, Box<dyn std::error::Error>> {
        let mut options = OpenOptions::default();
        options.attended = attended.then(AttendedConfig::default);
        let (mut a, mut b) = (open("shm://*", &options)?, open("shm://*", &options)?);
        let (clock, mut events) = (Clock::start(), Vec::new());
        let peer = a.resolve(b.address(), Duration::from_secs(5))?;
        let memory = Region::zeroed(8);
        let region = b.register(&memory.whole(), Access::ALL)?;
        let remote = a.import(&b.export(region)?)?;
        while !events.iter().any(|event| matches!(event, Event::PeerUp { .. })) {
            b.progress(clock.now(), 64, &mut Vec::new());
            a.progress(clock.now(), 64, &mut events);
        }
        Ok(Pair { a, b, peer, remote, clock, events: Vec::new(), _memory: memory })
    }

    fn message(&mut self) {
        let mut message = Lease::default();
        while self.a.inject(self.peer, &[&[7; 32]]).is_err() {
            self.a.progress(self.clock.now(), 64, &mut self.events);
            self.b.progress(self.clock.now(), 64, &mut self.events);
        }
        // What the thread has found behind another event comes as an event, too.
        let is = |event: &Event| matches!(event, Event::Message { .. });
        while self.b.poll_message(&mut message).is_none() && !self.events.iter().any(is) {
            self.b.progress(self.clock.now(), 64, &mut self.events);
        }
        self.events.clear();
    }

    fn put(&mut self, from: &Region) {
        let put = Operation::Put {
            token: Token(1),
            remote: self.remote,
            local: [from.whole()].into(),
            spans: [RemoteSpan { offset: 0, len: 8 }].into(),
            level: Level::Visible,
            event: None,
        };
        let now = self.clock.now();
        self.a.try_submit(put).expect("there is room");
        let is = |event: &Event| matches!(event, Event::Done { .. });
        while !self.events.iter().any(is) {
            self.a.progress(now, 64, &mut self.events);
            self.b.progress(now, 64, &mut self.events);
        }
        self.events.clear();
    }

    fn round(&mut self, put: Option<&Region>) -> f64 {
        let begin = Instant::now();
        for _ in 0..PER_ROUND {
            match put {
                Some(from) => self.put(from),
                None => self.message(),
            }
        }
        begin.elapsed().as_nanos() as f64 / f64::from(PER_ROUND)
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let from = Region::from_vec(vec![1; 8]);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [which, count, rest @ ..] = &arguments[..] {
        // For counts of instructions: one kind alone, messages or puts.
        let mut pair = Pair::open(which == "attended")?;
        for _ in 0..count.parse::<u64>()? {
            if rest.is_empty() { pair.message() } else { pair.put(&from) }
        }
        return Ok(());
    }
    let mut pairs = [Pair::open(false)?, Pair::open(true)?];
    for (name, put) in [("message", None), ("put", Some(&from))] {
        let mut found = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (pair, found) in pairs.iter_mut().zip(&mut found) {
                found.push(pair.round(put));
            }
        }
        let [plain, attended] = found.map(median);
        println!("{name}: {plain:.1} ns plain, {attended:.1} ns attended, {:.2}", attended / plain);
    }
    Ok(())
}

//! Generated traffic between many endpoints, with exclusive channels given and taken all the time,
//! and endpoints that die: what arrives is what was sent, once, in order, and every operation ends.
//!
//! `PETASOS_SEEDS` sets how many seeds (default 20), `PETASOS_SEED` tries a single one.

mod common;

use bytes::Bytes;
use common::{End, PATIENCE, address, from_environment, message, open, read};
use petasos_channel::{Config, Counters, Thresholds};
use petasos_fabric::{
    Access, Endpoint, Event, Incarnation, InjectError, Key, Lease, Level, Operation, Payload, Peer,
    Region, RemoteSpan, Slice, Token,
};
use petasos_sim::{
    Random,
    device::{DeviceConfig, DeviceNet},
};
use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};

const NODES: u32 = 10;
const ROUNDS: u32 = 1500;

/// A life of an endpoint. Numbers of messages go on by life and target's life.
struct Seat {
    end: End,
    life: u32,
    peers: HashMap<u32, Peer>,
    /// The incarnation behind each handle.
    known: HashMap<Peer, Incarnation>,
    open: HashSet<Token>,
    queue: VecDeque<Operation>,
    next: HashMap<Peer, u32>,
    heard: HashMap<Peer, u32>,
}

struct World {
    net: DeviceNet,
    config: Config,
    random: Random,
    seats: Vec<Seat>,
    tokens: u64,
    received: u64,
    bodies: u64,
    steps: u64,
    /// Of the endpoints that have ended, too.
    total: Counters,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let mut device = DeviceConfig::with_seed(seed);
        device.ordered_puts = random.one_in(3);
        device.slots = 4 + random.below(40) as usize;
        device.control_slots = 2 + random.below(8) as usize;
        device.in_flight = 1 + random.below(16) as usize;
        device.operations = 2 + random.below(20) as usize;
        if random.one_in(4) {
            device.immediate = 0;
        }
        let mut config = Config::default();
        let mut thresholds = Thresholds::new(3000, 9000, 100).unwrap();
        if random.one_in(3) {
            // Between what goes as short packets and what is fetched, or among it.
            let from = random.below(3000) as usize;
            let to = from + random.below(6000) as usize;
            thresholds = thresholds.with_exclusive(from, to).unwrap();
        }
        config.thresholds = Some(thresholds);
        config.window = 2 + random.below(12) as u32;
        config.deferred = 1 + random.below(100) as usize;
        config.exclusive.cells = 8 + random.below(300) as u32;
        config.exclusive.hot.messages = 3;
        config.exclusive.hot.window = Duration::from_micros(50);
        for cap in [&mut config.exclusive.give, &mut config.exclusive.keep] {
            cap.count = 1 + random.below(3) as usize;
            cap.idle = Duration::from_micros(random.below(30));
        }
        config.exclusive.pause = Duration::from_micros(30);
        config.idle = Duration::from_micros(100);
        config.lent = 1 + random.below(8) as usize;
        config.bounces = 1 + random.below(6) as usize;
        config.ahead = 1 + random.below(4) as usize;
        let net = DeviceNet::new(device);
        let seats = (0..NODES).map(|n| seat(open(&net, n, &config), 0)).collect();
        let total = Counters::default();
        World { net, config, random, seats, tokens: 0, received: 0, bodies: 0, steps: 0, total }
    }

    fn token(&mut self, at: usize) -> Token {
        self.tokens += 1;
        self.seats[at].open.insert(Token(self.tokens));
        Token(self.tokens)
    }

    /// One endpoint sends to another: mostly to its favourite of the time.
    fn send(&mut self, round: u32) {
        let from = self.random.below(NODES.into()) as u32;
        let favourite = (from + 1 + round / 150 % (NODES - 1)) % NODES;
        let to = match self.random.one_in(4) {
            true => self.random.below(NODES.into()) as u32,
            false => favourite,
        };
        if to == from {
            return;
        }
        let seat = &mut self.seats[from as usize];
        let peer = match seat.peers.get(&to) {
            Some(peer) => *peer,
            None => {
                let peer = seat.end.resolve(&address(to), PATIENCE).unwrap();
                seat.peers.insert(to, peer);
                peer
            }
        };
        let number = *seat.next.entry(peer).or_default();
        let len = match self.random.below(10) {
            0..5 => self.random.below(200),
            5..8 => self.random.below(4000),
            _ => self.random.below(16_000),
        };
        let bytes = message(from, to, number, len as usize);
        let seat = &mut self.seats[from as usize];
        if self.random.one_in(2) && bytes.len() <= 4096 && seat.queue.is_empty() {
            match seat.end.inject(peer, &[&bytes]) {
                Ok(()) => *seat.next.entry(peer).or_default() += 1,
                Err(InjectError::Full) => {}
                Err(_) => _ = seat.peers.remove(&to),
            }
            return;
        }
        *seat.next.entry(peer).or_default() += 1;
        let token = self.token(from as usize);
        let level = match self.random.one_in(2) {
            true => Level::Reusable,
            false => Level::Delivered,
        };
        let operation = if self.random.one_in(12) {
            let body = Slice::from(message(from, to, number, 12 + (len as usize) * 20));
            let header = Bytes::from(message(from, to, number, 40));
            Operation::SendLong { token, peer, header, body }
        } else {
            let payload = match self.random.one_in(2) {
                true => Payload::Bytes(bytes.into()),
                false => Payload::Memory(bytes.into()),
            };
            Operation::Send { token, peer, payload, level }
        };
        self.seats[from as usize].queue.push_back(operation);
    }

    fn take(&mut self, at: usize, event: Event) {
        match event {
            Event::Message { peer, message } => self.arrived(at, peer, &message),
            Event::LongMessage { peer, header, body, len } => {
                self.arrived(at, peer, &header);
                let token = self.token(at);
                let into = Region::zeroed(len as usize).whole();
                self.bodies += 1;
                self.seats[at].queue.push_back(Operation::Receive { token, body, into });
            }
            Event::Done { token, result } => {
                assert!(self.seats[at].open.remove(&token), "{token:?} ended twice: {result:?}");
            }
            Event::PeerUp { peer, incarnation } => {
                assert!(self.seats[at].known.insert(peer, incarnation).is_none(), "up twice");
            }
            Event::PeerLost { peer, reason } => {
                assert!(!reason.to_string().contains("protocol"), "{reason}");
                let seat = &mut self.seats[at];
                seat.known.remove(&peer);
                seat.peers.retain(|_, known| *known != peer);
            }
            Event::Writable { .. } | Event::PutArrived { .. } => {}
            other => panic!("{other:?}"),
        }
    }

    fn arrived(&mut self, at: usize, peer: Peer, bytes: &[u8]) {
        let (_, to, number) = read(bytes);
        assert_eq!(to as usize, at, "for another endpoint");
        let seat = &mut self.seats[at];
        assert!(seat.known.contains_key(&peer), "of a peer that is not up");
        let expected = seat.heard.entry(peer).or_default();
        assert_eq!(number, *expected, "from {peer:?} at {at}");
        *expected += 1;
        self.received += 1;
    }

    fn step(&mut self, budget: usize) -> bool {
        let mut busy = false;
        for at in 0..self.seats.len() {
            let seat = &mut self.seats[at];
            let mut events = Vec::new();
            let mut queue = std::mem::take(&mut seat.queue);
            seat.end.submit(&mut queue);
            // Messages come by the fast path in every other step, and in between as events.
            self.steps += 1;
            let mut message = Lease::default();
            for _ in 0..if self.steps.is_multiple_of(2) { budget } else { 0 } {
                let Some(peer) = seat.end.poll_message(&mut message) else { break };
                let message = std::mem::take(&mut message);
                events.push(Event::Message { peer, message });
            }
            busy |= seat.end.progress(self.net.now(), budget, &mut events) || !events.is_empty();
            seat.queue = queue;
            for event in events {
                self.take(at, event);
            }
        }
        busy
    }

    fn kill(&mut self) {
        let at = self.random.below(NODES.into()) as usize;
        let life = self.seats[at].life + 1;
        self.net.kill(&address(at));
        self.count(at);
        self.seats[at] = seat(open(&self.net, at, &self.config), life);
    }

    fn count(&mut self, at: usize) {
        let counters = self.seats[at].end.counters();
        add(&mut self.total, &counters);
    }
}

fn add(total: &mut Counters, counters: &Counters) {
    total.mp += counters.mp;
    total.shared += counters.shared;
    total.exclusive += counters.exclusive;
    total.immediate += counters.immediate;
    total.ahead += counters.ahead;
    total.short_in += counters.short_in;
    total.short_out += counters.short_out;
    total.given += counters.given;
    total.taken += counters.taken;
    total.refused += counters.refused;
    total.retries += counters.retries;
}

fn seat(end: End, life: u32) -> Seat {
    Seat {
        end,
        life,
        peers: HashMap::new(),
        known: HashMap::new(),
        open: HashSet::new(),
        queue: VecDeque::new(),
        next: HashMap::new(),
        heard: HashMap::new(),
    }
}

/// All of it for one seed.
fn run(seed: u64, kills: bool) -> Counters {
    let mut w = World::new(seed);
    for round in 0..ROUNDS {
        for _ in 0..w.random.below(12) {
            w.send(round);
        }
        if kills && w.random.one_in(200) {
            w.kill();
        }
        let budget = 1 + w.random.below(40) as usize;
        w.step(budget);
        for _ in 0..w.random.below(60) {
            w.net.step();
        }
    }
    // What is open ends, and what was sent to the living arrives.
    let end = w.net.now().after(Duration::from_secs(20));
    loop {
        let busy = w.step(64);
        if !busy && !w.net.step() {
            w.net.run_for(Duration::from_micros(50));
        }
        let settled = w.seats.iter().all(|seat| seat.open.is_empty() && seat.queue.is_empty());
        let arrived = |from: &Seat, to: &Seat| {
            let theirs = from.known.iter().find(|(_, known)| **known == to.end.incarnation());
            let ours = to.known.iter().find(|(_, known)| **known == from.end.incarnation());
            let (Some((to_peer, _)), Some((from_peer, _))) = (theirs, ours) else { return true };
            from.next.get(to_peer).copied().unwrap_or(0)
                == to.heard.get(from_peer).copied().unwrap_or(0)
        };
        let all = w.seats.iter().all(|a| w.seats.iter().all(|b| arrived(a, b)));
        if settled && all {
            break;
        }
        if w.net.now() >= end {
            for seat in &w.seats {
                eprintln!("{:?}: open {:?}", seat.end, seat.open);
            }
            panic!("it does not come to an end");
        }
    }
    assert!(w.received > u64::from(ROUNDS), "{} messages arrived", w.received);
    assert!(w.bodies > 50, "{} bodies", w.bodies);
    for at in 0..w.seats.len() {
        w.count(at);
    }
    w.total
}

fn seeds(kills: bool) {
    let seeds = match std::env::var("PETASOS_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..from_environment("PETASOS_SEEDS", 20),
    };
    let mut total = Counters::default();
    for seed in seeds {
        println!("seed {seed}");
        add(&mut total, &run(seed, kills));
    }
    println!("{total:?}");
    let used = [total.mp, total.shared, total.exclusive, total.immediate, total.retries];
    let fast = [total.ahead, total.short_in, total.short_out];
    assert!(
        used.iter().chain(&fast).all(|count| *count > 50),
        "a path that was not taken: {total:?}"
    );
    let changes = [total.given, total.taken, total.refused];
    assert!(changes.iter().all(|count| *count > 5), "nothing was given and taken: {total:?}");
}

#[test]
fn in_order_and_once() {
    seeds(false);
}

#[test]
fn with_peers_that_die() {
    seeds(true);
}

/// The same seed gives the same run.
#[test]
fn a_seed_repeats() {
    assert_eq!(run(3, true), run(3, true));
}

/// Remote access by the device, beside messages: puts with event, gets, and a region that closes.
#[test]
fn remote_access_needs_no_help() {
    let net = common::net(1);
    let config = Config::default();
    let (mut a, mut b) = (open(&net, "a", &config), open(&net, "b", &config));
    let (_, ba) = common::join(&net, &mut a, &mut b);
    let target = Region::zeroed(3 << 20);
    let region = b.register(&target.whole(), Access::ALL).unwrap();
    let key = Key::from_bytes(b.export(region).unwrap().as_bytes().clone()).unwrap();
    let remote = a.import(&key).unwrap();
    let from = Slice::from(vec![7; 3 << 20]);
    let put = |token, len: u64, event| Operation::Put {
        token: Token(token),
        remote,
        local: [from.part(0, len as usize).unwrap()].into_iter().collect(),
        spans: [RemoteSpan { offset: 0, len }].into_iter().collect(),
        level: Level::Visible,
        event,
    };
    a.submit(&mut [put(1, 3 << 20, None)].into());
    // The owner does nothing at all.
    let done = |n: u64, events: &[Event]| {
        events.iter().any(|e| matches!(e, Event::Done { token, result: Ok(_) } if token.0 == n))
    };
    common::until(&net, &mut [&mut a], "a put", |_, events| done(1, &events[0]));
    assert!(target.to_vec().iter().all(|byte| *byte == 7));
    a.submit(&mut [put(2, 100, Some(99))].into());
    let events = common::until(&net, &mut [&mut a, &mut b], "a put with event", |_, events| {
        done(2, &events[0]) && !events[1].is_empty()
    });
    assert!(
        matches!(events[1][..], [Event::PutArrived { peer, region: r, offset: 0, len: 100, data: 99 }]
            if peer == ba && r == region),
        "{events:?}"
    );
    assert_eq!(a.counters().accesses, 4);
    assert_eq!(a.engine_counters().packets_out, 0, "the engine had no part in it");
}

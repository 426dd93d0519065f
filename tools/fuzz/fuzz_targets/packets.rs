//! The two-sided engine against a peer that passed the handshake and means harm: it has keys to
//! some regions, sees every packet that is sent to it, and says what it likes, when it likes.
//!
//! Whatever it does: nothing panics; memory is bounded; no memory is written but what it has the
//! right to, and none after the operation or registration ended; every operation completes exactly
//! once; after the peer is gone, nothing is held.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use petasos_fabric::{
    Access, Address, AtomicOp, AtomicType, Body, Claimed, Done, Event, Incarnation, Key, Lease,
    Level, Limits, LostReason, Operation, Payload, Peer, Pool, RegionId, Remote, RemoteSpan, Token,
    key::KeyParts,
    two_sided::{Config, Engine, Packet, Placement, Violation, header},
};
use petasos_fuzz::{Cut, Guarded};
use smallvec::smallvec;
use std::collections::VecDeque;

/// Steps in one run, and lives of the peer.
const STEPS: usize = 300;
const LIVES: usize = 4;
/// Buffers of the engine's pool.
const LEASES: usize = 8;
const FRAGMENT: usize = 256;
/// What the peer holds at most of its own: the engine, its tables, and what the program does.
const MEMORY: usize = 1 << 20;

fuzz_target!(|data: &[u8]| {
    petasos_fuzz::bounded(MEMORY + 64 * data.len(), || {
        let mut world = World::new(Cut(data));
        for _ in 0..STEPS {
            if world.cut.is_over() {
                break;
            }
            world.step();
        }
        world.finish();
    });
});

fn config() -> Config {
    let mut limits = Limits::default();
    (limits.max_inject, limits.max_message, limits.max_header) = (128, 200, 100);
    (limits.max_regions, limits.max_peers, limits.max_leases) = (16, 2, LEASES);
    limits.max_operations = 64;
    let mut config = Config::new(limits, FRAGMENT);
    config.in_order = true;
    (config.eager, config.get_chunk, config.get_depth) = (64, 300, 3);
    config.inject_queue = 512;
    (config.max_unexpected, config.max_imports) = (1024, 8);
    config
}

/// What the engine writes to when an operation is under way.
#[derive(Clone, Copy)]
struct Under {
    done: bool,
    memory: Option<usize>,
}

struct World<'a> {
    cut: Cut<'a>,
    engine: Engine,
    pool: Pool,
    peer: Peer,
    lives: usize,
    remote: Option<Remote>,
    /// What the peer knows: routes to regions, and numbers that it was sent.
    routes: Vec<[u8; 16]>,
    seen: VecDeque<u64>,
    /// Regions, with their memory.
    regions: Vec<(RegionId, usize)>,
    memory: Vec<Guarded>,
    /// By token.
    operations: Vec<Under>,
    bodies: Vec<Body>,
    claims: Vec<Claimed>,
    leases: Vec<Lease>,
    /// The transport's: packets not yet sent, whether the peer is its to serve, and a packet of
    /// which only the header was taken.
    going: VecDeque<Packet>,
    serving: bool,
    coming: Option<(Placement, Vec<u8>)>,
    /// Peers of which nothing may come any more.
    lost: Vec<Peer>,
}

impl<'a> World<'a> {
    fn new(cut: Cut<'a>) -> World<'a> {
        let address = Address::parse("test://victim").expect("an address");
        let incarnation = Incarnation::new(77).expect("not zero");
        let pool = Pool::new(LEASES);
        let mut engine = Engine::new(address, incarnation, config(), pool.clone());
        let (mut routes, mut regions, mut memory) = (Vec::new(), Vec::new(), Vec::new());
        let read_write = Access::READ.with(Access::WRITE);
        for access in [Access::ALL, Access::READ, read_write, Access::ATOMIC, Access::NONE] {
            let mut piece = Guarded::new(1000);
            let region = engine.register(&piece.slice(), access).expect("a free slot");
            if !access.allows(Access::WRITE) && !access.allows(Access::ATOMIC) {
                piece.settle();
            }
            let parts = engine.key_parts(region).expect("it is registered");
            let route = parts.route(Key::ROUTE_TWO_SIDED).expect("the engine's own");
            routes.push(route[..].try_into().expect("a slot, a generation and a secret"));
            regions.push((region, memory.len()));
            memory.push(piece);
        }
        let mut world = World {
            cut,
            engine,
            pool,
            peer: Peer { index: 0, generation: 0 },
            lives: 0,
            remote: None,
            routes,
            seen: VecDeque::new(),
            regions,
            memory,
            operations: Vec::new(),
            bodies: Vec::new(),
            claims: Vec::new(),
            leases: Vec::new(),
            going: VecDeque::new(),
            serving: false,
            coming: None,
            lost: Vec::new(),
        };
        world.connect();
        world
    }

    fn connect(&mut self) {
        self.lives += 1;
        let address = Address::parse("test://attacker").expect("an address");
        let incarnation = Incarnation::new(self.lives as u64).expect("not zero");
        self.peer = self.engine.add_peer(&address).expect("room for a peer");
        self.engine.peer_up(self.peer, incarnation);
        let parts = KeyParts {
            owner: address,
            incarnation,
            len: 5000,
            access: Access::ALL,
            routes: vec![(Key::ROUTE_TWO_SIDED, Bytes::from_static(&[1; 16]))],
        };
        self.remote.take().inspect(|remote| self.engine.release(*remote));
        self.remote = self.engine.import(parts, self.peer).ok();
    }

    fn lose(&mut self, reason: LostReason) {
        // The transport lets go of everything first.
        self.coming = None;
        self.going.clear();
        self.serving = false;
        self.engine.peer_lost(self.peer, reason);
    }

    fn step(&mut self) {
        match self.cut.u8() % 16 {
            0 => {
                let packet = self.cut.short().to_vec();
                self.deliver(&packet);
            }
            1..=4 => {
                let packet = self.packet();
                self.deliver(&packet);
            }
            5 => self.accept(),
            6 => self.land(),
            7 | 8 => self.transmit(),
            9 => self.sent(),
            10..=12 => self.submit(),
            13 => {
                let token = self.cut.u8();
                self.engine.cancel(Token(token.into()));
            }
            14 => {
                let hold = self.cut.u8() & 1 == 0;
                self.events(4);
                if !hold {
                    self.leases.clear();
                }
            }
            _ if self.cut.u8() < 16 && self.lives < LIVES => self.reconnect(LostReason::Closed),
            _ => {
                self.transmit();
                self.sent();
                self.events(64);
            }
        }
    }

    fn reconnect(&mut self, reason: LostReason) {
        self.lose(reason);
        self.events(usize::MAX);
        self.engine.forget(self.peer);
        self.events(usize::MAX);
        self.connect();
    }

    // What the peer says.

    fn number(&mut self) -> u64 {
        match self.cut.u8() % 8 {
            0..=2 => self.cut.u8().into(),
            3..=5 => {
                let at = self.cut.upto(self.seen.len());
                self.seen.get(at).copied().unwrap_or_default()
            }
            6 => self.cut.u64(),
            _ => u64::MAX - u64::from(self.cut.u8()),
        }
    }

    /// A packet whose parts make sense one by one.
    fn packet(&mut self) -> Vec<u8> {
        let kind = self.cut.u8() % petasos_fuzz::KINDS;
        let (flags, len) = (self.cut.u8() % 8, self.cut.u16() % 1100);
        let len = if self.cut.u8() & 3 == 0 { len } else { 0 };
        let [low, high] = len.to_le_bytes();
        let prefix = [kind, header::VERSION, flags, 0, low, high, 0, 0];
        let mut packet = prefix.to_vec();
        let Ok(frame) = header::frame(prefix) else { return packet };
        let remote_access = matches!(kind, 8 | 9 | 11 | 16);
        while packet.len() < frame.header {
            if remote_access && packet.len() == 16 {
                let mut route = self.routes[self.cut.upto(self.routes.len())];
                if self.cut.u8() == 255 {
                    route[self.cut.upto(16)] ^= 1 << self.cut.upto(8);
                }
                packet.extend(route);
            } else if kind == 16 && packet.len() == 40 {
                let what = [self.cut.u8() % 14, self.cut.u8() % 11, self.cut.u8() & 1];
                packet.extend(what);
                packet.extend([0; 5]);
            } else {
                packet.extend(self.number().to_le_bytes());
            }
        }
        let pattern = self.cut.u8();
        packet.extend((0..len).map(|i| pattern.wrapping_add(i as u8)));
        packet
    }

    fn deliver(&mut self, packet: &[u8]) {
        if self.coming.is_none() {
            let taken = self.engine.deliver(self.peer, packet);
            self.judge(taken.err());
        }
    }

    /// A peer that breaks the protocol is cut off, and comes again.
    fn judge(&mut self, violation: Option<Violation>) {
        let Some(violation) = violation else { return };
        let reason = LostReason::Protocol(violation.to_string());
        if self.lives < LIVES {
            self.reconnect(reason);
        } else {
            self.lose(reason);
        }
    }

    fn accept(&mut self) {
        let packet = self.packet();
        let frame = packet.first_chunk().map(|prefix| header::frame(*prefix));
        let Some(Ok(frame)) = frame else { return };
        if self.coming.is_some() {
            return;
        }
        match self.engine.accept(self.peer, &packet[..frame.header]) {
            Ok(placement) => self.coming = Some((placement, packet[frame.header..].to_vec())),
            Err(violation) => self.judge(Some(violation)),
        }
    }

    fn land(&mut self) {
        if let Some((mut placement, payload)) = self.coming.take() {
            let at = payload.len() / 2;
            placement.write(0, &payload[..at]);
            placement.write(at, &payload[at..]);
            let landed = self.engine.landed(self.peer, placement);
            self.judge(landed.err());
        }
    }

    // What the transport does with packets that go.

    fn transmit(&mut self) {
        self.serving |= self.engine.next_output() == Some(self.peer);
        for _ in 0..8 {
            if !self.serving {
                return;
            }
            let Some(packet) = self.engine.poll_transmit(self.peer) else {
                self.serving = false;
                return;
            };
            let frame = packet.header.first_chunk().map(|prefix| header::frame(*prefix));
            let frame = frame.expect("a prefix").expect("a good one");
            assert_eq!(frame.header, packet.header.len());
            assert_eq!(frame.payload, packet.payload.len());
            assert!(frame.payload <= FRAGMENT, "a packet longer than a fragment");
            packet.copy_to(&mut Vec::new());
            for word in packet.header[8..].as_chunks::<8>().0.iter().take(2) {
                self.seen.push_front(u64::from_le_bytes(*word));
            }
            self.seen.truncate(32);
            self.going.push_back(packet);
        }
    }

    fn sent(&mut self) {
        for _ in 0..=self.cut.upto(8) {
            if self.going.pop_front().is_some() {
                self.engine.sent(self.peer);
            }
        }
    }

    // What the program does.

    fn token(&mut self, memory: Option<usize>) -> Token {
        self.operations.push(Under { done: false, memory });
        Token(self.operations.len() as u64 - 1)
    }

    fn room(&mut self, len: usize) -> usize {
        self.memory.push(Guarded::new(len));
        self.memory.len() - 1
    }

    /// Memory that is only read.
    fn source(&mut self, len: usize) -> petasos_fabric::Slice {
        let at = self.room(len);
        self.memory[at].settle();
        self.memory[at].slice()
    }

    fn level(&mut self) -> Level {
        [Level::Reusable, Level::Delivered, Level::Visible][self.cut.upto(3)]
    }

    fn submit(&mut self) {
        let byte = self.cut.u8();
        let (choice, fenced) = (byte % 12, byte >= 0xC0);
        let len = usize::from(self.cut.u8()) * if self.cut.u8() & 3 == 0 { 8 } else { 1 };
        if choice == 10 {
            let _ = self.engine.inject(self.peer, &[&vec![7; len / 2], b"x"]);
            return;
        }
        let (peer, tag) = (self.peer, u64::from(self.cut.u8() % 4));
        let body = self.bodies.get(self.cut.upto(self.bodies.len())).copied();
        let body = body.unwrap_or(Body { peer, id: 5 });
        let message = self.claims.get(self.cut.upto(self.claims.len())).copied();
        let message = message.unwrap_or(Claimed { peer, id: 5 });
        let remote = self.remote.filter(|_| matches!(choice, 6..=8));
        let operation = match choice {
            0 => {
                let (token, level) = (self.token(None), self.level());
                let payload = Payload::Memory(self.source(len));
                Operation::Send { token, peer, payload, level }
            }
            1 => {
                let (token, body) = (self.token(None), self.source(len));
                Operation::SendLong { token, peer, header: Bytes::from_static(b"long"), body }
            }
            2 => {
                let (token, level) = (self.token(None), self.level());
                let payload = Payload::Memory(self.source(len));
                Operation::SendTagged { token, peer, tag, payload, level }
            }
            3 | 4 => {
                let at = self.room(len);
                let (token, into) = (self.token(Some(at)), self.memory[at].slice());
                if choice == 4 {
                    Operation::Receive { token, body, into }
                } else {
                    let source = (self.cut.u8() & 1 == 0).then_some(peer);
                    let ignore = self.cut.u8().into();
                    Operation::PostReceive { token, source, tag, ignore, into }
                }
            }
            5 => match self.cut.u8() % 4 {
                0 => Operation::Discard { token: self.token(None), body },
                1 => {
                    let (token, claim) = (self.token(None), self.cut.u8() & 1 == 0);
                    let (source, ignore) = (claim.then_some(peer), self.cut.u8().into());
                    Operation::Peek { token, source, tag, ignore, claim }
                }
                2 => Operation::DiscardClaimed { token: self.token(None), message },
                _ => {
                    let at = self.room(len);
                    let (token, into) = (self.token(Some(at)), self.memory[at].slice());
                    Operation::ReceiveClaimed { token, message, into }
                }
            },
            6 if let Some(remote) = remote => {
                let (token, local, level) = (self.token(None), self.source(len), self.level());
                let spans = smallvec![RemoteSpan { offset: tag, len: len as u64 }];
                let event = (self.cut.u8() & 1 == 0).then_some(3);
                Operation::Put { token, remote, local: smallvec![local], spans, level, event }
            }
            7 if let Some(remote) = remote => {
                let at = self.room(len);
                let (token, local) = (self.token(Some(at)), self.memory[at].slice());
                let spans = smallvec![RemoteSpan { offset: tag, len: len as u64 }];
                Operation::Get { token, remote, local: smallvec![local], spans }
            }
            8 if let Some(remote) = remote => Operation::Atomic {
                token: self.token(None),
                remote,
                offset: tag * 4,
                op: AtomicOp::from_u8(self.cut.u8() % 13).expect("one of them"),
                kind: AtomicType::U32,
                operand: smallvec![1; 8],
                compare: smallvec![0; 8],
                fetch: self.cut.u8() & 1 == 0,
            },
            11 => Operation::Flush { token: self.token(None), peer },
            _ => {
                let (region, at) = self.regions[self.cut.upto(self.regions.len())];
                Operation::Deregister {
                    token: self.token(Some(at)),
                    region,
                    patience: Operation::PATIENCE,
                }
            }
        };
        let operation = if fenced { operation.fenced() } else { operation };
        if let Err(refused) = self.engine.try_submit(operation) {
            self.operations[refused.operation.token().0 as usize].done = true;
        }
    }

    fn events(&mut self, budget: usize) {
        let mut events = Vec::new();
        self.engine.take_events(budget, &mut events);
        for event in events {
            match event {
                Event::Done { token, result } => {
                    let under = &mut self.operations[token.0 as usize];
                    assert!(!under.done, "an operation completed twice");
                    under.done = true;
                    let whose = under.memory.map(|at| &mut self.memory[at]);
                    // A region that was not open stays as it is, another attempt may be waiting.
                    let region = self.regions.iter().any(|(_, at)| Some(*at) == under.memory);
                    let closed = matches!(result, Ok(Done::Deregistered));
                    if let Ok(Done::Peeked(Some(peeked))) = result {
                        self.claims.extend(peeked.claimed);
                    }
                    if let Some(memory) = whose.filter(|_| closed || !region) {
                        memory.settle();
                    }
                }
                Event::Message { peer, message } => {
                    assert!(!self.lost.contains(&peer), "a message of a peer that is lost");
                    assert!(message.len() <= 200);
                    self.leases.push(message);
                }
                Event::LongMessage { peer, header, body, .. } => {
                    assert!(!self.lost.contains(&peer), "a message of a peer that is lost");
                    assert!(header.len() <= 100);
                    self.leases.push(*header);
                    self.bodies.push(body);
                }
                Event::PutArrived { peer, offset, len, .. } => {
                    assert!(!self.lost.contains(&peer), "a put of a peer that is lost");
                    assert!(offset <= 1000 && len <= 1000);
                }
                Event::Writable { peer } => assert!(!self.lost.contains(&peer)),
                Event::PeerLost { peer, .. } => {
                    assert!(!self.lost.contains(&peer), "lost twice");
                    self.lost.push(peer);
                }
                _ => {}
            }
        }
        assert!(self.pool.lent() <= LEASES, "more leases than there are");
    }

    fn finish(mut self) {
        self.lose(LostReason::Closed);
        for token in 0..self.operations.len() {
            self.engine.cancel(Token(token as u64));
        }
        self.events(usize::MAX);
        for (region, at) in self.regions.clone() {
            let token = self.token(Some(at));
            self.engine.submit(Operation::Deregister {
                token,
                region,
                patience: Operation::PATIENCE,
            });
        }
        self.events(usize::MAX);
        assert!(self.engine.next_output().is_none() && !self.engine.has_events());
        assert!(self.operations.iter().all(|under| under.done), "an operation never completed");
        self.leases.clear();
        assert_eq!(self.pool.lent(), 0, "leases are missing");
        drop(self.engine);
        self.memory.into_iter().for_each(Guarded::finish);
    }
}

//! Shared memory against a peer that writes what it likes into the memory of the pair, into the
//! table of its regions, onto the socket, and sends packets of all kinds.
//!
//! Whatever it does: nothing panics; no memory is written but what it has the right to; every
//! operation completes exactly once.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use petasos_fabric::{
    Access, Address, AtomicOp, AtomicType, Body, Done, Endpoint, Event, Key, Lease, Level,
    Operation, Payload, Peer, Region, RegionId, Remote, RemoteSpan, Slice, Time, Token,
    two_sided::header,
};
use petasos_fuzz::{Cut, Guarded};
use petasos_shm::{Config, Shm};
use smallvec::smallvec;
use std::{collections::VecDeque, time::Duration};

const STEPS: usize = 100;
const RING: usize = 16 << 10;

fuzz_target!(|data: &[u8]| {
    let Some(mut world) = World::new(Cut(data)) else { return };
    for _ in 0..STEPS {
        if world.cut.is_over() {
            break;
        }
        world.step();
    }
    world.finish();
});

fn open() -> Shm {
    let mut config = Config::default();
    (config.ring, config.max_message, config.max_leases) = (RING, 1000, 16);
    // The peer is of this process: what it says of where its memory lies would be ours.
    config.cross_memory = false;
    let address = Address::parse("shm://*").expect("an address");
    Shm::open_with(&address, config).expect("an endpoint")
}

struct World<'a> {
    cut: Cut<'a>,
    victim: Shm,
    hostile: Shm,
    /// The victim as the hostile peer knows it, and the other way round.
    at_hostile: Peer,
    at_victim: Peer,
    now: Time,
    /// Regions of the victim's, with their memory, and what their keys say.
    regions: Vec<(RegionId, usize)>,
    routes: Vec<(Bytes, Bytes)>,
    memory: Vec<Guarded>,
    /// Regions of the hostile peer's.
    keys: Vec<Bytes>,
    remotes: Vec<Remote>,
    operations: Vec<(bool, Option<usize>)>,
    bodies: Vec<Body>,
    leases: Vec<Lease>,
}

impl<'a> World<'a> {
    fn new(cut: Cut<'a>) -> Option<World<'a>> {
        let (mut victim, mut hostile) = (open(), open());
        let patience = Duration::from_secs(1);
        let at_hostile = hostile.resolve(victim.address(), patience).ok()?;
        let at_victim = victim.resolve(hostile.address(), patience).ok()?;
        let (mut regions, mut routes, mut memory) = (Vec::new(), Vec::new(), Vec::new());
        for access in [Access::ALL, Access::READ] {
            let mut piece = Guarded::new(500);
            let region = victim.register(&piece.slice(), access).ok()?;
            if access == Access::READ {
                piece.settle();
            }
            let parts = victim.export(region).ok()?.parse().ok()?;
            let route = |kind| parts.route(kind).cloned().unwrap_or_default();
            routes.push((route(Key::ROUTE_TWO_SIDED), route(Key::ROUTE_ADDRESS)));
            regions.push((region, memory.len()));
            memory.push(piece);
        }
        let mut keys = Vec::new();
        for memory in [hostile.alloc(5000).ok()?, Region::zeroed(5000)] {
            let region = hostile.register(&memory.whole(), Access::ALL).ok()?;
            keys.push(hostile.export(region).ok()?.as_bytes().clone());
        }
        let mut world = World {
            cut,
            victim,
            hostile,
            at_hostile,
            at_victim,
            now: Time(1_000_000_000),
            regions,
            routes,
            memory,
            keys,
            remotes: Vec::new(),
            operations: Vec::new(),
            bodies: Vec::new(),
            leases: Vec::new(),
        };
        for _ in 0..50 {
            world.pass(true);
            world.pass(false);
            if world.victim.has_pair(world.at_victim) && world.hostile.has_pair(world.at_hostile) {
                world.import(0);
                world.import(1);
                return Some(world);
            }
        }
        panic!("they do not find each other");
    }

    fn pass(&mut self, victim: bool) {
        self.now = self.now.after(Duration::from_millis(1));
        let mut events = Vec::new();
        if !victim {
            self.hostile.progress(self.now, 64, &mut events);
            return;
        }
        self.victim.progress(self.now, 64, &mut events);
        for event in events {
            match event {
                Event::Done { token, result } => {
                    let (done, memory) = &mut self.operations[token.0 as usize];
                    assert!(!*done, "an operation completed twice");
                    *done = true;
                    let region = self.regions.iter().any(|(_, at)| Some(*at) == *memory);
                    let closed = matches!(result, Ok(Done::Deregistered));
                    if let Some(at) = memory.filter(|_| closed || !region) {
                        self.memory[at].settle();
                    }
                    if let Ok(Done::Mapped(region)) = result {
                        let _ = region.to_vec();
                    }
                }
                Event::Message { message, .. } => self.leases.push(message),
                Event::LongMessage { body, .. } => self.bodies.push(body),
                Event::PutArrived { offset, len, .. } => assert!(offset + len <= 500),
                _ => {}
            }
        }
    }

    fn import(&mut self, nth: usize) {
        let key = Key::from_bytes(self.keys[nth].clone()).expect("not too long");
        if self.remotes.len() < 8 {
            self.remotes.extend(self.victim.import(&key).ok());
        }
    }

    fn number(&mut self) -> u64 {
        match self.cut.u8() % 4 {
            0 => self.cut.u8().into(),
            1 => self.cut.u16().into(),
            2 => self.cut.u64(),
            _ => u64::MAX - u64::from(self.cut.u8()),
        }
    }

    fn step(&mut self) {
        let to = self.at_hostile;
        match self.cut.u8() % 16 {
            0 | 1 => {
                // The words around the rings, or the headers of cells.
                let nth = match self.cut.u8() % 4 {
                    0 => [0, 1, 16, 17, 32, 33, 48, 49][self.cut.upto(8)],
                    1 => usize::from(self.cut.u16()),
                    _ => 512 + usize::from(self.cut.u8() % 64) * 8,
                };
                let word = match self.cut.u8() % 3 {
                    0 => self.number(),
                    _ => {
                        let (lap, kind) = (self.cut.u8() % 4, self.cut.u8());
                        // Mostly one of those that there are: the first is of short messages.
                        let kind = if kind < 224 { kind % 8 } else { kind };
                        let len = u64::from(self.cut.u16());
                        u64::from(lap) << 32 | u64::from(kind) << 24 | len
                    }
                };
                self.hostile.scribble(to, nth, word);
            }
            2 => {
                let kind = self.cut.u8() % 8;
                let bytes = self.cut.short();
                self.hostile.post(to, kind, bytes);
            }
            3 | 4 => {
                let packet = self.packet();
                self.hostile.post(to, 2, &packet);
            }
            5 => {
                let (two_sided, address) = &self.routes[self.cut.upto(self.routes.len())];
                let mut bytes = Vec::new();
                let slot = u64::from(address[0]);
                let kind = if self.cut.u8() & 1 == 0 {
                    bytes.extend(slot.to_le_bytes());
                    bytes.extend_from_slice(&address[4..]);
                    (0..3).for_each(|_| bytes.extend(self.number().to_le_bytes()));
                    3
                } else {
                    bytes.extend(slot.to_le_bytes());
                    bytes.extend(u64::from(self.cut.u8()).to_le_bytes());
                    bytes.extend_from_slice(two_sided);
                    bytes.extend(u64::from(self.cut.u8() & 1).to_le_bytes());
                    4
                };
                self.hostile.post(to, kind, &bytes);
            }
            6 => {
                let (slot, nth) = (self.cut.u8().into(), self.cut.upto(8));
                // Not where the memory lies, for that is in this process.
                let nth = if nth == 1 { 2 } else { nth };
                let word = self.number();
                self.hostile.retell(slot, nth, word);
            }
            7 => {
                let mut notes = petasos_shm::fuzzing::notes();
                let note = &mut notes[self.cut.upto(5)];
                for _ in 0..self.cut.upto(3) {
                    let at = usize::from(self.cut.u8()) % note.len();
                    note[at] = self.cut.u8();
                }
                self.hostile.say(to, note);
            }
            8 | 9 => self.pass(true),
            10 => self.pass(false),
            11..=13 => self.submit(),
            14 => {
                let token = self.cut.u8();
                self.victim.cancel(Token(token.into()));
                self.leases.clear();
            }
            _ => {
                let nth = self.cut.upto(2);
                let mut key = self.keys[nth].to_vec();
                if self.cut.u8() & 1 == 0 {
                    let at = usize::from(self.cut.u8()) % key.len();
                    key[at] ^= self.cut.u8();
                }
                let key = Key::from_bytes(key).expect("as long as before");
                if self.remotes.len() < 8 {
                    self.remotes.extend(self.victim.import(&key).ok());
                }
            }
        }
    }

    /// A packet of the engine's, whose parts make sense.
    fn packet(&mut self) -> Vec<u8> {
        let kind = self.cut.u8() % petasos_fuzz::KINDS;
        let len = if self.cut.u8() & 1 == 0 { self.cut.u8() } else { 0 };
        let prefix = [kind, header::VERSION, self.cut.u8() % 8, 0, len, 0, 0, 0];
        let mut packet = prefix.to_vec();
        let Ok(frame) = header::frame(prefix) else { return packet };
        while packet.len() < frame.header {
            if matches!(kind, 8 | 9 | 11 | 16) && packet.len() == 16 {
                packet.extend_from_slice(&self.routes[self.cut.upto(self.routes.len())].0);
            } else {
                packet.extend(self.number().to_le_bytes());
            }
        }
        packet.truncate(frame.header);
        packet.resize(frame.header + frame.payload, 9);
        packet
    }

    fn token(&mut self, memory: Option<usize>) -> Token {
        self.operations.push((false, memory));
        Token(self.operations.len() as u64 - 1)
    }

    fn target(&mut self, len: usize) -> (Token, Slice) {
        self.memory.push(Guarded::new(len));
        let at = self.memory.len() - 1;
        (self.token(Some(at)), self.memory[at].slice())
    }

    fn source(&mut self, len: usize) -> (Token, Slice) {
        let mut memory = Guarded::new(len);
        memory.settle();
        let slice = memory.slice();
        self.memory.push(memory);
        (self.token(None), slice)
    }

    fn submit(&mut self) {
        let byte = self.cut.u8();
        let (choice, fenced) = (byte % 11, byte >= 0xC0);
        let len = usize::from(self.cut.u8()) * if self.cut.u8() & 7 == 0 { 16 } else { 1 };
        let (peer, level) = (self.at_victim, Level::Visible);
        let offset = u64::from(self.cut.u8());
        let spans = smallvec![RemoteSpan { offset, len: len as u64 }];
        let remote = self.remotes.get(self.cut.upto(self.remotes.len())).copied();
        let remote = remote.filter(|_| choice >= 5);
        let operation = match choice {
            0 => {
                let (token, memory) = self.source(len.min(1000));
                Operation::Send { token, peer, payload: Payload::Memory(memory), level }
            }
            1 => {
                let (token, body) = self.source(len);
                Operation::SendLong { token, peer, header: Bytes::from_static(b"x"), body }
            }
            2 => {
                let (token, memory) = self.source(len);
                let payload = Payload::Memory(memory);
                Operation::SendTagged { token, peer, tag: offset % 4, payload, level }
            }
            3 => {
                let (token, into) = self.target(len);
                let (tag, ignore) = (offset % 4, 0);
                Operation::PostReceive { token, source: None, tag, ignore, into }
            }
            4 => {
                let (token, into) = self.target(len);
                let Some(body) = self.bodies.pop() else {
                    self.operations[token.0 as usize].0 = true;
                    return;
                };
                Operation::Receive { token, body, into }
            }
            5 | 6 if let Some(remote) = remote => {
                let (token, into) = self.target(len);
                Operation::Get { token, remote, local: smallvec![into], spans }
            }
            7 | 8 if let Some(remote) = remote => {
                let (token, from) = self.source(len);
                let event = (offset & 1 == 0).then_some(7);
                Operation::Put { token, remote, local: smallvec![from], spans, level, event }
            }
            9 if let Some(remote) = remote => match offset & 1 {
                0 => Operation::Map { token: self.token(None), remote },
                _ => Operation::Atomic {
                    token: self.token(None),
                    remote,
                    offset: offset & 0xF8,
                    op: AtomicOp::Sum,
                    kind: AtomicType::U64,
                    operand: smallvec![1; 8],
                    compare: smallvec![],
                    fetch: true,
                },
            },
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
        self.victim.submit(&mut VecDeque::from([operation]));
    }

    fn finish(mut self) {
        drop(std::mem::replace(&mut self.hostile, open()));
        for (region, at) in self.regions.clone() {
            let token = self.token(Some(at));
            self.victim.submit(&mut VecDeque::from([Operation::Deregister {
                token,
                region,
                patience: Operation::PATIENCE,
            }]));
        }
        for token in 0..self.operations.len() {
            self.victim.cancel(Token(token as u64));
        }
        for _ in 0..200 {
            self.pass(true);
            self.leases.clear();
            if self.operations.iter().all(|(done, _)| *done) {
                break;
            }
            self.now = self.now.after(Duration::from_millis(100));
        }
        assert!(self.operations.iter().all(|(done, _)| *done), "an operation never completed");
        drop(self.victim);
        self.memory.into_iter().for_each(Guarded::finish);
    }
}

//! An endpoint of the channels against two peers that mean harm: packets and records of all kinds,
//! puts into what was given to them, data that comes when it likes, and ends at any time.
//!
//! Whatever they do: nothing panics; memory is bounded; no memory is written but what they have the
//! right to; every operation completes exactly once; when they are gone, nothing of theirs is held.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use petasos_channel::{
    Channels, Config, Thresholds,
    device::{Class, Fault},
};
use petasos_fabric::{
    Access, Body, Endpoint, Event, Incarnation, Key, Lease, Level, Operation, Payload, Peer,
    RegionId, Remote, RemoteSpan, Slice, Time, Token, key::KeyParts, two_sided::header,
};
use petasos_fuzz::{
    Cut, Guarded,
    nic::{NODES, Nic, Wires},
};
use smallvec::smallvec;
use std::{collections::VecDeque, time::Duration};

/// Steps in one run.
const STEPS: usize = 300;
/// What the endpoint holds at most of its own, with what the script's side keeps for it.
const MEMORY: usize = 1 << 20;
const CELL: usize = 64;
const PATIENCE: Duration = Duration::from_secs(1);

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
    let mut config = Config::default();
    let limits = &mut config.limits;
    (limits.max_inject, limits.max_message, limits.max_header) = (128, 1000, 100);
    (limits.max_regions, limits.max_peers, limits.max_leases) = (16, 4, 8);
    config.fragment = 1000;
    config.thresholds = Some(Thresholds::new(300, 600, 60).expect("in order"));
    (config.window, config.deferred, config.lent, config.gets, config.ahead) = (4, 6, 4, 2, 3);
    (config.bounces, config.bounce, config.accesses) = (4, 300, 2);
    config.exclusive.cells = 16;
    config.exclusive.hot.messages = 3;
    for cap in [&mut config.exclusive.give, &mut config.exclusive.keep] {
        (cap.count, cap.idle) = (1, Duration::from_nanos(500));
    }
    (config.idle, config.exclusive.pause) = (Duration::from_micros(2), Duration::from_micros(1));
    config
}

/// What the script knows of a peer.
#[derive(Default)]
struct Hostile {
    /// The number of its next record, and of those of the endpoint's that it saw.
    seq: u32,
    saw: u32,
    /// The channel that it was given: cells and the device's name of the memory; and where it
    /// writes next.
    fifo: Option<(u32, usize)>,
    tail: u32,
    peer: Option<Peer>,
}

struct World<'a> {
    cut: Cut<'a>,
    wires: Wires,
    end: Channels<Nic>,
    now: Time,
    hostile: [Hostile; NODES],
    /// Numbers that were seen in packets.
    seen: VecDeque<u64>,
    /// Regions with their memory, and the engine's routes to them.
    regions: Vec<(RegionId, usize)>,
    routes: Vec<Bytes>,
    memory: Vec<Guarded>,
    /// By token: whether it is over.
    operations: Vec<bool>,
    remotes: Vec<Remote>,
    bodies: Vec<Body>,
    leases: Vec<Lease>,
}

impl<'a> World<'a> {
    fn new(cut: Cut<'a>) -> World<'a> {
        let (nic, wires) = Nic::new();
        let mut end = Channels::new(nic, config());
        let (mut regions, mut routes, mut memory) = (Vec::new(), Vec::new(), Vec::new());
        for access in [Access::ALL, Access::READ] {
            let mut piece = Guarded::new(700);
            let region = end.register(&piece.slice(), access).expect("room for a region");
            if access == Access::READ {
                piece.settle();
            }
            let parts = end.export(region).expect("it is registered").parse().expect("a key");
            routes.extend(parts.route(Key::ROUTE_TWO_SIDED).cloned());
            regions.push((region, memory.len()));
            memory.push(piece);
        }
        let mut world = World {
            cut,
            wires,
            end,
            now: Time(1),
            hostile: Default::default(),
            seen: VecDeque::new(),
            regions,
            routes,
            memory,
            operations: Vec::new(),
            remotes: Vec::new(),
            bodies: Vec::new(),
            leases: Vec::new(),
        };
        for node in 0..NODES {
            world.connect(node);
        }
        world
    }

    fn connect(&mut self, node: usize) {
        let _ = self.end.resolve(&Wires::address(node), PATIENCE);
        self.wires.state().rise(node);
        self.hostile[node] = Hostile::default();
        self.drive(64);
    }

    fn step(&mut self) {
        let node = self.cut.upto(NODES);
        match self.cut.u8() % 20 {
            0 => {
                let class = [Class::Data, Class::Control][self.cut.upto(2)];
                let bytes = self.cut.short();
                self.wires.state().packet(node, class, bytes);
            }
            1..=4 => {
                let (record, counts) = self.record(node);
                let sent = self.wires.state().packet(node, Class::Data, &record);
                self.hostile[node].seq += u32::from(sent && counts);
            }
            5 | 6 => self.put_record(node),
            7 => {
                let (slot, at) = (self.cut.upto(48), usize::from(self.cut.u16()));
                let (event, bytes) = (self.number(), self.cut.short());
                let event = (event % 4 > 0).then_some(event);
                self.wires.state().put(node, slot, at, bytes, event);
            }
            8 => self.control(node),
            9 => {
                let faults = [Fault::Stale, Fault::Denied, Fault::OutOfBounds];
                let (nth, how, pattern) = (self.cut.upto(16), self.cut.upto(64), self.cut.u8());
                self.wires.state().finish(nth, faults.get(how).copied(), pattern);
            }
            10 => {
                let full = self.cut.u8() % 4 == 0;
                self.wires.state().set_full(full);
            }
            11 if self.cut.u8() % 8 == 0 => {
                self.wires.state().lose(node);
                self.drive(64);
                self.connect(node);
            }
            12 | 13 => self.submit(node),
            14 => {
                if let Some(peer) = self.hostile[node].peer {
                    let len = usize::from(self.cut.u8()) / 2;
                    let _ = self.end.inject(peer, &[b"x", &[7; 128][..len]]);
                }
            }
            15 => {
                let mut message = Lease::default();
                if self.end.poll_message(&mut message).is_some() {
                    self.leases.push(message);
                }
                self.look();
            }
            16 => {
                let token = self.cut.u8();
                self.end.cancel(Token(token.into()));
            }
            17 => self.leases.clear(),
            _ => {
                let budget = 1 + self.cut.upto(16);
                self.now = Time(self.now.0 + u64::from(self.cut.u8()) * 50);
                self.drive(budget);
            }
        }
    }

    // What the peers say.

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

    fn head(&mut self, node: usize, kind: u8, flags: u8, seq: u32, len: usize) -> [u8; 16] {
        let ack = match self.cut.u8() {
            255 => self.cut.u32(),
            back @ 240.. => self.hostile[node].saw.wrapping_sub(u32::from(back - 240)),
            _ => self.hostile[node].saw,
        };
        let mut head = [0; 16];
        head[..4].copy_from_slice(&(len as u32).to_le_bytes());
        head[4..8].copy_from_slice(&seq.to_le_bytes());
        head[8..12].copy_from_slice(&ack.to_le_bytes());
        (head[12], head[13], head[14]) = (kind, flags, 1);
        head
    }

    /// A record whose parts make sense one by one, and whether its number was the next.
    fn record(&mut self, node: usize) -> (Vec<u8>, bool) {
        let flags = match self.cut.u8() % 16 {
            0..8 => 3,
            8..12 => 7,
            other => other % 8,
        };
        let skip = match self.cut.u8() {
            other @ 248.. => u32::from(other - 248).wrapping_sub(4),
            _ => 0,
        };
        let mut body = Vec::new();
        let lent = flags & 4 != 0;
        let mut len = usize::from(self.cut.u16()) % 1100;
        if lent {
            let said = if self.cut.u8() == 255 { self.cut.u32() } else { len as u32 };
            body.extend(said.to_le_bytes());
            body.extend([8, 1, 1, 1, 1, 1, 1, 1, 1]);
        }
        if flags & 1 != 0 {
            if !lent {
                len %= 200;
            }
            body.extend(self.header(len));
        }
        if !lent {
            let pattern = self.cut.u8();
            body.extend((0..len % 200).map(|i| pattern.wrapping_add(i as u8)));
        }
        let seq = self.hostile[node].seq.wrapping_add(skip);
        let head = self.head(node, 1, flags, seq, body.len());
        ([&head[..], &body].concat(), skip == 0)
    }

    /// The engine's header of a packet with so many bytes.
    fn header(&mut self, len: usize) -> Vec<u8> {
        let (kind, flags) = match self.cut.u8() % 64 {
            0..8 => return header::message_header(len as u32).to_vec(),
            other => ((other - 8) % petasos_fuzz::KINDS, self.cut.u8() % 8),
        };
        let [low, high] = (len as u16).to_le_bytes();
        let prefix = [kind, header::VERSION, flags, 0, low, high, 0, 0];
        let mut packet = prefix.to_vec();
        let Ok(frame) = header::frame(prefix) else { return packet };
        while packet.len() < frame.header {
            if matches!(kind, 8 | 9 | 11 | 16) && packet.len() == 16 {
                let route = self.cut.upto(self.routes.len());
                packet.extend_from_slice(&self.routes[route]);
            } else {
                packet.extend(self.number().to_le_bytes());
            }
        }
        packet
    }

    /// A record into the channel that the peer was given, or into the other's.
    fn put_record(&mut self, node: usize) {
        let of = if self.cut.u8() == 255 { 1 - node } else { node };
        let Some((cells, slot)) = self.hostile[of].fifo else { return };
        let (mut record, counts) = self.record(node);
        let need = record.len().div_ceil(CELL) as u32;
        let mut tail = self.hostile[of].tail % cells;
        if tail + need > cells {
            let at = tail as usize * CELL;
            self.wires.state().put(node, slot, at, &[], Some(u64::from(u32::MAX)));
            tail = 0;
        }
        let mark = record.first_chunk().map_or(0, |mark| u64::from_le_bytes(*mark));
        let mark = if self.cut.u8() == 255 { self.number() } else { mark };
        if self.cut.u8() != 255 {
            record[..8].fill(0);
        }
        let put = self.wires.state().put(node, slot, tail as usize * CELL, &record, Some(mark));
        if put {
            self.hostile[of].tail = tail + need;
            self.hostile[node].seq += u32::from(counts);
        }
    }

    fn control(&mut self, node: usize) {
        let kind = self.cut.u8() % 9;
        let cells = u32::from(self.cut.u8() % 32);
        let body = match (kind, self.cut.u8() % 16) {
            (_, 15) => self.cut.short().to_vec(),
            (3, _) => cells.to_le_bytes().to_vec(),
            (4, _) => [&cells.to_le_bytes()[..], &[1; 8]].concat(),
            _ => Vec::new(),
        };
        let head = self.head(node, kind, 0, 0, body.len());
        self.wires.state().packet(node, Class::Control, &[&head[..], &body].concat());
    }

    // What the endpoint does.

    /// Looks at what it sent.
    fn look(&mut self) {
        for (node, bytes) in std::mem::take(&mut self.wires.state().sent) {
            let hostile = &mut self.hostile[node];
            let word = |at: usize| bytes.get(at..at + 4).and_then(|word| word.first_chunk());
            match bytes.get(12) {
                Some(1) => {
                    hostile.saw += 1;
                    let number = bytes.get(24..32).and_then(|number| number.first_chunk());
                    self.seen.extend(number.map(|number| u64::from_le_bytes(*number)));
                }
                Some(4) => {
                    let cells = word(16).map_or(0, |cells| u32::from_le_bytes(*cells));
                    let slot = bytes.get(20).map_or(0, |slot| usize::from(*slot));
                    (hostile.fifo, hostile.tail) = (Some((cells.max(1), slot)), 0);
                }
                _ => {}
            }
        }
        let more = self.seen.len().saturating_sub(32);
        self.seen.drain(..more);
    }

    fn drive(&mut self, budget: usize) {
        let mut events = Vec::new();
        self.end.progress(self.now, budget, &mut events);
        for event in events {
            match event {
                Event::Done { token, .. } => {
                    let over = &mut self.operations[token.0 as usize];
                    assert!(!std::mem::replace(over, true), "an operation completed twice");
                }
                Event::Message { message, .. } => self.leases.push(message),
                Event::LongMessage { header, body, .. } => {
                    self.leases.push(*header);
                    self.bodies.push(body);
                }
                Event::PeerUp { peer, .. } => {
                    let info = self.end.peer(peer).expect("it is up");
                    let node = (0..NODES).find(|node| Wires::address(*node) == info.address);
                    self.hostile[node.expect("one of them")].peer = Some(peer);
                }
                Event::PeerLost { peer, .. } => {
                    for hostile in &mut self.hostile {
                        hostile.peer.take_if(|known| *known == peer);
                    }
                }
                _ => {}
            }
        }
        self.look();
    }

    fn token(&mut self) -> Token {
        self.operations.push(false);
        Token(self.operations.len() as u64 - 1)
    }

    /// Memory that is only read, or not.
    fn room(&mut self, len: usize, read: bool) -> Slice {
        let mut memory = Guarded::new(len);
        if read {
            memory.settle();
        }
        let slice = memory.slice();
        self.memory.push(memory);
        slice
    }

    fn submit(&mut self, node: usize) {
        let Some(peer) = self.hostile[node].peer else { return };
        let (choice, byte) = (self.cut.upto(10), self.cut.u8());
        let (tag, fenced) = (u64::from(byte % 4), byte >= 0xC0);
        let len = usize::from(self.cut.u8()) * 4;
        let level = [Level::Reusable, Level::Delivered][self.cut.upto(2)];
        let body = self.bodies.get(self.cut.upto(self.bodies.len())).copied();
        let body = body.unwrap_or(Body { peer, id: 5 });
        let token = self.token();
        let spans = smallvec![RemoteSpan { offset: tag, len: len as u64 }];
        let operation = match choice {
            0 => {
                let payload = Payload::Memory(self.room(len.min(1000), true));
                Operation::Send { token, peer, payload, level }
            }
            1 => {
                let payload = Payload::Bytes(vec![7; len.min(1000)].into());
                Operation::SendTagged { token, peer, tag, payload, level }
            }
            2 => {
                let body = self.room(2 * len, true);
                Operation::SendLong { token, peer, header: Bytes::from_static(b"long"), body }
            }
            3 => Operation::Receive { token, body, into: self.room(len, false) },
            4 => {
                let (source, ignore, into) = (Some(peer), 0, self.room(len, false));
                Operation::PostReceive { token, source, tag, ignore, into }
            }
            5 => Operation::Discard { token, body },
            9 => Operation::Flush { token, peer },
            6 | 7 => {
                let Some(remote) = self.remote(node) else {
                    return self.operations[token.0 as usize] = true;
                };
                let local = smallvec![self.room(len, choice == 6)];
                match choice {
                    6 => Operation::Put { token, remote, local, spans, level, event: None },
                    _ => Operation::Get { token, remote, local, spans },
                }
            }
            _ => {
                let (region, _) = self.regions[self.cut.upto(self.regions.len())];
                Operation::Deregister { token, region, patience: Operation::PATIENCE }
            }
        };
        let operation = if fenced { operation.fenced() } else { operation };
        let mut queue = VecDeque::from([operation]);
        self.end.submit(&mut queue);
        // What was not accepted never was.
        self.operations[token.0 as usize] |= !queue.is_empty();
    }

    /// A key of a peer's, by the device and by the engine.
    fn remote(&mut self, node: usize) -> Option<Remote> {
        let info = self.end.peer(self.hostile[node].peer?)?;
        let parts = KeyParts {
            owner: info.address,
            incarnation: info.incarnation.or(Incarnation::new(1))?,
            len: 5000,
            access: Access::ALL,
            routes: vec![
                (Key::ROUTE_TWO_SIDED, Bytes::from_static(&[1; 16])),
                (Key::ROUTE_DEVICE, Bytes::from_static(&[1; 8])),
            ],
        };
        let remote = self.end.import(&Key::compose(&parts).ok()?).ok()?;
        self.remotes.push(remote);
        if self.remotes.len() > 4 {
            self.end.release(self.remotes.remove(0));
        }
        Some(remote)
    }

    fn finish(mut self) {
        self.wires.state().set_full(false);
        for node in 0..NODES {
            self.wires.state().lose(node);
            self.drive(usize::MAX);
            let _ =
                self.end.resolve(&Wires::address(node), PATIENCE).map(|peer| self.end.forget(peer));
        }
        for token in 0..self.operations.len() {
            self.end.cancel(Token(token as u64));
        }
        self.leases.clear();
        for _ in 0..4 {
            self.now = Time(self.now.0 + 10_000);
            self.drive(usize::MAX);
        }
        assert!(self.operations.iter().all(|over| *over), "an operation that never ends");
        let counters = self.end.counters();
        let (config, state) = (config(), self.wires.state());
        let bounces = 2 * config.bounces * config.bounce;
        assert!(counters.deferred == 0 && counters.memory <= bounces as u64, "{counters:?}");
        assert!(
            state.opened() <= self.regions.len() + 2 * config.bounces,
            "regions are registered without a use"
        );
        drop(state);
        drop(self.end);
        self.wires.state().clear();
        self.memory.into_iter().for_each(Guarded::finish);
    }
}

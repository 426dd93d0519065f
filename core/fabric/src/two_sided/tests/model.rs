//! Engines under random operations, cancels, deregistrations and revocations, a lost peer, and
//! channels that stop at any moment, against a plain model of what must come of it.

use super::*;
use crate::{
    AtomicOp, AtomicType, Body, KeyId, Lease, Level, Payload, PeerQuota, RegionId, RemoteSpan,
    Slice, Slices, Spans,
};
use bytes::Bytes;
use petasos_testing::Xorshift;
use proptest::prelude::*;
use smallvec::{SmallVec, smallvec};
use std::collections::HashSet;

const SIZE: usize = 4096;
/// Each put has a part of the target's memory for itself.
const LANE: usize = 1500;
const LANES: usize = 64;

struct Random(Xorshift);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        (self.0.draw() >> 11) as usize % bound
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// One list of lengths that add up to `total`.
    fn cut(&mut self, total: usize) -> Vec<usize> {
        let (mut cuts, mut left) = (Vec::new(), total);
        while left > 0 {
            let len = 1 + self.below(left);
            cuts.push(len);
            left -= len;
        }
        cuts
    }
}

/// What an operation was, to judge its end by.
enum Was {
    Message,
    Long,
    Receive {
        into: Region,
        seed: u8,
    },
    Discard,
    SendTagged,
    Post {
        into: Region,
    },
    Put {
        owner: usize,
        source: Region,
        lane: usize,
        len: usize,
        seed: u8,
        visible: bool,
    },
    Get {
        into: Region,
        at: usize,
        len: usize,
    },
    Atomic,
    Flush {
        owner: usize,
    },
    Deregister {
        memory: Region,
    },
    /// One of the keys to the owner's lanes.
    Revoke,
}

struct Run {
    net: Net,
    random: Random,
    ops: Vec<(usize, Was, bool)>,
    /// Memory of others, read-only in effect, with what it holds.
    readable: Vec<Region>,
    /// Lanes for puts, per owner, with the registration and keys of the others.
    written: Vec<Region>,
    regions: Vec<RegionId>,
    /// Owners that have closed theirs or revoke the keys, and operations that were to be cancelled.
    closed: Vec<usize>,
    cancelled: HashSet<usize>,
    /// For every other seed the lanes are written by keys of their own, by owner and user, of which
    /// so many were revoked.
    keys: Vec<Vec<KeyId>>,
    revoked: Vec<usize>,
    reads: Vec<Vec<Option<Remote>>>,
    writes: Vec<Vec<Option<Remote>>>,
    counters: Vec<Region>,
    counts: Vec<Vec<Option<Remote>>>,
    lanes: usize,
    sent: Vec<Vec<u32>>,
    heard: Vec<Vec<u32>>,
    bodies: Vec<Vec<(Body, u64, u8)>>,
    /// Memory that must not change any more.
    frozen: Vec<(Region, Vec<u8>, &'static str)>,
    fetched: Vec<Vec<u64>>,
    lost: Option<(usize, usize)>,
    /// Messages that the program holds, for some time.
    held: Vec<Lease>,
    /// How many at most.
    hoards: usize,
}

impl Run {
    fn new(count: usize, seed: u64) -> Run {
        let leases = [1, 3, 64][seed as usize % 3];
        let mut net = Net::with_leases(count, &small_config(), leases);
        let table = || vec![vec![None; count]; count];
        let (mut reads, mut writes, mut counts) = (table(), table(), table());
        let (mut readable, mut written, mut counters) = (Vec::new(), Vec::new(), Vec::new());
        let (mut regions, mut keys) = (Vec::new(), vec![Vec::new(); count]);
        for owner in 0..count {
            readable.push(Region::from(bytes(SIZE, owner as u8)));
            written.push(Region::zeroed(LANE * LANES));
            counters.push(Region::zeroed(8));
            for user in 0..count {
                let (_, remote) = net.share(owner, user, &readable[owner], Access::READ);
                reads[user][owner] = Some(remote);
                let (_, remote) = net.share(owner, user, &counters[owner], Access::ATOMIC);
                counts[user][owner] = Some(remote);
            }
            let region = net.engines[owner].register(&written[owner].whole(), Access::WRITE);
            regions.push(region.unwrap());
            for (user, writes) in writes.iter_mut().enumerate() {
                let engine = &mut net.engines[owner];
                let mut parts = engine.key_parts(regions[owner]).unwrap();
                if !seed.is_multiple_of(2) {
                    let range = 0..written[owner].len() as u64;
                    let made = engine.export_part(regions[owner], range, Access::WRITE);
                    let (id, key) = made.unwrap();
                    keys[owner].push(id);
                    parts = key.parse().unwrap();
                }
                let peer = net.peers[user][owner];
                writes[owner] = Some(net.engines[user].import(parts, peer).unwrap());
            }
        }
        Run {
            net,
            random: Random(Xorshift::from_state(seed)),
            ops: Vec::new(),
            readable,
            written,
            regions,
            closed: Vec::new(),
            cancelled: HashSet::new(),
            keys,
            revoked: vec![0; count],
            reads,
            writes,
            counters,
            counts,
            lanes: 0,
            sent: vec![vec![0; count]; count],
            heard: vec![vec![0; count]; count],
            bodies: vec![Vec::new(); count],
            frozen: Vec::new(),
            fetched: vec![Vec::new(); count],
            lost: None,
            held: Vec::new(),
            hoards: if seed.is_multiple_of(2) { 0 } else { leases * count },
        }
    }

    fn token(&mut self, engine: usize, was: Was) -> Token {
        self.ops.push((engine, was, false));
        Token(self.ops.len() as u64 - 1)
    }

    fn level(&mut self) -> Level {
        self.random.pick(&[Level::Reusable, Level::Delivered, Level::Visible])
    }

    fn payload(&mut self, data: Vec<u8>) -> Payload {
        match self.random.below(2) {
            0 => Payload::Bytes(Bytes::from(data)),
            _ => Payload::Memory(Slice::from(data)),
        }
    }

    fn act(&mut self) {
        let count = self.net.engines.len();
        let (a, b) = (self.random.below(count), self.random.below(count));
        let peer = self.net.peers[a][b];
        let operation = match self.random.below(13) {
            0 => {
                let message = self.message(a, b);
                let (payload, level) = (self.payload(message), self.level());
                let token = self.token(a, Was::Message);
                Operation::Send { token, peer, payload, level }
            }
            1 => {
                let message = self.message(a, b);
                self.net.engines[a].inject(peer, &[&message]).ok();
                return;
            }
            2 => {
                let (len, seed) = (self.random.below(3000), self.random.below(256) as u8);
                let token = self.token(a, Was::Long);
                let header = Bytes::from(vec![seed; 1 + self.random.below(120)]);
                let body = bytes(len, seed).into();
                Operation::SendLong { token, peer, header, body }
            }
            3 | 4 => {
                let at = match self.bodies[a].len() {
                    0 => return,
                    len => self.random.below(len),
                };
                let (body, _, seed) = self.bodies[a].swap_remove(at);
                if self.random.below(4) == 0 {
                    let token = self.token(a, Was::Discard);
                    Operation::Discard { token, body }
                } else {
                    let into = Region::zeroed(self.random.below(4000));
                    let slice = into.whole();
                    let token = self.token(a, Was::Receive { into, seed });
                    Operation::Receive { token, body, into: slice }
                }
            }
            5 | 6 => {
                let (len, tag) =
                    (self.random.below(3) * self.random.below(800), self.random.below(256));
                let (payload, level) = (self.payload(bytes(len, tag as u8)), self.level());
                let token = self.token(a, Was::SendTagged);
                Operation::SendTagged { token, peer, tag: tag as u64, payload, level }
            }
            7 => {
                let into = Region::zeroed(self.random.below(1600));
                let slice = into.whole();
                let source = (self.random.below(2) == 0).then_some(peer);
                let (tag, ignore) =
                    (self.random.below(256) as u64, self.random.pick(&[0, 0xF, 0xFF]));
                let token = self.token(a, Was::Post { into });
                Operation::PostReceive { token, source, tag, ignore, into: slice }
            }
            8 => {
                if self.lanes == LANES {
                    return;
                }
                let (lane, len) = (self.lanes, self.random.below(LANE));
                self.lanes += 1;
                let seed = self.random.below(255) as u8;
                let source = Region::from(bytes(len, seed));
                let (local, spans) = self.pieces(&source, lane * LANE, len);
                let level = self.level();
                let event = (self.random.below(2) == 0).then_some(lane as u64);
                let visible = level > Level::Reusable;
                let was = Was::Put { owner: b, source, lane, len, seed, visible };
                let token = self.token(a, was);
                let remote = self.writes[a][b].unwrap();
                Operation::Put { token, remote, local, spans, level, event }
            }
            9 => {
                let len = self.random.below(SIZE);
                let at = self.random.below(SIZE - len + 1);
                let into = Region::zeroed(len);
                let (local, spans) = self.pieces(&into, at, len);
                let token = self.token(a, Was::Get { into, at, len });
                Operation::Get { token, remote: self.reads[a][b].unwrap(), local, spans }
            }
            10 => {
                let token = self.token(a, Was::Atomic);
                Operation::Atomic {
                    token,
                    remote: self.counts[a][b].unwrap(),
                    offset: 0,
                    op: AtomicOp::Sum,
                    kind: AtomicType::U64,
                    operand: SmallVec::from_slice(&1u64.to_le_bytes()),
                    compare: SmallVec::new(),
                    fetch: true,
                }
            }
            11 => {
                let token = self.token(a, Was::Flush { owner: b });
                Operation::Flush { token, peer }
            }
            _ => {
                if let Some(last) = self.ops.len().checked_sub(1) {
                    let at = last - self.random.below(self.ops.len().min(20));
                    let engine = self.ops[at].0;
                    self.cancelled.insert(at);
                    self.net.engines[engine].cancel(Token(at as u64));
                    self.watch(engine);
                }
                return;
            }
        };
        self.net.engines[a].submit(operation);
    }

    fn message(&mut self, a: usize, b: usize) -> Vec<u8> {
        self.sent[a][b] += 1;
        let mut message = self.sent[a][b].to_le_bytes().to_vec();
        message.resize(4 + self.random.below(200), self.sent[a][b] as u8);
        message
    }

    fn pieces(&mut self, local: &Region, at: usize, len: usize) -> (Slices, Spans) {
        let (mut from, mut to) = (0, at as u64);
        let mut slices = Slices::new();
        for len in self.random.cut(len) {
            slices.push(local.slice(from, len).unwrap());
            from += len;
        }
        let mut spans = Spans::new();
        for len in self.random.cut(len) {
            spans.push(RemoteSpan { offset: to, len: len as u64 });
            to += len as u64;
        }
        (slices, spans)
    }

    /// Looks at the events of one engine.
    fn watch(&mut self, a: usize) {
        self.net.collect(a);
        for event in std::mem::take(&mut self.net.events[a]) {
            match event {
                Event::Message { peer, message } => {
                    let from = self.from(a, peer);
                    let number = u32::from_le_bytes(message[..4].try_into().unwrap());
                    assert!(number > self.heard[a][from], "out of order");
                    self.heard[a][from] = number;
                    assert!(message[4..].iter().all(|byte| *byte == number as u8));
                    if self.held.len() < self.hoards {
                        self.held.push(message);
                    }
                }
                Event::LongMessage { header, body, len, .. } => {
                    self.bodies[a].push((body, len, header[0]));
                }
                Event::PutArrived { region, data, len, .. } => {
                    assert_eq!(region, self.regions[a]);
                    let lane = data as usize;
                    self.ops.iter().for_each(|(_, was, _)| match was {
                        Was::Put { owner, lane: l, seed, .. } if *owner == a && *l == lane => {
                            let there = self.lane(a, lane, len as usize);
                            assert!(
                                there == bytes(len as usize, *seed),
                                "the event came too early"
                            );
                        }
                        _ => {}
                    });
                }
                Event::Done { token, result } => {
                    self.judge(a, token, result.map_err(crate::OpError::into_kind))
                }
                _ => {}
            }
        }
    }

    fn from(&self, a: usize, peer: Peer) -> usize {
        self.net.peers[a].iter().position(|p| *p == peer).unwrap()
    }

    fn lane(&self, owner: usize, lane: usize, len: usize) -> Vec<u8> {
        self.written[owner].slice(lane * LANE, len).unwrap().to_vec()
    }

    fn judge(&mut self, a: usize, token: Token, result: Result<Done, OpErrorKind>) {
        let (engine, was, done) = &mut self.ops[token.0 as usize];
        assert!(*engine == a && !*done, "{token:?} completed twice, or elsewhere");
        *done = true;
        let memory = match was {
            Was::Receive { into, .. } | Was::Post { into } | Was::Get { into, .. } => Some(into),
            Was::Put { source, .. } => Some(source),
            _ => None,
        };
        let used = memory.and_then(|memory| self.net.engines[a].in_use(&memory.whole()));
        assert_eq!(used, None, "{token:?} is complete");
        if let Err(error) = &result {
            use OpErrorKind::*;
            let plausible = matches!(
                error,
                Cancelled | PeerLost(_) | StaleKey | Truncated { .. } | Withdrawn | UnknownRegion
            );
            assert!(plausible, "{error}");
            assert!(self.lost.is_some() || !matches!(error, PeerLost(_)));
        }
        match was {
            Was::Receive { into, seed } => {
                if let Ok(Done::Received { len }) = result {
                    let len = len as usize;
                    assert!(into.to_vec()[..len] == bytes(len, *seed));
                }
                self.frozen.push((into.clone(), into.to_vec(), "received"));
            }
            Was::Post { into } => {
                if let Ok(Done::Tagged { tag, len, .. }) = result {
                    let len = len as usize;
                    assert!(into.to_vec()[..len] == bytes(len, tag as u8));
                }
                self.frozen.push((into.clone(), into.to_vec(), "posted"));
            }
            Was::Get { into, at, len } => {
                if result.is_ok() {
                    let owner = into.to_vec();
                    let from = |r: &Region| r.slice(*at, *len).unwrap().to_vec() == owner;
                    assert!(self.readable.iter().any(from), "not what was asked for");
                }
                self.frozen.push((into.clone(), into.to_vec(), "got"));
            }
            Was::Put { owner, source, lane, len, seed, visible } => {
                source.write(0, &vec![0xEE; *len]);
                let (owner, lane, len, seed) = (*owner, *lane, *len, *seed);
                if result.is_ok() && *visible {
                    assert!(self.lane(owner, lane, len) == bytes(len, seed), "not visible");
                }
            }
            Was::Atomic => {
                if let Ok(Done::Fetched(old)) = result {
                    let old = u64::from_le_bytes(old[..].try_into().unwrap());
                    self.fetched[a].push(old);
                }
            }
            Was::Flush { owner } => {
                let owner = *owner;
                if result.is_ok() && !self.closed.contains(&owner) {
                    self.check_flushed(a, owner, token);
                }
            }
            Was::Deregister { memory } => {
                self.frozen.push((memory.clone(), memory.to_vec(), "deregistered"));
            }
            Was::Revoke => {
                assert!(matches!(result, Ok(Done::Revoked)), "{result:?}");
                self.revoked[a] += 1;
                // Nothing else writes there.
                if self.revoked[a] == self.keys[a].len() {
                    let memory = &self.written[a];
                    self.frozen.push((memory.clone(), memory.to_vec(), "revoked"));
                }
            }
            Was::Message | Was::Long | Was::Discard | Was::SendTagged => {}
        }
    }

    /// All puts before a flush are visible, but for those that were cancelled.
    fn check_flushed(&self, engine: usize, flushed: usize, token: Token) {
        for (at, (by, was, _)) in self.ops[..token.0 as usize].iter().enumerate() {
            if let Was::Put { owner, lane, len, seed, .. } = was
                && (*by, *owner) == (engine, flushed)
                && !self.cancelled.contains(&at)
            {
                assert!(self.lane(*owner, *lane, *len) == bytes(*len, *seed), "not flushed");
            }
        }
    }

    fn wander(&mut self, steps: usize, calm: usize) {
        let count = self.net.engines.len();
        for _ in 0..steps {
            if !self.held.is_empty() && self.random.below(30) == 0 {
                let at = self.random.below(self.held.len());
                self.held.swap_remove(at);
            }
            let a = self.random.below(count);
            if self.random.below(50) == 0 {
                let b = self.random.below(count);
                self.set_quota(a, b);
                self.look_at_one();
            }
            match self.random.below(calm) {
                0 => self.act(),
                1 => self.watch(a),
                _ => {
                    for _ in 0..self.random.below(40) {
                        let (step, amount) = (self.random.pick(&STEPS), self.random.below(300));
                        let (a, b) = (self.random.below(count), self.random.below(count));
                        self.net.step(a, b, step, amount);
                    }
                }
            }
        }
    }

    /// What a peer may have changes at any time.
    fn set_quota(&mut self, a: usize, b: usize) {
        let quota = PeerQuota::UNLIMITED
            .with_leases(self.random.pick(&[0, 1, 2, usize::MAX]))
            .with_lease_bytes(self.random.pick(&[1, 600, usize::MAX]))
            .with_unexpected(self.random.pick(&[0, 20_000, usize::MAX]));
        let peer = self.net.peers[a][b];
        self.net.engines[a].set_quota(peer, quota).unwrap();
    }

    /// Memory into which nothing is under way does not change any more.
    fn look_at_one(&mut self) {
        if self.ops.is_empty() {
            return;
        }
        let at = self.random.below(self.ops.len());
        let (engine, was, _) = &self.ops[at];
        if let Was::Receive { into, .. } | Was::Post { into } | Was::Get { into, .. } = was
            && self.net.engines[*engine].in_use(&into.whole()).is_none()
        {
            self.frozen.push((into.clone(), into.to_vec(), "free"));
        }
    }

    fn end(&mut self) {
        let count = self.net.engines.len();
        for _ in 0..10_000 {
            let mut moved = false;
            for a in 0..count {
                for b in 0..count {
                    for step in [Step::Poll, Step::Send, Step::Accept, Step::Land] {
                        moved |= self.net.step(a, b, step, 0);
                    }
                }
                moved |= self.net.engines[a].has_events();
                self.watch(a);
                while let Some((body, ..)) = self.bodies[a].pop() {
                    let token = self.token(a, Was::Discard);
                    self.net.engines[a].submit(Operation::Discard { token, body });
                    moved = true;
                }
            }
            if !moved {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    /// All leases are held; whatever is no message completes, and so do messages that need none.
    fn check_under_hoarding(&mut self) {
        self.end();
        for (at, (_, was, done)) in self.ops.iter().enumerate() {
            let waits = matches!(
                was,
                Was::Message
                    | Was::Long
                    | Was::SendTagged
                    | Was::Post { .. }
                    | Was::Deregister { .. }
                    | Was::Revoke
            );
            assert!(waits || *done, "operation {at} waits for a lease");
        }
        for engine in &self.net.engines {
            let (lent, promised) = (engine.pool().lent(), engine.peers.promised());
            assert!(lent <= engine.pool().quota().limit(), "{lent} are lent and promised");
            assert_eq!(engine.lent(), lent - promised);
        }
        (self.hoards, self.held) = (0, Vec::new());
    }

    fn check(mut self) {
        self.check_under_hoarding();
        for (engine, peers) in self.net.engines.iter_mut().zip(&self.net.peers) {
            for peer in peers {
                engine.set_quota(*peer, PeerQuota::UNLIMITED).unwrap();
            }
        }
        self.end();
        // Receives without a message end when cancelled; messages without a receive, received.
        for (at, (engine, _, done)) in self.ops.iter().enumerate() {
            if !done {
                self.net.engines[*engine].cancel(Token(at as u64));
            }
        }
        self.end();
        for a in 0..self.net.engines.len() {
            loop {
                let into = Region::zeroed(5000);
                let slice = into.whole();
                let token = self.token(a, Was::Post { into });
                let (source, tag, ignore) = (None, 0, u64::MAX);
                let post = Operation::PostReceive { token, source, tag, ignore, into: slice };
                self.net.engines[a].submit(post);
                self.end();
                if !self.ops.last().unwrap().2 {
                    self.net.engines[a].cancel(token);
                    self.end();
                    break;
                }
            }
        }
        for (at, (engine, _, done)) in self.ops.iter().enumerate() {
            assert!(done, "operation {at} of engine {engine} never completed");
        }
        for (region, was, what) in &self.frozen {
            assert!(region.to_vec() == *was, "something landed in what was {what}");
        }
        for (owner, was) in self.ops.iter().filter_map(|(_, was, _)| match was {
            Was::Put { owner, .. } => Some((*owner, was)),
            _ => None,
        }) {
            let Was::Put { lane, len, seed, .. } = was else { unreachable!() };
            let (there, sent) = (self.lane(owner, *lane, *len), bytes(*len, *seed));
            let fits = there.iter().zip(&sent).all(|(t, s)| *t == 0 || t == s);
            assert!(fits, "a put sent what its source held after completion");
        }
        let atomics = |(_, was, _): &&(usize, Was, bool)| matches!(was, Was::Atomic);
        let total: u64 =
            self.counters.iter().map(|c| u64::from_le_bytes(c.to_vec().try_into().unwrap())).sum();
        assert!(total <= self.ops.iter().filter(atomics).count() as u64);
        assert!(self.fetched.iter().map(Vec::len).sum::<usize>() as u64 <= total);
        self.net.assert_clean();
        for engine in &self.net.engines {
            assert_eq!(engine.lent(), 0, "a lease is left");
            assert_eq!(engine.counters().violations, 0);
        }
    }
}

fn run(count: usize, seed: u64) {
    let mut run = Run::new(count, seed);
    run.wander(3_000, 6);
    if run.random.below(3) > 0 {
        // One engine after the other, each at a moment of its own.
        for a in 0..count {
            if !run.keys[a].is_empty() {
                run.closed.push(a);
            }
            for key in run.keys[a].clone() {
                let token = run.token(a, Was::Revoke);
                let patience = Operation::PATIENCE;
                run.net.engines[a].submit(Operation::Revoke { token, key, patience });
            }
            run.wander(20, 8);
        }
    } else if run.random.below(2) == 0 {
        let a = run.random.below(count);
        let (memory, region) = (run.written[a].clone(), run.regions[a]);
        let token = run.token(a, Was::Deregister { memory });
        run.closed.push(a);
        run.net.engines[a].submit(Operation::Deregister {
            token,
            region,
            patience: Operation::PATIENCE,
        });
    }
    run.wander(500, 8);
    if run.random.below(2) == 0 {
        let (a, b) = (0, count - 1);
        run.lost = Some((a, b));
        run.bodies[a].retain(|(body, ..)| body.peer != run.net.peers[a][b]);
        run.bodies[b].retain(|(body, ..)| body.peer != run.net.peers[b][a]);
        run.watch(a);
        run.watch(b);
        run.net.cut(a, b);
    }
    run.wander(1_000, 8);
    run.check();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn whatever_happens_each_operation_ends_once_and_rightly(seed: u64, three: bool) {
        run(if three { 3 } else { 2 }, seed);
    }
}

#[test]
fn pieces_of_everything_are_gathered() {
    let region = Region::from(bytes(100, 1));
    let pieces: Slices = smallvec![
        region.slice(0, 30).unwrap(),
        region.slice(30, 0).unwrap(),
        region.slice(30, 70).unwrap()
    ];
    let all = |(slices, len): (Slices, usize)| -> Vec<u8> {
        let bytes: Vec<u8> = slices.iter().flat_map(Slice::to_vec).collect();
        assert_eq!(bytes.len(), len);
        bytes
    };
    for (from, len) in [(0, 100), (29, 2), (30, 10), (99, 1), (100, 0)] {
        let part = all(super::super::operations::gather(&pieces, from as u64, len, 9));
        assert_eq!(part, bytes(100, 1)[from..from + len]);
    }
    assert_eq!(super::super::operations::gather(&pieces, 10, 80, 1).1, 20);
}

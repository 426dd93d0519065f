//! Random operations between three endpoints, against a plain model, from a seed.

use crate::{
    Random,
    world::{Node, World, memory, pattern, room},
};
use bytes::Bytes;
use petasos_fabric::{
    Access, AtomicOp, AtomicType, Done, InjectError, Key, Operation, Peer, Remote, Slice, Token,
};
use smallvec::smallvec;
use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

/// Bytes that one initiator has for itself in each region.
const LANE: usize = 64 << 10;

/// Where a get goes, and what it must find.
type Wanted = (Slice, Vec<u8>);

/// What one of the endpoints is doing to another.
struct Pair {
    from: Node,
    to: Node,
    peer: Peer,
    remote: Option<Remote>,
    /// The lane of `from` in the region of `to`, as it must be.
    lane: Vec<u8>,
    /// The one access to the lane that is under way, and what it wants to find.
    access: Option<(Token, Option<Wanted>)>,
    /// Unexpected messages on their way.
    messages: VecDeque<Vec<u8>>,
    /// Long messages on their way: header and body.
    longs: VecDeque<Vec<u8>>,
    /// Sums added to the counter of `to`.
    sums: u64,
    next_tag: u64,
}

/// A receive that should be filled with these bytes.
struct Expected {
    node: Node,
    token: Token,
    into: Slice,
    bytes: Vec<u8>,
}

/// A run.
pub struct Mix {
    random: Random,
    nodes: Vec<Node>,
    pairs: Vec<Pair>,
    regions: Vec<Slice>,
    keys: Vec<Key>,
    expected: Vec<Expected>,
    sends: Vec<(Node, Token)>,
    /// Operations may fail: only that they end is checked.
    losses: bool,
}

/// The whole of it: some seeds without losses.
pub fn random_operations(w: &mut World) {
    for seed in 0..6 {
        w.remark(&format!("seed {seed}"));
        let nodes: Vec<Node> = (0..3).map(|_| w.open()).collect();
        Mix::new(w, nodes.clone(), seed, false).run(w, 400);
        settle(w, &nodes);
    }
}

/// Ends these endpoints, after everything of theirs has completed.
pub fn settle(w: &mut World, nodes: &[Node]) {
    for n in nodes {
        let open: Vec<Token> = w[*n].ledger.outstanding().map(|(token, _)| token).collect();
        for token in open {
            w.cancel(*n, token);
        }
    }
    w.until("everything completes", |w| nodes.iter().all(|n| w[*n].ledger.is_settled()));
    w.run_for(Duration::from_millis(2));
    for n in nodes {
        w.kill(*n);
    }
}

impl Mix {
    /// Connects the endpoints, and opens a region of each to the others.
    pub fn new(w: &mut World, nodes: Vec<Node>, seed: u64, losses: bool) -> Mix {
        let access = w.has(nodes[0], |c| c.remote_access);
        let regions: Vec<_> = nodes.iter().map(|_| room(LANE * nodes.len() + 8)).collect();
        let keys: Vec<_> = (nodes.iter().zip(&regions))
            .map(|(n, region)| w.expose(*n, region, Access::ALL).1)
            .collect();
        let mut pairs = Vec::new();
        for &from in &nodes {
            for (i, &to) in nodes.iter().enumerate() {
                if from == to {
                    continue;
                }
                let address = w.address(to);
                let peer = w.resolve(from, &address);
                pairs.push(Pair {
                    from,
                    to,
                    peer,
                    remote: access.then(|| w.import(from, &keys[i])),
                    lane: vec![0; LANE],
                    access: None,
                    messages: VecDeque::new(),
                    longs: VecDeque::new(),
                    sums: 0,
                    next_tag: 0,
                });
            }
        }
        Mix {
            random: Random::new(seed),
            nodes,
            pairs,
            regions,
            keys,
            expected: Vec::new(),
            sends: Vec::new(),
            losses,
        }
    }

    /// So many random operations, and then all the results.
    pub fn run(mut self, w: &mut World, count: usize) {
        for _ in 0..count {
            if self.losses {
                self.reconnect(w);
            }
            self.one(w);
            for _ in 0..self.random.below(3) {
                w.step();
            }
            self.check_accesses(w);
            self.check_incoming(w);
        }
        if self.losses {
            return;
        }
        w.until("the messages come", |w| {
            self.nodes.iter().all(|n| {
                let due = |p: &&Pair| p.to == *n;
                let messages: usize = self.pairs.iter().filter(due).map(|p| p.messages.len()).sum();
                let longs: usize = self.pairs.iter().filter(due).map(|p| p.longs.len()).sum();
                w[*n].messages.len() == messages && w[*n].longs.len() == longs
            })
        });
        self.check_incoming(w);
        for expected in std::mem::take(&mut self.expected) {
            match w.ok(expected.node, expected.token) {
                Done::Tagged { len, .. } | Done::Received { len } => {
                    assert_eq!(len as usize, expected.bytes.len());
                }
                other => w.fail(&format!("a receive gave {other:?}")),
            }
            assert!(expected.into.to_vec() == expected.bytes, "a message is damaged");
        }
        for (node, token) in std::mem::take(&mut self.sends) {
            w.ok(node, token);
        }
        w.until("the accesses end", |w| {
            let done = |p: &Pair| match &p.access {
                Some((token, _)) => w[p.from].ledger.result(*token).is_some(),
                None => true,
            };
            self.pairs.iter().all(done)
        });
        self.check_accesses(w);
        self.check_regions();
    }

    fn one(&mut self, w: &mut World) {
        let at = self.random.below(self.pairs.len());
        let max = w.capabilities(self.nodes[0]).limits;
        let tagged = w.has(self.nodes[0], |c| c.tagged);
        let pair = &mut self.pairs[at];
        let (from, peer) = (pair.from, pair.peer);
        match self.random.below(8) {
            0 if w.accepted(from) => {
                let len = self.random.below(max.max_inject.min(3000));
                let bytes = self.random.bytes(len);
                if w.try_inject(from, peer, &[&bytes]) == Ok(()) {
                    pair.messages.push_back(bytes);
                }
            }
            0 | 1 => {
                let len = self.random.below(max.max_message.min(30_000));
                let bytes = self.random.bytes(len);
                let token = w.send(from, peer, &bytes);
                self.sends.push((from, token));
                pair.messages.push_back(bytes);
            }
            2 => {
                let len = self.random.below(200_000);
                let bytes = self.random.bytes(len);
                let (body, header) = (memory(&bytes), Bytes::from(pattern(20, len as u8)));
                let token = w.op(from, |token| Operation::SendLong { token, peer, header, body });
                self.sends.push((from, token));
                pair.longs.push_back(bytes);
            }
            3 | 4 if tagged => {
                let len = if self.random.percent(30) { 100_000 } else { 500 };
                let len = self.random.below(len);
                let bytes = self.random.bytes(len);
                // The initiator's number in the upper half: any source, and no mistake.
                let tag = (from as u64) << 32 | pair.next_tag;
                pair.next_tag += 1;
                let (to, into) = (pair.to, room(len));
                let early = self.random.percent(50);
                let post = |w: &mut World| w.post(to, None, tag, 0, &into);
                let posted = early.then(|| post(w));
                let sent = w.send_tagged(from, peer, tag, &bytes);
                self.sends.push((from, sent));
                let token = posted.unwrap_or_else(|| post(w));
                self.expected.push(Expected { node: to, token, into, bytes });
            }
            _ => self.access(w, at),
        }
    }

    fn access(&mut self, w: &mut World, at: usize) {
        let lane_of = |nodes: &[Node], from| nodes.iter().position(|n| *n == from).expect("a node");
        let pair = &mut self.pairs[at];
        let Some(remote) = pair.remote.filter(|_| pair.access.is_none()) else {
            return;
        };
        let from = pair.from;
        let lane = lane_of(&self.nodes, from) * LANE;
        let offset = self.random.below(LANE);
        let len = self.random.below(LANE - offset);
        match self.random.below(3) {
            0 => {
                let bytes = self.random.bytes(len);
                pair.lane[offset..offset + len].copy_from_slice(&bytes);
                let token = w.put(from, remote, (lane + offset) as u64, &memory(&bytes));
                pair.access = Some((token, None));
            }
            1 => {
                let into = room(len);
                let token = w.get(from, remote, (lane + offset) as u64, &into);
                let wanted = pair.lane[offset..offset + len].to_vec();
                pair.access = Some((token, Some((into, wanted))));
            }
            _ if w.has(from, |c| c.atomics) => {
                let counter = (LANE * self.nodes.len()) as u64;
                let add = self.random.draw();
                pair.sums = pair.sums.wrapping_add(add);
                let token = w.op(from, |token| Operation::Atomic {
                    token,
                    remote,
                    offset: counter,
                    op: AtomicOp::Sum,
                    kind: AtomicType::U64,
                    operand: add.to_le_bytes()[..].into(),
                    compare: smallvec![],
                    fetch: false,
                });
                pair.access = Some((token, None));
            }
            _ => {}
        }
    }

    fn check_accesses(&mut self, w: &mut World) {
        for pair in &mut self.pairs {
            let Some((token, wanted)) = &pair.access else {
                continue;
            };
            match w[pair.from].ledger.result(*token) {
                None => continue,
                Some(Err(error)) if !self.losses => w.fail(&format!("an access failed: {error}")),
                Some(Err(_)) => {}
                Some(Ok(_)) => {
                    if let Some((into, wanted)) = wanted.as_ref().filter(|_| !self.losses) {
                        assert!(into.to_vec() == *wanted, "a get gave something else");
                    }
                }
            }
            pair.access = None;
        }
    }

    /// Compares what came with what was sent; receives bodies.
    fn check_incoming(&mut self, w: &mut World) {
        for n in self.nodes.clone() {
            let senders: HashMap<Peer, Node> =
                (self.nodes.iter()).filter_map(|of| Some((w.known(n, *of)?, *of))).collect();
            let messages = std::mem::take(&mut w[n].messages);
            let longs = std::mem::take(&mut w[n].longs);
            for (peer, message) in messages {
                if let Some(pair) = self.pair(&senders, peer, n) {
                    assert_eq!(pair.messages.pop_front(), Some(message), "message to {n}");
                }
            }
            for (peer, header, body, len) in longs {
                let Some(pair) = self.pair(&senders, peer, n) else {
                    let token = w.op(n, |token| Operation::Discard { token, body });
                    let _ = token;
                    continue;
                };
                let bytes = pair.longs.pop_front().unwrap_or_default();
                assert_eq!((header, len), (pattern(20, bytes.len() as u8), bytes.len() as u64));
                let into = room(bytes.len());
                let target = into.clone();
                let token = w.op(n, |token| Operation::Receive { token, body, into: target });
                self.expected.push(Expected { node: n, token, into, bytes });
            }
        }
    }

    fn pair(&mut self, senders: &HashMap<Peer, Node>, peer: Peer, to: Node) -> Option<&mut Pair> {
        if self.losses {
            return None;
        }
        let from = *senders.get(&peer).expect("a message of a peer that is up");
        (self.pairs.iter_mut()).find(|pair| pair.from == from && pair.to == to)
    }

    fn check_regions(&self) {
        for (i, region) in self.regions.iter().enumerate() {
            let to = self.nodes[i];
            let mut sum = 0u64;
            for pair in self.pairs.iter().filter(|pair| pair.to == to) {
                let lane = self.nodes.iter().position(|n| *n == pair.from).expect("a node");
                let is = region.part(lane * LANE, LANE).expect("within").to_vec();
                assert!(is == pair.lane, "the lane of {} in {to}", pair.from);
                sum = sum.wrapping_add(pair.sums);
            }
            let mut is = [0; 8];
            region.read(LANE * self.nodes.len(), &mut is);
            assert_eq!(u64::from_le_bytes(is), sum, "the counter of {to}");
        }
    }

    /// New handles where a peer was lost.
    fn reconnect(&mut self, w: &mut World) {
        for pair in &mut self.pairs {
            let lost = w.try_inject(pair.from, pair.peer, &[b""]) == Err(InjectError::PeerLost);
            if !lost || pair.access.is_some() {
                continue;
            }
            let (address, patience) = (w.address(pair.to), w.patience());
            let end = w[pair.from].endpoint();
            end.forget(pair.peer);
            pair.peer = end.resolve(&address, patience).expect("an address known to be good");
            if let Some(old) = pair.remote.take() {
                end.release(old);
                let i = self.nodes.iter().position(|n| *n == pair.to).expect("a node");
                pair.remote = end.import(&self.keys[i]).ok();
            }
        }
    }
}

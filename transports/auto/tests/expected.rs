//! Expected messages where the peers of an endpoint are reached by different members.

use petasos_auto::{Auto, AutoAddress, Member, Node, Scope};
use petasos_fabric::{
    Address, Claimed, Clock, Done, Endpoint, Event, Full, Level, LostReason, OpErrorKind,
    Operation, Payload, Peeked, Peer, Region, Token,
};
use petasos_shm::Shm;
use petasos_tcp::{Config, TcpEndpoint};
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(10);
/// Longer than what travels with its header, by every member.
const LONG: usize = 300_000;

type Outcome = Result<Done, OpErrorKind>;

fn address(text: &str) -> Address {
    Address::parse(text).unwrap()
}

fn auto(node: Node) -> Auto {
    let shm = Shm::open(&address("shm://*")).unwrap();
    let tcp = TcpEndpoint::open(&address("tcp://*"), Config::default()).unwrap();
    let shm = Member { endpoint: Box::new(shm), scope: Scope::Node };
    let tcp = Member { endpoint: Box::new(tcp), scope: Scope::Network };
    Auto::open(node, vec![shm, tcp]).unwrap()
}

/// One that receives, and two that send to it: from its node, and from another one.
struct Three {
    ends: [Option<Auto>; 3],
    clock: Clock,
    results: [HashMap<Token, Outcome>; 3],
    up: [Vec<Peer>; 3],
    lost: Vec<Peer>,
    latest: u64,
}

const HERE: usize = 0;
const NEAR: usize = 1;
const FAR: usize = 2;

impl Three {
    fn open() -> Three {
        let nodes = [Node::local(), Node::local(), Node::of(b"another node")];
        Three {
            ends: nodes.map(|node| Some(auto(node))),
            clock: Clock::start(),
            results: Default::default(),
            up: Default::default(),
            lost: Vec::new(),
            latest: 0,
        }
    }

    /// The peers of the first, by the two routes, and the first as each of these knows it.
    fn connected() -> (Three, [Peer; 3], [Peer; 3]) {
        let mut all = Three::open();
        let (mut there, mut back) = ([None; 3], [None; 3]);
        for end in [NEAR, FAR] {
            let target = all.end(HERE).address().clone();
            back[end] = Some(all.end(end).resolve(&target, PATIENCE).unwrap());
            all.until(|all| all.up[HERE].len() == end && !all.up[end].is_empty());
            there[end] = all.up[HERE].last().copied();
        }
        let schemes = [NEAR, FAR].map(|end| {
            let chosen = all.end(HERE).chosen(there[end].unwrap()).unwrap();
            chosen.address.scheme().to_owned()
        });
        assert_eq!(schemes, ["shm", "tcp"]);
        (there[HERE], back[HERE]) = (there[NEAR], back[NEAR]);
        (all, there.map(Option::unwrap), back.map(Option::unwrap))
    }

    fn end(&mut self, end: usize) -> &mut Auto {
        self.ends[end].as_mut().expect("it was not closed")
    }

    fn pass(&mut self) {
        let now = self.clock.now();
        for (nth, end) in self.ends.iter_mut().enumerate() {
            let Some(end) = end else { continue };
            let mut events = Vec::new();
            end.progress(now, 64, &mut events);
            for event in events {
                match event {
                    Event::Done { token, result } => {
                        let again =
                            self.results[nth].insert(token, result.map_err(|e| e.kind.clone()));
                        assert!(again.is_none(), "{token:?} completed twice");
                    }
                    Event::PeerUp { peer, .. } => self.up[nth].push(peer),
                    Event::PeerLost { peer, .. } if nth == HERE => self.lost.push(peer),
                    _ => {}
                }
            }
        }
    }

    fn until(&mut self, mut seen: impl FnMut(&Three) -> bool) {
        let end = Instant::now() + 2 * PATIENCE;
        while !seen(self) {
            self.pass();
            assert!(Instant::now() < end, "not seen; completed: {:?}", self.results);
        }
    }

    fn submit(&mut self, end: usize, operation: impl FnOnce(Token) -> Operation) -> Token {
        self.latest += 1;
        let token = Token(self.latest);
        let mut operation = operation(token);
        let limit = Instant::now() + PATIENCE;
        while let Err(refused) = self.end(end).try_submit(operation) {
            operation = refused.operation;
            self.pass();
            assert!(Instant::now() < limit, "refused");
        }
        token
    }

    fn result(&mut self, end: usize, token: Token) -> Outcome {
        self.until(|all| all.results[end].contains_key(&token));
        self.results[end].remove(&token).unwrap()
    }

    fn send(&mut self, end: usize, peer: Peer, tag: u64, data: &[u8]) -> Token {
        let payload = Payload::Memory(Region::from_vec(data.to_vec()).whole());
        let level = Level::Delivered;
        self.submit(end, |token| Operation::SendTagged { token, peer, tag, payload, level })
    }

    fn post(&mut self, source: Option<Peer>, tag: u64, into: &Region) -> Token {
        let into = into.whole();
        self.submit(HERE, |token| Operation::PostReceive { token, source, tag, ignore: 0, into })
    }

    fn matched(&mut self, token: Token) -> (Peer, u64) {
        match self.result(HERE, token) {
            Ok(Done::Tagged { peer, len, .. }) => (peer, len),
            other => panic!("a receive gave {other:?}"),
        }
    }

    fn peek(&mut self, source: Option<Peer>, tag: u64, claim: bool) -> Option<Peeked> {
        let token =
            self.submit(HERE, |token| Operation::Peek { token, source, tag, ignore: 0, claim });
        match self.result(HERE, token) {
            Ok(Done::Peeked(peeked)) => peeked.map(|peeked| *peeked),
            other => panic!("a peek gave {other:?}"),
        }
    }

    fn receive_claimed(&mut self, message: Claimed, into: &Region) -> Token {
        let into = into.whole();
        self.submit(HERE, |token| Operation::ReceiveClaimed { token, message, into })
    }

    /// Lets what is under way arrive: all messages that these peers sent are taken in.
    fn settle(&mut self) {
        let end = Instant::now() + Duration::from_millis(20);
        while Instant::now() < end {
            self.pass();
        }
    }
}

fn pattern(len: usize, nth: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 3 + nth * 7) as u8).collect()
}

/// Both peers' messages go to receives from any source: each to one, those of a peer in order, and
/// whole, whichever came first.
#[test]
fn any_source_over_all_members() {
    let (mut all, there, back) = Three::connected();
    for posted_first in [true, false] {
        let count = 60;
        let len = |nth: usize| if nth.is_multiple_of(5) { LONG } else { 30 + nth };
        let rooms: Vec<_> = (0..2 * count).map(|_| Region::zeroed(LONG)).collect();
        let post = |all: &mut Three| -> Vec<Token> {
            rooms.iter().map(|room| all.post(None, 5, room)).collect()
        };
        let mut posted = if posted_first { post(&mut all) } else { Vec::new() };
        let mut sent = Vec::new();
        for nth in 0..count {
            for end in [NEAR, FAR] {
                sent.push((end, all.send(end, back[end], 5, &pattern(len(nth), nth + end))));
            }
        }
        if !posted_first {
            all.settle();
            posted = post(&mut all);
        }
        let mut next = [0; 3];
        for (token, room) in posted.into_iter().zip(rooms) {
            let (peer, got) = all.matched(token);
            let end = if peer == there[NEAR] { NEAR } else { FAR };
            assert_eq!(peer, there[end]);
            let nth = next[end];
            next[end] += 1;
            assert_eq!(got, len(nth) as u64, "message {nth} of {end}");
            // Nothing holds the memory any more: not those members either that had no message.
            let data = room.into_exclusive().expect("no other holder");
            assert!(data[..len(nth)] == pattern(len(nth), nth + end), "message {nth} of {end}");
        }
        assert_eq!(next, [0, count, count]);
        for (end, token) in sent {
            assert!(matches!(all.result(end, token), Ok(Done::Sent)));
        }
    }
}

/// Receives match in the order of posting, also where one from any source is among those from one.
#[test]
fn order_of_posting() {
    let (mut all, there, back) = Three::connected();
    for round in 0..20 {
        let rooms: Vec<_> = (0..4).map(|_| Region::zeroed(8)).collect();
        let sources = [Some(there[NEAR]), None, Some(there[FAR]), None];
        let posted: Vec<_> =
            sources.iter().zip(&rooms).map(|(source, room)| all.post(*source, 1, room)).collect();
        // The first of each peer goes to the first receive that takes it.
        let (first, second) = if round & 1 == 0 { (NEAR, FAR) } else { (FAR, NEAR) };
        let mut got = HashMap::new();
        for (end, text) in [(first, b"one"), (first, b"two"), (second, b"one"), (second, b"two")] {
            let sent = all.send(end, back[end], 1, text);
            all.result(end, sent).expect("it was sent");
            all.settle();
        }
        for (nth, token) in posted.into_iter().enumerate() {
            let peer = all.matched(token).0;
            got.insert(nth, (peer, rooms[nth].whole().to_vec()[..3].to_vec()));
        }
        let is = |nth: usize, end: usize, text: &[u8; 3]| got[&nth] == (there[end], text.to_vec());
        match first {
            NEAR => assert!(is(0, NEAR, b"one") && is(1, NEAR, b"two"), "{got:?}"),
            _ => assert!(is(1, FAR, b"one") && is(2, FAR, b"two"), "{got:?}"),
        }
        match first {
            NEAR => assert!(is(2, FAR, b"one") && is(3, FAR, b"two"), "{got:?}"),
            _ => assert!(is(0, NEAR, b"one") && is(3, NEAR, b"two"), "{got:?}"),
        }
    }
}

/// A cancelled receive from any source takes nothing, of no member, and one that was matched ends
/// with its message.
#[test]
fn cancelled() {
    let (mut all, there, back) = Three::connected();
    for end in [NEAR, FAR] {
        let (first, second) = (Region::zeroed(16), Region::zeroed(16));
        let cancelled = all.post(None, 3, &first);
        let next = all.post(None, 3, &second);
        all.end(HERE).cancel(cancelled);
        assert!(matches!(all.result(HERE, cancelled), Err(OpErrorKind::Cancelled)));
        let first = first.into_exclusive().expect("it is free with its completion");
        all.send(end, back[end], 3, &[7; 16]);
        assert_eq!(all.matched(next), (there[end], 16));
        assert_eq!((&first[..], second.whole().to_vec()), (&[0; 16][..], vec![7; 16]));
        let late = all.post(None, 3, &second);
        all.send(end, back[end], 3, &[8; 16]);
        assert_eq!(all.matched(late), (there[end], 16));
        all.end(HERE).cancel(late);
        all.settle();
        assert!(!all.results[HERE].contains_key(&late));
    }
}

/// A peek from any source finds the messages of every member; each is claimed once, with its sender
/// as this endpoint names it.
#[test]
fn peeks_and_claims() {
    let (mut all, there, back) = Three::connected();
    assert_eq!(all.peek(None, 9, true), None);
    for len in [20, LONG] {
        for end in [NEAR, FAR] {
            all.send(end, back[end], 9, &pattern(len, end));
        }
        all.settle();
        let seen = all.peek(None, 9, false).expect("there are two");
        assert!(seen.claimed.is_none() && seen.len == len as u64);
        let near = Some(Peeked::new(there[NEAR], 9, len as u64));
        assert_eq!(all.peek(Some(there[NEAR]), 9, false), near);
        let mut claimed = HashMap::new();
        while let Some(peeked) = all.peek(None, 9, true) {
            let message = peeked.claimed.expect("it was claimed");
            assert_eq!(message.peer, peeked.peer);
            assert!(claimed.insert(peeked.peer, message).is_none(), "claimed twice");
        }
        assert_eq!(claimed.len(), 2);
        for end in [FAR, NEAR] {
            let into = Region::zeroed(len);
            let token = all.receive_claimed(claimed[&there[end]], &into);
            assert_eq!(all.matched(token), (there[end], len as u64));
            assert!(into.whole().to_vec() == pattern(len, end));
            let again = all.receive_claimed(claimed[&there[end]], &into);
            assert!(matches!(all.result(HERE, again), Err(OpErrorKind::UnknownMessage)));
        }
    }
}

/// What came with its data is received after its sender is lost, from it, and from any source; a
/// receive from that peer alone then ends.
#[test]
fn of_a_lost_peer() {
    for end in [NEAR, FAR] {
        let (mut all, there, back) = Three::connected();
        for tag in 1..=3 {
            let sent = all.send(end, back[end], tag, &[tag as u8; 40]);
            all.result(end, sent).expect("it was delivered");
        }
        let into = Region::zeroed(40);
        let waits = all.post(Some(there[end]), 99, &into);
        let any = all.post(None, 98, &into);
        all.ends[end] = None;
        all.until(|all| all.lost == [there[end]]);
        assert!(matches!(all.result(HERE, waits), Err(OpErrorKind::PeerLost(_))));
        let token = all.post(Some(there[end]), 1, &into);
        assert_eq!(all.matched(token), (there[end], 40));
        let peeked = all.peek(None, 2, true).and_then(|peeked| peeked.claimed);
        let token = all.receive_claimed(peeked.expect("it is there"), &into);
        assert_eq!(all.matched(token), (there[end], 40));
        let token = all.post(None, 3, &into);
        assert_eq!(all.matched(token), (there[end], 40));
        assert_eq!(into.whole().to_vec(), [3; 40]);
        let none = all.post(Some(there[end]), 3, &into);
        assert!(matches!(all.result(HERE, none), Err(OpErrorKind::PeerLost(_))));
        // One from any source goes on for the others.
        let other = if end == NEAR { FAR } else { NEAR };
        all.send(other, back[other], 98, b"still");
        assert_eq!(all.matched(any), (there[other], 5));
        // Nothing of a peer that is forgotten is found, and its handle is stale.
        all.end(HERE).forget(there[end]);
        let none = all.post(Some(there[end]), 1, &into);
        assert!(matches!(all.result(HERE, none), Err(OpErrorKind::UnknownPeer)));
    }
}

/// A receive from a peer that is still asked for its whole address keeps its place.
#[test]
fn before_the_route_is_known() {
    let mut all = Three::open();
    // The near one is asked by the network, and then reached by shared memory.
    let Ok(AutoAddress::Whole { members, .. }) = AutoAddress::parse(all.end(NEAR).address()) else {
        panic!("not whole")
    };
    let tcp = members.iter().find(|member| member.scheme() == "tcp").unwrap();
    let short = address(&tcp.as_str().replace("tcp://", "auto://"));
    let peer = all.end(HERE).resolve(&short, PATIENCE).unwrap();
    let rooms: Vec<_> = (0..3).map(|_| Region::zeroed(8)).collect();
    let one = all.post(Some(peer), 1, &rooms[0]);
    let any = all.post(None, 1, &rooms[1]);
    let unwanted = all.post(Some(peer), 1, &rooms[2]);
    assert_eq!(all.peek(Some(peer), 1, true), None);
    all.end(HERE).cancel(unwanted);
    assert!(matches!(all.result(HERE, unwanted), Err(OpErrorKind::Cancelled)));
    all.until(|all| !all.up[HERE].is_empty() && !all.up[NEAR].is_empty());
    assert_eq!(all.end(HERE).chosen(peer).unwrap().address.scheme(), "shm");
    let back = all.up[NEAR][0];
    for text in [b"first...", b"second.."] {
        all.send(NEAR, back, 1, text);
    }
    assert_eq!([one, any].map(|token| all.matched(token)), [(peer, 8); 2]);
    let got = [0, 1].map(|nth| rooms[nth].whole().to_vec());
    assert_eq!(got, [b"first...".to_vec(), b"second..".to_vec()]);

    // It is bounded, and ends with the peer.
    let gone = all.end(HERE).resolve(&address("auto://127.0.0.1:1"), PATIENCE).unwrap();
    let held = all.post(Some(gone), 1, &rooms[0]);
    let behind = all.post(None, 1, &rooms[1]);
    let refused = (0..10_000).find_map(|nth| {
        let (token, into) = (Token(1_000_000 + nth), rooms[2].whole());
        let source = Some(gone);
        let receive = Operation::PostReceive { token, source, tag: 2, ignore: 0, into };
        all.end(HERE).try_submit(receive).err()
    });
    assert_eq!(refused.expect("there is a bound").full, Full::Endpoint);
    all.end(HERE).forget(gone);
    let forgotten = OpErrorKind::PeerLost(LostReason::Forgotten);
    assert_eq!(all.result(HERE, held).unwrap_err(), forgotten);
    all.send(NEAR, back, 1, b"to any..");
    assert_eq!(all.matched(behind), (peer, 8));
}

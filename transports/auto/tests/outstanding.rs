//! Operations through `auto`: each completes once, under the token and with the address that the
//! program knows, whichever member has it and in whatever number they are submitted.

use bytes::Bytes;
use petasos_auto::{Auto, Member, Node, Scope};
use petasos_fabric::{
    Address, Clock, Endpoint, Event, Level, LostReason, OpErrorKind, Operation, Payload, Peer,
    Region, Token,
};
use petasos_shm::Shm;
use petasos_tcp::{Config, TcpEndpoint};
use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(20);

fn open() -> Auto {
    let shm = Shm::open(&"shm://*".parse().unwrap()).unwrap();
    let tcp = TcpEndpoint::open(&"tcp://*".parse().unwrap(), Config::default()).unwrap();
    let members = vec![
        Member { endpoint: Box::new(shm), scope: Scope::Node },
        Member { endpoint: Box::new(tcp), scope: Scope::Network },
    ];
    Auto::open(Node::here(), members).unwrap()
}

/// Two endpoints that are connected, and the second as the first knows it.
fn connected() -> (Auto, Auto, Peer) {
    let (mut a, mut b) = (open(), open());
    let peer = a.resolve(b.address(), PATIENCE).unwrap();
    let (mut ups, mut events, clock) = (0, Vec::new(), Clock::start());
    let begin = Instant::now();
    while ups < 2 {
        assert!(begin.elapsed() < PATIENCE, "both are up");
        a.progress(clock.now(), 64, &mut events);
        b.progress(clock.now(), 64, &mut events);
        ups += events.drain(..).filter(|event| matches!(event, Event::PeerUp { .. })).count();
    }
    (a, b, peer)
}

fn long(token: u64, peer: Peer) -> Operation {
    let (header, body) = (Bytes::from_static(b"header"), Region::zeroed(100).whole());
    Operation::SendLong { token: Token(token), peer, header, body }
}

fn short(token: u64, peer: Peer, level: Level) -> Operation {
    let payload = Payload::Bytes(Bytes::from_static(b"8 bytes."));
    Operation::Send { token: Token(token), peer, payload, level }
}

fn submit(end: &mut Auto, operations: impl IntoIterator<Item = Operation>) {
    let mut queue: VecDeque<_> = operations.into_iter().collect();
    end.submit(&mut queue);
    assert!(queue.is_empty(), "all are accepted");
}

/// The completions that come before there is none for a while: why each failed, and the peer.
fn completions(end: &mut Auto) -> Vec<(Token, OpErrorKind, Option<Address>)> {
    let (clock, mut events, mut found) = (Clock::start(), Vec::new(), Vec::new());
    for _ in 0..3000 {
        end.progress(clock.now(), 64, &mut events);
    }
    for event in events {
        if let Event::Done { token, result } = event {
            let error = result.expect_err("it fails");
            found.push((token, error.kind.clone(), error.peer.clone()));
        }
    }
    found
}

#[test]
fn with_a_peer_that_is_forgotten_they_end_once_and_name_it() {
    let (mut a, b, peer) = connected();
    let tokens = [0, 1, u64::MAX, u64::MAX - 1, 7, 7, 1 << 63];
    submit(&mut a, tokens.map(|token| long(token, peer)));
    a.forget(peer);
    let found = completions(&mut a);
    let mut ended: Vec<u64> = found.iter().map(|(token, ..)| token.0).collect();
    let mut wanted = tokens.to_vec();
    ended.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(ended, wanted);
    for (token, kind, named) in found {
        assert_eq!(kind, OpErrorKind::PeerLost(LostReason::Forgotten), "{token:?}");
        assert_eq!(named.as_ref(), Some(b.address()), "{token:?}");
    }
}

#[test]
fn with_a_peer_that_ends_they_end_once_and_name_it() {
    let (mut a, b, peer) = connected();
    let address = b.address().clone();
    submit(&mut a, [long(5, peer), long(u64::MAX, peer)]);
    drop(b);
    let (mut found, begin) = (Vec::new(), Instant::now());
    while found.len() < 2 {
        assert!(begin.elapsed() < PATIENCE, "{found:?}");
        found.extend(completions(&mut a));
    }
    for (token, kind, named) in found {
        assert!(matches!(kind, OpErrorKind::PeerLost(_)), "{token:?}: {kind}");
        assert_eq!(named.as_ref(), Some(&address), "{token:?}");
    }
}

#[test]
fn of_equal_tokens_all_are_cancelled() {
    let (mut a, b, peer) = connected();
    submit(&mut a, [long(3, peer), long(4, peer), long(3, peer)]);
    a.cancel(Token(3));
    let found = completions(&mut a);
    let of = |(token, kind, named): &(Token, OpErrorKind, Option<Address>)| {
        *kind == OpErrorKind::Cancelled
            && *token == Token(3)
            && named.as_ref().is_none_or(|named| named == b.address())
    };
    assert!(found.len() == 2 && found.iter().all(of), "{found:?}");
}

#[test]
fn more_than_a_member_has_room_for_complete_once_each() {
    let (mut a, mut b, peer) = connected();
    let (clock, begin) = (Clock::start(), Instant::now());
    let levels = [Level::Reusable, Level::Delivered, Level::Visible];
    const COUNT: u64 = 20_000;
    let mut queue: VecDeque<_> =
        (0..COUNT).map(|token| short(u64::MAX - token, peer, levels[token as usize % 3])).collect();
    let mut done: HashMap<u64, u32> = HashMap::new();
    let (mut events, mut came) = (Vec::new(), 0);
    while came < COUNT || done.len() < COUNT as usize {
        assert!(begin.elapsed() < PATIENCE, "{came} came, {} completed", done.len());
        a.submit(&mut queue);
        a.progress(clock.now(), 64, &mut events);
        for event in events.drain(..) {
            let Event::Done { token, result: Ok(_) } = event else { panic!("{event:?}") };
            *done.entry(token.0).or_default() += 1;
        }
        b.progress(clock.now(), 64, &mut events);
        came += events.drain(..).filter(|e| matches!(e, Event::Message { .. })).count() as u64;
    }
    (0..1000).for_each(|_| _ = a.progress(clock.now(), 64, &mut events));
    assert!(events.is_empty() && done.values().all(|times| *times == 1));
    assert!(done.keys().all(|token| u64::MAX - token < COUNT));
}

#[test]
fn what_a_member_does_not_take_waits_and_is_refused_beyond_that() {
    let (mut a, _b, peer) = connected();
    let (mut accepted, mut queue) = (0, VecDeque::new());
    while queue.is_empty() {
        queue.extend((0..100).map(|nth| long(accepted + nth, peer)));
        a.submit(&mut queue);
        accepted += 100 - queue.len() as u64;
        assert!(accepted < 1 << 20, "no end of it");
    }
    a.forget(peer);
    let (mut ended, begin) = (vec![0; accepted as usize], Instant::now());
    while ended.contains(&0) {
        assert!(
            begin.elapsed() < PATIENCE,
            "{} are left",
            ended.iter().filter(|n| **n == 0).count()
        );
        for (token, kind, _) in completions(&mut a) {
            assert_eq!(kind, OpErrorKind::PeerLost(LostReason::Forgotten));
            ended[token.0 as usize] += 1;
        }
    }
    assert!(completions(&mut a).is_empty() && ended.iter().all(|times| *times == 1));
}

//! Operations through `auto`: each completes once, under the token and with the address that the
//! program knows, whichever member has it and in whatever number they are submitted.

use bytes::Bytes;
use petasos_auto::{Auto, Member, Node, Scope};
use petasos_fabric::{
    Address, Clock, Done, Endpoint, Event, Level, LostReason, OpErrorKind, Operation, Payload,
    Peer, Region, Token,
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
    Auto::open(Node::local(), members).unwrap()
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
    let [like_a_name, another] = [0, 1].map(|number| 0xD1B5_4A32 << 32 | number);
    let tokens = [0, 1, u64::MAX, u64::MAX - 1, 7, 7, 1 << 63, like_a_name, another, like_a_name];
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

/// Tokens of the program's that are those of parts of a receive from any source, at its members.
#[test]
fn what_auto_gives_members_is_not_taken_for_the_programs() {
    let (mut a, b, peer) = connected();
    let into = Region::zeroed(8).whole();
    let receive =
        Operation::PostReceive { token: Token(77), source: None, tag: 5, ignore: 0, into };
    submit(&mut a, [receive]);
    let tokens = [0, 1, 2].map(|number| 0xD1B5_4A32 << 32 | number);
    submit(&mut a, tokens.map(|token| long(token, peer)));
    a.forget(peer);
    let found = completions(&mut a);
    let mut ended: Vec<u64> = found.iter().map(|(token, ..)| token.0).collect();
    ended.sort_unstable();
    assert_eq!(ended, tokens);
    assert!(found.iter().all(|(_, _, named)| named.as_ref() == Some(b.address())), "{found:?}");
    a.cancel(Token(77));
    assert_eq!(completions(&mut a), [(Token(77), OpErrorKind::Cancelled, None)]);
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

/// Tokens that are like those that `auto` makes, too.
#[test]
fn of_equal_tokens_one_is_cancelled_or_more() {
    for wanted in [3, 0xD1B5_4A32 << 32] {
        let (mut a, b, peer) = connected();
        submit(&mut a, [long(wanted, peer), long(4, peer), long(wanted, peer)]);
        a.cancel(Token(wanted));
        let found = completions(&mut a);
        let of = |(token, kind, named): &(Token, OpErrorKind, Option<Address>)| {
            *kind == OpErrorKind::Cancelled
                && *token == Token(wanted)
                && named.as_ref().is_none_or(|named| named == b.address())
        };
        assert!((1..=2).contains(&found.len()) && found.iter().all(of), "{found:?}");
        a.forget(peer);
        assert_eq!(completions(&mut a).len(), 3 - found.len());
    }
}

/// What a member had completed, and the program had not taken, when the peer was forgotten.
#[test]
fn a_receive_of_a_forgotten_peer_names_it_by_its_handle() {
    let (mut a, mut b, peer) = connected();
    let (clock, begin, mut events) = (Clock::start(), Instant::now(), Vec::new());
    let back = b.resolve(a.address(), PATIENCE).unwrap();
    let into = Region::zeroed(8);
    let send = |token| Operation::SendTagged {
        token: Token(token),
        peer: back,
        tag: 5,
        payload: Payload::Bytes(Bytes::from_static(b"8 bytes.")),
        level: Level::Reusable,
    };
    let receive = |token| Operation::PostReceive {
        token: Token(token),
        source: Some(peer),
        tag: 5,
        ignore: 0,
        into: into.whole(),
    };
    submit(&mut b, [send(3), send(4)]);
    while events.len() < 2 {
        assert!(begin.elapsed() < PATIENCE);
        b.progress(clock.now(), 64, &mut events);
        let mut ours = Vec::new();
        (0..50).for_each(|_| _ = a.progress(clock.now(), 64, &mut ours));
        assert!(ours.is_empty(), "{ours:?}");
    }
    // Both have come, and the member has the completions at once.
    submit(&mut a, [receive(1), receive(2)]);
    a.forget(peer);
    events.clear();
    (0..100).for_each(|_| _ = a.progress(clock.now(), 64, &mut events));
    for (event, wanted) in events.iter().zip([1, 2]) {
        let Event::Done { token: Token(token), result: Ok(done) } = event else {
            panic!("{event:?}");
        };
        assert_eq!(*token, wanted);
        assert!(matches!(done, Done::Tagged { peer: from, .. } if *from == peer), "{done:?}");
    }
    assert_eq!(events.len(), 2, "{events:?}");
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

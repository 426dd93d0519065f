//! Unexpected, long and expected messages.

use super::*;
use crate::{Body, InjectError, Level, Payload, Peeked, Slice};
use bytes::Bytes;

fn send(net: &Net, a: usize, b: usize, token: u64, message: &[u8], level: Level) -> Operation {
    Operation::Send {
        token: Token(token),
        peer: net.peers[a][b],
        payload: Payload::Bytes(Bytes::copy_from_slice(message)),
        level,
    }
}

fn messages(net: &mut Net, a: usize) -> Vec<Vec<u8>> {
    let events = std::mem::take(&mut net.events[a]);
    let (messages, rest) =
        events.into_iter().partition::<Vec<_>, _>(|event| matches!(event, Event::Message { .. }));
    net.events[a] = rest;
    let bytes = |event| match event {
        Event::Message { message, .. } => message.to_vec(),
        _ => unreachable!(),
    };
    messages.into_iter().map(bytes).collect()
}

#[test]
fn messages_arrive_in_order_at_every_level() {
    let mut net = Net::new(2, &small_config());
    let mut sent = Vec::new();
    for i in 0..200u8 {
        let message = bytes(usize::from(i), i);
        if i % 3 == 0 {
            let peer = net.peers[0][1];
            let (head, tail) = message.split_at(message.len() / 2);
            net.engines[0].inject(peer, &[head, tail]).unwrap();
        } else {
            let level = [Level::Reusable, Level::Delivered, Level::Visible][usize::from(i) % 3];
            let operation = send(&net, 0, 1, i.into(), &message, level);
            net.engines[0].submit(operation);
        }
        sent.push(message);
    }
    net.settle();
    // The pool of the receiver lends 64 buffers: the rest waits until they come back.
    let mut got = messages(&mut net, 1);
    assert!((112..112 + 64).contains(&got.len()), "{}", got.len());
    while got.len() < 200 {
        net.settle();
        got.append(&mut messages(&mut net, 1));
    }
    assert!(got == sent);
    net.settle();
    for i in (0..200u64).filter(|i| i % 3 != 0) {
        assert!(matches!(net.done(0, Token(i)), Some(Ok(Done::Sent))), "{i}");
    }
    net.assert_clean();
}

#[test]
fn injecting_too_much_is_told_and_ends() {
    let mut config = small_config();
    config.inject_queue = 1000;
    let mut net = Net::new(2, &config);
    let peer = net.peers[0][1];
    let mut count = 0;
    let error = loop {
        match net.engines[0].inject(peer, &[&[7; 100]]) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((error, count), (InjectError::Full, 9));
    assert!(matches!(net.engines[0].inject(peer, &[&[0; 257]]), Err(InjectError::TooLong { .. })));
    net.settle();
    let writable = |event: &&Event| matches!(event, Event::Writable { .. });
    assert_eq!(net.events[0].iter().filter(writable).count(), 1);
    assert_eq!(messages(&mut net, 1).len(), 9);
}

fn announced(net: &mut Net, a: usize) -> (Body, u64, Vec<u8>) {
    let at = net.events[a].iter().position(|e| matches!(e, Event::LongMessage { .. })).unwrap();
    match net.events[a].remove(at) {
        Event::LongMessage { header, body, len, .. } => (body, len, header.to_vec()),
        _ => unreachable!(),
    }
}

fn long(net: &Net, token: u64, body: Slice) -> Operation {
    Operation::SendLong {
        token: Token(token),
        peer: net.peers[0][1],
        header: Bytes::from_static(b"header"),
        body,
    }
}

#[test]
fn a_long_message_goes_where_its_receiver_says() {
    let mut net = Net::new(2, &small_config());
    let data = bytes(10_000, 1);
    let operation = long(&net, 1, data.clone().into());
    net.engines[0].submit(operation);
    net.settle();
    assert!(net.done(0, Token(1)).is_none(), "the body stays until it is fetched");
    let (body, len, header) = announced(&mut net, 1);
    assert_eq!((len, &header[..]), (10_000, &b"header"[..]));
    let into = Region::zeroed(4_000);
    let receive = |token| Operation::Receive { token: Token(token), body, into: into.whole() };
    let got = net.finish(1, receive(2));
    assert!(matches!(got, Ok(Done::Received { len: 4_000 })), "{got:?}");
    assert!(into.to_vec() == data[..4_000]);
    assert!(matches!(net.done(0, Token(1)), Some(Ok(Done::Sent))));
    assert_eq!(net.finish(1, receive(3)).unwrap_err(), OpErrorKind::UnknownBody);
    net.assert_clean();
}

#[test]
fn a_long_message_is_discarded_or_withdrawn() {
    let mut net = Net::new(2, &small_config());
    let operation = long(&net, 1, bytes(5_000, 1).into());
    net.engines[0].submit(operation);
    net.settle();
    let (body, ..) = announced(&mut net, 1);
    let done = net.finish(1, Operation::Discard { token: Token(2), body });
    assert!(matches!(done, Ok(Done::Discarded)));
    assert!(matches!(net.done(0, Token(1)), Some(Ok(Done::Sent))));

    let operation = long(&net, 3, bytes(5_000, 1).into());
    net.engines[0].submit(operation);
    net.settle();
    let (body, ..) = announced(&mut net, 1);
    net.engines[0].cancel(Token(3));
    net.settle();
    assert_eq!(net.done(0, Token(3)).unwrap().unwrap_err(), OpErrorKind::Cancelled);
    let into = Region::zeroed(5_000);
    let receive = Operation::Receive { token: Token(4), body, into: into.whole() };
    assert_eq!(net.finish(1, receive).unwrap_err(), OpErrorKind::Withdrawn);
    assert!(into.to_vec().iter().all(|byte| *byte == 0));
    net.assert_clean();
}

fn tagged(
    net: &Net,
    a: usize,
    b: usize,
    token: u64,
    tag: u64,
    data: &[u8],
    level: Level,
) -> Operation {
    Operation::SendTagged {
        token: Token(token),
        peer: net.peers[a][b],
        tag,
        payload: Payload::Bytes(Bytes::copy_from_slice(data)),
        level,
    }
}

fn post(token: u64, source: Option<Peer>, tag: u64, ignore: u64, into: &Region) -> Operation {
    Operation::PostReceive { token: Token(token), source, tag, ignore, into: into.whole() }
}

#[test]
fn expected_messages_match_by_tag_mask_and_source() {
    let mut net = Net::new(3, &small_config());
    let into: Vec<Region> = (0..4).map(|_| Region::zeroed(2_000)).collect();
    let from_2 = Some(net.peers[0][2]);
    net.engines[0].submit(post(1, from_2, 0x10, 0xF, &into[0]));
    net.engines[0].submit(post(2, None, 0x15, 0, &into[1]));
    net.engines[0].submit(post(3, None, 0x10, 0xF, &into[2]));
    net.settle();
    let sends = [
        tagged(&net, 1, 0, 1, 0x15, &bytes(50, 1), Level::Reusable),
        tagged(&net, 1, 0, 2, 0x15, &bytes(1_500, 2), Level::Delivered),
        tagged(&net, 1, 0, 3, 0x15, &bytes(60, 3), Level::Visible),
    ];
    sends.into_iter().for_each(|send| net.engines[1].submit(send));
    let send = tagged(&net, 2, 0, 4, 0x1F, &bytes(40, 4), Level::Visible);
    net.engines[2].submit(send);
    net.settle();
    for (token, engine) in [(1, 1), (2, 1), (4, 2)] {
        assert!(matches!(net.done(engine, Token(token)), Some(Ok(Done::Sent))));
    }
    assert!(net.done(1, Token(3)).is_none(), "not visible before it is received");
    let mut got = |token| match net.done(0, Token(token)) {
        Some(Ok(Done::Tagged { tag, len, .. })) => (tag, len),
        other => panic!("{token}: {other:?}"),
    };
    assert_eq!([got(1), got(2), got(3)], [(0x1F, 40), (0x15, 50), (0x15, 1_500)]);
    assert!(into[0].to_vec()[..40] == bytes(40, 4) && into[1].to_vec()[..50] == bytes(50, 1));
    assert!(into[2].to_vec()[..1_500] == bytes(1_500, 2));
    let late = net.finish(0, post(4, None, 0, u64::MAX, &into[3]));
    assert!(matches!(late, Ok(Done::Tagged { tag: 0x15, len: 60, .. })));
    assert!(matches!(net.done(1, Token(3)), Some(Ok(Done::Sent))));
    net.assert_clean();
}

#[test]
fn expected_messages_without_receives_are_bounded_and_kept_in_order() {
    let mut net = Net::new(2, &small_config());
    let count = 3_000u64;
    for i in 0..count {
        let send = tagged(&net, 0, 1, i, 7, &i.to_le_bytes(), Level::Reusable);
        net.engines[0].submit(send);
    }
    net.settle();
    let kept = net.engines[1]
        .peers
        .entry_and_connection(net.peers[1][0])
        .and_then(|(_, conn)| conn)
        .unwrap();
    assert!(kept.incoming.is_within_bounds(crate::two_sided::MAX_BODIES as u16));
    let (window, held) = kept.expected.window_and_held();
    assert!(held <= crate::two_sided::EAGER_CREDITS && window > 0);
    let operation = send(&net, 0, 1, count, b"passes", Level::Delivered);
    assert!(matches!(net.finish(0, operation), Ok(Done::Sent)));
    let operation = long(&net, count, Region::zeroed(9).whole());
    net.engines[0].submit(operation);
    net.settle();
    let (body, ..) = announced(&mut net, 1);
    let token = Token(count);
    assert!(net.finish(1, Operation::Discard { token, body }).is_ok());
    assert!(matches!(net.done(0, token), Some(Ok(Done::Sent))));
    let into = Region::zeroed(8);
    for i in 0..count {
        let done = net.finish(1, post(i, None, 7, 0, &into));
        assert!(matches!(done, Ok(Done::Tagged { len: 8, .. })), "{done:?}");
        assert_eq!(into.to_vec(), i.to_le_bytes(), "out of order");
    }
    let credit = net.engines[0].peers.get(net.peers[0][1]).unwrap().expected.eager();
    assert!(credit > crate::two_sided::EAGER_CREDITS / 2, "{credit}");
    net.settle();
    for i in 0..count {
        assert!(matches!(net.done(0, Token(i)), Some(Ok(Done::Sent))));
    }
    net.assert_clean();
}

#[test]
fn a_message_too_long_for_its_receive_is_cut_and_told() {
    for len in [50, 5_000] {
        for posted_first in [false, true] {
            let mut net = Net::new(2, &small_config());
            let into = Region::zeroed(20);
            let send = tagged(&net, 0, 1, 1, 7, &bytes(len, 3), Level::Delivered);
            if posted_first {
                net.engines[1].submit(post(2, None, 7, 0, &into));
                net.engines[0].submit(send);
            } else {
                net.engines[0].submit(send);
                net.settle();
                net.engines[1].submit(post(2, None, 7, 0, &into));
            }
            net.settle();
            let (sent, posted) = (len as u64, 20);
            let error = net.done(1, Token(2)).unwrap().unwrap_err();
            assert_eq!(error, OpErrorKind::Truncated { sent, posted });
            assert!(into.to_vec() == bytes(len, 3)[..20]);
            assert!(matches!(net.done(0, Token(1)), Some(Ok(Done::Sent))));
            net.assert_clean();
        }
    }
}

#[test]
fn a_receive_posted_while_its_message_comes_in_gets_it() {
    let mut net = Net::new(2, &small_config());
    let send = tagged(&net, 0, 1, 1, 7, &bytes(30, 3), Level::Reusable);
    net.engines[0].submit(send);
    for step in [Step::Poll, Step::Send, Step::Accept] {
        assert!(net.step(0, 1, step, 0));
    }
    let into = Region::zeroed(30);
    let done = net.finish(1, post(2, None, 7, 0, &into));
    assert!(matches!(done, Ok(Done::Tagged { len: 30, .. })));
    assert!(into.to_vec() == bytes(30, 3));
}

/// Hundreds of receives, with wildcards and without, match in the order in which they were posted;
/// the others are cancelled, or end with their peer, in that order.
#[test]
fn many_receives_keep_their_order() {
    let mut net = Net::new(3, &small_config());
    let mut posted = Vec::new();
    for i in 0..200_u64 {
        let source = [Some(1), Some(2), None][i as usize % 3];
        let (tag, ignore) = (i % 7, if i % 5 == 0 { 3 } else { 0 });
        let into = Region::zeroed(8);
        let peer = source.map(|from: usize| net.peers[0][from]);
        net.engines[0].submit(post(i, peer, tag, ignore, &into));
        posted.push((i, source, tag, ignore, into));
    }
    for i in 0..150_u64 {
        let (from, tag) = (1 + i as usize % 2, i / 2 % 7);
        let send = tagged(&net, from, 0, i, tag, &i.to_le_bytes(), Level::Reusable);
        assert!(matches!(net.finish(from, send), Ok(Done::Sent)));
        let at = posted.iter().position(|(_, source, wanted, ignore, _)| {
            source.is_none_or(|source| source == from) && (wanted ^ tag) & !ignore == 0
        });
        let (token, .., into) = posted.remove(at.expect("there is a receive for each"));
        let peer = net.peers[0][from];
        let done = net.done(0, Token(token)).expect("the first that takes it").unwrap();
        let Done::Tagged { peer: source, tag: sent, len: 8 } = done else { panic!("{done:?}") };
        assert_eq!((source, sent), (peer, tag));
        assert_eq!(into.to_vec(), i.to_le_bytes());
    }
    let (cancelled, left): (Vec<_>, Vec<_>) = posted.into_iter().partition(|(i, ..)| i % 2 == 0);
    for (token, ..) in cancelled {
        net.engines[0].cancel(Token(token));
        net.settle();
        assert_eq!(net.done(0, Token(token)).unwrap().unwrap_err(), OpErrorKind::Cancelled);
    }
    for from in [1, 2] {
        net.events[0].clear();
        net.cut(0, from);
        net.settle();
        let ended = net.events[0].iter().filter_map(|event| match event {
            Event::Done { token, result: Err(_) } => Some(token.0),
            _ => None,
        });
        let of_peer = left.iter().filter(|(_, source, ..)| *source == Some(from));
        let expected: Vec<u64> = of_peer.map(|(token, ..)| *token).collect();
        assert_eq!(ended.collect::<Vec<_>>(), expected);
        assert!(!expected.is_empty());
    }
}

/// A hundred messages that came before their receives are found by tag, and the oldest first.
#[test]
fn many_messages_keep_their_order() {
    let mut net = Net::new(2, &small_config());
    for i in 0..100_u64 {
        let send = tagged(&net, 1, 0, i, i % 10, &i.to_le_bytes(), Level::Reusable);
        net.engines[1].submit(send);
    }
    net.settle();
    let mut waiting: Vec<u64> = (0..100).collect();
    for i in 0..100_u64 {
        let (tag, ignore) = if i % 4 == 0 { (0, u64::MAX) } else { (i * 3 % 10, 0) };
        let takes = |message: &u64| ((message % 10) ^ tag) & !ignore == 0;
        let Some(at) = waiting.iter().position(takes) else { continue };
        let message = waiting.remove(at);
        let into = Region::zeroed(8);
        let done = net.finish(0, post(i, Some(net.peers[0][1]), tag, ignore, &into)).unwrap();
        assert!(matches!(done, Done::Tagged { tag, len: 8, .. } if tag == message % 10));
        assert_eq!(into.to_vec(), message.to_le_bytes());
    }
    assert!(waiting.len() < 50, "{waiting:?}");
}

fn peek(net: &mut Net, tag: u64, claim: bool) -> Option<Peeked> {
    let (source, ignore) = (None, 0);
    let operation = Operation::Peek { token: Token(99), source, tag, ignore, claim };
    match net.finish(0, operation) {
        Ok(Done::Peeked(peeked)) => peeked.map(|peeked| *peeked),
        other => panic!("{other:?}"),
    }
}

/// Claimed messages of both kinds, received, discarded and lost: nothing is left of them, and the
/// sender may send as many again.
#[test]
fn claimed_messages() {
    let mut net = Net::new(2, &small_config());
    let into = Region::zeroed(3_000);
    for round in 0..100 {
        for (tag, len) in [(1, 40), (2, 3_000), (3, 50), (4, 3_000)] {
            let send = tagged(&net, 1, 0, tag, tag, &bytes(len, tag as u8), Level::Reusable);
            net.engines[1].submit(send);
        }
        net.settle();
        assert_eq!(peek(&mut net, 5, true), None);
        for (tag, len) in [(3, 50), (4, 3_000), (2, 3_000), (1, 40)] {
            let seen = peek(&mut net, tag, false);
            assert_eq!(seen, Some(Peeked::new(net.peers[0][1], tag, len)), "round {round}");
            let message = peek(&mut net, tag, true).and_then(|peeked| peeked.claimed).unwrap();
            assert_eq!(peek(&mut net, tag, false), None);
            let (token, whole) = (Token(tag), into.whole());
            let done = match tag {
                1 | 2 => net.finish(0, Operation::ReceiveClaimed { token, message, into: whole }),
                _ => net.finish(0, Operation::DiscardClaimed { token, message }),
            };
            match done {
                Ok(Done::Tagged { tag: of, len: got, .. }) if tag < 3 => {
                    assert_eq!((of, got), (tag, len));
                    assert!(into.to_vec()[..len as usize] == bytes(len as usize, tag as u8));
                }
                Ok(Done::Discarded) if tag > 2 => {}
                other => panic!("{other:?}"),
            }
            let again = net.finish(0, Operation::DiscardClaimed { token, message });
            assert_eq!(again.unwrap_err(), OpErrorKind::UnknownMessage);
        }
        net.settle();
        for tag in 1..5 {
            assert!(matches!(net.done(1, Token(tag)), Some(Ok(Done::Sent))));
        }
    }
    net.assert_clean();
    let sends = [(1, 40), (2, 3_000)]
        .map(|(tag, len)| tagged(&net, 1, 0, tag, tag, &bytes(len, tag as u8), Level::Reusable));
    sends.into_iter().for_each(|send| net.engines[1].submit(send));
    net.settle();
    let [here, there] =
        [1, 2].map(|tag| peek(&mut net, tag, true).and_then(|peeked| peeked.claimed).unwrap());
    net.cut(0, 1);
    net.settle();
    let receive = |token, message| Operation::ReceiveClaimed {
        token: Token(token),
        message,
        into: into.whole(),
    };
    let lost = net.finish(0, receive(7, there)).unwrap_err();
    assert_eq!(lost, OpErrorKind::PeerLost(LostReason::Closed));
    assert!(matches!(net.finish(0, receive(8, here)), Ok(Done::Tagged { tag: 1, len: 40, .. })));
    net.engines[0].forget(net.peers[0][1]);
    assert_eq!(net.finish(0, receive(9, here)).unwrap_err(), OpErrorKind::UnknownPeer);
    assert_eq!(net.engines[0].ledger.live, 0);
}

#[test]
fn to_oneself() {
    let mut net = Net::new(1, &small_config());
    let operation = send(&net, 0, 0, 1, b"me", Level::Visible);
    assert!(matches!(net.finish(0, operation), Ok(Done::Sent)));
    assert_eq!(messages(&mut net, 0), [b"me"]);
    let into = Region::zeroed(3_000);
    net.engines[0].submit(post(2, None, 7, 0, &into));
    let send = tagged(&net, 0, 0, 3, 7, &bytes(3_000, 3), Level::Visible);
    assert!(matches!(net.finish(0, send), Ok(Done::Sent)));
    assert!(matches!(net.done(0, Token(2)), Some(Ok(Done::Tagged { len: 3_000, .. }))));
    assert!(into.to_vec() == bytes(3_000, 3));
    net.assert_clean();
}

#[test]
fn a_lost_peer_ends_everything_with_its_name() {
    let mut net = Net::new(2, &small_config());
    let into = Region::zeroed(100);
    let source = Some(net.peers[0][1]);
    net.engines[0].submit(post(1, source, 7, 0, &into));
    net.engines[0].submit(post(2, None, 9, 0, &into));
    let operations = [
        send(&net, 0, 1, 3, b"x", Level::Visible),
        long(&net, 4, into.whole()),
        tagged(&net, 0, 1, 5, 1, &bytes(3_000, 1), Level::Reusable),
    ];
    operations.into_iter().for_each(|o| net.engines[0].submit(o));
    net.step(0, 1, Step::Poll, 0);
    net.cut(0, 1);
    net.settle();
    for token in [1, 3, 4, 5] {
        let at = net.events[0].iter().position(
            |e| matches!(e, Event::Done { token: t, result: Err(error) } if t.0 == token && error.peer.as_ref().is_some_and(|p| p.as_str() == "test://1")),
        );
        assert!(at.is_some(), "{token}");
        let error = net.done(0, Token(token)).unwrap().unwrap_err();
        assert_eq!(error, OpErrorKind::PeerLost(LostReason::Closed));
    }
    assert!(net.done(0, Token(2)).is_none());
    net.engines[0].cancel(Token(2));
    net.settle();
    assert_eq!(net.done(0, Token(2)).unwrap().unwrap_err(), OpErrorKind::Cancelled);
    let late = send(&net, 0, 1, 6, b"x", Level::Visible);
    assert!(matches!(net.finish(0, late), Err(OpErrorKind::PeerLost(_))));
    net.engines[0].forget(net.peers[0][1]);
    let late = send(&net, 0, 1, 7, b"x", Level::Visible);
    assert_eq!(net.finish(0, late).unwrap_err(), OpErrorKind::UnknownPeer);
    assert_eq!(net.engines[0].ledger.live, 0);
}

/// The slot of a peer that had output and was forgotten becomes that of the endpoint itself, which
/// the transport is never told to serve: it has no channel there, and would drop the packets.
#[test]
fn what_goes_to_itself_is_not_named() {
    let address = |name: &str| Address::parse(name).unwrap();
    let (config, pool) = (small_config(), Pool::new(64));
    let mut engine = Engine::new(address("test://0"), Incarnation::random(), config, pool);
    let message = |token, peer| Operation::Send {
        token: Token(token),
        peer,
        payload: Payload::Bytes("x".into()),
        level: Level::Visible,
    };
    let other = engine.add_peer(&address("test://1")).unwrap();
    engine.peer_up(other, Incarnation::random());
    engine.submit(message(1, other));
    engine.forget(other);
    let own = engine.add_peer(&address("test://0")).unwrap();
    assert_eq!(own.index, other.index);
    engine.submit(message(2, own));
    assert_eq!(engine.next_output(), None);
    let mut events = Vec::new();
    (0..4).for_each(|_| _ = engine.take_events(16, &mut events));
    let sent = |event: &Event| matches!(event, Event::Done { token: Token(2), result: Ok(_) });
    assert!(events.iter().any(sent), "{events:?}");
}

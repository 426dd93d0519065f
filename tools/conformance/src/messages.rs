//! Unexpected messages: lengths, order, back-pressure, leases.

use crate::{
    Random,
    actions::until_still,
    world::{Node, World, memory, pattern},
};
use petasos_fabric::{
    Done, InjectError, Lease, Level, OpErrorKind, Operation, Payload, Peer, Token,
};
use std::time::Duration;

/// One message in each direction; the handle that came with the first reaches its sender.
pub fn hello(w: &mut World) {
    let (a, b) = (w.open(), w.open());
    let ab = {
        let address = w.address(b);
        w.resolve(a, &address)
    };
    let sent = w.send(a, ab, b"hello");
    let (ba, message) = w.message(b);
    assert_eq!(message, b"hello");
    assert!(matches!(w.ok(a, sent), Done::Sent));
    let info = w[b].endpoint().peer(ba).expect("a peer that wrote");
    assert_eq!(info.incarnation, Some(w[a].endpoint().incarnation()));
    w.inject(b, ba, b"and to you");
    assert_eq!(w.message(a), (ab, b"and to you".to_vec()));
}

/// The parts of an injected message arrive as one.
pub fn parts_become_one(w: &mut World) {
    let (a, b, ab, ba) = w.pair();
    loop {
        match w.try_inject(a, ab, &[b"one", b"", b"two", b"three"]) {
            Ok(()) => break,
            Err(InjectError::Full) => w.until("room", |w| !w[a].writable.is_empty()),
            Err(error) => w.fail(&error.to_string()),
        }
        w[a].writable.clear();
    }
    assert_eq!(w.message(b), (ba, b"onetwothree".to_vec()));
}

/// Empty messages arrive, and in their place.
pub fn empty_messages(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    w.inject(a, ab, b"");
    let sent = w.send(a, ab, b"");
    w.until("it is accepted", |w| w.accepted(a));
    w.inject(a, ab, b"x");
    w.ok(a, sent);
    let three: Vec<_> = (0..3).map(|_| w.message(b).1).collect();
    assert_eq!(three, [&b""[..], b"", b"x"]);
}

/// The longest messages arrive whole, and one byte more is refused.
pub fn longest_messages(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    let limits = w.capabilities(a).limits;
    let longest = pattern(limits.max_inject, 1);
    w.inject(a, ab, &longest);
    assert_eq!(w.message(b).1, longest);
    let beyond = pattern(limits.max_inject + 1, 2);
    let mut refused = w.try_inject(a, ab, &[&beyond]);
    while refused == Err(InjectError::Full) {
        w.until("room", |w| !w[a].writable.is_empty());
        w[a].writable.clear();
        refused = w.try_inject(a, ab, &[&beyond]);
    }
    let (len, max) = (limits.max_inject + 1, limits.max_inject);
    assert_eq!(refused, Err(InjectError::TooLong { len, max }));
    let longest = pattern(limits.max_message, 3);
    let sent = w.send(a, ab, &longest);
    assert_eq!(w.message(b).1, longest);
    w.ok(a, sent);
    let sent = w.send(a, ab, &pattern(limits.max_message + 1, 4));
    w.fails(a, sent, |kind| matches!(kind, OpErrorKind::TooLarge { .. }));
    w.inject(a, ab, b"still there");
    assert_eq!(w.message(b).1, b"still there");
}

/// Each level completes, and memory of a region is sent as it was.
pub fn levels_and_memory(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    for (i, level) in [Level::Reusable, Level::Delivered, Level::Visible].into_iter().enumerate() {
        let bytes = pattern(300, i as u8);
        let from = memory(&bytes);
        let payload = Payload::Memory(from.part(50, 200).expect("within"));
        let sent = w.op(a, |token| Operation::Send { token, peer: ab, payload, level });
        w.ok(a, sent);
        // Reusable at the latest now.
        from.write(0, &[0; 300]);
        assert_eq!(w.message(b).1, bytes[50..250]);
    }
}

/// A number, and bytes that belong to it.
fn numbered(number: u32, len: usize) -> Vec<u8> {
    let mut message = pattern(len.max(4), number as u8);
    message[..4].copy_from_slice(&number.to_le_bytes());
    message
}

fn number(message: &[u8]) -> u32 {
    let number = u32::from_le_bytes(message[..4].try_into().expect("four bytes"));
    assert_eq!(message, numbered(number, message.len()), "message {number}");
    number
}

/// Injected and submitted messages of all lengths arrive in the order in which they were sent.
pub fn order_of_mixed_messages(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    let limits = w.capabilities(a).limits;
    let mut random = Random::new(11);
    let mut tokens = Vec::new();
    let count = 600;
    for i in 0..count {
        if random.percent(50) {
            let len = random.below(limits.max_inject.min(2000));
            w.inject(a, ab, &numbered(i, len));
        } else {
            let len = random.below(limits.max_message.min(20_000));
            tokens.push(w.send(a, ab, &numbered(i, len)));
        }
        // An inject must not overtake sends that were submitted and not accepted.
        w.until("all are accepted", |w| w.accepted(a));
    }
    for i in 0..count {
        assert_eq!(number(&w.message(b).1), i);
    }
    for token in tokens {
        w.ok(a, token);
    }
}

/// From many peers, each in its order.
pub fn many_peers(w: &mut World) {
    let hub = w.open();
    let address = w.address(hub);
    let clients: Vec<_> = (0..12)
        .map(|_| {
            let client = w.open();
            (client, w.resolve(client, &address))
        })
        .collect();
    let rounds = 40;
    for round in 0..rounds {
        for (client, peer) in &clients {
            w.send(*client, *peer, &numbered(round, 100));
        }
    }
    let total = clients.len() * rounds as usize;
    w.until("all come", |w| w[hub].messages.len() == total);
    let mut next = std::collections::HashMap::<Peer, u32>::new();
    for (peer, message) in std::mem::take(&mut w[hub].messages) {
        let expected = next.entry(peer).or_default();
        assert_eq!(number(&message), *expected, "from {peer:?}");
        *expected += 1;
    }
    assert_eq!(next.len(), clients.len());
}

/// A receiver that does not drive itself makes `inject` say `Full`; then it says when there is
/// room, and nothing is lost or doubled. With messages that need a buffer, and with short ones.
pub fn back_pressure(w: &mut World) {
    let longer = w.open();
    let longer = w.capabilities(longer).limits.max_inject.min(1000);
    // Past any transport's buffers.
    for (len, most) in [(longer, 400_000), (16, 2_000_000)] {
        let (a, b, ab, _) = w.pair();
        w[b].frozen = true;
        let (mut count, mut refused) = (0u32, 0);
        while refused < 3 && count < most {
            match w.try_inject(a, ab, &[&numbered(count, len)]) {
                Ok(()) => count += 1,
                Err(InjectError::Full) => {
                    w.run_for(Duration::from_millis(5));
                    refused += 1;
                }
                Err(error) => w.fail(&error.to_string()),
            }
        }
        assert!(refused > 0, "{count} messages of {len} bytes are held somewhere");
        // What is submitted waits, and comes after.
        let waiting = w.send(a, ab, &numbered(count, len));
        // Nothing overtakes it: not even when there is room before the sender knows.
        (w[a].frozen, w[b].frozen) = (true, false);
        w.run_for(Duration::from_millis(2));
        if w.try_inject(a, ab, &[&numbered(count + 1, len)]) == Ok(()) {
            count += 1;
        }
        w[a].frozen = false;
        for i in 0..=count {
            assert_eq!(number(&w.message(b).1), i);
        }
        w.ok(a, waiting);
        w.inject(a, ab, &numbered(count + 1, len));
        assert_eq!(number(&w.message(b).1), count + 1);
    }
}

/// A receiver that keeps its leases stops receiving, at the limit; and goes on when it lets go. No
/// sender has all of them, however many messages it has.
pub fn leases_hoarded(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    let limits = w.capabilities(b).limits;
    let len = (Lease::LINES + 200).min(limits.max_message);
    if len <= Lease::LINES {
        return;
    }
    let mut senders = vec![(a, ab)];
    for _ in 0..2 {
        let n = w.open();
        senders.push((n, w.join(n, b).0));
    }
    let count = limits.max_leases as u32 + 50;
    w[b].hoard = Some(Vec::new());
    let held = |w: &World| w[b].hoard.as_ref().map_or(0, Vec::len);
    let mut tokens: Vec<(Node, Token)> = Vec::new();
    for (n, peer) in senders {
        let before = held(w);
        tokens.extend((0..count).map(|i| (n, w.send(n, peer, &numbered(i, len)))));
        w.until("a message comes", |w| held(w) > before);
        until_still(w, held);
        assert!(held(w) < limits.max_leases, "one of three has all leases");
    }
    // Where many bytes are held, fewer leases are out.
    let enough = if len * limits.max_leases < 64 << 20 { limits.max_leases / 2 } else { 3 };
    assert!(held(w) >= enough, "{} of {} leases are out", held(w), limits.max_leases);
    let (mut seen, mut next) = (0, [0; 3]);
    while seen < 3 * count {
        let some = w[b].hoard.replace(Vec::new()).expect("hoarding");
        for lease in some {
            // Of each sender in order: one of the three waits for this number.
            let from = next.iter().position(|next| *next == number(&lease));
            let Some(from) = from else { w.fail("a message out of order") };
            next[from] += 1;
            seen += 1;
        }
        if seen < 3 * count {
            w.until("reception goes on", |w| held(w) > 0);
        }
    }
    w[b].hoard = None;
    for (n, token) in tokens {
        w.ok(n, token);
    }
}

/// An endpoint may write to itself.
pub fn to_oneself(w: &mut World) {
    let a = w.open();
    let address = w.address(a);
    let me = w.resolve(a, &address);
    let sent = w.send(a, me, b"note to self");
    let (from, message) = w.message(a);
    assert_eq!((from, &message[..]), (me, &b"note to self"[..]));
    w.ok(a, sent);
    w.inject(a, me, b"another");
    assert_eq!(w.message(a).1, b"another");
}

/// Handles that were never given out, and stale ones, are refused.
pub fn unknown_peers(w: &mut World) {
    let (a, b, ab, ba) = w.pair();
    let strange = Peer { index: ab.index + 7, generation: 3 };
    assert_eq!(w.try_inject(a, strange, &[b"x"]), Err(InjectError::UnknownPeer));
    let sent = w.send(a, strange, b"x");
    w.fails(a, sent, |kind| *kind == OpErrorKind::UnknownPeer);
    assert!(w[a].endpoint().peer(strange).is_none());
    w[a].endpoint().forget(strange);
    w[a].endpoint().cancel(Token(u64::MAX));
    w.inject(b, ba, b"unharmed");
    assert_eq!(w.message(a).1, b"unharmed");
}

/// Two that connect to each other at the same time are one pair.
pub fn both_connect_at_once(w: &mut World) {
    for round in 0..8 {
        let (a, b) = (w.open(), w.open());
        let (to_a, to_b) = (w.address(a), w.address(b));
        let ab = w.resolve(a, &to_b);
        let first = w.send(a, ab, b"from a");
        for _ in 0..round {
            w.step();
        }
        let ba = w.resolve(b, &to_a);
        let second = w.send(b, ba, b"from b");
        assert_eq!(w.message(b), (ba, b"from a".to_vec()));
        assert_eq!(w.message(a), (ab, b"from b".to_vec()));
        w.ok(a, first);
        w.ok(b, second);
        assert_eq!((w[a].ups.len(), w[b].ups.len()), (1, 1), "one peer each");
    }
}

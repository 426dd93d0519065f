//! Expected messages: matching by tag and source, order, truncation.

use crate::world::{Node, World, memory, pattern, room};
use petasos_fabric::{Done, Level, OpErrorKind, Operation, Payload, Peer, Token};

/// Waits for a posted receive, and returns the sender, the tag and the length.
fn matched(w: &mut World, n: Node, token: Token) -> (Peer, u64, u64) {
    match w.ok(n, token) {
        Done::Tagged { peer, tag, len } => (peer, tag, len),
        other => w.fail(&format!("a receive gave {other:?}")),
    }
}

/// A message goes to the receive with its tag, whichever of the two was first.
pub fn by_tag(w: &mut World) {
    let (a, b, ab, ba) = w.pair();
    if !w.has(a, |c| c.tagged) {
        return;
    }
    let rooms: Vec<_> = (0..4).map(|_| room(16)).collect();
    let posted: Vec<_> = (0..2).map(|i| w.post(b, None, i, 0, &rooms[i as usize])).collect();
    let sent: Vec<_> =
        [3u64, 1, 2, 0].iter().map(|tag| w.send_tagged(a, ab, *tag, &[*tag as u8; 16])).collect();
    w.run_for(std::time::Duration::from_millis(2));
    let late: Vec<_> = (2..4).map(|i| w.post(b, Some(ba), i, 0, &rooms[i as usize])).collect();
    for (tag, token) in posted.into_iter().chain(late).enumerate() {
        assert_eq!(matched(w, b, token), (ba, tag as u64, 16));
        assert_eq!(rooms[tag].to_vec(), [tag as u8; 16]);
    }
    for token in sent {
        w.ok(a, token);
    }
}

/// Ignored bits do not count, all others do.
pub fn ignore_mask(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !w.has(a, |c| c.tagged) {
        return;
    }
    let (low, any, exact) = (room(8), room(8), room(8));
    let low_token = w.post(b, None, 0xAB00, 0x00FF, &low);
    let exact_token = w.post(b, None, u64::MAX, 0, &exact);
    w.send_tagged(a, ab, u64::MAX, b"exactly!");
    w.send_tagged(a, ab, 0xAC42, b"no match");
    w.send_tagged(a, ab, 0xAB42, b"match me");
    assert_eq!(matched(w, b, low_token).1, 0xAB42);
    assert_eq!(low.to_vec(), b"match me");
    assert_eq!(matched(w, b, exact_token).1, u64::MAX);
    assert_eq!(exact.to_vec(), b"exactly!");
    let any_token = w.post(b, None, 0, u64::MAX, &any);
    assert_eq!(matched(w, b, any_token).1, 0xAC42);
    assert_eq!(any.to_vec(), b"no match");
}

/// A receive from one source leaves the others' messages; one from any source takes the first.
pub fn by_source(w: &mut World) {
    let (a, b, ab, ba) = w.pair();
    if !w.has(a, |c| c.tagged) {
        return;
    }
    let c = w.open();
    let (cb, bc) = w.join(c, b);
    let (from_c, from_a) = (room(8), room(8));
    let token_c = w.post(b, Some(bc), 5, 0, &from_c);
    let sent = w.send_tagged(a, ab, 5, b"I am a..");
    w.ok(a, sent);
    w.run_for(std::time::Duration::from_millis(2));
    assert!(w[b].ledger.result(token_c).is_none(), "a is not c");
    w.send_tagged(c, cb, 5, b"I am c..");
    assert_eq!(matched(w, b, token_c).0, bc);
    assert_eq!(from_c.to_vec(), b"I am c..");
    let token_any = w.post(b, None, 5, 0, &from_a);
    assert_eq!(matched(w, b, token_any).0, ba);
    assert_eq!(from_a.to_vec(), b"I am a..");
}

/// Receives match in the order of posting, messages in the order of sending.
pub fn order(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !w.has(a, |c| c.tagged) {
        return;
    }
    let limits = w.capabilities(a).limits;
    let count = 60;
    for posted_first in [true, false] {
        let rooms: Vec<_> = (0..count).map(|_| room(limits.max_message + 100)).collect();
        let mut posted = Vec::new();
        let mut sent = Vec::new();
        let post_all = |w: &mut World| -> Vec<Token> {
            (0..count)
                .map(|i| w.post(b, None, 9, if i % 2 == 0 { 0 } else { 0xFF00 }, &rooms[i]))
                .collect()
        };
        if posted_first {
            posted = post_all(w);
        }
        for i in 0..count {
            // Short and long ones take different ways in many transports.
            let len = if i % 3 == 0 { limits.max_message + 50 } else { 20 };
            sent.push(w.send_tagged(a, ab, 9, &pattern(len, i as u8)));
        }
        if !posted_first {
            w.run_for(std::time::Duration::from_millis(2));
            posted = post_all(w);
        }
        for (i, token) in posted.into_iter().enumerate() {
            let len = matched(w, b, token).2 as usize;
            let got = rooms[i].part(0, len).expect("within").to_vec();
            assert!(got == pattern(len, i as u8), "message {i} of {len} bytes");
        }
        for token in sent {
            w.ok(a, token);
        }
    }
}

/// A message longer than its receive fills it, and is reported; a shorter one leaves the rest.
pub fn truncation(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !w.has(a, |c| c.tagged) {
        return;
    }
    let big = w.capabilities(a).limits.max_message * 3 + 7;
    for len in [100usize, big] {
        let bytes = pattern(len, 8);
        let guard = memory(&vec![0xEE; len]);
        let small = guard.part(0, len - 30).expect("within");
        let token = w.post(b, None, 1, 0, &small);
        let sent = w.send_tagged(a, ab, 1, &bytes);
        let posted = len as u64 - 30;
        w.fails(b, token, |kind| *kind == OpErrorKind::Truncated { sent: len as u64, posted });
        w.ok(a, sent);
        let got = guard.to_vec();
        assert_eq!(got[..len - 30], bytes[..len - 30]);
        assert_eq!(got[len - 30..], [0xEE; 30], "beyond the receive");
        let large = memory(&vec![0xEE; len + 9]);
        let token = w.post(b, None, 1, 0, &large);
        w.send_tagged(a, ab, 1, &bytes);
        assert_eq!(matched(w, b, token).2, len as u64);
        let got = large.to_vec();
        assert!(got[..len] == bytes && got[len..] == [0xEE; 9]);
    }
}

/// Lengths from nothing to megabytes, at each level, posted before and after.
pub fn lengths(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !w.has(a, |c| c.tagged) {
        return;
    }
    let max = w.capabilities(a).limits.max_message;
    for len in [0, 1, max - 1, max, max + 1, 3 << 20] {
        for (level, first) in [(Level::Reusable, true), (Level::Visible, false)] {
            let bytes = pattern(len, len as u8);
            let (from, into) = (memory(&bytes), room(len));
            let early = first.then(|| w.post(b, None, 2, 0, &into));
            let payload = Payload::Memory(from);
            let sent =
                w.op(a, |token| Operation::SendTagged { token, peer: ab, tag: 2, payload, level });
            let token = early.unwrap_or_else(|| w.post(b, None, 2, 0, &into));
            assert_eq!(matched(w, b, token).2, len as u64);
            w.ok(a, sent);
            assert!(into.to_vec() == bytes, "{len} bytes are not what was sent");
        }
    }
}

/// A cancelled receive ends so, its memory is left alone, and its message goes to the next.
pub fn cancelled_receive(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !w.has(a, |c| c.tagged) {
        return;
    }
    let (first, second) = (memory(&[0xEE; 32]), room(32));
    let cancelled = w.post(b, None, 3, 0, &first);
    let next = w.post(b, None, 3, 0, &second);
    w.cancel(b, cancelled);
    w.fails(b, cancelled, |kind| *kind == OpErrorKind::Cancelled);
    w.send_tagged(a, ab, 3, &[7; 32]);
    matched(w, b, next);
    assert_eq!((first.to_vec(), second.to_vec()), (vec![0xEE; 32], vec![7; 32]));
}

/// Tagged messages do not block the others, nor these them.
pub fn unexpected_while_messages_flow(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !w.has(a, |c| c.tagged) {
        return;
    }
    let count = 200u64;
    let max = w.capabilities(a).limits.max_message;
    let sent: Vec<_> = (0..count)
        .map(|i| w.send_tagged(a, ab, i, &pattern(if i % 10 == 0 { max * 2 } else { 64 }, i as u8)))
        .collect();
    w.inject(a, ab, b"a message in between");
    assert_eq!(w.message(b).1, b"a message in between");
    for i in (0..count).rev() {
        let into = room(max * 2);
        let token = w.post(b, None, i, 0, &into);
        let len = matched(w, b, token).2 as usize;
        assert!(into.part(0, len).expect("within").to_vec() == pattern(len, i as u8));
    }
    for token in sent {
        w.ok(a, token);
    }
}

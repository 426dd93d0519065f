//! Expected messages that are looked for without a receive, and claimed.

use crate::world::{Node, World, memory, pattern, room};
use petasos_fabric::{
    Claimed, Done, Level, OpErrorKind, Operation, Payload, Peeked, Peer, Slice, Token,
};
use std::time::Duration;

/// Waits until a message with this tag has come, and looks at it; claims it if wanted.
fn arrived(w: &mut World, n: Node, tag: u64, claim: bool) -> Peeked {
    let deadline = w.now().after(w.fixture().deadline());
    loop {
        if let Some(peeked) = w.peek(n, None, tag, 0, claim) {
            return peeked;
        }
        if w.now() >= deadline {
            w.fail(&format!("no message with tag {tag} came to {n}"));
        }
        w.run_for(Duration::from_millis(1));
    }
}

fn claimed(w: &mut World, n: Node, tag: u64) -> Claimed {
    let peeked = arrived(w, n, tag, true);
    peeked.claimed.unwrap_or_else(|| w.fail(&format!("{peeked:?} was not claimed")))
}

fn discard(w: &mut World, n: Node, message: Claimed) -> Token {
    w.op(n, |token| Operation::DiscardClaimed { token, message })
}

/// Sends data that stays in place until the receiver has it.
fn send_visible(w: &mut World, n: Node, peer: Peer, tag: u64, data: Slice) -> Token {
    let (payload, level) = (Payload::Memory(data), Level::Visible);
    w.op(n, |token| Operation::SendTagged { token, peer, tag, payload, level })
}

/// Waits for a receive: with which tag, and how long its message was.
fn received(w: &mut World, n: Node, token: Token) -> (u64, u64) {
    match w.ok(n, token) {
        Done::Tagged { tag, len, .. } => (tag, len),
        other => w.fail(&format!("a receive gave {other:?}")),
    }
}

/// A peek tells source, tag and length of the oldest message that such a receive would take, again
/// and again, and a receive then gets it.
pub fn peeked_messages_stay(w: &mut World) {
    let (a, b, ab, ba) = w.pair();
    if !w.has(a, |c| c.tagged) {
        return;
    }
    let c = w.open();
    let (cb, bc) = w.join(c, b);
    let long = w.capabilities(a).limits.max_message * 2;
    assert_eq!(w.peek(b, None, 0, u64::MAX, false), None, "nothing was sent");
    assert_eq!(w.peek(b, Some(ba), 7, 0, true), None);
    w.send_tagged(a, ab, 7, &pattern(30, 1));
    arrived(w, b, 7, false);
    w.send_tagged(a, ab, 7, &pattern(long, 2));
    w.send_tagged(a, ab, 0x107, b"");
    w.send_tagged(c, cb, 9, &pattern(50, 3));
    arrived(w, b, 9, false);
    arrived(w, b, 0x107, false);
    let first = Some(Peeked::new(ba, 7, 30));
    for _ in 0..3 {
        assert_eq!(w.peek(b, None, 7, 0, false), first);
        assert_eq!(w.peek(b, Some(ba), 0, u64::MAX, false), first, "the oldest");
        assert_eq!(w.peek(b, Some(ba), 0x100, 0xff, false), Some(Peeked::new(ba, 0x107, 0)));
        assert_eq!(w.peek(b, Some(bc), 0, u64::MAX, false), Some(Peeked::new(bc, 9, 50)));
        assert_eq!(w.peek(b, Some(bc), 7, 0, false), None, "that of another source");
        assert_eq!(w.peek(b, None, 8, 0, true), None, "no such tag");
    }
    for (tag, len, seed) in [(7, 30, 1), (7, long, 2), (9, 50, 3), (0x107, 0, 4)] {
        let into = room(long);
        let token = w.post(b, None, tag, 0, &into);
        assert_eq!(received(w, b, token), (tag, len as u64));
        assert!(into.part(0, len).expect("within").to_vec() == pattern(len, seed));
    }
    assert_eq!(w.peek(b, None, 0, u64::MAX, false), None, "all were received");
}

/// No other receive takes a claimed message, and its own gets it whole, once.
pub fn claimed_messages(w: &mut World) {
    let (a, b, ab, ba) = w.pair();
    if !w.has(a, |c| c.tagged) {
        return;
    }
    let long = w.capabilities(a).limits.max_message * 3 + 5;
    // Short and long ones take different ways in many transports; and each comes first once.
    for lens in [[20, long], [long, 20], [0, 20], [long, long]] {
        for (i, len) in lens.into_iter().enumerate() {
            w.send_tagged(a, ab, 5, &pattern(len, i as u8));
        }
        let peeked = arrived(w, b, 5, true);
        assert_eq!((peeked.peer, peeked.tag, peeked.len), (ba, 5, lens[0] as u64));
        let message = peeked.claimed.expect("it was claimed");
        let rooms = lens.map(room);
        // The second message goes to a receive of the same tag, posted before the claimed one is
        // received.
        let second = w.post(b, Some(ba), 5, 0, &rooms[1]);
        assert_eq!(received(w, b, second), (5, lens[1] as u64));
        let first = w.receive_claimed(b, message, &rooms[0]);
        assert_eq!(received(w, b, first), (5, lens[0] as u64));
        for (i, (room, len)) in rooms.iter().zip(lens).enumerate() {
            assert!(room.to_vec() == pattern(len, i as u8), "message {i} of {lens:?}");
        }
        let guard = memory(&[0xEE; 8]);
        let again = w.receive_claimed(b, message, &guard);
        w.fails(b, again, |kind| *kind == OpErrorKind::UnknownMessage);
        let again = discard(w, b, message);
        w.fails(b, again, |kind| *kind == OpErrorKind::UnknownMessage);
        assert_eq!(guard.to_vec(), [0xEE; 8]);
    }
    // A claimed message that is too long for its receive is cut.
    for len in [100, long] {
        w.send_tagged(a, ab, 6, &pattern(len, 9));
        let message = claimed(w, b, 6);
        let guard = memory(&vec![0xEE; len]);
        let small = guard.part(0, len - 30).expect("within");
        let token = w.receive_claimed(b, message, &small);
        let (sent, posted) = (len as u64, len as u64 - 30);
        w.fails(b, token, |kind| *kind == OpErrorKind::Truncated { sent, posted });
        assert!(guard.to_vec()[..len - 30] == pattern(len, 9)[..len - 30]);
        assert_eq!(guard.to_vec()[len - 30..], [0xEE; 30], "beyond the receive");
    }
}

/// Messages that are claimed and discarded end their senders' operations, and leave room for any
/// number of others; those that are kept hold up no other.
pub fn claims_are_discarded(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !w.has(a, |c| c.tagged) {
        return;
    }
    let long = w.capabilities(a).limits.max_message * 2;
    let mut kept = Vec::new();
    for (tag, len) in [(1, 10), (2, long)] {
        w.send_tagged(a, ab, tag, &pattern(len, tag as u8));
        kept.push((claimed(w, b, tag), tag, len));
    }
    // More than there is room for at a time.
    for round in 0..100 {
        let len = if round % 4 == 0 { long } else { 10 };
        let sent = match round % 3 {
            0 => send_visible(w, a, ab, 3, memory(&pattern(len, 3))),
            _ => w.send_tagged(a, ab, 3, &pattern(len, 3)),
        };
        let message = claimed(w, b, 3);
        let token = discard(w, b, message);
        assert!(matches!(w.ok(b, token), Done::Discarded));
        w.ok(a, sent);
    }
    assert_eq!(w.peek(b, None, 0, u64::MAX, false), None);
    for (message, tag, len) in kept {
        let into = room(len);
        let token = w.receive_claimed(b, message, &into);
        assert_eq!(received(w, b, token), (tag, len as u64));
        assert!(into.to_vec() == pattern(len, tag as u8));
    }
}

/// Of a lost peer, a claimed message that was here is received; one whose data was still with the
/// peer is not, and its receive says why.
pub fn claims_of_a_lost_peer(w: &mut World) {
    let (a, b, ab, ba) = w.pair();
    if !w.has(a, |c| c.tagged) {
        return;
    }
    let sent = w.send_tagged(a, ab, 1, &pattern(40, 1));
    let short = claimed(w, b, 1);
    w.ok(a, sent);
    send_visible(w, a, ab, 2, memory(&pattern(100_000, 2)));
    let long = claimed(w, b, 2);
    w.kill(a);
    w.until("the loss is seen", |w| w[b].lost.iter().any(|(p, _)| *p == ba));
    let guard = memory(&vec![0xEE; 100_000]);
    for _ in 0..2 {
        let token = w.receive_claimed(b, long, &guard);
        w.fails(b, token, |kind| matches!(kind, OpErrorKind::PeerLost(_)));
    }
    assert!(guard.to_vec() == vec![0xEE; 100_000]);
    let into = room(40);
    let token = w.receive_claimed(b, short, &into);
    assert_eq!(received(w, b, token), (1, 40));
    assert!(into.to_vec() == pattern(40, 1));
}

/// A sender that cancels ends; the receive of its message, which was claimed before, then fails and
/// writes nothing, or both went well. The next message is found.
pub fn claims_withdrawn_by_their_sender(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !w.has(a, |c| c.tagged) {
        return;
    }
    let len = 100_000;
    let sent = send_visible(w, a, ab, 1, memory(&vec![1; len]));
    let message = claimed(w, b, 1);
    w.cancel(a, sent);
    let into = memory(&vec![0xEE; len]);
    let token = w.receive_claimed(b, message, &into);
    let (received, sent) = (w.result(b, token), w.result(a, sent));
    match (received, sent) {
        (Ok(_), Ok(_)) => assert!(into.to_vec() == vec![1; len]),
        (Err(received), Err(sent)) => {
            assert_eq!(sent.kind, OpErrorKind::Cancelled);
            assert_eq!(received.kind, OpErrorKind::Withdrawn);
            assert!(into.to_vec() == vec![0xEE; len]);
        }
        (received, sent) => w.fail(&format!("{received:?} of what was sent: {sent:?}")),
    }
    let sent = w.send_tagged(a, ab, 1, b"the next");
    assert_eq!(arrived(w, b, 1, false).len, 8);
    w.ok(a, sent);
}

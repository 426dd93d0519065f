//! Long messages: the header first, and then the receiver's choice.

use crate::world::{Node, World, all_are, memory, pattern, room};
use bytes::Bytes;
use petasos_fabric::{Body, Done, OpErrorKind, Operation, Peer, Slice, Token};

fn send_long(w: &mut World, n: Node, peer: Peer, header: &[u8], body: &Slice) -> Token {
    let (header, body) = (Bytes::copy_from_slice(header), body.clone());
    w.op(n, |token| Operation::SendLong { token, peer, header, body })
}

fn receive(w: &mut World, n: Node, body: Body, into: &Slice) -> Token {
    let into = into.clone();
    w.op(n, |token| Operation::Receive { token, body, into })
}

fn received(w: &mut World, n: Node, token: Token) -> u64 {
    match w.ok(n, token) {
        Done::Received { len } => len,
        other => w.fail(&format!("a receive gave {other:?}")),
    }
}

/// Bodies from nothing to megabytes arrive where the receiver says, after it saw the header.
pub fn whole_bodies(w: &mut World) {
    let (a, b, ab, ba) = w.pair();
    let max = w.capabilities(a).limits.max_message;
    for len in [0, 1, 100, max, max + 1, 5 << 20] {
        let bytes = pattern(len, 3);
        let sent = send_long(w, a, ab, b"header", &memory(&bytes));
        let (from, header, body, announced) = w.long(b);
        assert_eq!((from, &header[..], announced, body.peer), (ba, &b"header"[..], len as u64, ba));
        let into = room(len);
        let token = receive(w, b, body, &into);
        assert_eq!(received(w, b, token), len as u64);
        assert!(into.to_vec() == bytes, "{len} bytes are not what was sent");
        w.ok(a, sent);
    }
}

/// The receiver may take the beginning only, or offer more room than needed.
pub fn parts_of_bodies(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    for len in [1000usize, 300_000] {
        let bytes = pattern(len, 4);
        for wanted in [0, 1, len / 2, len - 1, len + 100] {
            let sent = send_long(w, a, ab, b"", &memory(&bytes));
            let (_, _, body, _) = w.long(b);
            let guard = memory(&vec![0xEE; wanted + 16]);
            let token = receive(w, b, body, &guard.part(0, wanted).expect("within"));
            let moved = received(w, b, token) as usize;
            assert_eq!(moved, wanted.min(len));
            w.ok(a, sent);
            let got = guard.to_vec();
            assert!(got[..moved] == bytes[..moved], "the first {moved} bytes");
            assert!(got[moved..].iter().all(|b| *b == 0xEE), "and nothing else");
        }
    }
}

/// A discarded body completes on both sides.
pub fn discarded(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    for len in [10, 1 << 20] {
        let sent = send_long(w, a, ab, b"unwanted", &memory(&pattern(len, 0)));
        let (_, _, body, _) = w.long(b);
        let token = w.op(b, |token| Operation::Discard { token, body });
        assert!(matches!(w.ok(b, token), Done::Discarded));
        w.ok(a, sent);
    }
}

/// Bodies wait, and are fetched in whatever order the receiver likes, while messages flow.
pub fn any_order(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    let count = 20;
    let sent: Vec<_> =
        (0..count).map(|i| send_long(w, a, ab, &[i], &memory(&pattern(70_000, i)))).collect();
    let mut waiting: Vec<_> = (0..count).map(|_| w.long(b)).collect();
    for (i, (_, header, ..)) in waiting.iter().enumerate() {
        assert_eq!(header[..], [i as u8], "headers come in order");
    }
    w.inject(a, ab, b"meanwhile");
    assert_eq!(w.message(b).1, b"meanwhile");
    assert!(
        sent.iter().all(|token| w[a].ledger.result(*token).is_none()),
        "complete before the target chose"
    );
    waiting.reverse();
    for (_, header, body, len) in waiting {
        let into = room(len as usize);
        let token = receive(w, b, body, &into);
        received(w, b, token);
        assert!(into.to_vec() == pattern(70_000, header[0]));
    }
    for token in sent {
        w.ok(a, token);
    }
}

/// The longest header, and one byte more.
pub fn headers(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    let max = w.capabilities(a).limits.max_header;
    let header = pattern(max, 9);
    let sent = send_long(w, a, ab, &header, &memory(b"body"));
    let (_, got, body, _) = w.long(b);
    assert_eq!(got, header);
    let token = w.op(b, |token| Operation::Discard { token, body });
    w.ok(b, token);
    w.ok(a, sent);
    let sent = send_long(w, a, ab, &pattern(max + 1, 9), &memory(b"body"));
    w.fails(a, sent, |kind| matches!(kind, OpErrorKind::TooLarge { .. }));
}

/// A body is good for one receive or discard.
pub fn only_once(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    let sent = send_long(w, a, ab, b"", &memory(&[1; 64]));
    let (_, _, body, _) = w.long(b);
    let first = receive(w, b, body, &room(64));
    received(w, b, first);
    let guard = memory(&[0xEE; 64]);
    let second = receive(w, b, body, &guard);
    w.fails(b, second, |kind| *kind == OpErrorKind::UnknownBody);
    let third = w.op(b, |token| Operation::Discard { token, body });
    w.fails(b, third, |kind| *kind == OpErrorKind::UnknownBody);
    assert_eq!(guard.to_vec(), [0xEE; 64]);
    w.ok(a, sent);
}

/// A sender that cancels before the target chose ends; the target's receive then fails and
/// writes nothing, or both went well.
pub fn cancelled_by_its_sender(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    for wait in [false, true] {
        let sent = send_long(w, a, ab, b"", &memory(&vec![1; 100_000]));
        let (_, _, body, _) = w.long(b);
        w.cancel(a, sent);
        if wait {
            w.fails(a, sent, |kind| *kind == OpErrorKind::Cancelled);
        }
        let guard = memory(&vec![0xEE; 100_000]);
        let token = receive(w, b, body, &guard);
        match w.result(b, token) {
            Ok(_) => assert!(all_are(&guard.to_vec(), 1)),
            Err(error) => {
                // The receiver has cancelled nothing, and can tell.
                assert_eq!(error.kind, OpErrorKind::Withdrawn);
                guard.write(0, &vec![0xEE; 100_000]);
                w.run_for(std::time::Duration::from_millis(2));
                assert!(all_are(&guard.to_vec(), 0xEE), "written after the end");
            }
        }
        if !wait {
            let _ = w.result(a, sent);
        }
    }
}

/// A receiver that cancels ends, its memory is left alone from then on, and the sender's
/// operation completes, too.
pub fn cancelled_by_its_receiver(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    for steps in [0, 1, 3, 10] {
        let len = 24 << 20;
        let sent = send_long(w, a, ab, b"", &memory(&vec![1; len]));
        let (_, _, body, _) = w.long(b);
        let into = room(len);
        let token = receive(w, b, body, &into);
        for _ in 0..steps {
            w.step();
        }
        w.cancel(b, token);
        if w.result(b, token).is_err() {
            into.write(0, &vec![0xEE; len]);
            let _ = w.result(a, sent);
            w.run_for(std::time::Duration::from_millis(5));
            assert!(all_are(&into.to_vec(), 0xEE), "written after the end");
        } else {
            w.ok(a, sent);
        }
    }
}

//! Flush: what was accepted before it is visible when it completes, or it tells of a refusal.

use crate::{
    Random,
    world::{Node, World, all_are, memory, pattern, room},
};
use petasos_fabric::{
    Access, AtomicOp, AtomicType, Done, Enforcement, Key, Level, OpErrorKind, Operation, Peer,
    Remote, RemoteSpan, Slice, Support, Token,
};
use smallvec::smallvec;
use std::time::Duration;

/// Lengths below and above each threshold of the transports, as far as is known here: of lines,
/// cells, packets, parts, fragments, of what is copied, lent, or written by the network.
const LENGTHS: [usize; 13] = [
    1,
    8,
    65,
    1000,
    4096,
    4097,
    9000,
    16 << 10,
    (16 << 10) + 1,
    64 << 10,
    (256 << 10) + 3,
    (1 << 20) + 1,
    4 << 20,
];

/// The bytes at an offset.
fn at(target: &Slice, offset: usize, len: usize) -> Vec<u8> {
    target.part(offset, len).expect("within").to_vec()
}

fn flush(w: &mut World, n: Node, peer: Peer) -> Token {
    w.op(n, |token| Operation::Flush { token, peer })
}

/// A put that completes as soon as its source may be used again.
fn quick_put(w: &mut World, n: Node, remote: Remote, offset: u64, from: &Slice) -> Token {
    w.put_at(n, remote, offset, from, Level::Reusable)
}

/// Whether the endpoint has what these probes are about.
fn flushes(w: &mut World, n: Node) -> bool {
    w.has(n, |c| c.remote_access) && w.has(n, |c| c.flush)
}

/// Drives two endpoints in turn until an operation of the first has completed; the other one is not
/// driven after that.
fn until_done(w: &mut World, a: Node, b: Node, token: Token) {
    let end = w.now().after(w.fixture().deadline());
    w.settle();
    loop {
        w[b].frozen = true;
        let mut worked = w.step();
        if w[a].ledger.result(token).is_some() {
            break;
        }
        (w[a].frozen, w[b].frozen) = (true, false);
        worked |= w.step();
        w[a].frozen = false;
        if !worked {
            w.fixture().pass(0);
        }
        if w.now() >= end {
            w.fail(&format!("{token:?} of {a} does not complete"));
        }
    }
    w.settle();
}

fn is_flushed(w: &mut World, n: Node, token: Token) {
    let done = w.ok(n, token);
    if !matches!(done, Done::Flushed) {
        w.fail(&format!("{token:?} completed as {done:?}"));
    }
}

/// The accesses before a flush have completed when it does, also for a program that is told of a
/// few at a time.
pub fn completions_come_first(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !flushes(w, a) {
        return;
    }
    for target in [room(4096), w[b].endpoint().alloc(4096).expect("memory").whole()] {
        let (_, key) = w.expose(b, &target, Access::ALL);
        let remote = w.import(a, &key);
        let puts: Vec<Token> =
            (0..300).map(|i| quick_put(w, a, remote, i % 64 * 64, &memory(&[7; 64]))).collect();
        let token = flush(w, a, ab);
        w.until("all are accepted", |w| w.accepted(a));
        w[a].frozen = true;
        let end = w.now().after(w.fixture().deadline());
        while w[a].ledger.result(token).is_none() {
            assert!(w.now() < end, "the flush does not complete");
            w.run_for(Duration::from_micros(20));
            let (now, mut events) = (w.now(), Vec::new());
            w[a].endpoint().progress(now, 4, &mut events);
            events.into_iter().for_each(|event| w.happened(a, event));
        }
        w[a].frozen = false;
        let open = puts.iter().filter(|put| w[a].ledger.result(**put).is_none()).count();
        assert_eq!(open, 0, "puts that complete after the flush behind them");
        is_flushed(w, a, token);
    }
}

/// Each put is there when a flush behind it completes, whatever its length, and before the target
/// is driven again; to ordinary memory, and to memory of the transport.
pub fn puts_are_visible(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !flushes(w, a) {
        return;
    }
    let whole: usize = LENGTHS.iter().sum();
    let own = w[b].endpoint().alloc(whole).expect("memory").whole();
    for (round, target) in [room(whole), own].into_iter().enumerate() {
        let (region, key) = w.expose(b, &target, Access::ALL);
        let remote = w.import(a, &key);
        let mut offset = 0;
        for (i, len) in LENGTHS.into_iter().enumerate() {
            let bytes = pattern(len, (round + i) as u8 + 1);
            // One alone, and many in pieces, of which others are under way.
            let piece = if i % 2 == 0 { len } else { (len / 20).max(1) };
            let puts: Vec<Token> = bytes
                .chunks(piece)
                .enumerate()
                .map(|(nth, bytes)| {
                    let at = (offset + nth * piece) as u64;
                    quick_put(w, a, remote, at, &memory(bytes))
                })
                .collect();
            let token = flush(w, a, ab);
            until_done(w, a, b, token);
            assert!(at(&target, offset, len) == bytes, "{len} bytes are not visible");
            is_flushed(w, a, token);
            w[b].frozen = false;
            for put in puts {
                w.ok(a, put);
            }
            offset += len;
        }
        // All lengths at once, the longest first.
        let mut ends = Vec::new();
        for (i, len) in LENGTHS.into_iter().enumerate().rev() {
            offset -= len;
            let bytes = pattern(len, 0x80 + i as u8);
            ends.push(quick_put(w, a, remote, offset as u64, &memory(&bytes)));
        }
        let token = flush(w, a, ab);
        until_done(w, a, b, token);
        for (i, len) in LENGTHS.into_iter().enumerate() {
            let there = at(&target, offset, len) == pattern(len, 0x80 + i as u8);
            assert!(there, "{len} bytes are not visible, of all lengths at once");
            offset += len;
        }
        is_flushed(w, a, token);
        w[b].frozen = false;
        ends.into_iter().for_each(|put| _ = w.ok(a, put));
        w[a].endpoint().release(remote);
        w.deregister(b, region);
    }
}

/// Gets, atomics and puts with event are over, too.
pub fn every_access(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !flushes(w, a) {
        return;
    }
    let len = 3 << 20;
    let (target, source) = (room(len), memory(&pattern(len, 3)));
    let (_, to) = w.expose(b, &target, Access::ALL);
    let (_, from) = w.expose(b, &source, Access::READ);
    let (to, from) = (w.import(a, &to), w.import(a, &from));
    for round in 1..4u8 {
        let (long, short) = (room(len), room(40));
        w.get(a, from, 0, &long);
        w.get(a, from, 5, &short);
        quick_put(w, a, to, 64, &memory(&vec![round; 200_000]));
        if w.has(a, |c| c.put_with_event) {
            let local = memory(&vec![round; 50_000]);
            w.op(a, |token| Operation::Put {
                token,
                remote: to,
                local: smallvec![local],
                spans: smallvec![RemoteSpan { offset: 1 << 20, len: 50_000 }],
                level: Level::Reusable,
                event: Some(7),
            });
        }
        let atomics = w.has(a, |c| c.atomics);
        for _ in 0..if atomics { 10 } else { 0 } {
            w.op(a, |token| Operation::Atomic {
                token,
                remote: to,
                offset: 8,
                op: AtomicOp::Sum,
                kind: AtomicType::U64,
                operand: smallvec![1, 0, 0, 0, 0, 0, 0, 0],
                compare: smallvec![],
                fetch: false,
            });
        }
        let token = flush(w, a, ab);
        until_done(w, a, b, token);
        assert!(long.to_vec() == source.to_vec() && short.to_vec() == at(&source, 5, 40));
        assert!(all_are(&at(&target, 64, 200_000), round));
        if w.has(a, |c| c.put_with_event) {
            assert!(all_are(&at(&target, 1 << 20, 50_000), round));
        }
        if atomics {
            assert_eq!(at(&target, 8, 8), u64::from(round * 10).to_le_bytes());
        }
        is_flushed(w, a, token);
        w[b].frozen = false;
    }
}

/// An access that is refused among others is told by the flush behind it, by no other, and whatever
/// was accepted after that flush.
pub fn refusals_are_told_once(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !flushes(w, a) {
        return;
    }
    let enforced = w.capabilities(b).enforcement != Enforcement::Initiator;
    let len = 70_000;
    // A place for each good put, as those that are under way together have no order.
    let target = room(4 * len);
    let (_, key) = w.expose(b, &target, Access::ALL);
    let good = w.import(a, &key);
    let (_, readable) = w.expose(b, &room(len), Access::READ);
    let mut forged = readable.parse().expect("a key that was exported");
    forged.access = Access::ALL;
    let readable = w.import(a, &readable);
    let forged = Key::compose(&forged).ok().filter(|_| enforced);
    let forged = forged.and_then(|key| w[a].endpoint().import(&key).ok());
    let (closed, key) = w.expose(b, &room(len), Access::ALL);
    let stale = w.import(a, &key);
    let first = w.put(a, stale, 0, &memory(&[1; 8]));
    w.ok(a, first);
    w.deregister(b, closed);
    let denied = |kind: &OpErrorKind| matches!(kind, OpErrorKind::Denied { .. });
    let out = |kind: &OpErrorKind| matches!(kind, OpErrorKind::OutOfBounds { .. });
    let gone = |kind: &OpErrorKind| *kind == OpErrorKind::StaleKey;
    let either = |kind: &OpErrorKind| denied(kind) || gone(kind);
    type Is<'a> = &'a dyn Fn(&OpErrorKind) -> bool;
    let mut bad: Vec<(Remote, u64, Is<'_>)> =
        vec![(readable, 0, &denied), (good, 4 * len as u64 - 3, &out), (stale, 0, &gone)];
    if let Some(forged) = &forged {
        bad.push((*forged, 0, &either));
    }
    for (round, len) in [8, len].into_iter().enumerate() {
        for (remote, offset, expected) in &bad {
            let seed = round as u8 * 100;
            let mut puts = Vec::new();
            let mut put = |w: &mut World, remote, offset, seed| {
                puts.push(quick_put(w, a, remote, offset, &memory(&pattern(len, seed))));
            };
            // Good, bad, good; one that is good alone; bad twice; nothing.
            put(w, good, 0, seed + 1);
            put(w, *remote, *offset, seed + 2);
            put(w, good, len as u64, seed + 3);
            let first = flush(w, a, ab);
            put(w, good, 2 * len as u64, seed + 4);
            let second = flush(w, a, ab);
            put(w, *remote, *offset, seed + 5);
            put(w, good, 3 * len as u64, seed + 6);
            put(w, *remote, *offset, seed + 7);
            let third = flush(w, a, ab);
            let fourth = flush(w, a, ab);
            w.fails(a, first, expected);
            is_flushed(w, a, second);
            w.fails(a, third, expected);
            until_done(w, a, b, fourth);
            for (place, nth) in [(0, 1), (1, 3), (2, 4), (3, 6)] {
                let there = at(&target, place * len, len) == pattern(len, seed + nth);
                assert!(there, "a good put is missing, number {nth}");
            }
            is_flushed(w, a, fourth);
            w[b].frozen = false;
            for put in puts {
                _ = w.result(a, put);
            }
            // Late news of the puts belongs to no later flush.
            w.run_for(Duration::from_millis(1));
            let last = flush(w, a, ab);
            is_flushed(w, a, last);
        }
    }
    // A get, and an atomic.
    let get = w.get(a, stale, 0, &room(len));
    let token = flush(w, a, ab);
    w.fails(a, get, gone);
    w.fails(a, token, gone);
    if w.has(a, |c| c.atomics) {
        let sum = w.op(a, |token| Operation::Atomic {
            token,
            remote: good,
            offset: 4,
            op: AtomicOp::Sum,
            kind: AtomicType::U64,
            operand: smallvec![1; 8],
            compare: smallvec![],
            fetch: true,
        });
        let token = flush(w, a, ab);
        w.failure(a, sum);
        w.fails(a, token, |kind| matches!(kind, OpErrorKind::Misaligned { .. }));
    }
    let token = flush(w, a, ab);
    is_flushed(w, a, token);
}

/// With nothing to wait for it completes: for a peer, for oneself, for one that is not up yet.
/// Without a peer it fails.
pub fn of_nothing(w: &mut World) {
    let (a, b, ab, ba) = w.pair();
    if !w.has(a, |c| c.flush) {
        let token = flush(w, a, ab);
        return w.fails(a, token, |kind| matches!(kind, OpErrorKind::Unsupported(_)));
    }
    for _ in 0..3 {
        for (n, peer) in [(a, ab), (b, ba)] {
            let token = flush(w, n, peer);
            is_flushed(w, n, token);
        }
    }
    // It waits for no message.
    w[b].frozen = true;
    w.send(a, ab, b"a message");
    w.send(a, ab, &[7; 60]);
    let token = flush(w, a, ab);
    is_flushed(w, a, token);
    w[b].frozen = false;
    let address = w.address(a);
    let own = w.resolve(a, &address);
    let token = flush(w, a, own);
    is_flushed(w, a, token);
    let later = w.open();
    let address = w.address(later);
    let peer = w.resolve(a, &address);
    let token = flush(w, a, peer);
    is_flushed(w, a, token);
    w[a].endpoint().forget(peer);
    let token = flush(w, a, peer);
    w.fails(a, token, |kind| *kind == OpErrorKind::UnknownPeer);
    w.kill(b);
    w.until("the loss is seen", |w| w[a].lost.iter().any(|(lost, _)| *lost == ab));
    let token = flush(w, a, ab);
    w.fails(a, token, |kind| matches!(kind, OpErrorKind::PeerLost(_)));
}

/// Of one's own memory.
pub fn of_own_memory(w: &mut World) {
    let a = w.open();
    if !flushes(w, a) {
        return;
    }
    let target = room(100_000);
    let (region, key) = w.expose(a, &target, Access::ALL);
    let remote = w.import(a, &key);
    quick_put(w, a, remote, 0, &memory(&[4; 100_000]));
    let token = flush(w, a, remote.peer);
    is_flushed(w, a, token);
    assert!(all_are(&target.to_vec(), 4));
    w.deregister(a, region);
    quick_put(w, a, remote, 0, &memory(&[5; 8]));
    let (first, second) = (flush(w, a, remote.peer), flush(w, a, remote.peer));
    w.fails(a, first, |kind| *kind == OpErrorKind::StaleKey);
    is_flushed(w, a, second);
}

/// Many at once, each behind a put or nothing.
pub fn many_at_once(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !flushes(w, a) {
        return;
    }
    let target = room(1 << 20);
    let (_, key) = w.expose(b, &target, Access::ALL);
    let remote = w.import(a, &key);
    let mut random = Random::new(5);
    let tokens: Vec<Token> = (0..1000)
        .map(|i: u64| {
            let len = [0, 8, 8, 700, 20_000][random.below(5)];
            if len > 0 {
                quick_put(w, a, remote, i, &memory(&vec![i as u8; len]));
            }
            flush(w, a, ab)
        })
        .collect();
    for token in tokens {
        is_flushed(w, a, token);
    }
    quick_put(w, a, remote, 0, &memory(&vec![1; 1 << 20]));
    let token = flush(w, a, ab);
    until_done(w, a, b, token);
    assert!(all_are(&target.to_vec(), 1));
    w[b].frozen = false;
}

/// One peer that is not driven holds up no flush of another one, and no flush of its own completes
/// before its memory is complete.
pub fn of_one_among_others(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !flushes(w, a) {
        return;
    }
    let c = w.open();
    let (ac, _) = w.join(a, c);
    for len in [8, 64 << 10, 4 << 20] {
        let (slow, quick) = (room(len), room(len));
        let (_, key) = w.expose(b, &slow, Access::ALL);
        let to_slow = w.import(a, &key);
        let (_, key) = w.expose(c, &quick, Access::ALL);
        let to_quick = w.import(a, &key);
        w[b].frozen = true;
        quick_put(w, a, to_slow, 0, &memory(&vec![2; len]));
        let waits = flush(w, a, ab);
        for i in 3..6 {
            quick_put(w, a, to_quick, 0, &memory(&vec![i; len]));
            let token = flush(w, a, ac);
            if w.fixture().holds_up_others().is_none() {
                is_flushed(w, a, token);
                assert!(all_are(&quick.to_vec(), i));
            }
        }
        w.run_for(Duration::from_millis(5));
        let can = w.capabilities_of(a, ab);
        if can.attended {
            // Its thread has its own times.
            w.until("it is flushed without its program", |w| w[a].ledger.result(waits).is_some());
        }
        match w[a].ledger.result(waits) {
            Some(_) => assert!(all_are(&slow.to_vec(), 2), "flushed, and not visible"),
            None => assert!(!can.passive_target, "the target is not needed, and it waits"),
        }
        w[b].frozen = false;
        is_flushed(w, a, waits);
        assert!(all_are(&slow.to_vec(), 2));
        let token = flush(w, a, ac);
        is_flushed(w, a, token);
    }
}

/// The peer dies behind the puts.
pub fn loss(w: &mut World) {
    for (steps, frozen) in [(0, true), (2, true), (0, false), (1, false), (3, false)] {
        let (a, b, ab, _) = w.pair();
        if !flushes(w, a) {
            return;
        }
        let address = w.address(b);
        let target = room(8 << 20);
        let (_, key) = w.expose(b, &target, Access::ALL);
        let remote = w.import(a, &key);
        w[b].frozen = frozen;
        quick_put(w, a, remote, 0, &memory(&[1; 100]));
        let early = flush(w, a, ab);
        quick_put(w, a, remote, 0, &memory(&vec![1; 8 << 20]));
        let late = flush(w, a, ab);
        for _ in 0..steps {
            w.step();
        }
        w.kill(b);
        for token in [early, late] {
            match w.result(a, token) {
                Ok(done) => assert!(matches!(done, Done::Flushed), "{done:?}"),
                Err(error) => {
                    let lost = matches!(error.kind, OpErrorKind::PeerLost(_));
                    assert!(lost && error.peer.as_ref() == Some(&address), "{error}");
                }
            }
        }
        w.kill(a);
    }
}

/// A flush that is cancelled ends, and what it did not tell the next one does.
pub fn cancelled(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !flushes(w, a) {
        return;
    }
    let len = 100_000;
    let target = room(len);
    let (_, key) = w.expose(b, &target, Access::ALL);
    let good = w.import(a, &key);
    let (closed, key) = w.expose(b, &room(len), Access::ALL);
    let stale = w.import(a, &key);
    w.deregister(b, closed);
    for (round, steps) in [0, 0, 1, 2, 5].into_iter().enumerate() {
        w[b].frozen = round > 0;
        quick_put(w, a, good, 0, &memory(&vec![round as u8; len]));
        quick_put(w, a, stale, 0, &memory(&vec![9; len]));
        let token = flush(w, a, ab);
        for _ in 0..steps {
            w.step();
        }
        w.cancel(a, token);
        if round > 0 {
            // Also while the peer does nothing.
            until_done(w, a, b, token);
        }
        w[b].frozen = false;
        let error = w.failure(a, token).into_kind();
        let next = flush(w, a, ab);
        match error {
            OpErrorKind::Cancelled => w.fails(a, next, |kind| *kind == OpErrorKind::StaleKey),
            OpErrorKind::StaleKey => is_flushed(w, a, next),
            other => w.fail(&format!("a flush that was cancelled ends with {other:?}")),
        }
        assert!(all_are(&target.to_vec(), round as u8));
        // The same with accesses that are cancelled, which are no failures.
        let put = quick_put(w, a, good, 0, &memory(&vec![round as u8; len]));
        w.cancel(a, put);
        let token = flush(w, a, ab);
        is_flushed(w, a, token);
        _ = w.result(a, put);
    }
    assert!(w.capabilities(a).flush != Support::None);
}

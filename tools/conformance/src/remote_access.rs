//! Put and get: pieces, bounds, events, order.

use crate::{
    Random,
    world::{World, all_are, memory, pattern, room},
};
use petasos_fabric::{
    Access, Level, OpErrorKind, Operation, Refusal, RemoteSpan, Slice, Slices, Spans, Support,
};
use smallvec::smallvec;
use std::time::Duration;

fn span(offset: u64, len: u64) -> RemoteSpan {
    RemoteSpan { offset, len }
}

/// What is put is there, and comes back with get; from nothing to megabytes, at odd offsets.
pub fn put_and_get(w: &mut World) {
    let (a, b, _, _) = w.pair();
    if !w.has(a, |c| c.remote_access) {
        return;
    }
    let target = room(6 << 20);
    let (region, key) = w.expose(b, &target, Access::ALL);
    let remote = w.import(a, &key);
    assert_eq!(remote.len, target.len() as u64);
    for (len, at) in [(0, 0), (1, 5), (4096, 4095), (100_003, 77), (5 << 20, 12_345), (0, 6 << 20)]
    {
        let bytes = pattern(len, len as u8 ^ 1);
        let put = w.put(a, remote, at as u64, &memory(&bytes));
        w.ok(a, put);
        assert!(target.part(at, len).expect("within").to_vec() == bytes, "put {len} at {at}");
        let back = room(len);
        let get = w.get(a, remote, at as u64, &back);
        w.ok(a, get);
        assert!(back.to_vec() == bytes, "get {len} at {at}");
    }
    w[a].endpoint().release(remote);
    w.deregister(b, region);
}

/// Pieces of different cuts on both sides, as many as allowed.
pub fn scattered(w: &mut World) {
    let (a, b, _, _) = w.pair();
    if !w.has(a, |c| c.remote_access) {
        return;
    }
    let most = w.capabilities(a).limits.max_pieces.min(300);
    let mut random = Random::new(5);
    for (inside, outside) in [(1, 3), (3, 1), (most.min(40), most.min(7)), (most, most)] {
        let len = 60_000;
        let target = memory(&vec![0xEE; 2 * len]);
        let (_, key) = w.expose(b, &target, Access::ALL);
        let remote = w.import(a, &key);
        let mut cut = |count: usize| -> Vec<usize> {
            let mut at: Vec<_> = (1..count).map(|_| random.below(len)).collect();
            at.extend([0, len]);
            at.sort_unstable();
            at
        };
        // Local pieces lie in reverse, remote ones with a gap before each second.
        let bytes = pattern(len, 6);
        let cuts = cut(inside);
        let locals = |whole: &Slice| -> Slices {
            let at = |i: usize| len - cuts[i + 1];
            (0..inside).map(|i| whole.part(at(i), cuts[i + 1] - cuts[i]).expect("within")).collect()
        };
        let source = room(len);
        let mut done = 0;
        for piece in locals(&source) {
            piece.write(0, &bytes[done..done + piece.len()]);
            done += piece.len();
        }
        let cuts_out = cut(outside);
        let spans: Spans = (0..outside)
            .map(|i| span((cuts_out[i] + i) as u64, (cuts_out[i + 1] - cuts_out[i]) as u64))
            .collect();
        let (local, remote_spans) = (locals(&source), spans.clone());
        let put = w.op(a, |token| Operation::Put {
            token,
            remote,
            local,
            spans: remote_spans,
            level: Level::Visible,
            event: None,
        });
        w.ok(a, put);
        let mut expected = vec![0xEE; 2 * len];
        for (i, span) in spans.iter().enumerate() {
            let at = span.offset as usize;
            expected[at..at + span.len as usize]
                .copy_from_slice(&bytes[cuts_out[i]..cuts_out[i + 1]]);
        }
        assert!(target.to_vec() == expected, "{inside} pieces to {outside}");
        let back = room(len);
        let local = locals(&back);
        let get = w.op(a, |token| Operation::Get { token, remote, local, spans });
        w.ok(a, get);
        assert!(back.to_vec() == source.to_vec(), "{outside} pieces to {inside}");
    }
}

/// Nothing goes beyond the end of either side.
pub fn beyond_the_end(w: &mut World) {
    let (a, b, _, _) = w.pair();
    if !w.has(a, |c| c.remote_access) {
        return;
    }
    let whole = memory(&[0xEE; 300]);
    let (_, key) = w.expose(b, &whole.part(100, 100).expect("within"), Access::ALL);
    let remote = w.import(a, &key);
    for offset in [100, 96, 101, u64::MAX, u64::MAX - 3] {
        let put = w.put(a, remote, offset, &memory(&[1; 8]));
        w.fails(a, put, |kind| matches!(kind, OpErrorKind::OutOfBounds { .. }));
        let guard = memory(&[0xEE; 8]);
        let get = w.get(a, remote, offset, &guard);
        w.fails(a, get, |kind| matches!(kind, OpErrorKind::OutOfBounds { .. }));
        assert_eq!(guard.to_vec(), [0xEE; 8]);
    }
    assert_eq!(whole.to_vec(), [0xEE; 300]);
    let edge = w.put(a, remote, 92, &memory(&[1; 8]));
    w.ok(a, edge);
    assert_eq!(whole.to_vec()[192..200], [1; 8]);
}

/// Sides of different lengths, and too many pieces, are refused.
pub fn lengths_must_agree(w: &mut World) {
    let (a, b, _, _) = w.pair();
    if !w.has(a, |c| c.remote_access) {
        return;
    }
    let target = room(1 << 16);
    let (_, key) = w.expose(b, &target, Access::ALL);
    let remote = w.import(a, &key);
    for len in [7, 9] {
        let put = w.op(a, |token| Operation::Put {
            token,
            remote,
            local: smallvec![memory(&[1; 8])],
            spans: smallvec![span(0, len)],
            level: Level::Reusable,
            event: None,
        });
        w.fails(a, put, |kind| *kind == OpErrorKind::LengthMismatch { local: 8, remote: len });
    }
    let many = w.capabilities(a).limits.max_pieces + 1;
    let spans: Spans = (0..many).map(|i| span(i as u64 % 60_000, 1)).collect();
    let local = smallvec![memory(&vec![1; many])];
    let put = w.op(a, |token| Operation::Put {
        token,
        remote,
        local,
        spans,
        level: Level::Reusable,
        event: None,
    });
    w.fails(a, put, |kind| matches!(kind, OpErrorKind::TooLarge { .. }));
    assert!(all_are(&target.to_vec(), 0));
}

/// The event of a put comes when that put is visible, and tells where it was.
pub fn put_with_event(w: &mut World) {
    let (a, b, _, ba) = w.pair();
    if !w.has(a, |c| c.put_with_event) {
        return;
    }
    let target = room(1 << 20);
    let (region, key) = w.expose(b, &target, Access::WRITE);
    let remote = w.import(a, &key);
    for (round, len) in [0usize, 1, 100, 70_000, 1 << 19].into_iter().enumerate() {
        let bytes = pattern(len, round as u8 + 1);
        let at = (1 << 20) - len as u64 - round as u64;
        let local = memory(&bytes);
        let data = u64::MAX - round as u64;
        let put = w.op(a, |token| Operation::Put {
            token,
            remote,
            local: smallvec![local],
            spans: smallvec![span(at, len as u64)],
            level: Level::Reusable,
            event: Some(data),
        });
        w.until("the put arrives", |w| !w[b].arrivals.is_empty());
        let there = target.part(at as usize, len).expect("within").to_vec();
        assert!(there == bytes, "the event came before its data");
        let arrival = w[b].arrivals.pop_front().expect("just seen");
        assert_eq!(arrival, (ba, region, at, len as u64, data));
        w.ok(a, put);
    }
    w.run_for(Duration::from_millis(2));
    assert!(w[b].arrivals.is_empty(), "more events than puts");
    // Many at once: one event each.
    let tokens: Vec<_> = (0..500u64)
        .map(|i| {
            let local = memory(&i.to_le_bytes());
            w.op(a, |token| Operation::Put {
                token,
                remote,
                local: smallvec![local],
                spans: smallvec![span(i * 8, 8)],
                level: Level::Visible,
                event: Some(i),
            })
        })
        .collect();
    w.until("all arrive", |w| w[b].arrivals.len() == 500);
    for token in tokens {
        w.ok(a, token);
    }
    let mut seen: Vec<_> = w[b].arrivals.drain(..).map(|arrival| arrival.4).collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..500));
}

/// Where the capability says so, put and get complete though the target never calls in.
pub fn passive_target(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !w.has(a, |c| c.remote_access) || !w.capabilities_of(a, ab).passive_target {
        return;
    }
    let target = room(2 << 20);
    let (_, key) = w.expose(b, &target, Access::ALL);
    let remote = w.import(a, &key);
    w[b].frozen = true;
    let bytes = pattern(2 << 20, 7);
    let put = w.put(a, remote, 0, &memory(&bytes));
    w.ok(a, put);
    assert!(target.to_vec() == bytes);
    let back = room(2 << 20);
    let get = w.get(a, remote, 0, &back);
    w.ok(a, get);
    assert!(back.to_vec() == bytes);
}

/// One's own key works for oneself.
pub fn own_memory(w: &mut World) {
    let a = w.open();
    if !w.has(a, |c| c.remote_access) {
        return;
    }
    let target = room(50_000);
    let (region, key) = w.expose(a, &target, Access::ALL);
    let remote = w.import(a, &key);
    let put = w.put(a, remote, 3, &memory(&pattern(40_000, 1)));
    w.ok(a, put);
    let back = room(40_000);
    let get = w.get(a, remote, 3, &back);
    w.ok(a, get);
    assert!(back.to_vec() == pattern(40_000, 1));
    w.deregister(a, region);
}

/// 64 MiB in each direction, both at the same time.
pub fn large(w: &mut World) {
    let (a, b, _, _) = w.pair();
    if !w.has(a, |c| c.remote_access) {
        return;
    }
    let len = 64 << 20;
    let bytes = pattern(len, 5);
    let (sink, source) = (room(len), memory(&bytes));
    let (_, sink_key) = w.expose(b, &sink, Access::WRITE);
    let (_, source_key) = w.expose(b, &source, Access::READ);
    let (to, from) = (w.import(a, &sink_key), w.import(a, &source_key));
    let back = room(len);
    let (put, get) = (w.put(a, to, 0, &source), w.get(a, from, 0, &back));
    w.ok(a, put);
    w.ok(a, get);
    assert!(sink.to_vec() == bytes && back.to_vec() == bytes);
}

/// Where the capability says so, accesses are seen in order, and in order with messages.
pub fn ordered(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !w.has(a, |c| c.remote_access) || !w.capabilities_of(a, ab).ordered_access {
        return;
    }
    let target = room(100_000);
    let (_, key) = w.expose(b, &target, Access::ALL);
    let remote = w.import(a, &key);
    for i in 1..60u8 {
        let len = if i % 4 == 0 { 100_000 } else { 64 };
        w.put(a, remote, 0, &memory(&vec![0; len]));
        w.put(a, remote, 0, &memory(&vec![i; len]));
        w.send(a, ab, &[i]);
        let (_, message) = w.message(b);
        assert_eq!(message, [i]);
        assert!(all_are(&target.part(0, len).expect("within").to_vec(), i));
    }
}

/// A put that the target refuses is not silent at any level: its completion says so, or, at
/// `Reusable`, an event after it. Nothing is written.
pub fn refused_puts(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !w.has(a, |c| c.remote_access) {
        return;
    }
    for level in [Level::Reusable, Level::Delivered, Level::Visible] {
        for len in [8, 70_000] {
            let target = room(len);
            let (region, key) = w.expose(b, &target, Access::ALL);
            let remote = w.import(a, &key);
            // A first one, which is good.
            let first = w.put(a, remote, 0, &memory(&vec![3; len]));
            w.ok(a, first);
            w.deregister(b, region);
            let before = w[a].refused.len();
            let put = w.op(a, |token| Operation::Put {
                token,
                remote,
                local: smallvec![memory(&vec![7; len])],
                spans: smallvec![span(0, len as u64)],
                level,
                event: None,
            });
            match w.result(a, put) {
                Err(error) => assert!(matches!(error.kind, OpErrorKind::StaleKey), "{error}"),
                Ok(_) => {
                    assert!(level == Level::Reusable, "a refused put is a success at {level:?}");
                    w.until("the refusal", |w| w[a].refused.len() > before);
                    assert_eq!(w[a].refused[before], (ab, Refusal::StaleKey));
                }
            }
            assert!(target.to_vec() == vec![3; len]);
        }
    }
}

/// Where remote access is missing, it says so.
pub fn unsupported(w: &mut World) {
    let a = w.open();
    let capabilities = w.capabilities(a);
    if capabilities.tagged == Support::None {
        let token = w.post(a, None, 0, 0, &room(8));
        w.fails(a, token, |kind| matches!(kind, OpErrorKind::Unsupported(_)));
        let (source, tag, ignore, claim) = (None, 0, 0, true);
        let token = w.op(a, |token| Operation::Peek { token, source, tag, ignore, claim });
        w.fails(a, token, |kind| matches!(kind, OpErrorKind::Unsupported(_)));
    }
}

//! Put and get: pieces, bounds, rights, keys, events, the end of a region.

use crate::{
    Random,
    world::{World, memory, pattern, room},
};
use petasos_fabric::{
    Access, Enforcement, Key, Level, OpErrorKind, Operation, RemoteSpan, Slice, Slices, Spans,
    Support,
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
    assert!(target.to_vec().iter().all(|b| *b == 0));
}

/// A key allows what it was made for, also when somebody edits it.
pub fn rights(w: &mut World) {
    let (a, b, _, _) = w.pair();
    if !w.has(a, |c| c.remote_access) {
        return;
    }
    let enforced = w.capabilities(b).enforcement != Enforcement::Initiator;
    let target = memory(&[0xEE; 64]);
    for access in [Access::NONE, Access::READ, Access::WRITE, Access::ATOMIC] {
        let (_, key) = w.expose(b, &target, access);
        let parts = key.parse().expect("a key that was exported");
        assert_eq!((parts.access, parts.len), (access, 64));
        let mut forged = parts.clone();
        forged.access = Access::ALL;
        for (key, honest) in [(key, true), (Key::compose(&forged), false)] {
            if !honest && !enforced {
                continue;
            }
            let Ok(remote) = w[a].endpoint().import(&key) else {
                assert!(!honest, "an honest key was refused");
                continue;
            };
            let denied = |kind: &OpErrorKind| !honest || matches!(kind, OpErrorKind::Denied { .. });
            if !access.allows(Access::WRITE) {
                let put = w.put(a, remote, 0, &memory(&[1; 64]));
                w.fails(a, put, denied);
                assert_eq!(target.to_vec(), [0xEE; 64], "written with {access:?}");
            }
            if !access.allows(Access::READ) {
                let got = memory(&[0; 64]);
                let get = w.get(a, remote, 0, &got);
                w.fails(a, get, denied);
                assert_eq!(got.to_vec(), [0; 64], "read with {access:?}");
            }
        }
    }
}

/// Keys of noise, and keys with flipped bits, fail somewhere; nothing else is harmed.
pub fn garbage_keys(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !w.has(a, |c| c.remote_access) {
        return;
    }
    let mut random = Random::new(77);
    let beside = memory(&[0xEE; 4096]);
    let target = memory(&[0; 64]);
    let (_, key) = w.expose(b, &target, Access::WRITE);
    w.expose(b, &beside, Access::READ);
    for round in 0..300 {
        let bytes = if round % 2 == 0 {
            let len = random.below(Key::MAX + 40);
            random.bytes(len)
        } else {
            let mut bytes = key.as_bytes().to_vec();
            // Not the owner's name: reaching for strangers takes its time.
            let owner = 20..20 + usize::from(bytes[3]);
            let at = random.below(bytes.len());
            if owner.contains(&at) {
                continue;
            }
            bytes[at] ^= 1 << random.below(8);
            bytes
        };
        let Ok(key) = Key::from_bytes(bytes) else {
            continue;
        };
        if let Ok(remote) = w[a].endpoint().import(&key) {
            let put = w.put(a, remote, 0, &memory(&[1; 16]));
            let _ = w.result(a, put);
            w[a].endpoint().release(remote);
        }
    }
    assert_eq!(beside.to_vec(), [0xEE; 4096], "a region that may only be read");
    let _ = ab;
    let remote = w.import(a, &key);
    let put = w.put(a, remote, 0, &memory(&[2; 64]));
    w.ok(a, put);
    assert_eq!(target.to_vec(), [2; 64], "still usable after all that");
}

/// When a region was closed its keys fail, a later region in its place is not reached, and
/// handles that were released are refused.
pub fn closed_regions(w: &mut World) {
    let (a, b, _, _) = w.pair();
    if !w.has(a, |c| c.remote_access) {
        return;
    }
    let target = memory(&[0xEE; 64]);
    let (region, key) = w.expose(b, &target, Access::ALL);
    let remote = w.import(a, &key);
    let put = w.put(a, remote, 0, &memory(&[1; 8]));
    w.ok(a, put);
    w.deregister(b, region);
    let later = memory(&[0xEE; 64]);
    let (_, later_key) = w.expose(b, &later, Access::ALL);
    let put = w.put(a, remote, 0, &memory(&[2; 8]));
    w.fails(a, put, |kind| *kind == OpErrorKind::StaleKey);
    let get = w.get(a, remote, 0, &room(8));
    w.fails(a, get, |kind| *kind == OpErrorKind::StaleKey);
    if let Ok(again) = w[a].endpoint().import(&key) {
        let put = w.put(a, again, 0, &memory(&[3; 8]));
        w.fails(a, put, |kind| *kind == OpErrorKind::StaleKey);
    }
    assert_eq!(target.to_vec()[..8], [1; 8]);
    assert_eq!(later.to_vec(), [0xEE; 64]);
    let remote = w.import(a, &later_key);
    w[a].endpoint().release(remote);
    let put = w.put(a, remote, 0, &memory(&[4; 8]));
    w.fails(a, put, |kind| *kind == OpErrorKind::UnknownRegion);
    assert_eq!(later.to_vec(), [0xEE; 64]);
}

/// When closing a region completes, nothing lands any more: whatever was under way.
pub fn closing_waits_for_access(w: &mut World) {
    let (a, b, _, _) = w.pair();
    if !w.has(a, |c| c.remote_access) {
        return;
    }
    let len = 2 << 20;
    for steps in 0..12 {
        let target = room(len);
        let (region, key) = w.expose(b, &target, Access::ALL);
        let remote = w.import(a, &key);
        let from = memory(&vec![1; len]);
        let puts: Vec<_> = (0..4).map(|_| w.put(a, remote, 0, &from)).collect();
        for _ in 0..steps {
            w.step();
        }
        w.deregister(b, region);
        target.write(0, &vec![0xEE; len]);
        for put in puts {
            if let Err(error) = w.result(a, put) {
                assert_eq!(error.kind, OpErrorKind::StaleKey, "{error}");
            }
        }
        w.run_for(Duration::from_millis(2));
        assert!(
            target.to_vec().iter().all(|b| *b == 0xEE),
            "a put landed after the region was closed ({steps} steps)"
        );
        let region = target.region().clone();
        drop((target, from));
        assert!(region.into_exclusive().is_ok(), "somebody still holds the memory");
    }
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

/// A key that was passed on works for a third endpoint.
pub fn third_party(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !w.has(a, |c| c.remote_access) || !w.capabilities(b).third_party {
        return;
    }
    let c = w.open();
    let (bc, _) = w.join(b, c);
    let target = room(100_000);
    let (region, key) = w.expose(a, &target, Access::ALL);
    w.inject(a, ab, key.as_bytes());
    let bytes = w.message(b).1;
    w.inject(b, bc, &bytes);
    let key = Key::from_bytes(w.message(c).1).expect("a key");
    let remote = w.import(c, &key);
    let put = w.put(c, remote, 10, &memory(&pattern(90_000, 2)));
    w.ok(c, put);
    assert!(target.part(10, 90_000).expect("within").to_vec() == pattern(90_000, 2));
    w.deregister(a, region);
    let put = w.put(c, remote, 10, &memory(&[0; 10]));
    w.fails(c, put, |kind| *kind == OpErrorKind::StaleKey);
}

/// Where the capability says so, put and get complete though the target never calls in.
pub fn passive_target(w: &mut World) {
    let (a, b, _, _) = w.pair();
    if !w.has(a, |c| c.remote_access) || !w.capabilities(b).passive_target {
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

/// 64 MiB each way, both at the same time.
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
    if !w.has(a, |c| c.remote_access) || !w.capabilities(a).ordered_access {
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
        assert!(target.part(0, len).expect("within").to_vec().iter().all(|b| *b == i));
    }
}

/// Where remote access is missing, it says so.
pub fn unsupported(w: &mut World) {
    let a = w.open();
    let capabilities = w.capabilities(a);
    if capabilities.tagged == Support::None {
        let token = w.post(a, None, 0, 0, &room(8));
        w.fails(a, token, |kind| matches!(kind, OpErrorKind::Unsupported(_)));
    }
}

//! Keys to parts of regions, and memory under numbers: what they allow, where they reach, and how
//! they end, one by one.
//!
//! Where a transport has no such keys it says so, by the capability and by an error.

use crate::world::{Node, World, all_are, memory, pattern, room};
use petasos_fabric::{
    Access, AtomicOp, AtomicType, Done, ExportError, ImportError, Key, KeyId, Level, OpErrorKind,
    Operation, Peer, RegionId, Remote, RemoteSpan, Slice, Support, Token,
};
use smallvec::smallvec;
use std::{ops::Range, time::Duration};

/// Whether the owner has such keys; if not, whether it says so.
fn has(w: &mut World, owner: Node) -> bool {
    if w.has(owner, |c| c.part_keys) {
        return true;
    }
    if w.has(owner, |c| c.remote_access) {
        let (region, _) = w.expose(owner, &room(64), Access::ALL);
        let refused = w[owner].endpoint().export_part(region, 0..64, Access::ALL);
        assert!(matches!(refused, Err(ExportError::Unsupported(_))), "{refused:?}");
        let refused = w[owner].endpoint().export_number(region, 0..64, Access::ALL, 1);
        assert!(matches!(refused, Err(ExportError::Unsupported(_))), "{refused:?}");
        w.deregister(owner, region);
    }
    false
}

fn add(w: &mut World, n: Node, remote: Remote, offset: u64) -> Token {
    w.op(n, |token| Operation::Atomic {
        token,
        remote,
        offset,
        op: AtomicOp::Sum,
        kind: AtomicType::U64,
        operand: 1u64.to_le_bytes()[..].into(),
        compare: smallvec![],
        fetch: false,
    })
}

fn denied(kind: &OpErrorKind) -> bool {
    matches!(kind, OpErrorKind::Denied { .. })
}

fn out_of_bounds(kind: &OpErrorKind) -> bool {
    matches!(kind, OpErrorKind::OutOfBounds { .. })
}

fn is_stale(kind: &OpErrorKind) -> bool {
    *kind == OpErrorKind::StaleKey
}

/// The same key, edited to say that it allows everything, and in how many bytes.
fn forged(key: &Key, len: u64) -> Key {
    let mut parts = key.parse().expect("a key that was exported");
    (parts.access, parts.len) = (Access::ALL, len);
    Key::compose(&parts).expect("as long as before")
}

/// A key to a part has at most the rights for which it was made, also if it is edited; for more
/// than the region has, none is made.
pub fn rights(w: &mut World) {
    let (a, b, _, _) = w.pair();
    if !has(w, b) {
        return;
    }
    let whole = memory(&[0xEE; 256]);
    let (region, _) = w.expose(b, &whole, Access::ALL);
    for access in [Access::NONE, Access::READ, Access::WRITE, Access::ATOMIC, Access::ALL] {
        whole.write(0, &[0xEE; 256]);
        let (_, key) = w.expose_part(b, region, 64..128, access);
        let parts = key.parse().expect("a key that was exported");
        assert_eq!((parts.access, parts.len), (access, 64));
        let honest = w.import(a, &key);
        assert_eq!(honest.len, 64);
        let edited = w.import(a, &forged(&key, 64));
        for remote in [honest, edited] {
            let put = w.put(a, remote, 8, &memory(&[1; 8]));
            let got = room(8);
            let get = w.get(a, remote, 16, &got);
            let sum = add(w, a, remote, 24);
            let map = w.op(a, |token| Operation::Map { token, remote });
            match access.allows(Access::WRITE) {
                true => _ = w.ok(a, put),
                false => w.fails(a, put, denied),
            }
            match access.allows(Access::READ) {
                true => _ = w.ok(a, get),
                false => w.fails(a, get, denied),
            }
            let shown = if access.allows(Access::READ) { 0xEE } else { 0 };
            assert_eq!(got.to_vec(), [shown; 8], "read with {access:?}");
            if w.has(a, |c| c.atomics) {
                match access.allows(Access::ATOMIC) {
                    true => _ = w.ok(a, sum),
                    false => w.fails(a, sum, denied),
                }
            } else {
                w.failure(a, sum);
            }
            match w.result(a, map) {
                Ok(Done::Mapped(view)) => {
                    assert!(access.allows(Access::READ), "mapped with {access:?}");
                    assert_eq!(view.to_vec(), whole.to_vec()[64..128], "the part, and no more");
                }
                Ok(done) => w.fail(&format!("a map ended as {done:?}")),
                Err(error) => {
                    let none = matches!(error.kind, OpErrorKind::Unsupported(_));
                    assert!(none || !access.allows(Access::READ) && denied(&error.kind), "{error}");
                }
            }
        }
        let mut expected = [0xEE; 256];
        if access.allows(Access::WRITE) {
            expected[72..80].fill(1);
        }
        if access.allows(Access::ATOMIC) && w.has(a, |c| c.atomics) {
            let sum = u64::from_le_bytes([0xEE; 8]) + 2;
            expected[88..96].copy_from_slice(&sum.to_le_bytes());
        }
        assert_eq!(whole.to_vec(), expected, "with {access:?}");
    }
    // More than the region has.
    let (narrow, _) = w.expose(b, &memory(&[0; 64]), Access::READ);
    for wanted in [Access::WRITE, Access::ATOMIC, Access::ALL] {
        let refused = w[b].endpoint().export_part(narrow, 0..64, wanted);
        let allowed = Access::READ;
        assert_eq!(refused, Err(ExportError::Denied { allowed, wanted }));
    }
    let (_, key) = w.expose_part(b, narrow, 0..64, Access::READ);
    let remote = w.import(a, &key);
    let get = w.get(a, remote, 0, &room(64));
    w.ok(a, get);
}

/// A key to a part reaches that and no byte beside it, at either end, also if it is edited.
pub fn ranges(w: &mut World) {
    const LEN: u64 = 10_000;
    let (a, b, _, _) = w.pair();
    if !has(w, b) {
        return;
    }
    let whole = memory(&[0xEE; LEN as usize]);
    let (region, _) = w.expose(b, &whole, Access::ALL);
    for range in [0..LEN, 0..100, 3000..3001, 5000..5000, 5003..9000, LEN - 100..LEN, LEN..LEN] {
        whole.write(0, &[0xEE; LEN as usize]);
        let (id, key) = w.expose_part(b, region, range.clone(), Access::ALL);
        let remote = w.import(a, &key);
        let len = range.end - range.start;
        assert_eq!(remote.len, len);
        let bytes = pattern(len as usize, 7);
        let put = w.put(a, remote, 0, &memory(&bytes));
        w.ok(a, put);
        let got = room(len as usize);
        let get = w.get(a, remote, 0, &got);
        w.ok(a, get);
        assert!(got.to_vec() == bytes, "{range:?}");
        let edited = w.import(a, &forged(&key, u64::MAX));
        for (remote, honest) in [(remote, true), (edited, false)] {
            let far = [u64::MAX, u64::MAX - 3, u64::MAX - range.start, 0u64.wrapping_sub(8)];
            for at in [len, len.saturating_sub(4) + 1].into_iter().chain(far) {
                let refused = |kind: &OpErrorKind| {
                    out_of_bounds(kind) || !honest && matches!(kind, OpErrorKind::TooLarge { .. })
                };
                let put = w.put(a, remote, at, &memory(&[9; 4]));
                w.fails(a, put, refused);
                let got = room(4);
                let get = w.get(a, remote, at, &got);
                w.fails(a, get, refused);
                assert_eq!(got.to_vec(), [0; 4]);
            }
        }
        let mut expected = vec![0xEE; LEN as usize];
        expected[range.start as usize..range.end as usize].copy_from_slice(&bytes);
        assert!(whole.to_vec() == expected, "bytes beside {range:?} were changed");
        let revoke = w.revoke(b, id);
        assert!(matches!(w.ok(b, revoke), Done::Revoked));
    }
    // What is no part of the region.
    let backwards = Range { start: 8, end: 4 };
    for range in [0..LEN + 1, LEN..LEN + 1, LEN + 1..LEN + 1, 1..u64::MAX, backwards] {
        let refused = w[b].endpoint().export_part(region, range.clone(), Access::READ);
        let error = ExportError::OutOfBounds { start: range.start, end: range.end, bound: LEN };
        assert_eq!(refused, Err(error));
    }
}

/// Puts under way by one key, as far as they went before `w` is told to do something else.
struct Stream {
    remote: Remote,
    puts: Vec<Token>,
}

impl Stream {
    fn begin(w: &mut World, n: Node, remote: Remote, from: &Slice) -> Stream {
        let puts = (0..3).map(|_| w.put(n, remote, 0, from)).collect();
        Stream { remote, puts }
    }
}

/// Of two keys to one region one is revoked in the middle of accesses: no byte changes by it after
/// the end, and the other key goes on.
pub fn one_of_two_revoked(w: &mut World) {
    const LEN: usize = 1 << 20;
    let (a, b, _, _) = w.pair();
    if !has(w, b) {
        return;
    }
    let whole = room(2 * LEN);
    let (region, whole_key) = w.expose(b, &whole, Access::ALL);
    let part = |n: usize| whole.part(n * LEN, LEN).expect("within");
    let range = |n: usize| (n * LEN) as u64..((n + 1) * LEN) as u64;
    let (_, other) = w.expose_part(b, region, range(1), Access::WRITE);
    let other = w.import(a, &other);
    for steps in 0..10 {
        let (id, key) = w.expose_part(b, region, range(0), Access::WRITE);
        let from = memory(&vec![1; LEN]);
        let remote = w.import(a, &key);
        let revoked = Stream::begin(w, a, remote, &from);
        let kept = Stream::begin(w, a, other, &memory(&pattern(LEN, steps)));
        for _ in 0..steps {
            w.step();
        }
        let revoke = w.revoke(b, id);
        w.ok(b, revoke);
        part(0).write(0, &vec![0xEE; LEN]);
        for put in revoked.puts {
            if let Err(error) = w.result(a, put) {
                assert_eq!(error.kind, OpErrorKind::StaleKey, "{error}");
            }
        }
        for put in kept.puts {
            w.ok(a, put);
        }
        assert!(part(1).to_vec() == pattern(LEN, steps), "the other key goes on");
        let late = w.put(a, revoked.remote, 0, &from);
        w.fails(a, late, is_stale);
        w.run_for(Duration::from_millis(2));
        let kept = all_are(&part(0).to_vec(), 0xEE);
        assert!(kept, "a put landed by a key that was revoked ({steps} steps)");
        w[a].endpoint().release(revoked.remote);
    }
    // The region's own key still reaches both.
    let remote = w.import(a, &whole_key);
    let bytes = pattern(2 * LEN, 99);
    let put = w.put(a, remote, 0, &memory(&bytes));
    w.ok(a, put);
    assert!(whole.to_vec() == bytes);
    // When the region ends, nothing holds its memory for the keys that are left.
    w.deregister(b, region);
    let late = w.put(a, other, 0, &memory(&[9; 9]));
    w.fails(a, late, is_stale);
    let under = whole.region().expect("not raw").clone();
    drop(whole);
    assert!(under.into_exclusive().is_ok(), "the memory is still held");
}

/// A key that was revoked stays so: it does not reach what later keys are for, and cannot be
/// revoked again.
pub fn revoked_for_good(w: &mut World) {
    let (a, b, _, _) = w.pair();
    if !has(w, b) {
        return;
    }
    let whole = memory(&[0xEE; 64]);
    let (region, _) = w.expose(b, &whole, Access::ALL);
    let mut revoked: Vec<(KeyId, Key, Remote)> = Vec::new();
    for round in 0..20u64 {
        let at = round % 4 * 16;
        let (id, key) = w.expose_part(b, region, at..at + 16, Access::ALL);
        assert!(revoked.iter().all(|(before, ..)| *before != id), "a number is used again");
        let remote = w.import(a, &key);
        let put = w.put(a, remote, 0, &memory(&[round as u8; 16]));
        w.ok(a, put);
        for (id, key, remote) in &revoked {
            let put = w.put(a, *remote, 0, &memory(&[0xDD; 16]));
            w.fails(a, put, is_stale);
            let get = w.get(a, *remote, 0, &room(16));
            w.fails(a, get, is_stale);
            if let Ok(again) = w[a].endpoint().import(key) {
                let put = w.put(a, again, 0, &memory(&[0xDD; 16]));
                w.fails(a, put, is_stale);
                w[a].endpoint().release(again);
            }
            let again = w.revoke(b, *id);
            w.fails(b, again, |kind| *kind == OpErrorKind::UnknownRegion);
        }
        let revoke = w.revoke(b, id);
        assert!(matches!(w.ok(b, revoke), Done::Revoked));
        revoked.push((id, key, remote));
    }
    let expected: Vec<u8> = [16, 17, 18, 19].into_iter().flat_map(|byte| [byte; 16]).collect();
    assert_eq!(whole.to_vec(), expected);
    for unknown in [(4_000_000, 9), (u32::MAX, 0), (1 << 31, u32::MAX)] {
        let key = KeyId { index: unknown.0, generation: unknown.1 };
        let revoke = w.revoke(b, key);
        w.fails(b, revoke, |kind| *kind == OpErrorKind::UnknownRegion);
    }
    // Regions and keys have numbers of their own: neither ends the other.
    let (id, key) = w.expose_part(b, region, 0..64, Access::ALL);
    let alias = RegionId { index: id.index, generation: id.generation };
    if alias != region {
        let patience = Operation::PATIENCE;
        let close = w.op(b, |token| Operation::Deregister { token, region: alias, patience });
        w.fails(b, close, |kind| *kind == OpErrorKind::UnknownRegion);
        assert!(w[b].endpoint().export(alias).is_err());
    }
    let alias = KeyId { index: region.index, generation: region.generation };
    if alias != id {
        let revoke = w.revoke(b, alias);
        w.fails(b, revoke, |kind| *kind == OpErrorKind::UnknownRegion);
    }
    let remote = w.import(a, &key);
    let put = w.put(a, remote, 0, &memory(&[5; 64]));
    w.ok(a, put);
}

/// Deregistering a region ends the keys to its parts, and those of no other region.
pub fn end_with_their_region(w: &mut World) {
    let (a, b, _, _) = w.pair();
    if !has(w, b) {
        return;
    }
    let (first, second) = (memory(&[0xEE; 64]), memory(&[0xEE; 64]));
    let (region, _) = w.expose(b, &first, Access::ALL);
    let (other, _) = w.expose(b, &second, Access::ALL);
    let keys: Vec<_> =
        (0..4).map(|n| w.expose_part(b, region, n * 16..n * 16 + 16, Access::WRITE)).collect();
    let (kept_id, kept) = w.expose_part(b, other, 16..32, Access::WRITE);
    let kept = w.import(a, &kept);
    let remotes: Vec<_> = keys.iter().map(|(_, key)| w.import(a, key)).collect();
    // One of them was revoked before.
    let revoke = w.revoke(b, keys[1].0);
    w.ok(b, revoke);
    w.deregister(b, region);
    for remote in remotes {
        let put = w.put(a, remote, 0, &memory(&[1; 16]));
        w.fails(a, put, is_stale);
    }
    for (id, _) in &keys {
        let revoke = w.revoke(b, *id);
        w.fails(b, revoke, |kind| *kind == OpErrorKind::UnknownRegion);
    }
    assert_eq!(first.to_vec(), [0xEE; 64]);
    let refused = w[b].endpoint().export_part(region, 0..16, Access::READ);
    assert_eq!(refused, Err(ExportError::UnknownRegion));
    let never = RegionId { index: 4_000_000, generation: 9 };
    let refused = w[b].endpoint().export_part(never, 0..0, Access::NONE);
    assert_eq!(refused, Err(ExportError::UnknownRegion));
    let put = w.put(a, kept, 0, &memory(&[2; 16]));
    w.ok(a, put);
    assert_eq!(second.to_vec()[16..32], [2; 16]);
    // Both at once: the region, and a key to a part of it.
    let patience = Operation::PATIENCE;
    let close = w.op(b, |token| Operation::Deregister { token, region: other, patience });
    let revoke = w.revoke(b, kept_id);
    w.ok(b, close);
    if let Err(error) = w.result(b, revoke) {
        assert_eq!(error.kind, OpErrorKind::UnknownRegion, "{error}");
    }
    let put = w.put(a, kept, 0, &memory(&[3; 16]));
    w.fails(a, put, is_stale);
    assert_eq!(second.to_vec()[16..32], [2; 16]);
}

/// A put with event by a key to a part is reported in terms of the region.
pub fn puts_with_event(w: &mut World) {
    const LEN: usize = 300_000;
    let (a, b, _, ba) = w.pair();
    if !has(w, b) || !w.has(a, |c| c.put_with_event) {
        return;
    }
    let whole = room(LEN);
    let (region, _) = w.expose(b, &whole, Access::WRITE);
    let range = 1000..LEN as u64 - 1000;
    let (_, key) = w.expose_part(b, region, range.clone(), Access::WRITE);
    let remote = w.import(a, &key);
    for (round, len) in [0usize, 1, 100, 70_000, LEN - 2000].into_iter().enumerate() {
        let bytes = pattern(len, round as u8);
        let (local, data) = (memory(&bytes), u64::MAX - round as u64);
        let at = remote.len - len as u64;
        let put = w.op(a, |token| Operation::Put {
            token,
            remote,
            local: smallvec![local],
            spans: smallvec![RemoteSpan { offset: at, len: len as u64 }],
            level: Level::Visible,
            event: Some(data),
        });
        w.until("the put arrives", |w| !w[b].arrivals.is_empty());
        let arrival = w[b].arrivals.pop_front().expect("just seen");
        let offset = range.start + at;
        assert_eq!(arrival, (ba, region, offset, len as u64, data));
        assert!(whole.part(offset as usize, len).expect("within").to_vec() == bytes);
        w.ok(a, put);
    }
}

/// Opens memory under a number.
fn number(w: &mut World, n: Node, region: RegionId, range: Range<u64>, number: u64) -> KeyId {
    let access = Access::READ.with(Access::WRITE);
    let made = w[n].endpoint().export_number(region, range, access, number);
    made.unwrap_or_else(|error| w.fail(&format!("nothing was opened under a number: {error}")))
}

/// Imports what a peer has opened under a number.
fn import(w: &mut World, n: Node, peer: Peer, number: u64, len: u64) -> Remote {
    let imported = w[n].endpoint().import_number(peer, number, len);
    let remote =
        imported.unwrap_or_else(|error| w.fail(&format!("a number was not imported: {error}")));
    assert_eq!((remote.peer, remote.len), (peer, len));
    remote
}

/// Memory is reached by a number that both sides know, within its range and rights, as long as it
/// is open under that number.
pub fn by_number(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !has(w, b) {
        return;
    }
    let whole = memory(&[0xEE; 256]);
    let (region, _) = w.expose(b, &whole, Access::ALL);
    let numbers = [0, 7, u64::MAX, 1 << 63];
    let ids: Vec<_> = (0u64..)
        .zip(numbers)
        .map(|(n, wanted)| number(w, b, region, n * 64..n * 64 + 64, wanted))
        .collect();
    let remotes = numbers.map(|wanted| import(w, a, ab, wanted, 64));
    for (n, remote) in remotes.into_iter().enumerate() {
        let put = w.put(a, remote, 8, &memory(&[n as u8; 8]));
        w.ok(a, put);
        let got = room(16);
        let get = w.get(a, remote, 0, &got);
        w.ok(a, get);
        assert_eq!(got.to_vec()[..8], [0xEE; 8]);
        assert_eq!(got.to_vec()[8..], [n as u8; 8]);
        assert_eq!(whole.to_vec()[n * 64 + 8..n * 64 + 16], [n as u8; 8]);
        if w.has(a, |c| c.atomics) {
            let sum = add(w, a, remote, 24);
            w.fails(a, sum, |kind| {
                let needed = Access::ATOMIC;
                matches!(kind, OpErrorKind::Denied { allowed, needed: n }
                    if *n == needed && !allowed.allows(needed))
            });
        }
    }
    let now = whole.to_vec();
    // A length that is not what was opened; a number under which nothing is.
    let longer = import(w, a, ab, 7, 1 << 40);
    for at in [64, 60, (1 << 40) - 8] {
        let put = w.put(a, longer, at, &memory(&[9; 8]));
        w.fails(a, put, out_of_bounds);
    }
    for wrong in [1, 6, u64::MAX - 1] {
        let remote = import(w, a, ab, wrong, 64);
        let put = w.put(a, remote, 0, &memory(&[9; 8]));
        w.fails(a, put, is_stale);
        let get = w.get(a, remote, 0, &room(8));
        w.fails(a, get, is_stale);
        w[a].endpoint().release(remote);
    }
    // What cannot be opened.
    let refused = w[b].endpoint().export_number(region, 0..8, Access::READ, 7);
    assert_eq!(refused, Err(ExportError::Taken { number: 7 }));
    let refused = w[b].endpoint().export_number(region, 0..257, Access::READ, 8);
    assert_eq!(refused, Err(ExportError::OutOfBounds { start: 0, end: 257, bound: 256 }));
    let (narrow, _) = w.expose(b, &memory(&[0; 64]), Access::READ);
    let refused = w[b].endpoint().export_number(narrow, 0..64, Access::WRITE, 8);
    let (allowed, wanted) = (Access::READ, Access::WRITE);
    assert_eq!(refused, Err(ExportError::Denied { allowed, wanted }));
    let stale = Peer { generation: ab.generation.wrapping_add(9), ..ab };
    let refused = w[a].endpoint().import_number(stale, 7, 64);
    assert!(matches!(refused, Err(ImportError::UnknownPeer)), "{refused:?}");
    // The end of one of them, and of all with their region.
    let revoke = w.revoke(b, ids[1]);
    assert!(matches!(w.ok(b, revoke), Done::Revoked));
    let put = w.put(a, remotes[1], 0, &memory(&[9; 8]));
    w.fails(a, put, is_stale);
    assert_eq!(whole.to_vec(), now);
    let put = w.put(a, remotes[2], 0, &memory(&[5; 8]));
    w.ok(a, put);
    w.deregister(b, region);
    let put = w.put(a, remotes[0], 0, &memory(&[9; 8]));
    w.fails(a, put, is_stale);
    // The numbers are free again; one names what is open under it now.
    let (another, _) = w.expose(b, &room(64), Access::ALL);
    number(w, b, another, 0..64, 0);
    let put = w.put(a, remotes[0], 0, &memory(&[6; 8]));
    w.ok(a, put);
}

/// When the owner has started again at its address, handles of its earlier life fail, and its
/// numbers are not those of before.
pub fn numbers_of_an_earlier_life(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !has(w, b) {
        return;
    }
    let address = w.address(b);
    let (region, _) = w.expose(b, &room(64), Access::ALL);
    number(w, b, region, 0..64, 77);
    let before = import(w, a, ab, 77, 64);
    let put = w.put(a, before, 0, &memory(&[1; 64]));
    w.ok(a, put);
    w.kill(b);
    let c = w.open_at(&address);
    w.until("the owner is lost", |w| w[a].lost.iter().any(|(lost, _)| *lost == ab));
    let (ac, _) = w.join(a, c);
    let target = memory(&[0xEE; 64]);
    let (region, _) = w.expose(c, &target, Access::ALL);
    let now = import(w, a, ac, 77, 64);
    for (remote, lost) in [(before, true), (now, false)] {
        let put = w.put(a, remote, 0, &memory(&[2; 64]));
        w.fails(a, put, |kind| match kind {
            OpErrorKind::PeerLost(_) => lost,
            kind => is_stale(kind),
        });
    }
    number(w, c, region, 0..64, 77);
    let put = w.put(a, before, 0, &memory(&[3; 64]));
    w.failure(a, put);
    assert_eq!(target.to_vec(), [0xEE; 64]);
    let put = w.put(a, now, 0, &memory(&[4; 64]));
    w.ok(a, put);
    assert_eq!(target.to_vec(), [4; 64]);
}

/// So many keys to parts are made as the limit says; one that is revoked makes room for another,
/// and regions and their own keys are not counted.
pub fn no_more_than_the_limit(w: &mut World) {
    let (a, b, _, _) = w.pair();
    if !has(w, b) {
        return;
    }
    assert_ne!(w.capabilities(b).part_keys, Support::None);
    let limit = w.capabilities(b).limits.max_keys;
    let whole = memory(&[0xEE; 64]);
    let (region, _) = w.expose(b, &whole, Access::ALL);
    let mut first = None;
    for _ in 0..limit {
        let (id, _) = w.expose_part(b, region, 8..16, Access::READ);
        first.get_or_insert(id);
    }
    for _ in 0..3 {
        let refused = w[b].endpoint().export_part(region, 0..8, Access::READ);
        assert_eq!(refused, Err(ExportError::TooMany { limit }));
    }
    let (another, _) = w.expose(b, &room(8), Access::READ);
    let first = first.expect("a limit that is not zero");
    let revoke = w.revoke(b, first);
    w.ok(b, revoke);
    let (_, key) = w.expose_part(b, another, 0..8, Access::READ);
    let refused = w[b].endpoint().export_part(another, 0..8, Access::READ);
    assert_eq!(refused, Err(ExportError::TooMany { limit }));
    let refused = w[b].endpoint().export_number(another, 0..8, Access::READ, 1);
    assert_eq!(refused, Err(ExportError::TooMany { limit }));
    let remote = w.import(a, &key);
    let get = w.get(a, remote, 0, &room(8));
    w.ok(a, get);
    // All of them end with the region.
    w.deregister(b, region);
    let (_, key) = w.expose_part(b, another, 4..8, Access::READ);
    let remote = w.import(a, &key);
    let get = w.get(a, remote, 0, &room(4));
    w.ok(a, get);
}

//! Keys: what they allow, to which peers, and when they end.

use crate::{
    Random,
    world::{World, all_are, memory, pattern, room},
};
use petasos_fabric::{Access, Enforcement, Key, OpErrorKind};
use std::time::Duration;

/// A key allows what it was made for, even if it is edited.
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
        for (key, honest) in
            [(key, true), (Key::compose(&forged).expect("as long as before"), false)]
        {
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

/// What was submitted with a handle finishes when the handle is released, also what waits for the
/// connection, or for room.
pub fn released_while_used(w: &mut World) {
    let (a, b) = (w.open(), w.open());
    if !w.has(a, |c| c.remote_access) {
        return;
    }
    let bytes = pattern(3000, 5);
    let target = room(2 * bytes.len());
    let (_, key) = w.expose(b, &target.part(0, bytes.len()).expect("within"), Access::ALL);
    for round in 0..2 {
        // In the first round the import connects.
        let remote = w.import(a, &key);
        let puts: Vec<_> = (0..40).map(|_| w.put(a, remote, 0, &memory(&bytes))).collect();
        let into = room(bytes.len());
        let get = w.get(a, remote, 0, &into);
        w.until("all are accepted", |w| w.accepted(a));
        w[a].endpoint().release(remote);
        for token in puts.into_iter().chain([get]) {
            w.ok(a, token);
        }
        assert!(all_are(&into.to_vec(), 0) || into.to_vec() == bytes, "round {round}");
        let late = w.get(a, remote, 0, &into);
        w.fails(a, late, |kind| *kind == OpErrorKind::UnknownRegion);
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
            // Not the owner's name: connecting to an address that does not exist takes time.
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
            all_are(&target.to_vec(), 0xEE),
            "a put landed after the region was closed ({steps} steps)"
        );
        let region = target.region().expect("not raw").clone();
        drop((target, from));
        assert!(region.into_exclusive().is_ok(), "the memory is still held");
    }
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

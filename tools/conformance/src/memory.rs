//! Memory of endpoints: allocated, registered, mapped, and one's own again.

use crate::world::{World, memory, pattern, room};
use petasos_fabric::{
    Access, Done, OpErrorKind, Operation, Region, RegionId, RegisterError, Support,
};

/// What an endpoint allocates is zeroed, of the wanted length, and like other memory.
pub fn allocated(w: &mut World) {
    let (a, b, _, _) = w.pair();
    assert!(w[a].endpoint().alloc(0).is_err());
    assert!(w[a].endpoint().alloc(usize::MAX).is_err());
    for len in [1, 4096, 100_001] {
        let region = w[a].endpoint().alloc(len).expect("memory");
        assert_eq!(region.len(), len);
        assert!(region.to_vec().iter().all(|b| *b == 0), "not zeroed");
        if !w.has(a, |c| c.remote_access) {
            continue;
        }
        let (id, key) = w.expose(a, &region.whole(), Access::ALL);
        let remote = w.import(b, &key);
        let put = w.put(b, remote, 0, &memory(&pattern(len, 3)));
        w.ok(b, put);
        assert!(region.to_vec() == pattern(len, 3));
        w.deregister(a, id);
    }
}

/// A peer's memory is read in place, where that is supported; elsewhere it says so.
pub fn mapped(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !w.has(a, |c| c.remote_access) {
        return;
    }
    let region = w[b].endpoint().alloc(10_000).expect("memory");
    region.write(0, &pattern(10_000, 1));
    let (_, key) = w.expose(b, &region.whole(), Access::READ);
    let remote = w.import(a, &key);
    let token = w.op(a, |token| Operation::Map { token, remote });
    if w.capabilities_of(a, ab).map == Support::None {
        return w.fails(a, token, |kind| matches!(kind, OpErrorKind::Unsupported(_)));
    }
    let Done::Mapped(view) = w.ok(a, token) else { w.fail("a map that maps nothing") };
    assert!(view.to_vec() == pattern(10_000, 1));
    region.write(5000, b"changed by the owner");
    w.settle();
    assert_eq!(view.to_vec()[5000..5020], *b"changed by the owner");
    // Not with a key that does not allow reading.
    let (_, key) = w.expose(b, &region.whole(), Access::WRITE);
    let remote = w.import(a, &key);
    let token = w.op(a, |token| Operation::Map { token, remote });
    w.fails(a, token, |kind| matches!(kind, OpErrorKind::Denied { .. }));
    // What was mapped stays readable when its owner has ended.
    w.kill(b);
    assert!(view.to_vec()[..5000] == pattern(10_000, 1)[..5000]);
}

/// Handles of regions that were closed, or never were, are refused.
pub fn unknown_regions(w: &mut World) {
    let a = w.open();
    let (region, _) = w.expose(a, &room(64), Access::ALL);
    w.deregister(a, region);
    let again =
        w.op(a, |token| Operation::Deregister { token, region, patience: Operation::PATIENCE });
    w.fails(a, again, |kind| *kind == OpErrorKind::UnknownRegion);
    assert!(w[a].endpoint().export(region).is_err());
    let region = RegionId { index: 4_000_000, generation: 9 };
    let never =
        w.op(a, |token| Operation::Deregister { token, region, patience: Operation::PATIENCE });
    w.fails(a, never, |kind| *kind == OpErrorKind::UnknownRegion);
    assert!(w[a].endpoint().export(region).is_err());
}

/// Memory that may only be read is not registered for writing, and not written to.
pub fn read_only(w: &mut World) {
    let (a, b, _, _) = w.pair();
    let bytes = pattern(64, 1);
    let view = Region::view(&memory(&bytes)).expect("not raw").whole();
    for access in [Access::WRITE, Access::ATOMIC] {
        let refused = w[a].endpoint().register(&view, access);
        assert!(matches!(refused, Err(RegisterError::ReadOnly)), "{refused:?}");
    }
    if !w.has(a, |c| c.remote_access) {
        return;
    }
    let (_, key) = w.expose(a, &view, Access::READ);
    let remote = w.import(b, &key);
    let into = room(64);
    let get = w.get(b, remote, 0, &into);
    w.ok(b, get);
    assert_eq!(into.to_vec(), bytes);
    let get = w.get(b, remote, 0, &view);
    w.failure(b, get);
    let post = w.post(b, None, 0, 0, &view);
    w.failure(b, post);
    assert_eq!(view.to_vec(), bytes);
}

/// After all operations and registrations have ended nothing holds the memory.
pub fn exclusive_again(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    let region = Region::from_vec(pattern(200_000, 2));
    let whole = region.whole();
    if w.has(a, |c| c.remote_access) {
        let target = room(200_000);
        let (id, key) = w.expose(b, &target, Access::ALL);
        let remote = w.import(a, &key);
        let (put, get) = (w.put(a, remote, 0, &whole), w.get(a, remote, 0, &whole));
        w.ok(a, put);
        w.ok(a, get);
        w.deregister(b, id);
        let (id, _) = w.expose(a, &whole, Access::ALL);
        w.deregister(a, id);
        let under = target.region().expect("not raw").clone();
        drop(target);
        assert!(under.into_exclusive().is_ok(), "the target is still held");
    }
    if w.has(a, |c| c.tagged) {
        let post = w.post(a, None, 1, 0, &whole);
        w.cancel(a, post);
        let _ = w.result(a, post);
    }
    let body = whole.clone();
    let sent =
        w.op(a, |token| Operation::SendLong { token, peer: ab, header: bytes::Bytes::new(), body });
    let (_, _, body, _) = w.long(b);
    let token = w.op(b, |token| Operation::Discard { token, body });
    w.ok(b, token);
    w.ok(a, sent);
    drop(whole);
    assert!(region.into_exclusive().is_ok(), "the memory is still held");
}

//! Memory of a device, which the processor cannot touch, with each operation.
//!
//! The device is simulated: where its memory lies nothing can be read or written, so that a process
//! that does ends by a signal, and its engine counts what it copies.

use crate::{
    foreign::{Copied, Device},
    world::{Node, World, memory, pattern, room},
};
use bytes::Bytes;
use petasos_fabric::{
    Access, Level, OpErrorKind, Operation, Payload, Peer, Region, RegisterError, RemoteSpan, Slice,
};
use smallvec::smallvec;
use std::{sync::Arc, time::Duration};

/// Longer than what goes in a packet, and than a library is given at once.
const LENGTHS: [usize; 5] = [0, 9, 4000, 40_000, 1_200_000];
const LEVELS: [Level; 3] = [Level::Reusable, Level::Delivered, Level::Visible];

/// Memory of a device with these bytes, and what its engine copies from now on.
fn device(bytes: &[u8]) -> (Slice, Arc<Copied>) {
    let (device, copied) = Device::new(bytes);
    (Region::of_device(Box::new(device)).whole(), copied)
}

/// Its content, which must be these bytes, and was copied there by the engine alone: into memory
/// of zeroes, where an endpoint of another process brings only what has changed.
fn check((memory, copied): &(Slice, Arc<Copied>), bytes: &[u8], what: &str) {
    let in_all = copied.written();
    let least = bytes.iter().filter(|byte| **byte != 0).count() as u64;
    assert!(in_all >= least, "{what}: the engine copied {in_all} bytes");
    assert!(memory.to_vec() == bytes, "{what}: {} bytes", bytes.len());
}

/// Each operation works with memory of a device, by copies of its engine.
pub fn every_operation(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    let address = w.address(a);
    let own = w.resolve(a, &address);
    w.until("it knows itself", |w| w.known(a, a) == Some(own));
    for (round, len) in LENGTHS.into_iter().enumerate() {
        for (to, peer) in [(b, ab), (a, own)] {
            w.remark(&format!("{len} bytes from {a} to {to}"));
            let bytes = pattern(len, round as u8);
            messages(w, (a, to), peer, &bytes);
            tagged(w, (a, to), peer, &bytes);
            if w.has(a, |c| c.remote_access) && len > 0 {
                remote_access(w, (a, to), &bytes);
            }
        }
    }
}

fn messages(w: &mut World, (a, b): (Node, Node), peer: Peer, bytes: &[u8]) {
    for level in LEVELS {
        if bytes.len() > w.capabilities(a).limits.max_message {
            break;
        }
        let (from, copied) = device(bytes);
        let payload = Payload::Memory(from);
        let sent = w.op(a, |token| Operation::Send { token, peer, payload, level });
        assert!(w.message(b).1 == bytes, "{level:?}: a message of {} bytes", bytes.len());
        w.ok(a, sent);
        assert!(copied.read() >= bytes.len() as u64);
    }
    let (header, (body, copied)) = (Bytes::from_static(b"header"), device(bytes));
    let sent = w.op(a, |token| Operation::SendLong { token, peer, header, body });
    let (_, _, body, _) = w.long(b);
    let target = device(&vec![0; bytes.len()]);
    let into = target.0.clone();
    let received = w.op(b, |token| Operation::Receive { token, body, into });
    w.ok(b, received);
    w.ok(a, sent);
    check(&target, bytes, "a long message");
    assert!(copied.read() >= bytes.len() as u64);
}

fn tagged(w: &mut World, (a, b): (Node, Node), peer: Peer, bytes: &[u8]) {
    if !w.has(a, |c| c.tagged) {
        return;
    }
    for (level, tag) in LEVELS.into_iter().zip(0..) {
        let target = device(&vec![0; bytes.len()]);
        let first = (tag != 1).then(|| w.post(b, None, tag, 0, &target.0));
        let payload = Payload::Memory(device(bytes).0);
        let sent = w.op(a, |token| Operation::SendTagged { token, peer, tag, payload, level });
        let posted = first.unwrap_or_else(|| w.post(b, None, tag, 0, &target.0));
        w.ok(b, posted);
        w.ok(a, sent);
        check(&target, bytes, "an expected message");
    }
}

fn remote_access(w: &mut World, (a, b): (Node, Node), bytes: &[u8]) {
    let len = bytes.len();
    let target = device(&vec![0x11; 2 * len]);
    let (region, key) = w.expose(b, &target.0, Access::READ.with(Access::WRITE));
    let remote = w.import(a, &key);
    let there = RemoteSpan { offset: len as u64, len: len as u64 };
    for (level, event) in LEVELS.into_iter().flat_map(|level| [(level, None), (level, Some(7))]) {
        // From the device, and from memory of the host.
        for local in [device(bytes).0, memory(bytes)] {
            let (local, spans) = (smallvec![local], smallvec![there]);
            let put = |token| Operation::Put { token, remote, local, spans, level, event };
            let put = w.op(a, put);
            w.ok(a, put);
            if event.is_some() {
                w.until("the put arrives", |w| !w[b].arrivals.is_empty());
                w[b].arrivals.clear();
            }
        }
    }
    // In pieces: of the device, of the host, and of the device again.
    let parts = [device(&vec![0; len / 2]), device(&vec![0; len - len / 2 - len / 3])];
    let middle = room(len / 3);
    let local = smallvec![parts[0].0.clone(), middle.clone(), parts[1].0.clone()];
    let get = |token| Operation::Get { token, remote, local, spans: smallvec![there] };
    let get = w.op(a, get);
    w.ok(a, get);
    let (one, rest) = bytes.split_at(len / 2);
    let (two, three) = rest.split_at(len / 3);
    check(&parts[0], one, "a get");
    check(&parts[1], three, "a get");
    assert!(middle.to_vec() == two);
    // What the owner, or the device, writes is what is got.
    target.0.write(0, &[0x22; 4]);
    let into = room(4);
    let get = w.get(a, remote, 0, &into);
    w.ok(a, get);
    assert_eq!(into.to_vec(), [0x22; 4]);
    let beyond = w.put(a, remote, 2 * len as u64 - 1, &memory(&[1; 2]));
    w.fails(a, beyond, |kind| matches!(kind, OpErrorKind::OutOfBounds { .. }));
    w.deregister(b, region);
    w[a].endpoint().release(remote);
    let whole = target.0.to_vec();
    assert!(whole[..len.min(4)] == [0x22; 4][..len.min(4)] || len < 4);
    assert!(whole[len.max(4)..] == bytes[len.max(4) - len..], "what was put");
}

/// What does not work with memory of a device is refused, and nothing has happened.
pub fn refused(w: &mut World) {
    let (a, b, _, _) = w.pair();
    let (memory, copied) = device(&[7; 64]);
    for access in [Access::ATOMIC, Access::ALL] {
        let registered = w[b].endpoint().register(&memory, access);
        assert!(matches!(registered, Err(RegisterError::DeviceAtomics)), "{registered:?}");
    }
    if !w.has(a, |c| c.remote_access) {
        return;
    }
    let (region, key) = w.expose(b, &memory, Access::READ);
    let remote = w.import(a, &key);
    let map = w.op(a, |token| Operation::Map { token, remote });
    w.fails(a, map, |kind| matches!(kind, OpErrorKind::Unsupported(_)));
    let put = w.put(a, remote, 0, &crate::world::memory(&[1; 8]));
    w.fails(a, put, |kind| matches!(kind, OpErrorKind::Denied { .. }));
    w.deregister(b, region);
    assert_eq!(copied.written(), 0);
    assert_eq!(memory.to_vec(), [7; 64]);
}

/// Memory of a device is left alone once an operation with it has ended, and nothing holds it.
pub fn left_when_a_peer_is_lost(w: &mut World) {
    const LEN: usize = 3 << 20;
    for steps in [0, 1, 4] {
        let (a, b, ab, _) = w.pair();
        let (into, copied) = device(&vec![0; LEN]);
        let (from, _) = device(&vec![1; LEN]);
        let mut tokens = Vec::new();
        if w.has(a, |c| c.remote_access) {
            let (_, key) = w.expose(b, &room(LEN), Access::ALL);
            let remote = w.import(a, &key);
            tokens.extend([w.get(a, remote, 0, &into), w.put(a, remote, 0, &from)]);
        }
        let (header, body) = (Bytes::new(), from.clone());
        tokens.push(w.op(a, |token| Operation::SendLong { token, peer: ab, header, body }));
        (0..steps).for_each(|_| _ = w.step());
        w.kill(b);
        for token in tokens {
            let _ = w.result(a, token);
        }
        let before = copied.written();
        w.run_for(Duration::from_millis(10));
        assert_eq!(copied.written(), before, "it was written after the end");
        for memory in [into, from] {
            let region = memory.region().expect("of a region").clone();
            drop(memory);
            assert!(region.is_unique(), "the endpoint still holds it");
        }
        w.kill(a);
    }
}

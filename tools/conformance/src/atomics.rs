//! Atomic operations on remote memory, against the same operations done here.

use crate::{
    Random,
    world::{Node, World, room},
};
use petasos_fabric::{
    Access, AtomicOp, AtomicType, Done, OpErrorKind, Operation, Remote, Slice, Token,
};

fn submit(
    w: &mut World,
    n: Node,
    remote: Remote,
    offset: u64,
    (op, kind): (AtomicOp, AtomicType),
    (operand, compare): (&[u8], &[u8]),
    fetch: bool,
) -> Token {
    let (operand, compare) = (operand.into(), compare.into());
    w.op(n, |token| Operation::Atomic { token, remote, offset, op, kind, operand, compare, fetch })
}

fn fetched(w: &mut World, n: Node, token: Token) -> Vec<u8> {
    match w.ok(n, token) {
        Done::Fetched(old) => old.to_vec(),
        other => w.fail(&format!("an atomic that fetches gave {other:?}")),
    }
}

/// A region of `n` for others, at `from`.
fn expose(w: &mut World, n: Node, from: Node, memory: &Slice) -> Remote {
    let (_, key) = w.expose(n, memory, Access::ATOMIC);
    w.import(from, &key)
}

/// Every operation on every type does what it does on local memory.
pub fn every_operation(w: &mut World) {
    let (a, b, _, _) = w.pair();
    if !w.has(a, |c| c.atomics) {
        return;
    }
    let (target, model) = (room(256), room(256));
    let mut random = Random::new(3);
    let start = random.bytes(256);
    target.write(0, &start);
    model.write(0, &start);
    let remote = expose(w, b, a, &target);
    let most = w.capabilities(a).limits.max_atomic;
    for round in 0..2 {
        for op in (0..).map_while(AtomicOp::from_u8) {
            for kind in (0..).map_while(AtomicType::from_u8) {
                let size = kind.size();
                let count = (1 + random.below(4)).min(most / size).max(1);
                let offset = random.below(16) * 8;
                let operand = random.bytes(size * count);
                let compare = if op == AtomicOp::CompareSwap {
                    let mut compare = vec![0; size * count];
                    model.read(offset, &mut compare);
                    // The last one differs, half of the time.
                    compare[size * count - 1] ^= (random.draw() & 1) as u8;
                    compare
                } else {
                    Vec::new()
                };
                let fetch = round == 0 || op == AtomicOp::Read;
                let token =
                    submit(w, a, remote, offset as u64, (op, kind), (&operand, &compare), fetch);
                match model.atomic(offset, op, kind, &operand, &compare) {
                    Ok(old) if fetch => {
                        assert_eq!(fetched(w, a, token), old[..], "{op:?} {kind:?}")
                    }
                    Ok(_) => assert!(matches!(w.ok(a, token), Done::Atomic)),
                    Err(_) => {
                        w.fails(a, token, |kind| matches!(kind, OpErrorKind::Unsupported(_)));
                    }
                }
                assert_eq!(target.to_vec(), model.to_vec(), "{op:?} on {kind:?}");
            }
        }
    }
}

/// Bounds, alignment, size and rights.
pub fn what_is_refused(w: &mut World) {
    let (a, b, _, _) = w.pair();
    if !w.has(a, |c| c.atomics) {
        return;
    }
    let target = room(64);
    let remote = expose(w, b, a, &target);
    let most = w.capabilities(a).limits.max_atomic;
    let sum = (AtomicOp::Sum, AtomicType::U64);
    let try_at = |w: &mut World, remote, offset, len: usize| {
        let operand = vec![1; len];
        submit(w, a, remote, offset, sum, (&operand, &[]), true)
    };
    let token = try_at(w, remote, 4, 8);
    w.fails(a, token, |kind| matches!(kind, OpErrorKind::Misaligned { .. }));
    for offset in [64, 1 << 40, u64::MAX - 7] {
        let token = try_at(w, remote, offset, 8);
        w.fails(a, token, |kind| matches!(kind, OpErrorKind::OutOfBounds { .. }));
    }
    let token = try_at(w, remote, 0, most.next_multiple_of(8) + 8);
    w.fails(a, token, |kind| matches!(kind, OpErrorKind::TooLarge { .. }));
    for len in [0, 7] {
        let token = try_at(w, remote, 0, len);
        w.failure(a, token);
    }
    let (_, key) = w.expose(b, &target, Access::READ.with(Access::WRITE));
    let remote = w.import(a, &key);
    let token = try_at(w, remote, 0, 8);
    w.fails(a, token, |kind| matches!(kind, OpErrorKind::Denied { .. }));
    assert_eq!(target.to_vec(), [0; 64]);
}

/// Sums from several endpoints at once lose nothing; each sees a different old value.
pub fn several_at_once(w: &mut World) {
    let owner = w.open();
    if !w.has(owner, |c| c.atomics) {
        return;
    }
    let target = room(64);
    let (_, key) = w.expose(owner, &target, Access::ALL);
    let mut nodes = vec![owner];
    nodes.extend((0..3).map(|_| w.open()));
    let remotes: Vec<_> = nodes.iter().map(|n| w.import(*n, &key)).collect();
    let mut tokens = Vec::new();
    for _ in 0..100 {
        for (n, remote) in nodes.iter().zip(&remotes) {
            let sum = (AtomicOp::Sum, AtomicType::U64);
            let token = submit(w, *n, *remote, 8, sum, (&1u64.to_le_bytes(), &[]), true);
            tokens.push((*n, token));
        }
        w.step();
    }
    let mut seen: Vec<u64> = tokens
        .into_iter()
        .map(|(n, token)| u64::from_le_bytes(fetched(w, n, token)[..].try_into().expect("eight")))
        .collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq(0..400), "a sum was lost or seen twice");
    let mut now = [0; 8];
    target.read(8, &mut now);
    assert_eq!(u64::from_le_bytes(now), 400);
}

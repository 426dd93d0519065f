//! Messages that the program holds: they stop no answer, and no other peer.

use crate::{
    actions::until_still,
    world::{Node, World, memory, pattern, room},
};
use petasos_fabric::{
    Access, AtomicOp, AtomicType, Done, Lease, Operation, Peer, Remote, Support, Token,
};
use smallvec::SmallVec;

/// A message that needs a lease of the pool, and its number.
fn numbered(number: u32, len: usize) -> Vec<u8> {
    let mut message = pattern(len, 3);
    message[..4].copy_from_slice(&number.to_le_bytes());
    message
}

fn number(message: &[u8]) -> u32 {
    u32::from_le_bytes(message[..4].try_into().expect("four bytes"))
}

/// The length of such a message; `None` where there is none that long.
fn length(w: &mut World, n: Node) -> Option<usize> {
    let most = w.capabilities(n).limits.max_message;
    (most > Lease::LINES).then(|| most.min(Lease::LINES + 200))
}

/// More messages than `b` has leases are on the way to it, and it keeps all that it gets. Returns
/// the tokens once no more comes in.
fn hoard(w: &mut World, a: Node, b: Node, ab: Peer, len: usize) -> Vec<Token> {
    let count = w.capabilities(b).limits.max_leases as u32 + 50;
    w[b].hoard.get_or_insert_default();
    let tokens = (0..count).map(|i| w.send(a, ab, &numbered(i, len))).collect();
    let held = move |w: &World| w[b].hoard.as_ref().map_or(0, Vec::len);
    w.until("a message comes", |w| held(w) > 0);
    until_still(w, held);
    let most = w.capabilities(b).limits.max_leases;
    assert!(held(w) <= most, "{} of {most} leases are out", held(w));
    tokens
}

/// All accesses there are, from `n` to the memory of `remote`: they complete.
fn access(w: &mut World, n: Node, remote: Remote, what: u8) {
    let bytes = pattern(20_000, what);
    let put = w.put(n, remote, 8, &memory(&bytes));
    w.ok(n, put);
    let back = room(20_000);
    let get = w.get(n, remote, 8, &back);
    w.ok(n, get);
    assert!(back.to_vec() == bytes, "not what was put");
    if w.has(n, |c| c.atomics) {
        let sum = w.op(n, |token| Operation::Atomic {
            token,
            remote,
            offset: 0,
            op: AtomicOp::Sum,
            kind: AtomicType::U64,
            operand: SmallVec::from_slice(&1u64.to_le_bytes()),
            compare: SmallVec::new(),
            fetch: true,
        });
        assert!(matches!(w.ok(n, sum), Done::Fetched(_)));
    }
}

/// Takes what was hoarded, and what follows, bit by bit: all of it comes, in order.
fn let_go(w: &mut World, b: Node, from: Peer, count: u32) {
    let mut seen = 0;
    for lease in w[b].hoard.take().unwrap_or_default() {
        assert_eq!(number(&lease), seen);
        seen += 1;
    }
    while seen < count {
        let (peer, message) = w.message(b);
        assert_eq!((peer, number(&message)), (from, seen));
        seen += 1;
    }
}

/// The target's program holds all leases that there are for a peer, whose further messages wait.
/// Everything else goes on between the two, in both directions: put, get, atomics, messages the
/// other way, long and expected ones. Then the messages come, in order, and none is lost.
pub fn held_leases_stop_nothing_else(w: &mut World) {
    let (a, b, ab, ba) = w.pair();
    let Some(len) = length(w, b) else { return };
    let remote = w.has(a, |c| c.remote_access).then(|| {
        let (theirs, ours) = (room(30_000), room(30_000));
        let (_, key_of_b) = w.expose(b, &theirs, Access::ALL);
        let (_, key_of_a) = w.expose(a, &ours, Access::ALL);
        (w.import(a, &key_of_b), w.import(b, &key_of_a))
    });
    let tokens = hoard(w, a, b, ab, len);
    for round in 0..3 {
        if let Some((of_b, of_a)) = remote {
            access(w, a, of_b, round);
            access(w, b, of_a, round + 10);
        }
        let back = w.send(b, ba, &numbered(round.into(), len));
        let (from, message) = w.message(a);
        assert!(from == ab && number(&message) == round.into());
        w.ok(b, back);
        if w.capabilities(b).tagged != Support::None {
            for len in [8, 20_000] {
                let into = room(len);
                let posted = w.post(b, Some(ba), 7, 0, &into);
                let sent = w.send_tagged(a, ab, 7, &pattern(len, round));
                w.ok(b, posted);
                w.ok(a, sent);
                assert!(into.to_vec() == pattern(len, round));
            }
        }
    }
    let_go(w, b, ba, tokens.len() as u32);
    for token in tokens {
        w.ok(a, token);
    }
}

/// One peer's messages are held. Those of another peer, and of one that connects later, arrive.
pub fn a_slow_consumer_slows_no_other(w: &mut World) {
    let (a, b, ab, ba) = w.pair();
    let Some(len) = length(w, b) else { return };
    let c = w.open();
    let (cb, bc) = w.join(c, b);
    let tokens = hoard(w, a, b, ab, len);
    let held = w[b].hoard.take().unwrap_or_default();
    let d = w.open();
    let (db, bd) = w.join(d, b);
    for i in 0..300 {
        for (n, peer, known) in [(c, cb, bc), (d, db, bd)] {
            w.inject(n, peer, &numbered(i, len));
            let find = move |w: &World| w[b].messages.iter().position(|m| m.0 == known);
            w.until("the message of another peer comes", |w| find(w).is_some());
            let at = find(w).expect("just seen");
            let (_, message) = w[b].messages.remove(at).expect("just seen");
            assert_eq!(number(&message), i);
        }
    }
    assert!(w[b].messages.is_empty(), "a message came though all leases of its sender are held");
    w[b].hoard = Some(held);
    let_go(w, b, ba, tokens.len() as u32);
    for token in tokens {
        w.ok(a, token);
    }
}

//! Room for operations: a peer that does not go on fills its share of it, and stops no other.

use crate::world::{Node, World, memory, pattern};
use bytes::Bytes;
use petasos_fabric::{Access, Full, Level, Operation, Payload, Peer, RemoteSpan, Token};
use smallvec::smallvec;
use std::collections::VecDeque;

/// What a queue leaves is no more than this, which is less than one call passes.
const LEFT: usize = 256;

fn message(number: usize) -> Bytes {
    Bytes::copy_from_slice(&(number as u64).to_le_bytes())
}

fn send(token: Token, peer: Peer, number: usize) -> Operation {
    let (payload, level) = (Payload::Bytes(message(number)), Level::Delivered);
    Operation::Send { token, peer, payload, level }
}

/// Two peers of one endpoint, of which the first is not driven.
fn three(w: &mut World) -> (Node, (Node, Peer), (Node, Peer)) {
    let (a, b, ab, _) = w.pair();
    let c = w.open();
    let (ac, _) = w.join(a, c);
    w[b].frozen = true;
    (a, (b, ab), (c, ac))
}

/// What was accepted of a flood is no more than the limit.
fn bounded(w: &mut World, n: Node, flood: &[Token]) {
    let (left, most) = (w[n].queue.len(), w.capabilities(n).limits.max_operations);
    assert!(left > 0, "{} operations are held somewhere", flood.len());
    assert!(left <= LEFT && flood.len() - left <= most, "{} are held", flood.len() - left);
}

/// Messages to another peer go while one is full, in front of those that wait, and when it goes on
/// all that was accepted arrives, in order, and it is called writable.
pub fn a_full_peer_stops_no_other(w: &mut World) {
    let (a, (b, ab), (c, ac)) = three(w);
    let most = w.capabilities(a).limits.max_operations;
    let flood = w.flood(a, 2 * most, |number, token| send(token, ab, number));
    bounded(w, a, &flood);
    assert_eq!(w.try_op(a, |token| send(token, ab, 0)), Err(Full::Peer));
    if w.fixture().holds_up_others().is_some() {
        w[b].frozen = false;
    }
    for round in 0..3 {
        // Behind the others in the queue, without it, and injected.
        let queued = w.op(a, |token| send(token, ac, 3 * round));
        let alone = w.try_op(a, |token| send(token, ac, 3 * round + 1));
        let alone = alone.unwrap_or_else(|full| w.fail(&format!("another peer: {full}")));
        w.inject(a, ac, &message(3 * round + 2));
        for number in 3 * round..3 * round + 3 {
            assert_eq!(w.message(c).1, message(number));
        }
        w.ok(a, queued);
        w.ok(a, alone);
    }
    w[b].frozen = false;
    for number in 0..flood.len() {
        assert_eq!(w.message(b).1, message(number));
    }
    for token in flood {
        w.ok(a, token);
    }
    w.until("there is room again", |w| w[a].writable.contains(&ab));
    let after = w.try_op(a, |token| send(token, ab, 7));
    let after = after.unwrap_or_else(|full| w.fail(&format!("after that: {full}")));
    w.ok(a, after);
}

/// The same with long messages to a peer that goes on, and takes none of the bodies.
pub fn bodies_that_are_not_taken(w: &mut World) {
    let (a, (b, ab), (c, ac)) = three(w);
    w[b].frozen = false;
    let (most, body) = (w.capabilities(a).limits.max_operations, memory(&pattern(16, 3)));
    let flood = w.flood(a, 2 * most, |number, token| Operation::SendLong {
        token,
        peer: ab,
        header: message(number),
        body: body.clone(),
    });
    bounded(w, a, &flood);
    let other = w.op(a, |token| send(token, ac, 5));
    assert_eq!(w.message(c).1, message(5));
    w.ok(a, other);
    for number in 0..flood.len() {
        let (_, header, body, _) = w.long(b);
        assert_eq!(header, message(number));
        // What ends operations of a peer is not refused for its sake.
        let discard = w.op(b, |token| Operation::Discard { token, body });
        w.ok(b, discard);
    }
    for token in flood {
        w.ok(a, token);
    }
    w.until("there is room again", |w| w[a].writable.contains(&ab));
}

/// Puts to another peer go while one is full, of which some may complete without it.
pub fn accesses_to_a_full_peer(w: &mut World) {
    let (a, (b, ab), (c, _)) = three(w);
    if w.capabilities(a).attended {
        // A thread may carry them out meanwhile.
        return;
    }
    let there = [b, c].map(|n| {
        let memory = memory(&[0; 8]);
        let (_, key) = w.expose(n, &memory, Access::WRITE);
        (w.import(a, &key), memory)
    });
    assert_eq!(there[0].0.peer, ab);
    let from = memory(&[9; 8]);
    let put = |token, remote| Operation::Put {
        token,
        remote,
        local: smallvec![from.clone()],
        spans: smallvec![RemoteSpan { offset: 0, len: 8 }],
        level: Level::Visible,
        event: None,
    };
    let most = w.capabilities(a).limits.max_operations;
    let flood = w.flood(a, 2 * most, |_, token| put(token, there[0].0));
    bounded(w, a, &flood);
    let full = w.try_op(a, |token| put(token, there[0].0)).err();
    assert!(full.is_some(), "one more was accepted");
    let other = w.op(a, |token| put(token, there[1].0));
    w.ok(a, other);
    assert_eq!(there[1].1.to_vec(), [9; 8]);
    w[b].frozen = false;
    for token in flood {
        w.ok(a, token);
    }
    if full == Some(Full::Peer) {
        w.until("there is room again", |w| w[a].writable.contains(&ab));
    }
    assert_eq!(there[0].1.to_vec(), [9; 8]);
}

/// A million operations in one call: what is beyond the limit stays in the queue, and asking again
/// changes nothing.
pub fn a_million_at_once(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    let most = w.capabilities(a).limits.max_operations;
    let (first, count) = (w.next, 1_000_000);
    w.next += count as u64;
    let mut queue: VecDeque<_> =
        (0..count).map(|number| send(Token(first + number as u64), ab, number)).collect();
    for operation in queue.iter().take(most + 1) {
        w[a].ledger.open(operation);
    }
    let mut accepted = 0;
    for _ in 0..3 {
        w[a].endpoint().submit(&mut queue);
        accepted = count - queue.len();
        assert!(accepted <= most, "{accepted} are held");
        let next = queue.front().map(Operation::token);
        assert_eq!(next, Some(Token(first + accepted as u64)), "they keep their order");
    }
    for operation in queue.iter().take(most + 1 - accepted) {
        w[a].ledger.withdraw(operation.token());
    }
    w[a].flooded.insert(ab);
    drop(queue);
    for number in 0..accepted {
        assert_eq!(w.message(b).1, message(number));
        w.ok(a, Token(first + number as u64));
    }
}

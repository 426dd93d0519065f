//! Quotas of peers: one that is greedy gets no more than its own, its messages wait, and nobody
//! else's do.

use crate::{
    actions::until_still,
    world::{Node, World, memory, pattern, room},
};
use petasos_fabric::{
    Access, Lease, Level, Operation, Payload, Peer, PeerQuota, PeerUsage, QuotaError, Support,
    Token,
};
use std::time::Duration;

const COUNT: u32 = 60;
/// Bytes of headers of expected messages that are not counted.
const HEADERS: usize = 16 * 64;

fn numbered(number: u32, len: usize) -> Vec<u8> {
    let mut message = pattern(len, 5);
    message[..4].copy_from_slice(&number.to_le_bytes());
    message
}

fn number(message: &[u8]) -> u32 {
    u32::from_le_bytes(message[..4].try_into().expect("four bytes"))
}

/// The length of a message that needs a lease; `None` where there is none, or no quotas.
fn length(w: &mut World, n: Node) -> Option<usize> {
    let can = w.capabilities(n);
    let most = can.limits.max_message;
    (can.peer_quotas && most > Lease::LINES).then(|| most.min(Lease::LINES + 200))
}

fn set(w: &mut World, n: Node, peer: Peer, quota: PeerQuota) {
    let set = w[n].endpoint().set_quota(peer, quota);
    set.unwrap_or_else(|error| w.fail(&format!("no quota is set: {error}")));
    assert_eq!(usage(w, n, peer).quota, quota);
}

fn usage(w: &mut World, n: Node, peer: Peer) -> PeerUsage {
    let usage = w[n].endpoint().usage(peer);
    usage.unwrap_or_else(|| w.fail("nothing is said of what a peer has"))
}

/// Drives all until what a peer has is so.
fn until_used(
    w: &mut World,
    n: Node,
    peer: Peer,
    what: &str,
    so: impl Fn(&PeerUsage) -> bool,
) -> PeerUsage {
    let end = w.now().after(w.fixture().deadline());
    loop {
        let used = usage(w, n, peer);
        if so(&used) {
            return used;
        }
        assert!(w.now() < end, "{what}: {used:?}");
        w.run_for(Duration::from_millis(1));
    }
}

/// As many messages as are asked for, one after the other, from a peer that others may come before.
fn come(w: &mut World, n: Node, from: Peer, numbers: std::ops::Range<u32>) {
    for wanted in numbers {
        let find = move |w: &World| w[n].messages.iter().position(|m| m.0 == from);
        w.until("a message of the peer comes", |w| find(w).is_some());
        let at = find(w).expect("just seen");
        let (_, message) = w[n].messages.remove(at).expect("just seen");
        assert_eq!(number(&message), wanted);
    }
}

/// The program keeps all that it gets of a peer with a small quota, which it gets no more of, also
/// while that peer is stopped. Another peer's messages come as ever, and put and get between the
/// two go on. Then all of it comes, in order.
pub fn a_greedy_peer_and_a_polite_one(w: &mut World) {
    let (a, b, ab, ba) = w.pair();
    let Some(len) = length(w, b) else { return };
    let c = w.open();
    let (cb, bc) = w.join(c, b);
    let quota = PeerQuota::UNLIMITED.with_leases(3);
    set(w, b, ba, quota);
    w[b].hoard = Some(Vec::new());
    let tokens: Vec<Token> = (0..COUNT).map(|i| w.send(a, ab, &numbered(i, len))).collect();
    let held = move |w: &World| w[b].hoard.as_ref().map_or(0, Vec::len);
    w.until("a message comes", |w| held(w) > 0);
    until_still(w, held);
    let used = until_used(w, b, ba, "it wants more", |used| used.leases_refused > 0);
    let count = held(w);
    assert!(count <= 3 && used.leases <= 3, "{count} leases are out: {used:?}");
    let other = usage(w, b, bc);
    assert_eq!((other.leases_refused, other.quota), (0, PeerQuota::UNLIMITED));
    let first = w[b].hoard.take().expect("kept until now");
    let target = w.has(a, |c| c.remote_access).then(|| {
        let theirs = room(1000);
        let (_, key) = w.expose(b, &theirs, Access::ALL);
        (w.import(a, &key), theirs)
    });
    for round in 0..2 {
        if let Some((remote, theirs)) = &target
            && round == 0
        {
            let put = w.put(a, *remote, 8, &memory(&[7; 100]));
            w.ok(a, put);
            assert_eq!(theirs.part(8, 100).map(|part| part.to_vec()), Some(vec![7; 100]));
        }
        for i in 0..50 {
            w.inject(c, cb, &numbered(i, len));
        }
        come(w, b, bc, 0..50);
        w[a].frozen = true;
    }
    w[a].frozen = false;
    assert!(w[b].messages.is_empty(), "a message came beyond the quota of its sender");
    for (wanted, lease) in first.into_iter().enumerate() {
        assert_eq!(number(&lease), wanted as u32);
    }
    come(w, b, ba, count as u32..COUNT);
    for token in tokens {
        w.ok(a, token);
    }
    assert!(usage(w, b, ba).leases <= 3);
}

/// With a quota of nothing no message comes that needs a lease, and what another peer sends goes
/// on. When there is more, all of it comes.
pub fn raised_while_messages_wait(w: &mut World) {
    let (a, b, ab, ba) = w.pair();
    let Some(len) = length(w, b) else { return };
    let c = w.open();
    let (cb, bc) = w.join(c, b);
    set(w, b, ba, PeerQuota::UNLIMITED.with_leases(0));
    let tokens: Vec<Token> = (0..COUNT).map(|i| w.send(a, ab, &numbered(i, len))).collect();
    for i in 0..50 {
        w.inject(c, cb, &numbered(i, len));
    }
    come(w, b, bc, 0..50);
    w.run_for(Duration::from_millis(5));
    assert!(w[b].messages.is_empty(), "a message came without a quota");
    let back = w.send(b, ba, &numbered(9, len));
    assert_eq!(number(&w.message(a).1), 9);
    w.ok(b, back);
    // One at a time, however long.
    set(w, b, ba, PeerQuota::UNLIMITED.with_lease_bytes(1));
    come(w, b, ba, 0..10);
    let most = usage(w, b, ba).leases;
    assert!(most <= 1, "{most} leases");
    set(w, b, ba, PeerQuota::UNLIMITED);
    come(w, b, ba, 10..COUNT);
    for token in tokens {
        w.ok(a, token);
    }
}

/// What a peer has beyond a quota that is less than the last one comes back when it is not used,
/// and what it has sent is not lost.
pub fn less_than_it_has(w: &mut World) {
    let (a, b, ab, ba) = w.pair();
    let Some(len) = length(w, b) else { return };
    for i in 0..COUNT {
        w.inject(a, ab, &numbered(i, len));
    }
    come(w, b, ba, 0..COUNT);
    let quota = PeerQuota::UNLIMITED.with_leases(1);
    set(w, b, ba, quota);
    until_used(w, b, ba, "the rest comes back", |used| used.leases <= 1);
    for i in 0..COUNT {
        w.inject(a, ab, &numbered(i, len));
    }
    come(w, b, ba, 0..COUNT);
    assert!(usage(w, b, ba).leases <= 1);
}

/// Expected messages of one peer that find no receive stay with it, and its operations wait. Those
/// of another come, and complete. All find their receives, in order, also when there is more room.
pub fn expected_messages(w: &mut World) {
    let (a, b, ab, ba) = w.pair();
    if w.capabilities(b).tagged == Support::None || !w.capabilities(b).peer_quotas {
        return;
    }
    let c = w.open();
    let (cb, bc) = w.join(c, b);
    let quota = PeerQuota::UNLIMITED.with_unexpected(0);
    set(w, b, ba, quota);
    let send = |w: &mut World, from: Node, peer: Peer, i: u32| {
        let (payload, level) = (Payload::Bytes(numbered(i, 8).into()), Level::Reusable);
        w.op(from, |token| Operation::SendTagged { token, peer, tag: 7, payload, level })
    };
    let greedy: Vec<Token> = (0..COUNT).map(|i| send(w, a, ab, i)).collect();
    let polite: Vec<Token> = (0..8).map(|i| send(w, c, cb, i)).collect();
    for token in polite {
        w.ok(c, token);
    }
    let used = until_used(w, b, ba, "it wants more room", |used| used.unexpected_refused > 0);
    assert!(used.unexpected <= HEADERS, "{used:?}");
    w.run_for(Duration::from_millis(5));
    let open: Vec<Token> = w[a].ledger.outstanding().map(|(token, _)| token).collect();
    assert!(greedy.iter().all(|token| open.contains(token)), "some are complete: {used:?}");
    let receive = |w: &mut World, from: Peer, wanted: u32| {
        let into = room(8);
        let posted = w.post(b, Some(from), 7, 0, &into);
        w.ok(b, posted);
        assert_eq!(number(&into.to_vec()), wanted);
    };
    (0..8).for_each(|i| receive(w, bc, i));
    (0..20).for_each(|i| receive(w, ba, i));
    let used = usage(w, b, ba);
    assert!(used.unexpected <= HEADERS, "{used:?}");
    set(w, b, ba, PeerQuota::UNLIMITED);
    w.run_for(Duration::from_millis(2));
    (20..COUNT).for_each(|i| receive(w, ba, i));
    for token in greedy {
        w.ok(a, token);
    }
}

/// Quotas are those of peers that are known; of one that is lost none is needed.
pub fn of_whom(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    let stale = Peer { generation: ab.generation.wrapping_add(9), ..ab };
    if !w.capabilities(a).peer_quotas {
        let set = w[a].endpoint().set_quota(ab, PeerQuota::UNLIMITED);
        assert!(matches!(set, Err(QuotaError::Unsupported(_))), "{set:?}");
        return;
    }
    let quota = PeerQuota::UNLIMITED.with_leases(5);
    assert_eq!(w[a].endpoint().set_quota(stale, quota), Err(QuotaError::UnknownPeer));
    assert_eq!(w[a].endpoint().usage(stale), None);
    set(w, a, ab, quota);
    // Before it is connected.
    let absent = w.fixture().fresh();
    let absent = w.resolve(a, &absent);
    set(w, a, absent, quota);
    // The connection exists when b ends.
    w.inject(a, ab, b"x");
    w.message(b);
    w.kill(b);
    w.until("b is lost", |w| w[a].lost.iter().any(|(lost, _)| *lost == ab));
    assert_eq!(w[a].endpoint().set_quota(ab, quota), Ok(()));
    w[a].endpoint().forget(ab);
    assert_eq!(w[a].endpoint().set_quota(ab, quota), Err(QuotaError::UnknownPeer));
}

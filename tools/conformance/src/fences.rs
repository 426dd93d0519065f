//! Fences: what carries one, and what is behind it, begins when all before it is over there.

use crate::{
    Random,
    random_fences::Run,
    world::{Node, World, all_are, memory, pattern, room},
};
use bytes::Bytes;
use petasos_fabric::{
    Access, AtomicOp, AtomicType, Done, InjectError, Level, LostReason, OpErrorKind, Operation,
    Payload, Peer, Remote, RemoteSpan, Slice, Support, Token,
};
use smallvec::smallvec;
use std::time::Duration;

/// Lengths below and above the thresholds of the transports.
const LENGTHS: [usize; 8] = [1, 8, 65, 4097, 16 << 10, 70_000, (256 << 10) + 3, (1 << 20) + 1];
/// So long is a flag.
const FLAG: usize = 8;

/// Whether there are fences, and what they are tried with.
fn fences(w: &mut World, n: Node) -> bool {
    w.capabilities(n).fences && w.has(n, |c| c.remote_access)
}

pub(crate) fn put(
    token: Token,
    remote: Remote,
    offset: usize,
    from: &Slice,
    (level, event): (Level, Option<u64>),
) -> Operation {
    let span = RemoteSpan { offset: offset as u64, len: from.len() as u64 };
    let (local, spans) = (smallvec![from.clone()], smallvec![span]);
    Operation::Put { token, remote, local, spans, level, event }
}

pub(crate) fn sum(token: Token, remote: Remote, offset: usize) -> Operation {
    Operation::Atomic {
        token,
        remote,
        offset: offset as u64,
        op: AtomicOp::Sum,
        kind: AtomicType::U64,
        operand: smallvec![1, 0, 0, 0, 0, 0, 0, 0],
        compare: smallvec![],
        fetch: false,
    }
}

pub(crate) fn send(token: Token, peer: Peer, bytes: &[u8]) -> Operation {
    let payload = Payload::Bytes(Bytes::copy_from_slice(bytes));
    Operation::Send { token, peer, payload, level: Level::Reusable }
}

/// A flag behind a fence.
fn raise(w: &mut World, a: Node, remote: Remote, offset: usize, byte: u8) -> Token {
    let from = memory(&[byte; FLAG]);
    w.op(a, |token| put(token, remote, offset, &from, (Level::Reusable, None)).fenced())
}

/// A long message, which is over when the peer has taken it: behind it all fences wait.
fn hold_up(w: &mut World, a: Node, peer: Peer) -> Token {
    let (header, body) = (Bytes::from_static(b"wait"), memory(&pattern(100, 5)));
    w.op(a, |token| Operation::SendLong { token, peer, header, body })
}

/// The peer takes it.
fn let_go(w: &mut World, b: Node) {
    let (_, header, body, _) = w.long(b);
    assert_eq!(header, b"wait");
    let discarded = w.op(b, |token| Operation::Discard { token, body });
    w.ok(b, discarded);
}

/// Handles by which memory of `b` is reached: by the network itself, where that does it, and by the
/// owner's engine.
pub(crate) fn routes(w: &mut World, a: Node, b: Node, target: &Slice) -> Vec<Remote> {
    let (region, key) = w.expose(b, target, Access::ALL);
    let mut routes = vec![w.import(a, &key)];
    if w.has(a, |c| c.part_keys) {
        let (_, key) = w.expose_part(b, region, 0..target.len() as u64, Access::ALL);
        routes.push(w.import(a, &key));
    }
    routes
}

/// Drives two endpoints in turn, and looks after each step, until that says true.
pub(crate) fn watch(
    w: &mut World,
    (a, b): (Node, Node),
    what: &str,
    mut look: impl FnMut(&mut World) -> bool,
) {
    let end = w.now().after(w.fixture().deadline());
    w.settle();
    loop {
        let mut worked = false;
        // The target first: something may have come before its initiator was driven.
        for (driven, other) in [(b, a), (a, b)] {
            w[other].frozen = true;
            worked |= w.step();
            w[other].frozen = false;
            assert!(!w[driven].frozen);
            w.settle();
            if look(w) {
                return;
            }
        }
        if !worked {
            w.fixture().pass(0);
        }
        if w.now() >= end {
            w.fail(&format!("not within the deadline: {what}"));
        }
    }
}

fn bytes(target: &Slice, offset: usize, len: usize) -> Vec<u8> {
    target.part(offset, len).expect("within").to_vec()
}

/// A process that sees a flag that was put behind a fence finds all that was put before it, long
/// and short, by the network and by the owner's engine.
pub fn data_before_flags(w: &mut World) {
    let (a, b, ..) = w.pair();
    if !fences(w, a) {
        return;
    }
    let all: usize = LENGTHS.iter().sum();
    for own in [false, true] {
        let target = match own {
            false => room(all + FLAG),
            true => w[b].endpoint().alloc(all + FLAG).expect("memory").whole(),
        };
        let routes = routes(w, a, b, &target);
        for round in 1..7 {
            let level = if round % 2 == 0 { Level::Reusable } else { Level::Visible };
            let mut lengths = LENGTHS;
            if round % 3 == 0 {
                lengths.reverse();
            }
            let (mut puts, mut offset) = (Vec::new(), 0);
            for (i, len) in lengths.into_iter().enumerate() {
                let route = routes[(i + usize::from(round)) % routes.len()];
                puts.push(w.put_at(a, route, offset, &memory(&vec![round; len]), level));
                offset += len as u64;
            }
            let flag = raise(w, a, routes[usize::from(round / 2) % routes.len()], all, round);
            watch(w, (a, b), "a flag is seen", |_| {
                let seen = bytes(&target, all, FLAG).contains(&round);
                if seen {
                    assert!(all_are(&bytes(&target, 0, all), round), "round {round}: flag first");
                }
                seen
            });
            puts.into_iter().chain([flag]).for_each(|token| _ = w.ok(a, token));
        }
    }
}

/// The same, where the flag is another operation.
pub fn every_kind_of_flag(w: &mut World) {
    let (a, b, ab, ba) = w.pair();
    if !fences(w, a) {
        return;
    }
    const LEN: usize = 300_000;
    let target = room(LEN + FLAG);
    let routes = routes(w, a, b, &target);
    for round in 1..13u8 {
        let what = match round % 6 {
            0 if w.has(a, |c| c.put_with_event) => "an event",
            1 if w.has(a, |c| c.tagged) => "an expected message",
            2 if w.has(a, |c| c.atomics) => "an atomic",
            3 => "a get",
            4 => "a long message",
            _ => "a message",
        };
        let level = if round > 6 { Level::Reusable } else { Level::Visible };
        let route = routes[usize::from(round / 6) % routes.len()];
        let into = room(LEN);
        let posted = (what == "an expected message").then(|| w.post(b, Some(ba), 7, 0, &room(8)));
        let before = u64::from_le_bytes(bytes(&target, LEN, 8).try_into().expect("8 bytes"));
        w.settle();
        for (offset, len) in [(0u64, 8), (8, LEN - 108), (LEN as u64 - 100, 100)] {
            w.put_at(a, route, offset, &memory(&vec![round; len]), level);
        }
        let from = memory(&[round; 8]);
        let flag = w.op(a, |token| {
            match what {
                "an event" => put(token, route, 0, &from, (Level::Reusable, Some(3))),
                "an expected message" => {
                    let payload = Payload::Bytes(Bytes::from_static(b"expected"));
                    let (peer, tag, level) = (ab, 7, Level::Reusable);
                    Operation::SendTagged { token, peer, tag, payload, level }
                }
                "an atomic" => sum(token, route, LEN),
                "a get" => Operation::Get {
                    token,
                    remote: route,
                    local: smallvec![into.clone()],
                    spans: smallvec![RemoteSpan { offset: 0, len: LEN as u64 }],
                },
                "a long message" => {
                    let (header, body) = (Bytes::from_static(b"wait"), from.clone());
                    Operation::SendLong { token, peer: ab, header, body }
                }
                _ => send(token, ab, b"look"),
            }
            .fenced()
        });
        watch(w, (a, b), what, |w| {
            let seen = match what {
                "an event" => w[b].arrivals.pop_front().is_some(),
                "an expected message" => posted.is_some_and(|t| w[b].ledger.result(t).is_some()),
                "an atomic" => bytes(&target, LEN, 8) != before.to_le_bytes(),
                "a get" => w[a].ledger.result(flag).is_some(),
                "a long message" => !w[b].longs.is_empty(),
                _ => w[b].messages.pop_front().is_some(),
            };
            if seen {
                assert!(all_are(&bytes(&target, 0, LEN), round), "{what} comes before the data");
            }
            seen
        });
        if what == "a long message" {
            let_go(w, b);
        }
        w.ok(a, flag);
        if what == "a get" {
            assert!(all_are(&into.to_vec(), round), "it was read before the data came");
        }
        posted.into_iter().for_each(|token| _ = w.ok(b, token));
    }
}

/// Gets before a fence have been read when what is behind it is written.
pub fn gets_before_puts(w: &mut World) {
    let (a, b, ..) = w.pair();
    if !fences(w, a) {
        return;
    }
    const LEN: usize = 2 << 20;
    let target = room(LEN);
    let routes = routes(w, a, b, &target);
    for round in 0..6u8 {
        let route = |n: u8| routes[usize::from(n) % routes.len()];
        let (long, short) = (room(LEN), room(8));
        let gets = [w.get(a, route(round), 0, &long), w.get(a, route(round), 64, &short)];
        let from = memory(&vec![round + 1; LEN]);
        let over = w
            .op(a, |token| put(token, route(round / 2), 0, &from, (Level::Visible, None)).fenced());
        w.ok(a, over);
        gets.into_iter().for_each(|get| _ = w.ok(a, get));
        let old = all_are(&long.to_vec(), round) && all_are(&short.to_vec(), round);
        assert!(old, "round {round}: a get was passed");
    }
}

/// When a flag is there, so are the messages and the events of puts before it: the target needs no
/// more of their sender.
pub fn messages_before_flags(w: &mut World) {
    let (a, b, ab, ba) = w.pair();
    if !fences(w, a) {
        return;
    }
    let target = room(FLAG + 100_000);
    let routes = routes(w, a, b, &target);
    let longest = w.capabilities(a).limits.max_message;
    for round in 1..7u8 {
        let into: Vec<_> = [10, 4000, 100_000].into_iter().map(room).collect();
        let mut posted = Vec::new();
        if w.has(a, |c| c.tagged) {
            posted.extend(into.iter().map(|into| w.post(b, Some(ba), 9, 0, into)));
            w.until("they are posted", |w| w.accepted(b));
            for into in &into {
                let payload = Payload::Bytes(pattern(into.len(), round).into());
                let (peer, tag, level) = (ab, 9, Level::Reusable);
                w.op(a, |token| Operation::SendTagged { token, peer, tag, payload, level });
            }
        }
        let mut sent = 0;
        for len in [1, 60, 500, longest, 3].into_iter().cycle().take(10) {
            let message = vec![round; len];
            if w.try_inject(a, ab, &[&message[..len.min(100)]]) == Ok(()) {
                sent += 1;
            }
            w.op(a, |token| send(token, ab, &message));
            sent += 1;
        }
        let mut events = 0;
        for (nth, len) in [8, 5000, 100_000].into_iter().enumerate() {
            if w.has(a, |c| c.put_with_event) {
                let (route, from) = (routes[nth % routes.len()], memory(&vec![round; len]));
                let level = (Level::Reusable, Some(1));
                w.op(a, |token| put(token, route, FLAG, &from, level));
                events += 1;
            }
        }
        raise(w, a, routes[usize::from(round) % routes.len()], 0, round);
        let flag = |_: &mut World| bytes(&target, 0, FLAG).contains(&round);
        watch(w, (a, b), "a flag is seen", flag);
        w[a].frozen = true;
        w.until("all messages are there", |w| {
            w[b].messages.len() == sent
                && w[b].arrivals.len() == events
                && posted.iter().all(|token| w[b].ledger.result(*token).is_some())
        });
        w[a].frozen = false;
        w[b].arrivals.clear();
        assert!(w[b].messages.drain(..).all(|(_, message)| all_are(&message, round)));
        posted.into_iter().for_each(|token| _ = w.ok(b, token));
        w.until("all are accepted", |w| w.accepted(a));
    }
}

/// Between accesses that need no call of the target's a fence needs none, either.
pub fn of_a_passive_target(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    let can = w.capabilities_of(a, ab);
    if !fences(w, a) || !can.passive_target || can.remote_access != Support::Native {
        return;
    }
    let target = room(100_000 + FLAG);
    let (_, key) = w.expose(b, &target, Access::ALL);
    let remote = w.import(a, &key);
    let first = w.put(a, remote, 0, &memory(&[1]));
    w.ok(a, first);
    w.run_for(Duration::from_millis(3));
    w[b].frozen = true;
    for round in 1..4 {
        w.put_at(a, remote, 0, &memory(&vec![round; 100_000]), Level::Reusable);
        let from = memory(&[round; FLAG]);
        let flag =
            w.op(a, |token| put(token, remote, 100_000, &from, (Level::Visible, None)).fenced());
        w.ok(a, flag);
        assert!(all_are(&target.to_vec(), round));
    }
    w[b].frozen = false;
}

/// What is accepted behind an operation with a fence waits for the fence, too, injected messages
/// included.
pub fn what_follows_waits(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !fences(w, a) {
        return;
    }
    const LEN: usize = 3 << 20;
    let target = room(LEN + FLAG);
    let routes = routes(w, a, b, &target);
    for round in 1..5u8 {
        let route = |n: u8| routes[usize::from(n) % routes.len()];
        w.put_at(a, route(round), 0, &memory(&vec![round; LEN]), Level::Reusable);
        w.op(a, |token| send(token, ab, b"fenced").fenced());
        let flag = memory(&[round; FLAG]);
        w.put_at(a, route(round / 2), LEN as u64, &flag, Level::Reusable);
        w.until("all are accepted", |w| w.accepted(a));
        let mut injected = false;
        watch(w, (a, b), "all is seen", |w| {
            injected = injected || w.try_inject(a, ab, &[b"injected"]) == Ok(());
            let flag = bytes(&target, LEN, FLAG).contains(&round);
            let come = w[b].messages.len();
            if flag || come > 0 {
                assert!(all_are(&bytes(&target, 0, LEN), round), "{flag}, {come} messages");
            }
            flag && come == 2
        });
        let come: Vec<_> = w[b].messages.drain(..).map(|(_, message)| message).collect();
        assert_eq!(come, [&b"fenced"[..], b"injected"]);
    }
}

/// What waits for a fence is the endpoint's: it can be cancelled, keys that it needs may be
/// released, its memory is in use, a flush waits for it, and injected messages find no room.
pub fn held(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !fences(w, a) {
        return;
    }
    let target = room(64);
    for (round, remote) in routes(w, a, b, &target).into_iter().enumerate() {
        let byte = round as u8 * 10;
        let long = hold_up(w, a, ab);
        let from = memory(&[byte + 1; FLAG]);
        let level = (Level::Reusable, None);
        let first = w.op(a, |token| put(token, remote, 0, &from, level).fenced());
        let second = w.op(a, |token| put(token, remote, 8, &from, level));
        let third = w.op(a, |token| send(token, ab, b"third").fenced());
        let never = w.op(a, |token| send(token, ab, b"never").fenced());
        let not = w.op(a, |token| put(token, remote, 16, &from, level));
        let flush = w.op(a, |token| Operation::Flush { token, peer: ab });
        w.until("all are accepted", |w| w.accepted(a));
        w[a].endpoint().release(remote);
        w.run_for(Duration::from_millis(3));
        for token in [long, first, second, third, never, not, flush] {
            assert!(w[a].ledger.result(token).is_none(), "{token:?} did not wait");
        }
        assert!(bytes(&target, 0, 24).iter().all(|b| *b == 0 || *b < byte), "it was written");
        assert!(w[b].messages.is_empty());
        let used = w[a].endpoint().in_use(&from);
        assert!(used.is_some(), "memory of what waits is in use");
        assert_eq!(w.try_inject(a, ab, &[b"no"]), Err(InjectError::Full));
        for token in [never, not] {
            w.cancel(a, token);
            w.fails(a, token, |kind| *kind == OpErrorKind::Cancelled);
        }
        let_go(w, b);
        for token in [long, first, second, third, flush] {
            w.ok(a, token);
        }
        assert_eq!(bytes(&target, 0, 16), [byte + 1; 16]);
        assert_ne!(bytes(&target, 16, 8), [byte + 1; 8]);
        assert_eq!(w.message(b).1, b"third");
        w.until("there is room again", |w| w[a].writable.contains(&ab));
        assert_eq!(w[a].endpoint().in_use(&from).map(|used| used.what), None);
        w.inject(a, ab, b"yes");
        assert_eq!(w.message(b).1, b"yes");
        let stale = w.op(a, |token| put(token, remote, 0, &from, level));
        w.fails(a, stale, |kind| *kind == OpErrorKind::UnknownRegion);
        let told = w.op(a, |token| Operation::Flush { token, peer: ab });
        let _ = w.result(a, told);
    }
}

/// An operation that waits for a fence can be cancelled, and so can what it waits for. The fence of
/// one that is cancelled holds up what is behind it, as before.
pub fn cancelled(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !fences(w, a) {
        return;
    }
    let target = room(FLAG);
    let remote = routes(w, a, b, &target)[0];
    let long = hold_up(w, a, ab);
    let flag = raise(w, a, remote, 0, 1);
    let behind = w.op(a, |token| send(token, ab, b"behind"));
    w.until("the header comes", |w| !w[b].longs.is_empty());
    w.cancel(a, flag);
    w.fails(a, flag, |kind| *kind == OpErrorKind::Cancelled);
    w.run_for(Duration::from_millis(3));
    assert!(w[b].messages.is_empty(), "what is behind the fence came before it was passed");
    let_go(w, b);
    w.ok(a, long);
    w.ok(a, behind);
    assert_eq!(w.message(b).1, b"behind");
    assert_eq!(target.to_vec(), [0; FLAG], "it was cancelled");
    // All that waits.
    let long = hold_up(w, a, ab);
    let flag = raise(w, a, remote, 0, 2);
    w.cancel(a, flag);
    w.fails(a, flag, |kind| *kind == OpErrorKind::Cancelled);
    let flag = raise(w, a, remote, 0, 3);
    // What it waits for.
    w.until("the header comes", |w| !w[b].longs.is_empty());
    w.cancel(a, long);
    w.fails(a, long, |kind| *kind == OpErrorKind::Cancelled);
    // Nothing of it is under way any more once the peer has heard of that.
    let (_, _, body, _) = w.long(b);
    let discarded = w.op(b, |token| Operation::Discard { token, body });
    let _ = w.result(b, discarded);
    w.ok(a, flag);
    w.until("the flag is seen", |_| target.to_vec() == [3; FLAG]);
}

/// A peer that does nothing, or does not receive, holds up what is for it, and nothing else.
pub fn of_one_among_others(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !fences(w, a) {
        return;
    }
    let c = w.open();
    w.join(a, c);
    let (slow, quick) = (room(100_000 + FLAG), room(100_000 + FLAG));
    let (to_slow, to_quick) = (routes(w, a, b, &slow), routes(w, a, c, &quick));
    let long = hold_up(w, a, ab);
    w[b].frozen = true;
    w.put_at(a, to_slow[0], 0, &memory(&vec![1; 100_000]), Level::Reusable);
    let waits = raise(w, a, to_slow[0], 100_000, 1);
    for round in 1..5 {
        let route = to_quick[usize::from(round) % to_quick.len()];
        w.put_at(a, route, 0, &memory(&vec![round; 100_000]), Level::Reusable);
        let from = memory(&[round; FLAG]);
        let flag = w.op(a, |token| {
            put(token, to_quick[0], 100_000, &from, (Level::Visible, None)).fenced()
        });
        if w.fixture().holds_up_others().is_none() {
            w.ok(a, flag);
            assert!(all_are(&quick.to_vec(), round));
        }
    }
    assert!(w[a].ledger.result(waits).is_none(), "its peer has not received");
    w[b].frozen = false;
    let_go(w, b);
    w.ok(a, long);
    w.ok(a, waits);
    watch(w, (a, b), "the flag is seen", |_| {
        let seen = bytes(&slow, 100_000, FLAG) == [1; FLAG];
        assert!(!seen || all_are(&slow.to_vec(), 1));
        seen
    });
}

/// What waits for a fence fails with its peer, once.
pub fn killed(w: &mut World) {
    for steps in [0, 3, 30] {
        let (a, b, ab, _) = w.pair();
        if !fences(w, a) {
            return;
        }
        let address = w.address(b);
        let target = room(FLAG);
        let remote = routes(w, a, b, &target)[0];
        let tokens = wait_behind(w, a, ab, remote);
        for _ in 0..steps {
            w.step();
        }
        w.kill(b);
        for token in tokens {
            let error = w.failure(a, token);
            let lost = matches!(error.kind, OpErrorKind::PeerLost(_));
            assert!(lost && error.peer.as_ref() == Some(&address), "{error}");
        }
        w.until("it is lost", |w| w[a].lost.iter().any(|(lost, _)| *lost == ab));
        let flag = raise(w, a, remote, 0, 1);
        let error = w.failure(a, flag);
        let kinds = matches!(error.kind, OpErrorKind::PeerLost(_) | OpErrorKind::UnknownRegion);
        assert!(kinds, "{error}");
        w.kill(a);
    }
}

/// A long message, and behind it a fence with operations of several kinds; the key is released.
fn wait_behind(w: &mut World, a: Node, ab: Peer, remote: Remote) -> Vec<Token> {
    let mut tokens = vec![hold_up(w, a, ab), raise(w, a, remote, 0, 1)];
    for round in 0..20 {
        tokens.push(w.op(a, |token| send(token, ab, &[round])));
        tokens.push(w.put(a, remote, 0, &memory(&[round; FLAG])));
        tokens.push(raise(w, a, remote, 0, round));
    }
    tokens.push(w.op(a, |token| Operation::Flush { token, peer: ab }));
    w.until("all are accepted", |w| w.accepted(a));
    w[a].endpoint().release(remote);
    tokens
}

/// What waits for a fence ends when its peer is forgotten, and an endpoint can be closed with it.
pub fn forgotten_and_closed(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !fences(w, a) {
        return;
    }
    let target = room(FLAG);
    let remote = routes(w, a, b, &target)[0];
    let tokens = wait_behind(w, a, ab, remote);
    w[a].endpoint().forget(ab);
    for token in tokens {
        w.fails(a, token, |kind| *kind == OpErrorKind::PeerLost(LostReason::Forgotten));
    }
    // Known again, it is as new.
    let address = w.address(b);
    w.until("the peer has lost us", |w| !w[b].lost.is_empty());
    let again = w.resolve(a, &address);
    w.until("it is up again", |w| w.known(a, b) == Some(again));
    let sent = w.op(a, |token| send(token, again, b"again").fenced());
    w.ok(a, sent);
    w.until("it comes", |w| !w[b].messages.is_empty());
    let remote = routes(w, a, b, &target)[0];
    wait_behind(w, a, again, remote);
    w.kill(a);
    w.until("the peer is lost there", |w| w[b].lost.len() > 1);
}

/// Memory that is closed while puts to it wait: they are refused, and what is behind goes on.
pub fn closed_meanwhile(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !fences(w, a) {
        return;
    }
    let (gone, there) = (room(FLAG), room(FLAG));
    let (region, key) = w.expose(b, &gone, Access::ALL);
    let to_gone = w.import(a, &key);
    let to_there = routes(w, a, b, &there)[0];
    let long = hold_up(w, a, ab);
    let from = memory(&[1; FLAG]);
    let level = (Level::Visible, None);
    let refused = w.op(a, |token| put(token, to_gone, 0, &from, level).fenced());
    let good = w.op(a, |token| put(token, to_there, 0, &from, level).fenced());
    let flush = w.op(a, |token| Operation::Flush { token, peer: ab });
    w.until("all are accepted", |w| w.accepted(a));
    w.deregister(b, region);
    let_go(w, b);
    w.ok(a, long);
    w.fails(a, refused, |kind| *kind == OpErrorKind::StaleKey);
    w.ok(a, good);
    if w.has(a, |c| c.flush) {
        w.fails(a, flush, |kind| *kind == OpErrorKind::StaleKey);
    }
    assert_eq!((gone.to_vec(), there.to_vec()), (vec![0; FLAG], vec![1; FLAG]));
}

/// To oneself, and to a peer that is not there yet.
pub fn to_oneself_and_to_a_late_peer(w: &mut World) {
    let a = w.open();
    if !fences(w, a) {
        return;
    }
    let address = w.address(a);
    let own = w.resolve(a, &address);
    let target = room(200_000 + FLAG);
    let (_, key) = w.expose(a, &target, Access::ALL);
    let remote = w.import(a, &key);
    for round in 1..4 {
        w.put_at(a, remote, 0, &memory(&vec![round; 200_000]), Level::Reusable);
        w.op(a, |token| send(token, own, b"one"));
        let flag = raise(w, a, remote, 200_000, round);
        w.op(a, |token| send(token, own, b"two").fenced());
        assert_eq!((w.message(a).1, w.message(a).1), (b"one".to_vec(), b"two".to_vec()));
        w.ok(a, flag);
        assert!(all_are(&target.to_vec(), round));
    }
    let address = w.fixture().fresh();
    let late = w.resolve(a, &address);
    let sent: Vec<_> = (0..9u8)
        .map(|i| {
            w.op(a, |token| match i % 3 {
                0 => send(token, late, &[i]),
                _ => send(token, late, &[i]).fenced(),
            })
        })
        .collect();
    w.run_for(Duration::from_millis(1));
    let b = w.open_at(&address);
    for i in 0..9u8 {
        assert_eq!(w.message(b).1, [i]);
    }
    sent.into_iter().for_each(|token| _ = w.ok(a, token));
}

/// An operation without a target can carry none; where there are none, no operation can.
pub fn unsupported(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    let unsupported = |kind: &OpErrorKind| matches!(kind, OpErrorKind::Unsupported(_));
    let into = room(8);
    let receive = w.op(a, |token| {
        Operation::PostReceive { token, source: None, tag: 1, ignore: 0, into }.fenced()
    });
    w.fails(a, receive, unsupported);
    let sent = w.op(a, |token| send(token, ab, b"fenced").fenced());
    match w.capabilities_of(a, ab).fences {
        false => w.fails(a, sent, unsupported),
        true => {
            w.ok(a, sent);
            assert_eq!(w.message(b).1, b"fenced");
            let never = Peer { index: 4_000_000, generation: 9 };
            let sent = w.op(a, |token| send(token, never, b"").fenced());
            w.fails(a, sent, |kind| *kind == OpErrorKind::UnknownPeer);
        }
    }
}

/// Injected messages that wait for leases of the target's are before a fence, too.
pub fn behind_messages_that_wait(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !fences(w, a) {
        return;
    }
    let target = room(FLAG);
    let remote = routes(w, a, b, &target)[0];
    let message = vec![7; w.capabilities(a).limits.max_inject.min(1000)];
    w[b].hoard = Some(Vec::new());
    let hoarded = |w: &World| w[b].hoard.as_ref().map_or(0, Vec::len);
    let mut injected = 0;
    loop {
        if w.try_inject(a, ab, &[&message]) == Ok(()) {
            injected += 1;
            continue;
        }
        let before = hoarded(w);
        w.run_for(Duration::from_millis(3));
        if hoarded(w) == before {
            break;
        }
    }
    raise(w, a, remote, 0, 1);
    w.run_for(Duration::from_millis(3));
    let seen = |_: &mut World| target.to_vec().contains(&1);
    let early = seen(w);
    w[a].frozen = early;
    let before = hoarded(w);
    w[b].hoard = None;
    if !early {
        watch(w, (a, b), "the flag is seen", seen);
    }
    w[a].frozen = true;
    w.until("all messages are there", |w| w[b].messages.len() + before == injected);
    w[a].frozen = false;
}

/// What waits for a fence is bounded as all else is, and stops no other peer.
pub fn many_deferred(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !fences(w, a) {
        return;
    }
    let c = w.open();
    let (ac, _) = w.join(a, c);
    let most = w.capabilities(a).limits.max_operations;
    let long = hold_up(w, a, ab);
    let flood = w.flood(a, 2 * most, |number, token| {
        let plain = send(token, ab, &(number as u64).to_le_bytes());
        if number.is_multiple_of(100) { plain.fenced() } else { plain }
    });
    let left = w[a].queue.len();
    assert!(left > 0 && flood.len() - left <= most, "{} of {} are held", flood.len(), left);
    let other = w.op(a, |token| send(token, ac, b"other").fenced());
    w.ok(a, other);
    assert_eq!(w.message(c).1, b"other");
    assert!(w[b].messages.is_empty());
    let_go(w, b);
    w.ok(a, long);
    for number in 0..flood.len() as u64 {
        assert_eq!(w.message(b).1, number.to_le_bytes());
    }
    for token in flood {
        assert!(matches!(w.ok(a, token), Done::Sent));
    }
}

/// Random operations, some with a fence: what is seen of one is seen when all before its fence is
/// complete.
pub fn random(w: &mut World) {
    for seed in 0..4 {
        w.remark(&format!("seed {seed}"));
        let (a, b, ab, ba) = w.pair();
        if !fences(w, a) {
            return;
        }
        Run::new(w, (a, b), (ab, ba), Random::new(seed)).run(w, 60);
        w.kill(a);
        w.kill(b);
    }
}

//! Memory is in use as long as anything may touch it, and no longer: also when its peer does
//! nothing, or has ended.

use crate::world::{Node, World, memory, pattern, room};
use petasos_fabric::{
    Access, Drain, InUse, Level, Operation, Payload, Peer, Slice, StillUsed, Support, Token,
};
use std::time::Duration;

/// Waits for memory while all are driven.
fn drain(w: &mut World, n: Node, memory: &Slice, patience: Duration) -> Result<(), StillUsed> {
    let mut drain = Drain::new(memory.clone(), patience);
    loop {
        let now = w.now();
        if let Some(result) = drain.poll(w[n].endpoint(), now) {
            return result;
        }
        assert!(drain.deadline(now) <= now.after(Duration::from_millis(1)));
        w.run_for(Duration::from_micros(100));
    }
}

/// Within the time in which a peer that was killed is missed.
fn free(w: &mut World, n: Node, memory: &Slice) {
    accepted(w, n);
    let patience = w.fixture().deadline();
    let drained = drain(w, n, memory, patience);
    drained.unwrap_or_else(|used| w.fail(&used.to_string()));
}

/// What waits to be accepted is not the endpoint's yet.
fn accepted(w: &mut World, n: Node) {
    w.until("all is accepted", |w| w.accepted(n));
}

fn used(w: &mut World, n: Node, memory: &Slice) -> InUse {
    accepted(w, n);
    let used = w[n].endpoint().in_use(memory);
    used.unwrap_or_else(|| w.fail("the memory is said to be free"))
}

fn send_long(w: &mut World, n: Node, peer: Peer, body: &Slice) -> Token {
    let (header, body) = (b"header".to_vec().into(), body.clone());
    w.op(n, |token| Operation::SendLong { token, peer, header, body })
}

/// A receive is there until it is cancelled, or filled. What lies beside its memory is free.
pub fn posted_receives(w: &mut World) {
    let (a, b, ab, ba) = w.pair();
    if w.capabilities(b).tagged == Support::None {
        return;
    }
    let all = room(100);
    let part = |offset| all.part(offset, 50).expect("within");
    for source in [Some(ba), None] {
        assert_eq!(w[b].endpoint().in_use(&all), None);
        let posted = w.post(b, source, 7, 0, &part(0));
        assert_eq!(used(w, b, &all).token, Some(posted));
        assert_eq!(used(w, b, &all.part(49, 1).expect("within")).token, Some(posted));
        assert_eq!(w[b].endpoint().in_use(&part(50)), None);
        let (token, patience) = (Some(posted), Duration::from_millis(2));
        assert_eq!(drain(w, b, &all, patience).map_err(|used| used.by.token), Err(token));
        w[b].endpoint().cancel(posted);
        free(w, b, &all);
    }
    for (len, source) in [(20, Some(ba)), (20, None), (30_000, Some(ba)), (30_000, None)] {
        let into = room(len);
        let posted = w.post(b, source, 7, 0, &into);
        let sent = w.send_tagged(a, ab, 7, &pattern(len, 3));
        free(w, b, &into);
        assert!(into.to_vec() == pattern(len, 3), "something may still write");
        w.ok(b, posted);
        w.ok(a, sent);
    }
}

/// What an operation has is in use until it is complete, and soon not any more; free memory is not
/// touched.
pub fn operations(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    let remote = w.has(a, |c| c.remote_access).then(|| {
        let (_, key) = w.expose(b, &room(300_000), Access::ALL);
        w.import(a, &key)
    });
    for len in [8, 3000, 300_000] {
        if let Some(remote) = remote {
            let from = memory(&pattern(len, 1));
            let put = w.put(a, remote, 0, &from);
            free(w, a, &from);
            let into = room(len);
            let get = w.get(a, remote, 0, &into);
            w.ok(a, put);
            free(w, a, &into);
            let then = into.to_vec();
            w.ok(a, get);
            w.run_for(Duration::from_millis(1));
            assert!(into.to_vec() == then, "free memory was written");
        }
        if len <= w.capabilities(a).limits.max_message {
            let from = memory(&pattern(len, 2));
            let (payload, level) = (Payload::Memory(from.clone()), Level::Reusable);
            let sent = w.op(a, |token| Operation::Send { token, peer: ab, payload, level });
            free(w, a, &from);
            assert!(w.message(b).1 == pattern(len, 2));
            w.ok(a, sent);
        }
        let body = memory(&pattern(len, 3));
        let sent = send_long(w, a, ab, &body);
        let (_, _, name, _) = w.long(b);
        let by = used(w, a, &body);
        assert_eq!((by.token, by.peer), (Some(sent), Some(ab)), "{by}");
        let into = room(len);
        let received =
            w.op(b, |token| Operation::Receive { token, body: name, into: into.clone() });
        free(w, b, &into);
        assert!(into.to_vec() == pattern(len, 3), "something may still write");
        free(w, a, &body);
        w.ok(b, received);
        w.ok(a, sent);
    }
}

/// A region is in use until it is deregistered.
pub fn regions(w: &mut World) {
    let (a, b, ..) = w.pair();
    if !w.has(a, |c| c.remote_access) {
        return;
    }
    let theirs = room(5000);
    let (region, key) = w.expose(b, &theirs, Access::ALL);
    let remote = w.import(a, &key);
    assert_eq!(used(w, b, &theirs).token, None);
    let put = w.put(a, remote, 0, &memory(&pattern(5000, 4)));
    w.ok(a, put);
    let _ = used(w, b, &theirs.part(4999, 1).expect("within"));
    let closed =
        w.op(b, |token| Operation::Deregister { token, region, patience: Operation::PATIENCE });
    free(w, b, &theirs);
    w.ok(b, closed);
}

/// Operations with `b`, which does nothing, and their memory.
fn with_one_that_does_nothing(w: &mut World, a: Node, b: Node, ab: Peer) -> Vec<(Token, Slice)> {
    let remote = w.has(a, |c| c.remote_access).then(|| {
        let (_, key) = w.expose(b, &room(300_000), Access::ALL);
        w.import(a, &key)
    });
    // Connected by all that there is.
    w.inject(a, ab, b"x");
    w.message(b);
    w[b].frozen = true;
    let mut all = Vec::new();
    for len in [3000, 300_000] {
        let body = memory(&pattern(len, 5));
        all.push((send_long(w, a, ab, &body), body));
        if let Some(remote) = remote {
            let (from, into) = (memory(&pattern(len, 6)), room(len));
            all.push((w.put(a, remote, 0, &from), from));
            all.push((w.get(a, remote, 0, &into), into));
        }
        if w.capabilities(a).tagged != Support::None {
            let (from, level) = (memory(&pattern(len, 7)), Level::Visible);
            let payload = Payload::Memory(from.clone());
            let tagged = |token| Operation::SendTagged { token, peer: ab, tag: 3, payload, level };
            all.push((w.op(a, tagged), from));
        }
    }
    all
}

/// What waits for a peer that does nothing is in use when the patience is over, and the operation
/// is named. Memory of others is free. When the peer goes on, all becomes free.
pub fn a_stopped_peer(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    let all = with_one_that_does_nothing(w, a, b, ab);
    accepted(w, a);
    w.run_for(Duration::from_millis(3));
    let (token, body) = &all[0];
    let waited = drain(w, a, body, Duration::from_millis(2)).expect_err("its body is fetched");
    assert_eq!((waited.by.token, waited.by.peer), (Some(*token), Some(ab)), "{waited}");
    assert_eq!(drain(w, a, &memory(&[1]), Duration::ZERO), Ok(()));
    let open: Vec<Token> = w[a].ledger.outstanding().map(|(token, _)| token).collect();
    for (token, memory) in &all {
        let by = w[a].endpoint().in_use(memory).and_then(|used| used.token);
        assert!(by.is_none_or(|by| by == *token), "{by:?} has the memory of {token:?}");
        if open.contains(token) && by.is_none() {
            // A thread that drives may have completed it just now, and keeps the completion.
            assert!(w.capabilities(a).attended, "{token:?} may touch memory that is free");
            w.until("it has completed", |w| w[a].ledger.result(*token).is_some());
        }
    }
    w[b].frozen = false;
    for _ in 0..2 {
        let (_, _, body, _) = w.long(b);
        let discard = w.op(b, |token| Operation::Discard { token, body });
        w.ok(b, discard);
    }
    if w.capabilities(b).tagged != Support::None {
        for _ in 0..2 {
            let posted = w.post(b, None, 3, 0, &room(300_000));
            w.ok(b, posted);
        }
    }
    for (token, memory) in all {
        free(w, a, &memory);
        w.ok(a, token);
    }
}

/// What was under way with a peer that is killed becomes free: no operation has it any more, nor a
/// library that lets go of it.
pub fn a_killed_peer(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    let all = with_one_that_does_nothing(w, a, b, ab);
    w.run_for(Duration::from_millis(2));
    w.kill(b);
    w.until("b is lost", |w| w[a].lost.iter().any(|(lost, _)| *lost == ab));
    for (token, memory) in &all {
        if w.fixture().keeps_memory().is_none() {
            free(w, a, memory);
        } else if let Err(kept) = drain(w, a, memory, Duration::from_millis(100)) {
            assert_eq!(kept.by.token, None, "{token:?} is complete");
        }
    }
}

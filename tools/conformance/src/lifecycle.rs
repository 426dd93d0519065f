//! Peers that are late, never come, end, come back, and are forgotten.

use crate::world::{Node, World, memory, room};
use petasos_fabric::{
    Access, Address, InjectError, LostReason, OpErrorKind, Operation, Peer, PeerState, ResolveError,
};
use std::time::Duration;

fn lost(kind: &OpErrorKind) -> bool {
    matches!(kind, OpErrorKind::PeerLost(_))
}

fn until_lost(w: &mut World, n: Node, peer: Peer) -> LostReason {
    w.until("the peer is lost", |w| w[n].lost.iter().any(|(p, _)| *p == peer));
    let found = w[n].lost.iter().find(|(p, _)| *p == peer);
    found.map(|(_, reason)| reason.clone()).expect("just seen")
}

/// What is submitted to a peer that has not started waits for it.
pub fn late_peer(w: &mut World) {
    let a = w.open();
    let address = w.fixture().fresh();
    let peer = w.resolve(a, &address);
    let info = w[a].endpoint().peer(peer).expect("a handle just given");
    assert_eq!((info.state, info.address), (PeerState::Connecting, address.clone()));
    let sent = w.send(a, peer, b"are you there?");
    w.run_for(Duration::from_millis(30));
    assert!(w[a].ledger.result(sent).is_none());
    let b = w.open_at(&address);
    assert_eq!(w.message(b).1, b"are you there?");
    w.ok(a, sent);
    assert_eq!(w[a].ups.len(), 1);
    w.inject(a, peer, b"good");
    assert_eq!(w.message(b).1, b"good");
    assert!(w[b].messages.is_empty(), "the first message came twice");
}

/// A peer that never starts is lost when the patience ends, and all that waits says so.
pub fn peer_that_never_comes(w: &mut World) {
    let a = w.open();
    let address = w.fixture().fresh();
    // Before the first progress: patience counts from there, not from the clock's origin.
    let patience = Duration::from_millis(300);
    let begin = w.now();
    let peer = w[a].endpoint().resolve(&address, patience).expect("a handle");
    let mut waiting = vec![w.send(a, peer, b"hello?")];
    if w.has(a, |c| c.tagged) {
        let into = room(8);
        waiting.push(w.post(a, Some(peer), 0, 0, &into));
        waiting.push(w.send_tagged(a, peer, 0, b"hello?"));
    }
    w.run_for(Duration::from_millis(100));
    assert!(w[a].lost.is_empty(), "patience ended too soon");
    let reason = until_lost(w, a, peer);
    assert!(matches!(reason, LostReason::Unreachable(..)), "{reason:?}");
    let took = w.now().since(begin);
    assert!(took >= patience && took < patience + Duration::from_secs(5), "{took:?}");
    for token in waiting {
        let error = w.failure(a, token);
        assert!(lost(&error.kind) && error.peer == Some(address.clone()), "{error}");
    }
    assert_eq!(w.try_inject(a, peer, &[b"x"]), Err(InjectError::PeerLost));
    // It may be tried again.
    let again = w.resolve(a, &address);
    assert_ne!(again, peer);
    let b = w.open_at(&address);
    let sent = w.send(a, again, b"at last");
    assert_eq!(w.message(b).1, b"at last");
    w.ok(a, sent);
}

/// A peer that is to be running, and is not, is lost at once, where its system refuses the
/// connection: the patience is for one that is resolved without that.
pub fn peer_that_is_not_running(w: &mut World) {
    let refuses = w.fixture().refuses();
    // Longer than a probe may take: that it is over is not why the peer is lost.
    let patience = Duration::from_secs(if refuses { 3600 } else { 1 });
    let a = w.open();
    let running = |w: &mut World, address: &Address, patience| {
        w[a].endpoint().resolve_running(address, patience).expect("a handle")
    };
    let address = w.fixture().fresh();
    let peer = running(w, &address, patience);
    let sent = w.send(a, peer, b"hello?");
    let reason = until_lost(w, a, peer);
    let at_once = matches!(&reason, LostReason::Unreachable(waited, _) if waited.is_zero());
    assert!(at_once || !refuses, "{reason:?}");
    assert!(matches!(reason, LostReason::Unreachable(..)), "{reason:?}");
    let error = w.failure(a, sent);
    assert!(lost(&error.kind) && error.peer == Some(address.clone()), "{error}");
    // Once it runs it is found.
    let b = w.open_at(&address);
    let patience = w.patience();
    let peer = running(w, &address, patience);
    let sent = w.send(a, peer, b"at last");
    assert_eq!(w.message(b).1, b"at last");
    w.ok(a, sent);
    // It sees the same, in whichever process it is.
    let nowhere = w.fixture().fresh();
    let wait = Duration::from_secs(if refuses { 3600 } else { 1 });
    let lost = w[b].endpoint().resolve_running(&nowhere, wait).expect("a handle");
    let reason = until_lost(w, b, lost);
    let at_once = matches!(&reason, LostReason::Unreachable(waited, _) if waited.is_zero());
    assert!(at_once || !refuses, "{reason:?}");
    // One that is being waited for goes on being waited for.
    let late = w.fixture().fresh();
    let peer = w.resolve(a, &late);
    assert_eq!(running(w, &late, Duration::ZERO), peer);
    let sent = w.send(a, peer, b"are you there?");
    w.run_for(Duration::from_millis(30));
    assert!(w[a].lost.iter().all(|(lost, _)| *lost != peer), "{:?}", w[a].lost);
    assert_eq!(running(w, &late, Duration::ZERO), peer);
    let c = w.open_at(&late);
    assert_eq!(w.message(c).1, b"are you there?");
    w.ok(a, sent);
}

/// One address, one handle, as long as the peer is not lost.
pub fn one_handle(w: &mut World) {
    let (a, b, ab, ba) = w.pair();
    let (to_a, to_b) = (w.address(a), w.address(b));
    assert_eq!(w.resolve(a, &to_b), ab);
    assert_eq!(w.resolve(b, &to_a), ba, "also for peers that came to us");
    let info = w[a].endpoint().peer(ab).expect("a live peer");
    assert_eq!((info.state, info.address), (PeerState::Up, to_b));
    assert_eq!(info.incarnation, Some(w[b].endpoint().incarnation()));
}

/// Addresses of other transports are refused.
pub fn wrong_scheme(w: &mut World) {
    let a = w.open();
    assert_eq!(
        w.address(a).scheme(),
        w.capabilities(a).scheme,
        "an endpoint's own address has its scheme"
    );
    let other = Address::parse("no-such-transport://x").expect("an address");
    let patience = w.patience();
    let refused = w[a].endpoint().resolve(&other, patience);
    assert!(matches!(refused, Err(ResolveError::WrongScheme { .. })), "{refused:?}");
}

/// A killed peer is lost at the others; its handle stays, and stays lost.
pub fn killed_peer(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    let address = w.address(b);
    w.inject(a, ab, b"x");
    w.message(b);
    w.kill(b);
    until_lost(w, a, ab);
    let info = w[a].endpoint().peer(ab).expect("readable until forgotten");
    assert!(matches!(info.state, PeerState::Lost(_)));
    assert_eq!(info.address, address);
    assert_eq!(w.try_inject(a, ab, &[b"x"]), Err(InjectError::PeerLost));
    let sent = w.send(a, ab, b"x");
    let error = w.failure(a, sent);
    assert!(lost(&error.kind) && error.peer == Some(address), "{error}");
    w[a].endpoint().forget(ab);
    assert!(w[a].endpoint().peer(ab).is_none(), "forgotten");
}

/// What a peer sent before it ended is received, in front of the news.
pub fn last_messages(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    let sent: Vec<_> = (0..20u8).map(|i| w.send(a, ab, &[i; 200])).collect();
    for token in sent {
        // Delivered: it is at the other side's endpoint.
        w.ok(a, token);
    }
    w.kill(a);
    for i in 0..20u8 {
        assert_eq!(w.message(b).1, [i; 200]);
    }
    w.until("b sees the end", |w| w[b].lost.len() == 1);
}

/// A peer that comes back at its address is another: the old handle and keys do not reach it.
pub fn restart_at_the_same_address(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    let access = w.has(a, |c| c.remote_access);
    let address = w.address(b);
    let target = memory(&[0xEE; 4096]);
    let (_, old_key) = w.expose(b, &target, Access::ALL);
    let old_remote = access.then(|| w.import(a, &old_key));
    if let Some(remote) = old_remote {
        let put = w.put(a, remote, 0, &memory(&[1; 8]));
        w.ok(a, put);
    }
    let before = w[b].endpoint().incarnation();
    w.kill(b);
    // A peer that believes the old key to be valid, and waits for its owner.
    let waiting = w.open();
    let early = if access {
        let remote = w.import(waiting, &old_key);
        Some(w.put(waiting, remote, 0, &memory(&[9; 8])))
    } else {
        None
    };
    let b = w.open_at(&address);
    assert_ne!(w[b].endpoint().incarnation(), before);
    // In the place of the old region, if there is such a thing.
    let fresh = memory(&[0xEE; 4096]);
    let (_, new_key) = w.expose(b, &fresh, Access::ALL);
    until_lost(w, a, ab);
    assert_eq!(w.try_inject(a, ab, &[b"for the dead"]), Err(InjectError::PeerLost));
    let stale = |kind: &OpErrorKind| lost(kind) || *kind == OpErrorKind::StaleKey;
    if let Some(remote) = old_remote {
        let put = w.put(a, remote, 0, &memory(&[2; 8]));
        w.fails(a, put, stale);
    }
    let again = w.resolve(a, &address);
    assert_ne!(again, ab);
    let sent = w.send(a, again, b"for the living");
    assert_eq!(w.message(b).1, b"for the living");
    w.ok(a, sent);
    if !access {
        return;
    }
    // Now that the address is known as another's, the old key is refused here or there.
    if let Ok(remote) = w[a].endpoint().import(&old_key) {
        let put = w.put(a, remote, 0, &memory(&[3; 8]));
        w.fails(a, put, stale);
    }
    if let Some(put) = early {
        w.fails(waiting, put, stale);
    }
    // And by a peer that never knew the old one.
    let c = w.open();
    if let Ok(remote) = w[c].endpoint().import(&old_key) {
        let put = w.put(c, remote, 0, &memory(&[4; 8]));
        w.fails(c, put, stale);
    }
    assert_eq!(fresh.to_vec(), [0xEE; 4096], "an old key reached new memory");
    let remote = w.import(a, &new_key);
    let put = w.put(a, remote, 0, &memory(&[5; 8]));
    w.ok(a, put);
    assert_eq!(fresh.to_vec()[..8], [5; 8]);
}

/// Forgetting ends everything with a peer, silently here, and the other side sees a loss. The
/// two may meet again.
pub fn forgotten_peer(w: &mut World) {
    let (a, b, ab, ba) = w.pair();
    let address = w.address(b);
    w[b].frozen = true;
    let body = memory(&[1; 100_000]);
    let mut waiting = vec![w.op(a, |token| Operation::SendLong {
        token,
        peer: ab,
        header: bytes::Bytes::new(),
        body,
    })];
    if w.has(a, |c| c.tagged) {
        let into = room(8);
        waiting.push(w.post(a, Some(ab), 0, 0, &into));
    }
    w.until("all are accepted", |w| w.accepted(a));
    w[a].endpoint().forget(ab);
    for token in waiting {
        let error = w.failure(a, token);
        assert_eq!(error.kind, OpErrorKind::PeerLost(LostReason::Forgotten), "{error}");
        assert_eq!(error.peer, Some(address.clone()));
    }
    assert!(w[a].endpoint().peer(ab).is_none());
    assert_eq!(w.try_inject(a, ab, &[b"x"]), Err(InjectError::UnknownPeer));
    let sent = w.send(a, ab, b"x");
    w.fails(a, sent, |kind| *kind == OpErrorKind::UnknownPeer);
    w[b].frozen = false;
    until_lost(w, b, ba);
    assert!(w[a].lost.is_empty(), "no news of what one did oneself");
    let again = w.resolve(a, &address);
    let sent = w.send(a, again, b"let us try again");
    let (from, message) = w.message(b);
    assert_eq!(message, b"let us try again");
    assert_ne!(from, ba, "another connection, another handle");
    w.ok(a, sent);
}

/// Of a forgotten peer nothing is reported: neither what it had sent, nor that it came and is lost.
pub fn forgotten_and_silent(w: &mut World) {
    for passes in 0..12 {
        let (a, b) = (w.open(), w.open());
        let (of_a, of_b) = (w.address(a), w.address(b));
        let (ab, ba) = (w.resolve(a, &of_b), w.resolve(b, &of_a));
        // Little of what waits is reported at a time.
        w[a].frozen = true;
        let pass = |w: &mut World| {
            let _ = w.try_inject(b, ba, &[&[7; 100]]);
            w.run_for(Duration::from_micros(300));
            let (now, mut events) = (w.now(), Vec::new());
            w[a].endpoint().progress(now, 1, &mut events);
            events
        };
        (0..passes).for_each(|_| drop(pass(w)));
        w[a].endpoint().forget(ab);
        for _ in 0..12 {
            let events = pass(w);
            let of_it: Vec<_> = events.iter().filter(|event| event.peer() == Some(ab)).collect();
            assert!(of_it.is_empty(), "after {passes} passes: {of_it:?}");
        }
        w.kill(b);
        w.kill(a);
    }
}

/// Clients that come and go leave nothing behind that would use up the server.
pub fn many_lives(w: &mut World) {
    let server = w.open();
    let address = w.address(server);
    for i in 0..60u8 {
        let client = w.open();
        let peer = w.resolve(client, &address);
        let sent = w.send(client, peer, &[i]);
        assert_eq!(w.message(server).1, [i]);
        w.ok(client, sent);
        w.kill(client);
    }
    w.until("all losses are seen", |w| w[server].lost.len() == 60);
}

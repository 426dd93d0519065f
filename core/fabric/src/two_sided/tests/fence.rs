//! Fences: what waits for them, and the question of those that may be passed by another route.

use super::{
    flush::{flush, memory_of_peer, put, quick},
    *,
};
use crate::{InjectError, Level, Payload, two_sided::Released};

fn send(token: u64, peer: Peer) -> Operation {
    let payload = Payload::Bytes(token.to_le_bytes().to_vec().into());
    Operation::Send { token: Token(token), peer, payload, level: Level::Reusable }
}

/// A net of engines that carry out all.
fn in_order() -> Net {
    let mut config = small_config();
    config.in_order = true;
    Net::new(2, &config)
}

/// What goes on at the first engine, whose transport asks whether there are puts without an answer.
fn released(net: &mut Net) -> Vec<u64> {
    let mut tokens = Vec::new();
    while let Some(next) = net.engines[0].next_released(|_, puts| puts) {
        match next {
            Released::Operation(operation) => tokens.push(operation.token().0),
            Released::Handle(remote) => net.engines[0].release(remote),
        }
    }
    tokens
}

#[test]
fn without_fences_they_are_refused() {
    let mut net = Net::new(2, &small_config());
    let peer = net.peers[0][1];
    let done = net.finish(0, send(1, peer).fenced());
    assert!(matches!(done, Err(OpErrorKind::Unsupported(_))), "{done:?}");
    assert!(net.engines[0].try_submit(send(2, peer).fenced()).is_ok());
    net.settle();
    assert!(matches!(net.done(0, Token(2)), Some(Err(OpErrorKind::Unsupported(_)))));
    net.assert_clean();
}

#[test]
fn another_route_waits_for_the_answer_of_the_peer() {
    let mut net = Net::new(2, &small_config());
    let peer = net.peers[0][1];
    let (memory, remote) = memory_of_peer(&mut net, 1000, false);
    net.engines[0].submit(quick(1, remote, 1000));
    assert!(net.engines[0].defer(send(2, peer).fenced()).is_none());
    assert!(net.engines[0].defer(send(3, peer)).is_none());
    assert_eq!(net.engines[0].inject(peer, &[b"no"]), Err(InjectError::Full));
    assert_eq!(released(&mut net), [], "the put was not sent");
    // It is sent, and over at this side, and has not come.
    while net.step(0, 1, Step::Poll, 0) | net.step(0, 1, Step::Send, 0) {
        net.collect(0);
    }
    assert!(matches!(net.done(0, Token(1)), Some(Ok(Done::Put))));
    assert_eq!(released(&mut net), [], "it has not come");
    net.settle();
    assert_eq!(memory.to_vec(), bytes(1000, 1));
    assert_eq!(released(&mut net), [2, 3]);
    net.settle();
    let writable = |event: &Event| matches!(event, Event::Writable { .. });
    assert_eq!(net.events[0].iter().filter(|event| writable(event)).count(), 1);
    // Nothing is under way, and nothing is asked.
    let packets = net.engines[0].counters().packets_out;
    assert!(net.engines[0].defer(send(4, peer).fenced()).is_none());
    assert_eq!(released(&mut net), [4]);
    net.settle();
    assert_eq!(net.engines[0].counters().packets_out, packets);
    net.assert_clean();
}

#[test]
fn what_the_transport_carries_out_is_waited_for() {
    let mut net = Net::new(2, &small_config());
    let peer = net.peers[0][1];
    let (_, remote) = memory_of_peer(&mut net, 1000, false);
    let batch = net.engines[0].begin_access(peer);
    // Mapping, say.
    net.engines[0].begin_outside(peer);
    assert!(net.engines[0].defer(send(1, peer).fenced()).is_none());
    net.settle();
    assert_eq!(released(&mut net), []);
    net.engines[0].end_outside(peer);
    assert_eq!(released(&mut net), []);
    // The engine goes on with it, and it is the same access.
    net.engines[0].submit_counted(put(2, remote, 1000, Level::Visible, None), peer, batch);
    assert_eq!(released(&mut net), [], "it is under way");
    net.settle();
    assert!(matches!(net.done(0, Token(2)), Some(Ok(Done::Put))));
    assert_eq!(released(&mut net), [1]);
    net.assert_clean();
}

#[test]
fn a_refusal_that_a_fence_is_told_of_is_told_by_the_next_flush() {
    let mut net = Net::new(2, &small_config());
    let peer = net.peers[0][1];
    let (_, stale) = memory_of_peer(&mut net, 100, true);
    net.engines[0].submit(quick(1, stale, 100));
    assert!(net.engines[0].defer(send(2, peer).fenced()).is_none());
    // The question comes once the put is sent.
    for _ in 0..3 {
        net.settle();
        assert!(net.engines[0].is_deferring());
        if !released(&mut net).is_empty() {
            break;
        }
    }
    let told = net.finish(0, flush(3, peer));
    assert!(matches!(told, Err(OpErrorKind::StaleKey)), "{told:?}");
    assert!(matches!(net.finish(0, flush(4, peer)), Ok(Done::Flushed)));
}

#[test]
fn what_is_held_up_ends_with_the_peer() {
    for forget in [false, true] {
        let mut net = in_order();
        let peer = net.peers[0][1];
        let (_, remote) = memory_of_peer(&mut net, 100, false);
        let (header, body) = (bytes(10, 1).into(), Region::zeroed(10).whole());
        net.engines[0].submit(Operation::SendLong { token: Token(1), peer, header, body });
        for token in 2..50 {
            let operation = put(token, remote, 100, Level::Visible, None);
            assert!(net.engines[0].try_submit(operation.fenced()).is_ok());
        }
        net.engines[0].release(remote);
        net.settle();
        assert!(net.engines[0].imported(remote).is_some(), "it is needed");
        match forget {
            true => net.engines[0].forget(peer),
            false => net.cut(0, 1),
        }
        net.settle();
        for token in 1..50 {
            let done = net.done(0, Token(token));
            assert!(matches!(done, Some(Err(OpErrorKind::PeerLost(_)))), "{token}: {done:?}");
        }
        assert!(net.engines[0].imported(remote).is_none(), "the key was released");
        assert!(!net.engines[0].is_deferring() && !net.engines[0].has_released());
        if !forget {
            net.assert_clean();
        }
    }
}

//! Flushes: what they wait for, and which refusals they tell.

use super::{access::span, *};
use crate::Level;
use smallvec::smallvec;

pub(super) fn put(
    token: u64,
    remote: Remote,
    len: usize,
    level: Level,
    event: Option<u64>,
) -> Operation {
    let local = smallvec![Region::from(bytes(len, token as u8)).whole()];
    let spans = smallvec![span(0, len as u64)];
    Operation::Put { token: Token(token), remote, local, spans, level, event }
}

pub(super) fn quick(token: u64, remote: Remote, len: usize) -> Operation {
    put(token, remote, len, Level::Reusable, None)
}

pub(super) fn flush(token: u64, peer: Peer) -> Operation {
    Operation::Flush { token: Token(token), peer }
}

/// Memory of the second engine that the first one knows; closed already if it is `stale`.
pub(super) fn memory_of_peer(net: &mut Net, len: usize, stale: bool) -> (Region, Remote) {
    let memory = Region::zeroed(len);
    let (region, remote) = net.share(1, 0, &memory, Access::ALL);
    if stale {
        let patience = Operation::PATIENCE;
        let done =
            net.finish(1, Operation::Deregister { token: Token(u64::MAX), region, patience });
        assert!(matches!(done, Ok(Done::Deregistered)));
    }
    (memory, remote)
}

fn refusals(net: &mut Net) -> usize {
    let before = net.events[0].len();
    net.events[0].retain(|event| !matches!(event, Event::PutRefused { .. }));
    before - net.events[0].len()
}

#[test]
fn a_put_is_there_when_its_flush_completes() {
    let mut net = Net::new(2, &small_config());
    let (memory, remote) = memory_of_peer(&mut net, 5_000, false);
    let peer = net.peers[0][1];
    for (token, len) in [(1, 1), (2, 256), (3, 257), (4, 5_000)] {
        net.engines[0].submit(quick(token, remote, len));
        net.engines[0].submit(flush(10 + token, peer));
        let result = loop {
            // The flush is looked for after each step of either side.
            let mut moved = false;
            for (a, b) in [(0, 1), (1, 0)] {
                for step in [Step::Poll, Step::Send, Step::Accept, Step::Land] {
                    moved |= net.step(a, b, step, usize::MAX);
                    moved |= net.collect(0);
                }
            }
            if let Some(result) = net.done(0, Token(10 + token)) {
                break result;
            }
            assert!(moved, "the flush of {len} bytes hangs");
        };
        assert!(matches!(result, Ok(Done::Flushed)));
        assert!(memory.to_vec()[..len] == bytes(len, token as u8));
        net.settle();
        assert!(matches!(net.done(0, Token(token)), Some(Ok(Done::Put))));
    }
    net.assert_clean();
}

#[test]
fn nothing_is_asked_without_need() {
    let mut net = Net::new(2, &small_config());
    let (_, remote) = memory_of_peer(&mut net, 100, false);
    let peer = net.peers[0][1];
    assert!(matches!(net.finish(0, put(1, remote, 100, Level::Delivered, None)), Ok(Done::Put)));
    let packets = net.engines[0].counters().packets_out;
    assert!(matches!(net.finish(0, flush(2, peer)), Ok(Done::Flushed)));
    assert_eq!(net.engines[0].counters().packets_out, packets, "all was answered");
    assert!(matches!(net.finish(0, quick(3, remote, 100)), Ok(Done::Put)));
    for (token, asked) in [(4, 1), (5, 0)] {
        let packets = net.engines[0].counters().packets_out;
        assert!(matches!(net.finish(0, flush(token, peer)), Ok(Done::Flushed)));
        assert_eq!(net.engines[0].counters().packets_out, packets + asked);
    }
    net.assert_clean();
}

#[test]
fn each_refusal_belongs_to_one_flush() {
    let mut net = Net::new(2, &small_config());
    let (_, good) = memory_of_peer(&mut net, 1_000, false);
    let (_, stale) = memory_of_peer(&mut net, 1_000, true);
    let peer = net.peers[0][1];
    // A get holds the first question back, so that the put behind it is sent before.
    let into = Region::zeroed(1_000);
    let get = |token, remote| Operation::Get {
        token: Token(token),
        remote,
        local: smallvec![into.whole()],
        spans: smallvec![span(0, 1_000)],
    };
    let all = [
        quick(1, good, 700),
        get(2, good),
        flush(100, peer),
        quick(3, stale, 8),
        quick(4, stale, 700),
        flush(101, peer),
        put(5, stale, 700, Level::Reusable, Some(7)),
        flush(102, peer),
        quick(6, good, 8),
        put(7, stale, 8, Level::Visible, None),
        flush(103, peer),
        get(8, stale),
        flush(104, peer),
        flush(105, peer),
    ];
    for operation in all {
        net.engines[0].submit(operation);
    }
    net.settle();
    for (token, good) in
        [(100, true), (101, false), (102, false), (103, false), (104, false), (105, true)]
    {
        match net.done(0, Token(token)) {
            Some(Ok(Done::Flushed)) => assert!(good, "flush {token} tells of no refusal"),
            Some(Err(OpErrorKind::StaleKey)) => assert!(!good, "flush {token} tells of a refusal"),
            other => panic!("flush {token}: {other:?}"),
        }
    }
    // Those that completed before: three puts.
    for token in [1, 3, 4, 5, 6] {
        assert!(matches!(net.done(0, Token(token)), Some(Ok(Done::Put))), "{token}");
    }
    assert!(refusals(&mut net) > 0);
    for token in [7, 8] {
        assert!(matches!(net.done(0, Token(token)), Some(Err(OpErrorKind::StaleKey))));
    }
    assert!(matches!(net.done(0, Token(2)), Some(Ok(Done::Got))));
    net.assert_clean();
}

#[test]
fn a_put_with_event_that_completed_is_told_as_refused() {
    let mut net = Net::new(2, &small_config());
    let (_, stale) = memory_of_peer(&mut net, 100, true);
    let done = net.finish(0, put(1, stale, 100, Level::Reusable, Some(1)));
    assert!(matches!(done, Ok(Done::Put)));
    assert_eq!(refusals(&mut net), 1);
    net.assert_clean();
}

#[test]
fn refused_at_home() {
    let mut net = Net::new(2, &small_config());
    let (_, remote) = memory_of_peer(&mut net, 10, false);
    let peer = net.peers[0][1];
    for operation in [quick(1, remote, 11), flush(2, peer), flush(3, peer)] {
        net.engines[0].submit(operation);
    }
    net.settle();
    let out = |result| matches!(result, Some(Err(OpErrorKind::OutOfBounds { .. })));
    assert!(out(net.done(0, Token(1))) && out(net.done(0, Token(2))));
    assert!(matches!(net.done(0, Token(3)), Some(Ok(Done::Flushed))));
    net.assert_clean();
}

#[test]
fn cancelled_and_lost() {
    let mut net = Net::new(2, &small_config());
    let (_, good) = memory_of_peer(&mut net, 1_000, false);
    let (_, stale) = memory_of_peer(&mut net, 1_000, true);
    let peer = net.peers[0][1];
    // Before its question is sent, and after.
    for steps in [0, 40] {
        for operation in [quick(1, good, 900), quick(2, stale, 900), flush(3, peer)] {
            net.engines[0].submit(operation);
        }
        for _ in 0..steps {
            net.step(0, 1, Step::Poll, 0);
            net.step(0, 1, Step::Send, 0);
        }
        net.engines[0].cancel(Token(3));
        net.collect(0);
        assert!(matches!(net.done(0, Token(3)), Some(Err(OpErrorKind::Cancelled))));
        let told = net.finish(0, flush(4, peer));
        assert!(matches!(told, Err(OpErrorKind::StaleKey)), "{told:?}");
        assert!(matches!(net.finish(0, flush(5, peer)), Ok(Done::Flushed)));
        net.done(0, Token(1)).unwrap().unwrap();
        net.done(0, Token(2)).unwrap().unwrap();
    }
    net.assert_clean();
    for operation in [quick(1, good, 900), flush(2, peer), quick(3, good, 8), flush(4, peer)] {
        net.engines[0].submit(operation);
    }
    net.cut(0, 1);
    net.settle();
    for token in [2, 4] {
        let lost = net.done(0, Token(token));
        assert!(matches!(lost, Some(Err(OpErrorKind::PeerLost(_)))), "{lost:?}");
    }
    net.assert_clean();
}

#[test]
fn accesses_of_the_transport_count() {
    let mut net = Net::new(2, &small_config());
    let (_, good) = memory_of_peer(&mut net, 100, false);
    let peer = net.peers[0][1];
    let first = net.engines[0].begin_access(peer);
    net.engines[0].submit(flush(1, peer));
    let second = net.engines[0].begin_access(peer);
    net.engines[0].submit(flush(2, peer));
    net.engines[0].submit(flush(3, peer));
    net.engines[0].end_access(peer, second, Some(&OpErrorKind::StaleKey));
    net.settle();
    assert!(net.events[0].is_empty(), "the first access is not over");
    // The engine goes on with it.
    net.engines[0].submit_counted(quick(9, good, 100), peer, first);
    net.settle();
    assert!(matches!(net.done(0, Token(1)), Some(Ok(Done::Flushed))));
    assert!(matches!(net.done(0, Token(2)), Some(Err(OpErrorKind::StaleKey))));
    assert!(matches!(net.done(0, Token(3)), Some(Ok(Done::Flushed))));
    assert!(matches!(net.done(0, Token(9)), Some(Ok(Done::Put))));
    // What is refused before it is counted, and what was cancelled.
    net.engines[0].refuse_access(peer, &OpErrorKind::UnknownRegion);
    let cancelled = net.engines[0].begin_access(peer);
    net.engines[0].end_access(peer, cancelled, Some(&OpErrorKind::Cancelled));
    let told = net.finish(0, flush(4, peer));
    assert!(matches!(told, Err(OpErrorKind::UnknownRegion)));
    // The loss of the peer ends a flush, and not an access that ends by it.
    let lost = net.engines[0].begin_access(peer);
    net.engines[0].submit(flush(5, peer));
    let reason = LostReason::Closed;
    net.engines[0].end_access(peer, lost, Some(&OpErrorKind::PeerLost(reason)));
    net.settle();
    assert!(net.done(0, Token(5)).is_none());
    net.cut(0, 1);
    net.settle();
    assert!(matches!(net.done(0, Token(5)), Some(Err(OpErrorKind::PeerLost(_)))));
    net.engines[0].end_access(peer, lost, None);
    net.assert_clean();
}

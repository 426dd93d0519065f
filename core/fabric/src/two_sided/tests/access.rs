//! Put, get, atomics, and the end of registrations.

use super::*;
use crate::{AtomicOp, AtomicType, ImportError, Level, RemoteSpan, Slices, Spans, Time};
use smallvec::{SmallVec, smallvec};
use std::time::Duration;

pub(super) fn span(offset: u64, len: u64) -> RemoteSpan {
    RemoteSpan { offset, len }
}

pub(super) fn put(
    token: u64,
    remote: Remote,
    local: Slices,
    spans: Spans,
    event: Option<u64>,
) -> Operation {
    let level = Level::Visible;
    Operation::Put { token: Token(token), remote, local, spans, level, event }
}

pub(super) fn get(token: u64, remote: Remote, local: Slices, spans: Spans) -> Operation {
    Operation::Get { token: Token(token), remote, local, spans }
}

#[test]
fn put_and_get_in_pieces_and_whole() {
    for owner in [0, 1] {
        let mut net = Net::new(2, &small_config());
        let memory = Region::zeroed(20_000);
        let (_, remote) = net.share(owner, 0, &memory, Access::ALL);
        let data = bytes(15_000, 9);
        let source = Region::from(data.clone());
        let local: Slices = smallvec![
            source.slice(0, 1).unwrap(),
            source.slice(1, 0).unwrap(),
            source.slice(1, 9_999).unwrap(),
            source.slice(10_000, 5_000).unwrap(),
        ];
        let spans: Spans =
            smallvec![span(5_000, 7_000), span(0, 3), span(9, 0), span(12_003, 7_997)];
        let done = net.finish(0, put(1, remote, local, spans.clone(), Some(77)));
        assert!(matches!(done, Ok(Done::Put)));
        let now = memory.to_vec();
        assert!(now[5_000..12_000] == data[..7_000] && now[..3] == data[7_000..7_003]);
        assert!(now[12_003..] == data[7_003..] && now[3..5_000].iter().all(|b| *b == 0));
        let arrived = net.events[owner].iter().any(|event| {
            matches!(event, Event::PutArrived { offset: 5_000, len: 15_000, data: 77, .. })
        });
        assert!(arrived);
        let back = Region::zeroed(15_000);
        let pieces = smallvec![back.slice(0, 8_000).unwrap(), back.slice(8_000, 7_000).unwrap()];
        assert!(matches!(net.finish(0, get(2, remote, pieces, spans)), Ok(Done::Got)));
        assert!(back.to_vec() == data);
        net.assert_clean();
    }
}

#[test]
fn empty_transfers_complete() {
    let mut net = Net::new(2, &small_config());
    let (_, remote) = net.share(1, 0, &Region::zeroed(8), Access::ALL);
    let done = net.finish(0, put(1, remote, smallvec![], smallvec![], Some(5)));
    assert!(matches!(done, Ok(Done::Put)));
    assert!(net.events[1].iter().any(|e| matches!(e, Event::PutArrived { len: 0, data: 5, .. })));
    let done = net.finish(0, get(2, remote, smallvec![], smallvec![span(8, 0)]));
    assert!(matches!(done, Ok(Done::Got)));
    net.assert_clean();
}

#[test]
fn what_is_refused_at_home() {
    let mut net = Net::new(2, &small_config());
    let (_, readable) = net.share(1, 0, &Region::zeroed(100), Access::READ);
    let local = || -> Slices { smallvec![Region::zeroed(50).whole()] };
    let error = net.finish(0, put(1, readable, local(), smallvec![span(0, 50)], None));
    assert!(matches!(error, Err(OpErrorKind::Denied { .. })));
    for bad in [span(51, 50), span(u64::MAX, 50), span(0, u64::MAX)] {
        let error = net.finish(0, get(1, readable, local(), smallvec![bad]));
        assert!(matches!(error, Err(OpErrorKind::OutOfBounds { .. })));
    }
    let error = net.finish(0, get(1, readable, local(), smallvec![span(0, 49)]));
    assert!(matches!(error, Err(OpErrorKind::LengthMismatch { .. })));
    net.engines[0].release(readable);
    let error = net.finish(0, get(1, readable, local(), smallvec![span(0, 50)]));
    assert_eq!(error.unwrap_err(), OpErrorKind::UnknownRegion);
    net.assert_clean();
}

#[test]
fn what_the_owner_refuses() {
    // Keys that claim more than was granted, or name what is not there.
    let mut net = Net::new(2, &small_config());
    let memory = Region::zeroed(100);
    let region = net.engines[1].register(&memory.whole(), Access::READ).unwrap();
    let parts = net.engines[1].key_parts(region).unwrap();
    let mut try_with = |change: &dyn Fn(&mut crate::key::KeyParts), writes: bool| {
        let mut parts = parts.clone();
        change(&mut parts);
        let remote = net.engines[0].import(parts, net.peers[0][1]).unwrap();
        let local: Slices = smallvec![Region::zeroed(50).whole()];
        let spans: Spans = smallvec![span(60, 50)];
        net.finish(
            0,
            if writes {
                put(1, remote, local, spans, Some(1))
            } else {
                get(1, remote, local, spans)
            },
        )
    };
    let denied = try_with(&|parts| (parts.access, parts.len) = (Access::ALL, 1000), true);
    assert!(matches!(denied, Err(OpErrorKind::Denied { .. })));
    let beyond = try_with(&|parts| parts.len = 1000, false);
    assert!(matches!(beyond, Err(OpErrorKind::OutOfBounds { .. })));
    for at in [0, 4, 8, 15] {
        let stale = try_with(
            &|parts| {
                parts.len = 1000;
                let mut route = parts.routes[0].1.to_vec();
                route[at] ^= 1;
                parts.routes[0].1 = route.into();
            },
            false,
        );
        assert_eq!(stale.unwrap_err(), OpErrorKind::StaleKey);
    }
    assert!(!net.events[1].iter().any(|e| matches!(e, Event::PutArrived { .. })));
    let mut other = parts.clone();
    other.incarnation = Incarnation::random();
    let stale = net.engines[0].import(other, net.peers[0][1]);
    assert!(matches!(stale, Err(ImportError::Stale(_))));
    assert!(net.engines[1].counters().refused >= 6);
    net.assert_clean();
}

#[test]
fn a_put_of_which_a_part_was_refused_fails_as_a_whole() {
    let mut net = Net::new(2, &small_config());
    let memory = Region::zeroed(100);
    let region = net.engines[1].register(&memory.whole(), Access::WRITE).unwrap();
    let mut parts = net.engines[1].key_parts(region).unwrap();
    parts.len = 1000;
    let remote = net.engines[0].import(parts, net.peers[0][1]).unwrap();
    let local = smallvec![Region::from(bytes(20, 1)).whole()];
    let spans = smallvec![span(95, 10), span(0, 10)];
    let done = net.finish(0, put(1, remote, local, spans, Some(1)));
    assert!(matches!(done, Err(OpErrorKind::OutOfBounds { .. })));
    assert!(net.events[1].is_empty(), "no event of a put that failed");
    net.assert_clean();
}

#[test]
fn atomics_fetch_and_compare() {
    let mut net = Net::new(2, &small_config());
    let memory = Region::zeroed(64);
    let (_, remote) = net.share(1, 0, &memory, Access::ATOMIC);
    let mut atomic = |op, offset, operand: u64, compare: u64, fetch| {
        let operation = Operation::Atomic {
            token: Token(1),
            remote,
            offset,
            op,
            kind: AtomicType::U64,
            operand: SmallVec::from_slice(&operand.to_le_bytes()),
            compare: SmallVec::from_slice(&compare.to_le_bytes()),
            fetch,
        };
        net.finish(0, operation)
    };
    assert!(matches!(atomic(AtomicOp::Sum, 8, 40, 0, false), Ok(Done::Atomic)));
    let old = |done| match done {
        Ok(Done::Fetched(old)) => u64::from_le_bytes(old[..].try_into().unwrap()),
        other => panic!("{other:?}"),
    };
    assert_eq!(old(atomic(AtomicOp::Sum, 8, 2, 0, true)), 40);
    assert_eq!(old(atomic(AtomicOp::CompareSwap, 8, 5, 41, true)), 42);
    assert_eq!(old(atomic(AtomicOp::CompareSwap, 8, 5, 42, true)), 42);
    assert_eq!(old(atomic(AtomicOp::Read, 8, 0, 0, true)), 5);
    let bad = atomic(AtomicOp::Sum, 4, 1, 0, true);
    assert!(matches!(bad, Err(OpErrorKind::Misaligned { offset: 4, align: 8 })));
    let bad = atomic(AtomicOp::Sum, 64, 1, 0, true);
    assert!(matches!(bad, Err(OpErrorKind::OutOfBounds { .. })));
    net.assert_clean();
}

#[test]
fn deregistering_waits_for_what_is_under_way_and_no_longer() {
    let mut net = Net::new(2, &small_config());
    let memory = Region::zeroed(10_000);
    let (region, remote) = net.share(1, 0, &memory, Access::ALL);
    let local: Slices = smallvec![Region::from(bytes(10_000, 1)).whole()];
    net.engines[0].submit(put(1, remote, local.clone(), smallvec![span(0, 10_000)], Some(1)));
    for step in [Step::Poll, Step::Send, Step::Accept, Step::Write] {
        assert!(net.step(0, 1, step, 10));
    }
    let deregister =
        Operation::Deregister { token: Token(9), region, patience: Operation::PATIENCE };
    net.engines[1].submit(deregister);
    net.collect(1);
    assert!(net.done(1, Token(9)).is_none(), "a payload is being placed");
    net.step(0, 1, Step::Land, 0);
    net.collect(1);
    assert!(matches!(net.done(1, Token(9)), Some(Ok(Done::Deregistered))));
    let before = memory.to_vec();
    net.settle();
    assert_eq!(net.done(0, Token(1)).unwrap().unwrap_err(), OpErrorKind::StaleKey);
    assert!(memory.to_vec() == before, "nothing lands after it completed");
    assert!(!net.events[1].iter().any(|e| matches!(e, Event::PutArrived { .. })));
    assert_eq!(
        net.finish(
            1,
            Operation::Deregister { token: Token(9), region, patience: Operation::PATIENCE }
        )
        .unwrap_err(),
        OpErrorKind::UnknownRegion
    );
    assert!(net.engines[1].export(region).is_err());

    // A get whose answer is being read from memory.
    let (region, remote) = net.share(1, 0, &memory, Access::ALL);
    net.engines[0].submit(get(2, remote, local, smallvec![span(0, 10_000)]));
    for step in [Step::Poll, Step::Send, Step::Accept, Step::Land] {
        assert!(net.step(0, 1, step, 0));
    }
    assert!(net.step(1, 0, Step::Poll, 0));
    net.engines[1].submit(Operation::Deregister {
        token: Token(9),
        region,
        patience: Operation::PATIENCE,
    });
    net.collect(1);
    assert!(net.done(1, Token(9)).is_none(), "a fragment is being read");
    net.step(1, 0, Step::Send, 0);
    net.collect(1);
    assert!(matches!(net.done(1, Token(9)), Some(Ok(Done::Deregistered))));
    net.settle();
    assert_eq!(net.done(0, Token(2)).unwrap().unwrap_err(), OpErrorKind::StaleKey);
    net.assert_clean();
}

/// A payload that comes in and a fragment that goes out, both with the memory of a region that is
/// closed. Time stands still until it is told.
#[test]
fn a_region_that_stays_reached_is_kept_and_may_be_closed_again() {
    let mut net = Net::new(2, &small_config());
    let memory = Region::from(bytes(1000, 1));
    let (region, remote) = net.share(1, 0, &memory, Access::ALL);
    let local: Slices = smallvec![Region::from(bytes(200, 2)).whole()];
    net.engines[0].submit(put(1, remote, local, smallvec![span(0, 200)], None));
    for step in [Step::Poll, Step::Send, Step::Accept, Step::Write] {
        assert!(net.step(0, 1, step, 10));
    }
    let close = |token, millis| Operation::Deregister {
        token: Token(token),
        region,
        patience: Duration::from_millis(millis),
    };
    let at = |millis: u64| Time(millis * 1_000_000);
    for (token, begin) in [(7, 1000), (8, 5000)] {
        net.engines[1].submit(close(token, 300));
        assert!(net.engines[1].is_closing());
        net.engines[1].keep_time(at(begin));
        assert_eq!(net.engines[1].deadline(), at(begin + 300));
        // Another one while this one waits.
        net.engines[1].submit(close(9, 300));
        net.collect(1);
        let refused = net.done(1, Token(9)).expect("at once");
        assert_eq!(refused.unwrap_err(), OpErrorKind::UnknownRegion);
        net.engines[1].keep_time(at(begin + 299));
        net.collect(1);
        assert!(net.done(1, Token(token)).is_none(), "there is time left");
        net.engines[1].keep_time(at(begin + 300));
        assert_eq!(net.engines[1].deadline(), Time::NEVER);
        let named = Address::parse("test://0").unwrap();
        let mut events = Vec::new();
        net.engines[1].take_events(10, &mut events);
        let told = events.iter().any(|event| {
            matches!(event, Event::Done { token: of, result: Err(error) }
                if of.0 == token
                    && error.kind == OpErrorKind::StillReached
                    && error.peer.as_ref() == Some(&named))
        });
        assert!(told, "{events:?}");
        assert!(net.engines[1].export(region).is_err(), "no access begins");
    }
    let memory = memory.into_exclusive().expect_err("it is held");
    net.step(0, 1, Step::Land, 0);
    // It is not awaited: it is held until it is asked for again.
    let memory = memory.into_exclusive().expect_err("it is held");
    assert!(matches!(net.finish(1, close(10, 0)), Ok(Done::Deregistered)));
    assert!(memory.into_exclusive().is_ok());
    net.assert_clean();
}

/// A transport that moves the bytes itself takes the memory out of its packets, and waits for no
/// peer.
#[test]
fn memory_is_taken_out_of_packets_that_are_under_way() {
    let mut net = Net::new(2, &small_config());
    let memory = Region::from(bytes(1000, 1));
    let (region, remote) = net.share(1, 0, &memory, Access::ALL);
    let local: Slices = smallvec![Region::from(bytes(200, 2)).whole()];
    let into = Region::zeroed(200);
    net.engines[0].submit(put(1, remote, local, smallvec![span(0, 200)], Some(3)));
    for step in [Step::Poll, Step::Send, Step::Accept] {
        assert!(net.step(0, 1, step, 0));
    }
    net.step(0, 1, Step::Write, 50);
    let open = net.share(1, 0, &memory, Access::ALL);
    net.divert(0, 1);
    assert!(net.step(0, 1, Step::Land, 0), "an open region is left alone");
    net.settle();
    assert!(net.done(0, Token(1)).unwrap().is_ok());

    let before = memory.to_vec();
    let local: Slices = smallvec![Region::from(bytes(200, 9)).whole()];
    net.engines[0].submit(put(1, remote, local, smallvec![span(300, 200)], Some(3)));
    for step in [Step::Poll, Step::Send, Step::Accept] {
        assert!(net.step(0, 1, step, 0));
    }
    net.engines[0].submit(get(2, open.1, smallvec![into.whole()], smallvec![span(0, 200)]));
    let close = |token, region| Operation::Deregister {
        token: Token(token),
        region,
        patience: Operation::PATIENCE,
    };
    net.engines[1].submit(close(7, region));
    net.collect(1);
    assert!(net.done(1, Token(7)).is_none(), "a payload is on its way");
    net.divert(0, 1);
    net.collect(1);
    assert!(matches!(net.done(1, Token(7)), Some(Ok(Done::Deregistered))));
    net.step(0, 1, Step::Write, 100);
    net.step(0, 1, Step::Land, 0);
    assert!(memory.to_vec() == before, "nothing has landed");

    // The answer to the get: what it says is what was there when the region was closed.
    for step in [Step::Poll, Step::Send, Step::Accept, Step::Land] {
        assert!(net.step(0, 1, step, 0));
    }
    while !net.holds_memory(1, 0) {
        assert!(net.step(1, 0, Step::Poll, 0) || net.step(1, 0, Step::Send, 0));
    }
    net.engines[1].submit(close(8, open.0));
    net.collect(1);
    assert!(net.done(1, Token(8)).is_none(), "a packet has its memory");
    net.detach(1, 0);
    net.collect(1);
    assert!(matches!(net.done(1, Token(8)), Some(Ok(Done::Deregistered))));
    let mut memory = memory.into_exclusive().expect("nothing holds it");
    memory.fill(0);
    net.settle();
    assert_eq!(net.done(0, Token(1)).unwrap().unwrap_err(), OpErrorKind::StaleKey);
    assert!(net.done(0, Token(2)).unwrap().is_ok(), "all of it was there");
    assert!(into.to_vec() == before[..200]);
    net.assert_clean();
}

#[test]
fn a_cancelled_get_leaves_its_memory_alone() {
    let mut net = Net::new(2, &small_config());
    let memory = Region::from(bytes(10_000, 1));
    let (_, remote) = net.share(1, 0, &memory, Access::READ);
    let into = Region::zeroed(10_000);
    net.engines[0].submit(get(1, remote, smallvec![into.whole()], smallvec![span(0, 10_000)]));
    for (a, b, step) in [
        (0, 1, Step::Poll),
        (0, 1, Step::Send),
        (0, 1, Step::Accept),
        (0, 1, Step::Land),
        (1, 0, Step::Poll),
        (1, 0, Step::Send),
        (1, 0, Step::Accept),
        (1, 0, Step::Write),
    ] {
        assert!(net.step(a, b, step, 10));
    }
    net.engines[0].cancel(Token(1));
    net.collect(0);
    assert!(net.done(0, Token(1)).is_none(), "a payload is being placed");
    net.step(1, 0, Step::Land, 0);
    net.collect(0);
    assert_eq!(net.done(0, Token(1)).unwrap().unwrap_err(), OpErrorKind::Cancelled);
    assert!(into.into_exclusive().is_ok(), "the memory is the user's again");
    net.settle();
    assert!(net.engines[0].counters().discarded > 0);
    net.assert_clean();
}

#[test]
fn many_gets_keep_to_the_credits() {
    let mut net = Net::new(2, &small_config());
    let memory = Region::from(bytes(2_000, 1));
    let (_, remote) = net.share(1, 0, &memory, Access::READ);
    let into: Vec<Region> = (0..1_000).map(|_| Region::zeroed(2_000)).collect();
    for (i, into) in into.iter().enumerate() {
        net.engines[0].submit(get(
            i as u64,
            remote,
            smallvec![into.whole()],
            smallvec![span(0, 2_000)],
        ));
    }
    let mut most = 0;
    while net.step(0, 1, Step::Poll, 0) {
        net.step(0, 1, Step::Send, 0);
        most += 1;
    }
    assert_eq!(most, crate::two_sided::MAX_REQUESTS);
    net.settle();
    for (i, into) in into.iter().enumerate() {
        assert!(matches!(net.done(0, Token(i as u64)), Some(Ok(Done::Got))));
        assert!(into.to_vec() == bytes(2_000, 1));
    }
    net.assert_clean();
}

#[test]
fn small_messages_pass_bulk_data() {
    let mut net = Net::new(2, &small_config());
    let memory = Region::zeroed(100_000);
    let (_, remote) = net.share(1, 0, &memory, Access::WRITE);
    let local = smallvec![Region::zeroed(100_000).whole()];
    net.engines[0].submit(put(1, remote, local, smallvec![span(0, 100_000)], None));
    net.step(0, 1, Step::Poll, 0);
    net.step(0, 1, Step::Send, 0);
    let peer = net.peers[0][1];
    for _ in 0..100 {
        net.engines[0].inject(peer, &[b"now"]).unwrap();
    }
    let mut sizes = Vec::new();
    while let Some(packet) = net.engines[0].poll_transmit(peer) {
        sizes.push(packet.payload.len());
        net.engines[0].sent(peer);
    }
    let last = sizes.iter().rposition(|len| *len == 3).unwrap();
    assert!(last < 120, "messages wait behind {last} packets");
    assert!(sizes[..30].contains(&256), "bulk has its turn");
}

//! Messages that wait for leases, and what does not wait for them.

use super::*;
use crate::{AtomicOp, AtomicType, Lease, Level, Payload, PeerQuota, RemoteSpan};
use bytes::Bytes;
use smallvec::{SmallVec, smallvec};

const LEN: usize = Lease::LINES + 1;

fn message(number: u32) -> Bytes {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(LEN, 7);
    bytes.into()
}

fn send(net: &mut Net, a: usize, b: usize, number: u32) {
    let (peer, level) = (net.peers[a][b], Level::Reusable);
    let (token, payload) = (Token(u64::MAX - u64::from(number)), Payload::Bytes(message(number)));
    net.engines[a].submit(Operation::Send { token, peer, payload, level });
}

/// The messages that came to `a` from `b`, which their program holds.
fn take(net: &mut Net, a: usize, b: usize) -> Vec<Lease> {
    let from = net.peers[a][b];
    let events = std::mem::take(&mut net.events[a]);
    let is = |event: &Event| matches!(event, Event::Message { peer, .. } if *peer == from);
    let (messages, rest) = events.into_iter().partition::<Vec<_>, _>(is);
    net.events[a] = rest;
    let lease = |event| match event {
        Event::Message { message, .. } => message,
        _ => unreachable!(),
    };
    messages.into_iter().map(lease).collect()
}

fn numbers(leases: &[Lease]) -> Vec<u32> {
    leases.iter().map(|lease| u32::from_le_bytes(lease[..4].try_into().unwrap())).collect()
}

/// All accesses from `a` to memory of `b`, in both directions of data: they complete.
fn access(net: &mut Net, a: usize, b: usize) {
    let memory = Region::zeroed(3000);
    let (_, remote) = net.share(b, a, &memory, Access::ALL);
    let data = bytes(2000, 3);
    let spans: crate::Spans = smallvec![RemoteSpan { offset: 8, len: 2000 }];
    let (token, level) = (Token(1), Level::Visible);
    let local = smallvec![Region::from(data.clone()).whole()];
    let put = Operation::Put { token, remote, local, spans: spans.clone(), level, event: None };
    assert!(matches!(net.finish(a, put), Ok(Done::Put)));
    let into = Region::zeroed(2000);
    let local = smallvec![into.whole()];
    let get = Operation::Get { token, remote, local, spans };
    assert!(matches!(net.finish(a, get), Ok(Done::Got)));
    assert!(into.to_vec() == data);
    let sum = Operation::Atomic {
        token,
        remote,
        offset: 0,
        op: AtomicOp::Sum,
        kind: AtomicType::U64,
        operand: SmallVec::from_slice(&[1; 8]),
        compare: SmallVec::new(),
        fetch: true,
    };
    assert!(matches!(net.finish(a, sum), Ok(Done::Fetched(_))));
}

#[test]
fn answers_and_requests_pass_messages_that_wait() {
    for leases in [1, 2, 16] {
        let mut net = Net::with_leases(2, &small_config(), leases);
        (0..100).for_each(|i| send(&mut net, 0, 1, i));
        net.settle();
        let held = take(&mut net, 1, 0);
        assert!((1..=leases).contains(&held.len()), "{} of {leases}", held.len());
        access(&mut net, 0, 1);
        access(&mut net, 1, 0);
        // Messages the other way, which may be held, too.
        (0..3).for_each(|i| send(&mut net, 1, 0, i));
        net.settle();
        let mut back = numbers(&take(&mut net, 0, 1));
        while back.len() < 3 {
            net.settle();
            back.append(&mut numbers(&take(&mut net, 0, 1)));
        }
        assert_eq!(back, [0, 1, 2]);
        // Now one by one: all come, in order.
        let mut seen = numbers(&held);
        drop(held);
        while seen.len() < 100 {
            net.settle();
            let more = take(&mut net, 1, 0);
            assert!(!more.is_empty(), "{} came", seen.len());
            seen.append(&mut numbers(&more));
        }
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
    }
}

#[test]
fn short_messages_cost_nothing_and_keep_their_place() {
    let mut net = Net::with_leases(2, &small_config(), 1);
    let peer = net.peers[0][1];
    for i in 0..50u32 {
        net.engines[0].inject(peer, &[&i.to_le_bytes(), &[1; Lease::LINES - 4]]).unwrap();
    }
    net.settle();
    let held = take(&mut net, 1, 0);
    assert_eq!((numbers(&held), net.engines[1].lent()), ((0..50).collect(), 0));
    assert!(net.engines[0].may_send(peer, Lease::LINES));
    assert!(!net.engines[0].may_send(peer, LEN), "no peer has credit in the beginning");
    send(&mut net, 0, 1, 50);
    send(&mut net, 0, 1, 51);
    net.engines[0].inject(peer, &[&52u32.to_le_bytes()]).unwrap();
    net.settle();
    let first = take(&mut net, 1, 0);
    assert_eq!(numbers(&first), [50]);
    assert!(!net.engines[0].may_send(peer, 1), "it would overtake what waits");
    drop(first);
    net.settle();
    assert_eq!(numbers(&take(&mut net, 1, 0)), [51, 52]);
}

#[test]
fn a_slow_consumer_slows_no_other_peer() {
    let mut net = Net::with_leases(4, &small_config(), 64);
    (0..200).for_each(|i| send(&mut net, 1, 0, i));
    (0..200).for_each(|i| send(&mut net, 2, 0, i));
    let (mut held, mut other) = (Vec::new(), Vec::new());
    while other.len() < 200 {
        net.settle();
        held.append(&mut take(&mut net, 0, 1));
        let more = take(&mut net, 0, 2);
        assert!(!more.is_empty(), "{} came, {} are held", other.len(), held.len());
        other.append(&mut numbers(&more));
    }
    assert!((16..40).contains(&held.len()), "{}", held.len());
    send(&mut net, 3, 0, 7);
    net.settle();
    assert_eq!(numbers(&take(&mut net, 0, 3)), [7]);
}

/// Peers that have what they do not need give it back to those that have nothing; a stopped one
/// keeps it.
#[test]
fn idle_credit_is_recalled() {
    let count = 12;
    let mut net = Net::with_leases(count, &small_config(), 8);
    for round in 0..3 {
        for a in 1..count {
            send(&mut net, a, 0, round);
            net.settle();
            assert_eq!(numbers(&take(&mut net, 0, a)), [round], "of {a}");
        }
    }
    let promised = net.engines[0].peers.promised();
    assert!(promised <= 8 && net.engines[0].pool().lent() == promised, "{promised}");
    // One is cut off: what it had is there for the others.
    for a in 1..count {
        net.cut(0, a);
    }
    assert_eq!(net.engines[0].pool().lent(), 0);
}

/// Some never answer. What they have is theirs, and the others go on with the rest.
#[test]
fn peers_that_return_nothing_keep_a_bounded_part() {
    let count = 8;
    let mut net = Net::with_leases(count, &small_config(), 64);
    let greedy: Vec<usize> = (1..count - 1).collect();
    for a in &greedy {
        // They ask, and use nothing of what they get.
        let peer = net.peers[0][*a];
        let ask = super::super::header::Header::Ask.encode(0);
        for _ in 0..100 {
            net.engines[0].deliver(peer, &ask).unwrap();
            net.collect(0);
            while net.engines[0].poll_transmit(peer).is_some() {
                net.engines[0].sent(peer);
            }
        }
    }
    assert!(net.engines[0].pool().lent() < 60, "{}", net.engines[0].pool().lent());
    for i in 0..500 {
        send(&mut net, count - 1, 0, i);
        net.settle();
        assert_eq!(numbers(&take(&mut net, 0, count - 1)), [i]);
    }
}

#[test]
fn a_queue_in_which_messages_wait_is_full_at_its_bound() {
    let mut config = small_config();
    config.inject_queue = 1000;
    let mut net = Net::with_leases(2, &config, 1);
    let peer = net.peers[0][1];
    let mut count = 0;
    while net.engines[0].inject(peer, &[&message(count)]).is_ok() {
        count += 1;
        net.settle();
    }
    let held = take(&mut net, 1, 0);
    assert_eq!(held.len(), 1);
    assert!((8..12).contains(&count), "{count}");
    let mut seen = numbers(&held);
    drop(held);
    while seen.len() < count as usize {
        net.settle();
        seen.append(&mut numbers(&take(&mut net, 1, 0)));
    }
    assert_eq!(seen, (0..count).collect::<Vec<_>>());
    let writable = |event: &&Event| matches!(event, Event::Writable { .. });
    assert_eq!(net.events[0].iter().filter(writable).count(), 1);
}

/// Expected messages without a receive stay within their bound, and hold up nothing.
#[test]
fn announced_messages_are_bounded() {
    let mut config = small_config();
    config.max_unexpected = 100 * 64;
    let count = 9;
    let mut net = Net::with_leases(count, &config, 4);
    for a in 1..count {
        let peer = net.peers[a][0];
        for i in 0..300u64 {
            let payload = Payload::Bytes(Bytes::copy_from_slice(&i.to_le_bytes()));
            let (token, level) = (Token(i), Level::Reusable);
            net.engines[a].submit(Operation::SendTagged { token, peer, tag: 5, payload, level });
        }
    }
    net.settle();
    let kept = net.engines[0].counters().unexpected;
    let own = (count as u64 - 1) * u64::from(crate::two_sided::TAGGED_ROOM);
    assert!((own..=own + 100).contains(&kept), "{kept} are kept");
    access(&mut net, 1, 0);
    access(&mut net, 0, 1);
    for a in 1..count {
        let source = Some(net.peers[0][a]);
        for i in 0..300u64 {
            let into = Region::zeroed(8);
            let into_slice = into.whole();
            let post = Operation::PostReceive {
                token: Token(i),
                source,
                tag: 5,
                ignore: 0,
                into: into_slice,
            };
            assert!(matches!(net.finish(0, post), Ok(Done::Tagged { len: 8, .. })), "{a} {i}");
            assert_eq!(into.to_vec(), i.to_le_bytes());
        }
    }
}

/// A peer whose quota is used up waits, and for its sake nothing is asked back of others, who go
/// on; so with the quota of the configuration, and with one that was set.
#[test]
fn a_quota_is_for_one_peer() {
    let mut config = small_config();
    config.limits.quota = crate::PeerQuota::UNLIMITED.with_leases(0);
    let mut net = Net::with_leases(3, &config, 8);
    let unlimited = crate::PeerQuota::UNLIMITED;
    let others = net.peers[0][2];
    net.engines[0].set_quota(others, unlimited).unwrap();
    (0..20).for_each(|i| send(&mut net, 1, 0, i));
    net.settle();
    for i in 0..20 {
        send(&mut net, 2, 0, i);
        net.settle();
        assert_eq!(numbers(&take(&mut net, 0, 2)), [i]);
    }
    let (greedy, credit) = (net.peers[0][1], |net: &Net| net.engines[0].usage(others).unwrap());
    let before = credit(&net).leases;
    assert!(before > 0, "credit of the other peer was recalled");
    assert!(take(&mut net, 0, 1).is_empty());
    let used = net.engines[0].usage(greedy).unwrap();
    assert_eq!((used.leases, used.leases_refused, used.quota), (0, 1, config.limits.quota));
    // Less than it has: what it does not use comes back.
    net.engines[0].set_quota(others, unlimited.with_leases(0)).unwrap();
    net.engines[0].set_quota(greedy, unlimited.with_leases(2)).unwrap();
    net.settle();
    assert_eq!(credit(&net).leases, 0);
    let (mut seen, mut held) = (Vec::new(), Vec::new());
    while seen.len() < 20 {
        held.clear();
        net.settle();
        held = take(&mut net, 0, 1);
        assert!((1..=2).contains(&held.len()), "{}", held.len());
        seen.append(&mut numbers(&held));
    }
    assert_eq!(seen, (0..20).collect::<Vec<_>>());
    drop(held);
    let used = net.engines[0].usage(greedy).unwrap();
    assert!(used.leases <= 2 && used.leases_refused > 1, "{used:?}");
    net.cut(0, 1);
    assert_eq!(net.engines[0].usage(greedy).unwrap().leases, 0);
}

/// A peer that is held keeps its messages and puts with event, however short; all else goes on, and
/// what it kept comes in order once it is let go.
#[test]
fn a_peer_that_is_held_keeps_what_it_sends() {
    let mut net = Net::with_leases(2, &small_config(), 64);
    let peer = net.peers[0][1];
    let memory = Region::zeroed(64);
    let (_, remote) = net.share(1, 0, &memory, Access::ALL);
    let told = |token: u64| Operation::Put {
        token: Token(token),
        remote,
        local: smallvec![Region::from(vec![token as u8]).whole()],
        spans: smallvec![RemoteSpan { offset: token, len: 1 }],
        level: Level::Visible,
        event: Some(token),
    };
    let arrived = |net: &mut Net| {
        let data = |event: &Event| match event {
            Event::PutArrived { data, .. } => Some(*data),
            _ => None,
        };
        net.events[1].iter().filter_map(data).collect::<Vec<_>>()
    };
    let hold = |net: &mut Net, held: bool| {
        let (of, quota) = (net.peers[1][0], PeerQuota::UNLIMITED.with_deferred(held));
        net.engines[1].set_quota(of, quota).unwrap();
        net.settle();
    };
    hold(&mut net, true);
    assert!(net.engines[1].usage(net.peers[1][0]).unwrap().quota.deferred);
    assert!(!net.engines[0].may_send(peer, 0) && net.engines[0].messages_queued(peer));
    net.engines[0].inject(peer, &[&0u32.to_le_bytes()]).unwrap();
    send(&mut net, 0, 1, 1);
    (2..5).for_each(|token| net.engines[0].submit(told(token)));
    net.settle();
    assert!(take(&mut net, 1, 0).is_empty() && arrived(&mut net).is_empty());
    // Accesses, and messages of this side.
    access(&mut net, 0, 1);
    access(&mut net, 1, 0);
    send(&mut net, 1, 0, 9);
    net.settle();
    assert_eq!(numbers(&take(&mut net, 0, 1)), [9]);
    // One of the puts is cancelled meanwhile: it ends, and the others stay.
    net.engines[0].cancel(Token(3));
    net.settle();
    assert!(matches!(net.done(0, Token(3)), Some(Err(OpErrorKind::Cancelled))));
    assert!(arrived(&mut net).is_empty());
    hold(&mut net, false);
    net.settle();
    assert_eq!(numbers(&take(&mut net, 1, 0)), [0, 1]);
    assert_eq!(arrived(&mut net), [2, 4]);
    assert!(net.engines[0].may_send(peer, 8));
    // One that is lost while it is held, and has puts with event that wait.
    hold(&mut net, true);
    net.engines[0].submit(told(7));
    net.settle();
    net.cut(0, 1);
    net.settle();
    assert!(matches!(net.done(0, Token(7)), Some(Err(OpErrorKind::PeerLost(_)))));
}

/// Peers are told of an endpoint that a thread drives: those that are there, and those that come.
#[test]
fn peers_know_who_is_attended() {
    let mut net = Net::with_leases(2, &small_config(), 64);
    let (there, here) = (net.peers[0][1], net.peers[1][0]);
    let attended = |net: &Net, at: usize, peer| net.engines[at].peer_info(peer).unwrap().attended;
    assert!(!attended(&net, 0, there));
    net.engines[1].set_attended();
    net.settle();
    assert!(attended(&net, 0, there) && !attended(&net, 1, here));
    net.cut(0, 1);
    assert!(!attended(&net, 0, there));
}

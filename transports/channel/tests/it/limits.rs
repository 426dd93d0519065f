//! What runs out: credit, windows, slots, buffers; and that each channel is what it says.

use crate::common::{End, join, message, messages, net, numbers_of, open, read, until};
use petasos_channel::{Config, Force};
use petasos_fabric::{
    Endpoint, Event, InjectError, Lease, Level, Operation, Payload, Peer, Region, Slice, Token,
};
use petasos_sim::device::{DeviceConfig, DeviceNet};
use std::time::Duration;

fn forced(force: Force) -> Config {
    let mut config = Config::default();
    config.force = force;
    config
}

/// Injects until there is no room, and returns how many were accepted.
fn fill(net: &DeviceNet, a: &mut End, ab: Peer, first: u32, len: usize) -> u32 {
    let (mut number, mut full) = (first, 0);
    while full < 3 {
        match a.inject(ab, &[&message(0, 1, number, len)]) {
            Ok(()) => number += 1,
            Err(InjectError::Full) => {
                full += 1;
                for _ in 0..20 {
                    a.progress(net.now(), 64, &mut Vec::new());
                    net.run_for(Duration::from_micros(20));
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
    number - first
}

fn numbers(events: &[Event]) -> Vec<u32> {
    let number = |event: &Event| match event {
        Event::Message { message, .. } => Some(read(message).2),
        _ => None,
    };
    events.iter().filter_map(number).collect()
}

/// A receiver that does nothing stops its sender, by whichever channel; then all of it comes.
fn stopped(force: Force, len: usize) {
    let net = net(1);
    let config = forced(force);
    let (mut a, mut b) = (open(&net, "a", &config), open(&net, "b", &config));
    let (ab, _) = join(&net, &mut a, &mut b);
    a.inject(ab, &[&message(0, 1, 0, len)]).unwrap();
    until(&net, &mut [&mut a, &mut b], "the first", |_, events| !numbers(&events[1]).is_empty());
    let count = fill(&net, &mut a, ab, 1, len);
    // The queue of the engine, and what the channel itself has room for.
    assert!(count > 10, "{count}");
    let records = a.counters().records;
    for _ in 0..100 {
        a.progress(net.now(), 64, &mut Vec::new());
        net.run_for(Duration::from_micros(100));
    }
    assert_eq!(a.counters().records, records, "sent without credit");
    let account = net.account(b.address()).unwrap();
    assert!(account.slots_most <= config.window as usize, "{account:?}");
    let events =
        until(&net, &mut [&mut a, &mut b], "all of it", |_, events| messages(&events[1]) == count);
    assert!(numbers(&events[1]).into_iter().eq(1..=count));
    // And once more, the last ones in order.
    let again = fill(&net, &mut a, ab, count + 1, len);
    let events =
        until(&net, &mut [&mut a, &mut b], "all of it", |_, events| messages(&events[1]) == again);
    assert!(numbers(&events[1]).into_iter().eq(count + 1..count + 1 + again));
    let counters = a.counters();
    match force {
        Force::Mp => assert!(counters.mp > 0 && counters.shared + counters.exclusive == 0),
        // What asks for credit has no data that could be fetched.
        Force::Shared => {
            let asked = counters.mp;
            assert!(counters.shared > 4 * asked && counters.exclusive == 0, "{counters:?}");
        }
        Force::Exclusive => {
            assert!(counters.exclusive > 0 && counters.shared + counters.mp == 0, "{counters:?}");
            assert!(counters.immediate > 0 || len > 200);
            assert_eq!(b.counters().given, 1);
        }
        Force::None => assert!(counters.exclusive > 0 && counters.mp > 0, "{counters:?}"),
    }
}

#[test]
fn a_stopped_receiver_mp() {
    stopped(Force::Mp, 100);
    stopped(Force::Mp, 4000);
}

#[test]
fn a_stopped_receiver_shared() {
    stopped(Force::Shared, 100);
    stopped(Force::Shared, 4000);
}

#[test]
fn a_stopped_receiver_exclusive() {
    stopped(Force::Exclusive, 100);
    stopped(Force::Exclusive, 4000);
}

#[test]
fn a_stopped_receiver() {
    stopped(Force::None, 100);
    stopped(Force::None, 4000);
}

/// Window and credit come back past their thresholds, without a timer's help.
fn without_timers(force: Force) {
    let net = net(7);
    let mut config = forced(force);
    config.ack_delay = Duration::from_secs(1000);
    config.exclusive.cells = 32;
    let (mut a, mut b) = (open(&net, "a", &config), open(&net, "b", &config));
    let (ab, _) = join(&net, &mut a, &mut b);
    let (mut sent, mut heard, end) = (0, 0, net.now().after(Duration::from_millis(50)));
    while heard < 2000 {
        assert!(net.now() < end, "{force:?}: it came to a stop at {heard}");
        while sent < 2000 && a.inject(ab, &[&message(0, 1, sent, 80)]).is_ok() {
            sent += 1;
        }
        let mut events = Vec::new();
        a.progress(net.now(), 64, &mut Vec::new());
        b.progress(net.now(), 64, &mut events);
        heard += numbers(&events).len();
        net.run_for(Duration::from_micros(1));
    }
    let counters = b.counters();
    assert!(counters.acks_explicit < 500, "one for each: {counters:?}");
}

#[test]
fn credit_comes_back_past_a_threshold() {
    without_timers(Force::Mp);
    without_timers(Force::Exclusive);
}

/// A receiver that takes one message at a time, and seldom, gets all of them.
#[test]
fn a_slow_receiver() {
    let net = net(2);
    let config = Config::default();
    let (mut a, mut b) = (open(&net, "a", &config), open(&net, "b", &config));
    let (ab, _) = join(&net, &mut a, &mut b);
    let (mut sent, mut next) = (0, 0);
    while next < 2000 {
        while sent < 2000 && a.inject(ab, &[&message(0, 1, sent, 700)]).is_ok() {
            sent += 1;
        }
        a.progress(net.now(), 64, &mut Vec::new());
        net.run_for(Duration::from_micros(5));
        let mut events = Vec::new();
        b.progress(net.now(), 1, &mut events);
        assert!(events.len() <= 1, "more than was asked for");
        for number in numbers(&events) {
            assert_eq!(number, next);
            next += 1;
        }
        assert!(b.counters().deferred <= 64, "{:?}", b.counters());
    }
}

/// An endpoint that keeps all leases from one peer stops that one and the others, but hears what it
/// is told of what it sends itself.
#[test]
fn leases_that_are_kept() {
    let net = net(3);
    let mut config = Config::default();
    config.limits.max_leases = 4;
    let (mut a, mut b) = (open(&net, "a", &config), open(&net, "b", &config));
    let (ab, ba) = join(&net, &mut a, &mut b);
    let mut leases: Vec<Lease> = Vec::new();
    for number in 0..200 {
        a.inject(ab, &[&message(0, 1, number, 500)]).unwrap();
    }
    let mut keep = |events: &mut Vec<Event>| {
        for event in events.drain(..) {
            if let Event::Message { message, .. } = event {
                leases.push(message);
            }
        }
        leases.len()
    };
    // b has no room, and sends much itself: a takes all of it.
    let (mut sent, mut heard) = (0, 0);
    let mut held = 0;
    let end = net.now().after(Duration::from_millis(200));
    while heard < 5000 && net.now() < end {
        while sent < 5000 && b.inject(ba, &[&message(1, 0, sent, 50)]).is_ok() {
            sent += 1;
        }
        let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
        a.progress(net.now(), 64, &mut of_a);
        b.progress(net.now(), 64, &mut of_b);
        held = keep(&mut of_b);
        for number in numbers(&of_a) {
            assert_eq!(number, heard);
            heard += 1;
        }
        net.run_for(Duration::from_micros(1));
    }
    // One of several peers that there may be does not get all of them.
    assert!(heard == 5000 && (1..4).contains(&held), "{heard} and {held}");
    drop(leases);
    let (mut next, end) = (held as u32, net.now().after(Duration::from_secs(1)));
    while next < 200 {
        assert!(net.now() < end, "it came to a stop at {next}");
        let mut events = Vec::new();
        a.progress(net.now(), 64, &mut Vec::new());
        b.progress(net.now(), 64, &mut events);
        for number in numbers(&events) {
            assert_eq!(number, next);
            next += 1;
        }
        net.run_for(Duration::from_micros(1));
    }
}

/// Three hot senders and one channel to be given: it goes round, and nothing is out of order.
#[test]
fn one_channel_for_three() {
    let net = net(4);
    let mut config = Config::default();
    config.exclusive.give.count = 1;
    config.exclusive.give.idle = Duration::from_micros(50);
    config.exclusive.pause = Duration::from_micros(100);
    let mut b = open(&net, "b", &config);
    let mut ends: Vec<_> = (0..3).map(|n| open(&net, n, &config)).collect();
    let peers: Vec<_> = ends.iter_mut().map(|end| join(&net, end, &mut b).0).collect();
    let (mut sent, mut heard) = ([0u32; 3], [0u32; 3]);
    for round in 0..6000 {
        let hot = round / 1000 % 3;
        if ends[hot].inject(peers[hot], &[&message(hot as u32, 9, sent[hot], 80)]).is_ok() {
            sent[hot] += 1;
        }
        for end in &mut ends {
            end.progress(net.now(), 64, &mut Vec::new());
        }
        let mut events = Vec::new();
        b.progress(net.now(), 64, &mut events);
        for event in events {
            if let Event::Message { message, .. } = event {
                let (from, _, number) = read(&message);
                assert_eq!(number, heard[from as usize]);
                heard[from as usize] += 1;
            }
        }
        net.run_for(Duration::from_micros(1));
    }
    let counters = b.counters();
    assert!(counters.given >= 6 && counters.taken >= 5, "{counters:?}");
    assert!(counters.memory < 400_000, "{counters:?}");
    for end in &ends {
        let counters = end.counters();
        assert!(counters.exclusive > 500 && counters.mp > 20, "{counters:?}");
    }
}

/// A long body moves from memory to memory: nothing of it is copied through packets or buffers.
#[test]
fn long_bodies_are_fetched_in_place() {
    let mut device = DeviceConfig::with_seed(5);
    device.immediate = 0;
    let net = DeviceNet::new(device);
    let config = Config::default();
    let (mut a, mut b) = (open(&net, "a", &config), open(&net, "b", &config));
    let (ab, _) = join(&net, &mut a, &mut b);
    let bytes = message(0, 1, 2, 5 << 20);
    let body = Slice::from(bytes.clone());
    let header = bytes::Bytes::from_static(b"header");
    let send = Operation::SendLong { token: Token(1), peer: ab, header, body };
    a.submit(&mut [send].into());
    let events = until(&net, &mut [&mut a, &mut b], "the header", |_, events| {
        events[1].iter().any(|event| matches!(event, Event::LongMessage { .. }))
    });
    let Some(Event::LongMessage { body, len, .. }) = events[1].first() else { panic!() };
    let into = Region::zeroed(*len as usize);
    let receive = Operation::Receive { token: Token(2), body: *body, into: into.whole() };
    b.submit(&mut [receive].into());
    let done = |event: &Event| matches!(event, Event::Done { result: Ok(_), .. });
    until(&net, &mut [&mut a, &mut b], "the body", |_, events| {
        events.iter().all(|events| events.iter().any(done))
    });
    assert!(into.to_vec() == bytes);
    let stats = net.stats();
    assert!(stats.bytes < (5 << 20) + 100_000, "{stats:?}");
    assert_eq!((a.counters().memory, b.counters().memory), (0, 0), "no buffers");
    let account = net.account(a.address()).unwrap();
    assert_eq!(account.registered, 0, "everything was taken back");
}

/// Memory that was lent belongs to the device until it lets go, also when the peer dies: then the
/// operation ends, once, and the memory is free.
#[test]
fn lent_memory_comes_back_from_the_dead() {
    let net = net(6);
    let config = forced(Force::Shared);
    let (mut a, mut b) = (open(&net, "a", &config), open(&net, "b", &config));
    let (ab, _) = join(&net, &mut a, &mut b);
    let payload = Slice::from(message(0, 1, 0, 10_000));
    let region = payload.region().expect("not raw").clone();
    let (token, level) = (Token(1), Level::Reusable);
    let payload = Payload::Memory(payload);
    a.submit(&mut [Operation::Send { token, peer: ab, payload, level }].into());
    let mut events = Vec::new();
    // Until it has credit, the other side is driven; from then on it is dead to what is lent.
    for _ in 0..200 {
        a.progress(net.now(), 64, &mut events);
        if net.account(a.address()).unwrap().registered == 0 {
            b.progress(net.now(), 64, &mut Vec::new());
        }
        net.run_for(Duration::from_micros(1));
    }
    assert!(events.is_empty() && net.account(a.address()).unwrap().registered == 10_000);
    net.kill(b.address());
    let events = until(&net, &mut [&mut a], "the loss", |_, events| events[0].len() == 2);
    assert!(matches!(events[0][0], Event::Done { token: Token(1), result: Err(_) }));
    assert!(matches!(events[0][1], Event::PeerLost { .. }));
    assert_eq!(net.account(a.address()).unwrap().registered, 0);
    assert!(region.into_exclusive().is_ok(), "it is still held");
}

/// A peer that fetches nothing has a part of what may be lent: others are lent the rest, and one
/// for which nothing is left is sent short packets.
#[test]
fn what_one_peer_does_not_fetch_leaves_room_for_others() {
    let copies = |number: u32| Payload::Bytes(message(0, 1, number, 100).into());
    let memory = |number: u32| Payload::Memory(Slice::from(message(0, 1, number, 100)));
    let payloads: [fn(u32) -> Payload; 2] = [memory, copies];
    for ((lent, bounces), payload) in [(8, 64), (64, 8)].into_iter().zip(payloads) {
        let net = net(7);
        let mut config = forced(Force::Shared);
        (config.lent, config.bounces) = (lent, bounces);
        let mut a = open(&net, "a", &config);
        let mut others: Vec<End> = (0..6).map(|name| open(&net, name, &config)).collect();
        let peers: Vec<Peer> = others.iter_mut().map(|other| join(&net, &mut a, other).0).collect();
        let mut shared = 0;
        // None of them is driven, so what is lent to them stays lent.
        let held: Vec<u64> = peers
            .iter()
            .map(|peer| {
                let level = Level::Reusable;
                let send = |number| Operation::Send {
                    token: Token(0),
                    peer: *peer,
                    payload: payload(number),
                    level,
                };
                a.submit(&mut (0..20).map(send).collect());
                until(&net, &mut [&mut a], "a while", |_, _| !net.step());
                let before = std::mem::replace(&mut shared, a.counters().shared);
                shared - before
            })
            .collect();
        assert_eq!(held, [4, 2, 1, 1, 0, 0]);
        for (at, mut other) in others.into_iter().enumerate().rev() {
            let from = a.address().clone();
            let ends = &mut [&mut a, &mut other];
            let events = until(&net, ends, "all of them", |_, events| messages(&events[1]) == 20);
            assert_eq!(numbers_of(&other, &events[1], &from, 0), 20, "to {at}");
        }
    }
}

//! What the receiver fetches: several packets of a peer at a time, in order, within the bounds of
//! the bounce buffers, and never so that what waits holds up what is next.

use crate::common::{End, join, message, messages, numbers_of, open, until};
use petasos_channel::{Config, Force};
use petasos_fabric::{
    Endpoint, Event, Level, Operation, Payload, Peer, Region, Slice, Time, Token,
};
use petasos_sim::device::{DeviceConfig, DeviceNet};
use std::time::Duration;

const LATENCY: Duration = Duration::from_micros(100);
const COUNT: u32 = 64;

fn config(ahead: usize) -> Config {
    let mut config = Config::default();
    config.force = Force::Shared;
    config.ahead = ahead;
    config
}

fn far() -> DeviceNet {
    let mut device = DeviceConfig::with_seed(1);
    (device.latency, device.jitter) = (LATENCY, Duration::ZERO);
    DeviceNet::new(device)
}

fn send(end: &mut End, peer: Peer, numbers: std::ops::Range<u32>, len: usize) {
    let send = |number: u32| {
        let payload = Payload::Memory(Slice::from(message(0, 1, number, len)));
        Operation::Send { token: Token(number.into()), peer, payload, level: Level::Reusable }
    };
    end.submit(&mut numbers.map(send).collect());
}

/// How long a number of long messages takes.
fn time(config: &Config, len: usize) -> (Duration, u64) {
    let net = far();
    let (mut a, mut b) = (open(&net, "a", config), open(&net, "b", config));
    let (ab, _) = join(&net, &mut a, &mut b);
    let begin = net.now();
    send(&mut a, ab, 0..COUNT, len);
    let (from, mut most) = (a.address().clone(), 0);
    let events = until(&net, &mut [&mut a, &mut b], "all of it", |ends, events| {
        most = most.max(ends[1].counters().memory);
        messages(&events[1]) == COUNT
    });
    assert_eq!(numbers_of(&b, &events[1], &from, 0), COUNT);
    let bound = (config.bounces * config.bounce + config.window as usize * 2048) as u64;
    assert!(most <= bound, "{most} bytes held, {bound} allowed");
    (net.now().since(begin), b.counters().ahead)
}

#[test]
fn several_at_a_time() {
    let (one, none) = time(&config(1), 12_000);
    let (four, ahead) = time(&config(4), 12_000);
    println!("{COUNT} messages: {one:?} one at a time, {four:?} four at a time");
    assert!(none == 0 && ahead > u64::from(COUNT) / 2, "{none} and {ahead} fetched ahead");
    assert!(one >= LATENCY * 2 * COUNT, "{one:?}: fetched in less than there and back");
    assert!(four < LATENCY * COUNT * 2 / 3, "{four:?}");
}

/// What is longer than a bounce buffer waits for its turn, and comes all the same.
#[test]
fn longer_than_a_buffer() {
    let mut config = config(4);
    config.bounce = 1000;
    let (_, ahead) = time(&config, 12_000);
    assert_eq!(ahead, 0);
}

/// A sender that has to wait for a lease holds none of the buffers: what others send is fetched.
#[test]
fn who_waits_holds_up_nobody_else() {
    let net = far();
    let mut config = config(4);
    (config.bounces, config.limits.max_leases) = (4, 1);
    let mut b = open(&net, "b", &config);
    let mut ends: Vec<End> = ["a", "c"].map(|name| open(&net, name, &config)).into();
    let peers: Vec<Peer> = ends.iter_mut().map(|end| join(&net, end, &mut b).0).collect();
    let (mut events, limit) = (Vec::new(), net.now().after(Duration::from_secs(1)));
    let mut pass = |ends: &mut [End], b: &mut End| {
        ends.iter_mut().for_each(|end| _ = end.progress(net.now(), 64, &mut Vec::new()));
        b.progress(net.now(), 64, &mut events);
        net.run_for(Duration::from_micros(10));
        assert!(net.now() < limit, "it came to a stop");
        std::mem::take(&mut events)
    };
    // The only lease is kept, so the rest of what `a` sends has to wait, with `a`.
    send(&mut ends[0], peers[0], 0..10, 12_000);
    let mut kept = Vec::new();
    while kept.is_empty() {
        kept.extend(pass(&mut ends, &mut b).into_iter().filter(is_message));
    }
    let into = Region::zeroed(9000);
    let (source, ignore) = (None, u64::MAX);
    let receive = |into| Operation::PostReceive { token: Token(1), source, tag: 0, ignore, into };
    for number in 0..5 {
        let payload = Payload::Memory(Slice::from(message(2, 1, number, 9000)));
        let (token, peer, level) = (Token(number.into()), peers[1], Level::Delivered);
        let send = Operation::SendTagged { token, peer, tag: 7, payload, level };
        ends[1].submit(&mut [send].into());
        b.submit(&mut [receive(into.whole())].into());
        while !pass(&mut ends, &mut b).iter().any(is_done) {}
        assert!(into.to_vec() == message(2, 1, number, 9000));
    }
    assert_eq!(kept.len(), 1);
    // And then the others come, too.
    let (from, mut next) = (ends[0].address().clone(), 1);
    kept.clear();
    while next < 10 {
        let events = pass(&mut ends, &mut b);
        next += numbers_of(&b, &events, &from, next);
    }
}

fn is_message(event: &Event) -> bool {
    matches!(event, Event::Message { .. })
}

fn is_done(event: &Event) -> bool {
    matches!(event, Event::Done { result: Ok(_), .. })
}

/// Buffers come back from senders that die while their data is being fetched.
#[test]
fn buffers_come_back_from_the_dead() {
    let net = far();
    let config = config(4);
    let mut b = open(&net, "b", &config);
    for life in 0..20 {
        let mut a = open(&net, "a", &config);
        let (ab, _) = join(&net, &mut a, &mut b);
        send(&mut a, ab, 0..10, 12_000);
        // Each life ends at another point.
        for _ in 0..20 + life {
            a.progress(net.now(), 64, &mut Vec::new());
            b.progress(net.now(), 64, &mut Vec::new());
            net.run_for(Duration::from_micros(10));
        }
        net.kill(a.address());
        let lost = |event: &Event| matches!(event, Event::PeerLost { .. });
        until(&net, &mut [&mut b], "the loss", |_, events| events[0].iter().any(lost));
    }
    let counters = b.counters();
    assert!(counters.ahead > 20 && counters.deferred == 0, "{counters:?}");
    // All of them are there again.
    let mut a = open(&net, "a", &config);
    let (ab, _) = join(&net, &mut a, &mut b);
    let (begin, from): (Time, _) = (net.now(), a.address().clone());
    send(&mut a, ab, 0..COUNT, 12_000);
    let events =
        until(&net, &mut [&mut a, &mut b], "all of it", |_, events| messages(&events[1]) == COUNT);
    assert_eq!(numbers_of(&b, &events[1], &from, 0), COUNT);
    assert!(net.now().since(begin) < LATENCY * COUNT * 2 / 3);
}

/// How long a number of long messages takes beside peers that stand still while what they sent is
/// being fetched: a device may need the other side to run for a get. They go on in the end, and all
/// that they sent comes, too.
fn beside_stopped(stopped: u32, config: &Config) -> Duration {
    let mut device = DeviceConfig::with_seed(1);
    (device.latency, device.jitter) = (LATENCY, Duration::ZERO);
    device.silence = Duration::from_secs(3600);
    let net = DeviceNet::new(device);
    let mut b = open(&net, "b", config);
    let mut ends: Vec<End> = (0..stopped).map(|i| open(&net, i, config)).collect();
    for end in &mut ends {
        let (peer, _) = join(&net, end, &mut b);
        send(end, peer, 0..10, 12_000);
    }
    // What they lend is known here, and not one byte of it has come when they stop.
    let mut events = Vec::new();
    while b.counters().memory == 0 {
        ends.iter_mut().for_each(|end| _ = end.progress(net.now(), 64, &mut Vec::new()));
        net.run_for(Duration::from_micros(10));
        b.progress(net.now(), 64, &mut events);
    }
    assert_eq!(net.stats().gets, 0);
    ends.iter().for_each(|end| net.cut(end.address(), b.address()));
    net.run_for(LATENCY * 4);
    b.progress(net.now(), 64, &mut events);
    assert_eq!(messages(&events), 0);
    let bound = config.bounces * config.bounce + stopped as usize * (12_000 + 10 * 2048);
    let held = b.counters().memory;
    assert!(held <= bound as u64, "{held} bytes held, {bound} allowed");

    let mut a = open(&net, "a", config);
    let (ab, _) = join(&net, &mut a, &mut b);
    let (begin, from) = (net.now(), a.address().clone());
    send(&mut a, ab, 0..COUNT, 12_000);
    let events =
        until(&net, &mut [&mut a, &mut b], "all of it", |_, events| messages(&events[1]) == COUNT);
    assert_eq!(numbers_of(&b, &events[1], &from, 0), COUNT);
    let took = net.now().since(begin);

    ends.iter().for_each(|end| net.heal(end.address(), b.address()));
    let mut all: Vec<&mut End> = ends.iter_mut().chain([&mut b]).collect();
    let last = stopped as usize;
    let events =
        until(&net, &mut all, "the rest", |_, events| messages(&events[last]) == stopped * 10);
    for number in 0..last {
        let from = all[number].address().clone();
        assert_eq!(numbers_of(all[last], &events[last], &from, 0), 10);
    }
    took
}

#[test]
fn those_that_stand_still_hold_up_nobody_else() {
    beside_stopped(8, &config(4));
}

/// What is kept of them because a get of theirs does not end is no reason to read nothing of others.
#[test]
fn packets_of_those_that_stand_still_stop_no_others() {
    let mut config = config(4);
    config.deferred = 16;
    beside_stopped(8, &config);
}

#[test]
fn one_that_stands_still_leaves_buffers_to_others() {
    let took = beside_stopped(1, &config(8));
    assert!(took < LATENCY * COUNT * 3 / 2, "{took:?}: one at a time");
}

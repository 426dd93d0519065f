//! Endpoints over the simulated device, and how to drive them.

#![allow(dead_code, reason = "each test uses its own part of it")]

use petasos_channel::{Channels, Config};
use petasos_fabric::{Address, Endpoint, Event, Peer};
use petasos_sim::device::{DeviceConfig, DeviceNet, SimDevice};
use std::{array, sync::LazyLock, time::Duration};

pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) type End = Channels<SimDevice>;

/// A number from the environment, for longer runs.
pub(crate) fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

pub(crate) fn net(seed: u64) -> DeviceNet {
    DeviceNet::new(DeviceConfig::with_seed(seed))
}

pub(crate) fn address(name: impl std::fmt::Display) -> Address {
    Address::parse(&format!("simdev://{name}")).unwrap()
}

pub(crate) fn open(net: &DeviceNet, name: impl std::fmt::Display, config: &Config) -> End {
    Channels::new(net.open(&address(name)).unwrap(), config.clone())
}

/// Drives endpoints until `done` says so of the events of each.
pub(crate) fn until(
    net: &DeviceNet,
    ends: &mut [&mut End],
    what: &str,
    mut done: impl FnMut(&mut [&mut End], &[Vec<Event>]) -> bool,
) -> Vec<Vec<Event>> {
    let mut events: Vec<Vec<Event>> = ends.iter().map(|_| Vec::new()).collect();
    let limit = net.now().after(Duration::from_secs(60));
    while net.now() < limit {
        let mut busy = false;
        for (end, events) in ends.iter_mut().zip(&mut events) {
            busy |= end.progress(net.now(), 64, events);
        }
        if done(ends, &events) {
            return events;
        }
        if !busy && !net.step() {
            net.run_for(Duration::from_micros(10));
        }
    }
    panic!("not within a minute: {what}; {ends:?}");
}

/// Connects `a` to `b`: the handles that each has of the other.
pub(crate) fn join(net: &DeviceNet, a: &mut End, b: &mut End) -> (Peer, Peer) {
    let ab = a.resolve(b.address(), PATIENCE).unwrap();
    let up = |event: &Event| matches!(event, Event::PeerUp { .. });
    let events = until(net, &mut [a, b], "both are up", |_, events| {
        events.iter().all(|events| events.iter().any(up))
    });
    let ba = events[1].iter().find_map(|event| match event {
        Event::PeerUp { peer, .. } => Some(*peer),
        _ => None,
    });
    (ab, ba.unwrap())
}

/// For each byte, all bytes xor that one.
static ROWS: LazyLock<Vec<[u8; 256]>> =
    LazyLock::new(|| (0..=255u8).map(|mask| array::from_fn(|i| i as u8 ^ mask)).collect());

/// Bytes that tell whose they are, and which.
pub(crate) fn message(from: u32, to: u32, number: u32, len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len.max(12));
    for word in [from, to, number] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    let seed = from.wrapping_mul(31) ^ to.wrapping_mul(17) ^ number;
    // The byte at `i` is `i ^ i >> 8 ^ seed`. By rows: a closure for each was most of these tests'
    // time.
    while out.len() < len {
        let at = out.len();
        let row = &ROWS[usize::from((at >> 8) as u8 ^ seed as u8)];
        let end = len.min((at | 0xff) + 1);
        out.extend_from_slice(&row[at & 0xff..][..end - at]);
    }
    out
}

/// What such bytes say, checked: from, to, number.
pub(crate) fn read(bytes: &[u8]) -> (u32, u32, u32) {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (from, to, number) = (word(0), word(4), word(8));
    assert!(bytes == message(from, to, number, bytes.len()), "message {number} of {from} to {to}");
    (from, to, number)
}

/// How many messages there are among the events, without a look into them.
pub(crate) fn messages(events: &[Event]) -> u32 {
    events.iter().filter(|event| matches!(event, Event::Message { .. })).count() as u32
}

/// How many messages of the peer at `from` are among the events; their numbers go on from `first`.
pub(crate) fn numbers_of(end: &End, events: &[Event], from: &Address, first: u32) -> u32 {
    let mut next = first;
    for event in events {
        if let Event::Message { peer, message } = event
            && end.peer(*peer).is_some_and(|info| info.address == *from)
        {
            assert_eq!(read(message).2, next);
            next += 1;
        }
    }
    next - first
}

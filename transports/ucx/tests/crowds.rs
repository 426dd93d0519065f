//! Peers that come and go, in great number, some of them killed: the others are not disturbed, and
//! what was mapped of the others goes with them.

mod common;

use common::{CMA, POSIX, config, is_here, network};
use petasos_conformance::Network;
use petasos_fabric::{Address, Clock, Endpoint, Event};
use petasos_testing::{again, role};
use petasos_ucx::Ucx;
use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(30);

fn open(network: Network) -> Ucx {
    petasos_ucx::open(&network.anywhere(), config(network)).unwrap()
}

/// Messages of one that is killed. Over shared memory it then falls silent: a process that is
/// killed while it writes into the queue of another stops that for good, and UCX does nothing about
/// it (see `docs/networks.md`).
const FLOOD: usize = 120;

/// Sends to an address, until it is killed.
fn flood(network: Network, address: &str) {
    let mut end = open(network);
    let peer = end.resolve(&Address::parse(address).unwrap(), PATIENCE).unwrap();
    let (clock, mut events, mut sent) = (Clock::start(), Vec::new(), 0);
    loop {
        end.progress(clock.now(), 64, &mut events);
        events.clear();
        while (!network.host.is_empty() || sent < FLOOD) && end.inject(peer, &[&[7; 3000]]).is_ok()
        {
            sent += 1;
        }
    }
}

/// Kibibytes that are mapped and resident.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Drives an endpoint until something is seen.
fn until(end: &mut Ucx, clock: &Clock, what: &str, mut seen: impl FnMut(&Event) -> bool) {
    let (over, mut events) = (Instant::now() + PATIENCE, Vec::new());
    loop {
        end.progress(clock.now(), 64, &mut events);
        if events.drain(..).any(|event| seen(&event)) {
            return;
        }
        assert!(Instant::now() < over, "not seen: {what}; {:?}", end.device().counters());
    }
}

fn with(test: &str, network: Network) {
    if !is_here(network) {
        return;
    }
    if role().is_some() {
        return flood(network, &std::env::var("PETASOS_CROWD_AT").unwrap());
    }
    // One at a time, for memory is the process's.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut server = open(network);
    let address = server.address().clone();
    let (clock, mut events) = (Clock::start(), Vec::new());
    let lost = |event: &Event| matches!(event, Event::PeerLost { .. });
    for _ in 0..6 {
        let mut child = again(test, "flood").env("PETASOS_CROWD_AT", address.as_str()).start();
        let mut came = 0;
        until(&mut server, &clock, "messages", |event| {
            came += usize::from(matches!(event, Event::Message { .. }));
            came == FLOOD
        });
        child.kill();
        until(&mut server, &clock, "a death", |event| lost(event));
    }
    let mut after = 0;
    for round in 0..120 {
        let mut client = open(network);
        let to = client.resolve(&address, PATIENCE).unwrap();
        let mut of_client = Vec::new();
        let end = Instant::now() + PATIENCE;
        let mut sent = false;
        let mut got = false;
        while !got {
            sent = sent || client.inject(to, &[&[round as u8; 100]]).is_ok();
            client.progress(clock.now(), 64, &mut of_client);
            server.progress(clock.now(), 64, &mut events);
            got = events.drain(..).any(|event| {
                matches!(event, Event::Message { message, .. } if message[..] == [round as u8; 100])
            });
            assert!(Instant::now() < end, "round {round}: {of_client:?}");
        }
        drop(client);
        until(&mut server, &clock, "an end", |event| lost(event));
        if round == 60 {
            // Nodes are kept for a while.
            let pause = Instant::now() + Duration::from_millis(2500);
            while Instant::now() < pause {
                server.progress(clock.now(), 64, &mut events);
            }
            after = resident();
        }
    }
    let grown = resident().saturating_sub(after);
    println!("{}: {after} KiB resident after 60, {grown} more after 120", network.scheme);
    // Nothing of the size of a queue stays of each.
    assert!(grown < 8 << 10, "{grown} KiB for 60 peers that are gone");
}

#[test]
fn over_a_network() {
    with("over_a_network", network());
}

#[test]
fn over_posix() {
    with("over_posix", POSIX);
}

#[test]
fn over_cma() {
    with("over_cma", CMA);
}

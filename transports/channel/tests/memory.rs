//! What an endpoint holds with many peers, of which few are hot: by an allocator that counts, and
//! by the account of its NIC.
//!
//! `PETASOS_PEERS` sets how many the many are (default 10,000).

mod common;

use common::{End, PATIENCE, address, from_environment, net, open};
use petasos_channel::{Channels, Config};
use petasos_fabric::{Endpoint, Event, Peer};
use petasos_sim::device::SimDevice;
use std::time::Duration;

const HOT: usize = 8;

/// What one endpoint holds, in bytes.
#[derive(Debug)]
struct Held {
    /// All that it allocated: tables, the engine, FIFOs, bounce buffers.
    heap: usize,
    /// The slots of its NIC, and the NIC's entries for nodes.
    nic: usize,
    /// Of the heap: FIFOs and buffers.
    channels: usize,
    active: u64,
}

impl Held {
    fn total(&self) -> usize {
        self.heap + self.nic
    }
}

/// An endpoint whose peers have all written to it and got an answer; with the first [`HOT`] of them
/// it talks without end.
fn with_peers(count: usize) -> Held {
    let net = net(1);
    let config = Config::default();
    let mut server = open(&net, "server", &config);
    let mut peers: Vec<End> = (0..count).map(|n| open(&net, n, &config)).collect();
    let mut to: Vec<Peer> = Vec::new();
    for peer in &mut peers {
        to.push(peer.resolve(&address("server"), PATIENCE).unwrap());
    }
    let mut answered = vec![false; count];
    let mut events = Vec::new();
    let mut answer = |server: &mut End| {
        server.progress(net.now(), 64, &mut events);
        for event in events.drain(..) {
            if let Event::Message { peer, message } = event {
                server.inject(peer, &[&message]).unwrap();
            }
        }
    };
    // A few at a time, so that the simulation has little to hold.
    for first in (0..count).step_by(100) {
        let batch = first..(first + 100).min(count);
        for n in batch.clone() {
            peers[n].inject(to[n], &[b"a message of some length"]).unwrap();
        }
        while !batch.clone().all(|n| answered[n]) {
            answer(&mut server);
            for n in batch.clone() {
                let mut events = Vec::new();
                peers[n].progress(net.now(), 64, &mut events);
                let message = |event: &Event| matches!(event, Event::Message { .. });
                answered[n] |= events.iter().any(message);
            }
            net.run_for(Duration::from_micros(2));
        }
    }
    // The hot ones, for long enough that the others are let go of.
    for round in 0..30_000 {
        for n in 0..HOT {
            let _ = peers[n].inject(to[n], &[&[round as u8; 100]]);
            peers[n].progress(net.now(), 64, &mut Vec::new());
        }
        answer(&mut server);
        if round % 100 == 0 {
            for peer in &mut peers[HOT..] {
                peer.progress(net.now(), 64, &mut Vec::new());
            }
        }
        net.run_for(Duration::from_micros(1));
    }
    let counters = server.counters();
    assert_eq!(counters.given, HOT as u64, "{counters:?}");
    assert!(counters.exclusive > 1000, "{counters:?}");
    let nic = net.account(&address("server")).unwrap();
    assert_eq!(nic.nodes, count);
    // The NIC ends first, so that what follows is the endpoint's own.
    net.kill(&address("server"));
    let freed = allocation_counter::measure(|| drop(server));
    let heap = usize::try_from(-freed.bytes_current).expect("nothing is allocated by that");
    let (channels, active) = (counters.memory as usize, counters.active);
    Held { heap, nic: nic.slots + nic.entries, channels, active }
}

#[test]
fn near_constant() {
    let (few, many) = (10, from_environment("PETASOS_PEERS", 10_000) as usize);
    let small = with_peers(few);
    let large = with_peers(many);
    println!("{few} peers: {small:?}, {} in all", small.total());
    println!("{many} peers: {large:?}, {} in all", large.total());
    println!("{} bytes for a further peer", (large.heap - small.heap) / (many - few));
    println!("{} of them in the table of this layer", Channels::<SimDevice>::ENTRY);
    assert_eq!(small.active, HOT as u64);
    assert_eq!(large.active, HOT as u64, "more is kept than for the hot ones");
    assert_eq!(small.channels, large.channels);
    let (small, large) = (small.total(), large.total());
    assert!(large <= 2 * small, "{large} bytes with {many} peers, {small} with {few}");
}

//! What others hold of a network of the library's are names: those of another network, of what is
//! gone, or of another node are refused, and it does not matter where and when they are dropped.
//! Each runs in a process of its own, for where it is not so, that crashes.

mod common;

use bytes::Bytes;
use common::{SHM, found, network};
use petasos_conformance::Network as Place;
use petasos_datagram::{Config, Happened, Mark, Network, Node, Refusal, RemoteOp};
use petasos_fabric::{Access, Region, Slice, two_sided::Outgoing};
use petasos_ofi::Net;
use petasos_testing::survived;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
    time::{Duration, Instant},
};

const PACKET: Mark = Mark::Packet { link: 0, serial: 0 };
const ACCESS: Mark = Mark::Access { access: 0, serial: 0 };
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes beyond what goes by a buffer of the network's own, and within a packet of each of them.
const LONG: usize = 12_000;

fn open(place: Place) -> Net {
    let (kind, _) = Net::kind(&place.anywhere()).unwrap();
    let host = (!place.host.is_empty()).then_some(place.host);
    Net::open(kind, host, 64, &Config::default()).unwrap()
}

/// Whether nothing at all can be sent to this node, or written to or read from it.
fn is_refused(net: &mut Net, node: Node) -> bool {
    let refused = |refusal| matches!(refusal, Refusal::Failed(_));
    let payload = || Outgoing::Bytes(Bytes::from(vec![1; LONG]));
    let inject = net.inject(node, 16, |room| room.fill(1), PACKET);
    let short = net.send_short(node, &[b"head"], &[b"more"], PACKET);
    let long = net.send(node, b"head", payload(), PACKET).map_err(|(refusal, _)| refusal);
    inject.is_err_and(refused) && short.is_err_and(refused) && long.is_err_and(refused)
}

/// Sends so many bytes, when there is room.
fn send(from: &mut Net, node: Node, to: &mut Net, len: usize) {
    let end = Instant::now() + PATIENCE;
    let mut payload = Outgoing::Bytes(Bytes::from(vec![6; len - 4]));
    while let Err((refusal, back)) = from.send(node, b"head", payload, PACKET) {
        assert_eq!(refusal, Refusal::Full);
        payload = back;
        from.poll();
        to.poll();
        assert!(Instant::now() < end, "no room");
    }
}

/// The next packet, kept in the first.
fn received(net: &mut Net, from: &mut Net) -> petasos_datagram::Packet {
    let end = Instant::now() + PATIENCE;
    loop {
        while from.next().is_some() {}
        match net.next() {
            Some(Happened::Packet(packet)) => return packet,
            _ => assert!(Instant::now() < end, "nothing came"),
        }
    }
}

fn nodes(place: Place) {
    let (mut net, mut other, mut peer) = (open(place), open(place), open(place));
    // An endpoint that has more of them.
    let theirs: Vec<Node> = (0..4).map(|_| other.insert(peer.name()).unwrap()).collect();
    let own = net.insert(peer.name()).unwrap();
    for node in theirs {
        assert!(is_refused(&mut net, node));
        // Not this one's, so that nothing is taken out.
        net.remove(node);
    }
    assert!(!is_refused(&mut net, own));
    let end = Instant::now() + PATIENCE;
    while net.running() > 0 {
        net.next();
        peer.next();
        assert!(Instant::now() < end, "does not leave");
    }
    net.remove(own);
    net.remove(own);
    assert!(is_refused(&mut net, own));
    let next = net.insert(peer.name()).unwrap();
    assert!(is_refused(&mut net, own) && !is_refused(&mut net, next));
}

/// A name that was put in twice is there until both are out.
fn twice(place: Place) {
    let (mut net, mut peer) = (open(place), open(place));
    let [one, two] = [0; 2].map(|_| net.insert(peer.name()).unwrap());
    send(&mut net, one, &mut peer, 9);
    assert_eq!(received(&mut peer, &mut net).len, 9);
    while net.running() > 0 {
        net.next();
        peer.next();
    }
    net.remove(one);
    send(&mut net, two, &mut peer, 13);
    assert_eq!(received(&mut peer, &mut net).len, 13);
}

fn memory(place: Place) {
    let (mut net, mut peer, mut other) = (open(place), open(place), open(place));
    let both = Access::READ.with(Access::WRITE);
    let memory = Slice::from(vec![7; 64 << 10]);
    let Some(opened) = peer.open_memory(&memory, both) else {
        return petasos_testing::skip("this network has no access of its own here");
    };
    let there = Net::location(&opened);
    let node = net.insert(peer.name()).unwrap();
    let key = net.key(node, &there).unwrap();
    // What cannot be written is not read into.
    let fixed = Region::view(&Slice::from(vec![5; 4096])).unwrap().whole();
    let refused = net.access(node, RemoteOp::Get, fixed.clone(), &key, 0, ACCESS);
    assert!(matches!(refused, Err(Refusal::Failed(_))), "{refused:?}");
    assert!(fixed.to_vec().iter().all(|byte| *byte == 5));
    // Nor what came copied there.
    let back = peer.insert(net.name()).unwrap();
    for len in [100, LONG] {
        send(&mut peer, back, &mut net, len);
        let packet = received(&mut net, &mut peer);
        assert_eq!(packet.len, len);
        let part = fixed.part(0, 50).unwrap();
        let copied = catch_unwind(AssertUnwindSafe(|| net.copy(packet, 4, &part)));
        assert!(copied.is_err(), "copied to what cannot be written");
        let room = Slice::from(vec![0; 50]);
        assert_eq!(net.copy(packet, usize::MAX - 10, &room), 0, "beyond the end");
        assert_eq!(net.copy(packet, 4, &room), 50);
    }
    let elsewhere = other.insert(peer.name()).unwrap();
    let refused = net.access(elsewhere, RemoteOp::Put, Slice::from(vec![1; 16]), &key, 0, ACCESS);
    assert!(matches!(refused, Err(Refusal::Failed(_))), "{refused:?}");
    // They go wherever they are, also after their networks.
    thread::spawn(move || drop(opened)).join().unwrap();
    peer.close_memory();
    let opened = peer.open_memory(&memory, both).unwrap();
    drop((net, peer, other));
    drop(opened);
    assert_eq!(memory.to_vec().len(), 64 << 10);
}

#[test]
fn nodes_over_a_network() {
    if found().is_some() {
        survived("nodes_over_a_network", 1, &[], |_| nodes(network()));
    }
}

#[test]
fn nodes_over_shared_memory() {
    if found().is_some() {
        survived("nodes_over_shared_memory", 1, &[], |_| nodes(SHM));
    }
}

#[test]
fn twice_over_a_network() {
    if found().is_some() {
        survived("twice_over_a_network", 1, &[], |_| twice(network()));
    }
}

#[test]
fn twice_over_shared_memory() {
    if found().is_some() {
        survived("twice_over_shared_memory", 1, &[], |_| twice(SHM));
    }
}

#[test]
fn memory_over_a_network() {
    if found().is_some() {
        survived("memory_over_a_network", 1, &[], |_| memory(network()));
    }
}

#[test]
fn memory_over_shared_memory() {
    if found().is_some() {
        survived("memory_over_shared_memory", 1, &[], |_| memory(SHM));
    }
}

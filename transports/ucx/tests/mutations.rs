//! Names and keys that a peer might say, and that UCX would not: none of them crashes this process,
//! or has it read what is not there. The same runs under valgrind in `scripts/sanitize`.

mod common;

use common::{CMA, POSIX, SYSV, is_here};
use petasos_conformance::{Network as Place, mutations::mutated, random::Random};
use petasos_datagram::{Config, Happened, Mark, Network, Node, RemoteOp};
use petasos_fabric::{Access, Slice};
use petasos_testing::{again, role, survived};
use petasos_ucx::Net;
use std::{
    ops::Range,
    time::{Duration, Instant},
};

const LOOPBACK: Place = Place { scheme: "ucx+tcp", host: "127.0.0.1" };
const MARK: Mark = Mark::Packet { link: 0, serial: 0 };
const ACCESS: Mark = Mark::Access { access: 0, serial: 0 };
/// The address of the memory is sent before UCX's key: the peer that sends it is the one that is
/// accessed.
const BASE: usize = 8;

fn open(place: Place) -> Net {
    let (kind, _) = Net::kind(&place.anywhere()).unwrap();
    let host = (!place.host.is_empty()).then_some(place.host);
    let mut config = Config::default();
    config.sends = 64;
    Net::open(kind, host, 64, &config).unwrap()
}

/// As much as happens by itself.
fn pass(nets: &mut [&mut Net]) {
    for _ in 0..4 {
        for net in &mut *nets {
            while net.next().is_some() {}
        }
    }
}

/// What is sent by the right name.
const WORDS: &[u8] = b"the one after all";

/// Names of a worker in another process, which has to hear of the right one after all: whatever UCX
/// took is used. Each process that tries names has a worker of its own to name, and lives longer:
/// UCX 1.13 ends a process whose answer to a new peer waits when that peer dies, which is no matter
/// of names (see `docs/networks.md`).
fn names(test: &str, place: Place) {
    if !is_here(place) {
        return;
    }
    if role().as_deref() == Some("peer") {
        return listen(&mut open(place));
    }
    survived(test, 3000, &[], |seeds| {
        let mut peer = again(test, "peer").start();
        let name = from_hex(&peer.line("name "));
        let mut net = open(place);
        try_names(&mut net, place, &name, seeds);
        assert_eq!(peer.line("heard"), "");
        peer.close_input();
        assert!(peer.wait(Duration::from_secs(60)).success());
    });
}

fn from_hex(text: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

/// Prints its name, and when it receives the words, until its peer closes a pipe.
fn listen(net: &mut Net) {
    let name: String = net.name().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("name {name}");
    let input = std::thread::spawn(|| std::io::stdin().read_line(&mut String::new()));
    let mut heard = false;
    // Then the endpoint ends in order, and leaves nothing in /dev/shm.
    while !input.is_finished() {
        match net.next() {
            Some(Happened::Packet(packet)) if packet.len == WORDS.len() && !heard => {
                let mut found = vec![0; packet.len];
                net.read(packet, 0, &mut found);
                heard = found == WORDS;
                if heard {
                    println!("heard");
                }
            }
            Some(_) => {}
            None => std::thread::yield_now(),
        }
    }
}

fn try_names(net: &mut Net, place: Place, name: &[u8], seeds: Range<u64>) {
    let mut taken = 0;
    for seed in seeds {
        let name = mutated(name, &mut Random::new(seed));
        if let Ok(node) = net.insert(&name) {
            taken += 1;
            let _ = net.send_short(node, &[b"to whom?"], &[], MARK);
            pass(&mut [net]);
            net.remove(node);
        }
        pass(&mut [net]);
    }
    eprintln!("{}: {taken} names were taken", place.scheme);
    let node = net.insert(name).expect("the name itself");
    say(net, node, WORDS);
}

/// Sends, and waits until it has left.
fn say(net: &mut Net, node: Node, what: &[u8]) {
    let end = Instant::now() + Duration::from_secs(60);
    while net.send_short(node, &[what], &[], MARK).is_err() {
        pass(&mut [net]);
        assert!(Instant::now() < end, "no room");
    }
    loop {
        pass(&mut [net]);
        if net.running() == 0 {
            return;
        }
        assert!(Instant::now() < end, "does not leave");
    }
}

/// Whether they talk.
fn is_heard(net: &mut Net, node: Node, peer: &mut Net) {
    say(net, node, WORDS);
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        pass(&mut [net]);
        if let Some(Happened::Packet(packet)) = peer.next()
            && packet.len == WORDS.len()
        {
            return;
        }
        assert!(Instant::now() < end, "not heard");
    }
}

/// Keys: whatever UCX took is used to write and to read, where the memory is.
fn keys(place: Place, seeds: Range<u64>) {
    let (mut net, mut peer) = (open(place), open(place));
    let node = net.insert(peer.name()).unwrap();
    is_heard(&mut net, node, &mut peer);
    let memory = Slice::from(vec![7; 64 << 10]);
    let opened = peer.open_memory(&memory, Access::READ.with(Access::WRITE)).unwrap();
    let place_there = Net::location(&opened);
    let mut taken = 0;
    for seed in seeds {
        let damaged = mutated(&place_there, &mut Random::new(seed));
        let key = net.key(node, &damaged);
        taken += u32::from(key.is_some());
        if let Some(key) = key.filter(|_| damaged.starts_with(&place_there[..BASE])) {
            for op in [RemoteOp::Put, RemoteOp::Get] {
                let _ = net.access(node, op, Slice::from(vec![1; 16]), &key, 64, ACCESS);
            }
        }
        pass(&mut [&mut net, &mut peer]);
    }
    eprintln!("{}: {taken} keys were taken", place.scheme);
    let key = net.key(node, &place_there).expect("the key itself");
    net.access(node, RemoteOp::Put, Slice::from(vec![9; 16]), &key, 128, ACCESS).unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while memory.part(128, 16).unwrap().to_vec() != [9; 16] {
        pass(&mut [&mut net, &mut peer]);
        assert!(Instant::now() < end, "not written");
    }
}

#[test]
fn names_over_a_network() {
    names("names_over_a_network", LOOPBACK);
}

#[test]
fn names_over_posix() {
    names("names_over_posix", POSIX);
}

#[test]
fn names_over_sysv() {
    names("names_over_sysv", SYSV);
}

#[test]
fn names_over_cma() {
    names("names_over_cma", CMA);
}

#[test]
fn keys_over_cma() {
    if is_here(CMA) {
        survived("keys_over_cma", 3000, &[], |seeds| keys(CMA, seeds));
    }
}

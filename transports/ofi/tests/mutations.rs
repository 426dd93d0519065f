//! Names and keys that a peer might say, and that libfabric would not: none of them crashes this
//! process, or has it read what is not there. The same runs under valgrind in `scripts/sanitize`.

mod common;

use common::{SHM, found};
use petasos_conformance::{Network as Place, mutations::mutated, random::Random};
use petasos_datagram::{Config, Happened, Mark, Network, Node, RemoteOp};
use petasos_fabric::{Access, Slice};
use petasos_ofi::Net;
use petasos_testing::{again, role, survived};
use std::{
    ops::Range,
    time::{Duration, Instant},
};

const LOOPBACK: Place = Place { scheme: "ofi+tcp", host: "127.0.0.1" };
const MARK: Mark = Mark::Packet { link: 0, serial: 0 };
const ACCESS: Mark = Mark::Access { access: 0, serial: 0 };
/// What is sent by the right name.
const WORDS: &[u8] = b"the one after all";
/// Where the process that tries names finds the other one's.
const NAME: &str = "PETASOS_NAME";
const PATIENCE: Duration = Duration::from_secs(60);

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

/// Names of an endpoint in another process, which has to hear of the right one after all: whatever
/// the provider took is used.
fn names(test: &str, place: Place) {
    if found().is_none() {
        return;
    }
    if role().as_deref() == Some("peer") {
        return listen(&mut open(place));
    }
    let name = std::env::var(NAME).ok();
    let mut peer = name.is_none().then(|| again(test, "peer").start());
    let name = name.unwrap_or_else(|| peer.as_mut().unwrap().line("name "));
    let bytes = from_hex(&name);
    survived(test, 3000, &[(NAME, &name)], |seeds| try_names(place, &bytes, seeds));
    if let Some(mut peer) = peer {
        // Each of those that tried said so; the first time counts.
        assert_eq!(peer.line("heard"), "");
        peer.close_input();
        assert!(peer.wait(PATIENCE).success());
    }
}

fn from_hex(text: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

/// Prints its name, and when it receives the words, until its peer closes the pipe.
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

fn try_names(place: Place, name: &[u8], seeds: Range<u64>) {
    let mut net = open(place);
    let mut taken = 0;
    for seed in seeds {
        let name = mutated(name, &mut Random::new(seed));
        if let Ok(node) = net.insert(&name) {
            taken += 1;
            // Where does it go? Only to this machine, where the rest of the name says so.
            if name[..2] == net.name()[..2] && name.get(4..8) == net.name().get(4..8) {
                let _ = net.send_short(node, &[b"to whom?"], &[], MARK);
            }
            pass(&mut [&mut net]);
            // What is under way to it stays in the table.
            if net.running() == 0 {
                net.remove(node);
            }
        }
        // What does not leave takes all room: others then do without.
        if net.running() > 32 {
            net = open(place);
        }
        pass(&mut [&mut net]);
    }
    eprintln!("{}: {taken} names were taken", place.scheme);
    let mut net = open(place);
    let node = net.insert(name).expect("the name itself");
    say(&mut net, node, WORDS);
}

/// Sends, and waits until it has left.
fn say(net: &mut Net, node: Node, what: &[u8]) {
    let end = Instant::now() + PATIENCE;
    while net.send_short(node, &[what], &[], MARK).is_err() {
        pass(&mut [net]);
        assert!(Instant::now() < end, "no room");
    }
    while net.running() > 0 {
        pass(&mut [net]);
        assert!(Instant::now() < end, "does not leave");
    }
    // It has left, and may be in a socket of ours.
    for _ in 0..100 {
        pass(&mut [net]);
    }
}

/// Two endpoints, the first of which writes to memory of the second.
struct Pair {
    net: Net,
    peer: Net,
    node: Node,
    memory: Slice,
    there: Vec<u8>,
    _opened: <Net as Network>::Opened,
}

impl Pair {
    /// `None`, with a word, if the provider has no access of its own.
    fn open(place: Place) -> Option<Pair> {
        let (mut net, mut peer) = (open(place), open(place));
        let memory = Slice::from(vec![7; 64 << 10]);
        let access = Access::READ.with(Access::WRITE);
        let Some(opened) = peer.open_memory(&memory, access) else {
            petasos_testing::skip("this provider has no access of its own here");
            return None;
        };
        let node = net.insert(peer.name()).unwrap();
        let there = Net::location(&opened);
        Some(Pair { net, peer, node, memory, there, _opened: opened })
    }

    /// Writes with this key. False if it is none, or was refused.
    fn puts(&mut self, place: &[u8], what: u8) -> bool {
        let Pair { net, peer, node, .. } = self;
        let Some(key) = net.key(*node, place) else { return false };
        let local = Slice::from(vec![what; 16]);
        let end = Instant::now() + PATIENCE;
        while let Err(refusal) = net.access(*node, RemoteOp::Put, local.clone(), &key, 64, ACCESS) {
            pass(&mut [net, peer]);
            assert!(Instant::now() < end, "not begun: {refusal:?}");
        }
        loop {
            pass(&mut [peer]);
            match net.next() {
                Some(Happened::Done(mark, result)) if mark == ACCESS => return result.is_ok(),
                _ => assert!(Instant::now() < end, "neither done nor refused"),
            }
        }
    }
}

/// Keys: each that is taken is used to write. Those that are not the right one are refused by the
/// owner's side, which may end the connection.
fn keys(place: Place, seeds: Range<u64>) {
    let Some(mut pair) = Pair::open(place) else { return };
    let there = pair.there.clone();
    assert!(pair.puts(&there, 9));
    assert_eq!(pair.memory.part(64, 16).unwrap().to_vec(), [9; 16]);
    for seed in seeds {
        // Where the memory lies says nothing on this network: the key does.
        let damaged = mutated(&pair.there, &mut Random::new(seed));
        let right = damaged.len() == 16 && damaged[..8] == pair.there[..8];
        assert_eq!(pair.puts(&damaged, 1), right, "{damaged:x?} for {:x?}", pair.there);
        if !right && damaged.len() == 16 {
            pair = Pair::open(place).unwrap();
        }
    }
}

#[test]
fn names_over_a_network() {
    names("names_over_a_network", LOOPBACK);
}

#[test]
fn names_over_shared_memory() {
    names("names_over_shared_memory", SHM);
}

#[test]
fn keys_over_a_network() {
    if found().is_some() {
        survived("keys_over_a_network", 500, &[], |seeds| keys(LOOPBACK, seeds));
    }
}

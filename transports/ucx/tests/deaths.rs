//! A peer that is killed after it connected, and before it is answered: the process that answers
//! lives on.

mod common;

use common::is_here;
use petasos_conformance::Network as Place;
use petasos_datagram::{Config, Mark, Network};
use petasos_testing::{again, role};
use petasos_ucx::Net;
use std::time::{Duration, Instant};

const NAME: &str = "a_peer_that_dies_before_it_is_answered_takes_no_other_with_it";
const LOOPBACK: Place = Place { scheme: "ucx+tcp", host: "127.0.0.1" };
const MARK: Mark = Mark::Packet { link: 0, serial: 0 };
const PATIENCE: Duration = Duration::from_secs(30);
/// Where a peer finds the name of the worker that it connects to.
const TO: &str = "PETASOS_DEATHS_TO";
/// Peers that die.
const DEATHS: usize = 3;
/// How long a worker is moved on. What it does meanwhile is seen by no call: if it took longer on
/// some machine, a death would come at another moment.
const WHILE: Duration = Duration::from_millis(50);

fn open() -> Net {
    let (kind, _) = Net::kind(&LOOPBACK.anywhere()).unwrap();
    Net::open(kind, Some(LOOPBACK.host), 64, &Config::default()).unwrap()
}

fn pass(net: &mut Net) {
    let end = Instant::now() + WHILE;
    while Instant::now() < end {
        while net.next().is_some() {}
        std::thread::yield_now();
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

/// Connects, and looks at nothing that comes back: what lies there unread when it is killed breaks
/// the connection at once, not with the first word that is said to it.
fn connect_and_stop() {
    let mut net = open();
    println!("name {}", to_hex(net.name()));
    let _node = net.insert(&from_hex(&std::env::var(TO).unwrap())).unwrap();
    pass(&mut net);
    println!("here");
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

/// Answers peers that are dead by then.
fn answer() {
    let mut net = open();
    let to = to_hex(net.name());
    for _ in 0..DEATHS {
        let mut peer = again(NAME, "dies").env(TO, &to).start();
        let name = from_hex(&peer.line("name "));
        peer.line("here");
        pass(&mut net);
        peer.kill();
        // Whether it is told now, or when something is sent, is the library's affair.
        if let Ok(node) = net.insert(&name) {
            let _ = net.send_short(node, &[b"too late"], &[], MARK);
            pass(&mut net);
            net.remove(node);
        }
        pass(&mut net);
    }
    println!("alive");
}

#[test]
fn a_peer_that_dies_before_it_is_answered_takes_no_other_with_it() {
    match role().as_deref() {
        Some("answers") => return answer(),
        Some(_) => return connect_and_stop(),
        None => {}
    }
    if !is_here(LOOPBACK) {
        return;
    }
    let status = again(NAME, "answers").start().wait(PATIENCE);
    assert!(status.success(), "the process that answers: {status}");
}

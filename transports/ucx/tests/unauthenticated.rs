//! Unauthenticated peers: without the secret, with packets without a ticket, and with garbage to
//! the library's port.

mod common;

use common::{config, is_here};
use petasos_conformance::{
    Network,
    unauthenticated::{
        Friends, garbage_at, not_heard_without_a_ticket, refused_without_the_secret,
    },
};
use petasos_fabric::Address;
use petasos_ucx::{Bare, Config, Secret, Ucx};

/// Where ports are counted, and strangers open endpoints.
const LOOPBACK: Network = Network { scheme: "ucx+tcp", host: "127.0.0.1" };

fn open() -> Ucx {
    petasos_ucx::open(&LOOPBACK.anywhere(), config(LOOPBACK)).unwrap()
}

#[test]
fn who_does_not_know_the_secret_is_refused() {
    if !is_here(LOOPBACK) {
        return;
    }
    refused_without_the_secret(|secret| {
        let mut config = config(LOOPBACK);
        config.secret = secret.map(|text| Secret::new(text).unwrap());
        petasos_ucx::open(&LOOPBACK.anywhere(), config).unwrap()
    });
}

#[test]
fn nobody_listens_beyond_this_machine_without_a_secret() {
    if !is_here(LOOPBACK) {
        return;
    }
    let refused =
        petasos_ucx::open(&Address::parse("ucx+tcp://0.0.0.0:0").unwrap(), Config::default());
    assert!(refused.unwrap_err().to_string().contains("secret"));
}

#[test]
fn packets_without_a_ticket_are_thrown_away() {
    if !is_here(LOOPBACK) {
        return;
    }
    let mut friends = Friends::meet([open(), open()]);
    let mut stranger = Bare::open(&LOOPBACK.anywhere()).unwrap();
    let other = stranger.insert(friends.ends[1].device().fabric_name()).unwrap();
    let act = |packet: Option<&[u8]>| match packet {
        Some(packet) => stranger.send(other, packet),
        None => stranger.receive().is_some(),
    };
    not_heard_without_a_ticket(&mut friends, act, |end| end.device().counters().strays);
    assert_eq!(friends.ends[1].device().counters().violations, 0);
}

/// Bytes that are not UCX's protocol end that connection, and nothing else. Its port is among those
/// on which this process listens, and so is the one at which peers meet, to which as much can be
/// sent.
#[test]
fn garbage_at_the_ports() {
    if !is_here(LOOPBACK) {
        return;
    }
    let before = listening();
    let ends = [open(), open()];
    let ports: Vec<u16> = listening().into_iter().filter(|port| !before.contains(port)).collect();
    assert!(ports.len() >= 4, "of each the port where peers meet, and UCX's: {ports:?}");
    garbage_at(&mut Friends::meet(ends), &ports);
}

/// Ports at which this process listens.
fn listening() -> Vec<u16> {
    let own: Vec<String> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .flatten()
        .filter_map(|fd| std::fs::read_link(fd.path()).ok())
        .filter_map(|to| Some(to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table =
        ["tcp", "tcp6"].map(|name| std::fs::read_to_string(format!("/proc/self/net/{name}")));
    let of = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let listens = words.get(3) == Some(&"0A")
            && own.iter().any(|inode| words.get(9) == Some(&inode.as_str()));
        listens.then(|| u16::from_str_radix(words[1].rsplit(':').next()?, 16).ok())?
    };
    table.iter().flatten().flat_map(|table| table.lines().filter_map(of)).collect()
}

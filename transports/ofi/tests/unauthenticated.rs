//! Unauthenticated peers: without the secret, with packets without a ticket, and with garbage to
//! the provider's port.

mod common;

use common::{config, found};
use petasos_conformance::{
    Network,
    unauthenticated::{
        Friends, garbage_at, not_heard_without_a_ticket, refused_without_the_secret,
    },
};
use petasos_fabric::Address;
use petasos_ofi::{Bare, Config, Ofi, Secret};

/// Where strangers open endpoints.
const LOOPBACK: Network = Network { scheme: "ofi+tcp", host: "127.0.0.1" };

fn open() -> Ofi {
    petasos_ofi::open(&LOOPBACK.anywhere(), config(LOOPBACK)).unwrap()
}

#[test]
fn who_does_not_know_the_secret_is_refused() {
    if found().is_none() {
        return;
    }
    refused_without_the_secret(|secret| {
        let mut config = config(LOOPBACK);
        config.secret = secret.map(|text| Secret::new(text).unwrap());
        petasos_ofi::open(&LOOPBACK.anywhere(), config).unwrap()
    });
}

#[test]
fn nobody_listens_beyond_this_machine_without_a_secret() {
    if found().is_none() {
        return;
    }
    let refused =
        petasos_ofi::open(&Address::parse("ofi+tcp://0.0.0.0:0").unwrap(), Config::default());
    assert!(refused.unwrap_err().to_string().contains("secret"));
}

#[test]
fn packets_without_a_ticket_are_thrown_away() {
    if found().is_none() {
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

/// Bytes that are not the provider's protocol end that connection, and nothing else.
#[test]
fn garbage_at_the_port_of_the_provider() {
    if found().is_none() {
        return;
    }
    let ends = [open(), open()];
    // A socket address: the port is in its third and fourth byte.
    let name = ends[1].device().fabric_name();
    let port = u16::from_be_bytes([name[2], name[3]]);
    garbage_at(&mut Friends::meet(ends), &[port]);
}

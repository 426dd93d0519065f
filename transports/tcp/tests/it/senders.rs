//! Processes that are killed or stopped in the middle of what they send.

use petasos_conformance::senders;
use petasos_fabric::Address;
use petasos_tcp::{Config, TcpEndpoint};

fn open() -> TcpEndpoint {
    let address = Address::parse("tcp://127.0.0.1:0").unwrap();
    TcpEndpoint::open(&address, Config::default()).unwrap()
}

#[test]
fn killed() {
    senders::killed("senders::killed", open);
}

#[test]
fn stopped() {
    senders::stopped("senders::stopped", open);
}

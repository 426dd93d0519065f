//! Processes that are killed or stopped in the middle of what they send.

use petasos_conformance::senders;
use petasos_fabric::Address;
use petasos_shm::Shm;

fn open() -> Shm {
    Shm::open(&Address::parse("shm://*").unwrap()).unwrap()
}

#[test]
fn killed() {
    senders::killed("killed", open);
}

#[test]
fn stopped() {
    senders::stopped("stopped", open);
}

//! Processes that are killed or stopped in the middle of what they send, over a network: in shared
//! memory the library has locks, which such a process may leave held.

mod common;

use common::{config, found, network};
use petasos_conformance::senders;
use petasos_ofi::Ofi;

fn open() -> Ofi {
    petasos_ofi::open(&network().anywhere(), config(network())).unwrap()
}

#[test]
fn killed() {
    if found().is_some() {
        senders::killed("killed", open);
    }
}

#[test]
fn stopped() {
    if found().is_some() {
        senders::stopped("stopped", open);
    }
}

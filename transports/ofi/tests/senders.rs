//! Processes that are killed or stopped in the middle of what they send.

mod common;

use common::{SHM, config, found, network};
use petasos_conformance::{Network, senders};
use petasos_ofi::Ofi;

fn open(network: Network) -> Ofi {
    petasos_ofi::open(&network.anywhere(), config(network)).unwrap()
}

#[test]
fn killed_over_a_network() {
    if found().is_some() {
        senders::killed("killed_over_a_network", || open(network()));
    }
}

#[test]
fn stopped_over_a_network() {
    if found().is_some() {
        senders::stopped("stopped_over_a_network", || open(network()));
    }
}

#[test]
fn killed_over_shared_memory() {
    if found().is_some() {
        senders::killed("killed_over_shared_memory", || open(SHM));
    }
}

#[test]
fn stopped_over_shared_memory() {
    if found().is_some() {
        senders::stopped("stopped_over_shared_memory", || open(SHM));
    }
}

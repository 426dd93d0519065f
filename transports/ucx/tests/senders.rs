//! Processes that are killed or stopped in the middle of what they send.

mod common;

use common::{CMA, POSIX, config, is_here, network};
use petasos_conformance::{Network, senders};
use petasos_ucx::Ucx;

fn open(network: Network) -> Ucx {
    petasos_ucx::open(&network.anywhere(), config(network)).unwrap()
}

#[test]
fn killed_over_a_network() {
    if is_here(network()) {
        senders::killed("killed_over_a_network", || open(network()));
    }
}

#[test]
fn stopped_over_a_network() {
    if is_here(network()) {
        senders::stopped("stopped_over_a_network", || open(network()));
    }
}

#[test]
fn killed_over_posix() {
    if is_here(POSIX) {
        senders::killed("killed_over_posix", || open(POSIX));
    }
}

#[test]
fn stopped_over_posix() {
    if is_here(POSIX) {
        senders::stopped("stopped_over_posix", || open(POSIX));
    }
}

#[test]
fn killed_over_cma() {
    if is_here(CMA) {
        senders::killed("killed_over_cma", || open(CMA));
    }
}

//! A process that forks while UCX's hands are on its memory.

mod common;

use common::{CMA, POSIX, SYSV, config, is_here, network};
use petasos_conformance::{
    Network,
    forks::{Child, Overseer, obey},
    processes::PATIENCE,
};
use petasos_testing::{again, fork, role};
use petasos_ucx::Ucx;

/// With registrations that are kept, where there are any: they are older than the child.
fn open(network: Network) -> Ucx {
    let mut config = config(network);
    config.keep_registered = 64 << 20;
    petasos_ucx::open(&network.anywhere(), config).unwrap()
}

fn with(test: &str, network: Network) {
    if !is_here(network) {
        return;
    }
    if role().is_some() {
        return obey(open(network), fork);
    }
    let mut parent = again(test, "parent").start();
    let address = parent.line("at ");
    let mut overseer = Overseer::meet(open(network), &address);
    for kind in Child::ALL {
        // Others still find the parent.
        overseer.forks(kind, || drop(Overseer::meet(open(network), &address)));
    }
    overseer.end_it();
    assert!(parent.wait(PATIENCE).success());
}

#[test]
fn over_a_network() {
    with("over_a_network", network());
}

#[test]
fn over_posix() {
    with("over_posix", POSIX);
}

#[test]
fn over_sysv() {
    with("over_sysv", SYSV);
}

#[test]
fn over_cma() {
    with("over_cma", CMA);
}

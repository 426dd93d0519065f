//! A process that forks while libfabric's hands are on its memory.

mod common;

use common::{SHM, config, found, network};
use petasos_conformance::{
    Network,
    forks::{Child, Overseer, obey},
    processes::PATIENCE,
};
use petasos_ofi::Ofi;
use petasos_testing::{again, fork, role};

/// With registrations that are kept: they are older than the child.
fn open(network: Network) -> Ofi {
    let mut config = config(network);
    config.keep_registered = 64 << 20;
    petasos_ofi::open(&network.anywhere(), config).unwrap()
}

fn with(test: &str, network: Network) {
    if found().is_none() {
        return;
    }
    if role().is_some() {
        return obey(open(network), fork);
    }
    let mut parent = again(test, "parent").start();
    let address = parent.line("at ");
    let mut overseer = Overseer::meet(open(network), &address);
    for kind in Child::ALL {
        println!("child {kind:?}");
        overseer.forks(kind, || {
            // What has a name is the parent's, and stays.
            assert_eq!(left_by(parent.id()), usize::from(network == SHM), "{kind:?}");
            // So it is to be found by others.
            drop(Overseer::meet(open(network), &address));
        });
    }
    overseer.end_it();
    assert!(parent.wait(PATIENCE).success());
    assert_eq!(left_by(parent.id()), 0);
}

/// How many files this process has in shared memory.
fn left_by(process: u32) -> usize {
    let of_process = format!("petasos-{process:010}-");
    let all = std::fs::read_dir("/dev/shm").unwrap().flatten().map(|file| file.file_name());
    all.filter(|name| name.to_string_lossy().starts_with(&of_process)).count()
}

#[test]
fn over_a_network() {
    with("over_a_network", network());
}

#[test]
fn over_shared_memory() {
    with("over_shared_memory", SHM);
}

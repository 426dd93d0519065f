//! A process that forks.

use petasos_conformance::{
    forks::{Child, Overseer, obey},
    processes::PATIENCE,
};
use petasos_fabric::Address;
use petasos_shm::{Config, Shm};
use petasos_testing::{again, fork, role};
use std::path::Path;

fn open(at: &str, cross_memory: bool) -> Shm {
    let mut config = Config::default();
    config.cross_memory = cross_memory;
    Shm::open_with(&Address::parse(at).unwrap(), config).unwrap()
}

fn with(test: &str, cross_memory: bool) {
    // A socket that has a name in the file system is the parent's to remove.
    let at = |parent: u32| std::env::temp_dir().join(format!("petasos-forks-{parent}.socket"));
    let address = |socket: &Path| format!("shm://{}", socket.display());
    if role().is_some() {
        return obey(open(&address(&at(std::process::id())), cross_memory), fork);
    }
    let mut parent = again(test, "parent").start();
    let socket = at(parent.id());
    let address = parent.line("at ");
    let mut overseer = Overseer::meet(open("shm://*", cross_memory), &address);
    for kind in Child::ALL {
        overseer.forks(kind, || {
            assert!(socket.exists(), "{kind:?}");
            drop(Overseer::meet(open("shm://*", cross_memory), &address));
        });
    }
    overseer.end_it();
    assert!(parent.wait(PATIENCE).success());
    assert!(!socket.exists());
}

#[test]
fn reaching() {
    with("reaching", true);
}

#[test]
fn served_by_the_owner() {
    with("served_by_the_owner", false);
}

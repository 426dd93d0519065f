//! Two processes: storms of messages with few places for them, memory that is put and got, and a death in the middle.

mod common;

use common::{CMA, POSIX, SYSV, config, is_here, network};
use petasos_conformance::{
    Network,
    processes::{Client, PATIENCE, serve},
};
use petasos_fabric::{Endpoint, Support};
use petasos_testing::{again, role};
use petasos_ucx::Ucx;
use std::{
    ffi::OsString,
    time::{Duration, Instant},
};

fn open(network: Network) -> Ucx {
    let mut config = config(network);
    config.sends = 4;
    Ucx::open(&network.anywhere(), config).unwrap()
}

fn with(test: &str, network: Network) {
    if !is_here(network) {
        return;
    }
    if role().is_some() {
        return serve(&mut open(network));
    }
    let mut server = again(test, "server").start();
    let (address, key) = (server.line("at "), server.line("key "));
    let mut client = Client::meet(open(network), &address, &key);
    client.storm();
    client.there_and_back();
    let native = client.end.capabilities().remote_access == Support::Native;
    assert_eq!(client.end.counters().accesses > 0, native, "{:?}", client.end.counters());
    client.dies_in_the_middle(|| server.kill());
    // What is there for a moment only is somebody else's, who begins.
    let end = Instant::now() + PATIENCE;
    while network == POSIX && !left_behind().is_empty() {
        assert!(Instant::now() < end, "left behind: {:?}", left_behind());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Names that UCX gives to shared memory.
fn left_behind() -> Vec<OsString> {
    let all = std::fs::read_dir("/dev/shm").unwrap().flatten().map(|file| file.file_name());
    all.filter(|name| name.to_string_lossy().starts_with("ucx_shm_posix")).collect()
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

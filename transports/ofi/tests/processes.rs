//! Two processes: storms of messages with few places for them, memory that is put and got, and a
//! death in the middle.

mod common;

use common::{SHM, config, found, network};
use petasos_conformance::{
    Network,
    processes::{Client, PATIENCE, serve},
};
use petasos_fabric::{Endpoint, Support};
use petasos_ofi::Ofi;
use petasos_testing::{again, role};
use std::{ffi::OsString, io::Write, time::Instant};

fn open(network: Network) -> Ofi {
    let mut config = config(network);
    config.sends = 4;
    config.completion_data_from = Some(4096);
    petasos_ofi::open(&network.anywhere(), config).unwrap()
}

fn with(test: &str, network: Network) {
    if found().is_none() {
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
    client.puts_with_event();
    let native = client.end.capabilities().remote_access == Support::Native;
    assert_eq!(
        client.end.device().counters().accesses > 0,
        native,
        "{:?}",
        client.end.device().counters()
    );
    let native = client.end.capabilities().put_with_event == Support::Native;
    assert_eq!(
        client.end.device().counters().completion_data_out > 0,
        native,
        "{:?}",
        client.end.device().counters()
    );
    client.dies_in_the_middle(|| server.kill());
    if network == SHM {
        let left = left_by(server.id());
        assert!(left.is_empty(), "left behind: {left:?}");
    }
}

/// What this process has in shared memory.
fn left_by(process: u32) -> Vec<OsString> {
    let of_process = format!("petasos-{process:010}-");
    let all = std::fs::read_dir("/dev/shm").unwrap().flatten().map(|file| file.file_name());
    all.filter(|name| name.to_string_lossy().starts_with(&of_process)).collect()
}

#[test]
fn nobody_saw_it_die() {
    if found().is_none() {
        return;
    }
    if role().is_some() {
        return serve(&mut open(SHM));
    }
    let start = || {
        let mut process = again("nobody_saw_it_die", "server").start();
        process.line("key ");
        process
    };
    let (mut lives, mut dies) = (start(), start());
    dies.kill();
    let end = opened_until_nothing_is_left(dies.id());
    assert_eq!(left_by(lives.id()).len(), 1, "of one that lives");
    assert!(!left_by(std::process::id()).is_empty(), "our own");
    drop(end);
    // Nor does this test leave anything to others.
    lives.kill();
    drop(opened_until_nothing_is_left(lives.id()));
}

/// The file system of its memory becomes full while endpoints are open: they go on, and the next one
/// is refused.
#[test]
fn shared_memory_is_full() {
    const NAME: &str = "shared_memory_is_full";
    if found().is_none() {
        return;
    }
    match role().as_deref() {
        Some("server") => return serve(&mut open(SHM)),
        Some("in a small one") => return goes_on_where_it_is_full(NAME),
        _ => {}
    }
    if !petasos_testing::is_root() {
        return petasos_testing::skip("mounting needs root");
    }
    let script = "mount -t tmpfs -o size=64m small /dev/shm && exec \"$0\" \"$@\"";
    let within = again(NAME, "in a small one").by("unshare", &["-m", "sh", "-c", script]);
    within.start().line("went on");
}

fn goes_on_where_it_is_full(name: &str) {
    let mut server = again(name, "server").start();
    let (address, key) = (server.line("at "), server.line("key "));
    let mut client = Client::meet(open(SHM), &address, &key);
    let mut file = std::fs::File::create("/dev/shm/full").unwrap();
    while file.write(&[1; 4096]).is_ok_and(|written| written > 0) {}
    client.storm();
    client.there_and_back();
    client.puts_with_event();
    petasos_ofi::open(&SHM.anywhere(), config(SHM)).unwrap_err();
    println!("went on");
}

/// Opens endpoints until one has removed what the process left. The first one does, but while
/// others open some, as the test beside this one does.
fn opened_until_nothing_is_left(process: u32) -> Ofi {
    let patience = Instant::now() + PATIENCE;
    loop {
        let end = open(SHM);
        if left_by(process).is_empty() {
            return end;
        }
        assert!(Instant::now() < patience, "left behind: {:?}", left_by(process));
    }
}

#[test]
fn over_a_network() {
    with("over_a_network", network());
}

#[test]
fn over_shared_memory() {
    with("over_shared_memory", SHM);
}

//! Two processes: storms of messages with few places for them, memory that is put and got, and a
//! death in the middle.

mod common;

use common::{CMA, POSIX, SYSV, config, is_here, network};
use petasos_conformance::{
    Network,
    processes::{Client, PATIENCE, serve},
};
use petasos_fabric::{Address, Endpoint, Support};
use petasos_testing::{Hosts, again, role};
use petasos_ucx::{Config, OpenError, Ucx};
use std::{
    collections::BTreeSet,
    ffi::OsString,
    time::{Duration, Instant},
};

fn open(network: Network) -> Ucx {
    let mut config = config(network);
    config.sends = 4;
    petasos_ucx::open(&network.anywhere(), config).unwrap()
}

fn with(test: &str, network: Network) {
    if !is_here(network) {
        return;
    }
    if role().is_some() {
        return serve(&mut open(network));
    }
    // Of processes that were killed before any peer knew of them, in whichever program.
    let before = in_shared_memory();
    let mut server = again(test, "server").start();
    let (address, key) = (server.line("at "), server.line("key "));
    talk(network, &address, &key, || server.kill());
    // What is there for a moment only is of another process, which begins.
    let end = Instant::now() + PATIENCE;
    let left_behind = || in_shared_memory().difference(&before).cloned().collect::<Vec<_>>();
    while network == POSIX && !left_behind().is_empty() {
        assert!(Instant::now() < end, "left behind: {:?}", left_behind());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// With the process that serves there, until it is killed.
fn talk(network: Network, address: &str, key: &str, kill: impl FnOnce()) {
    let mut client = Client::meet(open(network), address, key);
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
    client.dies_in_the_middle(kill);
}

/// Names that UCX gives to shared memory.
fn in_shared_memory() -> BTreeSet<OsString> {
    let all = std::fs::read_dir("/dev/shm").unwrap().flatten().map(|file| file.file_name());
    all.filter(|name| name.to_string_lossy().starts_with("ucx_shm_posix")).collect()
}

#[test]
fn over_a_network() {
    with("over_a_network", network());
}

/// Over an interface that is not the loopback one, with a secret. Each host sees its own interfaces
/// only.
#[test]
fn between_hosts() {
    const NAME: &str = "between_hosts";
    let of = |name: &str| std::env::var(name).unwrap();
    match role().as_deref() {
        Some("server") => return serve(&mut open(network())),
        Some(_) => {
            return talk(network(), &of("PETASOS_AT"), &of("PETASOS_KEY"), || println!("kill it"));
        }
        None => {}
    }
    if petasos_ucx::find().is_err() {
        return petasos_testing::skip("UCX is not installed");
    }
    let Some(hosts) = Hosts::make() else { return };
    let in_host = |role: &str, host: char, ip: &str| {
        let there = format!("ucx+tcp://{ip}");
        again(NAME, role).env("PETASOS_UCX_NETWORK", &there).in_host(&hosts.name(host))
    };
    let mut server = in_host("server", 'a', "10.77.0.1").start();
    let (address, key) = (server.line("at "), server.line("key "));
    let client = in_host("client", 'b', "10.77.0.2");
    let mut client = client.env("PETASOS_AT", &address).env("PETASOS_KEY", &key).start();
    client.line("kill it");
    server.kill();
    assert!(client.wait(PATIENCE).success());
}

/// Where the library does not connect, nothing is opened, as no peer would reach it: so 1.20.
#[test]
fn on_the_loopback_interface() {
    let Ok(found) = petasos_ucx::find() else {
        return petasos_testing::skip("UCX is not installed");
    };
    let opened = petasos_ucx::open(&Address::parse("ucx+tcp://*").unwrap(), Config::default());
    match found.starts_with("UCX 1.20 ") {
        true => assert!(matches!(opened, Err(OpenError::Loopback { .. })), "{found}"),
        false => drop(opened.unwrap()),
    }
    let said = petasos_ucx::probe().into_iter().find(|line| line.starts_with("ucx+tcp ")).unwrap();
    assert_eq!(said.contains("not over the loopback"), found.starts_with("UCX 1.20 "), "{said}");
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

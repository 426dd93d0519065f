//! Where tests of real transports open endpoints.

use crate::RealTime;
use petasos_fabric::Address;
use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt};
use std::{
    net::IpAddr,
    os::{
        fd::OwnedFd,
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
    sync::{Mutex, PoisonError},
};

/// A kind of address, and this machine's place on that network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The scheme of its addresses.
    pub scheme: &'static str,
    /// The address of this machine's where endpoints listen; empty where addresses are names.
    pub host: &'static str,
}

impl Network {
    /// Shared memory, or something else of this node's, where addresses are names.
    #[must_use]
    pub const fn of_node(scheme: &'static str) -> Network {
        Network { scheme, host: "" }
    }

    /// The network that an environment variable names, as `ofi+verbs://10.1.0.7`; else this scheme
    /// on the loopback interface.
    ///
    /// # Panics
    /// If what the variable says is not `SCHEME://HOST`.
    #[must_use]
    pub fn named(variable: &str, scheme: &'static str) -> Network {
        let Ok(url) = std::env::var(variable) else { return Network { scheme, host: "127.0.0.1" } };
        // As long as the test runs.
        let url: &'static str = url.leak();
        let (scheme, host) = url.split_once("://").expect("the variable says SCHEME://HOST");
        Network { scheme, host }
    }

    /// Any free place.
    ///
    /// # Panics
    /// If that is no address.
    #[must_use]
    pub fn anywhere(&self) -> Address {
        let place = match self.host {
            "" => "*".to_owned(),
            host => format!("{host}:0"),
        };
        Address::parse(&format!("{}://{place}", self.scheme)).expect("an address")
    }

    /// An address that no endpoint has or had: for [`Fixture::fresh`](crate::Fixture::fresh).
    ///
    /// # Panics
    /// If that is no address.
    #[must_use]
    pub fn fresh(&self, time: &RealTime) -> Address {
        let place = match self.host {
            "" => time.name(),
            host => format!("{host}:{}", free_port(host)),
        };
        Address::parse(&format!("{}://{place}", self.scheme)).expect("an address")
    }

    /// Whether others than processes of this machine can reach endpoints there, so that these need
    /// a secret.
    #[must_use]
    pub fn is_open_to_others(&self) -> bool {
        let loopback = |host: IpAddr| host.is_loopback();
        !self.host.is_empty() && !self.host.parse().is_ok_and(loopback)
    }
}

/// Ports for tests: below those that the system gives to connections.
const FIRST: u16 = 20_000;
/// They are in blocks, each of one process at a time.
const BLOCKS: u16 = 200;
const BLOCK: u16 = 60;

/// A port at which no process listens, and that no other process gets that asks here: not while
/// this one runs, nor is it given twice to this one.
///
/// # Panics
/// If all are given.
#[must_use]
pub fn free_port(host: &str) -> u16 {
    static OURS: Mutex<Vec<Block>> = Mutex::new(Vec::new());
    let mut ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(port) = ours.last_mut().and_then(Block::next) {
            // It may be another program's.
            if claim(host, port).is_some() {
                return port;
            }
            continue;
        }
        // Neighbours look at different ones first.
        let begin = (std::process::id() % u32::from(BLOCKS)) as u16;
        let block = (0..BLOCKS).find_map(|nth| Block::take((begin + nth) % BLOCKS));
        ours.push(block.expect("a block of ports"));
    }
}

/// A socket at a port at which no process listens. It does not listen either: a process that
/// another thread starts just now has it for a moment, and others may listen there all the same.
fn claim(host: &str, port: u16) -> Option<OwnedFd> {
    let host: IpAddr = host.parse().expect("an address of this machine");
    let family = if host.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let claimed = socket(family, SocketType::STREAM, None).ok()?;
    sockopt::set_socket_reuseaddr(&claimed, true).ok()?;
    bind(&claimed, &std::net::SocketAddr::from((host, port))).ok()?;
    Some(claimed)
}

/// Ports of this process, until it ends: an abstract name, which only one has at a time, says so.
#[derive(Debug)]
struct Block {
    first: u16,
    given: u16,
    _name: UnixListener,
}

impl Block {
    fn take(number: u16) -> Option<Block> {
        let name = SocketAddr::from_abstract_name(format!("petasos test ports {number}")).ok()?;
        let _name = UnixListener::bind_addr(&name).ok()?;
        Some(Block { first: FIRST + number * BLOCK, given: 0, _name })
    }

    fn next(&mut self) -> Option<u16> {
        let nth = self.given;
        self.given = BLOCK.min(nth + 1);
        (nth < BLOCK).then(|| self.first + nth)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_claimed_without_keeping_others_from_it() {
        const HOST: &str = "127.0.0.1";
        let port = free_port(HOST);
        let claimed = claim(HOST, port).unwrap();
        let listener = std::net::TcpListener::bind((HOST, port)).unwrap();
        assert!(claim(HOST, port).is_none(), "it is listened at");
        drop((claimed, listener));
    }

    /// Each port is one process's: the test runs itself again, and both ask for many.
    #[test]
    fn no_port_is_given_twice() {
        let name = "network::tests::no_port_is_given_twice";
        let ask = || -> Vec<u16> { (0..100).map(|_| free_port("127.0.0.1")).collect() };
        if petasos_testing::role().is_some() {
            println!("\nports {:?}", ask());
            // Until then they are this process's.
            let _ = std::io::stdin().read_line(&mut String::new());
            return;
        }
        let mut others: Vec<_> =
            (0..3).map(|_| petasos_testing::again(name, "asks").start()).collect();
        let mut all = ask();
        for other in &mut others {
            let said = other.line("ports ");
            let said = said.trim_matches(['[', ']']);
            all.extend(said.split(", ").map(|port| port.parse::<u16>().unwrap()));
        }
        assert_eq!(all.len(), 400);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 400, "some were given twice");
        assert!(all.iter().all(|port| (20_000..32_000).contains(port)));
    }

    #[test]
    fn places() {
        let node = Network::of_node("shm");
        assert_eq!(node.anywhere().as_str(), "shm://*");
        assert_ne!(node.fresh(&RealTime::default()), node.fresh(&RealTime::default()));
        assert!(!node.is_open_to_others());
        let tcp = Network::named("PETASOS_NOT_SET_BY_ANYBODY", "tcp");
        assert_eq!(tcp.anywhere().as_str(), "tcp://127.0.0.1:0");
        assert!(!tcp.is_open_to_others());
        assert!(Network { host: "10.1.0.7", ..tcp }.is_open_to_others());
        assert_ne!(tcp.fresh(&RealTime::default()), tcp.fresh(&RealTime::default()));
    }
}

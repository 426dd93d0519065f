//! Where tests of real transports open endpoints.

use crate::RealTime;
use petasos_fabric::Address;
use std::{
    net::{IpAddr, TcpListener},
    sync::atomic::{AtomicU16, Ordering},
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

    /// The network that an environment variable names, as `ofi+verbs://10.1.0.7`; else this scheme on the loopback
    /// interface.
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

    /// A place that nobody has or had: for [`Fixture::fresh`](crate::Fixture::fresh).
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

    /// Whether others than processes of this machine can reach endpoints there, so that these need a secret.
    #[must_use]
    pub fn is_open_to_others(&self) -> bool {
        let loopback = |host: IpAddr| host.is_loopback();
        !self.host.is_empty() && !self.host.parse().is_ok_and(loopback)
    }
}

/// A port that nobody listens at, below those that the system gives to connections.
#[must_use]
pub fn free_port(host: &str) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let offset = (std::process::id() as u16).wrapping_mul(97).wrapping_add(nth) % 12_000;
        let port = 20_000 + offset;
        if TcpListener::bind((host, port)).is_ok() {
            return port;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

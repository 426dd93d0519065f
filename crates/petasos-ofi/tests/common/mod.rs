//! Over which network the tests run.

#![allow(dead_code)]

use petasos_ofi::{Config, Secret};
use std::{env, sync::OnceLock};

/// A kind of address, and this machine's place on that network, where endpoints listen.
#[derive(Clone, Copy)]
pub(crate) struct Network {
    pub(crate) scheme: &'static str,
    pub(crate) host: &'static str,
}

/// TCP on the loopback interface, unless `PETASOS_OFI_NETWORK` names another, as `ofi+verbs://10.1.0.7`.
pub(crate) fn network() -> Network {
    static NAMED: OnceLock<Option<String>> = OnceLock::new();
    let named = NAMED.get_or_init(|| env::var("PETASOS_OFI_NETWORK").ok());
    let (scheme, host) = match named {
        Some(url) => url.split_once("://").expect("PETASOS_OFI_NETWORK is SCHEME://HOST"),
        None => ("ofi+tcp", "127.0.0.1"),
    };
    Network { scheme, host }
}

/// Shared memory of this node.
pub(crate) const SHM: Network = Network { scheme: "ofi+shm", host: "" };

impl Network {
    /// Any free place.
    pub(crate) fn anywhere(&self) -> String {
        match self.host {
            "" => format!("{}://*", self.scheme),
            host => format!("{}://{host}:0", self.scheme),
        }
    }

    /// What opens there: beyond the loopback interface a secret is needed.
    pub(crate) fn config(&self) -> Config {
        let mut config = Config::default();
        if !matches!(self.host, "" | "127.0.0.1") {
            config.secret = Some(Secret::new("a secret for the tests").unwrap());
        }
        config
    }
}

//! Over which network the tests run.

#![allow(dead_code)]

use petasos_conformance::Network;
use petasos_ofi::{Config, Secret};
use petasos_testing::{assert_at_least, skip};
use std::time::Duration;

/// TCP on the loopback interface, unless `PETASOS_OFI_NETWORK` names another network, as
/// `ofi+verbs://10.1.0.7`.
pub(crate) fn network() -> Network {
    Network::named("PETASOS_OFI_NETWORK", "ofi+tcp")
}

/// Shared memory of this node.
pub(crate) const SHM: Network = Network::of_node("ofi+shm");

/// How long libraries are waited for after a loss, which not all of them notice.
pub(crate) const MOURNING: Duration = Duration::from_secs(2);

/// What opens there: beyond the loopback interface a secret is needed.
pub(crate) fn config(network: Network) -> Config {
    let mut config = Config::default();
    config.mourning = MOURNING;
    if network.is_open_to_others() {
        config.secret = Some(Secret::new("a secret for the tests").unwrap());
    }
    config
}

/// The library, in the version that is wanted; says aloud if it is not here.
pub(crate) fn found() -> Option<String> {
    match petasos_ofi::find() {
        Ok(found) => {
            assert_at_least("PETASOS_LIBFABRIC_AT_LEAST", &found);
            Some(found)
        }
        Err(error) => {
            skip(&error.to_string());
            None
        }
    }
}

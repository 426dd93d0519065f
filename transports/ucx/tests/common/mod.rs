//! Over which networks the tests run.

#![allow(dead_code)]

use petasos_conformance::Network;
use petasos_testing::{assert_at_least, skip};
use petasos_ucx::{Config, OpenError, Secret};
use std::time::Duration;

/// TCP on the loopback interface, unless `PETASOS_UCX_NETWORK` names another network, as
/// `ucx+rc://10.1.0.7`.
pub(crate) fn network() -> Network {
    Network::named("PETASOS_UCX_NETWORK", "ucx+tcp")
}

/// Shared memory of this node.
pub(crate) const POSIX: Network = Network::of_node("ucx+posix");
pub(crate) const SYSV: Network = Network::of_node("ucx+sysv");
pub(crate) const CMA: Network = Network::of_node("ucx+cma");

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

/// Whether the library, in the version that is wanted, can use this network here; says so aloud if
/// not.
pub(crate) fn is_here(network: Network) -> bool {
    let why = match petasos_ucx::find() {
        Err(error) => error.to_string(),
        Ok(found) => {
            assert_at_least("PETASOS_UCX_AT_LEAST", &found);
            match petasos_ucx::missing(network.scheme) {
                Err(why) => why,
                Ok(()) => match petasos_ucx::open(&network.anywhere(), config(network)) {
                    Err(error @ OpenError::Loopback { .. }) => error.to_string(),
                    // Whatever else stands in the way is for the test to fail on.
                    _ => return true,
                },
            }
        }
    };
    skip(&why);
    false
}

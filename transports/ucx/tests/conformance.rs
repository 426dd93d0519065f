//! The contract, kept over UCX's transports for a network and for shared memory. Over its TCP what
//! is long is asked for, as processes cannot be kept from each other's memory there.

mod common;

use common::{CMA, POSIX, SYSV, is_here, network};
use petasos_channel::{Channels, Force};
use petasos_conformance::{Fixture, Network, RealTime, conformance};
use petasos_fabric::{Address, Endpoint, Time};
use petasos_ucx::{Config, Nic, Secret};
use std::time::Duration;

struct OverUcx {
    time: RealTime,
    network: Network,
    config: Config,
    force: Force,
}

impl OverUcx {
    fn new(network: Network, force: Force) -> OverUcx {
        let mut config = common::config(network);
        config.remote_access_from = 1;
        OverUcx { time: RealTime::default(), network, config, force }
    }

    fn with_secret(mut self) -> OverUcx {
        self.config.secret = Some(Secret::new("a secret for the tests").unwrap());
        self
    }

    /// Put and get are served by the owner of the memory.
    fn asking(network: Network) -> OverUcx {
        let mut over = OverUcx::new(network, Force::None);
        over.config.remote_access = false;
        over
    }
}

impl Fixture for OverUcx {
    fn fresh(&self) -> Address {
        self.network.fresh(&self.time)
    }

    fn open(&self, at: &Address) -> Box<dyn Endpoint> {
        let nic = Nic::open(at, self.config.clone()).unwrap();
        let mut settings = nic.settings();
        settings.force = self.force;
        Box::new(Channels::new(nic, settings))
    }

    fn missing(&self) -> Option<String> {
        (!is_here(self.network)).then(|| "it is not here".to_owned())
    }

    fn now(&self) -> Time {
        self.time.now()
    }

    fn refuses(&self) -> bool {
        true
    }

    fn holds_up_others(&self) -> Option<&'static str> {
        let shared = self.force == Force::Shared;
        shared.then_some("a peer that fetches nothing keeps all that the endpoint may lend")
    }

    fn deadline(&self) -> Duration {
        // A get takes a round trip, for which the sender's thread has to run.
        let times = if self.force == Force::Shared { 3 } else { 1 };
        Duration::from_secs(20) * times
    }
}

/// Over shared memory of UCX, where a peer that is stopped while it writes stops all that others
/// send to the same endpoint.
struct OneQueue(OverUcx);

impl Fixture for OneQueue {
    fn fresh(&self) -> Address {
        self.0.fresh()
    }

    fn open(&self, at: &Address) -> Box<dyn Endpoint> {
        self.0.open(at)
    }

    fn missing(&self) -> Option<String> {
        self.0.missing()
    }

    fn holds_up_others(&self) -> Option<&'static str> {
        Some("all peers of an endpoint write to one queue, and UCX waits for each slot in it")
    }

    fn now(&self) -> Time {
        self.0.now()
    }
}

mod networks {
    use super::*;
    conformance!(OverUcx::new(network(), Force::None));
    conformance!(faulty, OverUcx::new(network(), Force::None).with_secret());
    conformance!(stopped, OverUcx::new(network(), Force::None));
    conformance!(passive, OverUcx::new(network(), Force::None));
}

mod posix {
    use super::*;
    conformance!(OverUcx::new(POSIX, Force::None));
    conformance!(faulty, OverUcx::new(POSIX, Force::None).with_secret());
    conformance!(stopped, OverUcx::new(POSIX, Force::None));
    conformance!(passive, OneQueue(OverUcx::new(POSIX, Force::None)));
}

mod shared {
    use super::*;
    conformance!(OverUcx::new(network(), Force::Shared));
}

/// Put and get are UCX's.
mod native {
    use super::*;

    mod sysv {
        use super::*;
        conformance!(OverUcx::new(SYSV, Force::None));
        conformance!(stopped, OverUcx::new(SYSV, Force::None));
    }

    mod cma {
        use super::*;
        conformance!(OverUcx::new(CMA, Force::None));
        conformance!(faulty, OverUcx::new(CMA, Force::None).with_secret());
        conformance!(stopped, OverUcx::new(CMA, Force::None));
        conformance!(passive, OneQueue(OverUcx::new(CMA, Force::None)));
    }
}

/// The same transports, with put and get served by the owner of the memory.
mod served_by_the_owner {
    use super::*;
    conformance!(OverUcx::asking(CMA));
}

/// Everything goes through exclusive channels.
mod exclusive {
    use super::*;
    conformance!(OverUcx::new(network(), Force::Exclusive));
    conformance!(stopped, OverUcx::new(network(), Force::Exclusive));

    mod posix {
        use super::*;
        conformance!(OverUcx::new(POSIX, Force::Exclusive));
        conformance!(stopped, OverUcx::new(POSIX, Force::Exclusive));
    }
}

//! The contract, kept over libfabric's providers for a network and for shared memory.

mod common;

use common::{SHM, found, network};
use petasos_channel::{Channels, Force};
use petasos_conformance::{Fixture, Network, RealTime, conformance};
use petasos_fabric::{Address, Endpoint, Time};
use petasos_ofi::{Config, Nic, Secret};
use std::time::Duration;

struct OverOfi {
    time: RealTime,
    network: Network,
    config: Config,
    force: Force,
    /// Whether there are no more than two processes.
    two: bool,
}

impl OverOfi {
    fn new(network: Network, secret: bool, force: Force) -> OverOfi {
        let mut config = common::config(network);
        config.remote_access_from = 1;
        config.completion_data_from = Some(1);
        if secret {
            config.secret = Some(Secret::new("a secret for the tests").unwrap());
        }
        OverOfi { time: RealTime::default(), network, config, force, two: false }
    }

    /// With one peer, which may be stopped.
    fn of_two(self) -> OverOfi {
        OverOfi { two: true, ..self }
    }

    /// Nothing is read by the library: the owner's NIC sends it.
    fn asking(network: Network, force: Force) -> OverOfi {
        let mut over = OverOfi::new(network, false, force);
        over.config.remote_access = false;
        over
    }
}

impl Fixture for OverOfi {
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
        let Some(found) = found() else { return Some("it is not here".to_owned()) };
        // The suite has both ends in one process.
        let joins_its_own = self.network != SHM || found.starts_with("libfabric 1.");
        let why = format!("{found}: its provider shm does not connect endpoints of one process");
        (!joins_its_own).then(|| {
            petasos_testing::skip(&why);
            why
        })
    }

    fn now(&self) -> Time {
        self.time.now()
    }

    fn deadline(&self) -> Duration {
        // A read takes a round trip, for which the sender's thread has to run.
        let times = if self.force == Force::Shared { 3 } else { 1 };
        Duration::from_secs(20) * times
    }

    fn refuses(&self) -> bool {
        true
    }

    fn stands_still(&self) -> Option<&'static str> {
        let why = "a sender that is stopped may hold the lock of its receiver's memory, which then \
                   receives nothing of others, either";
        (self.network == SHM && !self.two).then_some(why)
    }
}

/// By size and traffic.
mod networks {
    use super::*;
    conformance!(OverOfi::new(network(), false, Force::None));
    conformance!(faulty, OverOfi::new(network(), true, Force::None));
    conformance!(out_of_process, OverOfi::new(network(), true, Force::None));
    conformance!(stopped, OverOfi::new(network(), true, Force::None));
    conformance!(passive, OverOfi::new(network(), true, Force::None));
}

mod shm {
    use super::*;
    conformance!(OverOfi::new(SHM, false, Force::None));
    conformance!(faulty, OverOfi::new(SHM, true, Force::None));
    conformance!(stopped, OverOfi::new(SHM, false, Force::None).of_two());
    conformance!(passive, OverOfi::new(SHM, false, Force::None));
}

/// Put and get served by the owner of the memory: nothing is registered with the provider.
mod served_by_the_owner {
    use super::*;
    mod networks {
        use super::*;
        conformance!(OverOfi::asking(network(), Force::None));
        conformance!(passive, OverOfi::asking(network(), Force::None));
        conformance!(stopped, OverOfi::asking(network(), Force::None));
    }
    mod shm {
        use super::*;
        conformance!(OverOfi::asking(SHM, Force::None));
        conformance!(stopped, OverOfi::asking(SHM, Force::None).of_two());
    }
}

/// Everything is read by its receiver.
mod shared {
    use super::*;
    conformance!(OverOfi::new(network(), false, Force::Shared));

    /// Everything is asked for.
    mod asking {
        use super::*;
        conformance!(OverOfi::asking(network(), Force::Shared));
    }
}

/// Everything goes through exclusive channels.
mod exclusive {
    use super::*;
    conformance!(OverOfi::new(network(), false, Force::Exclusive));
    conformance!(stopped, OverOfi::new(network(), false, Force::Exclusive));
    conformance!(passive, OverOfi::new(network(), false, Force::Exclusive));
}

//! The contract, kept over libfabric's providers for a network and for shared memory.

mod common;

use common::{SHM, found, network};
use petasos_conformance::{Fixture, Network, RealTime};
use petasos_datagram::Datagrams;
use petasos_fabric::{Address, Endpoint, Time};
use petasos_ofi::{Config, Secret};

struct OverOfi {
    time: RealTime,
    network: Network,
    config: Config,
}

impl OverOfi {
    fn new(network: Network, secret: bool, remote_access: bool) -> OverOfi {
        let mut config = common::config(network);
        config.remote_access = remote_access;
        config.remote_access_from = 1;
        config.completion_data_from = Some(1);
        if secret {
            config.secret = Some(Secret::new("a secret for the tests").unwrap());
        }
        OverOfi { time: RealTime::default(), network, config }
    }
}

impl Fixture for OverOfi {
    fn fresh(&self) -> Address {
        self.network.fresh(&self.time)
    }

    fn open(&self, at: &Address) -> Box<dyn Endpoint> {
        Box::new(Datagrams::<petasos_ofi::Net>::open(at, self.config.clone()).unwrap())
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

    fn holds_up_others(&self) -> Option<&'static str> {
        let sends = self.network == SHM && !self.config.remote_access;
        sends.then_some("the provider shm completes no long send while a peer has not taken one")
    }

    fn keeps_memory(&self) -> Option<&'static str> {
        Some("libfabric completes no send to a process that was killed before it had taken it")
    }

    fn now(&self) -> Time {
        self.time.now()
    }

    fn stands_still(&self) -> Option<&'static str> {
        let why = "a command to a peer takes a lock in its memory, which a stopped one may hold";
        (self.network == SHM).then_some(why)
    }

    fn refuses(&self) -> bool {
        true
    }
}

/// The suite for one kind of address, where the library has its provider; else a test that says so.
macro_rules! over {
    ($network:expr, $remote_access:expr) => {
        petasos_conformance::conformance!(OverOfi::new($network, false, $remote_access));
        petasos_conformance::conformance!(faulty, OverOfi::new($network, true, $remote_access));
    };
}

mod networks {
    use super::*;
    over!(network(), true);
    petasos_conformance::conformance!(out_of_process, OverOfi::new(network(), true, true));
    petasos_conformance::conformance!(stopped, OverOfi::new(network(), true, true));
    petasos_conformance::conformance!(passive, OverOfi::new(network(), true, true));
}

mod shm {
    use super::*;
    over!(SHM, true);
    petasos_conformance::conformance!(stopped, OverOfi::new(SHM, false, true));
    petasos_conformance::conformance!(passive, OverOfi::new(SHM, false, true));
}

/// Put and get served by the owner of the memory: nothing is registered with the provider.
mod served_by_the_owner {
    use super::*;
    mod networks {
        use super::*;
        petasos_conformance::conformance!(OverOfi::new(network(), true, false));
        petasos_conformance::conformance!(stopped, OverOfi::new(network(), true, false));
        petasos_conformance::conformance!(passive, OverOfi::new(network(), true, false));
    }
    mod shm {
        use super::*;
        petasos_conformance::conformance!(OverOfi::new(SHM, false, false));
    }
}

/// The channels of an RDMA network, with these endpoints as the device.
mod channels {
    use super::*;
    use petasos_channel::{Channels, Force, Over};

    /// Exclusive ones; the others are tested so over UCX, and all over shared memory.
    struct Channelled(OverOfi);

    impl Fixture for Channelled {
        fn fresh(&self) -> Address {
            self.0.fresh()
        }

        fn open(&self, at: &Address) -> Box<dyn Endpoint> {
            let device =
                Over::new(Datagrams::<petasos_ofi::Net>::open(at, self.0.config.clone()).unwrap());
            let mut config = petasos_channel::Config::default();
            config.force = Force::Exclusive;
            Box::new(Channels::new(device, config))
        }

        fn missing(&self) -> Option<String> {
            self.0.missing()
        }

        fn now(&self) -> Time {
            self.0.now()
        }
    }

    petasos_conformance::conformance!(Channelled(OverOfi::new(network(), false, true)));
    petasos_conformance::conformance!(stopped, Channelled(OverOfi::new(network(), false, true)));
    petasos_conformance::conformance!(passive, Channelled(OverOfi::new(network(), false, true)));
}

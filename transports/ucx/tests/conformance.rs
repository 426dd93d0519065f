//! The contract, kept over UCX's transports for a network and for shared memory.

mod common;

use common::{CMA, POSIX, SYSV, is_here, network};
use petasos_conformance::{Fixture, Network, RealTime};
use petasos_datagram::Datagrams;
use petasos_fabric::{Address, Endpoint, Time};
use petasos_ucx::{Config, Secret};

struct OverUcx {
    time: RealTime,
    network: Network,
    config: Config,
}

impl OverUcx {
    fn new(network: Network, secret: bool, remote_access: bool) -> OverUcx {
        let mut config = common::config(network);
        config.remote_access = remote_access;
        config.remote_access_from = 1;
        if secret {
            config.secret = Some(Secret::new("a secret for the tests").unwrap());
        }
        OverUcx { time: RealTime::default(), network, config }
    }
}

impl Fixture for OverUcx {
    fn fresh(&self) -> Address {
        self.network.fresh(&self.time)
    }

    fn open(&self, at: &Address) -> Box<dyn Endpoint> {
        Box::new(Datagrams::<petasos_ucx::Net>::open(at, self.config.clone()).unwrap())
    }

    fn missing(&self) -> Option<String> {
        (!is_here(self.network)).then(|| "it is not here".to_owned())
    }

    fn keeps_memory(&self) -> Option<&'static str> {
        Some("UCX completes no send to a process that was killed before it had taken it")
    }

    fn now(&self) -> Time {
        self.time.now()
    }

    fn refuses(&self) -> bool {
        true
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

/// The suite for one kind of address, where the library has its provider; else a test that says so.
macro_rules! over {
    ($network:expr, $remote_access:expr) => {
        petasos_conformance::conformance!(OverUcx::new($network, false, $remote_access));
        petasos_conformance::conformance!(faulty, OverUcx::new($network, true, $remote_access));
    };
}

mod networks {
    use super::*;
    over!(network(), true);
    petasos_conformance::conformance!(stopped, OverUcx::new(network(), true, true));
    petasos_conformance::conformance!(passive, OverUcx::new(network(), true, true));
}

mod posix {
    use super::*;
    over!(POSIX, true);
    petasos_conformance::conformance!(stopped, OverUcx::new(POSIX, false, true));
    petasos_conformance::conformance!(passive, OneQueue(OverUcx::new(POSIX, false, true)));
}

mod sysv {
    use super::*;
    petasos_conformance::conformance!(OverUcx::new(SYSV, false, true));
    petasos_conformance::conformance!(stopped, OverUcx::new(SYSV, false, true));
}

/// Put and get by the kernel.
mod cma {
    use super::*;
    over!(CMA, true);
    petasos_conformance::conformance!(stopped, OverUcx::new(CMA, false, true));
    petasos_conformance::conformance!(passive, OneQueue(OverUcx::new(CMA, false, true)));
}

/// The same transports, with put and get served by the owner of the memory.
mod served_by_the_owner {
    use super::*;
    petasos_conformance::conformance!(OverUcx::new(CMA, false, false));
}

/// The channels of an RDMA network, with these endpoints as the device.
mod channels {
    use super::*;
    use petasos_channel::{Channels, Force, Over};

    struct Channelled {
        over: OverUcx,
        force: Force,
    }

    impl Channelled {
        fn new(network: Network, force: Force) -> Channelled {
            Channelled { over: OverUcx::new(network, false, true), force }
        }
    }

    impl Fixture for Channelled {
        fn fresh(&self) -> Address {
            self.over.fresh()
        }

        fn open(&self, at: &Address) -> Box<dyn Endpoint> {
            let device = Over::new(
                Datagrams::<petasos_ucx::Net>::open(at, self.over.config.clone()).unwrap(),
            );
            let mut config = petasos_channel::Config::default();
            config.force = self.force;
            Box::new(Channels::new(device, config))
        }

        fn missing(&self) -> Option<String> {
            self.over.missing()
        }

        fn now(&self) -> Time {
            self.over.now()
        }
    }

    mod usual {
        use super::*;
        petasos_conformance::conformance!(Channelled::new(network(), Force::None));
    }

    mod exclusive {
        use super::*;
        petasos_conformance::conformance!(Channelled::new(network(), Force::Exclusive));
        petasos_conformance::conformance!(stopped, Channelled::new(network(), Force::Exclusive));
    }
}

//! The contract, kept over libfabric's providers for a network and for shared memory.

mod common;

use common::{Network, SHM, network};
use petasos_conformance::{Fixture, RealTime};
use petasos_fabric::{Address, Endpoint, Time};
use petasos_ofi::{Config, Ofi, Secret};
use std::{
    net::TcpListener,
    sync::atomic::{AtomicU16, Ordering},
};

struct OverOfi {
    time: RealTime,
    network: Network,
    config: Config,
}

impl OverOfi {
    fn new(network: Network, secret: bool, remote_access: bool) -> OverOfi {
        let mut config = network.config();
        config.remote_access = remote_access;
        config.remote_access_from = 1;
        if secret {
            config.secret = Some(Secret::new("a secret for the tests").unwrap());
        }
        OverOfi { time: RealTime::default(), network, config }
    }
}

/// A free port below those that the system gives to connections.
fn port(host: &str) -> u16 {
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

impl Fixture for OverOfi {
    fn fresh(&self) -> Address {
        let Network { scheme, host } = self.network;
        let place = match host {
            "" => self.time.name(),
            _ => format!("{host}:{}", port(host)),
        };
        Address::parse(&format!("{scheme}://{place}")).unwrap()
    }

    fn open(&self, at: &Address) -> Box<dyn Endpoint> {
        Box::new(Ofi::open(at, self.config.clone()).unwrap())
    }

    fn missing(&self) -> Option<String> {
        let why = match petasos_ofi::find() {
            Err(error) => error.to_string(),
            // The suite has both ends in one process.
            Ok(found)
                if self.network.scheme == SHM.scheme && !found.starts_with("libfabric 1.") =>
            {
                format!("{found}: its provider shm does not connect endpoints of one process")
            }
            Ok(_) => return None,
        };
        petasos_testing::skip(&why);
        Some(why)
    }

    fn now(&self) -> Time {
        self.time.now()
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
    petasos_conformance::conformance!(apart, OverOfi::new(network(), true, true));
}

mod shm {
    use super::*;
    over!(SHM, true);
}

/// Put and get served by the owner of the memory: nothing is registered with the provider.
mod served_by_the_owner {
    use super::*;
    mod networks {
        use super::*;
        petasos_conformance::conformance!(OverOfi::new(network(), true, false));
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
            let device = Over::new(Ofi::open(at, self.0.config.clone()).unwrap());
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
}

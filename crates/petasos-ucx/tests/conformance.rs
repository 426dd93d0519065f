//! The contract, kept over UCX's transports for TCP and for shared memory.

use petasos_conformance::{Fixture, RealTime};
use petasos_fabric::{Address, Endpoint, Time};
use petasos_ucx::{Config, Secret, Ucx};
use std::{
    net::TcpListener,
    sync::atomic::{AtomicU16, Ordering},
};

struct OverUcx {
    time: RealTime,
    scheme: &'static str,
    config: Config,
}

impl OverUcx {
    fn new(scheme: &'static str, secret: bool, remote_access: bool) -> OverUcx {
        let mut config = Config::default();
        config.remote_access = remote_access;
        config.remote_access_from = 1;
        if secret {
            config.secret = Some(Secret::new("a secret for the tests").unwrap());
        }
        OverUcx { time: RealTime::default(), scheme, config }
    }
}

/// A free port below those that the system gives to connections.
fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let offset = (std::process::id() as u16).wrapping_mul(97).wrapping_add(nth) % 12_000;
        let port = 20_000 + offset;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

impl Fixture for OverUcx {
    fn fresh(&self) -> Address {
        let place = match self.scheme {
            "ucx+posix" | "ucx+sysv" | "ucx+cma" => self.time.name(),
            _ => format!("127.0.0.1:{}", port()),
        };
        Address::parse(&format!("{}://{place}", self.scheme)).unwrap()
    }

    fn open(&self, at: &Address) -> Box<dyn Endpoint> {
        Box::new(Ucx::open(at, self.config.clone()).unwrap())
    }

    fn missing(&self) -> Option<String> {
        let here = petasos_ucx::find().map_err(|error| error.to_string());
        let why = here.and_then(|_| petasos_ucx::missing(self.scheme)).err()?;
        petasos_testing::skip(&why);
        Some(why)
    }

    fn now(&self) -> Time {
        self.time.now()
    }
}

/// The suite for one kind of address, where the library has its provider; else a test that says so.
macro_rules! over {
    ($scheme:expr, $remote_access:expr) => {
        petasos_conformance::conformance!(OverUcx::new($scheme, false, $remote_access));
        petasos_conformance::conformance!(faulty, OverUcx::new($scheme, true, $remote_access));
    };
}

mod tcp {
    use super::*;
    over!("ucx+tcp", true);
}

mod posix {
    use super::*;
    over!("ucx+posix", true);
}

mod sysv {
    use super::*;
    petasos_conformance::conformance!(OverUcx::new("ucx+sysv", false, true));
}

/// Put and get by the kernel.
mod cma {
    use super::*;
    over!("ucx+cma", true);
}

/// The same transports, with put and get served by the owner of the memory.
mod served_by_the_owner {
    use super::*;
    petasos_conformance::conformance!(OverUcx::new("ucx+cma", false, false));
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
        fn new(scheme: &'static str, force: Force) -> Channelled {
            Channelled { over: OverUcx::new(scheme, false, true), force }
        }
    }

    impl Fixture for Channelled {
        fn fresh(&self) -> Address {
            self.over.fresh()
        }

        fn open(&self, at: &Address) -> Box<dyn Endpoint> {
            let device = Over::new(Ucx::open(at, self.over.config.clone()).unwrap());
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
        petasos_conformance::conformance!(Channelled::new("ucx+tcp", Force::None));
    }

    mod exclusive {
        use super::*;
        petasos_conformance::conformance!(Channelled::new("ucx+tcp", Force::Exclusive));
    }
}

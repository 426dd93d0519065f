//! The contract, kept by the channels over endpoints of real memory: shared memory as the device, in
//! real time, with descriptors to sleep on.

use petasos_channel::{Channels, Config, Force, Over};
use petasos_conformance::{Fixture, RealTime, conformance};
use petasos_fabric::{Address, Endpoint, Time};
use petasos_shm::Shm;

struct OverSharedMemory {
    time: RealTime,
    config: Config,
}

impl OverSharedMemory {
    fn new(force: Force) -> OverSharedMemory {
        let mut config = Config::default();
        config.force = force;
        OverSharedMemory { time: RealTime::default(), config }
    }
}

impl Fixture for OverSharedMemory {
    fn fresh(&self) -> Address {
        Address::parse(&format!("shm://{}", self.time.name())).unwrap()
    }

    fn open(&self, at: &Address) -> Box<dyn Endpoint> {
        let device = Shm::open_with(at, petasos_shm::Config::default()).unwrap();
        Box::new(Channels::new(Over::new(device), self.config.clone()))
    }

    fn now(&self) -> Time {
        self.time.now()
    }
}

mod usual {
    use super::*;
    conformance!(OverSharedMemory::new(Force::None));
}

mod exclusive {
    use super::*;
    conformance!(OverSharedMemory::new(Force::Exclusive));
}

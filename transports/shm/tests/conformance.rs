//! The contract, kept over shared memory: with and without reaching into other processes.

use petasos_conformance::{Fixture, RealTime, conformance};
use petasos_fabric::{Address, Endpoint, Time};
use petasos_shm::{Config, Shm};

struct SharedMemory {
    time: RealTime,
    config: Config,
}

impl SharedMemory {
    fn new(cross_memory: bool) -> SharedMemory {
        let mut config = Config::default();
        config.cross_memory = cross_memory;
        SharedMemory { time: RealTime::default(), config }
    }
}

impl Fixture for SharedMemory {
    fn fresh(&self) -> Address {
        Address::parse(&format!("shm://{}", self.time.name())).unwrap()
    }

    fn open(&self, at: &Address) -> Box<dyn Endpoint> {
        Box::new(Shm::open_with(at, self.config.clone()).unwrap())
    }

    fn now(&self) -> Time {
        self.time.now()
    }

    fn refuses(&self) -> bool {
        true
    }
}

mod reaching {
    use super::*;
    conformance!(SharedMemory::new(true));
    conformance!(faulty, SharedMemory::new(true));
    conformance!(stopped, SharedMemory::new(true));
    conformance!(attended, SharedMemory::new(true));
    conformance!(passive, SharedMemory::new(true));
}

mod served_by_the_owner {
    use super::*;
    conformance!(SharedMemory::new(false));
    conformance!(faulty, SharedMemory::new(false));
    conformance!(stopped, SharedMemory::new(false));
    conformance!(attended, SharedMemory::new(false));
    conformance!(passive, SharedMemory::new(false));
}

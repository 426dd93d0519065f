//! The contract, kept on the simulated network.

use petasos_conformance::{Fixture, conformance};
use petasos_fabric::{Address, Endpoint, Time};
use petasos_sim::{SimConfig, SimNet};
use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

struct Simulated {
    net: SimNet,
    names: AtomicU32,
}

impl Simulated {
    fn with(seed: u64) -> Simulated {
        Simulated { net: SimNet::new(SimConfig::with_seed(seed)), names: AtomicU32::new(0) }
    }
}

impl Fixture for Simulated {
    fn fresh(&self) -> Address {
        let name = self.names.fetch_add(1, Ordering::Relaxed);
        Address::parse(&format!("sim://{name}")).unwrap()
    }

    fn open(&self, at: &Address) -> Box<dyn Endpoint> {
        Box::new(self.net.open(at).unwrap())
    }

    fn now(&self) -> Time {
        self.net.now()
    }

    fn pass(&self) {
        if !self.net.step() {
            // Nothing will happen by itself: time passes all the same.
            self.net.run_for(Duration::from_micros(100));
        }
    }
}

conformance!(Simulated::with(1));
conformance!(faulty, Simulated::with(2));

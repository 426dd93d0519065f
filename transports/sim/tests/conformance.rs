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

    fn refuses(&self) -> bool {
        true
    }

    fn pass(&self, _: u32) {
        if !self.net.step() {
            // Nothing will happen by itself: time passes all the same.
            self.net.run_for(Duration::from_micros(100));
        }
    }
}

conformance!(Simulated::with(1));
conformance!(faulty, Simulated::with(2));

/// Over slow links, on which an access is on its way for long, and the caller stands still
/// meanwhile.
#[test]
fn memory_is_closed_under_delayed_accesses() {
    let mut met = 0;
    for seed in 0..24 {
        let mut config = SimConfig::with_seed(seed);
        config.latency = Duration::from_micros(20 << (seed % 4));
        config.jitter = config.latency;
        config.bandwidth = 1_000_000_000;
        let fixture = Simulated { net: SimNet::new(config), names: AtomicU32::new(0) };
        met += petasos_conformance::delayed::closings(&fixture, seed);
    }
    assert!(met > 24, "{met} closings met an access");
}

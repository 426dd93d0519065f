//! The contract, kept by the channels over the simulated device: as they come, each alone, and with
//! numbers so small that every bound is hit.

use petasos_channel::{Channels, Config, Force, Thresholds};
use petasos_conformance::{Fixture, conformance};
use petasos_fabric::{Address, Endpoint, Time};
use petasos_sim::device::{DeviceConfig, DeviceNet};
use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

struct Simulated {
    net: DeviceNet,
    names: AtomicU32,
    config: Config,
}

impl Simulated {
    fn new(seed: u64) -> Simulated {
        Simulated::with(DeviceConfig::with_seed(seed), Config::default())
    }

    fn with(device: DeviceConfig, config: Config) -> Simulated {
        Simulated { net: DeviceNet::new(device), names: AtomicU32::new(0), config }
    }

    fn forced(seed: u64, force: Force) -> Simulated {
        let mut config = Config::default();
        config.force = force;
        Simulated::with(DeviceConfig::with_seed(seed), config)
    }

    /// Everything runs out all the time.
    fn tiny(seed: u64, force: Force) -> Simulated {
        Simulated::small(DeviceConfig::with_seed(seed), force)
    }

    fn small(mut device: DeviceConfig, force: Force) -> Simulated {
        device.packet = 256;
        device.immediate = 40;
        device.transfer = 70_000_usize.next_power_of_two() * 4;
        device.slots = 3;
        device.control_slots = 2;
        device.in_flight = 2;
        device.operations = 3;
        let mut config = Config::default();
        config.force = force;
        config.thresholds = Some(Thresholds::new(600, 2000, 100).unwrap());
        config.window = 2;
        config.deferred = 2;
        config.exclusive.cells = 8;
        config.exclusive.hot.messages = 2;
        config.exclusive.give.count = 1;
        config.exclusive.give.idle = Duration::from_micros(5);
        config.exclusive.keep.count = 1;
        config.exclusive.keep.idle = Duration::from_micros(5);
        config.exclusive.pause = Duration::from_micros(20);
        config.fragment = 20_000;
        config.lent = 2;
        config.gets = 1;
        config.bounces = 1;
        config.bounce = 1000;
        config.accesses = 1;
        config.idle = Duration::from_micros(50);
        Simulated::with(device, config)
    }
}

impl Fixture for Simulated {
    fn fresh(&self) -> Address {
        let name = self.names.fetch_add(1, Ordering::Relaxed);
        Address::parse(&format!("simdev://{name}")).unwrap()
    }

    fn open(&self, at: &Address) -> Box<dyn Endpoint> {
        Box::new(Channels::new(self.net.open(at).unwrap(), self.config.clone()))
    }

    fn now(&self) -> Time {
        self.net.now()
    }

    fn pass(&self, _: u32) {
        if !self.net.step() {
            // Nothing will happen by itself: time passes all the same.
            self.net.run_for(Duration::from_micros(100));
        }
    }
}

/// As it comes.
mod usual {
    use super::*;
    conformance!(Simulated::new(1));
    conformance!(faulty, Simulated::new(2));
}

/// Short packets alone.
mod mp {
    use super::*;
    conformance!(Simulated::forced(3, Force::Mp));
}

/// Everything fetched.
mod shared {
    use super::*;
    conformance!(Simulated::forced(4, Force::Shared));
}

/// Exclusive channels at once.
mod exclusive {
    use super::*;
    conformance!(Simulated::forced(5, Force::Exclusive));
}

/// Packets are found where they lie.
mod found {
    use super::*;

    fn finding(seed: u64) -> DeviceConfig {
        let mut device = DeviceConfig::with_seed(seed);
        device.finds = true;
        device
    }

    conformance!(Simulated::with(finding(12), Config::default()));
    conformance!(faulty, Simulated::with(finding(13), Config::default()));

    /// Every bound is hit.
    mod tiny {
        use super::*;
        conformance!(Simulated::small(finding(14), Force::Mp));
    }
}

/// Every bound is hit.
mod tiny {
    use super::*;
    conformance!(Simulated::tiny(6, Force::None));
}

/// Every bound is hit, with faults.
mod tiny_faulty {
    use super::*;
    conformance!(faulty, Simulated::tiny(7, Force::None));
}

/// Every bound is hit, of one channel.
mod tiny_exclusive {
    use super::*;
    conformance!(Simulated::tiny(8, Force::Exclusive));
}

/// The same.
mod tiny_shared {
    use super::*;
    conformance!(Simulated::tiny(9, Force::Shared));
}

/// The same, with buffers for what is fetched ahead of its turn.
mod tiny_ahead {
    use super::*;

    fn ahead(seed: u64, force: Force) -> Simulated {
        let mut simulated = Simulated::tiny(seed, force);
        let config = &mut simulated.config;
        (config.window, config.deferred, config.bounces, config.ahead) = (4, 4, 3, 3);
        simulated
    }

    conformance!(ahead(10, Force::Shared));
    conformance!(faulty, ahead(11, Force::None));
}

//! The contract, kept by the channels over cards made of UCX: over its TCP what is long is asked for,
//! as processes cannot be kept from each other's memory there.

mod common;

use common::{CMA, POSIX, SYSV, is_here, network};
use petasos_channel::{Channels, Force};
use petasos_conformance::{Fixture, Network, RealTime, conformance};
use petasos_fabric::{Address, Endpoint, Time};
use petasos_ucx::Card;
use std::time::Duration;

struct OverCard {
    time: RealTime,
    network: Network,
    force: Force,
}

impl OverCard {
    fn new(network: Network, force: Force) -> OverCard {
        OverCard { time: RealTime::default(), network, force }
    }
}

impl Fixture for OverCard {
    fn fresh(&self) -> Address {
        self.network.fresh(&self.time)
    }

    fn open(&self, at: &Address) -> Box<dyn Endpoint> {
        let mut config = common::config(self.network);
        config.remote_access_from = 1;
        let card = Card::open(at, config).unwrap();
        let mut settings = card.settings();
        settings.force = self.force;
        Box::new(Channels::new(card, settings))
    }

    fn missing(&self) -> Option<String> {
        (!is_here(self.network)).then(|| "it is not here".to_owned())
    }

    fn now(&self) -> Time {
        self.time.now()
    }

    fn refuses(&self) -> bool {
        true
    }

    fn holds_up_others(&self) -> Option<&'static str> {
        let shared = self.force == Force::Shared;
        shared.then_some("a peer that fetches nothing keeps all that the endpoint may lend")
    }

    fn deadline(&self) -> Duration {
        // A get takes a round trip, for which the sender's thread has to run.
        let times = if self.force == Force::Shared { 3 } else { 1 };
        Duration::from_secs(20) * times
    }
}

mod usual {
    use super::*;
    conformance!(OverCard::new(network(), Force::None));
    conformance!(faulty, OverCard::new(network(), Force::None));
    conformance!(stopped, OverCard::new(network(), Force::None));
}

mod posix {
    use super::*;
    conformance!(OverCard::new(POSIX, Force::None));
    conformance!(faulty, OverCard::new(POSIX, Force::None));
    conformance!(stopped, OverCard::new(POSIX, Force::None));
}

mod shared {
    use super::*;
    conformance!(OverCard::new(network(), Force::Shared));
}

/// Put and get are UCX's.
mod native {
    use super::*;

    mod sysv {
        use super::*;
        conformance!(OverCard::new(SYSV, Force::None));
        conformance!(stopped, OverCard::new(SYSV, Force::None));
    }

    mod cma {
        use super::*;
        conformance!(OverCard::new(CMA, Force::None));
        conformance!(faulty, OverCard::new(CMA, Force::None));
        conformance!(stopped, OverCard::new(CMA, Force::None));
    }
}

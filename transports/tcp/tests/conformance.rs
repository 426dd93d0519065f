//! The contract, kept over TCP.

use petasos_conformance::{Fixture, RealTime, conformance, free_port};
use petasos_fabric::{Address, Endpoint, Time};
use petasos_tcp::{Config, Secret, TcpEndpoint};
use std::time::Duration;

#[derive(Default)]
struct OverTcp {
    time: RealTime,
    secret: Option<Secret>,
    idle: Option<Duration>,
    encrypt: bool,
}

impl Fixture for OverTcp {
    fn fresh(&self) -> Address {
        let option = if self.encrypt { "?encrypt" } else { "" };
        Address::parse(&format!("tcp://127.0.0.1:{}{option}", free_port("127.0.0.1"))).unwrap()
    }

    fn open(&self, at: &Address) -> Box<dyn Endpoint> {
        let mut config = Config::default();
        config.secret = self.secret.clone();
        config.close_idle_after = self.idle;
        Box::new(TcpEndpoint::open(at, config).unwrap())
    }

    fn now(&self) -> Time {
        self.time.now()
    }

    fn refuses(&self) -> bool {
        true
    }
}

conformance!(OverTcp::default());
conformance!(
    faulty,
    OverTcp { secret: Some(Secret::new("a secret for the tests").unwrap()), ..OverTcp::default() }
);
conformance!(out_of_process, OverTcp::default());
conformance!(parting, OverTcp { idle: Some(Duration::from_millis(10)), ..OverTcp::default() });
conformance!(stopped, OverTcp::default());
conformance!(attended, OverTcp::default());
conformance!(passive, OverTcp::default());

/// All packets are encrypted, and connections closed as often as they can be.
mod encrypted {
    use super::*;

    conformance!(OverTcp {
        secret: Some(Secret::new("a secret for the tests").unwrap()),
        idle: Some(Duration::from_millis(10)),
        encrypt: true,
        ..OverTcp::default()
    });
}

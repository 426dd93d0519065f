//! The contract, kept over TCP.

use petasos_conformance::{Fixture, RealTime, conformance};
use petasos_fabric::{Address, Endpoint, Time};
use petasos_tcp::{Config, Secret, TcpEndpoint};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

#[derive(Default)]
struct OverTcp {
    time: RealTime,
    secret: Option<Secret>,
    idle: Option<Duration>,
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

impl Fixture for OverTcp {
    fn fresh(&self) -> Address {
        Address::parse(&format!("tcp://127.0.0.1:{}", port())).unwrap()
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
}

conformance!(OverTcp::default());
conformance!(
    faulty,
    OverTcp { secret: Some(Secret::new("a secret for the tests").unwrap()), ..OverTcp::default() }
);
conformance!(apart, OverTcp::default());
conformance!(parting, OverTcp { idle: Some(Duration::from_millis(10)), ..OverTcp::default() });

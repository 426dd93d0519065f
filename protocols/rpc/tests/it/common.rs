//! Two or more engines on one thread, over the fabric inside this process.

#![allow(dead_code)]

use futures_util::future::FutureExt;
use petasos_fabric::{Address, Endpoint};
use petasos_rpc::{Engine, EngineConfig, Idle};
use std::{
    task::{Context, Waker},
    time::{Duration, Instant},
};

/// An engine under a random name.
pub(crate) fn engine() -> Engine {
    engine_with(EngineConfig::default())
}

pub(crate) fn engine_with(config: EngineConfig) -> Engine {
    engine_over("self://*", config)
}

/// An engine at an address of `self`, shared memory, or TCP.
pub(crate) fn engine_over(address: &str, mut config: EngineConfig) -> Engine {
    config.idle = Idle::Spin;
    let address = address.parse().expect("an address");
    let endpoint: Box<dyn Endpoint> = match Address::scheme(&address) {
        "self" => Box::new(petasos_self::Local::open(&address).expect("an endpoint opens")),
        "shm" => Box::new(petasos_shm::Shm::open(&address).expect("an endpoint opens")),
        _ => {
            let config = petasos_tcp::Config::default();
            Box::new(petasos_tcp::TcpEndpoint::open(&address, config).expect("an endpoint opens"))
        }
    };
    Engine::new(endpoint, config)
}

/// Drives all engines until the future is ready.
///
/// # Panics
/// If that takes ten seconds.
pub(crate) fn run<F: Future>(engines: &[&Engine], future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        for engine in engines {
            engine.progress();
        }
        if let std::task::Poll::Ready(output) = future.poll_unpin(&mut context) {
            return output;
        }
        assert!(Instant::now() < end, "the future is not ready after ten seconds");
    }
}

/// Drives all engines for a while.
pub(crate) fn turn_for(engines: &[&Engine], time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        engines.iter().for_each(|engine| {
            engine.progress();
        });
    }
}

/// Drives all engines until none of them holds anything.
pub(crate) fn settle(engines: &[&Engine]) {
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        for engine in engines {
            engine.progress();
        }
        let usage: Vec<_> = engines.iter().map(|engine| engine.usage()).collect();
        if usage.iter().all(|usage| *usage == petasos_rpc::Usage::default()) {
            return;
        }
        assert!(Instant::now() < end, "resources are still held: {usage:?}");
    }
}

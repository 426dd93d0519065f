//! The settings of a simulated network.

use petasos_fabric::Limits;
use std::time::Duration;

/// The settings of a network. [`SimConfig::with_seed`] makes the defaults.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SimConfig {
    /// Of the random numbers: the same seed gives the same run.
    pub seed: u64,
    /// The time of a packet from one endpoint to another, at least. Default: 2 µs.
    pub latency: Duration,
    /// What is added at random. Packets of a pair stay in order. Default: up to 2 µs.
    pub jitter: Duration,
    /// Bytes per second from one endpoint to another. Default: 10 GB/s.
    pub bandwidth: u64,
    /// Bytes in flight from one endpoint to another, at most; beyond, senders wait. Default:
    /// 1 MiB.
    pub in_flight: usize,
    /// How long it takes to notice that a peer has ended. Default: 100 µs.
    pub detection: Duration,
    /// How long a peer that cannot be reached any more is waited for before it is lost. Default: 1
    /// s.
    pub silence: Duration,
    /// The limits of the endpoints.
    pub limits: Limits,
}

impl SimConfig {
    /// The defaults, with this seed.
    #[must_use]
    pub fn with_seed(seed: u64) -> SimConfig {
        SimConfig {
            seed,
            latency: Duration::from_micros(2),
            jitter: Duration::from_micros(2),
            bandwidth: 10_000_000_000,
            in_flight: 1 << 20,
            detection: Duration::from_micros(100),
            silence: Duration::from_secs(1),
            limits: Limits::default(),
        }
    }
}

//! The settings of the simulated RDMA network.

use std::time::Duration;

/// The settings of a network. [`DeviceConfig::with_seed`] makes the defaults.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceConfig {
    /// Of the random numbers: the same seed gives the same run.
    pub seed: u64,
    /// The time of anything from one endpoint to another, at least. Default: 1 µs.
    pub latency: Duration,
    /// What is added at random, to each packet and each put by itself. Default: up to 2 µs.
    pub jitter: Duration,
    /// Bytes per second from one endpoint to another. Default: 10 GB/s.
    pub bandwidth: u64,
    /// How long it takes to notice that a peer has ended. Default: 100 µs.
    pub detection: Duration,
    /// How long a peer that cannot be reached any more is waited for. Default: 1 s.
    pub silence: Duration,
    /// The longest packet, in bytes. Default: 2 KiB.
    pub packet: usize,
    /// The longest immediate put, in bytes. Default: 192.
    pub immediate: usize,
    /// The longest put or get, in bytes. Default: 1 MiB.
    pub transfer: usize,
    /// Slots of an endpoint's receive queue for data, which all senders share. Default: 1024.
    pub slots: usize,
    /// Those for control packets. Default: 256.
    pub control_slots: usize,
    /// Packets of a class in flight to one endpoint and without a slot there; beyond, `Full`.
    /// Default: 64.
    pub in_flight: usize,
    /// Puts, gets and atomics under way with one endpoint; beyond, `Full`. Default: 256.
    pub operations: usize,
    /// Whether puts of a pair arrive in order. Default: no.
    pub ordered_puts: bool,
    /// Whether data packets are found where they lie
    /// ([`Device::find_packet`](petasos_channel::Device::find_packet)). Default: no, they are
    /// reported.
    pub finds: bool,
    /// Registrations of an endpoint at a time. Default: 65,536.
    pub registrations: usize,
}

impl DeviceConfig {
    /// The defaults, with this seed.
    #[must_use]
    pub fn with_seed(seed: u64) -> DeviceConfig {
        DeviceConfig {
            seed,
            latency: Duration::from_micros(1),
            jitter: Duration::from_micros(2),
            bandwidth: 10_000_000_000,
            detection: Duration::from_micros(100),
            silence: Duration::from_secs(1),
            packet: 2048,
            immediate: 192,
            transfer: 1 << 20,
            slots: 1024,
            control_slots: 256,
            in_flight: 64,
            operations: 256,
            ordered_puts: false,
            finds: false,
            registrations: 65_536,
        }
    }
}

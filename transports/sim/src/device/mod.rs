//! A simulated RDMA network, in one process and in virtual time: what `petasos-channel` runs on in
//! tests.
//!
//! A [`DeviceNet`] is a network with latency, bandwidth and faults, all drawn from a seed; a
//! [`SimDevice`] is an endpoint's NIC at `simdev://NAME`. Packets go into receive queues of bounded
//! slots that all senders share; a packet that finds no slot waits at its sender, and waiting
//! senders get slots in turn. Puts, gets and atomics reach registered memory without its owner.
//! Packets of one pair and class stay in order; puts and packets overtake each other, and puts each
//! other unless [`DeviceConfig::ordered_puts`] is set. A put's source is read when it arrives, not
//! when it was submitted, so that memory that is reused too early is found out.
//!
//! Each endpoint has an [`Account`] of the memory that a real NIC would need.

mod config;
mod land;
mod net;
mod nic;
mod send;
mod world;

pub use config::DeviceConfig;
pub use net::DeviceNet;
pub use nic::SimDevice;
pub use world::{Account, DeviceStats};

/// The scheme of its addresses.
const SCHEME: &str = "simdev";

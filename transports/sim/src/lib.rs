//! The fabric over a simulated network, in one process and in virtual time.
//!
//! A [`SimNet`] is a network with latency, bandwidth and faults, all drawn from a seed; endpoints
//! opened on it are endpoints like others, so that every protocol can be tested with thousands of
//! them. Time is *virtual*: it passes only by [`SimNet::step`], [`SimNet::run_for`] and
//! [`SimNet::run_until`]. With one seed, and endpoints driven in one order, a run repeats exactly:
//! a seed that fails is a test.
//!
//! ```
//! use petasos_fabric::{Endpoint, Event};
//! use petasos_sim::{SimConfig, SimNet};
//! use std::time::Duration;
//!
//! let net = SimNet::new(SimConfig::with_seed(42));
//! let mut a = net.open(&"sim://a".parse()?)?;
//! let mut b = net.open(&"sim://b".parse()?)?;
//! let peer = a.resolve(b.address(), Duration::from_secs(1))?;
//! let mut events = Vec::new();
//! while a.inject(peer, &[b"hello"]).is_err() {
//!     a.progress(net.now(), 16, &mut events);
//!     net.step();
//! }
//! while !events.iter().any(|event| matches!(event, Event::Message { .. })) {
//!     a.progress(net.now(), 16, &mut Vec::new());
//!     b.progress(net.now(), 16, &mut events);
//!     net.step();
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`device`] is the same for NICs: a simulated RDMA network, on which `petasos-channel`
//! provides the endpoints.
//!
//! Messages between two endpoints that live and can reach each other are never lost, nor reordered;
//! a message is only lost with its peer, and that is reported. All operations are carried by
//! [`petasos_fabric::two_sided`], so a target has to be driven for remote access to proceed.

#![forbid(unsafe_code)]

mod agenda;
mod config;
pub mod device;
mod endpoint;
mod net;
mod random;
mod wake;
mod world;

pub use config::SimConfig;
pub use endpoint::SimEndpoint;
pub use net::{OpenError, SimNet};
pub use random::Random;
pub use world::Stats;

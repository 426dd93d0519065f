//! The fabric over RDMA networks, by libfabric: `ofi+PROVIDER://HOST:PORT`, `ofi+shm://NAME`, and
//! `ofi://HOST:PORT` for the best network that is here.
//!
//! The library is loaded when it is first needed ([`find`]), so that a program runs with it and
//! without it, with 1.17 as with 2.x. [`providers`] lists what an address can name, [`probe`] what
//! is available here.
//!
//! # How it works
//!
//! As [`petasos_datagram`] says: endpoints meet on a connection of TCP or shared memory, where they
//! authenticate each other, and then packets go through a reliable datagram endpoint of the
//! library's, and long accesses to memory, too. This crate is that endpoint: the binary interface,
//! written down by hand (`sys`), the endpoint behind calls that are safe (`net`), and which
//! provider an address means ([`providers`]).
//!
//! A put with event is a write with completion data (`FI_REMOTE_CQ_DATA`) beside a packet, where
//! the provider is known to report such writes once, when all data has arrived.
//!
//! Packets come into a few large slabs (`FI_MULTI_RECV`) and are copied to where they belong; a
//! short message is one copy.
//!
//! # What is trusted
//!
//! As there. A grant is the provider's key, random where the provider lets us choose. A risk
//! remains: the provider's port accepts every process that names such a key, not the peer alone. 64
//! random bits protect it, or, where the provider makes its keys itself (verbs, efa, psm3, opx),
//! fewer. Layered providers (`ofi_rxm`) open all memory for reading, so memory that peers may only
//! write is not given to them. If an endpoint of the library does not close, the memory it may work
//! on is held for good.
//!
//! # What the library does to the process
//!
//! Some of libfabric's settings can be made by the environment alone: see [`prepare`].
//!
//! libfabric starts threads, and its shm provider catches deadly signals to remove what it has in
//! `/dev/shm`. A child that is forked may drop an endpoint, and must not use it.

mod error;
mod leftovers;
mod net;
mod probe;
mod providers;
mod sys;

use petasos_fabric::{Address, Endpoint};

pub use error::{LoadError, OpenError};
#[doc(hidden)]
pub use net::Net;
pub use petasos_datagram::{
    Config, Counters, Meeting, OpenError as CommonError, Secret, SecretError,
};
pub use probe::{find, probe};
pub use providers::{Provider, providers};
pub use sys::environment::prepare;

/// An endpoint of the fabric over libfabric: `petasos_channel::Channels` over a [`Nic`].
pub type Ofi = petasos_datagram::Channels<Nic>;

/// Opens an endpoint at `ofi+PROVIDER://HOST:PORT` (port 0 for a free one), `ofi+shm://NAME`, or
/// `ofi://HOST:PORT` for the best network that is here.
///
/// ```no_run
/// use petasos_fabric::{Address, Endpoint};
/// use petasos_ofi::{Config, Secret};
///
/// petasos_ofi::prepare(); // Before the first thread is started.
/// let mut config = Config::default();
/// config.secret = Some(Secret::new(*b"a secret of the cluster")?);
/// let endpoint = petasos_ofi::open(&Address::parse("ofi+verbs://10.0.0.7:0")?, config)?;
/// println!("{}", endpoint.address());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`Nic::open`](petasos_datagram::Nic::open).
pub fn open(address: &Address, config: Config) -> Result<Ofi, OpenError> {
    petasos_datagram::open::<Net>(address, config)
}

/// An endpoint as any other. What [`Endpoint`] does over this network is compiled here then, once, and not
/// in each program and test that uses it.
#[must_use]
pub fn boxed(endpoint: Ofi) -> Box<dyn Endpoint> {
    Box::new(endpoint)
}

/// A NIC made of the library: a device for `petasos_channel::Channels`.
pub type Nic = petasos_datagram::Nic<Net>;

/// An endpoint of the library's without the contract, for measurements.
#[doc(hidden)]
pub type Bare = petasos_datagram::bare::Bare<Net>;

//! The fabric over RDMA networks, by UCX: `ucx+TLS://HOST:PORT`, `ucx+posix://NAME`, and
//! `ucx://HOST:PORT` for the best network that is here. `TLS` is what UCX calls a transport: see
//! [`kinds`].
//!
//! The library is loaded when it is first needed ([`find`]), so that a program runs with it and
//! without it, with 1.13 as with what came after. [`probe`] says what is here.
//!
//! # How it works
//!
//! As [`petasos_datagram`] says: endpoints meet on a connection of TCP or shared memory, where they
//! authenticate each other, and then packets go through a worker of UCX's. This crate is that
//! worker: the binary interface, written down by hand (`sys`), the worker behind calls that are
//! safe (`net`), and which of UCX's transports an address means ([`kinds`]).
//!
//! A packet is an active message, sent eagerly: nothing of it has to be fetched. Short ones are
//! copied to a buffer that is held until UCX let go of it, long ones go from where they lie. UCX
//! queues whatever it has no room for, so what is under way is counted here, and bounded. What
//! comes short is copied in UCX's callback, so that its buffers go back at once; long packets stay
//! in them until they are copied to where they belong.
//!
//! # Memory
//!
//! Put and get are served by the owner, over packets, which checks them. UCX's own are used where
//! they expose nothing more than there is already: between processes of one user (`ucx+cma`). Over
//! NICs they have to be enabled ([`Config::unchecked_access`]): UCX's part that does what a NIC
//! cannot do writes wherever a packet tells it to, and asks for no key. Where that part is not
//! used, the library does not load it.
//!
//! # What is trusted
//!
//! Authenticated peers say where their workers are (an address in UCX's form), and how memory is
//! reached. UCX takes both for granted, and reads them from a pointer without a length; so they are
//! read here before, and have to look like what UCX packs for this endpoint ([`form`]). The
//! remaining risks are in `docs/networks.md`: addresses that are not in use, and what workers send
//! each other in UCX's own protocol. Without a secret, and with TCP on the loopback interface,
//! every process on this machine can exploit them; over shared memory processes of one user, which
//! can reach each other anyway.
//!
//! # What the library does to the process
//!
//! A peer that is killed while it connects over TCP ends the process to which it connects, if UCX
//! is left to itself: it is told to connect without waiting. With 1.13 a gap is left, which is in
//! `docs/networks.md`.
//!
//! UCX starts a thread per context. Its handlers of deadly signals are taken away again after it
//! was loaded, its cache of memory types is off, and it logs only fatal errors; each is restored by
//! its variable in the environment (`UCX_HANDLE_ERRORS`, `UCX_MEMTYPE_CACHE`, `UCX_LOG_LEVEL`), as
//! all that is not set here. A child that is forked may drop an endpoint, and must not use it.

mod error;
#[doc(hidden)]
pub mod form;
mod kinds;
mod net;
mod probe;
mod signals;
mod sys;

pub use error::{LoadError, OpenError};
use petasos_fabric::{Address, Endpoint};

pub use kinds::{Kind, kinds};
#[doc(hidden)]
pub use net::Net;
pub use petasos_datagram::{
    Config, Counters, Meeting, OpenError as CommonError, Secret, SecretError,
};
pub use probe::{find, missing, probe};

/// An endpoint of the fabric over UCX: `petasos_channel::Channels` over a [`Nic`].
pub type Ucx = petasos_datagram::Channels<Nic>;

/// Opens an endpoint at `ucx+TLS://HOST:PORT` (port 0 for a free one), `ucx+posix://NAME`, or
/// `ucx://HOST:PORT` for the best network that is here.
///
/// ```no_run
/// use petasos_fabric::{Address, Endpoint};
/// use petasos_ucx::{Config, Secret};
///
/// let mut config = Config::default();
/// config.secret = Some(Secret::new(*b"a secret of the cluster")?);
/// let endpoint = petasos_ucx::open(&Address::parse("ucx+rc://10.0.0.7:0")?, config)?;
/// println!("{}", endpoint.address());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`Nic::open`](petasos_datagram::Nic::open).
pub fn open(address: &Address, config: Config) -> Result<Ucx, OpenError> {
    petasos_datagram::open::<Net>(address, config)
}

/// An endpoint as any other. What [`Endpoint`] does over this network is compiled here then, once, and not
/// in each program and test that uses it.
#[must_use]
pub fn boxed(endpoint: Ucx) -> Box<dyn Endpoint> {
    Box::new(endpoint)
}

/// A NIC made of the library: a device for `petasos_channel::Channels`. Long messages are
/// fetched by their receivers: by UCX where it reads memory of peers here
/// ([`Config::remote_access`]), else from their senders' NICs.
pub type Nic = petasos_datagram::Nic<Net>;

/// An endpoint of the library's without the contract, for measurements.
#[doc(hidden)]
pub type Bare = petasos_datagram::bare::Bare<Net>;

//! The fabric over RDMA networks, by libfabric: `ofi+PROVIDER://HOST:PORT`, `ofi+shm://NAME`, and
//! `ofi://HOST:PORT` for the best network that is here.
//!
//! The library is loaded when it is first asked for ([`find`]), so that a program runs with it and without it, with
//! 1.17 as with 2.x. [`providers`] lists what can be asked for, [`probe`] what is here.
//!
//! # How it works
//!
//! Two endpoints meet on a connection of another transport, TCP or shared memory ([`Meeting`]): it proves the secret,
//! or has the kernel's word, before anything of a peer is parsed, tries again while a peer has not started, and tells
//! when its process or machine is gone. On it they greet each other ([`frame::Control`]): each gives the other its name
//! in the provider's network, and a *ticket*, a random number without which a packet is not heard. From then on packets
//! go through the provider, from a reliable datagram endpoint to another, and the connection is there for what is rare.
//!
//! Packets are those of the two-sided engine ([`petasos_fabric::two_sided`]), which does messages, expected messages and
//! atomics. They are numbered ([`frame::Head`]): providers that fetch long packets let short ones overtake them. At most
//! 64 are with a peer that it has not taken; so a provider's queues never hold more of one peer, a user who keeps all
//! leases stops his own senders alone, and a provider that says "again" is asked again with the next pass, while what
//! waits does so in queues that are bounded and tell when there is room. Packets come into a few large slabs
//! (`FI_MULTI_RECV`) and are copied to where they belong; a short message is one copy.
//!
//! Put and get of [`Config::remote_access_from`] bytes or more are the provider's, where it can. See below for who may.
//!
//! Endpoints sleep on the provider's descriptor where it has one, else on the connection, on which peers ring.
//!
//! # Memory that is lent
//!
//! Whatever libfabric works on is held until it said that it is done, or its endpoint is closed; if it does not close,
//! for good. An access to a peer that is gone ends when the library gives it back, or after [`Config::grace`]; its memory
//! is held in either case. So are short sends from slots of their own: a call that is dropped, a peer that dies and an
//! endpoint that ends leave nothing to be written to.
//!
//! # Who is trusted
//!
//! A stranger gets no answer, no name and no key: what he sends to the port at which peers meet is TCP's to refuse, and
//! packets to the provider's own port are thrown away for want of a ticket, though the provider's parsers see them first.
//! Whoever reads the network sees tickets and keys, as he sees the data.
//!
//! No memory is registered with a provider before a peer asks for it on the connection, and shows the key of the region;
//! what he gets is the provider's key, random where the provider lets us choose, for this region alone and until it is
//! closed. (With [`Config::keep_registered`] memory of [`alloc`](petasos_fabric::Endpoint::alloc) stays open to the
//! provider for the next time it is registered.) What is left is that the provider's port takes whoever names such a key,
//! not the peer alone: 64 random bits stand before it, or, where the provider makes its keys itself (verbs, efa, psm3, opx), fewer. Layered providers
//! (`ofi_rxm`) open all memory for reading, so memory that peers may only write is not given to them. With
//! [`Config::remote_access`] off nothing is ever registered, and the owner serves all access.
//!
//! # What others do in this process
//!
//! libfabric starts threads, and its shm provider catches deadly signals to remove what it has in `/dev/shm`. An
//! endpoint does not survive `fork`.

mod access;
#[doc(hidden)]
pub mod bare;
mod config;
mod endpoint;
mod error;
mod exposure;
pub mod frame;
mod kept;
mod leftovers;
mod link;
mod meet;
mod net;
mod probe;
mod providers;
mod receive;
mod send;
mod sleep;
mod state;
mod sys;

pub use config::{Config, Counters};
pub use error::{LoadError, OpenError};
pub use petasos_tcp::{Secret, SecretError};
pub use probe::{find, probe};
pub use providers::{Meeting, Provider, providers};
pub use state::Ofi;

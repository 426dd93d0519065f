//! The fabric over the datagrams of a network library: what the transports over libfabric and UCX
//! have in common.
//!
//! A [`Network`] is one endpoint of such a library. It sends packets to other endpoints of its
//! kind, opens memory to them, and accesses theirs. A [`Nic`] makes a device of it, over which
//! [`Channels`] are an endpoint of the fabric ([`open`]).
//!
//! # How it works
//!
//! Two endpoints meet on a connection of another transport, TCP or shared memory ([`Meeting`]).
//! That transport proves the secret, or asks the kernel for the peer's credentials, before anything
//! of a peer is parsed; it tries again while a peer has not started, and reports when the peer's
//! process or machine is lost. On this connection the endpoints greet each other
//! ([`frame::Control`]): each sends its name in the library's network, and a *ticket*, a random
//! number without which a packet is thrown away. From then on packets go through the library, and
//! the connection carries only what is rare. So nothing depends on what differs between libraries
//! and between their parts for each kind of network: sources, connections, errors, wake-ups.
//!
//! Packets carry what [`nic`] says. They are numbered ([`frame::Header`]), because libraries that
//! fetch long packets let short ones overtake them. A peer has at most 64 packets that it has not
//! taken. So a library's queues never hold more for one peer, a program that keeps all leases stops
//! only its own senders, and a library that has no room is asked again with the next pass, while
//! packets wait in queues that are bounded and report when there is room. A short message is one
//! copy.
//!
//! Put and get of [`Config::remote_access_from`] bytes or more are the library's, where it can. So
//! is the data of puts with event of [`Config::completion_data_from`] bytes or more, where it has
//! completion data by which the owner learns that it has arrived ([`frame::CompletionData`]). The
//! two-sided engine ([`petasos_fabric::two_sided`]) of the channels serves the others, and atomics.
//!
//! An endpoint sleeps on the library's descriptor where it has one, else on the connection, on
//! which peers ring.
//!
//! # Memory that is lent
//!
//! All that a library works on is held until the library has completed the operation, or its
//! endpoint is closed. A get from a lost peer ends when the library completes it, or after
//! [`Config::mourning`], a put at once; the loss of the peer is reported before. The memory is held
//! on until the library has completed the operation, if need be as long as the endpoint lives.
//! Short sends use slots of their own in the same way. So a call that is dropped, a peer that dies
//! and an endpoint that ends leave nothing to be written to.
//!
//! # What is trusted
//!
//! An unauthenticated process gets no answer, no name and no key. What it sends to the place where
//! peers meet is refused there, and its packets to the library's own port are thrown away for want
//! of a ticket, though the library's parsers see them first. A process that reads the network sees
//! tickets and keys, as it sees the data.
//!
//! No memory is registered with a library before a peer asks for it on the connection, and shows
//! the key of the region. The peer gets the library's key, for this region alone and until it is
//! closed. (With [`Config::keep_registered`] memory of [`alloc`](petasos_fabric::Endpoint::alloc)
//! stays registered for the next time.) How well such a key protects differs: see the transports.
//! With [`Config::remote_access`] off nothing is ever registered, and the owner serves all access.

#[doc(hidden)]
pub mod bare;
mod cache;
mod completion;
mod config;
mod datagrams;
mod error;
pub mod frame;
mod grants;
mod link;
mod links;
mod lists;
mod loss;
mod lost;
mod meet;
mod network;
pub mod nic;
mod nodes;
mod pace;
mod peers;
mod receive;
mod send;
mod sleep;
pub mod slots;

pub use config::{Config, Counters};
pub use error::OpenError;
pub use network::{
    Facts, Happened, Mark, Medium, Meeting, Network, Node, Packet, Refusal, RemoteOp, Taken,
};
pub use nic::{Nic, open};
pub use nodes::{Handle, Nodes, Objects};
pub use petasos_channel::Channels;
pub use petasos_tcp::{Secret, SecretError};

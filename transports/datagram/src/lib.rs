//! The fabric over the datagrams of a library: what the transports over libfabric and UCX have in common.
//!
//! A [`Network`] is one endpoint of such a library, which sends packets to others of its kind, opens memory to them, and
//! reaches theirs. [`Datagrams`] makes an endpoint of the fabric of it.
//!
//! # How it works
//!
//! Two endpoints meet on a connection of another transport, TCP or shared memory ([`Meeting`]): it proves the secret,
//! or has the kernel's word, before anything of a peer is parsed, tries again while a peer has not started, and tells
//! when its process or machine is gone. On it they greet each other ([`frame::Control`]): each gives the other its name
//! in the library's network, and a *ticket*, a random number without which a packet is not heard. From then on packets
//! go through the library, and the connection is there for what is rare. So nothing depends on what libraries, and their
//! parts for each kind of network, do differently: sources, connections, errors, wake-ups.
//!
//! Packets are those of the two-sided engine ([`petasos_fabric::two_sided`]), which does messages, expected messages and
//! atomics. They are numbered ([`frame::Header`]): libraries that fetch long packets let short ones overtake them. At most
//! 64 are with a peer that it has not taken; so a library's queues never hold more of one peer, a user who keeps all
//! leases stops his own senders alone, and a library that says "again" is asked again with the next pass, while what
//! waits does so in queues that are bounded and tell when there is room. A short message is one copy.
//!
//! Put and get of [`Config::remote_access_from`] bytes or more are the library's, where it can. Of a put with event, whose
//! packets the owner's engine takes, it writes the payloads of [`Config::notices_from`] bytes or more to their places, where it
//! has completion data by which the owner hears when they are there ([`frame::Notice`]).
//!
//! Endpoints sleep on the library's descriptor where it has one, else on the connection, on which peers ring.
//!
//! # Memory that is lent
//!
//! Whatever a library works on is held until it said that it is done, or its endpoint is closed. A get from a peer that is
//! gone ends when the library gives it back, or after [`Config::mourning`], a put at once; that the peer is lost is told
//! before, and the memory is held on until the library is done, if need be as long as the endpoint lives. So
//! are short sends from slots of their own: a call that is dropped, a peer that dies and an endpoint that ends leave
//! nothing to be written to.
//!
//! # Who is trusted
//!
//! A stranger gets no answer, no name and no key: what he sends to the place where peers meet is refused there, and
//! packets to the library's own port are thrown away for want of a ticket, though the library's parsers see them first.
//! Whoever reads the network sees tickets and keys, as he sees the data.
//!
//! No memory is registered with a library before a peer asks for it on the connection, and shows the key of the region;
//! what he gets is the library's key, for this region alone and until it is closed. (With [`Config::keep_registered`]
//! memory of [`alloc`](petasos_fabric::Endpoint::alloc) stays open to the library for the next time it is registered.)
//! How much stands behind such a key differs: see the transports. With [`Config::remote_access`] off nothing is ever
//! registered, and the owner serves all access.

mod access;
#[doc(hidden)]
pub mod bare;
mod config;
mod endpoint;
mod error;
mod exposure;
pub mod frame;
mod gone;
mod kept;
mod link;
mod lost;
mod meet;
mod network;
mod nodes;
mod notice;
mod receive;
mod send;
mod sleep;
pub mod slots;
mod state;

pub use config::{Config, Counters};
pub use error::OpenError;
pub use network::{
    Facts, Happened, Mark, Medium, Meeting, Network, Node, Packet, Reach, Refusal, Taken,
};
pub use nodes::{Handle, Nodes, Objects};
pub use petasos_tcp::{Secret, SecretError};
pub use state::Datagrams;

//! The fabric through a broker of the host: `tenant://NAME@TENANT`.
//!
//! For programs in containers. All that one needs is the broker's socket, given into the container:
//! no capability, no /dev/shm, no network of the host's, no ptrace. Which tenant a program belongs
//! to follows from the socket, and from its credentials; to which endpoints it may talk, and how
//! much, the broker decides (`petasos-broker`).
//!
//! An endpoint and its broker share a file with rings ([`petasos_shm::link`]), made by the endpoint
//! and passed as a descriptor. Packets go through the rings, on connections that go one way
//! ([`wire`]); the broker moves them from one tenant's ring to the other's. A payload that lies in
//! memory of [`alloc`](petasos_fabric::Endpoint::alloc), and whose target does, too, stays out of
//! the rings: the broker has both files mapped, and copies once, from the one to the other. No
//! tenant has a descriptor of another's memory, so what is revoked is revoked, and what was not
//! sent is not seen.
//!
//! [`Tenant`] is a [`Medium`](petasos_plugin::Medium): operations, messages and memory are the
//! two-sided engine's, as over every medium of packets.
//!
//! # When the broker ends
//!
//! All peers are lost, with that as the reason. The endpoint keeps its name and asks for it again
//! until a broker is there; peers that are resolved then are reached as before.

#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

pub mod control;
mod fifo;
mod medium;
mod memory;
mod name;
mod session;
pub mod socket;
pub mod wire;

pub use fifo::Fifo;
pub use medium::Tenant;
pub use name::{Asked, BadName, Name, SCHEME, is_part};
pub use session::{BROKER, DEFAULT_BROKER, broker};

/// An endpoint over a broker.
pub type Endpoint = petasos_plugin::Packets<Tenant>;

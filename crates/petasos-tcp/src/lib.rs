//! The fabric over TCP: `tcp://HOST:PORT`.
//!
//! One connection per pair of endpoints, made when it is needed. All operations are carried by
//! [`petasos_fabric::two_sided`]; payload is written to the socket from where it lies, and read
//! from it to where it belongs.
//!
//! # Who may connect
//!
//! An endpoint listens on the loopback interface unless told otherwise, and beyond that only with
//! a shared secret ([`Config::secret`], [`Secret::from_file`]). Before anything else of a peer is
//! parsed, both sides have proved that they know the secret ([`handshake`]). Afterwards traffic is
//! neither encrypted nor authenticated packet by packet: use it on networks where nobody injects
//! packets. Without a secret, every program on this machine may connect.
//!
//! # Peers that die
//!
//! A connection that the kernel closes is noticed at once. A peer that falls silent, because its
//! machine or the way to it is gone, is noticed within [`Config::silence`], by the kernel's own
//! keep-alive: an idle endpoint uses no processor time for it. A process that is stopped but not
//! dead still has a kernel that answers, and is not lost.
//!
//! # Jobs of many processes
//!
//! A process that talks to thousands in turn keeps a socket for each, unless
//! [`Config::close_idle_after`] or [`Config::max_connections`] is set, at all of them. Then idle
//! connections are closed, and made again when there is something to send, by whichever side; handles
//! stay what they are, and about 500 bytes are kept for each peer.

mod address;
mod claims;
mod config;
mod connection;
mod dial;
mod endpoint;
pub mod handshake;
mod idle;
mod io;
mod outbox;
mod poller;
mod sealed;
mod secret;
mod strangers;

pub use address::{OpenError, probe};
pub use config::{Config, Counters};
pub use endpoint::TcpEndpoint;
pub use secret::{Secret, SecretError};

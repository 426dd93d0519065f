//! The fabric over TCP: `tcp://HOST:PORT`.
//!
//! One connection per pair of endpoints, made when it is needed. All operations are carried by
//! [`petasos_fabric::two_sided`]; payload is written to the socket from where it lies, and read
//! from it to where it belongs.
//!
//! # Peers that may connect
//!
//! An endpoint listens on the loopback interface unless told otherwise, and beyond that only with a
//! shared secret ([`Config::secret`], [`Secret::from_file`]). Before anything else of a peer is
//! parsed, both sides have proved that they know the secret, and that the client reached the
//! address that it dialled, by a handshake of the Noise protocol framework ([`handshake`]). Without
//! a secret, every program on this machine may connect.
//!
//! Afterwards packets are encrypted and authenticated if either side asks for that: by
//! [`Config::encrypt`], or the address (`tcp://HOST:PORT?encrypt`), which needs a secret. A process
//! in between cannot prevent it. Otherwise packets travel in clear: use that on networks where no
//! packets are injected.
//!
//! # The owner of an address
//!
//! All processes that know the secret may connect, and none of them is taken for another. A peer
//! that was dialled is the one that listens at that address. A peer that connected says at which
//! address it listens; that is a name for its connection, and believed for more only when the
//! endpoint at that address, which is dialled back for that, vouches for it:
//!
//! * when it is meant: `resolve` gives the peer of that connection, and nothing goes to it before
//!   it is verified; it is lost ([`Refused`](petasos_fabric::LostReason::Refused)) if another
//!   process is there, or none for as long as `resolve` was told, and the next `resolve` dials the
//!   address itself;
//! * when there is such a peer already, or one is being dialled: the new one is admitted once it is
//!   verified, and turned away otherwise. So a process that was killed and started again at its
//!   address is known at once, and no process can disconnect, or join, a peer that lives;
//! * always, with [`Config::verify`].
//!
//! Without a secret, a peer that had a connection before and comes again, or is dialled again, as
//! the same incarnation has to prove that it is the same process, by the key of an earlier session,
//! which only the two know. So a process that takes the port of a peer that has ended is a new
//! peer, whatever it says. A few keys of 4,096 peers are kept.
//!
//! What a peer lends is reached over the connection by which the key came (`import_from`), whatever
//! the name. So clients that cannot be connected to are served, but no other process reaches what
//! they lend.
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
//! connections are closed, and made again when there is something to send, by whichever side;
//! handles stay what they are, and about 500 bytes are kept for each peer. The side that goes on
//! proves that it knows the session, by a key that the two have from its beginning.

#![warn(clippy::missing_errors_doc)]

mod address;
mod closing;
mod config;
mod connection;
mod dial;
mod endpoint;
pub mod handshake;
mod io;
mod known_peers;
mod outbox;
mod peers;
mod poller;
mod quota;
mod read_queue;
mod sealed;
mod secret;
mod unauthenticated;

pub use address::{OpenError, probe};
pub use config::{Config, Counters};
pub use endpoint::TcpEndpoint;
pub use secret::{Secret, SecretError};

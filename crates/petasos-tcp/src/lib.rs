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
//! parsed, both sides have proved that they know the secret, and that the client reached the address that it
//! dialled, by a handshake of the Noise protocol framework ([`handshake`]). Without a secret, every program on this
//! machine may connect.
//!
//! Afterwards packets are encrypted and authenticated if either side asks for that: by [`Config::encrypt`], or the
//! address (`tcp://HOST:PORT?encrypt`), which needs a secret. Nobody in between can talk them out of it. Otherwise packets
//! travel as they are: use that on networks where nobody injects packets.
//!
//! # Who has an address
//!
//! All who know the secret may connect, and none of them is taken for another. Whom we dialled is who listens at that
//! address. Who came to us says at which address he listens; that is a name for his connection, and believed for more only
//! when somebody at that address vouches for it, who is dialled back for that:
//!
//! * when it is meant: `resolve` gives the peer of that connection, and nothing goes to it before it is verified; it is
//!   lost ([`Refused`](petasos_fabric::LostReason::Refused)) if somebody else is there, or nobody for as long as `resolve`
//!   was told, and the next
//!   `resolve` dials the address itself;
//! * when there is such a peer already, or one is being dialled: he is let in once he is verified, and turned away
//!   otherwise. So a process that was killed and started again at its address is known at once, and
//!   nobody can disconnect, or join, a peer that lives;
//! * always, with [`Config::verify`].
//!
//! Without a secret, a peer that had a connection before and comes again, or is dialled again, as the same incarnation has to
//! prove that it is the same process, by the key of a session of before, which only the two know. So a process that takes
//! the port of a peer that has ended is a new peer, whatever it says. A few keys of 4,096 peers are kept.
//!
//! What a peer lends is reached over the connection by which the key came (`import_from`), whatever the name. So
//! clients that nobody can connect to are served, but nobody else reaches what they lend.
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
//! stay what they are, and about 500 bytes are kept for each peer. Who goes on proves that he knows the session, by a key that
//! the two have from its beginning.

mod address;
mod claims;
mod config;
mod connection;
mod dial;
mod endpoint;
pub mod handshake;
mod idle;
mod io;
mod lives;
mod outbox;
mod poller;
mod sealed;
mod secret;
mod shares;
mod strangers;

pub use address::{OpenError, probe};
pub use config::{Config, Counters};
pub use endpoint::TcpEndpoint;
pub use secret::{Secret, SecretError};

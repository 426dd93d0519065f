//! The handshake: three frames of fixed length, after which each side knows that the other knows
//! the secret, which identity it claims, and that it is where the client dialled. A state machine
//! without I/O.
//!
//! ```text
//! server → client   MAGIC, wishes, nonce
//! client → server   wishes, first message of Noise: request, where it dialled, identity
//! server → client   verdict in clear, second message of Noise: verdict, session, identity
//! ```
//!
//! It is the pattern `NNpsk0` of the Noise protocol framework ([`petasos_noise`]), whose pre-shared
//! key is the hash of the secret. The prologue is the first frame and the client's wishes: the
//! protocol and its version, whether each side wants encryption, and a nonce, which makes a hello
//! good for one connection. What the client says travels in the first message, what the server says
//! in the second. A message that was changed, or made by a process that does not know the secret,
//! is detected, and none of it is parsed. Both directions have keys of their own.
//!
//! *Where the client dialled* ([`petasos_noise::ResponderAddress`]) the server compares with where the
//! connection came to it. So a process that listens at the address of one server, and relays
//! everything to another one of the same secret, is refused by that server, and the client is told.
//! A name that was dialled (`tcp://node7:4040`) is bound as the socket address that it was looked
//! up as; a server that listens on all interfaces takes the one on which the connection came; and
//! addresses of the loopback interface are of one machine only. Where addresses are translated on
//! the way, a server has to be told those that clients dial ([`crate::Config::reached_at`]).
//! Without a secret the frames are the same, in clear, and prove nothing; then no endpoint listens
//! beyond this machine.
//!
//! With a secret or without, each session has a key, which the server makes and sends in its
//! verdict. By it each side can prove on a later connection that it is the process that was there
//! ([`Goal::Resume`], [`Goal::Again`]): by an HMAC over all that it says on that connection, under
//! a key that no other process was told. An endpoint without a secret takes no process for a peer
//! of before that does not prove that.

mod client;
mod identity;
mod messages;
mod server;
mod session;
#[cfg(test)]
mod tests;

pub use client::Client;
pub use identity::Identity;
pub use server::Server;
pub use session::{Name, Session};

use crate::Secret;
use petasos_fabric::Address;
use petasos_noise::{OVERHEAD, ResponderAddress};

/// What the first frame begins with: the protocol and its version.
pub const MAGIC: [u8; 8] = *b"PETASOS\x04";
const NONCE: usize = 32;
const PROOF: usize = 32;
const NAME: usize = 16;
const KEY: usize = 32;
const IDENTITY: usize = 8 + 1 + Address::MAX;
/// What the messages of Noise carry.
const HELLO: usize = 1 + NAME + PROOF + ResponderAddress::LEN + IDENTITY;
const VERDICT: usize = 1 + KEY + PROOF + IDENTITY;

/// Length of the first frame.
pub const CHALLENGE_LEN: usize = MAGIC.len() + 1 + NONCE;
/// Length of the second frame.
pub const HELLO_LEN: usize = 1 + HELLO + OVERHEAD;
/// Length of the third frame.
pub const VERDICT_LEN: usize = 1 + VERDICT + OVERHEAD;

type Nonce = [u8; NONCE];
type Proof = [u8; PROOF];
type Hash = [u8; 32];

/// Wishes: a secret is needed.
const KEYED: u8 = 1;
/// Wishes: packets are to be encrypted.
const ENCRYPTED: u8 = 2;

fn wishes(secret: Option<&Secret>, encrypt: bool) -> u8 {
    secret.map_or(0, |_| KEYED) | if encrypt { ENCRYPTED } else { 0 }
}

/// What a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// To begin a session.
    Begin,
    /// To begin one, as the process that has had this one.
    Again(Session),
    /// To go on with one.
    Resume(Session),
    /// To know whether the server has made the connection of this name. Nothing else comes of it.
    Vouch(Name),
}

/// The same, as the server hears it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// To begin a session; [`Server::resumes`] says whether the client has had another one.
    Begin,
    /// To go on with the one of this name; [`Server::resumes`] says whether it is the client's.
    Resume(Name),
    /// To know whether the server has made the connection of this name.
    Vouch(Name),
}

/// What a client says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// What it wants.
    pub request: Request,
    /// Where it dialled.
    pub dialled: ResponderAddress,
    /// The identity that it claims.
    pub identity: Identity,
}

/// What the server says in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// Packets follow.
    Welcome = 0,
    /// The server is connecting to the client at this moment: that connection is the one to use.
    Crossed = 1,
    /// The client does not know the secret. The only one that comes in clear.
    Refused = 2,
    /// Packets follow, and go on where the session of the client's choice stood.
    Resumed = 3,
    /// The client dialled another endpoint.
    Elsewhere = 4,
    /// Another peer has the address that the client claims, or no endpoint there vouches for the
    /// client.
    Claimed = 5,
    /// The connection that was asked for is the server's.
    Vouched = 6,
    /// It is not.
    Denied = 7,
    /// The client's host has as many connections to the server as that gives to one.
    Crowded = 8,
}

/// How a handshake fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The other side speaks something else, or another version.
    #[error("the other side does not speak this version of the protocol")]
    Magic,
    /// The other side does not know our secret.
    #[error("the other side does not know the secret")]
    Proof,
    /// We do not know the other side's secret.
    #[error("the other side refused our secret")]
    Refused,
    /// The other side knows the secret, and says nonsense.
    #[error("the other side does not identify itself")]
    Identity,
    /// The server that answers is not the one whose address was dialled.
    #[error(
        "the server that answers is not the one at the address that was dialled: a process in between relays the \
         connection (where addresses are translated, the server has to be told by which one it is reached)"
    )]
    Elsewhere,
}

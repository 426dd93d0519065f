//! The native protocol between a client and the daemon of its node: frames over a Unix socket, what
//! is in them, and how long a thread polls before it sleeps.

mod frames;
mod spin;

use crate::{
    error::Error,
    event::Event,
    message::{Answer, Request},
};
pub use frames::{Frames, Stream};
use petasos_macros::Wire;
pub use spin::Spin;

/// The longest frame of a client.
pub const MAX_FRAME: usize = 64 << 20;

/// From a client, after the token.
#[derive(Wire, Clone, Debug, PartialEq)]
pub enum Asked {
    /// A request, which is answered over the socket.
    Request {
        /// The number of the request.
        id: u64,
        /// The request.
        what: Request,
    },
    /// A request whose completion the daemon writes into shared memory, for many clients at once:
    /// see [`Datastore`](crate::server::Datastore). Everything else comes over the socket.
    ByWord {
        /// The number of the request.
        id: u64,
        /// The request.
        what: Request,
    },
    /// The answer to that request comes over the socket after all: the client sleeps there now.
    OverSocket {
        /// The number of the request.
        id: u64,
    },
}

/// To a client.
#[derive(Wire, Clone, Debug, PartialEq)]
pub enum FromDaemon {
    /// The answer to a request.
    Answer {
        /// The number of the request.
        id: u64,
        /// The outcome.
        result: Result<Answer, Error>,
    },
    /// An event.
    Event {
        /// The event.
        event: Event,
        /// Only for this handler, which came late.
        only: Option<u64>,
    },
}

/// What a client sends first: the token, and, if it speaks PMI-1, which rank it is.
#[must_use]
pub fn greeting(token: &[u8], pmi1: Option<u32>) -> Vec<u8> {
    let rank = pmi1.map(u32::to_le_bytes);
    let len = (token.len() + rank.map_or(0, |rank| rank.len())) as u32;
    [&len.to_le_bytes()[..], token, rank.as_ref().map_or(&[], |rank| &rank[..])].concat()
}

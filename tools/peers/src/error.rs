//! What can go wrong with a peer.

use std::{fmt, io, time::Duration};

/// Why a measurement of a peer has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The peer has no such thing, or its program does not measure it.
    #[error("{peer} has no {what}")]
    Unsupported {
        /// The peer.
        peer: &'static str,
        /// What was asked for.
        what: &'static str,
    },
    /// The system refused a step.
    #[error("{doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// What the system answered.
        source: io::Error,
    },
    /// The process on the other side reported a failure or broke the conversation off.
    #[error("the server process {pid} of {peer}: {reason}")]
    Server {
        /// The peer.
        peer: &'static str,
        /// The process.
        pid: u32,
        /// What it said, or how it ended.
        reason: String,
    },
    /// The peer's own code failed.
    #[error("{peer}: {doing}: {reason}")]
    Peer {
        /// The peer.
        peer: &'static str,
        /// What was tried.
        doing: &'static str,
        /// What it said.
        reason: String,
    },
    /// An answer is not what was sent.
    #[error("{peer}: of {sent} bytes sent, {received} came back, or other ones")]
    Mismatch {
        /// The peer.
        peer: &'static str,
        /// Bytes of the payload.
        sent: usize,
        /// Bytes of the answer.
        received: usize,
    },
    /// A program took too long and was ended.
    #[error("{program} was not done within {limit:?}, and was ended")]
    TooLong {
        /// The program.
        program: &'static str,
        /// What it was given.
        limit: Duration,
    },
    /// A program printed something else than its results.
    #[error("{program} printed no result that is understood here: {output}")]
    Output {
        /// The program.
        program: &'static str,
        /// The last of what it printed.
        output: String,
    },
}

impl Error {
    /// For `map_err`: the system refused what is named by `doing`.
    pub(crate) fn system<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Error {
        move |source| Error::System { doing, source: source.into() }
    }

    /// For `map_err`: the peer's own code failed.
    #[cfg(any(feature = "_async", feature = "iceoryx2"))]
    pub(crate) fn peer<E: fmt::Display>(
        peer: &'static str,
        doing: &'static str,
    ) -> impl FnOnce(E) -> Error {
        move |error| Error::Peer { peer, doing, reason: error.to_string() }
    }
}

/// Why a peer cannot be measured here, in a sentence.
#[derive(Debug)]
pub struct Unavailable(pub(crate) String);

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

impl From<Error> for Unavailable {
    fn from(error: Error) -> Unavailable {
        Unavailable(error.to_string())
    }
}

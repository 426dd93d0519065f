//! Why a limit could not be measured.

use crate::exit::{Code, Failure};
use std::io;

/// Why a limit could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// The system refused a step.
    #[error("{doing}: {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// What the system answered.
        source: io::Error,
    },
    /// The helper process reported a failure or broke the conversation off.
    #[error("helper process {pid}: {reason}")]
    Helper {
        /// Its process id.
        pid: u32,
        /// What it said, or how it ended.
        reason: String,
    },
    /// Another process's memory may not be reached here.
    #[error(
        "{call} with process {pid}: {source}; reaching a child's memory needs \
         kernel.yama.ptrace_scope of at most 2 and a container that allows the call"
    )]
    Refused {
        /// The system call.
        call: &'static str,
        /// The process whose memory was asked for.
        pid: u32,
        /// What the system answered.
        source: io::Error,
    },
    /// The other thread of a measurement stopped before this one was done.
    #[error("the other side of the {name} measurement stopped early")]
    PeerStopped {
        /// The measurement.
        name: &'static str,
    },
    /// What arrived is not what was sent: a figure for it would mean nothing.
    #[error("{name}: wrong bytes arrived, at offset {offset} of {bytes}")]
    Corrupt {
        /// The measurement.
        name: &'static str,
        /// The first wrong byte that was found.
        offset: usize,
        /// The size of the transfer.
        bytes: usize,
    },
    /// A transfer of no bytes has no bandwidth.
    #[error("sizes of transfers must be at least 1 byte")]
    EmptySize,
    /// There is no memory for a transfer of this size.
    #[error("no memory for a buffer of {bytes} bytes")]
    OutOfMemory {
        /// The size of the buffer.
        bytes: usize,
    },
}

impl LimitError {
    /// Turns an I/O error met while `doing` something into one of ours; for `map_err`.
    pub(super) fn system<E: Into<io::Error>>(doing: &'static str) -> impl Fn(E) -> Self {
        move |source| Self::System { doing, source: source.into() }
    }
}

impl From<LimitError> for Failure {
    fn from(error: LimitError) -> Failure {
        Failure::new(Code::Failed, format!("measuring the machine's limit: {error}"))
    }
}

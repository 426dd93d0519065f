//! How requests fail: in terms that say which process and what is missing, and that travel.

use crate::names::{Group, JobId, Missing, Node, Proc};
use petasos_macros::Wire;

/// Why a request failed.
#[derive(Wire, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A fence did not come together in time.
    #[error("fence {nth} of {group}: not complete in time; missing: {missing}")]
    FenceTimeout {
        /// The processes that were to take part.
        group: Group,
        /// The how manieth fence of that group.
        nth: u64,
        /// The processes that did not come.
        missing: Missing,
    },
    /// A process that was to take part in a fence is gone.
    #[error("fence {nth} of {group}: {proc} on {node} did not come to it: {why}")]
    FenceBroken {
        /// The processes that were to take part.
        group: Group,
        /// The how manieth fence of that group.
        nth: u64,
        /// The process that is gone.
        proc: Proc,
        /// Where it ran.
        node: Node,
        /// What became of it.
        why: Termination,
    },
    /// A key did not come in time.
    #[error("key `{key}` of {proc} on {node} did not come in time: {state}")]
    GetTimeout {
        /// Whose key.
        proc: Proc,
        /// Where it runs.
        node: Node,
        /// Which key.
        key: String,
        /// What is known.
        state: String,
    },
    /// There is no such key.
    #[error("{proc} has no key `{key}`")]
    NotFound {
        /// Whose key.
        proc: Proc,
        /// Which key.
        key: String,
    },
    /// A process is gone.
    #[error("{proc} on {node} is gone: {why}")]
    ProcGone {
        /// The process.
        proc: Proc,
        /// Where it ran.
        node: Node,
        /// What became of it.
        why: Termination,
    },
    /// A node is lost.
    #[error("{node} is lost, and with it {missing}")]
    NodeLost {
        /// Which.
        node: Node,
        /// The processes that ran there, as far as it concerns the request.
        missing: Missing,
    },
    /// No such process, or job.
    #[error("there is no {0}")]
    NoSuchProc(Proc),
    /// Another job's affairs.
    #[error("{asker} may not see or touch what belongs to job {}", job.0)]
    NotPermitted {
        /// The process that asked.
        asker: Proc,
        /// Whose it is.
        job: JobId,
    },
    /// A fence of others.
    #[error("{0} is not a member of the fence that it asks for")]
    NotInGroup(Proc),
    /// A published key is there already.
    #[error("`{0}` is published already")]
    Published(String),
    /// It was not published.
    #[error("no process published `{0}`")]
    NotPublished(String),
    /// A lookup that waited did not get what it waited for.
    #[error("no process published `{0}` in time")]
    LookupTimeout(String),
    /// A query for what is not known.
    #[error("`{0}` is no key that can be queried")]
    UnknownQuery(String),
    /// A handler's place is taken (there is one first and one last), or it asks for nonsense.
    #[error("event handler: {0}")]
    Registration(String),
    /// No such handler.
    #[error("there is no event handler {0}")]
    UnknownHandler(u64),
    /// More than a limit allows.
    #[error("{what}: {asked} is more than the {limit} that are allowed")]
    Limit {
        /// Of what.
        what: String,
        /// How much was asked for.
        asked: u64,
        /// How much there may be.
        limit: u64,
    },
    /// The head or another daemon did not answer.
    #[error("{node} did not answer in time: {what}")]
    Silent {
        /// The process.
        node: Node,
        /// What was asked.
        what: String,
    },
    /// The job is being ended.
    #[error("the job is ended: {0}")]
    Ending(String),
    /// The client did what it may not: connect twice, ask before connecting.
    #[error("{0}")]
    Misuse(String),
    /// A process is not started again.
    #[error("{proc} is not started again: {why}")]
    NotRestarted {
        /// The process.
        proc: Proc,
        /// Why not.
        why: String,
    },
    /// No other node takes the place of one.
    #[error("{node} is not replaced: {why}")]
    NotReplaced {
        /// Which.
        node: Node,
        /// Why not.
        why: String,
    },
}

impl Error {
    /// The status of the PMIx Standard that says about the same.
    #[must_use]
    pub fn code(&self) -> i32 {
        match self {
            Error::FenceTimeout { .. }
            | Error::GetTimeout { .. }
            | Error::LookupTimeout(_)
            | Error::Silent { .. } => crate::status::TIMEOUT,
            Error::NotFound { .. } | Error::NotPublished(_) | Error::NoSuchProc(_) => {
                crate::status::NOT_FOUND
            }
            Error::FenceBroken { .. } | Error::ProcGone { .. } => crate::status::LOST_CONNECTION,
            Error::NodeLost { .. } => crate::status::UNREACH,
            Error::NotPermitted { .. } | Error::NotInGroup(_) => crate::status::NO_PERMISSIONS,
            Error::Published(_) => crate::status::DUPLICATE_KEY,
            Error::UnknownQuery(_) | Error::NotRestarted { .. } | Error::NotReplaced { .. } => {
                crate::status::NOT_SUPPORTED
            }
            Error::Registration(_) => crate::status::EVENT_REGISTRATION,
            Error::UnknownHandler(_) | Error::Limit { .. } | Error::Misuse(_) => {
                crate::status::BAD_PARAM
            }
            Error::Ending(_) => crate::status::PROC_ABORTED,
        }
    }
}

/// What became of a process that is no more.
#[derive(Wire, Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Termination {
    /// It finalized.
    Finalized,
    /// It closed its connection without finalizing.
    Disconnected,
    /// It ended with this code.
    Exited(i32),
    /// A signal ended it.
    Signalled(i32),
    /// It could not be started.
    NotStarted(String),
    /// Its node is lost.
    NodeLost,
    /// It had connected, and ended with code 0 without finalizing: the others may wait for it.
    NotFinalized,
    /// It exited with code 0, and had failed before, perhaps without noticing: its daemon had
    /// refused what it committed, or cut its connection.
    Failed(String),
}

impl Termination {
    /// Whether it went as it should.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        matches!(self, Termination::Finalized | Termination::Exited(0))
    }
}

impl std::fmt::Display for Termination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Termination::Finalized => f.write_str("it finalized"),
            Termination::Disconnected => f.write_str("it closed its connection without finalizing"),
            Termination::Exited(code) => write!(f, "it exited with code {code}"),
            Termination::Signalled(signal) => write!(f, "it was ended by signal {signal}"),
            Termination::NotStarted(why) => write!(f, "it could not be started: {why}"),
            Termination::NodeLost => f.write_str("its node is lost"),
            Termination::NotFinalized => f.write_str("it exited with code 0 without finalizing"),
            Termination::Failed(why) => write!(f, "it exited with code 0, and had failed: {why}"),
        }
    }
}

//! The errors of requests. They name the process and what is missing, and travel between nodes.

use crate::names::{Group, JobId, Missing, Node, Proc};
use petasos_macros::Wire;

/// Why a request failed.
///
/// ```
/// use petasos_pmix::{Error, JobId, Proc, status};
///
/// let error = Error::NotFound { proc: Proc::new(JobId(0), 3), key: "port".to_owned() };
/// assert_eq!(error.code(), status::NOT_FOUND);
/// assert!(error.to_string().contains("port") && error.to_string().contains("rank 3"));
/// ```
#[derive(Wire, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A fence was not complete in time.
    #[error("fence {nth} of {group}: not complete in time; missing: {missing}")]
    FenceTimeout {
        /// The group of the fence.
        group: Group,
        /// The number of the fence among those of the group, from 0.
        nth: u64,
        /// The processes that did not come.
        missing: Missing,
    },
    /// A participant of a fence has ended.
    #[error("fence {nth} of {group}: {proc} on {node} did not come to it: {why}")]
    FenceBroken {
        /// The group of the fence.
        group: Group,
        /// The number of the fence among those of the group, from 0.
        nth: u64,
        /// The process that has ended.
        proc: Proc,
        /// Its node.
        node: Node,
        /// How it ended.
        why: Termination,
    },
    /// A key was not put in time.
    #[error("key `{key}` of {proc} on {node} did not come in time: {state}")]
    GetTimeout {
        /// The process that should have put it.
        proc: Proc,
        /// Its node.
        node: Node,
        /// The key.
        key: String,
        /// What is known of the process.
        state: String,
    },
    /// The process has not put the key.
    #[error("{proc} has no key `{key}`")]
    NotFound {
        /// The process.
        proc: Proc,
        /// The key.
        key: String,
    },
    /// A process has ended.
    #[error("{proc} on {node} is gone: {why}")]
    ProcGone {
        /// The process.
        proc: Proc,
        /// Its node.
        node: Node,
        /// How it ended.
        why: Termination,
    },
    /// A node is lost.
    #[error("{node} is lost, and with it {missing}")]
    NodeLost {
        /// The node.
        node: Node,
        /// The processes of the node that the request concerns.
        missing: Missing,
    },
    /// No such process, or job.
    #[error("there is no {0}")]
    NoSuchProc(Proc),
    /// The request concerns another job.
    #[error("{asker} may not see or touch what belongs to job {}", job.0)]
    NotPermitted {
        /// The process that asked.
        asker: Proc,
        /// The other job.
        job: JobId,
    },
    /// The process is not in the group of the fence.
    #[error("{0} is not a member of the fence that it asks for")]
    NotInGroup(Proc),
    /// The key is published already.
    #[error("`{0}` is published already")]
    Published(String),
    /// The keys are not published.
    #[error("no process published `{0}`")]
    NotPublished(String),
    /// The keys were not published in time.
    #[error("no process published `{0}` in time")]
    LookupTimeout(String),
    /// There is no such key to query.
    #[error("`{0}` is no key that can be queried")]
    UnknownQuery(String),
    /// A handler is registered for a position that is taken (there is one first and one last), or
    /// with a wrong argument.
    #[error("event handler: {0}")]
    Registration(String),
    /// No such handler.
    #[error("there is no event handler {0}")]
    UnknownHandler(u64),
    /// A request exceeds a limit.
    #[error("{what}: {asked} is more than the {limit} that are allowed")]
    Limit {
        /// What is limited.
        what: String,
        /// How much was asked for.
        asked: u64,
        /// The limit.
        limit: u64,
    },
    /// The head node or another daemon did not answer in time.
    #[error("{node} did not answer in time: {what}")]
    Silent {
        /// The node.
        node: Node,
        /// What was asked.
        what: String,
    },
    /// The job is being ended.
    #[error("the job is ended: {0}")]
    Ending(String),
    /// The client violated the protocol: it connected twice, or sent a request before it connected.
    #[error("{0}")]
    Misuse(String),
    /// A process cannot be started again.
    #[error("{proc} is not started again: {why}")]
    NotRestarted {
        /// The process.
        proc: Proc,
        /// The reason.
        why: String,
    },
    /// A node cannot be replaced.
    #[error("{node} is not replaced: {why}")]
    NotReplaced {
        /// The node.
        node: Node,
        /// The reason.
        why: String,
    },
}

impl Error {
    /// The closest status of the PMIx Standard.
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

/// How a process ended.
#[derive(Wire, Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Termination {
    /// It finalized.
    Finalized,
    /// It closed its connection without finalizing.
    Disconnected,
    /// It ended with this exit code.
    Exited(i32),
    /// A signal ended it.
    Signalled(i32),
    /// It could not be started.
    NotStarted(String),
    /// Its node is lost.
    NodeLost,
    /// It had connected, and exited with code 0 without finalizing: others may wait for it.
    NotFinalized,
    /// It exited with code 0 after a failure that it may not have noticed: its daemon had refused
    /// what it committed, or cut its connection.
    Failed(String),
}

impl Termination {
    /// Whether it ended without a failure.
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

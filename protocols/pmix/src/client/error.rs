//! The errors of a process in its job.

use super::JOB_DIR;
use crate::Error;
use std::{io, time::Duration};

/// Why a process could not do something in its job.
///
/// [`JobError::Refused`] is the daemon's answer to a request: its [`Error`] names the process and
/// what is missing. All other variants concern this process and the daemon of its node.
///
/// ```no_run
/// use petasos_pmix::{Error, Job, JobError};
///
/// let job = Job::init()?;
/// match job.fence() {
///     Ok(()) => println!("all {} ranks are here", job.size()),
///     Err(JobError::Refused(Error::FenceTimeout { missing, .. })) => println!("without {missing}"),
///     Err(JobError::Refused(Error::FenceBroken { proc, why, .. })) => println!("{proc} {why}"),
///     Err(other) => return Err(other),
/// }
/// # Ok::<(), JobError>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// This process was not started as part of a job.
    #[error(
        "this process is not part of a job (none of {JOB_DIR}, PMIX_NAMESPACE, PMI_FD and PMI_PORT is \
         set): start it by `petasos run`, or by a launcher that speaks PMIx or PMI-1, as mpirun and \
         mpiexec do"
    )]
    NoJob,
    /// The launcher of the job does not offer this.
    #[error("{what} is not offered by this launcher ({launcher}): `petasos run` has it")]
    NotOffered {
        /// What was asked for.
        what: String,
        /// The protocol of the launcher.
        launcher: String,
    },
    /// A file or the socket of the daemon could not be used.
    #[error("{0}: {1}")]
    Io(String, io::Error),
    /// The daemon left invalid data for its processes.
    #[error("{0}: {1}")]
    BadJobFile(String, String),
    /// The request failed.
    #[error(transparent)]
    Refused(#[from] Error),
    /// The daemon has ended, or this process has finalized.
    #[error("the daemon of this node is lost: {0}")]
    Lost(String),
    /// The daemon did not answer in time.
    #[error("the daemon of this node did not answer within {0:?}")]
    Silent(Duration),
}

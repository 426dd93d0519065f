//! The job that this process is a rank of, and the endpoints of its peers.

use crate::{OpenError, OpenOptions, SecretBytes, open};
use petasos_fabric::Endpoint;
use petasos_pmix::{Job, JobError};
use std::sync::{Mutex, OnceLock, PoisonError};

static JOB: OnceLock<Job> = OnceLock::new();

/// The job that this process was started in, by `petasos run` or by another launcher that speaks
/// PMIx or PMI-1 (`mpirun`, `mpiexec`); joined when it is first asked for.
///
/// [`Job::peer`] says where each rank's endpoint is, and [`open_own`] opens this rank's: all can
/// call each other at once, without having exchanged anything. Call [`Job::finalize`] in the end:
/// ranks that still wait for this one then learn at once that it will not come. A rank that ends
/// without it has failed, whatever its exit code is.
///
/// # Errors
/// If it was not, or its daemon is gone.
///
/// ```no_run
/// use petasos::{Engine, EngineConfig};
///
/// // In a program that `petasos run` has started.
/// let job = petasos::job()?;
/// let engine = Engine::new(petasos::open_own(job)?, EngineConfig::default());
/// // ... serves and calls; the endpoint of another rank:
/// let first = engine.target(&job.peer(0)?);
/// job.finalize()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn job() -> Result<&'static Job, JobError> {
    static JOINING: Mutex<()> = Mutex::new(());
    if let Some(job) = JOB.get() {
        return Ok(job);
    }
    // A rank joins once; a second caller waits for that.
    let _joining = JOINING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(job) = JOB.get() {
        return Ok(job);
    }
    let joined = Job::init()?;
    Ok(JOB.get_or_init(|| joined))
}

/// Opens the endpoint at which the other ranks of a job expect this one.
///
/// # Errors
/// See [`OpenError`]; one of those is that it is open already.
pub fn open_own(job: &Job) -> Result<Box<dyn Endpoint>, OpenError> {
    let failed = |error| OpenError::Job(Box::new(error));
    let own = job.peer(job.rank()).map_err(failed)?;
    let secret = job.secret().map_err(failed)?;
    open(
        own.as_str(),
        &OpenOptions { secret: secret.map(SecretBytes::new), ..OpenOptions::default() },
    )
}

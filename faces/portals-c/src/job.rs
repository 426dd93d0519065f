//! The job of this process, where a program asks for it (`portals4_job.h`).

use crate::{
    abi::{ARG_INVALID, CHandle, Code, FAIL, NO_INIT, ptl_process_t},
    interface,
    place::FromJob,
};
use petasos_pmix::{Job, JobError, Scope, Value};
use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The key under which a process puts its physical id.
const KEY: &str = "portals4.id";

/// The job, and the physical ids of its processes once they were exchanged.
struct Joined {
    job: Arc<Job>,
    ids: Option<Arc<[ptl_process_t]>>,
}

static JOINED: Mutex<Option<Joined>> = Mutex::new(None);

fn joined() -> MutexGuard<'static, Option<Joined>> {
    JOINED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(error: &JobError) -> Code {
    eprintln!("portals: {error}");
    FAIL
}

/// What the job says about where this process is.
pub(crate) fn place() -> FromJob {
    let joined = joined();
    let Some(Joined { job, .. }) = &*joined else { return FromJob::default() };
    let own = job.peer(job.rank()).ok();
    // `shm:///DIRECTORY/NAME`, by itself or as a part.
    let directory = own.as_ref().and_then(|address| {
        let text = address.as_str();
        let path = &text[text.rfind("shm:///")? + "shm://".len()..];
        let (directory, _) = path.split([',', '?']).next()?.rsplit_once('/')?;
        Some(directory.to_owned()).filter(|directory| !directory.is_empty())
    });
    // `tcp://HOST:PORT`, by itself or as a part.
    let host = own.and_then(|address| {
        let text = address.as_str();
        let tcp = &text[text.rfind("tcp://")? + "tcp://".len()..];
        let socket: SocketAddr = tcp.split([',', '?']).next()?.parse().ok()?;
        match socket.ip() {
            IpAddr::V4(ip) => Some(ip),
            IpAddr::V6(_) => None,
        }
    });
    FromJob { secret: job.secret().ok().flatten(), host, directory }
}

/// Joins the job: rank and size.
///
/// # Errors
/// [`FAIL`] if no launcher has started this process, or the job is lost.
pub(crate) fn join() -> Result<(u32, u32), Code> {
    if !interface::is_started() {
        return Err(NO_INIT);
    }
    let mut joined = joined();
    if joined.is_none() {
        let job = Job::init().map_err(|error| failed(&error))?;
        *joined = Some(Joined { job: Arc::new(job), ids: None });
    }
    let job = &joined.as_ref().ok_or(FAIL)?.job;
    Ok((job.rank(), job.size()))
}

fn job() -> Result<Arc<Job>, Code> {
    let joined = joined();
    Ok(Arc::clone(&joined.as_ref().ok_or(NO_INIT)?.job))
}

/// The physical ids of all ranks: exchanged when this is first called, by all of them.
///
/// # Errors
/// [`NO_INIT`] before [`join`], [`FAIL`] if the job is lost.
pub(crate) fn ids(ni: CHandle) -> Result<Arc<[ptl_process_t]>, Code> {
    let own = interface::named(ni)?.processes.own;
    let mut joined = joined();
    let joined = joined.as_mut().ok_or(NO_INIT)?;
    if let Some(ids) = &joined.ids {
        return Ok(Arc::clone(ids));
    }
    let job = &joined.job;
    let exchange = || {
        job.put(Scope::Global, KEY, u64::from(own.nid) << 32 | u64::from(own.pid));
        job.commit()?;
        job.fence()?;
        let id = |rank| match job.get(rank, KEY)? {
            Value::Uint(bits) => {
                Ok(Some(ptl_process_t { nid: (bits >> 32) as u32, pid: bits as u32 }))
            }
            _ => Ok(None),
        };
        (0..job.size()).map(id).collect::<Result<Option<Vec<_>>, JobError>>()
    };
    let ids = exchange().map_err(|error| failed(&error))?.ok_or(FAIL)?;
    let ids: Arc<[ptl_process_t]> = ids.into();
    joined.ids = Some(Arc::clone(&ids));
    Ok(ids)
}

/// The physical id of a rank.
///
/// # Errors
/// As [`ids`]; [`ARG_INVALID`] if there is no such rank.
pub(crate) fn id(ni: CHandle, rank: u32) -> Result<ptl_process_t, Code> {
    ids(ni)?.get(rank as usize).copied().ok_or(ARG_INVALID)
}

/// Waits for all ranks.
///
/// # Errors
/// [`NO_INIT`] before [`join`], [`FAIL`] if the job is lost.
pub(crate) fn fence() -> Result<(), Code> {
    job()?.fence().map_err(|error| failed(&error))
}

/// Leaves the job.
///
/// # Errors
/// [`NO_INIT`] before [`join`], [`FAIL`] if the job is lost.
pub(crate) fn leave() -> Result<(), Code> {
    job()?.finalize().map_err(|error| failed(&error))
}

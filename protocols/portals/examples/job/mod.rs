//! The process of an example in its job: `petasos run` starts it, and says at which address each
//! rank is.

#![allow(dead_code)]

use petasos_portals::{Config, Engine, Interface, ProcessMap};
use std::{error::Error, sync::Arc, time::Duration};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How long other processes are waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// One process of a job.
pub(crate) struct Job {
    pub(crate) interface: Interface,
    pub(crate) rank: u32,
    pub(crate) size: u32,
    launched: &'static petasos::pmix::Job,
    _engine: Engine,
}

impl Job {
    /// Joins the job that this process was started in.
    pub(crate) fn join() -> Result<Job> {
        let job = petasos::job()?;
        let (rank, size) = (job.rank(), job.size());
        let map =
            (0..size).map(|rank| job.peer(rank)).collect::<std::result::Result<Vec<_>, _>>()?;
        let map = Arc::new(ProcessMap::ranks(map));
        let interface = Interface::open(petasos::open_own(job)?, map, Config::default())?;
        // Other processes are answered whatever this one does.
        let engine = Engine::start(&interface)?;
        Ok(Job { interface, rank, size, launched: job, _engine: engine })
    }

    /// Returns when all ranks have called it. Until a process has appended its entries, what is
    /// sent to it is dropped; and no process may leave while others need its answers.
    pub(crate) fn fence(&self) -> Result<()> {
        Ok(self.launched.fence()?)
    }

    /// Ends the job's process, together with all others.
    pub(crate) fn leave(self) -> Result<()> {
        self.fence()?;
        Ok(self.launched.finalize()?)
    }
}

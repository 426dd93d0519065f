//! The place of an example's process in its job: `petasos run` starts it, and says who is where.

#![allow(dead_code)]

use petasos_portals::{Config, Engine, Interface, ProcessMap};
use std::{error::Error, sync::Arc, time::Duration};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How long somebody is waited for.
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
        // The others are answered whatever this process does.
        let engine = Engine::start(&interface)?;
        Ok(Job { interface, rank, size, launched: job, _engine: engine })
    }

    /// Comes back when all have come here. Until a process has its entries, what is sent to it is
    /// dropped; and nobody leaves while others need his answers.
    pub(crate) fn fence(&self) -> Result<()> {
        Ok(self.launched.fence()?)
    }

    /// The end, for all at a time.
    pub(crate) fn leave(self) -> Result<()> {
        self.fence()?;
        Ok(self.launched.finalize()?)
    }
}

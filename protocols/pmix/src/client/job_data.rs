//! The description of the job at one of its processes.

use crate::{
    datastore,
    job::{Facts, JobMap, JobSpec, SPARES},
    table::Table,
};
use std::sync::OnceLock;

pub(super) enum JobData {
    /// From another launcher.
    Map(JobMap),
    /// From the memory that all processes of the node map; and a copy of all of it, for processes
    /// that asked for that.
    Table(Table<datastore::Source>, OnceLock<JobMap>),
}

impl JobData {
    pub(super) fn table(table: Table<datastore::Source>) -> JobData {
        JobData::Table(table, OnceLock::new())
    }

    /// Whether ranks may be on other nodes by now: the data were read from a file, and nodes can be
    /// replaced.
    pub(super) fn may_be_outdated(&self) -> bool {
        match self {
            JobData::Table(table, _) => table.is_own() && table.info(SPARES).is_some(),
            JobData::Map(_) => false,
        }
    }

    pub(super) fn facts(&self) -> &dyn Facts {
        match self {
            JobData::Map(map) => map,
            JobData::Table(table, _) => table,
        }
    }

    pub(super) fn map(&self) -> &JobMap {
        match self {
            JobData::Map(map) => map,
            JobData::Table(table, map) => map.get_or_init(|| {
                let (nodes, runs, info) = (Vec::new(), Vec::new(), Vec::new());
                let (id, name) = (table.id(), table.name().to_owned());
                JobMap::new(table.spec())
                    .or_else(|_| JobMap::new(JobSpec { id, name, nodes, runs, info }))
                    .expect("a job without ranks is valid")
            }),
        }
    }
}

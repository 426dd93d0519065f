//! What clients of the PMIx library are told of this node: found out when the first of them comes.

use super::Daemon;
use crate::{
    inventory::{memory, topologies},
    pmix41::Surroundings,
};
use std::sync::Arc;

impl Daemon {
    pub(super) fn surroundings(&mut self) -> Arc<Surroundings> {
        if let Some(known) = &self.around {
            return known.clone();
        }
        let mut around = Surroundings { memory: memory(), ..Surroundings::default() };
        if let (Some(job), Some(setup)) = (&self.job, &self.setup) {
            let count = job.ranks_on(self.me).len();
            // In the same turn as ranks are bound.
            let cpus: Vec<u32> = self.ranks.cores().iter().copied().cycle().take(count).collect();
            around.topologies = topologies(&cpus);
            around.crowded = self.is_crowded();
            around.directory.clone_from(&setup.program.directory);
            around.command = setup.program.arguments.join(" ");
        }
        let around = Arc::new(around);
        self.around = Some(around.clone());
        around
    }
}

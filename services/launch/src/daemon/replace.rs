//! Nodes that take the place of others: the ranks of one that is lost are here, or elsewhere, from
//! now on.

use super::Daemon;
use petasos_pmix::Node;
use petasos_pmix::server::{JOB_FILE, write_table};

impl Daemon {
    /// The engine says that a node has the ranks of another. Those that are started again it names
    /// after this.
    pub(super) fn replaced(&mut self, node: Node, by: Node) {
        let id = self.job.as_ref().map(|job| job.id());
        let Some(job) = id.and_then(|id| self.engine.map(id)).cloned() else { return };
        if let Some(datastore) = &mut self.datastore {
            datastore.describe(&job);
        }
        // A process that does not map that memory, and begins from now on, reads this.
        let bytes = write_table(&job);
        if let Some(Err(error)) = self.files.directory().map(|place| place.renew(JOB_FILE, &bytes))
        {
            self.log(&format!("the job's data: {error}"));
        }
        self.job = Some(job);
        self.around = None;
        self.node_replaced(node, by);
    }
}

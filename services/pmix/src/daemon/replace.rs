//! Nodes that take the place of others: the ranks of one that is lost are here, or elsewhere, from now on.

use super::{Daemon, control::Control};
use crate::{Node, datastore, table};

impl Daemon {
    /// The engine says that a node has the ranks of another. Those that are started again it names after this.
    pub(super) fn replaced(&mut self, node: Node, by: Node) {
        let id = self.job.as_ref().map(|job| job.id());
        let Some(job) = id.and_then(|id| self.engine.map(id)).cloned() else { return };
        if let Some(shelf) = &mut self.shelf {
            shelf.describe(&job);
        }
        // Who does not map that memory, and begins from now on, reads this.
        let bytes = table::write(&job);
        if let Some(Err(error)) =
            self.place.as_ref().map(|place| place.renew(datastore::JOB, &bytes))
        {
            self.log(&format!("the job's data: {error}"));
        }
        self.job = Some(job);
        self.around = None;
        self.head_replaced(node, by);
    }

    /// At the head: what it still has of the ranks of the other node ends here.
    fn head_replaced(&mut self, node: Node, by: Node) {
        let ranks = self.job.as_ref().map_or_else(Vec::new, |job| job.ranks_on(by).to_vec());
        let Some(head) = &mut self.head else { return };
        head.replaced.insert(node, by);
        ranks.iter().for_each(|rank| head.printer.ended(*rank));
        // What was on its way to rank 0 is lost; the end of its input is told again.
        if ranks.first() == Some(&0) && head.lets_input_begin_again() {
            self.order(by, Control::Input(Vec::new()));
        }
    }

    /// At the head: a node that was kept as a spare is lost, before it was needed.
    pub(super) fn spare_lost(&mut self, name: &str, why: &str) {
        self.log(&format!("the spare host {name} is lost: {why}"));
    }
}

//! What a process does about failures: its own watch, restarts, replacements, the end of the job.

use super::{Job, JobError, PATIENCE, SLACK, unexpected};
use crate::{
    Node,
    message::{Answer, Request},
};
use std::time::Duration;

impl Job {
    /// Announces that from now on this process calls [`Job::progress`] at least this often (1 ms at
    /// the least). If it does not, the others get the event
    /// [`NO_PROGRESS`](crate::status::NO_PROGRESS), once for each such pause. `None` ends the
    /// watch.
    ///
    /// # Errors
    /// If the daemon is lost, or does not offer this.
    pub fn watch_progress(&self, every: Option<Duration>) -> Result<(), JobError> {
        self.perform(Request::Watch(every), SLACK)
    }

    /// Reports that this process makes progress: see [`Job::watch_progress`].
    ///
    /// # Errors
    /// If the daemon is lost, or does not offer this.
    pub fn progress(&self) -> Result<(), JobError> {
        self.perform(Request::Progress, SLACK)
    }

    /// Starts a failed rank again, on its node. Gives how often it was started again by now.
    /// However many processes ask, there is one new process for one that failed. It returns once
    /// the restart is decided; the event [`PROC_RESTARTED`](crate::status::PROC_RESTARTED) tells
    /// all processes that it is done. What the rank had put is dropped: a get of its keys waits for
    /// what the new process commits. The new process comes to the first fence that has not ended
    /// without it.
    ///
    /// # Errors
    /// [`JobError::Refused`] if the rank has not failed (which this waits for 2 seconds), its node
    /// is lost, it was started again as often as allowed, the job does not go on after a failure,
    /// or the head node does not answer within 30 seconds.
    pub fn restart(&self, rank: u32) -> Result<u32, JobError> {
        let request = Request::Restart { proc: self.proc_of(rank), after: None };
        self.call_for_number(request)
    }

    /// Starts the ranks of a lost node again on a spare one (`petasos run --spares`). Gives that
    /// node. However many processes ask, one node takes its place. All ranks that had not ended
    /// begin again there, together, each as after [`Job::restart`]. The event
    /// [`NODE_REPLACED`](crate::status::NODE_REPLACED) tells all processes, after which
    /// [`Job::peer`] and the keys of the job say where the ranks are.
    ///
    /// # Errors
    /// [`JobError::Refused`] if the node is not lost (which this waits for 2 seconds), is the head
    /// node, or has no ranks that could go on; if no spare is left; if one of its ranks was started
    /// again as often as allowed; if the job does not go on after a failure; or if the head node
    /// does not answer within 30 seconds.
    pub fn replace(&self, node: Node) -> Result<Node, JobError> {
        self.call_for_number(Request::Replace(node)).map(Node)
    }

    fn call_for_number(&self, request: Request) -> Result<u32, JobError> {
        match self.server.call(request, PATIENCE)? {
            Answer::Value(value) => {
                let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
                number.ok_or_else(unexpected)
            }
            _ => Err(unexpected()),
        }
    }

    /// Ends the whole job with this exit code. This process is ended as well, soon after.
    ///
    /// # Errors
    /// If the daemon is lost.
    pub fn abort(&self, status: i32, message: &str) -> Result<(), JobError> {
        self.perform(Request::Abort { status, message: message.to_owned() }, PATIENCE)
    }
}

//! Ranks that are started again: what was there of the process before is gone by then.

use super::{Daemon, control::Control};
use petasos_pmix::{Proc, Termination};

impl Daemon {
    /// The engine says that a process is replaced, of this node or another.
    pub(super) fn restarted(&mut self, proc: Proc, restarts: u32) {
        let Some(job) = self.job.as_ref().filter(|job| job.id() == proc.job) else { return };
        if self.engine.restarts_of(proc) != restarts {
            // It was so on a node that is lost by now, of which this one heard at the same time.
            // The next one follows.
            return;
        }
        let here = job.node_of(proc.rank) == Some(self.me);
        if let Some(datastore) = &mut self.datastore {
            datastore.forget(proc.rank);
        }
        if let Some(head) = &mut self.head {
            head.controller.restarted(proc.rank, restarts);
        }
        if !here {
            return;
        }
        if self.ranks.restart(proc.rank, restarts) {
            self.begin_again(proc.rank);
        }
    }

    /// Starts a rank again, if it is to be.
    pub(super) fn begin_again(&mut self, number: u32) {
        let Some(job) = self.job.clone().filter(|_| self.over.is_none()) else { return };
        let Some(restarts) = self.ranks.take_restart(number) else { return };
        self.drop_clients_of(number);
        let started = self.common(&job);
        let started =
            started.and_then(|mut common| self.start_rank(number, restarts, &job, &mut common));
        match started {
            Ok(started) => {
                let pid = started.pid().as_raw_nonzero().get() as u32;
                self.ranks.insert(number, started);
                self.engine.proc_started(job.proc(number), pid);
                if self.ranks.reads_input(number) {
                    self.feed_again();
                }
            }
            Err(why) => {
                let why = Termination::NotStarted(why);
                let now = self.clock.now();
                self.engine.proc_ended(now, job.proc(number), restarts, why.clone());
                self.report_end(number, restarts, why);
            }
        }
    }

    /// To the head node: a process ended, and all that it wrote was sent.
    pub(super) fn report_end(&mut self, rank: u32, restarts: u32, why: Termination) {
        let proc = self.job.as_ref().map(|job| job.proc(rank));
        let finalized = proc.is_some_and(|proc| self.engine.has_finalized(proc, restarts));
        self.report(Control::Ended { rank, restarts, finalized, why });
    }
}

//! Ranks that are started again: what was there of the process before is gone by then.

use super::{Daemon, control::Control};
use crate::{Proc, Termination};
use rustix::process::{Signal, kill_process_group};

impl Daemon {
    /// The engine says that a process is replaced, of this node or another.
    pub(super) fn restarted(&mut self, proc: Proc, restarts: u32) {
        let Some(job) = self.job.as_ref().filter(|job| job.id() == proc.job) else { return };
        if self.engine.restarts_of(proc) != restarts {
            // It was so on a node that is lost by now, of which this one heard at the same time. The next one follows.
            return;
        }
        let here = job.node_of(proc.rank) == Some(self.me);
        if let Some(shelf) = &mut self.shelf {
            shelf.forget(proc.rank);
        }
        if let Some(head) = &mut self.head {
            head.controller.restarted(proc.rank, restarts);
        }
        if !here {
            return;
        }
        self.again.insert(proc.rank, restarts);
        match self.ranks.get(&proc.rank) {
            None => self.begin_again(proc.rank),
            // It closed its connection, and may still be there.
            Some(rank) if rank.ended.is_none() => {
                let _ = kill_process_group(rank.pid, Signal::KILL);
            }
            // The last that it wrote is still on its way.
            Some(_) => {}
        }
    }

    /// Starts a rank again, if it is to be.
    pub(super) fn begin_again(&mut self, number: u32) {
        let Some(job) = self.job.clone().filter(|_| self.over.is_none()) else { return };
        let Some(restarts) = self.again.remove(&number) else { return };
        self.drop_clients_of(number);
        self.processes.remove(&number);
        let started = self.common(&job);
        let started =
            started.and_then(|mut common| self.start_rank(number, restarts, &job, &mut common));
        match started {
            Ok(started) => {
                let pid = started.pid.as_raw_nonzero().get() as u32;
                self.ranks.insert(number, started);
                self.engine.proc_started(job.proc(number), pid);
                if number == 0 {
                    let early = std::mem::take(&mut self.early_input);
                    if !early.is_empty() {
                        self.feed(&early);
                    }
                    if self.input_ended {
                        self.feed(&[]);
                    }
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

    /// To the head: a process ended, and all that it wrote was sent.
    pub(super) fn report_end(&mut self, rank: u32, restarts: u32, why: Termination) {
        let proc = self.job.as_ref().map(|job| job.proc(rank));
        let finalized = proc.is_some_and(|proc| self.engine.has_finalized(proc, restarts));
        self.report(Control::Ended { rank, restarts, finalized, why });
    }
}

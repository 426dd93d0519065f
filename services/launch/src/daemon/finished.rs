//! A rank that is a script can start one MPI program after the other. Only the first is a rank of
//! the job: which of the others have begun the second one could not be told, and what the first has
//! put would be taken for the second's. So the second one fails; the libraries only say that they
//! reached no peer, and here is why.

use super::Daemon;
use petasos_pmix::{Error, Termination};
use rustix::process::Signal;

const SIGPIPE: i32 = Signal::PIPE.as_raw();

impl Daemon {
    /// An MPI program is refused as a rank: says why, if another one was that rank before.
    pub(super) fn explain_refusal(&mut self, rank: Option<u32>, error: &Error) {
        if let Error::ProcGone { proc, why: Termination::Finalized, .. } = error
            && rank == Some(proc.rank)
        {
            self.explain(proc.rank);
        }
    }

    /// A program that speaks PMI-1 is refused something: says why, if it goes on over the
    /// connection of one before it.
    pub(super) fn explain_or_log(&mut self, rank: u32, error: &Error) {
        match self.has_finalized(rank) {
            true => self.explain(rank),
            false => self.log(&error.to_string()),
        }
    }

    /// A rank has ended: says why, if it did as one does that speaks PMI-1 on the closed connection
    /// of a program before it.
    pub(super) fn explain_end(&mut self, rank: u32, why: &Termination) {
        let broken =
            [Termination::Signalled(SIGPIPE), Termination::Exited(128 + SIGPIPE)].contains(why);
        if broken && self.has_finalized(rank) {
            self.explain(rank);
        }
    }

    /// Says of a rank why it was refused something, where its library tells it only that it was.
    pub(super) fn explain_to(&mut self, rank: Option<u32>, why: &str) {
        match rank {
            Some(rank) => self.log(&format!("rank {rank}: {why}")),
            None => self.log(why),
        }
    }

    fn has_finalized(&self, rank: u32) -> bool {
        let process = self.job.as_ref().zip(self.ranks.get(rank));
        process.is_some_and(|(job, process)| {
            self.engine.has_finalized(job.proc(rank), process.restarts())
        })
    }

    fn explain(&mut self, rank: u32) {
        self.log(&format!(
            "an MPI program was rank {rank} and has finished; another one cannot be it, too: start each by a \
             `petasos run` of its own"
        ));
    }
}

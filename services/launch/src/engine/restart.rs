//! Restarts: a process that failed is started again, under its rank and on its node. (Where the
//! node itself is lost: [`replace`](super::replace).)
//!
//! The controller decides. Each process of a rank has a number, how often that rank had been
//! started again before it. Every message about a process names it: that it ended, what is on its
//! business card, that it is to be replaced. So a message that comes late, twice, or out of order
//! is recognised. The news of a restart travels as the news of a failure does.

use super::{ClientId, Engine, Output, RequestId, outbox::Question, timers::Timer};
use crate::message::{ControllerRequest, Message, Replacement};
use petasos_pmix::{Error, Node, Proc, Termination, message::Answer};

fn refused(proc: Proc, why: impl Into<String>) -> Error {
    Error::NotRestarted { proc, why: why.into() }
}

impl Engine {
    /// How often the rank of a process was started again.
    #[must_use]
    pub fn restarts_of(&self, proc: Proc) -> u32 {
        self.jobs.restarts_of(proc)
    }

    /// At the head node: how often a rank may be started again, from now on; `None`: never, since
    /// the job has not begun, or is ending.
    pub fn allow_restarts(&mut self, restarts: Option<u32>) {
        self.config.restarts = restarts;
    }

    /// Whether a process of this node has finalized; `restarts` says how often its rank had been
    /// started again before it.
    #[must_use]
    pub fn has_finalized(&self, proc: Proc, restarts: u32) -> bool {
        let ended = self.jobs.termination_of(proc);
        self.restarts_of(proc) == restarts && ended == Some(&Termination::Finalized)
    }

    /// A client asks for a process to be started again.
    pub(super) fn restart(
        &mut self,
        client: ClientId,
        id: RequestId,
        asker: Proc,
        proc: Proc,
        after: Option<u32>,
    ) -> Result<Option<Answer>, Error> {
        self.check_may(asker, proc.job)?;
        self.jobs.node_of(proc).ok_or(Error::NoSuchProc(proc))?;
        let known = self.restarts_of(proc);
        let after = after.unwrap_or_else(|| match self.jobs.termination_of(proc) {
            Some(_) => known,
            // The one that failed was replaced already, if there was one.
            None => known.saturating_sub(1),
        });
        self.ask_controller(client, id, asker, ControllerRequest::Restart { proc, after }, None)
    }

    /// At the controller: a process asks for one to be started again.
    pub(super) fn restart_asked(
        &mut self,
        question: Question,
        proc: Proc,
        after: u32,
    ) -> Result<Option<Answer>, Error> {
        if let Some(restarts) = self.restart_once(proc, after)? {
            return Ok(Some(Answer::Value(restarts.into())));
        }
        self.await_failure(question, ControllerRequest::Restart { proc, after })
    }

    /// Has a process replaced, if that was not done, and says how often its rank was started again
    /// by then; `None`: it is not known here that it failed.
    fn restart_once(&mut self, proc: Proc, after: u32) -> Result<Option<u32>, Error> {
        let node = self.jobs.node_of(proc).ok_or(Error::NoSuchProc(proc))?;
        let restarts = self.restarts_of(proc);
        if after < restarts {
            return Ok(Some(restarts));
        }
        let never = "the job does not go on after a failure, or is ending";
        let most = self.config.restarts.ok_or_else(|| refused(proc, never))?;
        if after > restarts {
            return Err(refused(proc, "that process has not been started yet"));
        }
        if self.members.is_lost(node) {
            let why = format!("{node} is lost, and no other one has taken its place");
            return Err(refused(proc, why));
        }
        match self.jobs.termination_of(proc) {
            None => return Ok(None),
            Some(why) if why.is_clean() => return Err(refused(proc, why.to_string())),
            Some(_) => {}
        }
        if restarts >= most {
            let why = format!("it was so {restarts} times, and may be so {most} times");
            return Err(refused(proc, why));
        }
        self.restarted(proc, restarts + 1, None);
        Ok(Some(restarts + 1))
    }

    /// At the controller, a process has failed: it is started again, if a process waits for that,
    /// or if the job is run that way.
    pub(super) fn failed_at_controller(&mut self, proc: Proc, why: &Termination) {
        if !self.is_controller() {
            return;
        }
        // A program that does not exist will not exist the next time.
        if self.config.restart_failed && !matches!(why, Termination::NotStarted(_)) {
            // If it is refused, the process stays failed, which is reported in the end.
            let _ = self.restart_once(proc, self.restarts_of(proc));
        }
        self.failure_known(
            |what| matches!(what, ControllerRequest::Restart { proc: of, .. } if *of == proc),
        );
    }

    /// Ranks were started again with their node: requests for one of them alone are answered.
    pub(super) fn restarts_by_replacement(&mut self, what: &Replacement) {
        let again = |of: &Proc| what.again.iter().any(|(proc, _)| proc == of);
        self.failure_known(
            |what| matches!(what, ControllerRequest::Restart { proc, .. } if again(proc)),
        );
    }

    /// The controller has decided that a process is started again.
    pub(super) fn restarted(&mut self, proc: Proc, restarts: u32, from: Option<Node>) {
        if self.jobs.node_of(proc).is_none() || self.restarts_of(proc) >= restarts {
            return;
        }
        if self.jobs.local(proc).is_some_and(|local| local.failure().is_none()) {
            // This node knows best that the process has not failed.
            return;
        }
        self.spread(&Message::Restarted { proc, restarts }, from);
        self.renew(proc, restarts);
    }

    /// There will be another process of a rank: drops what is here of the old one.
    pub(super) fn renew(&mut self, proc: Proc, restarts: u32) {
        let now = self.now();
        let Some(renewed) = self.jobs.renew(proc, restarts, now) else { return };
        if let Some(why) = renewed.local {
            self.progress.forget(proc);
            self.disown_clients(proc, why);
            self.restart_fences(proc);
            if self.jobs.is_wired() {
                self.timers.set_after(self.config.connect, Timer::Connect);
            }
        }
        self.fetch_again(proc);
        self.out.push(Output::Restarted { proc, restarts });
        if renewed.has_card {
            self.out.push(Output::CardChanged(proc));
        }
    }

    /// Connections of a process that has ended belong to no process any more.
    fn disown_clients(&mut self, proc: Proc, why: Termination) {
        let error = Error::ProcGone { proc, node: self.me, why };
        for client in self.clients.of(proc) {
            self.refuse_all(client, &error);
            for codes in self.clients.disown(client) {
                self.want(&codes, false);
            }
        }
    }
}

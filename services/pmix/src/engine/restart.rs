//! Restarts: a process that failed is started again, under its rank and on its node. (Where the node itself is lost:
//! [`replace`](super::replace).)
//!
//! The head decides. Each process of a rank has a number, how often that rank had been started again before it, and
//! all that is said of a process names it: that it is gone, what is on its card, that it is to be replaced. So what
//! comes late, twice, or in another order is known for what it is. Word of a restart goes the way of that of a death.

use super::{Client, ClientId, Engine, Job, Local, Output, RequestId, Timer, head::Asked};
use crate::{
    error::{Error, Termination},
    message::{Answer, ControllerRequest, Message, Replacement},
    names::{Node, Proc},
};
use petasos_fabric::Time;

impl Job {
    /// How often a rank was started again.
    pub(super) fn restarts_of(&self, rank: u32) -> u32 {
        self.restarts.get(&rank).copied().unwrap_or_default()
    }
}

fn refused(proc: Proc, why: impl Into<String>) -> Error {
    Error::NotRestarted { proc, why: why.into() }
}

impl Engine {
    /// How often the rank of a process was started again.
    #[must_use]
    pub fn restarts_of(&self, proc: Proc) -> u32 {
        self.jobs.get(&proc.job).map_or(0, |job| job.restarts_of(proc.rank))
    }

    /// At the head: from now on a rank may be started again so often; `None`: nobody is, since the job has not
    /// begun, or is ending.
    pub fn allow_restarts(&mut self, restarts: Option<u32>) {
        self.config.restarts = restarts;
    }

    /// At the head: its daemon has heard that a process of another node failed, perhaps before this engine.
    pub fn heard_gone(&mut self, now: Time, proc: Proc, restarts: u32, why: Termination) {
        self.advance(now);
        self.proc_known_gone(proc, restarts, why, None);
    }

    /// Whether a process of this node, the one before which its rank was started again so often, has finalized.
    #[must_use]
    pub fn has_finalized(&self, proc: Proc, restarts: u32) -> bool {
        self.restarts_of(proc) == restarts && self.gone_of(proc) == Some(&Termination::Finalized)
    }

    /// What became of a process, as far as that is known here.
    pub(super) fn gone_of(&self, proc: Proc) -> Option<&Termination> {
        let job = self.jobs.get(&proc.job)?;
        let here = job.locals.get(&proc.rank).and_then(|local| local.gone.as_ref());
        here.or_else(|| job.gone.get(&proc.rank))
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
        self.node_of(proc).ok_or(Error::NoSuchProc(proc))?;
        let known = self.restarts_of(proc);
        let after = after.unwrap_or_else(|| match self.gone_of(proc) {
            Some(_) => known,
            // The one that failed was replaced already, if there was one.
            None => known.saturating_sub(1),
        });
        self.ask_head(client, id, asker, ControllerRequest::Restart { proc, after }, None)
    }

    /// At the head: somebody asks.
    pub(super) fn restart_asked(
        &mut self,
        asked: Asked,
        proc: Proc,
        after: u32,
    ) -> Result<Option<Answer>, Error> {
        if let Some(restarts) = self.restart_once(proc, after)? {
            return Ok(Some(Answer::Value(restarts.into())));
        }
        self.awaits_word(asked, ControllerRequest::Restart { proc, after })
    }

    /// Has a process replaced, if that was not done, and says how often its rank was started again by then; `None`: it
    /// is not known here that it failed.
    fn restart_once(&mut self, proc: Proc, after: u32) -> Result<Option<u32>, Error> {
        let node = self.node_of(proc).ok_or(Error::NoSuchProc(proc))?;
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
        match self.gone_of(proc) {
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

    /// It is known that a process failed: at the head it is started again, if somebody waits for that, or if that is
    /// how the job is run.
    pub(super) fn gone_at_head(&mut self, proc: Proc, why: &Termination) {
        if self.me != Node::HEAD {
            return;
        }
        // A program that is not there will not be there the next time.
        if self.config.restart_failed && !matches!(why, Termination::NotStarted(_)) {
            // If it is refused, it stays failed, which is told in the end.
            let _ = self.restart_once(proc, self.restarts_of(proc));
        }
        self.word_came(
            |what| matches!(what, ControllerRequest::Restart { proc: of, .. } if *of == proc),
        );
    }

    /// Ranks were started again with their node: who had asked for one of them alone has what it wanted.
    pub(super) fn restarts_by_the_way(&mut self, what: &Replacement) {
        let again = |of: &Proc| what.again.iter().any(|(proc, _)| proc == of);
        self.word_came(
            |what| matches!(what, ControllerRequest::Restart { proc, .. } if again(proc)),
        );
    }

    /// A process is started again, so says the head.
    pub(super) fn restarted(&mut self, proc: Proc, restarts: u32, from: Option<Node>) {
        if self.node_of(proc).is_none() || self.restarts_of(proc) >= restarts {
            return;
        }
        let is_well = |local: &Local| local.gone.as_ref().is_none_or(Termination::is_clean);
        if self.local(proc).is_some_and(is_well) {
            // Nobody else can know better that there is somebody to replace.
            return;
        }
        self.spread(&Message::Restarted { proc, restarts }, from);
        self.renew(proc, restarts);
    }

    /// What is here of a process is of one that is gone, and there will be another.
    pub(super) fn renew(&mut self, proc: Proc, restarts: u32) {
        let since = self.now;
        let Some(job) = self.jobs.get_mut(&proc.job) else { return };
        job.restarts.insert(proc.rank, restarts);
        job.gone.remove(&proc.rank);
        job.done.remove(&proc.rank);
        // Its card may have come before the word that there is one.
        let early = job.cards.get(&proc.rank).is_some_and(|card| card.restarts >= restarts);
        if !early {
            job.cards.remove(&proc.rank);
        }
        if let Some(local) = job.locals.get_mut(&proc.rank) {
            let why = local.gone.take().unwrap_or(Termination::Disconnected);
            *local = Local { since, ..Local::default() };
            local.card.restarts = restarts;
            self.let_clients_go(proc, why);
            self.fences_anew(proc);
            if self.wired {
                self.agenda.set(since.after(self.config.connect), Timer::Connect);
            }
        }
        self.ask_again(proc);
        self.out.push_back(Output::Restarted { proc, restarts });
        if early {
            self.out.push_back(Output::CardChanged(proc));
        }
    }

    /// Whoever still has a connection of a process that is gone is nobody now.
    fn let_clients_go(&mut self, proc: Proc, why: Termination) {
        let of =
            |(client, known): (&ClientId, &Client)| (known.proc == Some(proc)).then_some(*client);
        let clients: Vec<ClientId> = self.clients.iter().filter_map(of).collect();
        let error = Error::ProcGone { proc, node: self.me, why };
        for client in clients {
            self.refuse_all(client, &error);
            let Some(known) = self.clients.get_mut(&client) else { continue };
            known.proc = None;
            for codes in std::mem::take(&mut known.handlers).into_values() {
                self.want(&codes, false);
            }
        }
    }
}

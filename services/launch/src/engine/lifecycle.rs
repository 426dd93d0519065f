//! Processes and connections: their beginning and their end.

use super::{ClientId, Engine, timers::Timer};
use crate::message::Message;
use petasos_fabric::Time;
use petasos_pmix::{Error, JobId, Missing, Node, Proc, Termination, message::Answer};

impl Engine {
    /// A client says which process it is. The daemon has checked that it is that process.
    pub(super) fn connect(&mut self, client: ClientId, proc: Proc) -> Result<Answer, Error> {
        let again = self.clients.is_again(client);
        let local = self.jobs.local_mut(proc).ok_or(Error::NoSuchProc(proc))?;
        if let Some(why) = local.refusal(again).cloned() {
            let node = self.ran_on(proc).unwrap_or(self.me);
            return Err(Error::ProcGone { proc, node, why });
        }
        if !local.attach(client) {
            return Err(Error::Misuse(format!("{proc} is connected already")));
        }
        self.clients.identify(client, proc);
        if !self.jobs.is_wired() {
            match self.is_controller() {
                true => self.wired_somewhere(None),
                false => self.send(Node::HEAD, Message::Wired),
            }
        }
        Ok(Answer::Welcome { proc, node: self.me, restarts: self.restarts_of(proc) })
    }

    /// A client speaks the wire of a library that can finalize and begin again, as MPI sessions do:
    /// a fence waits for it as long as its process runs.
    pub fn may_return(&mut self, client: ClientId) {
        self.clients.set_returns(client);
    }

    /// Whether a client, which is about to connect, belongs to the process that had its rank
    /// before. Then it may connect, once that process has finalized.
    pub fn is_again(&mut self, client: ClientId, again: bool) {
        self.clients.set_again(client, again);
    }

    /// A client is a tool: it only observes.
    pub(super) fn connect_tool(&mut self, client: ClientId) -> Result<Answer, Error> {
        let proc = Proc::new(JobId::TOOLS, self.out.number() as u32);
        self.clients.identify(client, proc);
        Ok(Answer::Welcome { proc, node: self.me, restarts: 0 })
    }

    /// A client's connection is closed.
    pub fn client_closed(&mut self, now: Time, client: ClientId) {
        self.advance(now);
        let Some((proc, handlers)) = self.clients.close(client) else { return };
        for codes in handlers {
            self.want(&codes, false);
        }
        self.fetches.forget_client(client);
        self.deferred.forget_client(client);
        let Some(proc) = proc else { return };
        if let Some(local) = self.jobs.local_mut(proc) {
            if local.detach(client) && local.termination().is_none() {
                self.proc_terminated(proc, Termination::Disconnected, false);
            }
        } else if proc.job == JobId::TOOLS {
            self.release_at_controller(proc);
        }
    }

    /// A process of this node was started.
    pub fn proc_started(&mut self, proc: Proc, pid: u32) {
        if let Some(local) = self.jobs.local_mut(proc) {
            local.set_pid(pid);
            self.announce_restart(proc);
        }
    }

    /// A process of this node ended, or could not be started. `restarts` says how often its rank
    /// had been started again before it: the end of an earlier process of the rank is ignored.
    /// Gives what the end means: a process that has connected and not finalized has left others
    /// that may wait for it, whatever its exit code is.
    pub fn proc_ended(
        &mut self,
        now: Time,
        proc: Proc,
        restarts: u32,
        why: Termination,
    ) -> Termination {
        self.advance(now);
        let current = self.restarts_of(proc) == restarts;
        let Some(local) = self.jobs.local_mut(proc).filter(|_| current) else { return why };
        let why = local.interpret(why);
        let could_return = local.exited();
        match local.termination() {
            None => self.proc_terminated(proc, why.clone(), false),
            Some(Termination::Finalized) => {
                if could_return {
                    self.fences_lacking(proc, &Termination::Finalized);
                    self.settle_deferred(proc);
                }
                if !why.is_clean() {
                    // It finalized, and then failed.
                    self.announce_failure(proc, &why);
                }
            }
            Some(_) => {}
        }
        why
    }

    /// A process has finalized: what waits for it ends.
    pub(super) fn finalize(&mut self, client: ClientId, proc: Proc) {
        let may_return = self.clients.returns(client);
        if self.jobs.local(proc).is_some_and(|local| local.termination().is_none()) {
            self.proc_terminated(proc, Termination::Finalized, may_return);
        }
        let error = Error::Misuse(format!("{proc} has finalized"));
        self.refuse_all(client, &error);
    }

    fn proc_terminated(&mut self, proc: Proc, why: Termination, may_return: bool) {
        let Some(local) = self.jobs.local_mut(proc) else { return };
        local.terminate(why.clone(), may_return);
        let (connected, known) = (local.has_connected(), local.is_known_to_controller());
        if !may_return {
            self.fences_lacking(proc, &why);
            self.settle_deferred(proc);
        }
        if known {
            self.release_at_controller(proc);
        }
        if !why.is_clean() {
            let restarts = self.restarts_of(proc);
            self.spread(&Message::Termination { proc, restarts, why: why.clone() }, None);
            self.announce_failure(proc, &why);
            self.failed_at_controller(proc, &why);
        } else if self.jobs.is_wired() && !connected {
            self.ended_unconnected(proc);
        }
    }

    /// The controller drops what a process published for its own lifetime, and its lookups.
    fn release_at_controller(&mut self, proc: Proc) {
        match self.is_controller() {
            true => self.release(proc),
            false => self.send(Node::HEAD, Message::Release(proc)),
        }
    }

    /// A process of another node has failed.
    pub(super) fn remote_proc_failed(
        &mut self,
        proc: Proc,
        restarts: u32,
        why: Termination,
        from: Option<Node>,
    ) {
        let Some(node) = self.jobs.node_of(proc).filter(|node| *node != self.me) else { return };
        let known = self.restarts_of(proc);
        if restarts < known {
            return;
        }
        if restarts > known {
            // The news that it was started again is still on its way here.
            self.renew(proc, restarts);
        }
        if !self.jobs.note_failed(proc, why.clone()) {
            return;
        }
        self.spread(&Message::Termination { proc, restarts, why: why.clone() }, from);
        self.check_fences(proc, node);
        self.failed_at_controller(proc, &why);
    }

    /// At the head node: its daemon has heard that a process of another node failed, perhaps before
    /// this engine did.
    pub fn heard_gone(&mut self, now: Time, proc: Proc, restarts: u32, why: Termination) {
        self.advance(now);
        self.remote_proc_failed(proc, restarts, why, None);
    }

    /// At the head node: a process of another node has ended as it should, and is not started again
    /// with its node.
    pub fn heard_done(&mut self, now: Time, proc: Proc, restarts: u32, why: Termination) {
        self.advance(now);
        self.jobs.note_done(proc, restarts, why);
    }

    /// A process has connected somewhere: so the program uses this service, and all of its
    /// processes must connect.
    pub(super) fn wired_somewhere(&mut self, from: Option<Node>) {
        if self.jobs.set_wired() {
            return;
        }
        let from = from.filter(|_| !self.is_controller());
        self.spread(&Message::Wired, from);
        self.timers.set_after(self.config.connect, Timer::Connect);
        // Failures are known already, and whether the job goes on is not decided here.
        let ended = self.jobs.locals().filter(|(_, local)| {
            !local.has_connected() && local.termination().is_some_and(Termination::is_clean)
        });
        let ended: Vec<Proc> = ended.map(|(proc, _)| proc).collect();
        ended.into_iter().for_each(|proc| self.ended_unconnected(proc));
    }

    fn ended_unconnected(&mut self, proc: Proc) {
        let mut missing = Missing::default();
        missing.add(proc);
        self.never_connected(missing);
    }

    /// By now all processes must have connected.
    pub(super) fn check_connected(&mut self) {
        let mut missing = Missing::default();
        let (now, patience) = (self.now(), self.config.connect);
        let late = self
            .jobs
            .locals()
            .filter(|(_, local)| !local.has_connected() && local.is_overdue(now, patience));
        late.for_each(|(proc, _)| missing.add(proc));
        if !missing.is_empty() {
            self.never_connected(missing);
        }
    }
}

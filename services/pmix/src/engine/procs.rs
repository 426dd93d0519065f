//! Processes and connections: they come, and they go.

use super::{ClientId, Engine, Timer};
use crate::{
    error::{Error, Termination},
    message::{Answer, Message},
    names::{JobId, Missing, Node, Proc},
};
use petasos_fabric::Time;

impl Engine {
    /// A client says which process it is. That it may, the daemon has checked.
    pub(super) fn connect(&mut self, client: ClientId, proc: Proc) -> Result<Answer, Error> {
        let again = self.again(client);
        let local = self.local_mut(proc).ok_or(Error::NoSuchProc(proc))?;
        match local.gone.clone() {
            // Its connection of before may still be open: what comes over that is nothing any more.
            Some(Termination::Finalized) if again => (local.gone, local.client) = (None, None),
            Some(why) => {
                let node = self.ran_on(proc).unwrap_or(self.me);
                return Err(Error::ProcGone { proc, node, why });
            }
            None => {}
        }
        if local.client.is_some_and(|other| other != client) {
            return Err(Error::Misuse(format!("{proc} is connected already")));
        }
        local.client = Some(client);
        (local.connected, local.may_return) = (true, false);
        let restarts = self.restarts_of(proc);
        if let Some(known) = self.clients.get_mut(&client) {
            known.proc = Some(proc);
        }
        if !self.wired {
            match self.me == Node::HEAD {
                true => self.wired_somewhere(None),
                false => self.send(Node::HEAD, Message::Wired),
            }
        }
        Ok(Answer::Welcome { proc, node: self.me, restarts })
    }

    /// A client speaks the wire of a library that can finalize and begin again, as MPI sessions do: a fence waits
    /// for it as long as its process runs.
    pub fn may_return(&mut self, client: ClientId) {
        if let Some(known) = self.clients.get_mut(&client) {
            known.returns = true;
        }
    }

    /// Whether a client, which is about to connect, is of the process that was that rank before: then it may, once
    /// that has finalized.
    pub fn is_again(&mut self, client: ClientId, again: bool) {
        if let Some(known) = self.clients.get_mut(&client) {
            known.again = again;
        }
    }

    pub(super) fn again(&self, client: ClientId) -> bool {
        self.clients.get(&client).is_some_and(|known| known.again)
    }

    /// A client says that it only looks on.
    pub(super) fn connect_tool(&mut self, client: ClientId) -> Result<Answer, Error> {
        let proc = Proc::new(JobId::TOOLS, self.number() as u32);
        if let Some(known) = self.clients.get_mut(&client) {
            known.proc = Some(proc);
        }
        Ok(Answer::Welcome { proc, node: self.me, restarts: 0 })
    }

    /// A client's connection is closed.
    pub fn client_closed(&mut self, now: Time, client: ClientId) {
        self.advance(now);
        let Some(known) = self.clients.remove(&client) else { return };
        for codes in known.handlers.into_values() {
            self.want(&codes, false);
        }
        self.head_asks.retain(|_, (waiting, _)| *waiting != client);
        self.forget_asks(client);
        let Some(proc) = known.proc else { return };
        if let Some(local) = self.local_mut(proc) {
            if local.client != Some(client) {
                // Another connection of its process has taken its place.
                return;
            }
            local.client = None;
            if local.gone.is_none() {
                self.proc_gone(proc, Termination::Disconnected);
            }
        } else if proc.job == JobId::TOOLS {
            self.let_go(proc);
        }
    }

    /// A process of this node was started.
    pub fn proc_started(&mut self, proc: Proc, pid: u32) {
        if let Some(local) = self.local_mut(proc) {
            local.pid = pid;
            self.announce_restart(proc);
        }
    }

    /// A process of this node ended, or could not be started: the one before which its rank was started again so
    /// often. Of an earlier one that is no news. Gives what that means: a process that has connected and not
    /// finalized has left others that may wait for it, whatever its exit code is.
    pub fn proc_ended(
        &mut self,
        now: Time,
        proc: Proc,
        restarts: u32,
        why: Termination,
    ) -> Termination {
        self.advance(now);
        let current = self.restarts_of(proc) == restarts;
        let Some(local) = self.local_mut(proc).filter(|_| current) else { return why };
        let open = matches!(local.gone, None | Some(Termination::Disconnected));
        let why = match why {
            Termination::Exited(0) if local.connected && open => Termination::NotFinalized,
            why => why,
        };
        let was_expected = std::mem::take(&mut local.may_return);
        match &local.gone {
            None => self.proc_gone(proc, why.clone()),
            Some(Termination::Finalized) => {
                if was_expected {
                    self.fences_lacking(proc, &Termination::Finalized);
                    self.settle_parked(proc);
                }
                if !why.is_clean() {
                    // It was done, and then failed.
                    self.announce_gone(proc, &why);
                }
            }
            Some(_) => {}
        }
        why
    }

    /// It is done; whoever waits for it is told.
    pub(super) fn finalize(&mut self, client: ClientId, proc: Proc) {
        let returns = self.clients.get(&client).is_some_and(|known| known.returns);
        match self.local_mut(proc) {
            Some(local) if local.gone.is_none() => {
                local.may_return = returns;
                self.proc_gone(proc, Termination::Finalized);
            }
            _ => {}
        }
        let error = Error::Misuse(format!("{proc} has finalized"));
        self.refuse_all(client, &error);
    }

    fn proc_gone(&mut self, proc: Proc, why: Termination) {
        let wired = self.wired;
        let Some(local) = self.local_mut(proc) else { return };
        local.gone = Some(why.clone());
        let (connected, known_at_head) = (local.connected, local.known_at_head);
        let failed = !why.is_clean();
        if !local.may_return {
            self.fences_lacking(proc, &why);
            self.settle_parked(proc);
        }
        if known_at_head {
            self.let_go(proc);
        }
        if failed {
            let restarts = self.restarts_of(proc);
            self.spread(&Message::Termination { proc, restarts, why: why.clone() }, None);
            self.announce_gone(proc, &why);
            self.gone_at_head(proc, &why);
        } else if wired && !connected {
            self.ended_unconnected(proc);
        }
    }

    /// What it published for its own life goes, and what it waits for is not looked up any more.
    fn let_go(&mut self, proc: Proc) {
        match self.me == Node::HEAD {
            true => self.release(proc),
            false => self.send(Node::HEAD, Message::Release(proc)),
        }
    }

    /// A process of another node is gone, not as it should be.
    pub(super) fn proc_known_gone(
        &mut self,
        proc: Proc,
        restarts: u32,
        why: Termination,
        from: Option<Node>,
    ) {
        let Some(job) = self.jobs.get_mut(&proc.job) else { return };
        let Some(node) = job.map.node_of(proc.rank).filter(|node| *node != self.me) else { return };
        let known = job.restarts_of(proc.rank);
        if restarts < known || restarts == known && job.gone.contains_key(&proc.rank) {
            return;
        }
        if restarts > known {
            // That it was started again is still on its way here.
            self.renew(proc, restarts);
        }
        let Some(job) = self.jobs.get_mut(&proc.job) else { return };
        job.gone.insert(proc.rank, why.clone());
        self.spread(&Message::Termination { proc, restarts, why: why.clone() }, from);
        self.check_fences(proc, node);
        self.gone_at_head(proc, &why);
    }

    /// A process has connected somewhere: so it is a program that does, and all of it must.
    pub(super) fn wired_somewhere(&mut self, from: Option<Node>) {
        if std::mem::replace(&mut self.wired, true) {
            return;
        }
        let from = from.filter(|_| self.me != Node::HEAD);
        self.spread(&Message::Wired, from);
        self.agenda.set(self.now.after(self.config.connect), Timer::Connect);
        // Of those that failed it is known, and whether the job goes on is not decided here.
        let clean = |gone: &Option<Termination>| gone.as_ref().is_some_and(Termination::is_clean);
        let ended: Vec<Proc> = self.unconnected(|local| clean(&local.gone));
        ended.into_iter().for_each(|proc| self.ended_unconnected(proc));
    }

    fn unconnected(&self, which: impl Fn(&super::Local) -> bool) -> Vec<Proc> {
        let mut found = Vec::new();
        for job in self.jobs.values() {
            let fits = job.locals.iter().filter(|(_, local)| !local.connected && which(local));
            found.extend(fits.map(|(rank, _)| job.map.proc(*rank)));
        }
        found
    }

    fn ended_unconnected(&mut self, proc: Proc) {
        let mut missing = Missing::default();
        missing.add(proc);
        self.never_connected(missing);
    }

    /// By now everybody must have connected.
    pub(super) fn check_connected(&mut self) {
        let mut missing = Missing::default();
        // Who was started later has as long as the others had.
        let due = |since: Time| since == Time::ZERO || self.now >= since.after(self.config.connect);
        let late = self.unconnected(|local| local.gone.is_none() && due(local.since));
        late.into_iter().for_each(|proc| missing.add(proc));
        if !missing.is_empty() {
            self.never_connected(missing);
        }
    }
}

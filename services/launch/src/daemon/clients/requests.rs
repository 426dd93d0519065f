//! What clients ask for, in any of the protocols that they speak, and what they are told.

use super::{
    super::{Daemon, again::holder},
    Clients, Speaks, Word,
};
use crate::{
    engine::ClientId,
    pmi1::{MAX_LINE, Session, Step},
    pmix41,
};
use petasos_fabric::Time;
use petasos_pmix::{
    JobId,
    job::JobMap,
    message::{Answer, Request},
    server::{Asked, FromDaemon},
};
use rustix::process::Pid;
use std::{fs, io, os::unix::fs::DirBuilderExt};

impl Daemon {
    /// A client wrote something, or is gone.
    pub(in super::super) fn read_client(&mut self, number: u64) {
        if let Err(error) = self.try_read(number) {
            if error.kind() != io::ErrorKind::UnexpectedEof
                && error.kind() != io::ErrorKind::ConnectionReset
            {
                self.cut_off(number, &error.to_string());
            }
            self.client_gone(number);
        }
    }

    /// A process has ended: what it said before that, such as that it finalizes, counts.
    pub(in super::super) fn read_rest_of(&mut self, rank: u32) {
        for number in self.clients.of_rank(rank) {
            while let Ok(true) = self.try_read(number) {}
        }
    }

    /// A client did what it may not. If it is a rank, that has failed, whatever it makes of it.
    pub(super) fn cut_off(&mut self, number: u64, why: &str) {
        let rank = self.clients.rank_of(number);
        match rank {
            Some(rank) => self.log(&format!("rank {rank} is cut off: {why}")),
            None => self.log(&format!("a client is cut off: {why}")),
        }
        tracing::debug!(client = number, ?rank, why, "cut off");
        self.has_failed(rank, format!("its connection was cut: {why}"));
    }

    /// A process has failed for this, also if it does not notice.
    fn has_failed(&mut self, rank: Option<u32>, why: String) {
        if let Some(rank) = rank {
            self.ranks.fail(rank, why);
        }
    }

    /// Says whether there was something to read.
    fn try_read(&mut self, number: u64) -> io::Result<bool> {
        let Some(client) = self.clients.get_mut(number) else { return Ok(false) };
        let ended = match client.frames.fill() {
            Ok(false) => return Ok(false),
            Ok(true) => None,
            Err(error) => Some(error),
        };
        while let Some(client) = self.clients.get_mut(number) {
            match &mut client.speaks {
                Speaks::Unknown => {
                    let Some(said) = client.frames.take_raw()? else { break };
                    let rank = self.listeners.after_token(said)?;
                    client.speaks = match <[u8; 4]>::try_from(rank) {
                        Ok(rank) => Speaks::Pmi1(Session::new(u32::from_le_bytes(rank)), 0),
                        Err(_) if rank.is_empty() => Speaks::Native,
                        Err(_) => return Err(io::Error::other("it speaks an unknown protocol")),
                    };
                    if let Speaks::Pmi1(session, _) = &client.speaks {
                        client.rank = Some(session.rank());
                    }
                    client.prove_by = Time::NEVER;
                    let foreign = matches!(client.speaks, Speaks::Pmi1(..));
                    self.engine.client_opened(ClientId(number));
                    if foreign {
                        self.engine.may_return(ClientId(number));
                    }
                    continue;
                }
                Speaks::Native => {}
                Speaks::Pmi1(session, _) => {
                    let Some(line) = client.frames.take_line(MAX_LINE)? else { break };
                    let Some(job) = &self.job else { break };
                    let steps = session.line(&String::from_utf8_lossy(&line), job);
                    self.pmi1(number, steps);
                    continue;
                }
                Speaks::Pmix41(session) => {
                    let Some(job) = self.job.clone() else { break };
                    let taken = session.take(client.frames.come(), &job)?;
                    let Some((len, steps)) = taken else { break };
                    client.frames.skip(len);
                    client.prove_by = Time::NEVER;
                    if client.rank.is_none() {
                        let rank = session.rank();
                        client.rank = rank;
                        self.make_own_directory(rank, &job)?;
                    }
                    self.pmix41(number, steps);
                    continue;
                }
            }
            let Some(asked) = client.frames.take()? else { break };
            let (id, what) = match asked {
                Asked::Request { id, what } => (id, what),
                Asked::ByWord { id, what } => {
                    if self.datastore.is_some() && client.rank.is_some() {
                        client.word = Word::Waiting(id);
                    }
                    (id, what)
                }
                Asked::OverSocket { id } => {
                    client.over_socket(id);
                    continue;
                }
            };
            if let Request::Connect(proc) = &what
                && proc.job != JobId::TOOLS
            {
                client.rank.get_or_insert(proc.rank);
            }
            self.meet(number, &what);
            self.engine.request(self.clock.now(), ClientId(number), id, what);
            self.pump();
        }
        ended.map_or(Ok(true), Err)
    }

    /// Whether a client asks for what says which process is which rank: see [`super::again`].
    fn meet(&mut self, number: u64, what: &Request) {
        match what {
            Request::Connect(proc) if proc.job != JobId::TOOLS => {
                let process = self.process_of(number, proc.rank, true);
                self.connects(number, proc.rank, process);
            }
            Request::Finalize => {
                let Some(rank) = self.clients.rank_of(number) else {
                    return;
                };
                let process = self.process_of(number, rank, false);
                self.finalizes(rank, process);
            }
            _ => {}
        }
    }

    /// The process that a client is. One that comes over loopback has to be looked for: when it
    /// connects, only if a process was the rank before.
    fn process_of(&mut self, number: u64, rank: u32, connects: bool) -> Option<Pid> {
        let client = self.clients.get(number)?;
        let Some(stream) = client.frames.tcp() else { return client.frames.sender() };
        if connects && !self.ranks.was_a_client(rank) {
            return None;
        }
        let (far, near) = (stream.peer_addr().ok()?, stream.local_addr().ok()?);
        let first = self.ranks.running(rank)?;
        holder(first, self.listeners.socket_of(far, near)?)
    }

    /// Where a process of the PMIx library may have files, of which it is told in its job's data.
    fn make_own_directory(&self, rank: Option<u32>, job: &JobMap) -> io::Result<()> {
        let (Some(rank), Some(place)) = (rank, self.files.directory()) else { return Ok(()) };
        if job.node_of(rank) != Some(self.me) {
            return Ok(());
        }
        let own = pmix41::own_directory(&place.path().to_string_lossy(), rank);
        match fs::DirBuilder::new().mode(0o700).create(own) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    /// Something for a client.
    pub(in super::super) fn tell_client(&mut self, id: ClientId, what: &FromDaemon) {
        let Clients { all, rings, .. } = &mut self.clients;
        let open = all.get_mut(&id.0).filter(|client| client.closing.is_none());
        let Some(client) = open else { return };
        match (&mut client.speaks, what) {
            (Speaks::Pmi1(session, _), FromDaemon::Answer { result, .. }) => {
                let steps = session.answered(result);
                let rank = session.rank();
                if let Err(error) = result {
                    self.explain_or_log(rank, error);
                }
                self.pmi1(id.0, steps);
            }
            (Speaks::Pmix41(session), FromDaemon::Answer { id: request, result }) => {
                let Some(job) = self.job.clone() else { return };
                let steps = session.answered(*request, result, &job);
                let rank = session.rank();
                if let Err(error) = result {
                    self.explain_refusal(rank, error);
                }
                self.pmix41(id.0, steps);
            }
            (Speaks::Pmix41(session), FromDaemon::Event { event, only }) => {
                let Some(job) = self.job.clone() else { return };
                let step = session.event(event, *only, &job);
                self.pmix41(id.0, step.into_iter().collect());
            }
            (Speaks::Pmi1(..), FromDaemon::Event { .. }) => {}
            (_, FromDaemon::Answer { id: request, result })
                if client.word == Word::Waiting(*request) =>
            {
                // A process that sleeps there looks at that word, and at its socket.
                *rings = true;
                match (result, self.datastore.as_mut(), client.rank) {
                    (Ok(Answer::Done), Some(datastore), Some(rank)) => {
                        datastore.complete(rank, *request);
                        client.word = Word::Said(*request);
                    }
                    _ => {
                        client.word = Word::None;
                        client.say(what);
                    }
                }
            }
            _ => client.say(what),
        }
    }

    /// Does what a message of the PMIx library, or its answer, leads to.
    fn pmix41(&mut self, number: u64, steps: Vec<pmix41::Step>) {
        for step in steps {
            match step {
                pmix41::Step::Say(bytes) => {
                    if let Some(client) = self.clients.get_mut(number) {
                        client.frames.push_raw(bytes);
                    }
                }
                pmix41::Step::Explain(why) => {
                    let rank = self.clients.rank_of(number);
                    self.explain_to(rank, &why);
                }
                pmix41::Step::Fail(why) => {
                    let rank = self.clients.rank_of(number);
                    self.explain_to(rank, &why);
                    self.has_failed(rank, why);
                }
                pmix41::Step::Ask(id, what) => {
                    self.meet(number, &what);
                    self.engine.request(self.clock.now(), ClientId(number), id, what);
                    self.pump();
                }
                pmix41::Step::Find(id, key, patience) => {
                    let Some(job) = self.job.as_ref().map(|job| job.id()) else { return };
                    let asker = (ClientId(number), id);
                    self.engine.get_any(self.clock.now(), asker, job, key, patience);
                    self.pump();
                }
            }
        }
    }

    /// Does what a line of PMI-1, or its answer, leads to.
    fn pmi1(&mut self, number: u64, steps: Vec<Step>) {
        for step in steps {
            let Some(client) = self.clients.get_mut(number) else { return };
            let Speaks::Pmi1(session, next) = &mut client.speaks else { return };
            match step {
                Step::Say(line) => client.frames.push_raw(format!("{line}\n").into_bytes()),
                Step::Find(key) => {
                    let found = session.found(self.engine.find(JobId(0), &key));
                    self.pmi1(number, found);
                }
                Step::Ask(what) => {
                    *next += 1;
                    let id = *next;
                    self.meet(number, &what);
                    self.engine.request(self.clock.now(), ClientId(number), id, what);
                    self.pump();
                }
            }
        }
    }
}

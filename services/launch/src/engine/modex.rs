//! Direct exchange of business cards: a business card is fetched when it is first needed, from the
//! daemon that hosts the process, and then kept here.

use super::{
    ClientId, Engine, Output, RequestId, clients::Waiting, limits::LONGEST, process::LocalProcess,
};
use crate::message::Message;
use petasos_fabric::Time;
use petasos_pmix::{
    BusinessCard, Entry, Error, JobId, Node, Proc, RESERVED, Value, message::Answer,
};
use std::{collections::BTreeMap, time::Duration};

/// How much longer than the asking client a question is kept by the other daemon.
pub(super) const SLACK: Duration = Duration::from_secs(1);

/// The get of a client.
pub(super) struct Get {
    pub(super) of: Proc,
    pub(super) key: String,
    pub(super) timeout: Option<Duration>,
    pub(super) immediate: bool,
    pub(super) wait: bool,
}

/// The get of another daemon.
pub(super) struct RemoteGet {
    pub(super) of: Proc,
    /// How often the rank had been started again before the process that is meant.
    pub(super) restarts: u32,
    pub(super) key: String,
    pub(super) wait: bool,
}

/// What a fetch is for: a process, a key, and whether to wait for it.
type Subject = (Proc, String, bool);

/// A question to another daemon: one for all clients that wait for the same.
#[derive(Debug)]
struct Fetch {
    id: u64,
    /// How long the other daemon keeps it.
    until: Time,
    waiters: Vec<(ClientId, RequestId)>,
}

/// The questions under way.
#[derive(Debug, Default)]
pub(super) struct Fetches {
    by_subject: BTreeMap<Subject, Fetch>,
    by_id: BTreeMap<u64, Subject>,
}

impl Fetches {
    /// A client waits for this. False: the other daemon must be asked, since it has not been, or
    /// forgets the older question sooner. The new question then answers both.
    fn join(&mut self, what: &Subject, waiter: (ClientId, RequestId), until: Time) -> bool {
        let Some(fetch) = self.by_subject.get_mut(what) else { return false };
        fetch.waiters.push(waiter);
        fetch.until >= until
    }

    /// A question is sent. It takes the place of an older one about the same.
    fn sent(&mut self, id: u64, what: Subject, until: Time, waiter: (ClientId, RequestId)) {
        self.by_id.insert(id, what.clone());
        let new = || Fetch { id, until, waiters: vec![waiter] };
        let fetch = self.by_subject.entry(what).or_insert_with(new);
        fetch.until = until;
        let older = std::mem::replace(&mut fetch.id, id);
        if older != id {
            self.by_id.remove(&older);
        }
    }

    /// A question is sent again, with another number.
    fn renumber(&mut self, what: &Subject, id: u64) {
        if let Some(fetch) = self.by_subject.get_mut(what) {
            self.by_id.remove(&std::mem::replace(&mut fetch.id, id));
            self.by_id.insert(id, what.clone());
        }
    }

    /// What is asked about processes, and how long the other daemon keeps it.
    fn about(&self, is_meant: impl Fn(Proc) -> bool) -> Vec<(Subject, Time)> {
        let all = self.by_subject.iter().filter(|((of, ..), _)| is_meant(*of));
        all.map(|(what, fetch)| (what.clone(), fetch.until)).collect()
    }

    /// A question is answered: gives its subject and the requests that wait.
    fn answered(&mut self, id: u64) -> Option<(Subject, Vec<(ClientId, RequestId)>)> {
        let what = self.by_id.remove(&id)?;
        let fetch = self.by_subject.remove(&what)?;
        Some((what, fetch.waiters))
    }

    /// A question will not be answered: gives the requests that wait.
    fn remove(&mut self, what: &Subject) -> Vec<(ClientId, RequestId)> {
        let Some(fetch) = self.by_subject.remove(what) else { return Vec::new() };
        self.by_id.remove(&fetch.id);
        fetch.waiters
    }

    pub(super) fn forget_client(&mut self, client: ClientId) {
        for fetch in self.by_subject.values_mut() {
            fetch.waiters.retain(|(waiter, _)| *waiter != client);
        }
    }
}

/// Whether a business card that is here answers a get; the empty key stands for all there is.
fn has(card: &BusinessCard, key: &str) -> bool {
    if key.is_empty() { card.version > 0 } else { card.entries.contains_key(key) }
}

impl Engine {
    /// A process makes visible what it has put.
    pub(super) fn commit(
        &mut self,
        proc: Proc,
        entries: Vec<(String, Entry)>,
    ) -> Result<(), Error> {
        self.jobs.local_mut(proc).ok_or(Error::NoSuchProc(proc))?.commit(entries)?;
        self.out.push(Output::CardChanged(proc));
        self.settle_deferred(proc);
        self.settle_any(proc);
        Ok(())
    }

    pub(super) fn get(
        &mut self,
        client: ClientId,
        id: RequestId,
        asker: Proc,
        get: Get,
    ) -> Result<Option<Answer>, Error> {
        let Get { of, key, timeout, immediate, wait } = get;
        self.check_may(asker, of.job)?;
        let map = self.map(of.job).ok_or(Error::NoSuchProc(of))?;
        let not_found = || Error::NotFound { proc: of, key: key.clone() };
        if let Some(value) = map.value(of.rank, &key) {
            return Ok(Some(Answer::Value(value)));
        }
        if key.starts_with(RESERVED) || of.rank == Proc::JOB {
            return Err(not_found());
        }
        let host = map.node_of(of.rank).ok_or(Error::NoSuchProc(of))?;
        if let Some(known) = self.jobs.remote_card(of)
            && has(known, &key)
        {
            return Ok(Some(Answer::BusinessCard(known.clone())));
        }
        if host == self.me {
            match self.view_card(of, 0, &key, wait, host) {
                Some(result) => return result.map(|card| Some(Answer::BusinessCard(card))),
                None if immediate => return Err(not_found()),
                None => {}
            }
            self.wait(client, id, timeout, Waiting::BusinessCard { proc: of, key: key.clone() });
            self.deferred.add_local(client, id, of, key, wait);
            return Ok(None);
        }
        if immediate {
            return Err(not_found());
        }
        if self.members.is_lost(host) {
            let missing = self.jobs.procs_on(host, None);
            return Err(Error::NodeLost { node: host, missing });
        }
        self.wait(client, id, timeout, Waiting::BusinessCard { proc: of, key: key.clone() });
        let patience = timeout.unwrap_or(self.config.patience).min(LONGEST) + SLACK;
        self.fetch(host, (of, key, wait), patience, (client, id));
        Ok(None)
    }

    fn fetch(
        &mut self,
        host: Node,
        what: Subject,
        patience: Duration,
        waiter: (ClientId, RequestId),
    ) {
        let until = self.now().after(patience);
        if self.fetches.join(&what, waiter, until) {
            return;
        }
        let id = self.send_fetch(host, what.clone(), patience);
        self.fetches.sent(id, what, until, waiter);
    }

    fn send_fetch(&mut self, host: Node, what: Subject, patience: Duration) -> u64 {
        let (id, (proc, key, wait)) = (self.out.number(), what);
        let (restarts, replaced) = (self.restarts_of(proc), self.replacements.count());
        self.send(
            host,
            Message::BusinessCardRequest { id, proc, restarts, replaced, key, wait, patience },
        );
        id
    }

    /// A process of another node was started again: asks the new process what the old one was
    /// asked. Answers under way come from the old one and are ignored.
    pub(super) fn fetch_again(&mut self, proc: Proc) {
        let Some(host) = self.jobs.node_of(proc).filter(|host| *host != self.me) else { return };
        for (what, until) in self.fetches.about(|of| of == proc) {
            let id = self.send_fetch(host, what.clone(), until.since(self.now()));
            self.fetches.renumber(&what, id);
        }
    }

    /// What a process on `viewer` gets of the business card of one of this node; `None`: not yet.
    pub(super) fn view_card(
        &self,
        proc: Proc,
        restarts: u32,
        key: &str,
        wait: bool,
        viewer: Node,
    ) -> Option<Result<BusinessCard, Error>> {
        let Some(local) = self.jobs.local(proc) else { return Some(Err(Error::NoSuchProc(proc))) };
        if self.restarts_of(proc) < restarts {
            // The other node has heard before this one that there will be another process.
            return None;
        }
        let card = local.card();
        let entry = card.entries.get(key);
        let shown = entry.is_some_and(|e| e.scope.shows(self.me, viewer));
        // A key that is there for others will not come for this viewer.
        let wait = wait && (entry.is_none() || shown);
        if shown || key.is_empty() && local.has_card() {
            return Some(Ok(card.seen_from(self.me, viewer)));
        }
        // A miss sends the whole business card, too; the asker finds out that the key is not in it.
        if local.has_card() && (!wait || local.final_termination().is_some()) {
            return Some(match viewer == self.me {
                true => Err(Error::NotFound { proc, key: key.to_owned() }),
                false => Ok(card.seen_from(self.me, viewer)),
            });
        }
        let why = local.final_termination().cloned()?;
        let node = self.ran_on(proc).unwrap_or(self.me);
        Some(Err(Error::ProcGone { proc, node, why }))
    }

    pub(super) fn card_answered(&mut self, id: u64, result: Result<BusinessCard, Error>) {
        let Some(((proc, key, _), waiters)) = self.fetches.answered(id) else { return };
        let result = result.and_then(|card| {
            self.keep_card(proc, card);
            let found = self.jobs.remote_card(proc).filter(|card| has(card, &key)).cloned();
            found.ok_or(Error::NotFound { proc, key })
        });
        for (client, id) in waiters {
            self.answer(client, id, result.clone().map(Answer::BusinessCard));
        }
    }

    /// Keeps a business card of a process of another node, unless a newer one is here, or it is of
    /// a process that was replaced.
    pub(super) fn keep_card(&mut self, proc: Proc, card: BusinessCard) {
        if self.jobs.keep_card(proc, self.me, card) {
            self.out.push(Output::CardChanged(proc));
            self.settle_any(proc);
        }
    }

    /// A business card as the processes of this node see it, if it is here.
    #[must_use]
    pub fn known_business_card(&self, proc: Proc) -> Option<BusinessCard> {
        match self.jobs.local(proc) {
            Some(local) => local.has_card().then(|| local.card().seen_from(self.me, self.me)),
            None => self.jobs.remote_card(proc).cloned(),
        }
    }

    /// A node is lost: it answers nothing any more, and takes no answers.
    pub(super) fn cards_without(&mut self, node: Node) {
        self.deferred.forget_node(node);
        let jobs = &self.jobs;
        let asked = self.fetches.about(|proc| jobs.node_of(proc) == Some(node));
        let missing = self.jobs.procs_on(node, None);
        for (what, _) in asked {
            let error = Error::NodeLost { node, missing: missing.clone() };
            for (client, id) in self.fetches.remove(&what) {
                self.answer(client, id, Err(error.clone()));
            }
        }
    }

    /// The error of a get whose time is over.
    pub(super) fn card_late(&self, proc: Proc, key: String) -> Error {
        let node = self.jobs.node_of(proc).unwrap_or(self.me);
        let state = match self.jobs.local(proc) {
            None => format!("{node} has not answered that it committed"),
            Some(local) if local.has_card() => "it committed without it".to_owned(),
            Some(local) if local.has_connected() => "it has not committed anything".to_owned(),
            Some(_) => "it has not connected".to_owned(),
        };
        Error::GetTimeout { proc, node, key, state }
    }

    /// The business card of a process of this node, as other nodes see it.
    pub(super) fn card_for_others(&self, proc: Proc) -> Option<BusinessCard> {
        let local = self.jobs.local(proc).filter(|local| LocalProcess::has_card(local))?;
        let elsewhere = Node(u32::MAX);
        Some(local.card().seen_from(self.me, elsewhere))
    }

    /// A value that any process of a job has put under a key, of all business cards that are here.
    #[must_use]
    pub fn find(&self, job: JobId, key: &str) -> Option<&Value> {
        self.jobs.find(job, key)
    }
}

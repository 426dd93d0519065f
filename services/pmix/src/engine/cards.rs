//! Direct exchange: a card is asked for when it is first needed, from the daemon that hosts the
//! process, and is then kept here.

use super::{ClientId, Engine, Output, RequestId, Waiting, requests::LONGEST};
use crate::{
    error::Error,
    message::{Answer, Message},
    names::{Node, Proc},
    value::{BusinessCard, Entry, RESERVED},
};
use petasos_fabric::Time;
use std::{collections::BTreeMap, time::Duration};

/// How much longer than the asking client a question is kept by the other daemon.
pub(super) const SLACK: Duration = Duration::from_secs(1);

/// Bytes of all that a process may have committed.
pub(crate) const MAX_CARD: usize = 64 << 20;

/// What a client wants.
pub(super) struct Wanted {
    pub(super) of: Proc,
    pub(super) key: String,
    pub(super) timeout: Option<Duration>,
    pub(super) immediate: bool,
    pub(super) wait: bool,
}

/// What another daemon wants.
pub(super) struct Asked {
    pub(super) of: Proc,
    /// Of a process before which its rank was started again so often.
    pub(super) restarts: u32,
    pub(super) key: String,
    pub(super) wait: bool,
}

/// A question to another daemon: one for all clients that wait for the same.
#[derive(Debug)]
struct Ask {
    id: u64,
    /// Until when the other daemon keeps it.
    until: Time,
    waiters: Vec<(ClientId, RequestId)>,
}

/// The questions under way.
#[derive(Debug, Default)]
pub(super) struct Asks {
    by_key: BTreeMap<(Proc, String, bool), Ask>,
    by_id: BTreeMap<u64, (Proc, String, bool)>,
}

/// Whether a card that is here answers a question; the empty key stands for all there is.
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
        let local = self.local_mut(proc).ok_or(Error::NoSuchProc(proc))?;
        let kept = &local.card.entries;
        let new = |(key, entry): &(String, Entry)| {
            let before = kept.get(key).map_or(0, |before| before.size(key));
            entry.size(key) as isize - before as isize
        };
        let all: usize = kept.iter().map(|(key, entry)| entry.size(key)).sum();
        let all = all.saturating_add_signed(entries.iter().map(new).sum());
        if all > MAX_CARD {
            return Err(super::requests::limit("bytes of a card", all, MAX_CARD));
        }
        local.card.commit(entries);
        self.out.push_back(Output::CardChanged(proc));
        self.settle_parked(proc);
        self.settle_any(proc);
        Ok(())
    }

    pub(super) fn get(
        &mut self,
        client: ClientId,
        id: RequestId,
        asker: Proc,
        wanted: Wanted,
    ) -> Result<Option<Answer>, Error> {
        let Wanted { of, key, timeout, immediate, wait } = wanted;
        self.check_may(asker, of.job)?;
        let job = self.jobs.get(&of.job).ok_or(Error::NoSuchProc(of))?;
        let not_found = || Error::NotFound { proc: of, key: key.clone() };
        if let Some(value) = job.map.value(of.rank, &key) {
            return Ok(Some(Answer::Value(value)));
        }
        if key.starts_with(RESERVED) || of.rank == Proc::JOB {
            return Err(not_found());
        }
        let host = job.map.node_of(of.rank).ok_or(Error::NoSuchProc(of))?;
        if let Some(known) = job.cards.get(&of.rank)
            && has(known, &key)
        {
            return Ok(Some(Answer::BusinessCard(known.clone())));
        }
        if host == self.me {
            match self.look(of, 0, &key, wait, host) {
                Some(result) => return result.map(|card| Some(Answer::BusinessCard(card))),
                None if immediate => return Err(not_found()),
                None => {}
            }
            self.wait(client, id, timeout, Waiting::BusinessCard { proc: of, key: key.clone() });
            self.park(client, id, of, key, wait);
            return Ok(None);
        }
        if immediate {
            return Err(not_found());
        }
        if self.members.is_lost(host) {
            let missing = self.procs_on(host, None);
            return Err(Error::NodeLost { node: host, missing });
        }
        self.wait(client, id, timeout, Waiting::BusinessCard { proc: of, key: key.clone() });
        let patience = timeout.unwrap_or(self.config.patience).min(LONGEST) + SLACK;
        self.ask_card(host, (of, key, wait), patience, (client, id));
        Ok(None)
    }

    fn ask_card(
        &mut self,
        host: Node,
        what: (Proc, String, bool),
        patience: Duration,
        waiter: (ClientId, RequestId),
    ) {
        let until = self.now.after(patience);
        if let Some(ask) = self.asks.by_key.get_mut(&what) {
            ask.waiters.push(waiter);
            if ask.until >= until {
                return;
            }
            // The other daemon forgets the older question sooner, and this one answers both.
        }
        let id = self.number();
        let (proc, key, wait) = what.clone();
        let restarts = self.restarts_of(proc);
        let replaced = self.replaced.count();
        let ask = Message::CardAsk { id, proc, restarts, replaced, key, wait, patience };
        self.send(host, ask);
        self.asks.by_id.insert(id, what.clone());
        let ask = self.asks.by_key.entry(what).or_insert(Ask { id, until, waiters: vec![waiter] });
        let older = std::mem::replace(&mut ask.id, id);
        ask.until = until;
        if older != id {
            self.asks.by_id.remove(&older);
        }
    }

    /// A process of another node was started again: what is asked about it is asked of the new one. The answers
    /// that are under way are of the other one.
    pub(super) fn ask_again(&mut self, proc: Proc) {
        let Some(host) = self.node_of(proc).filter(|host| *host != self.me) else { return };
        let asked = self.asks.by_key.iter().filter(|((of, ..), _)| *of == proc);
        let asked: Vec<_> = asked.map(|(what, ask)| (what.clone(), ask.id, ask.until)).collect();
        for (what, older, until) in asked {
            let (id, patience) = (self.number(), until.since(self.now));
            self.asks.by_id.remove(&older);
            self.asks.by_id.insert(id, what.clone());
            if let Some(ask) = self.asks.by_key.get_mut(&what) {
                ask.id = id;
            }
            let ((proc, key, wait), restarts) = (what, self.restarts_of(proc));
            let replaced = self.replaced.count();
            let ask = Message::CardAsk { id, proc, restarts, replaced, key, wait, patience };
            self.send(host, ask);
        }
    }

    /// What a process on `viewer` gets of one of this node; `None`: not yet.
    pub(super) fn look(
        &self,
        proc: Proc,
        restarts: u32,
        key: &str,
        wait: bool,
        viewer: Node,
    ) -> Option<Result<BusinessCard, Error>> {
        let Some(local) = self.local(proc) else { return Some(Err(Error::NoSuchProc(proc))) };
        if self.restarts_of(proc) < restarts {
            // The other node has heard before this one that there will be another process.
            return None;
        }
        let entry = local.card.entries.get(key);
        let shown = entry.is_some_and(|e| e.scope.shows(self.me, viewer));
        // What is there for others will not come for this one.
        let wait = wait && (entry.is_none() || shown);
        if shown || key.is_empty() && local.card.version > 0 {
            return Some(Ok(local.card.seen_from(self.me, viewer)));
        }
        // A miss tells all there is, too; what is not there is found out by who asked.
        if local.card.version > 0 && (!wait || local.gone_for_good().is_some()) {
            return Some(match viewer == self.me {
                true => Err(Error::NotFound { proc, key: key.to_owned() }),
                false => Ok(local.card.seen_from(self.me, viewer)),
            });
        }
        let why = local.gone_for_good().cloned()?;
        let node = self.ran_on(proc).unwrap_or(self.me);
        Some(Err(Error::ProcGone { proc, node, why }))
    }

    pub(super) fn card_answered(&mut self, id: u64, result: Result<BusinessCard, Error>) {
        let Some(what) = self.asks.by_id.remove(&id) else { return };
        let Some(ask) = self.asks.by_key.remove(&what) else { return };
        let (proc, key, _) = what;
        let result = result.and_then(|card| {
            self.keep_card(proc, card);
            let kept = self.jobs.get(&proc.job).and_then(|job| job.cards.get(&proc.rank));
            let found = kept.filter(|card| has(card, &key)).cloned();
            found.ok_or(Error::NotFound { proc, key })
        });
        for (client, id) in ask.waiters {
            self.answer(client, id, result.clone().map(Answer::BusinessCard));
        }
    }

    /// Keeps a card of a process of another node, unless a newer one is here, or it is of one that was replaced.
    pub(super) fn keep_card(&mut self, proc: Proc, card: BusinessCard) {
        let Some(job) = self.jobs.get_mut(&proc.job) else { return };
        if job.map.node_of(proc.rank).is_none_or(|node| node == self.me) {
            return;
        }
        if card.restarts < job.restarts_of(proc.rank) {
            return;
        }
        let kept = job.cards.entry(proc.rank).or_default();
        if (card.restarts, card.version) >= (kept.restarts, kept.version) {
            *kept = card;
            self.out.push_back(Output::CardChanged(proc));
            self.settle_any(proc);
        }
    }

    /// A card as the processes of this node see it, if it is here.
    #[must_use]
    pub fn card_here(&self, proc: Proc) -> Option<BusinessCard> {
        match self.local(proc) {
            Some(local) => (local.card.version > 0).then(|| local.card.seen_from(self.me, self.me)),
            None => self.jobs.get(&proc.job)?.cards.get(&proc.rank).cloned(),
        }
    }

    /// A node is lost: what was asked of it is not answered, nor what it has asked.
    pub(super) fn cards_without(&mut self, node: Node) {
        self.parked_without(node);
        let asked: Vec<_> = self
            .asks
            .by_key
            .keys()
            .filter(|(proc, ..)| self.node_of(*proc) == Some(node))
            .cloned()
            .collect();
        let missing = self.procs_on(node, None);
        for what in asked {
            self.end_ask(&what, &Error::NodeLost { node, missing: missing.clone() });
        }
    }

    fn end_ask(&mut self, what: &(Proc, String, bool), error: &Error) {
        let Some(ask) = self.asks.by_key.remove(what) else { return };
        self.asks.by_id.remove(&ask.id);
        for (client, id) in ask.waiters {
            self.answer(client, id, Err(error.clone()));
        }
    }

    /// What to say of a key that did not come in time.
    pub(super) fn card_late(&mut self, proc: Proc, key: String) -> Error {
        let node = self.node_of(proc).unwrap_or(self.me);
        let state = match self.local(proc) {
            None => format!("{node} has not answered that it committed"),
            Some(local) if local.card.version > 0 => "it committed without it".to_owned(),
            Some(local) if local.connected => "it has not committed anything".to_owned(),
            Some(_) => "it has not connected".to_owned(),
        };
        Error::GetTimeout { proc, node, key, state }
    }

    /// The card of a process of this node, as others see it.
    pub(super) fn card_for_others(&self, proc: Proc) -> Option<BusinessCard> {
        let card = &self.local(proc)?.card;
        let elsewhere = Node(u32::MAX);
        (card.version > 0).then(|| card.seen_from(self.me, elsewhere))
    }

    /// A value that any process of a job has put under a key, of all cards that are here.
    #[must_use]
    pub fn find(&self, job: crate::JobId, key: &str) -> Option<&crate::Value> {
        let job = self.jobs.get(&job)?;
        let own = job.locals.values().map(|local| &local.card);
        own.chain(job.cards.values()).find_map(|card| Some(&card.entries.get(key)?.value))
    }

    /// Drops what a closed connection has waited for.
    pub(super) fn forget_asks(&mut self, client: ClientId) {
        for ask in self.asks.by_key.values_mut() {
            ask.waiters.retain(|(waiter, _)| *waiter != client);
        }
        self.parked_without_client(client);
    }
}

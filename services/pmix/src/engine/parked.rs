//! Questions for cards of processes of this node that have not committed what is wanted: they wait here until it is
//! committed, their process is gone, or who asked has given up.

use super::{
    ClientId, Engine, RequestId, Timer, Waiting,
    cards::{Asked, SLACK},
    requests::{LONGEST, MAX_PENDING, limit},
};
use crate::{
    error::Error,
    message::{Answer, Message},
    names::{JobId, Node, Proc},
    value::{BusinessCard, MAX_KEY},
};
use petasos_fabric::Time;
use std::{collections::BTreeMap, time::Duration};

/// Questions of one other node that wait at a time.
const MAX_PARKED: usize = 1 << 14;
/// Who asked has given up when a question is over: nobody waits for it to be dropped.
const OFTEN: Duration = Duration::from_secs(1);

/// Who waits for a card of this node.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Asker {
    Client(ClientId, RequestId),
    Daemon(Node, u64),
}

#[derive(Debug)]
struct One {
    asker: Asker,
    restarts: u32,
    key: String,
    wait: bool,
    until: Time,
}

/// What waits.
#[derive(Debug, Default)]
pub(super) struct Parked {
    of: BTreeMap<Proc, Vec<One>>,
    /// How many questions of other nodes.
    by: BTreeMap<Node, usize>,
    /// When those that are over are to be dropped, if that is planned.
    look_at: Option<Time>,
    /// Requests of this node for a key of whichever process puts it.
    any: BTreeMap<(ClientId, RequestId), (JobId, String)>,
}

impl Parked {
    fn add(&mut self, proc: Proc, one: One) {
        if let Asker::Daemon(node, _) = one.asker {
            *self.by.entry(node).or_default() += 1;
        }
        self.of.entry(proc).or_default().push(one);
    }

    /// Takes all about a process.
    fn take(&mut self, proc: Proc) -> Vec<One> {
        let taken = self.of.remove(&proc).unwrap_or_default();
        taken.iter().for_each(|one| forget(&mut self.by, one));
        taken
    }

    fn drop_all(&mut self, which: impl Fn(&One) -> bool) {
        let by = &mut self.by;
        self.of.retain(|_, parked| {
            parked.extract_if(.., |one| which(one)).for_each(|one| forget(by, &one));
            !parked.is_empty()
        });
    }
}

fn forget(by: &mut BTreeMap<Node, usize>, one: &One) {
    let Asker::Daemon(node, _) = one.asker else { return };
    if let Some(count) = by.get_mut(&node) {
        *count -= 1;
        if *count == 0 {
            by.remove(&node);
        }
    }
}

impl Engine {
    /// A client wants a key of whichever process of a job has put it, and waits so long for a card that comes here
    /// with it; [`Duration::ZERO`]: not at all. [`Output::Answer`](super::Output::Answer) has the value.
    pub(crate) fn get_any(
        &mut self,
        now: Time,
        (client, id): (ClientId, RequestId),
        job: JobId,
        key: String,
        patience: Duration,
    ) {
        self.advance(now);
        let Some(known) = self.clients.get(&client) else { return };
        let pending = known.pending.len();
        let result = match (self.over.clone(), self.find(job, &key)) {
            (Some(why), _) => Err(Error::Ending(why)),
            _ if known.proc.is_none() => {
                Err(Error::Misuse("the client has not identified itself".into()))
            }
            (None, Some(value)) => Ok(Answer::Value(value.clone())),
            _ if known.pending.contains_key(&id) => {
                Err(Error::Misuse(format!("request {id} is under way already")))
            }
            _ if pending >= MAX_PENDING => Err(limit("requests", pending + 1, MAX_PENDING)),
            _ if key.len() > MAX_KEY => Err(limit("bytes of a key", key.len(), MAX_KEY)),
            _ if patience.is_zero() => {
                Err(Error::NotFound { proc: Proc::new(job, Proc::JOB), key })
            }
            _ => {
                self.wait(client, id, Some(patience), Waiting::Any);
                self.parked.any.insert((client, id), (job, key));
                return;
            }
        };
        self.answer_now(client, id, result);
    }

    /// A card came here, or changed: some may wait for what it has, of whomever.
    pub(super) fn settle_any(&mut self, proc: Proc) {
        if self.parked.any.is_empty() {
            return;
        }
        let card = match self.local(proc) {
            Some(local) => Some(&local.card),
            None => self.jobs.get(&proc.job).and_then(|job| job.cards.get(&proc.rank)),
        };
        let Some(card) = card else { return };
        let found = self.parked.any.iter().filter_map(|(asker, (job, key))| {
            let entry = card.entries.get(key).filter(|_| *job == proc.job)?;
            Some((*asker, entry.value.clone()))
        });
        for (asker, value) in found.collect::<Vec<_>>() {
            self.parked.any.remove(&asker);
            self.answer(asker.0, asker.1, Ok(Answer::Value(value)));
        }
    }

    /// The time of a client is over that waits for a key of whomever.
    pub(super) fn any_late(&mut self, client: ClientId, id: RequestId) -> Option<Error> {
        let (job, key) = self.parked.any.remove(&(client, id))?;
        let (proc, node) = (Proc::new(job, Proc::JOB), self.me);
        let state = "no process has put it, of those that are known here".to_owned();
        Some(Error::GetTimeout { proc, node, key, state })
    }

    /// A client waits. Its end is that of its request.
    pub(super) fn park(
        &mut self,
        client: ClientId,
        id: RequestId,
        proc: Proc,
        key: String,
        wait: bool,
    ) {
        let asker = Asker::Client(client, id);
        self.parked.add(proc, One { asker, restarts: 0, key, wait, until: Time::NEVER });
    }

    /// The request of a client is over.
    pub(super) fn unpark(&mut self, client: ClientId, id: RequestId, proc: Proc) {
        if let Some(parked) = self.parked.of.get_mut(&proc) {
            parked.retain(|one| one.asker != Asker::Client(client, id));
        }
    }

    /// Another daemon asks.
    pub(super) fn card_asked(&mut self, from: Node, id: u64, asked: Asked, patience: Duration) {
        let (asker, Asked { of: proc, restarts, key, wait }) = (Asker::Daemon(from, id), asked);
        if let Some(result) = self.look(proc, restarts, &key, wait, from) {
            return self.tell_card(asker, result);
        }
        if key.len() > MAX_KEY {
            return self.tell_card(asker, Err(limit("bytes of a key", key.len(), MAX_KEY)));
        }
        if self.parked.by.get(&from).is_some_and(|parked| *parked >= MAX_PARKED) {
            let what = "questions of a node for cards that are not there";
            return self.tell_card(asker, Err(limit(what, MAX_PARKED + 1, MAX_PARKED)));
        }
        let until = self.now.after(patience.min(LONGEST + SLACK));
        self.parked.add(proc, One { asker, restarts, key, wait, until });
        self.look_at_parked(until);
    }

    /// Answers those who wait for a card of this node, as far as that is possible by now.
    pub(super) fn settle_parked(&mut self, proc: Proc) {
        for one in self.parked.take(proc) {
            let viewer = match one.asker {
                Asker::Client(..) => self.me,
                Asker::Daemon(node, _) => node,
            };
            match self.look(proc, one.restarts, &one.key, one.wait, viewer) {
                None => self.parked.add(proc, one),
                Some(result) => self.tell_card(one.asker, result),
            }
        }
    }

    fn tell_card(&mut self, asker: Asker, result: Result<BusinessCard, Error>) {
        match asker {
            Asker::Client(client, id) => self.answer(client, id, result.map(Answer::BusinessCard)),
            Asker::Daemon(node, id) => self.send(node, Message::CardAnswer { id, result }),
        }
    }

    fn look_at_parked(&mut self, until: Time) {
        let at = until.max(self.now.after(OFTEN));
        if self.parked.look_at.is_none_or(|sooner| at < sooner) {
            self.parked.look_at = Some(at);
            self.agenda.set(at, Timer::Parked);
        }
    }

    /// Drops questions of daemons whose clients have given up.
    pub(super) fn expire_parked(&mut self) {
        let now = self.now;
        // It was set for later first.
        if self.parked.look_at.is_none_or(|at| now < at) {
            return;
        }
        self.parked.look_at = None;
        self.parked.drop_all(|one| one.until <= now);
        let left = self.parked.of.values().flatten().map(|one| one.until);
        if let Some(next) = left.filter(|until| *until < Time::NEVER).min() {
            self.look_at_parked(next);
        }
    }

    /// A client is gone.
    pub(super) fn parked_without_client(&mut self, client: ClientId) {
        self.parked.drop_all(|one| matches!(one.asker, Asker::Client(of, _) if of == client));
        self.parked.any.retain(|(of, _), _| *of != client);
    }

    /// A node is lost.
    pub(super) fn parked_without(&mut self, node: Node) {
        self.parked.drop_all(|one| matches!(one.asker, Asker::Daemon(of, _) if of == node));
    }
}

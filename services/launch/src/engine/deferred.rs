//! Gets that wait: for a business card of this node whose process has not committed the key, or for
//! a key that any process may put. Each waits until the key is committed, the process has ended, or
//! the asker has given up.

use super::{
    ClientId, Engine, RequestId,
    clients::Waiting,
    limits::{LONGEST, limit},
    modex::{RemoteGet, SLACK},
    requests::MAX_PENDING,
    timers::{Timer, Timers},
};
use crate::message::Message;
use petasos_fabric::Time;
use petasos_pmix::{BusinessCard, Error, JobId, MAX_KEY, Node, Proc, Value, message::Answer};
use std::{collections::BTreeMap, time::Duration};

/// Gets of one other node that wait at a time.
const MAX_DEFERRED: usize = 1 << 14;
/// How long an expired get may stay, at least. Its asker has given up, so it only takes space.
const EXPIRE_INTERVAL: Duration = Duration::from_secs(1);

/// Where the answer goes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Asker {
    Client(ClientId, RequestId),
    Daemon(Node, u64),
}

#[derive(Debug)]
struct Get {
    asker: Asker,
    restarts: u32,
    key: String,
    wait: bool,
    until: Time,
}

#[derive(Debug, Default)]
pub(super) struct DeferredGets {
    of: BTreeMap<Proc, Vec<Get>>,
    /// How many gets of other nodes there are.
    by_node: BTreeMap<Node, usize>,
    /// When expired gets are to be dropped, if that is planned.
    timer: Option<Time>,
    /// Gets of this node for a key of any process.
    any: BTreeMap<(ClientId, RequestId), (JobId, String)>,
}

impl DeferredGets {
    fn add(&mut self, proc: Proc, get: Get) {
        if let Asker::Daemon(node, _) = get.asker {
            *self.by_node.entry(node).or_default() += 1;
        }
        self.of.entry(proc).or_default().push(get);
    }

    /// A client waits. Its get ends with its request.
    pub(super) fn add_local(
        &mut self,
        client: ClientId,
        id: RequestId,
        proc: Proc,
        key: String,
        wait: bool,
    ) {
        let asker = Asker::Client(client, id);
        self.add(proc, Get { asker, restarts: 0, key, wait, until: Time::NEVER });
    }

    /// The request of a client is over.
    pub(super) fn cancel(&mut self, client: ClientId, id: RequestId, proc: Proc) {
        if let Some(gets) = self.of.get_mut(&proc) {
            gets.retain(|get| get.asker != Asker::Client(client, id));
        }
    }

    /// Takes all gets of the business card of a process.
    fn take(&mut self, proc: Proc) -> Vec<Get> {
        let taken = self.of.remove(&proc).unwrap_or_default();
        taken.iter().for_each(|get| uncount(&mut self.by_node, get));
        taken
    }

    /// The gets for a key of any process that this business card answers.
    fn take_any(&mut self, job: JobId, card: &BusinessCard) -> Vec<((ClientId, RequestId), Value)> {
        let mut found = Vec::new();
        self.any.retain(|asker, (of, key)| match card.entries.get(key) {
            Some(entry) if *of == job => {
                found.push((*asker, entry.value.clone()));
                false
            }
            _ => true,
        });
        found
    }

    fn drop_all(&mut self, which: impl Fn(&Get) -> bool) {
        let by_node = &mut self.by_node;
        self.of.retain(|_, gets| {
            gets.extract_if(.., |get| which(get)).for_each(|get| uncount(by_node, &get));
            !gets.is_empty()
        });
    }

    pub(super) fn forget_client(&mut self, client: ClientId) {
        self.drop_all(|get| matches!(get.asker, Asker::Client(of, _) if of == client));
        self.any.retain(|(of, _), _| *of != client);
    }

    pub(super) fn forget_node(&mut self, node: Node) {
        self.drop_all(|get| matches!(get.asker, Asker::Daemon(of, _) if of == node));
    }

    fn set_timer(&mut self, until: Time, timers: &mut Timers<Timer>) {
        let at = until.max(timers.now().after(EXPIRE_INTERVAL));
        if self.timer.is_none_or(|sooner| at < sooner) {
            self.timer = Some(at);
            timers.set(at, Timer::DeferredGets);
        }
    }

    fn expire(&mut self, timers: &mut Timers<Timer>) {
        let now = timers.now();
        // The timer may have been set for later first.
        if self.timer.is_none_or(|at| now < at) {
            return;
        }
        self.timer = None;
        self.drop_all(|get| get.until <= now);
        let left = self.of.values().flatten().map(|get| get.until);
        if let Some(next) = left.filter(|until| *until < Time::NEVER).min() {
            self.set_timer(next, timers);
        }
    }
}

fn uncount(by_node: &mut BTreeMap<Node, usize>, get: &Get) {
    let Asker::Daemon(node, _) = get.asker else { return };
    if let Some(count) = by_node.get_mut(&node) {
        *count -= 1;
        if *count == 0 {
            by_node.remove(&node);
        }
    }
}

impl Engine {
    /// A client wants the value that any process of a job has put under a key. It waits at most
    /// `patience` for a business card with that key to come here; [`Duration::ZERO`]: not at all.
    /// [`Output::Answer`](super::Output::Answer) has the value.
    pub(crate) fn get_any(
        &mut self,
        now: Time,
        (client, id): (ClientId, RequestId),
        job: JobId,
        key: String,
        patience: Duration,
    ) {
        self.advance(now);
        if !self.clients.is_open(client) {
            return;
        }
        let pending = self.clients.pending(client);
        let result = match (self.members.over(), self.find(job, &key)) {
            (Some(why), _) => Err(Error::Ending(why.to_owned())),
            _ if self.clients.proc_of(client).is_none() => {
                Err(Error::Misuse("the client has not identified itself".into()))
            }
            (None, Some(value)) => Ok(Answer::Value(value.clone())),
            _ if self.clients.waiting(client, id).is_some() => {
                Err(Error::Misuse(format!("request {id} is under way already")))
            }
            _ if pending >= MAX_PENDING => Err(limit("requests", pending + 1, MAX_PENDING)),
            _ if key.len() > MAX_KEY => Err(limit("bytes of a key", key.len(), MAX_KEY)),
            _ if patience.is_zero() => {
                Err(Error::NotFound { proc: Proc::new(job, Proc::JOB), key })
            }
            _ => {
                self.wait(client, id, Some(patience), Waiting::AnyCard);
                self.deferred.any.insert((client, id), (job, key));
                return;
            }
        };
        self.out.answer(client, id, result);
    }

    /// A business card came here, or changed: answers the gets of any process that it has the key
    /// for.
    pub(super) fn settle_any(&mut self, proc: Proc) {
        if self.deferred.any.is_empty() {
            return;
        }
        let Some(card) = self.jobs.card(proc) else { return };
        for ((client, id), value) in self.deferred.take_any(proc.job, card) {
            self.answer(client, id, Ok(Answer::Value(value)));
        }
    }

    /// The time of a get for a key of any process is over.
    pub(super) fn any_card_late(&mut self, client: ClientId, id: RequestId) -> Option<Error> {
        let (job, key) = self.deferred.any.remove(&(client, id))?;
        let (proc, node) = (Proc::new(job, Proc::JOB), self.me);
        let state = "no process has put it, of those that are known here".to_owned();
        Some(Error::GetTimeout { proc, node, key, state })
    }

    /// Another daemon asks for a business card of this node.
    pub(super) fn card_asked(&mut self, from: Node, id: u64, get: RemoteGet, patience: Duration) {
        let (asker, RemoteGet { of: proc, restarts, key, wait }) = (Asker::Daemon(from, id), get);
        if let Some(result) = self.view_card(proc, restarts, &key, wait, from) {
            return self.send_card(asker, result);
        }
        if key.len() > MAX_KEY {
            return self.send_card(asker, Err(limit("bytes of a key", key.len(), MAX_KEY)));
        }
        if self.deferred.by_node.get(&from).is_some_and(|count| *count >= MAX_DEFERRED) {
            let what = "questions of a node for business cards that are not there";
            return self.send_card(asker, Err(limit(what, MAX_DEFERRED + 1, MAX_DEFERRED)));
        }
        let until = self.now().after(patience.min(LONGEST + SLACK));
        self.deferred.add(proc, Get { asker, restarts, key, wait, until });
        self.deferred.set_timer(until, &mut self.timers);
    }

    /// Answers the gets of a business card of this node, as far as that is possible by now.
    pub(super) fn settle_deferred(&mut self, proc: Proc) {
        for get in self.deferred.take(proc) {
            let viewer = match get.asker {
                Asker::Client(..) => self.me,
                Asker::Daemon(node, _) => node,
            };
            match self.view_card(proc, get.restarts, &get.key, get.wait, viewer) {
                None => self.deferred.add(proc, get),
                Some(result) => self.send_card(get.asker, result),
            }
        }
    }

    fn send_card(&mut self, asker: Asker, result: Result<BusinessCard, Error>) {
        match asker {
            Asker::Client(client, id) => self.answer(client, id, result.map(Answer::BusinessCard)),
            Asker::Daemon(node, id) => self.send(node, Message::BusinessCardAnswer { id, result }),
        }
    }

    pub(super) fn expire_deferred(&mut self) {
        self.deferred.expire(&mut self.timers);
    }
}

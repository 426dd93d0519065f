//! What clients ask: checked here, done elsewhere, answered exactly once.

use super::{Client, ClientId, Engine, Output, RequestId, Timer, Waiting, cards};
use crate::{
    error::Error,
    message::{Answer, ControllerRequest, Request},
    names::{JobId, Proc},
    status,
    value::{MAX_KEY, MAX_VALUE, RESERVED, Value},
};
use std::{collections::BTreeMap, time::Duration};

/// Requests that one client may have open.
pub(super) const MAX_PENDING: usize = 4096;
/// Keys in one request, and handlers of one client.
const MAX_KEYS: usize = 4096;
/// Bytes of what is said about an event, names and values together: many are kept.
const MAX_EVENT: usize = 64 << 10;
/// Nobody waits longer than a year.
pub(super) const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

impl Engine {
    /// A client opened a connection; who it is, it says with its first request.
    pub fn client_opened(&mut self, client: ClientId) {
        let (pending, handlers) = (BTreeMap::new(), BTreeMap::new());
        let new = Client { proc: None, pending, handlers, returns: false, again: false };
        self.clients.insert(client, new);
    }

    /// A client asks. One [`Output::Answer`] follows, unless its connection is closed before.
    pub fn request(
        &mut self,
        now: petasos_fabric::Time,
        client: ClientId,
        id: RequestId,
        what: Request,
    ) {
        self.advance(now);
        let Some(known) = self.clients.get(&client) else { return };
        if known.pending.contains_key(&id) {
            let error = Error::Misuse(format!("request {id} is under way already"));
            return self.out.push_back(Output::Answer { client, id, result: Err(error) });
        }
        let pending = known.pending.len();
        let result = match self.over.clone() {
            Some(why) => Err(Error::Ending(why)),
            None if pending >= MAX_PENDING => Err(limit("requests", pending + 1, MAX_PENDING)),
            None => self.dispatch(client, id, known.proc, what),
        };
        match result {
            // It is answered later.
            Ok(None) => {}
            Ok(Some(answer)) => self.answer_now(client, id, Ok(answer)),
            Err(error) => self.answer_now(client, id, Err(error)),
        }
    }

    fn dispatch(
        &mut self,
        client: ClientId,
        id: RequestId,
        proc: Option<Proc>,
        what: Request,
    ) -> Result<Option<Answer>, Error> {
        let proc = match (&what, proc) {
            (Request::Connect(proc), None) => return self.connect(client, *proc).map(Some),
            (Request::ConnectTool, None) => return self.connect_tool(client).map(Some),
            (Request::Connect(of), Some(proc)) if *of == proc && self.again(client) => {
                return self.connect(client, proc).map(Some);
            }
            (Request::Connect(_) | Request::ConnectTool, Some(proc)) => {
                return Err(Error::Misuse(format!("this client is connected as {proc}")));
            }
            (_, None) => return Err(Error::Misuse("the client has not identified itself".into())),
            (_, Some(proc)) => proc,
        };
        let done = Ok(Some(Answer::Done));
        match what {
            Request::Connect(_) | Request::ConnectTool => done,
            Request::Commit(entries) => {
                for (key, entry) in &entries {
                    check_entry(key, &entry.value)?;
                }
                self.commit(proc, entries)?;
                done
            }
            Request::Fence { group, collect, timeout } => {
                self.fence(client, id, proc, group, collect, timeout)
            }
            Request::Get { proc: of, key, timeout, immediate, wait } => {
                self.get(client, id, proc, cards::Wanted { of, key, timeout, immediate, wait })
            }
            Request::Publish(published) => {
                check_entry(&published.key, &published.value)?;
                self.known_at_head(proc);
                self.ask_head(client, id, proc, ControllerRequest::Publish(published), None)
            }
            Request::Lookup { keys, wait, least, within } => {
                check_keys(&keys)?;
                if wait.is_some() {
                    self.known_at_head(proc);
                }
                let what = ControllerRequest::Lookup { keys, wait, least, within };
                self.ask_head(client, id, proc, what, wait)
            }
            Request::Unpublish(keys) => {
                check_keys(&keys)?;
                self.ask_head(client, id, proc, ControllerRequest::Unpublish(keys), None)
            }
            Request::Query(keys) => {
                check_keys(&keys)?;
                self.ask_head(client, id, proc, ControllerRequest::Query(keys), None)
            }
            Request::Register { handler, codes } => {
                if codes.len() > MAX_KEYS {
                    return Err(limit("codes of a handler", codes.len(), MAX_KEYS));
                }
                self.register(client, id, handler, codes)
            }
            Request::Deregister(handler) => self.deregister(client, handler).map(Some),
            Request::Notify { code, range, non_default, info } => {
                if code == status::SUCCESS {
                    return Err(Error::Misuse("0 is the code of success, and no event's".into()));
                }
                let size = info.iter().map(|(key, value)| key.len() + value.size()).sum();
                if size > MAX_EVENT {
                    return Err(limit("bytes of an event", size, MAX_EVENT));
                }
                Ok(Some(self.notify(proc, code, range, non_default, info)))
            }
            Request::Abort { status, message } => {
                self.ask_head(client, id, proc, ControllerRequest::Abort { status, message }, None)
            }
            Request::Finalize => {
                self.finalize(client, proc);
                done
            }
            Request::Watch(every) => {
                self.watch_progress(proc, every);
                done
            }
            Request::Progress => {
                self.progressed(proc);
                done
            }
            Request::Restart { proc: of, after } => self.restart(client, id, proc, of, after),
            Request::Replace(node) => self.replace(client, id, proc, node),
            Request::Signal { group, signal } => self.signal(client, id, proc, group, signal),
        }
    }

    /// The head keeps something of this process from now on.
    fn known_at_head(&mut self, proc: Proc) {
        if let Some(local) = self.local_mut(proc) {
            local.known_at_head = true;
        }
    }

    /// Notes what a request waits for, and until when.
    pub(super) fn wait(
        &mut self,
        client: ClientId,
        id: RequestId,
        timeout: Option<Duration>,
        what: Waiting,
    ) {
        let until = self.now.after(timeout.unwrap_or(self.config.patience).min(LONGEST));
        if let Some(known) = self.clients.get_mut(&client) {
            known.pending.insert(id, what);
            self.agenda.set(until, Timer::Request(client, id));
        }
    }

    /// Answers a request that was waiting; nothing happens if it no longer is.
    pub(super) fn answer(
        &mut self,
        client: ClientId,
        id: RequestId,
        result: Result<Answer, Error>,
    ) {
        let waiting = self.clients.get_mut(&client).and_then(|known| known.pending.remove(&id));
        if waiting.is_some() {
            self.answer_now(client, id, result);
        }
    }

    pub(super) fn answer_now(
        &mut self,
        client: ClientId,
        id: RequestId,
        result: Result<Answer, Error>,
    ) {
        self.out.push_back(Output::Answer { client, id, result });
    }

    /// Ends all that a client waits for.
    pub(super) fn refuse_all(&mut self, client: ClientId, error: &Error) {
        self.parked_without_client(client);
        let Some(known) = self.clients.get_mut(&client) else { return };
        for id in std::mem::take(&mut known.pending).into_keys() {
            self.answer_now(client, id, Err(error.clone()));
        }
    }

    /// The time of a request is over.
    pub(super) fn request_late(&mut self, client: ClientId, id: RequestId) {
        let known = self.clients.get(&client);
        let Some(waiting) = known.and_then(|known| known.pending.get(&id)).cloned() else { return };
        match waiting {
            Waiting::Fence { group, nth, late } => self.fence_late(client, id, group, nth, late),
            Waiting::BusinessCard { proc, key } => {
                // Others may wait on.
                self.unpark(client, id, proc);
                let error = self.card_late(proc, key);
                self.answer(client, id, Err(error));
            }
            Waiting::Any => {
                if let Some(error) = self.any_late(client, id) {
                    self.answer(client, id, Err(error));
                }
            }
            Waiting::Head { ask, what } => {
                self.head_asks.remove(&ask);
                let (node, what) = (crate::names::Node::HEAD, what.to_owned());
                self.answer(client, id, Err(Error::Silent { node, what }));
            }
        }
    }

    /// Whether a process may see what belongs to a job.
    pub(super) fn check_may(&self, asker: Proc, job: JobId) -> Result<(), Error> {
        if asker.job == job || asker.job == JobId::TOOLS {
            Ok(())
        } else {
            Err(Error::NotPermitted { asker, job })
        }
    }
}

pub(super) fn limit(what: &str, asked: usize, limit: usize) -> Error {
    Error::Limit { what: what.to_owned(), asked: asked as u64, limit: limit as u64 }
}

pub(super) fn check_keys(keys: &[String]) -> Result<(), Error> {
    if keys.is_empty() {
        return Err(Error::Misuse("no key is named".to_owned()));
    }
    if keys.len() > MAX_KEYS {
        return Err(limit("keys in one request", keys.len(), MAX_KEYS));
    }
    if let Some(key) = keys.iter().find(|key| key.len() > MAX_KEY) {
        return Err(limit("bytes of a key", key.len(), MAX_KEY));
    }
    Ok(())
}

pub(super) fn check_entry(key: &str, value: &Value) -> Result<(), Error> {
    if key.is_empty() || key.starts_with(RESERVED) {
        let why = format!("`{key}` cannot be put: it is empty, or begins with `{RESERVED}`");
        return Err(Error::Misuse(why));
    }
    if key.len() > MAX_KEY {
        return Err(limit("bytes of a key", key.len(), MAX_KEY));
    }
    if value.size() > MAX_VALUE {
        return Err(limit("bytes of a value", value.size(), MAX_VALUE));
    }
    Ok(())
}

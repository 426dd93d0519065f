//! The requests of clients: each is checked here and answered exactly once.

use super::{ClientId, Engine, RequestId, clients::Waiting, modex, timers::Timer};
use crate::message::ControllerRequest;
use petasos_pmix::{
    Error, JobId, MAX_KEY, MAX_VALUE, Node, Proc, RESERVED, Value,
    message::{Answer, Request},
    status,
};
use std::time::Duration;

/// Requests that one client may have open.
pub(super) const MAX_PENDING: usize = 4096;
/// Keys in one request, and handlers of one client.
const MAX_KEYS: usize = 4096;
/// Bytes of the information of an event, names and values together: many events are kept.
const MAX_EVENT: usize = 64 << 10;
/// No request waits longer than a year.
pub(super) const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

impl Engine {
    /// A client opened a connection. Its first request says which process it is.
    pub fn client_opened(&mut self, client: ClientId) {
        self.clients.open(client);
    }

    /// A client sends a request. One [`Output::Answer`](super::Output::Answer) follows, unless the
    /// connection is closed before.
    pub fn request(
        &mut self,
        now: petasos_fabric::Time,
        client: ClientId,
        id: RequestId,
        what: Request,
    ) {
        self.advance(now);
        if !self.clients.is_open(client) {
            return;
        }
        if self.clients.waiting(client, id).is_some() {
            let error = Error::Misuse(format!("request {id} is under way already"));
            return self.out.answer(client, id, Err(error));
        }
        let pending = self.clients.pending(client);
        let result = match self.members.over() {
            Some(why) => Err(Error::Ending(why.to_owned())),
            None if pending >= MAX_PENDING => Err(limit("requests", pending + 1, MAX_PENDING)),
            None => self.dispatch(client, id, self.clients.proc_of(client), what),
        };
        match result {
            // It is answered later.
            Ok(None) => {}
            Ok(Some(answer)) => self.out.answer(client, id, Ok(answer)),
            Err(error) => self.out.answer(client, id, Err(error)),
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
            (Request::Connect(of), Some(proc)) if *of == proc && self.clients.is_again(client) => {
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
                self.get(client, id, proc, modex::Get { of, key, timeout, immediate, wait })
            }
            Request::Publish(published) => {
                check_entry(&published.key, &published.value)?;
                self.known_to_controller(proc);
                self.ask_controller(client, id, proc, ControllerRequest::Publish(published), None)
            }
            Request::Lookup { keys, wait, least, within } => {
                check_keys(&keys)?;
                if wait.is_some() {
                    self.known_to_controller(proc);
                }
                let what = ControllerRequest::Lookup { keys, wait, least, within };
                self.ask_controller(client, id, proc, what, wait)
            }
            Request::Unpublish(keys) => {
                check_keys(&keys)?;
                self.ask_controller(client, id, proc, ControllerRequest::Unpublish(keys), None)
            }
            Request::Query(keys) => {
                check_keys(&keys)?;
                self.ask_controller(client, id, proc, ControllerRequest::Query(keys), None)
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
            Request::Abort { status, message } => self.ask_controller(
                client,
                id,
                proc,
                ControllerRequest::Abort { status, message },
                None,
            ),
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

    /// The controller keeps something of this process from now on.
    fn known_to_controller(&mut self, proc: Proc) {
        if let Some(local) = self.jobs.local_mut(proc) {
            local.set_known_to_controller();
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
        let timeout = timeout.unwrap_or(self.config.patience).min(LONGEST);
        if self.clients.wait(client, id, what) {
            self.timers.set_after(timeout, Timer::Request(client, id));
        }
    }

    /// Answers a request that was waiting; nothing happens if it no longer is.
    pub(super) fn answer(
        &mut self,
        client: ClientId,
        id: RequestId,
        result: Result<Answer, Error>,
    ) {
        if self.clients.finish(client, id) {
            self.out.answer(client, id, result);
        }
    }

    /// Ends all requests of a client.
    pub(super) fn refuse_all(&mut self, client: ClientId, error: &Error) {
        self.deferred.forget_client(client);
        for id in self.clients.finish_all(client) {
            self.out.answer(client, id, Err(error.clone()));
        }
    }

    /// The time of a request is over.
    pub(super) fn request_late(&mut self, client: ClientId, id: RequestId) {
        let Some(waiting) = self.clients.waiting(client, id).cloned() else { return };
        match waiting {
            Waiting::Fence { group, nth, late } => self.fence_late(client, id, group, nth, late),
            Waiting::BusinessCard { proc, key } => {
                // Other requests for it may go on waiting.
                self.deferred.cancel(client, id, proc);
                let error = self.card_late(proc, key);
                self.answer(client, id, Err(error));
            }
            Waiting::AnyCard => {
                if let Some(error) = self.any_card_late(client, id) {
                    self.answer(client, id, Err(error));
                }
            }
            Waiting::Controller { question, what } => {
                self.clients.take_question(question);
                let (node, what) = (Node::HEAD, what.to_owned());
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

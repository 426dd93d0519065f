//! The connections of clients: which process each is, what it waits for, and its event handlers.

use super::{ClientId, RequestId, requests::limit};
use petasos_pmix::{
    Error, Group, Proc,
    event::{Event, takes},
};
use std::collections::BTreeMap;

/// Handlers of one client.
const MAX_HANDLERS: usize = 1024;

/// What a pending request waits for.
#[derive(Clone, Debug)]
pub(super) enum Waiting {
    Fence {
        group: Group,
        nth: u64,
        late: bool,
    },
    BusinessCard {
        proc: Proc,
        key: String,
    },
    /// A key that any process may put.
    AnyCard,
    Controller {
        question: u64,
        what: &'static str,
    },
}

#[derive(Debug, Default)]
struct Client {
    proc: Option<Proc>,
    pending: BTreeMap<RequestId, Waiting>,
    /// Its event handlers, by its own numbers for them.
    handlers: BTreeMap<u64, Vec<i32>>,
    /// It is of a library that finalizes and begins again: see [`super::Engine::may_return`].
    returns: bool,
    /// It is of the process that has been its rank before: see [`super::Engine::is_again`].
    again: bool,
}

#[derive(Debug, Default)]
pub(super) struct Clients {
    all: BTreeMap<ClientId, Client>,
    /// Questions to the controller under way, by their numbers.
    questions: BTreeMap<u64, (ClientId, RequestId)>,
}

impl Clients {
    pub(super) fn open(&mut self, client: ClientId) {
        self.all.insert(client, Client::default());
    }

    /// Forgets a client and its questions to the controller. Gives the process that it was and the
    /// codes of its handlers.
    pub(super) fn close(&mut self, client: ClientId) -> Option<(Option<Proc>, Vec<Vec<i32>>)> {
        let known = self.all.remove(&client)?;
        self.questions.retain(|_, (waiting, _)| *waiting != client);
        Some((known.proc, known.handlers.into_values().collect()))
    }

    pub(super) fn is_open(&self, client: ClientId) -> bool {
        self.all.contains_key(&client)
    }

    pub(super) fn ids(&self) -> Vec<ClientId> {
        self.all.keys().copied().collect()
    }

    pub(super) fn proc_of(&self, client: ClientId) -> Option<Proc> {
        self.all.get(&client)?.proc
    }

    pub(super) fn identify(&mut self, client: ClientId, proc: Proc) {
        if let Some(known) = self.all.get_mut(&client) {
            known.proc = Some(proc);
        }
    }

    pub(super) fn set_returns(&mut self, client: ClientId) {
        if let Some(known) = self.all.get_mut(&client) {
            known.returns = true;
        }
    }

    pub(super) fn returns(&self, client: ClientId) -> bool {
        self.all.get(&client).is_some_and(|known| known.returns)
    }

    pub(super) fn set_again(&mut self, client: ClientId, again: bool) {
        if let Some(known) = self.all.get_mut(&client) {
            known.again = again;
        }
    }

    pub(super) fn is_again(&self, client: ClientId) -> bool {
        self.all.get(&client).is_some_and(|known| known.again)
    }

    /// How many requests of a client are pending.
    pub(super) fn pending(&self, client: ClientId) -> usize {
        self.all.get(&client).map_or(0, |known| known.pending.len())
    }

    pub(super) fn waiting(&self, client: ClientId, id: RequestId) -> Option<&Waiting> {
        self.all.get(&client)?.pending.get(&id)
    }

    /// Notes what a request waits for. False: the connection is closed.
    pub(super) fn wait(&mut self, client: ClientId, id: RequestId, what: Waiting) -> bool {
        let Some(known) = self.all.get_mut(&client) else { return false };
        known.pending.insert(id, what);
        true
    }

    /// Ends the wait of a request. False: it was not pending.
    pub(super) fn finish(&mut self, client: ClientId, id: RequestId) -> bool {
        self.all.get_mut(&client).is_some_and(|known| known.pending.remove(&id).is_some())
    }

    /// Ends the wait of all requests of a client.
    pub(super) fn finish_all(&mut self, client: ClientId) -> Vec<RequestId> {
        let known = self.all.get_mut(&client);
        let pending = known.map(|known| std::mem::take(&mut known.pending));
        pending.into_iter().flat_map(BTreeMap::into_keys).collect()
    }

    /// A request became a question to the controller.
    pub(super) fn ask(&mut self, question: u64, client: ClientId, id: RequestId) {
        self.questions.insert(question, (client, id));
    }

    /// A question to the controller is over. Gives the request that it came from.
    pub(super) fn take_question(&mut self, question: u64) -> Option<(ClientId, RequestId)> {
        self.questions.remove(&question)
    }

    pub(super) fn add_handler(
        &mut self,
        client: ClientId,
        handler: u64,
        codes: Vec<i32>,
    ) -> Result<(), Error> {
        let Some(known) = self.all.get_mut(&client) else { return Ok(()) };
        if known.handlers.contains_key(&handler) {
            return Err(Error::Registration(format!("{handler} is registered already")));
        }
        if known.handlers.len() >= MAX_HANDLERS {
            return Err(limit("event handlers", MAX_HANDLERS + 1, MAX_HANDLERS));
        }
        known.handlers.insert(handler, codes);
        Ok(())
    }

    /// Gives the codes of the handler.
    pub(super) fn remove_handler(&mut self, client: ClientId, handler: u64) -> Option<Vec<i32>> {
        self.all.get_mut(&client)?.handlers.remove(&handler)
    }

    /// The clients that have a handler for an event, of the processes that it is for.
    pub(super) fn handling(&self, event: &Event, is_for: impl Fn(Proc) -> bool) -> Vec<ClientId> {
        let all = self.all.iter().filter(|(_, client)| {
            client.proc.is_some_and(&is_for)
                && client.handlers.values().any(|codes| takes(codes, event))
        });
        all.map(|(id, _)| *id).collect()
    }

    /// The connections of a process.
    pub(super) fn of(&self, proc: Proc) -> Vec<ClientId> {
        let all = self.all.iter().filter(|(_, known)| known.proc == Some(proc));
        all.map(|(client, _)| *client).collect()
    }

    /// A client's process was replaced by another: the client is no process any more, and has no
    /// handlers. Gives their codes.
    pub(super) fn disown(&mut self, client: ClientId) -> Vec<Vec<i32>> {
        let Some(known) = self.all.get_mut(&client) else { return Vec::new() };
        known.proc = None;
        std::mem::take(&mut known.handlers).into_values().collect()
    }
}

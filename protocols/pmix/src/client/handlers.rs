//! The event handlers of a program, which a thread of their own calls one after the other.

use super::{connection::Item, lock, server::Server};
use crate::{
    Info, Node, Proc,
    chain::{Handlers, Registration, Returned},
    event::Event,
    status,
};
use petasos_fabric::Clock;
use std::{
    collections::HashMap,
    io,
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
};

/// What an event handler returns.
///
/// ```
/// use petasos_pmix::{Reply, status};
///
/// assert_eq!(Reply::seen().status, status::SUCCESS);
/// assert_eq!(Reply::complete().status, status::ACTION_COMPLETE);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// A status: [`status::SUCCESS`], or [`status::ACTION_COMPLETE`] to end the chain.
    pub status: i32,
    /// Results, for the handlers that come after.
    pub info: Info,
}

impl Reply {
    /// The handler saw the event; the chain goes on.
    #[must_use]
    pub fn seen() -> Reply {
        Reply { status: status::SUCCESS, info: Vec::new() }
    }

    /// The handler dealt with the event; the chain ends.
    #[must_use]
    pub fn complete() -> Reply {
        Reply { status: status::ACTION_COMPLETE, info: Vec::new() }
    }
}

type Callback = Arc<Mutex<dyn FnMut(&Event, &[Returned]) -> Reply + Send>>;

/// The handlers, and the thread that runs them.
pub(super) struct Running {
    state: Arc<Mutex<State>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    clock: Clock,
}

struct State {
    handlers: Handlers,
    callbacks: HashMap<u64, Callback>,
}

impl Running {
    pub(super) fn new(me: Proc, node: Node) -> Running {
        let state = State { handlers: Handlers::new(me, node), callbacks: HashMap::new() };
        Running {
            state: Arc::new(Mutex::new(state)),
            thread: Mutex::new(None),
            clock: Clock::start(),
        }
    }

    /// Adds a handler, which is called once its registration is complete.
    pub(super) fn add(
        &self,
        with: Registration,
        callback: impl FnMut(&Event, &[Returned]) -> Reply + Send + 'static,
        server: &Arc<Server>,
    ) -> Result<u64, super::JobError> {
        let mut thread = lock(&self.thread);
        if thread.is_none() {
            let (server, state, clock) = (server.clone(), self.state.clone(), self.clock);
            let run = move || {
                while let Some(item) = server.next_item() {
                    take(&state, item, clock);
                }
            };
            let started: io::Result<_> =
                thread::Builder::new().name("petasos-events".to_owned()).spawn(run);
            *thread = Some(started.map_err(|e| super::JobError::Io("a thread".into(), e))?);
        }
        let mut state = lock(&self.state);
        let id = state.handlers.add(with).map_err(super::JobError::Refused)?;
        state.callbacks.insert(id, Arc::new(Mutex::new(callback)));
        Ok(id)
    }

    pub(super) fn remove(&self, id: u64) -> Result<(), crate::Error> {
        let mut state = lock(&self.state);
        state.callbacks.remove(&id);
        state.handlers.remove(id)
    }

    /// This process raised an event: its own handlers run, too.
    pub(super) fn own(&self, event: Event, server: &Server) {
        match *lock(&self.thread) {
            Some(_) => server.queue_item(Item::Own(event)),
            None => lock(&self.state).handlers.keep(&event, self.clock.now()),
        }
    }

    /// Waits for the thread, once the connection is closed.
    pub(super) fn join(&self) {
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread.filter(|t| t.thread().id() != thread::current().id()) {
            let _ = thread.join();
        }
    }
}

fn take(state: &Mutex<State>, item: Item, clock: Clock) {
    match item {
        Item::Active(id) => {
            let missed = lock(state).handlers.activate(id, clock.now());
            missed.into_iter().for_each(|event| run(state, event, Some(id)));
        }
        Item::Event { event, only } => run(state, event, only),
        Item::Own(event) => {
            lock(state).handlers.keep(&event, clock.now());
            run(state, event, None);
        }
    }
}

fn run(state: &Mutex<State>, event: Event, only: Option<u64>) {
    let mut run = lock(state).handlers.gather(event, only);
    loop {
        // No lock is held while a handler runs: it may register others, and send requests.
        let (id, name, callback) = {
            let mut state = lock(state);
            let Some((id, name)) = state.handlers.next(&mut run) else { return };
            let callback = match state.handlers.has(id) {
                true => state.callbacks.get(&id).cloned(),
                false => state.callbacks.remove(&id),
            };
            (id, name, callback)
        };
        let Some(callback) = callback else { continue };
        let Reply { status, info } = (lock(&*callback))(&run.event, &run.returned);
        run.completed(Returned { id, name, status, info });
    }
}

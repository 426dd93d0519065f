//! What an engine serves: its handlers, and the calls in progress.

use crate::{
    Context, Handler, Method, ServeError,
    registry::{Provider, Registry},
};
use futures_util::future::AbortHandle;
use petasos_fabric::Peer;
use petasos_wire::rpc::{CallId, Request, Status};
use slab::Slab;
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
    time::Instant,
};

/// What it takes to answer a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) peer: Peer,
    pub(crate) call: CallId,
    pub(crate) one_way: bool,
    pub(crate) checked: bool,
    pub(crate) method: &'static str,
    /// When its request came, if latencies are measured.
    pub(crate) started: Option<Instant>,
}

impl Answer {
    /// To this request for a method of this name.
    #[inline]
    pub(crate) fn new(peer: Peer, request: &Request, method: &'static str) -> Answer {
        let Request { call, one_way, checked, .. } = *request;
        Answer { peer, call, one_way, checked, method, started: None }
    }
}

/// The handlers, and the calls in progress. Nothing of it is borrowed while user code runs.
#[derive(Default)]
pub(crate) struct Served {
    registry: RefCell<Registry>,
    calls: RefCell<InProgress>,
    /// How many they are: read with each request.
    count: Cell<usize>,
    /// A handler is polled for the first time right now: it is at work, though its call is not in
    /// the table yet.
    in_handler: Cell<bool>,
}

/// The calls in progress.
#[derive(Default)]
struct InProgress {
    running: Slab<Running>,
    by_call: HashMap<(Peer, u32), usize>,
    serial: u64,
}

/// A call in progress whose handler waits for something.
pub(crate) struct Running {
    serial: u64,
    pub(crate) answer: Answer,
    abort: AbortHandle,
    context: Option<Context>,
}

impl Running {
    /// Marks the context as cancelled, and has the handler's future dropped.
    pub(crate) fn stop(&self) {
        if let Some(context) = &self.context {
            context.cancel();
        }
        self.abort.abort();
    }
}

/// Names a call in progress.
#[derive(Clone, Copy)]
pub(crate) struct Ticket {
    pub(crate) slot: u32,
    pub(crate) serial: u64,
}

/// An answer that is an error.
pub(crate) struct Refusal {
    pub(crate) status: Status,
    pub(crate) body: Vec<u8>,
}

impl Refusal {
    pub(crate) fn plain(status: Status) -> Refusal {
        Refusal { status, body: Vec::new() }
    }
}

impl Served {
    // Handlers.

    /// Serves a method. False if it is served under this provider already, or if another method has
    /// the same id.
    pub(crate) fn add(&self, id: u16, method: Method, handler: Box<dyn Handler>) -> bool {
        self.registry.borrow_mut().add(Rc::new(Provider { id, method, handler }))
    }

    pub(crate) fn remove(&self, method: Method, provider: u16) {
        self.registry.borrow_mut().remove(method, provider);
    }

    /// Whether these methods can be added.
    pub(crate) fn check_free(&self, methods: &[Method], provider: u16) -> Result<(), ServeError> {
        let registry = self.registry.borrow();
        match methods.iter().find(|method| !registry.is_free(method, provider)) {
            Some(method) => Err(ServeError { method: method.name, provider }),
            None => Ok(()),
        }
    }

    /// The provider that serves a request.
    #[inline]
    pub(crate) fn find(&self, request: &Request) -> Option<Rc<Provider>> {
        self.registry.borrow_mut().find(request)
    }

    /// Why a request is not served.
    #[cold]
    pub(crate) fn refusal(&self, request: &Request) -> Refusal {
        match self.registry.borrow().signature(request.method) {
            None => Refusal::plain(Status::NoMethod),
            Some(ours) if ours != request.signature => {
                Refusal { status: Status::Signature, body: ours.to_le_bytes().to_vec() }
            }
            Some(_) => Refusal::plain(Status::NoProvider),
        }
    }

    // The handler that is polled for the first time.

    #[inline(always)]
    pub(crate) fn enter_handler(&self) {
        self.in_handler.set(true);
    }

    /// The handler has returned, or its call is answered. False if that was so before.
    #[inline(always)]
    pub(crate) fn leave_handler(&self) -> bool {
        self.in_handler.replace(false)
    }

    #[inline(always)]
    pub(crate) fn is_in_handler(&self) -> bool {
        self.in_handler.get()
    }

    // Calls in progress.

    /// How many calls are in progress, but for the one whose handler is polled for the first time.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.count.get()
    }

    pub(crate) fn is_running(&self, slot: u32, serial: u64) -> bool {
        self.calls.borrow().is_running(slot, serial)
    }

    /// Notes a call in progress.
    pub(crate) fn begin(
        &self,
        answer: Answer,
        abort: AbortHandle,
        context: Option<Context>,
    ) -> Ticket {
        let mut calls = self.calls.borrow_mut();
        calls.serial += 1;
        let serial = calls.serial;
        let slot = calls.running.insert(Running { serial, answer, abort, context });
        self.count.set(calls.running.len());
        if !answer.one_way {
            calls.by_call.insert((answer.peer, answer.call.slot), slot);
        }
        Ticket { slot: slot as u32, serial }
    }

    /// Ends a call in progress.
    pub(crate) fn end(&self, ticket: Ticket) -> Option<Running> {
        let mut calls = self.calls.borrow_mut();
        let running = calls.end(ticket);
        self.count.set(calls.running.len());
        running
    }

    /// The call in progress to which the caller gave this id.
    pub(crate) fn named(&self, peer: Peer, call: CallId) -> Option<Ticket> {
        let calls = self.calls.borrow();
        let slot = *calls.by_call.get(&(peer, call.slot))?;
        let running = &calls.running[slot];
        let serial = running.serial;
        (running.answer.call == call).then_some(Ticket { slot: slot as u32, serial })
    }

    /// Ends all calls of one peer.
    pub(crate) fn end_all(&self, peer: Peer) -> Vec<Running> {
        let mut calls = self.calls.borrow_mut();
        let of = |(slot, running): (usize, &Running)| {
            let ticket = Ticket { slot: slot as u32, serial: running.serial };
            (running.answer.peer == peer).then_some(ticket)
        };
        let tickets: Vec<Ticket> = calls.running.iter().filter_map(of).collect();
        let ended = tickets.into_iter().filter_map(|ticket| calls.end(ticket)).collect();
        self.count.set(calls.running.len());
        ended
    }

    /// Drops all handlers, and forgets the calls in progress.
    pub(crate) fn clear(&self) {
        let (registry, calls) = (self.registry.take(), self.calls.take());
        self.count.set(0);
        drop((registry, calls));
    }
}

impl InProgress {
    fn is_running(&self, slot: u32, serial: u64) -> bool {
        self.running.get(slot as usize).is_some_and(|running| running.serial == serial)
    }

    fn end(&mut self, ticket: Ticket) -> Option<Running> {
        if !self.is_running(ticket.slot, ticket.serial) {
            return None;
        }
        let running = self.running.remove(ticket.slot as usize);
        self.by_call.remove(&(running.answer.peer, running.answer.call.slot));
        Some(running)
    }
}

//! What an engine does for others: the handlers, and the calls in progress.

use crate::{
    Context,
    inbound::Answer,
    registry::{Provider, Registry},
};
use futures_util::future::AbortHandle;
use petasos_fabric::Peer;
use petasos_wire::rpc::{CallId, Request, Status};
use slab::Slab;
use std::{collections::HashMap, rc::Rc};

/// What is done for others.
#[derive(Default)]
pub(crate) struct Served {
    registry: Registry,
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
    /// Tells the handler that its answer is not awaited any more, and has it dropped.
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

/// An answer that is not a result.
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
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.running.len()
    }

    pub(crate) fn is_running(&self, slot: u32, serial: u64) -> bool {
        self.running.get(slot as usize).is_some_and(|running| running.serial == serial)
    }

    pub(crate) fn registry(&mut self) -> &mut Registry {
        &mut self.registry
    }

    /// The provider that serves a request.
    #[inline]
    pub(crate) fn find(&self, request: &Request) -> Option<Rc<Provider>> {
        self.registry.find(request)
    }

    /// Why a request is not served.
    #[cold]
    pub(crate) fn refusal(&self, request: &Request) -> Refusal {
        match self.registry.signature(request.method) {
            None => Refusal::plain(Status::NoMethod),
            Some(ours) if ours != request.signature => {
                Refusal { status: Status::Signature, body: ours.to_le_bytes().to_vec() }
            }
            Some(_) => Refusal::plain(Status::NoProvider),
        }
    }

    /// Notes a call in progress.
    pub(crate) fn begin(
        &mut self,
        answer: Answer,
        abort: AbortHandle,
        context: Option<Context>,
    ) -> Ticket {
        self.serial += 1;
        let serial = self.serial;
        let slot = self.running.insert(Running { serial, answer, abort, context });
        if !answer.one_way {
            self.by_call.insert((answer.peer, answer.call.slot), slot);
        }
        Ticket { slot: slot as u32, serial }
    }

    /// Ends a call in progress.
    pub(crate) fn end(&mut self, ticket: Ticket) -> Option<Running> {
        if !self.is_running(ticket.slot, ticket.serial) {
            return None;
        }
        let running = self.running.remove(ticket.slot as usize);
        self.by_call.remove(&(running.answer.peer, running.answer.call.slot));
        Some(running)
    }

    /// The call in progress that a caller names so.
    pub(crate) fn named(&self, peer: Peer, call: CallId) -> Option<Ticket> {
        let slot = *self.by_call.get(&(peer, call.slot))?;
        let running = &self.running[slot];
        let serial = running.serial;
        (running.answer.call == call).then_some(Ticket { slot: slot as u32, serial })
    }

    /// Ends all calls of one peer.
    pub(crate) fn end_all(&mut self, peer: Peer) -> Vec<Running> {
        let of = |(slot, running): (usize, &Running)| {
            let ticket = Ticket { slot: slot as u32, serial: running.serial };
            (running.answer.peer == peer).then_some(ticket)
        };
        let tickets: Vec<Ticket> = self.running.iter().filter_map(of).collect();
        tickets.into_iter().filter_map(|ticket| self.end(ticket)).collect()
    }
}

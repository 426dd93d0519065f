//! The methods that are served, and the calls in progress.

use crate::{Context, Handler, Method, inbound::Answer};
use futures_util::future::AbortHandle;
use petasos_fabric::Peer;
use petasos_wire::rpc::{CallId, Request, Status};
use slab::Slab;
use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    rc::Rc,
};

/// The methods that are served, and the calls in progress.
#[derive(Default)]
pub(crate) struct Served {
    methods: HashMap<u64, Entry, BuildHasherDefault<NoHash>>,
    running: Slab<Running>,
    by_call: HashMap<(Peer, u32), usize>,
    serial: u64,
}

/// All that serve a method: under each provider id, one.
struct Entry {
    method: Method,
    providers: Vec<Rc<Provider<dyn Handler>>>,
}

/// Who serves a method.
pub(crate) struct Provider<H: ?Sized> {
    pub(crate) id: u16,
    pub(crate) method: Method,
    pub(crate) handler: H,
}

/// A call in progress whose handler waits for something.
pub(crate) struct Running {
    serial: u64,
    pub(crate) answer: Answer,
    abort: AbortHandle,
    context: Option<Context>,
}

impl Running {
    /// Tells the handler that nobody waits any more, and has it dropped.
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

/// Method ids are hashes already.
#[derive(Default)]
struct NoHash(u64);

impl Hasher for NoHash {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
    #[inline]
    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
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

    /// Adds a handler; false if the method has one under this provider, or if another method has
    /// the same id.
    pub(crate) fn add(&mut self, provider: Rc<Provider<dyn Handler>>) -> bool {
        let (method, id) = (provider.method, provider.id);
        let free = self.is_free(&method, id);
        if free {
            let entry = self.methods.entry(method.id);
            let entry = entry.or_insert_with(|| Entry { method, providers: Vec::new() });
            entry.providers.push(provider);
        }
        free
    }

    pub(crate) fn is_free(&self, method: &Method, provider: u16) -> bool {
        self.methods.get(&method.id).is_none_or(|entry| {
            entry.method == *method && entry.providers.iter().all(|known| known.id != provider)
        })
    }

    pub(crate) fn remove(&mut self, method: Method, provider: u16) {
        if let Some(entry) = self.methods.get_mut(&method.id) {
            entry.providers.retain(|known| known.id != provider);
            if entry.providers.is_empty() {
                self.methods.remove(&method.id);
            }
        }
    }

    /// Who serves a request.
    #[inline]
    pub(crate) fn find(&self, request: &Request) -> Option<Rc<Provider<dyn Handler>>> {
        let entry = self.methods.get(&request.method)?;
        let provider = entry.providers.iter().find(|known| known.id == request.provider)?;
        (entry.method.signature == request.signature).then(|| Rc::clone(provider))
    }

    /// Why nobody serves a request.
    #[cold]
    pub(crate) fn refusal(&self, request: &Request) -> Refusal {
        let Some(entry) = self.methods.get(&request.method) else {
            return Refusal::plain(Status::NoMethod);
        };
        let ours = entry.method.signature;
        if ours != request.signature {
            return Refusal { status: Status::Signature, body: ours.to_le_bytes().to_vec() };
        }
        Refusal::plain(Status::NoProvider)
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

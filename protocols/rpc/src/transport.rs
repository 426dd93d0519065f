//! The endpoint that an engine drives: messages in and out, operations, memory.
//!
//! The endpoint is borrowed only within the methods here, none of which runs user code.

use crate::{BulkError, Refused};
use petasos_fabric::{
    Access, Address, AllocError, Capabilities, Endpoint, Event, InjectError, Key, Lease, Operation,
    Peer, Region, RegionId, Remote, ResolveError, Sleep, Slice, Time, Token, driver::sleep_on,
};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    os::fd::OwnedFd,
    time::Duration,
};

pub(crate) struct Transport {
    endpoint: RefCell<Box<dyn Endpoint>>,
    /// Operations that the endpoint has not accepted yet.
    submitted: RefCell<VecDeque<Operation>>,
    /// Room for the events of a pass.
    events: Cell<Vec<Event>>,
}

impl Transport {
    pub(crate) fn new(endpoint: Box<dyn Endpoint>) -> Transport {
        let endpoint = RefCell::new(endpoint);
        Transport { endpoint, submitted: RefCell::default(), events: Cell::default() }
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        self.endpoint.borrow().capabilities().clone()
    }

    // Messages.

    /// The next message that needs no event: puts it in `message`, and returns its sender.
    #[inline(always)]
    pub(crate) fn poll_message(&self, message: &mut Lease) -> Option<Peer> {
        self.endpoint.borrow_mut().poll_message(message)
    }

    /// Sends a frame. False if there is no room for it now; a frame to a peer that is lost or
    /// unknown is dropped.
    #[inline(always)]
    pub(crate) fn inject(&self, peer: Peer, parts: &[&[u8]]) -> bool {
        let sent = self.endpoint.borrow_mut().inject(peer, parts);
        // Compared with this alone, as a jump through a table of all errors would take longer.
        sent.is_ok() || is_final(sent)
    }

    // Progress.

    /// Moves the endpoint on, and hands each event to `handle`. True if anything was done.
    #[inline(always)]
    pub(crate) fn progress(
        &self,
        now: Time,
        budget: usize,
        mut handle: impl FnMut(&mut Event),
    ) -> bool {
        let mut busy = self.flush();
        let mut events = self.events.take();
        busy |= self.endpoint.borrow_mut().progress(now, budget, &mut events);
        for event in &mut events {
            handle(event);
        }
        events.clear();
        self.events.set(events);
        busy
    }

    /// Prepares to sleep on [`Transport::fd`]. `None` if there is something to do.
    pub(crate) fn arm(&self, now: Time) -> Option<Time> {
        match self.endpoint.borrow_mut().arm(now) {
            Sleep::Busy => None,
            Sleep::Until(until) => Some(until),
        }
    }

    /// A duplicate of the descriptor to sleep on, if the endpoint has one.
    pub(crate) fn fd(&self) -> Option<OwnedFd> {
        self.endpoint.borrow().fd()?.try_clone_to_owned().ok()
    }

    /// Sleeps until something arrives, but no longer than `longest`.
    pub(crate) fn sleep(&self, longest: Duration) {
        let endpoint = self.endpoint.borrow();
        if let Some(fd) = endpoint.fd() {
            // An interrupted or failed wait only causes another pass.
            let _ = sleep_on([fd], Some(longest));
        } else {
            std::thread::yield_now();
        }
    }

    /// A hint between two passes that found nothing to do.
    pub(crate) fn relax(&self) {
        self.endpoint.borrow().relax();
    }

    // Operations.

    pub(crate) fn submit(&self, operation: Operation) {
        self.submitted.borrow_mut().push_back(operation);
        self.flush();
    }

    /// Submits what the endpoint has room for. True if it took anything.
    fn flush(&self) -> bool {
        let mut submitted = self.submitted.borrow_mut();
        let before = submitted.len();
        if before > 0
            && let Ok(mut endpoint) = self.endpoint.try_borrow_mut()
        {
            endpoint.submit(&mut submitted);
        }
        submitted.len() < before
    }

    /// Cancels an operation. True if it was withdrawn before the endpoint accepted it: then no
    /// completion follows.
    pub(crate) fn cancel(&self, token: Token) -> bool {
        // What the endpoint has not accepted yet must be accepted before it can be cancelled.
        self.flush();
        let mut submitted = self.submitted.borrow_mut();
        if let Some(at) = submitted.iter().position(|operation| operation.token() == token) {
            submitted.remove(at);
            return true;
        }
        drop(submitted);
        self.endpoint.borrow_mut().cancel(token);
        false
    }

    // Peers.

    /// The peer at an address. One that has not started yet is awaited, for up to `patience`, as
    /// `refused` says; `was_reached` says whether a peer was connected at that address before.
    pub(crate) fn resolve(
        &self,
        address: &Address,
        patience: Duration,
        refused: Refused,
        was_reached: impl FnOnce() -> bool,
    ) -> Result<Peer, ResolveError> {
        let waits = match refused {
            Refused::WaitForFirst => !was_reached(),
            Refused::Wait => true,
            Refused::Fail => false,
        };
        let mut endpoint = self.endpoint.borrow_mut();
        match waits {
            true => endpoint.resolve(address, patience),
            false => endpoint.resolve_running(address, patience),
        }
    }

    /// The address of a peer that the endpoint knows.
    pub(crate) fn address_of(&self, peer: Peer) -> Option<Address> {
        Some(self.endpoint.borrow().peer(peer)?.address)
    }

    pub(crate) fn forget(&self, peer: Peer) {
        self.endpoint.borrow_mut().forget(peer);
    }

    // Memory.

    pub(crate) fn alloc(&self, len: usize) -> Result<Region, AllocError> {
        self.endpoint.borrow_mut().alloc(len)
    }

    /// Opens memory to peers, and makes the key to it.
    pub(crate) fn export(
        &self,
        memory: &Slice,
        access: Access,
    ) -> Result<(RegionId, Key), BulkError> {
        let mut endpoint = self.endpoint.borrow_mut();
        let region = endpoint.register(memory, access)?;
        Ok((region, endpoint.export(region)?))
    }

    /// Imports a key, which came `from` this peer if that is known.
    pub(crate) fn import(&self, key: &Key, from: Option<Peer>) -> Result<Remote, BulkError> {
        let mut endpoint = self.endpoint.borrow_mut();
        Ok(match from {
            Some(from) => endpoint.import_from(key, from)?,
            None => endpoint.import(key)?,
        })
    }

    pub(crate) fn release(&self, remote: Remote) {
        self.endpoint.borrow_mut().release(remote);
    }
}

/// Whether it would be of no use to send the frame again.
#[cold]
fn is_final(sent: Result<(), InjectError>) -> bool {
    match sent {
        Err(InjectError::Full) => return false,
        Ok(()) | Err(InjectError::PeerLost | InjectError::UnknownPeer) => {}
        Err(error) => tracing::error!(%error, "a frame was not sent"),
    }
    true
}

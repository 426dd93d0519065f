//! An endpoint whose counters can be seen while an engine has it.

use petasos::fabric::{
    Access, Address, AllocError, Capabilities, Endpoint, Event, ExportError, ImportError,
    Incarnation, InjectError, Key, Notifier, Operation, Peer, PeerInfo, Region, RegionId,
    RegisterError, Remote, ResolveError, Sleep, Slice, Time, Token,
};
use std::{
    collections::VecDeque,
    os::fd::BorrowedFd,
    sync::{Arc, Mutex},
    time::Duration,
};

pub(crate) struct Watched<E, C> {
    inner: E,
    look: fn(&E) -> C,
    seen: Arc<Mutex<C>>,
}

impl<E: Endpoint, C> Watched<E, C> {
    /// The endpoint, and where its counters are found from now on.
    pub(crate) fn new(inner: E, look: fn(&E) -> C) -> (Watched<E, C>, Arc<Mutex<C>>) {
        let seen = Arc::new(Mutex::new(look(&inner)));
        (Watched { inner, look, seen: Arc::clone(&seen) }, seen)
    }
}

impl<E: Endpoint, C: Send> Endpoint for Watched<E, C> {
    fn progress(&mut self, now: Time, budget: usize, events: &mut Vec<Event>) -> bool {
        let worked = self.inner.progress(now, budget, events);
        *self.seen.lock().unwrap() = (self.look)(&self.inner);
        worked
    }

    fn address(&self) -> &Address {
        self.inner.address()
    }

    fn incarnation(&self) -> Incarnation {
        self.inner.incarnation()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn resolve(&mut self, address: &Address, patience: Duration) -> Result<Peer, ResolveError> {
        self.inner.resolve(address, patience)
    }

    fn peer(&self, peer: Peer) -> Option<PeerInfo> {
        self.inner.peer(peer)
    }

    fn forget(&mut self, peer: Peer) {
        self.inner.forget(peer);
    }

    fn inject(&mut self, peer: Peer, parts: &[&[u8]]) -> Result<(), InjectError> {
        self.inner.inject(peer, parts)
    }

    fn submit(&mut self, operations: &mut VecDeque<Operation>) {
        self.inner.submit(operations);
    }

    fn cancel(&mut self, token: Token) {
        self.inner.cancel(token);
    }

    fn arm(&mut self, now: Time) -> Sleep {
        self.inner.arm(now)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.fd()
    }

    fn notifier(&self) -> Notifier {
        self.inner.notifier()
    }

    fn alloc(&mut self, len: usize) -> Result<Region, AllocError> {
        self.inner.alloc(len)
    }

    fn register(&mut self, memory: &Slice, access: Access) -> Result<RegionId, RegisterError> {
        self.inner.register(memory, access)
    }

    fn export(&self, region: RegionId) -> Result<Key, ExportError> {
        self.inner.export(region)
    }

    fn import(&mut self, key: &Key) -> Result<Remote, ImportError> {
        self.inner.import(key)
    }

    fn release(&mut self, remote: Remote) {
        self.inner.release(remote);
    }
}

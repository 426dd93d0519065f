//! The contract of the fabric.

use crate::{cache, datagrams::Datagrams, frame::Control, link::State, network::Network};
use petasos_fabric::{
    Address, AllocError, Endpoint, Event, InUse, InjectError, Lease, LostReason, Notifier,
    Operation, Peer, Refused, Region, ResolveError, Sleep, Slice, Time, Token, answered_by_engine,
};
use std::{
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

/// How long messages may take to be sent when an endpoint ends.
const FAREWELL: Duration = Duration::from_millis(200);

impl<N: Network> Datagrams<N> {
    /// The peer at an address; `resolve` says how it is reached over the connection on which peers
    /// meet.
    fn resolve_by(
        &mut self,
        address: &Address,
        resolve: impl Fn(&mut dyn Endpoint, &Address) -> Result<Peer, ResolveError>,
    ) -> Result<Peer, ResolveError> {
        let scheme = self.medium.scheme;
        if address.scheme() != scheme && address.scheme() != self.medium.best {
            return Err(ResolveError::WrongScheme { address: address.clone(), scheme });
        }
        let theirs = self.medium.theirs(address)?;
        let address = self.medium.ours(&theirs);
        if let Some(peer) = self.engine.find_peer(&address) {
            if !self.engine.is_self(peer) {
                if let Some(link) = self.links.of(peer) {
                    link.set_resolved();
                }
                // Extends the patience; the handle is known.
                resolve(&mut *self.control, &theirs)?;
            }
            return Ok(peer);
        }
        if address == *self.engine.address() {
            return self.engine.add_peer(&address);
        }
        let control = resolve(&mut *self.control, &theirs).map_err(|error| match error {
            ResolveError::Malformed { reason, .. } => {
                ResolveError::Malformed { address: address.clone(), reason }
            }
            other => other,
        })?;
        match self.links.by_control(control) {
            // The peer is known by another spelling of its address.
            Some(peer) => {
                if let Some(link) = self.links.of(peer) {
                    link.set_resolved();
                }
                Ok(peer)
            }
            None => self.add(&address, control, true),
        }
    }
}

impl<N: Network> Endpoint for Datagrams<N> {
    fn resolve(&mut self, address: &Address, patience: Duration) -> Result<Peer, ResolveError> {
        self.resolve_by(address, |control, theirs| control.resolve(theirs, patience))
    }

    fn resolve_running(
        &mut self,
        address: &Address,
        patience: Duration,
    ) -> Result<Peer, ResolveError> {
        self.resolve_by(address, |control, theirs| control.resolve_running(theirs, patience))
    }

    fn forget(&mut self, peer: Peer) {
        self.remove(peer, &LostReason::Forgotten);
        self.engine.forget(peer);
    }

    #[inline]
    fn inject(&mut self, peer: Peer, parts: &[&[u8]]) -> Result<(), InjectError> {
        match self.inject_now(peer, parts) {
            Some(result) => result,
            None => self.engine.inject(peer, parts),
        }
    }

    fn try_submit(&mut self, operation: Operation) -> Result<(), Refused> {
        if !self.has_native_access() {
            return self.engine.try_submit(operation);
        }
        if let Err(full) = self.engine.room_for(&operation) {
            return Err(Refused { operation, full });
        }
        let rest = self.accept_access(operation).and_then(|rest| self.close_region(rest));
        if let Some(operation) = rest {
            self.engine.submit(operation);
        }
        Ok(())
    }

    fn cancel(&mut self, token: Token) {
        if !self.cancel_access(token) {
            self.engine.cancel(token);
        }
    }

    fn in_use(&self, memory: &Slice) -> Option<InUse> {
        let own = self.accesses.using(memory).map(|access| {
            InUse::new("an access under way").by(access.token()).with(Some(access.peer()))
        });
        let library = || {
            let held = self.net.holds(memory);
            held.then(|| InUse::new("the network library, which has not let go of it"))
        };
        own.or_else(|| self.engine.in_use(memory)).or_else(library)
    }

    fn progress(&mut self, now: Time, budget: usize, events: &mut Vec<Event>) -> bool {
        self.now = now;
        self.pace.begin_pass();
        let before = events.len();
        let limit = before.saturating_add(budget);
        events.append(&mut self.early);
        let mut busy = self.engine.take_events(limit.saturating_sub(events.len()), events);
        busy |= self.flush();
        if self.accesses.has_work() {
            busy |= self.serve_accesses();
        }
        if events.len() >= limit {
            self.pace.end_pass(true);
            return true;
        }
        let packets = self.counters.packets_in;
        if self.pace.is_control_due(packets) || self.lists.has_controls() {
            self.pace.control_polled(packets);
            busy |= self.poll_control();
            // That peers are up is reported before their messages.
            busy |= self.engine.take_events(limit.saturating_sub(events.len()), events);
        }
        if !self.lists.paused().is_empty() {
            busy |= self.resume(limit, events);
        }
        // If the library was just polled by `poll_message`, it is not polled again in this pass.
        let arrived = !self.pace.take_polled() && self.receive(limit, events);
        self.pace.library_polled(arrived);
        busy |= arrived;
        if self.lists.has_owing() {
            busy |= self.acknowledge();
        }
        if !self.lists.ending().is_empty() {
            busy |= self.finish_ended();
        }
        if self.exposures.has_work() {
            self.expire_closings();
        }
        if self.engine.is_closing() {
            self.engine.keep_time(now);
        }
        if self.accesses.has_work() {
            busy |= self.serve_accesses();
        }
        if self.engine.has_output() {
            busy |= self.flush();
        }
        busy |= self.engine.take_events(limit.saturating_sub(events.len()), events);
        busy |= events.len() > before;
        self.pace.end_pass(busy);
        busy
    }

    #[inline]
    fn poll_message(&mut self, message: &mut Lease) -> Option<Peer> {
        self.poll_short(message)
    }

    /// Does nothing: each pass polls the library, which takes long enough.
    #[inline]
    fn relax(&self) {}

    fn arm(&mut self, now: Time) -> Sleep {
        self.prepare(now, false)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.as_fd())
    }

    fn notifier(&self) -> Notifier {
        self.control.notifier()
    }

    fn alloc(&mut self, len: usize) -> Result<Region, AllocError> {
        if len == 0 || len > isize::MAX as usize {
            return Err(AllocError::BadLength(len));
        }
        Ok(match self.cache.is_on() {
            true => cache::lend(self.cache.own(Region::zeroed(len))),
            false => Region::zeroed(len),
        })
    }

    answered_by_engine! {
        engine: address incarnation capabilities peer register export import release
    }
}

impl<N: Network> Drop for Datagrams<N> {
    /// Messages that were injected are sent, as far as the library takes them, and peers are told
    /// how many there were. Grants are given back, if nothing is under way by them.
    fn drop(&mut self) {
        // A forked child leaves the parent's endpoint alone.
        if !self.home.is_current() || self.parted {
            return;
        }
        self.flush();
        self.part(|end| _ = end.receive(usize::MAX, &mut Vec::new()));
    }
}

impl<N: Network> Datagrams<N> {
    /// Waits a little until the library has sent everything, while `receive` polls it, and tells
    /// peers that this was all.
    pub(crate) fn part(&mut self, mut receive: impl FnMut(&mut Self)) {
        self.parted = true;
        let begin = Instant::now();
        while self.net.running() > 0 && begin.elapsed() < FAREWELL {
            receive(self);
            std::thread::yield_now();
        }
        for link in self.links.iter() {
            if matches!(link.state, State::Up) {
                if self.grants.can_return(link.peer()) {
                    let _ = self.control.inject(link.control(), &[&Control::Returned.to_bytes()]);
                }
                let _ = self
                    .control
                    .inject(link.control(), &[&Control::Bye(link.out.sent()).to_bytes()]);
            }
        }
        self.control.progress(self.now, 64, &mut Vec::new());
    }
}

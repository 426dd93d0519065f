//! The contract, as far as it is not somebody else's.

use crate::{frame::Control, kept, link::State, network::Network, state::Datagrams};
use petasos_fabric::{
    Address, AllocError, Endpoint, Event, InjectError, Lease, LostReason, Notifier, Operation,
    Peer, Region, ResolveError, Sleep, Time, Token, answered_by_engine,
};
use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

/// While messages come, the control endpoint has its turn every so many passes, or packets: a pass may take in many.
const TURN: u32 = 32;
const CROWD: u64 = 128;
/// Passes without a message after which it has one in each.
const QUIET: u32 = 128;
/// How long what was sent may take to leave when an endpoint ends.
const FAREWELL: Duration = Duration::from_millis(200);

impl<N: Network> Datagrams<N> {
    /// The peer at an address; `resolve` says how it is reached over the connection on which peers meet.
    fn reach(
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
                if let Some(link) = self.link(peer) {
                    link.asked = true;
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
        match self.met.get(&control).copied() {
            // Known by another spelling of its address.
            Some(peer) => {
                if let Some(link) = self.link(peer) {
                    link.asked = true;
                }
                Ok(peer)
            }
            None => self.add(&address, control, true),
        }
    }
}

impl<N: Network> Endpoint for Datagrams<N> {
    fn resolve(&mut self, address: &Address, patience: Duration) -> Result<Peer, ResolveError> {
        self.reach(address, |control, theirs| control.resolve(theirs, patience))
    }

    fn resolve_running(
        &mut self,
        address: &Address,
        patience: Duration,
    ) -> Result<Peer, ResolveError> {
        self.reach(address, |control, theirs| control.resolve_running(theirs, patience))
    }

    fn forget(&mut self, peer: Peer) {
        self.let_go(peer, &LostReason::Forgotten);
        self.engine.forget(peer);
    }

    #[inline]
    fn inject(&mut self, peer: Peer, parts: &[&[u8]]) -> Result<(), InjectError> {
        match self.inject_now(peer, parts) {
            Some(result) => result,
            None => self.engine.inject(peer, parts),
        }
    }

    fn submit(&mut self, operations: &mut VecDeque<Operation>) {
        if !self.accesses.native {
            return self.engine.submit_all(operations);
        }
        while self.engine.has_room()
            && let Some(operation) = operations.pop_front()
        {
            let rest = self.accept_access(operation).and_then(|rest| self.close_region(rest));
            if let Some(operation) = rest {
                self.engine.submit(operation);
            }
        }
    }

    fn cancel(&mut self, token: Token) {
        if !self.cancel_access(token) {
            self.engine.cancel(token);
        }
    }

    fn progress(&mut self, now: Time, budget: usize, events: &mut Vec<Event>) -> bool {
        self.now = now;
        self.passes = self.passes.saturating_add(1);
        self.turn = self.turn.saturating_sub(1);
        let before = events.len();
        let limit = before.saturating_add(budget);
        events.append(&mut self.early);
        let mut busy = self.engine.take_events(limit.saturating_sub(events.len()), events);
        busy |= self.flush();
        if self.accesses.has_work() {
            busy |= self.serve_accesses();
        }
        if events.len() >= limit {
            self.idle = false;
            return true;
        }
        let crowd = self.counters.packets_in - self.attended >= CROWD;
        let turn = self.turn == 0 || crowd || self.quiet >= QUIET;
        if turn || self.armed || !self.errands.is_empty() {
            // Rings are heard there: what they are for is looked for after that.
            (self.armed, self.looked) = (false, false);
            (self.turn, self.attended) = (TURN, self.counters.packets_in);
            busy |= self.attend();
            // Peers that came up are told before their messages.
            busy |= self.engine.take_events(limit.saturating_sub(events.len()), events);
        }
        if !self.paused.is_empty() {
            busy |= self.resume(limit, events);
        }
        // Whoever has just looked need not look again in the same pass.
        let came = !std::mem::take(&mut self.looked) && self.receive(limit, events);
        self.quiet = if came { 0 } else { self.quiet.saturating_add(1) };
        busy |= came;
        if !self.owing.is_empty() {
            busy |= self.acknowledge();
        }
        if !self.ending.is_empty() {
            busy |= self.finish_ended();
        }
        if self.exposures.has_work() {
            self.look_after_exposures();
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
        self.idle = !busy;
        busy
    }

    #[inline]
    fn poll_message(&mut self, message: &mut Lease) -> Option<Peer> {
        self.poll_short(message)
    }

    /// Nothing: to ask the library, as each pass does, is moment enough.
    #[inline]
    fn relax(&self) {}

    fn arm(&mut self, now: Time) -> Sleep {
        self.prepare(now)
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
        Ok(match self.kept.is_on() {
            true => kept::lend(self.kept.own(Region::zeroed(len))),
            false => Region::zeroed(len),
        })
    }

    answered_by_engine! {
        engine: address incarnation capabilities peer register export import release
    }
}

impl<N: Network> Drop for Datagrams<N> {
    /// What was injected leaves, as far as the library takes it, and peers are told how much that was. What they granted
    /// is given back, if nothing is under way by it.
    fn drop(&mut self) {
        // The parent is not gone.
        if !self.home.is_here() {
            return;
        }
        self.flush();
        let begin = Instant::now();
        while self.net.running() > 0 && begin.elapsed() < FAREWELL {
            self.receive(usize::MAX, &mut Vec::new());
            std::thread::yield_now();
        }
        for link in self.links.iter().flatten() {
            if matches!(link.state, State::Up) {
                if self.accesses.can_return(link.peer) {
                    let _ = self.control.inject(link.control, &[&Control::Returned.to_bytes()]);
                }
                let _ = self.control.inject(link.control, &[&Control::Bye(link.sent).to_bytes()]);
            }
        }
        self.control.progress(self.now, 64, &mut Vec::new());
    }
}

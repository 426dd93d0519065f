//! The contract of the fabric, over the channels.

use crate::{
    Channels, Device,
    port::Pending,
    regions::{Close, Waiting},
    tag,
};
use bytes::Bytes;
use petasos_fabric::{
    Access, Address, AllocError, ChannelUse, Endpoint, Event, ExportError, InUse, InjectError, Key,
    Lease, LostReason, Notifier, OpError, OpErrorKind, Operation, Peer, Refused, Region, RegionId,
    RegisterError, Remote, ResolveError, Sleep, Slice, Time, Token, answered_by_engine,
    memory::Kind, two_sided::Released,
};
use std::{os::fd::BorrowedFd, time::Duration};

/// The most records of one peer that are taken before others have their turn.
const TURN: usize = 32;
/// So many operations that waited for a fence go on at a time.
const RELEASED: usize = 1024;
/// How soon to look again whether there are leases for peers that wait.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

impl<D: Device> Channels<D> {
    /// Takes in what the device reports. True if there was anything.
    pub(crate) fn poll_device(&mut self, budget: usize) -> bool {
        let data = self.takes_data();
        let worked = self.port.poll(self.now, data, budget);
        if !self.port.has_events() {
            return worked;
        }
        let mut events = self.port.take_events();
        for event in events.drain(..) {
            self.handle_event(event);
        }
        self.port.reuse(events);
        true
    }

    pub(crate) fn takes_data(&self) -> bool {
        self.schedule.waiting() < self.config.deferred
    }

    /// Takes up to `budget` records, of all peers in turn.
    fn deliver_all(&mut self, budget: usize) -> bool {
        let (mut left, mut worked) = (budget, false);
        for _ in 0..self.schedule.input_len() {
            if left == 0 {
                break;
            }
            let Some(index) = self.schedule.pop_input() else { break };
            let Some(peer) = self.engine.peer_at(index) else { continue };
            match self.deliver(peer, TURN.min(left)) {
                Ok(count) => {
                    left -= count.min(left);
                    worked |= count > 0;
                }
                Err(garbage) => self.check(peer, Err(garbage)),
            }
        }
        worked
    }

    fn resolve_by(
        &mut self,
        address: &Address,
        patience: Duration,
        running: bool,
    ) -> Result<Peer, ResolveError> {
        let peer = match self.engine.find_peer(address) {
            Some(peer) if self.engine.is_self(peer) || self.engine.is_up(peer) => peer,
            None if address == self.engine.address() => self.add(address, true)?,
            _ => {
                let address = self.port.device_mut().resolve_as(address, patience, running)?;
                match self.engine.find_peer(&address) {
                    Some(peer) => peer,
                    None => self.add(&address, true)?,
                }
            }
        };
        if !self.engine.is_self(peer) {
            self.peers.get_mut(peer.index).set_resolved();
        }
        Ok(peer)
    }

    /// Takes in an operation for which there is room, and that waits for no fence.
    fn accept(&mut self, operation: Operation) {
        let rest = self.accept_deregister(operation).and_then(|rest| self.accept_access(rest));
        if let Some(operation) = rest {
            self.engine.submit(operation);
        }
    }

    /// Takes in what has waited for a fence. The device would pass records that the peer has not
    /// taken.
    #[cold]
    fn go_on(&mut self) {
        for _ in 0..RELEASED {
            let Channels { engine, peers, .. } = self;
            match engine.next_released(|peer, _| peers.get(peer.index).has_records_under_way()) {
                Some(Released::Operation(operation)) => self.accept(operation),
                Some(Released::Handle(remote)) => self.release(remote),
                None => return,
            }
        }
    }

    /// Has the device close a region that it knows. Returns an operation that is for the engine.
    fn accept_deregister(&mut self, operation: Operation) -> Option<Operation> {
        let Operation::Deregister { token, region, patience } = operation else {
            return Some(operation);
        };
        let waiting = Waiting::new(token, patience);
        match self.regions.close(region, waiting) {
            Close::Unknown => return Some(Operation::Deregister { token, region, patience }),
            Close::Begin(registration) => {
                self.engine.shut(region);
                let ticket = self.port.issue(Pending::Deregister(region));
                self.regions.closing(region, ticket, waiting);
                self.port.device_mut().deregister(registration, Some(ticket));
            }
            Close::Waits => {}
            Close::Twice => {
                let result = Err(OpError::local(OpErrorKind::UnknownRegion));
                self.engine.raise(Event::Done { token, result });
            }
        }
        None
    }

    /// Ends operations that have waited for a region to be closed until their patience was over.
    fn expire_closings(&mut self) {
        self.engine.keep_time(self.now);
        for (token, ticket) in self.regions.expire(self.now) {
            let error = match self.port.device().reached_by(ticket) {
                Some(address) => OpError::with_peer(OpErrorKind::StillReached, &address),
                None => OpError::local(OpErrorKind::StillReached),
            };
            tracing::debug!(%error, "memory that was to be closed is still reached");
            self.engine.raise(Event::Done { token, result: Err(error) });
        }
    }

    fn send_all(&mut self) -> bool {
        while let Some(peer) = self.engine.next_output() {
            let mut flow = self.peers.open_flow(peer.index);
            flow.pending = true;
            self.schedule.list_output(peer.index, &mut flow);
            self.peers.put_flow(peer.index, flow);
        }
        let mut worked = false;
        for _ in 0..self.schedule.output_len() {
            let Some(index) = self.schedule.pop_output() else { break };
            worked |= self.serve_peer(index);
        }
        worked
    }
}

impl<D: Device> Endpoint for Channels<D> {
    fn resolve(&mut self, address: &Address, patience: Duration) -> Result<Peer, ResolveError> {
        self.resolve_by(address, patience, false)
    }

    fn resolve_running(
        &mut self,
        address: &Address,
        patience: Duration,
    ) -> Result<Peer, ResolveError> {
        self.resolve_by(address, patience, true)
    }

    fn forget(&mut self, peer: Peer) {
        if self.engine.peer_info(peer).is_some() {
            self.detach(peer);
            self.end_accesses(peer, &LostReason::Forgotten);
            self.engine.forget(peer);
        }
    }

    fn channels_of(&self, peer: Peer) -> Vec<ChannelUse> {
        self.describe(peer)
    }

    fn inject(&mut self, peer: Peer, parts: &[&[u8]]) -> Result<(), InjectError> {
        match self.inject_now(peer, parts) {
            true => Ok(()),
            false => self.engine.inject(peer, parts),
        }
    }

    fn try_submit(&mut self, operation: Operation) -> Result<(), Refused> {
        if let Err(full) = self.engine.room_for(&operation) {
            return Err(Refused { operation, full });
        }
        if !self.engine.is_deferred(&operation) {
            self.accept(operation);
        } else if let Some(operation) = self.engine.defer(operation) {
            self.accept(operation);
        } else {
            self.go_on();
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
        let device = || {
            let held = self.port.device().holds(memory);
            held.then(|| InUse::new("the network device, which has not let go of it"))
        };
        own.or_else(|| self.engine.in_use(memory)).or_else(device)
    }

    fn progress(&mut self, now: Time, budget: usize, events: &mut Vec<Event>) -> bool {
        self.now = self.now.max(now);
        let before = events.len();
        let mut worked = self.engine.take_events(budget, events);
        if events.len() - before >= budget {
            // Timers run all the same, so that a peer that only receives still acknowledges.
            self.run_timers();
            return true;
        }
        worked |= self.take_found(before.saturating_add(budget), events);
        let left = budget.saturating_sub(events.len() - before);
        worked |= self.poll_device(left);
        if self.schedule.has_input() {
            worked |= self.deliver_all(left);
        }
        if (self.engine.has_output() || self.schedule.has_output()) && self.send_all() {
            // A device that does nothing unless driven carries out what it was just given.
            worked = true;
            if !self.port.device().sends_at_once() {
                self.poll_device(budget);
            }
        }
        self.run_timers();
        if self.regions.is_closing() || self.engine.has_chores() {
            worked |= self.engine.has_released();
            self.go_on();
            self.expire_closings();
        }
        let left = budget.saturating_sub(events.len() - before);
        self.engine.take_events(left, events) || worked
    }

    fn poll_message(&mut self, message: &mut Lease) -> Option<Peer> {
        self.take_short(message)
    }

    fn arm(&mut self, now: Time) -> Sleep {
        let engine = self.engine.has_events() || self.engine.has_output();
        if engine || self.schedule.has_output() || self.schedule.has_input() {
            return Sleep::Busy;
        }
        let mut until = self.schedule.deadline(!self.peers.active().is_empty());
        if self.engine.has_waiting() {
            // A lease that is dropped wakes no thread.
            until = until.min(now.after(LOOK_AGAIN));
        }
        until = until.min(self.engine.deadline()).min(self.regions.deadline(now));
        let data = self.takes_data();
        match self.port.device_mut().arm(now, data) {
            Sleep::Busy => Sleep::Busy,
            Sleep::Until(_) if until <= now => Sleep::Busy,
            Sleep::Until(time) => Sleep::Until(time.min(until)),
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.port.device().fd()
    }

    fn notifier(&self) -> Notifier {
        self.port.device().notifier()
    }

    fn register(&mut self, memory: &Slice, access: Access) -> Result<RegionId, RegisterError> {
        let region = self.engine.register(memory, access)?;
        // The engine serves memory that the device does not register, or cannot know.
        if access != Access::NONE
            && !matches!(memory.kind(), Kind::Pieces | Kind::AddressSpace)
            && self.port.device().limits().exposes()
            && let Some(tag) = tag::of_region(region)
            && let Ok(registered) = self.port.device_mut().expose(memory, access, tag)
        {
            self.regions.insert(region, registered);
        }
        Ok(region)
    }

    fn alloc(&mut self, len: usize) -> Result<Region, AllocError> {
        match len == 0 || len > isize::MAX as usize {
            true => Err(AllocError::BadLength(len)),
            false => Ok(self.port.device_mut().alloc(len)),
        }
    }

    fn export(&self, region: RegionId) -> Result<Key, ExportError> {
        let mut parts = self.engine.key_parts(region)?;
        if let Some(key) = self.regions.key(region) {
            let route = Bytes::copy_from_slice(key.as_bytes());
            parts.routes.push((Key::ROUTE_DEVICE, route));
        }
        Key::compose(&parts)
    }

    fn release(&mut self, remote: Remote) {
        // What a fence holds up is by it, too, and is not refused when its turn comes.
        if !self.engine.defer_release(remote) && !self.accesses.keep_released(remote) {
            self.engine.release(remote);
        }
    }

    // Keys to parts have the engine's route alone: the device registers whole regions.
    answered_by_engine! {
        engine: address incarnation capabilities peer poll_completion export_part import
    }
}

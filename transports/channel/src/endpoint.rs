//! The contract of the fabric, over the channels.

use crate::{
    Channels, Device,
    channels::{Pending, Waiting},
};
use bytes::Bytes;
use petasos_fabric::{
    Access, Address, Endpoint, Event, ExportError, InjectError, Key, Lease, LostReason, Notifier,
    OpError, OpErrorKind, Operation, Peer, RegionId, RegisterError, ResolveError, Sleep, Slice,
    Time, Token, answered_by_engine,
};
use std::{collections::VecDeque, os::fd::BorrowedFd, time::Duration};

/// Records of one peer that are taken before others have their turn.
const TURN: usize = 32;
/// How soon to look again whether there are leases for peers that wait.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

impl<D: Device> Channels<D> {
    /// Takes what the device reports. True if there was something.
    pub(crate) fn poll_device(&mut self, budget: usize) -> bool {
        let data = self.takes_data();
        let mut mail = std::mem::take(&mut self.mail);
        let mut worked = self.device.poll(self.now, data, budget, &mut mail);
        for event in mail.drain(..) {
            worked = true;
            self.happened(event);
        }
        self.mail = mail;
        worked
    }

    fn takes_data(&self) -> bool {
        self.counters.deferred < self.config.deferred as u64
    }

    /// Takes up to so many records, of all peers in turn.
    fn deliver_all(&mut self, budget: usize) -> bool {
        let (mut left, mut worked) = (budget, false);
        for _ in 0..self.input.len() {
            if left == 0 {
                break;
            }
            let Some(index) = self.input.pop_front() else { break };
            let Some(peer) = self.engine.peer_at(index) else { continue };
            match self.deliver(peer, TURN.min(left)) {
                Ok(count) => {
                    left -= count.min(left);
                    worked |= count > 0;
                }
                Err(garbage) => self.judge(peer, Err(garbage)),
            }
        }
        worked
    }

    /// Closes a region that the device knows, there first. Gives back what is for the engine.
    fn accept_deregister(&mut self, operation: Operation) -> Option<Operation> {
        let Operation::Deregister { token, region, patience } = operation else {
            return Some(operation);
        };
        let waiting = Some(Waiting { token, patience, until: None });
        if let Some(before) = self.closing.get_mut(&region) {
            // The device is at it: one operation waits for that.
            if before.1.is_none() {
                before.1 = waiting;
            } else {
                let result = Err(OpError::local(OpErrorKind::UnknownRegion));
                self.engine.raise(Event::Done { token, result });
            }
            return None;
        }
        let Some((registration, _)) = self.registered.remove(&region) else {
            return Some(Operation::Deregister { token, region, patience });
        };
        self.engine.shut(region);
        let ticket = self.ticket(Pending::Deregister(region));
        self.closing.insert(region, (ticket, waiting));
        self.device.deregister(registration, Some(ticket));
        None
    }

    /// Ends operations that have waited for the device, or for packets, as long as they wanted to.
    fn look_after_closing(&mut self) {
        let now = self.now;
        self.engine.keep_time(now);
        let mut late_ones = Vec::new();
        for (ticket, waiting) in self.closing.values_mut() {
            let late = waiting
                .as_mut()
                .is_some_and(|w| *w.until.get_or_insert(now.after(w.patience)) <= now);
            if let Some(Waiting { token, .. }) = waiting.take_if(|_| late) {
                late_ones.push((token, *ticket));
            }
        }
        for (token, ticket) in late_ones {
            let node = self.device.reached_by(ticket);
            let peer = node.and_then(|node| self.peer_of(node));
            let info = peer.and_then(|peer| self.engine.peer_info(peer));
            let error = match info {
                Some(info) => OpError::with_peer(OpErrorKind::StillReached, &info.address),
                None => OpError::local(OpErrorKind::StillReached),
            };
            tracing::debug!(%error, "memory that was to be closed is still reached");
            self.engine.raise(Event::Done { token, result: Err(error) });
        }
    }

    fn send_all(&mut self) -> bool {
        while let Some(peer) = self.engine.next_output() {
            let mut flow = self.lift(peer.index);
            flow.pending = true;
            self.list_output(peer.index, &mut flow);
            self.lay(peer.index, flow);
        }
        let mut worked = false;
        for _ in 0..self.output.len() {
            let Some(index) = self.output.pop_front() else { break };
            worked |= self.serve(index);
        }
        worked
    }
}

impl<D: Device> Endpoint for Channels<D> {
    fn resolve(&mut self, address: &Address, patience: Duration) -> Result<Peer, ResolveError> {
        let scheme = self.device.scheme();
        if address.scheme() != scheme {
            let address = address.clone();
            return Err(ResolveError::WrongScheme { address, scheme });
        }
        let peer = match self.engine.find_peer(address) {
            Some(peer) => peer,
            None => self.add(address, true)?,
        };
        if !self.engine.is_self(peer) {
            self.entries[peer.index as usize].asked = true;
            if !self.engine.is_up(peer) {
                self.device.resolve(address, patience);
            }
        }
        Ok(peer)
    }

    fn forget(&mut self, peer: Peer) {
        if self.engine.peer_info(peer).is_some() {
            self.unplug(peer);
            self.end_accesses(peer, &LostReason::Forgotten);
            self.engine.forget(peer);
        }
    }

    fn inject(&mut self, peer: Peer, parts: &[&[u8]]) -> Result<(), InjectError> {
        match self.inject_now(peer, parts) {
            true => Ok(()),
            false => self.engine.inject(peer, parts),
        }
    }

    fn submit(&mut self, operations: &mut VecDeque<Operation>) {
        let most = self.engine.config().max_operations;
        while self.engine.has_room()
            && self.accesses.len() < most
            && let Some(operation) = operations.pop_front()
        {
            let Some(operation) = self.accept_deregister(operation) else { continue };
            if let Some(operation) = self.accept_access(operation) {
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
        self.now = self.now.max(now);
        let before = events.len();
        let mut worked = self.engine.take_events(budget, events);
        if events.len() - before >= budget {
            // The output goes on all the same, so that who only receives still acknowledges.
            self.run_timers();
            return true;
        }
        worked |= self.poll_device(budget);
        worked |= self.deliver_all(budget);
        if self.send_all() {
            // A device that does nothing unless driven carries out what it was just given.
            worked = true;
            self.poll_device(budget);
        }
        self.run_timers();
        if !self.closing.is_empty() || self.engine.is_closing() {
            self.look_after_closing();
        }
        let left = budget.saturating_sub(events.len() - before);
        self.engine.take_events(left, events) || worked
    }

    fn poll_message(&mut self, message: &mut Lease) -> Option<Peer> {
        self.take_short(message)
    }

    fn arm(&mut self, now: Time) -> Sleep {
        let engine = self.engine.has_events() || self.engine.has_output();
        if engine || !self.output.is_empty() || !self.input.is_empty() {
            return Sleep::Busy;
        }
        let mut until = self.acks.front().map_or(Time::NEVER, |(at, _)| *at);
        if !self.active.is_empty() {
            until = until.min(self.sweep);
        }
        if self.engine.has_waiting() {
            // A lease that is dropped wakes nobody.
            until = until.min(now.after(LOOK_AGAIN));
        }
        until = until.min(self.engine.deadline());
        for waiting in self.closing.values().filter_map(|(_, waiting)| waiting.as_ref()) {
            until = until.min(waiting.until.unwrap_or(now));
        }
        match self.device.arm(now, self.takes_data()) {
            Sleep::Busy => Sleep::Busy,
            Sleep::Until(_) if until <= now => Sleep::Busy,
            Sleep::Until(time) => Sleep::Until(time.min(until)),
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.device.fd()
    }

    fn notifier(&self) -> Notifier {
        self.device.notifier()
    }

    fn register(&mut self, memory: &Slice, access: Access) -> Result<RegionId, RegisterError> {
        let region = self.engine.register(memory, access)?;
        // What the device does not take is served by the engine.
        if access != Access::NONE
            && let Some(tag) = Channels::<D>::region_tag(region)
            && let Ok(registered) = self.device.register(memory, access, tag)
        {
            self.registered.insert(region, registered);
        }
        Ok(region)
    }

    fn export(&self, region: RegionId) -> Result<Key, ExportError> {
        let mut parts = self.engine.key_parts(region)?;
        if let Some((_, key)) = self.registered.get(&region) {
            let route = Bytes::copy_from_slice(key.as_bytes());
            parts.routes.push((Key::ROUTE_DEVICE, route));
        }
        Ok(Key::compose(&parts))
    }

    answered_by_engine! {
        engine: address incarnation capabilities peer import release
    }
}

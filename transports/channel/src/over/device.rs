//! The contract of a device, by the operations of the endpoint.

use super::{CLOSING, Closing, Over, QUEUE, refusal, region_of};
use crate::{
    Device, DeviceEvent, DeviceLimits,
    device::{AtomicAccess, Class, Node, Refusal, Registration, RemoteKey, Target, Ticket},
    immediate::{self, NAME, Opened},
};
use petasos_fabric::{
    Access, Address, Credential, Endpoint, Incarnation, Lease, Level, LostReason, Notifier,
    Operation, RegisterError, RemoteSpan, Sleep, Slice, Time, Token,
};
use smallvec::{SmallVec, smallvec};
use std::{os::fd::BorrowedFd, time::Duration};

impl<E: Endpoint> Device for Over<E> {
    fn scheme(&self) -> &'static str {
        self.scheme
    }

    fn address(&self) -> &Address {
        self.inner.address()
    }

    fn incarnation(&self) -> Incarnation {
        self.inner.incarnation()
    }

    fn limits(&self) -> DeviceLimits {
        self.limits
    }

    fn credential(&self) -> Credential {
        self.inner.capabilities().credential
    }

    fn resolve(&mut self, address: &Address, patience: Duration) {
        if let Err(error) = self.inner.resolve(address, patience) {
            let (address, reason) =
                (address.clone(), LostReason::Unreachable(patience, error.to_string()));
            self.mail.push_back(DeviceEvent::Unreachable { address, reason });
        }
    }

    fn close(&mut self, node: Node) {
        let Some(reached) = self.peers.get_mut(node.0 as usize).and_then(Option::take) else {
            return;
        };
        self.release(node);
        self.inner.forget(reached.peer);
        let other = |event: &DeviceEvent| match event {
            DeviceEvent::Up { node: of, .. }
            | DeviceEvent::Lost { node: of, .. }
            | DeviceEvent::Packet { node: of, .. }
            | DeviceEvent::PutArrived { node: of, .. }
            | DeviceEvent::Refused { node: of, .. }
            | DeviceEvent::Room { node: of } => *of != node,
            _ => true,
        };
        self.mail.retain(other);
        self.stash.retain(other);
        self.tickets.retain(|_, of| *of != node);
    }

    fn send(&mut self, to: Node, class: Class, parts: &[&[u8]]) -> Result<(), Refusal> {
        let peer = self.peer(to)?;
        let first = [class as u8];
        let mut all: SmallVec<[&[u8]; 8]> = smallvec![&first[..]];
        all.extend_from_slice(parts);
        self.inner.inject(peer, &all).map_err(refusal)
    }

    fn put(
        &mut self,
        to: Node,
        target: &Target,
        from: &Slice,
        event: Option<u64>,
        ticket: Ticket,
    ) -> Result<(), Refusal> {
        let span = RemoteSpan { offset: target.offset, len: from.len() as u64 };
        self.begin(to, target, ticket, |token, remote| {
            let (local, spans) = (smallvec![from.clone()], smallvec![span]);
            Operation::Put { token, remote, local, spans, level: Level::Visible, event }
        })
    }

    /// # Panics
    /// If there are too many bytes.
    fn put_immediate(
        &mut self,
        to: Node,
        target: &Target,
        bytes: &[u8],
        event: Option<u64>,
    ) -> Result<(), Refusal> {
        self.inject_put(to, target, bytes, event)
    }

    fn get(
        &mut self,
        from: Node,
        target: &Target,
        into: &Slice,
        ticket: Ticket,
    ) -> Result<(), Refusal> {
        let span = RemoteSpan { offset: target.offset, len: into.len() as u64 };
        self.begin(from, target, ticket, |token, remote| {
            let (local, spans) = (smallvec![into.clone()], smallvec![span]);
            Operation::Get { token, remote, local, spans }
        })
    }

    fn atomic(
        &mut self,
        at: Node,
        target: &Target,
        access: AtomicAccess,
        ticket: Ticket,
    ) -> Result<(), Refusal> {
        let offset = target.offset;
        self.begin(at, target, ticket, |token, remote| {
            let AtomicAccess { op, kind, operand, compare } = access;
            let fetch = true;
            Operation::Atomic { token, remote, offset, op, kind, operand, compare, fetch }
        })
    }

    fn register(
        &mut self,
        memory: &Slice,
        access: Access,
        tag: u64,
    ) -> Result<(Registration, RemoteKey), RegisterError> {
        let secret = getrandom::u64().map_err(|e| RegisterError::System(e.to_string()))?;
        let region = self.inner.register(memory, access)?;
        let registration =
            Registration(u64::from(region.generation) << 32 | u64::from(region.index));
        let name = immediate::name(registration, secret);
        let key = self.inner.export(region).ok();
        let key = key.and_then(|key| RemoteKey::new(&[&name[..], key.as_bytes()].concat()));
        match key {
            Some(key) => {
                let memory = memory.clone();
                self.opened.insert(region, Opened { memory, access, tag, secret });
                Ok((registration, key))
            }
            None => {
                self.deregister(registration, None);
                let most = RemoteKey::MAX - NAME;
                let what = format!("the endpoint's keys are longer than {most} bytes");
                Err(RegisterError::System(what))
            }
        }
    }

    fn deregister(&mut self, registration: Registration, ticket: Option<Ticket>) {
        let region = region_of(registration);
        let memory = self.opened.remove(&region).map(|opened| opened.memory);
        self.closings += 1;
        let token = Token(CLOSING | self.closings);
        self.closing.insert(token.0, Closing { region, memory, ticket, holder: None });
        // A caller that waits for it wants to know at once which peer holds it.
        let patience = if ticket.is_some() { Duration::ZERO } else { Operation::PATIENCE };
        self.close(token, region, patience);
    }

    fn holds(&self, memory: &Slice) -> bool {
        let closing = self.closing.values().filter_map(|closing| closing.memory.as_ref());
        let open = self.opened.values().map(|opened| &opened.memory);
        closing.chain(open).any(|held| held.overlaps(memory))
            || self.queue.iter().any(|operation| operation.uses(memory))
            || self.inner.in_use(memory).is_some()
    }

    fn reached_by(&self, ticket: Ticket) -> Option<Address> {
        let closing = self.closing.values().find(|closing| closing.ticket == Some(ticket))?;
        closing.holder.clone()
    }

    fn poll(&mut self, now: Time, data: bool, most: usize, events: &mut Vec<DeviceEvent>) -> bool {
        let before = events.len();
        if !self.queue.is_empty() {
            self.inner.submit(&mut self.queue);
        }
        if self.queue.len() < QUEUE / 2 {
            let full = std::mem::take(&mut self.full);
            self.mail.extend(full.into_iter().map(|node| DeviceEvent::Room { node }));
        }
        // One at a time, so that one lease is enough. No more is taken in than is handed out: what
        // is left is the endpoint's, whose peers then have to wait.
        let (mut message, mut worked) = (Lease::default(), false);
        for _ in 0..most.saturating_sub(self.mail.len()) {
            let Some(peer) = self.inner.poll_message(&mut message) else { break };
            if let Some(node) = self.node(peer) {
                self.message(node, &message);
            }
            worked = true;
        }
        drop(message);
        let mut happened = std::mem::take(&mut self.events);
        let room = most.saturating_sub(self.mail.len());
        if room > 0 {
            worked |= self.inner.progress(now, room, &mut happened);
        }
        // Most passes find messages alone, or nothing.
        if !happened.is_empty() {
            happened.drain(..).for_each(|event| self.handle_event(event));
        }
        self.events = happened;
        if !self.refused.is_empty() {
            self.tell_refused();
        }
        // One by one, as mostly there is one: to drain a deque takes longer to begin and to end.
        for _ in 0..self.mail.len().min(most) {
            events.extend(self.mail.pop_front());
        }
        if data && self.mail.is_empty() {
            self.fetch_stashed(most.saturating_sub(events.len() - before), events);
        }
        worked || events.len() > before
    }

    fn arm(&mut self, now: Time, data: bool) -> Sleep {
        let queued = !self.queue.is_empty() || !self.mail.is_empty();
        match queued || (data && !self.stash.is_empty()) {
            true => Sleep::Busy,
            false => self.inner.arm(now),
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.fd()
    }

    fn notifier(&self) -> Notifier {
        self.inner.notifier()
    }
}

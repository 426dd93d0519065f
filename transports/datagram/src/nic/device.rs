//! The contract of a device.

use super::{Nic, body::Body, events::is_of, opened::Location, packet::Header};
use crate::{cache, network::Network};
use petasos_channel::{
    Device, DeviceEvent, DeviceLimits,
    device::{
        AtomicAccess, Class, Fault, Node, Readiness, Refusal, Registration, RemoteKey, Search,
        Target, Ticket,
    },
    immediate::{Opened, PutHeader},
};
use petasos_fabric::{
    Access, Address, Credential, Incarnation, LostReason, Notifier, Region, RegisterError,
    ResolveError, Sleep, Slice, Time, two_sided::Outgoing,
};
use smallvec::SmallVec;
use std::{
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

/// The longest put or get.
const TRANSFER: usize = 1 << 20;

impl<N: Network> Device for Nic<N> {
    fn scheme(&self) -> &'static str {
        self.inner.medium.scheme
    }

    fn address(&self) -> &Address {
        self.inner.address()
    }

    fn incarnation(&self) -> Incarnation {
        self.inner.incarnation()
    }

    fn limits(&self) -> DeviceLimits {
        let facts = self.inner.net.facts();
        let transfer = if self.reads { facts.access.unwrap_or(TRANSFER) } else { TRANSFER };
        DeviceLimits {
            packet: self.longest(),
            immediate: facts.fragment,
            transfer: transfer.min(TRANSFER),
            atomic: 0,
            processor_atomics: false,
            registrations: self.opened.most(),
            passive_target: false,
            serves_from: match self.reads {
                true => self.inner.config.remote_access_from.max(1),
                false => u64::MAX,
            },
            serves_events_from: self.inner.payloads_from,
            enforcement: facts.enforcement,
            puts_are_packets: true,
        }
    }

    fn credential(&self) -> Credential {
        self.inner.credential
    }

    fn resolve(&mut self, address: &Address, patience: Duration) {
        if let Err(error) = self.resolve_as(address, patience, false) {
            let (address, reason) =
                (address.clone(), LostReason::Unreachable(patience, error.to_string()));
            self.mail.push_back(DeviceEvent::Unreachable { address, reason });
        }
    }

    fn resolve_as(
        &mut self,
        address: &Address,
        patience: Duration,
        running: bool,
    ) -> Result<Address, ResolveError> {
        let own = self.inner.address();
        // In the spelling of this scheme.
        let named = address.scheme() == self.inner.medium.best && address.rest() == own.rest();
        if named || address == own {
            return Ok(own.clone());
        }
        let peer = self.inner.resolve(address, patience, running)?;
        Ok(self.inner.peers.address(peer).unwrap_or(address).clone())
    }

    fn close(&mut self, node: Node) {
        let Some(reached) = self.nodes.remove(node) else { return };
        self.mail.retain(|event| !is_of(event, node));
        self.stash.retain(|event| !is_of(event, node));
        self.forget_found(node);
        self.end_all(reached.peer);
        self.inner.forget(reached.peer);
    }

    /// # Panics
    /// If the packet is too long.
    #[inline]
    fn send(&mut self, to: Node, class: Class, parts: &[&[u8]]) -> Result<(), Refusal> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        assert!(len <= self.longest(), "a packet of {len} bytes");
        self.send_packet(to, class, Body::Parts(parts))
    }

    /// # Panics
    /// If the packet is too long.
    fn send_payload(
        &mut self,
        to: Node,
        class: Class,
        header: &[u8],
        payload: &Outgoing,
    ) -> Result<(), Refusal> {
        let len = header.len() + payload.len();
        assert!(len <= self.longest(), "a packet of {len} bytes");
        self.send_packet(to, class, Body::Payload(header, payload))
    }

    fn put(
        &mut self,
        to: Node,
        target: &Target,
        from: &Slice,
        event: Option<u64>,
        ticket: Ticket,
    ) -> Result<(), Refusal> {
        self.begin_put(to, target, from, event, ticket)
    }

    /// # Panics
    /// If there are too many bytes.
    #[inline]
    fn put_immediate(
        &mut self,
        to: Node,
        target: &Target,
        bytes: &[u8],
        event: Option<u64>,
    ) -> Result<(), Refusal> {
        assert!(bytes.len() <= self.inner.net.facts().fragment, "{} bytes at once", bytes.len());
        let Some(Location { name, .. }) = Location::decode(&target.key) else {
            self.nodes.live(to).ok_or(Refusal::Gone)?;
            self.mail.push_back(DeviceEvent::Refused { node: to, fault: Fault::Stale });
            return Ok(());
        };
        let put = PutHeader { name, offset: target.offset, event };
        self.send_now(to, &Header::Immediate(put), Body::Parts(&[bytes]))
    }

    fn get(
        &mut self,
        from: Node,
        target: &Target,
        into: &Slice,
        ticket: Ticket,
    ) -> Result<(), Refusal> {
        self.begin_get(from, target, into, ticket)
    }

    /// There are none.
    fn atomic(
        &mut self,
        at: Node,
        _: &Target,
        _: AtomicAccess,
        ticket: Ticket,
    ) -> Result<(), Refusal> {
        self.nodes.live(at).ok_or(Refusal::Gone)?;
        self.mail.push_back(DeviceEvent::Done { ticket, result: Err(Fault::Unsupported) });
        Ok(())
    }

    fn register(
        &mut self,
        memory: &Slice,
        access: Access,
        tag: u64,
    ) -> Result<(Registration, RemoteKey), RegisterError> {
        if self.opened.is_full() {
            return Err(RegisterError::TooMany { limit: self.opened.most() });
        }
        if access.allows(Access::WRITE) && !memory.is_writable() {
            return Err(RegisterError::ReadOnly);
        }
        let secret = getrandom::u64().map_err(|e| RegisterError::System(e.to_string()))?;
        // The library may hold what it opens longer than a program keeps it, or a device answers.
        let held = !memory.is_raw() && memory.device().is_none();
        let exposed = match self.reads && held && access.allows(Access::READ) {
            true => self.inner.net.open_memory(memory, Access::READ),
            false => None,
        };
        self.inner.counters.registrations += u64::from(exposed.is_some());
        let exposed = exposed.map(|exposed| {
            let place = N::location(&exposed);
            (exposed, place)
        });
        let opened = Opened { memory: memory.clone(), access, tag, secret };
        let added = self.opened.add(opened, exposed);
        added.ok_or_else(|| RegisterError::System("a key that is too long".to_owned()))
    }

    fn expose(
        &mut self,
        memory: &Slice,
        access: Access,
        tag: u64,
    ) -> Result<(Registration, RemoteKey), RegisterError> {
        self.begin_exposure(memory, access, tag)
    }

    fn readiness(&mut self, node: Node, key: &RemoteKey, put: bool) -> Readiness {
        self.ready(node, key, if put { Access::WRITE } else { Access::READ })
    }

    fn alloc(&mut self, len: usize) -> Region {
        let cache = &mut self.inner.cache;
        match cache.is_on() {
            true => cache::lend(cache.own(Region::zeroed(len))),
            false => Region::zeroed(len),
        }
    }

    fn deregister(&mut self, registration: Registration, ticket: Option<Ticket>) {
        if self.exposures.contains(registration) {
            return self.end_exposure(registration, ticket);
        }
        if self.opened.remove(registration, self.inner.now) {
            self.inner.net.close_memory();
        }
        // Only packets write, and they are refused from now on.
        if let Some(ticket) = ticket {
            self.mail.push_back(DeviceEvent::Done { ticket, result: Ok(SmallVec::new()) });
        }
    }

    fn holds(&self, memory: &Slice) -> bool {
        // The library's sends, and reads of ours that it has not completed, with nodes that are
        // lost, too; and memory of which such nodes may still be reading.
        self.inner.net.holds(memory) || self.opened.holds(memory)
    }

    fn reached_by(&self, ticket: Ticket) -> Option<Address> {
        self.holder(ticket)
    }

    #[inline]
    fn find_packet(&mut self) -> Search {
        self.find()
    }

    #[inline]
    fn read_found(&self, at: usize, room: &mut [u8]) {
        self.read(at, room);
    }

    fn copy_found(&self, at: usize, into: &Slice) {
        self.copy(at, into);
    }

    #[inline]
    fn take_found(&mut self) {
        self.found_taken();
    }

    #[inline]
    fn poll(&mut self, now: Time, data: bool, most: usize, events: &mut Vec<DeviceEvent>) -> bool {
        self.poll_within((now, data), most, events)
    }

    #[inline]
    fn sends_at_once(&self) -> bool {
        true
    }

    fn arm(&mut self, now: Time, data: bool) -> Sleep {
        if !self.mail.is_empty() || (data && !self.stash.is_empty()) || self.found.is_some() {
            return Sleep::Busy;
        }
        match self.inner.prepare(now, self.nodes.has_work()) {
            Sleep::Busy => Sleep::Busy,
            Sleep::Until(time) => Sleep::Until(time.min(self.next_time())),
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.inner.as_fd())
    }

    fn notifier(&self) -> Notifier {
        self.inner.control.notifier()
    }
}

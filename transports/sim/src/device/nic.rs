//! A NIC on the simulated network.

use super::{
    SCHEME,
    world::{EndpointId, InFlight, Kind, Shared},
};
use crate::wake::WakeFlag;
use petasos_channel::{
    Device, DeviceEvent, DeviceLimits,
    device::{
        AtomicAccess, Class, Node, Refusal, Registration, RemoteKey, Search, Target, Ticket, gather,
    },
};
use petasos_fabric::{
    Access, Address, Enforcement, Incarnation, Notifier, RegisterError, Sleep, Slice, Time,
};
use std::{os::fd::BorrowedFd, sync::Arc, time::Duration};

/// A NIC on a [`DeviceNet`](super::DeviceNet).
pub struct SimDevice {
    world: Shared,
    address: Address,
    id: EndpointId,
    incarnation: Incarnation,
    limits: DeviceLimits,
    wake: Arc<WakeFlag>,
    /// Whether packets are found; and the one that was, which is still in its slot.
    finds: bool,
    found: Option<(Node, Vec<u8>)>,
}

impl SimDevice {
    pub(super) fn new(
        world: Shared,
        address: Address,
        id: EndpointId,
        incarnation: Incarnation,
    ) -> SimDevice {
        let config = world.lock().config.clone();
        let limits = DeviceLimits {
            packet: config.packet,
            immediate: config.immediate,
            transfer: config.transfer,
            atomic: 64,
            processor_atomics: true,
            registrations: config.registrations,
            passive_target: true,
            serves_from: 0,
            serves_events_from: 0,
            enforcement: Enforcement::Device,
            puts_are_packets: false,
        };
        let (finds, wake) = (config.finds, Arc::default());
        SimDevice { world, address, id, incarnation, limits, wake, finds, found: None }
    }
}

impl Device for SimDevice {
    fn scheme(&self) -> &'static str {
        SCHEME
    }

    fn address(&self) -> &Address {
        &self.address
    }

    fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    fn limits(&self) -> DeviceLimits {
        self.limits
    }

    fn resolve(&mut self, address: &Address, patience: Duration) {
        self.world.lock().dial(self.id, address, patience);
    }

    fn close(&mut self, node: Node) {
        self.found = None;
        self.world.lock().close(self.id, node);
    }

    /// # Panics
    /// If the packet is too long.
    fn send(&mut self, to: Node, class: Class, parts: &[&[u8]]) -> Result<(), Refusal> {
        let bytes = gather(parts);
        assert!(bytes.len() <= self.limits.packet, "a packet of {} bytes", bytes.len());
        self.world.lock().launch(self.id, to, InFlight::Packet { class, bytes })
    }

    fn put(
        &mut self,
        to: Node,
        target: &Target,
        from: &Slice,
        event: Option<u64>,
        ticket: Ticket,
    ) -> Result<(), Refusal> {
        assert!(from.len() <= self.limits.transfer, "a put of {} bytes", from.len());
        let kind = Kind::Put { from: from.clone(), event };
        self.world.lock().operate(self.id, to, target, ticket, kind)
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
        assert!(bytes.len() <= self.limits.immediate, "{} bytes at once", bytes.len());
        let (target, bytes) = (target.clone(), gather(&[bytes]));
        self.world.lock().launch(self.id, to, InFlight::Immediate { target, bytes, event })
    }

    fn get(
        &mut self,
        from: Node,
        target: &Target,
        into: &Slice,
        ticket: Ticket,
    ) -> Result<(), Refusal> {
        assert!(into.len() <= self.limits.transfer, "a get of {} bytes", into.len());
        let kind = Kind::Get { into: into.clone() };
        self.world.lock().operate(self.id, from, target, ticket, kind)
    }

    fn atomic(
        &mut self,
        at: Node,
        target: &Target,
        access: AtomicAccess,
        ticket: Ticket,
    ) -> Result<(), Refusal> {
        self.world.lock().operate(self.id, at, target, ticket, Kind::Atomic(access))
    }

    fn register(
        &mut self,
        memory: &Slice,
        access: Access,
        tag: u64,
    ) -> Result<(Registration, RemoteKey), RegisterError> {
        self.world.lock().register(self.id, memory, access, tag)
    }

    fn deregister(&mut self, registration: Registration, ticket: Option<Ticket>) {
        self.world.lock().deregister(self.id, registration, ticket);
    }

    fn find_packet(&mut self) -> Search {
        if !self.finds {
            return Search::Poll;
        }
        match self.world.lock().find(self.id) {
            Some(Some((node, bytes))) => {
                let len = bytes.len();
                self.found = Some((node, bytes));
                Search::Found(node, len)
            }
            Some(None) => Search::Nothing,
            None => Search::Poll,
        }
    }

    fn read_found(&self, at: usize, room: &mut [u8]) {
        let (_, bytes) = self.found.as_ref().expect("a packet that was found");
        room.copy_from_slice(&bytes[at..at + room.len()]);
    }

    fn take_found(&mut self) {
        if self.found.take().is_some() {
            self.world.lock().take(self.id);
        }
    }

    /// `now` is not looked at: the network knows the time.
    fn poll(&mut self, _: Time, data: bool, most: usize, events: &mut Vec<DeviceEvent>) -> bool {
        self.found = None;
        self.world.lock().poll(self.id, data, most, events)
    }

    fn arm(&mut self, _: Time, data: bool) -> Sleep {
        let woken = self.wake.take();
        let busy = woken || self.world.lock().has_mail(self.id, data);
        if busy { Sleep::Busy } else { Sleep::Until(Time::NEVER) }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn notifier(&self) -> Notifier {
        Notifier::new(self.wake.clone())
    }
}

impl Drop for SimDevice {
    fn drop(&mut self) {
        self.world.lock().end(self.id);
    }
}

impl std::fmt::Debug for SimDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimDevice({})", self.address)
    }
}

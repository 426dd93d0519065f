//! A device of the channels' with two nodes behind it, which do what a script says. The device
//! itself keeps its promises: it checks rights, and each access ends once.

use petasos_channel::{
    Device, DeviceEvent, DeviceLimits,
    device::{
        AtomicAccess, Class, Fault, Node, Refusal, Registration, RemoteKey, Target, Ticket, gather,
    },
};
use petasos_fabric::{
    Access, Address, Enforcement, Incarnation, LostReason, Notifier, Notify, RegisterError, Sleep,
    Slice, Time,
};
use slab::Slab;
use smallvec::smallvec;
use std::{
    collections::VecDeque,
    os::fd::BorrowedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Nodes that there are.
pub const NODES: usize = 2;
/// Packets of a class that wait to be taken; registrations.
const SLOTS: usize = 16;
const REGISTRATIONS: usize = 40;
const LIMITS: DeviceLimits = DeviceLimits {
    packet: 256,
    immediate: 64,
    transfer: 4096,
    atomic: 16,
    processor_atomics: true,
    registrations: REGISTRATIONS,
    passive_target: true,
    serves_from: 0,
    serves_events_from: 0,
    enforcement: Enforcement::Device,
    puts_are_packets: false,
};

/// The endpoint's side.
pub struct Nic {
    address: Address,
    wires: Wires,
}

/// The script's side. Clones are the same device.
#[derive(Clone, Default)]
pub struct Wires(Arc<Mutex<State>>);

/// What the device knows.
#[derive(Default)]
pub struct State {
    mail: VecDeque<DeviceEvent>,
    data: VecDeque<DeviceEvent>,
    /// The incarnation of each node that is up, counted from 1.
    up: [Option<u64>; NODES],
    lives: u64,
    /// Whether it takes nothing that goes to nodes, and for which nodes it has said so.
    full: bool,
    told: [bool; NODES],
    opened: Slab<Opened>,
    running: VecDeque<Running>,
    /// What went to nodes, as packets and puts: to be looked at.
    pub sent: Vec<(usize, Vec<u8>)>,
}

struct Opened {
    memory: Slice,
    access: Access,
    tag: u64,
}

/// An access of the endpoint's.
struct Running {
    node: usize,
    ticket: Ticket,
    /// What a get writes, and how long the answer to an atomic is.
    into: Option<Slice>,
    old: usize,
}

fn node_of(event: &DeviceEvent) -> Option<usize> {
    match event {
        DeviceEvent::Up { node, .. }
        | DeviceEvent::Lost { node, .. }
        | DeviceEvent::Packet { node, .. }
        | DeviceEvent::PutArrived { node, .. }
        | DeviceEvent::Refused { node, .. }
        | DeviceEvent::Room { node } => Some(node.0 as usize),
        _ => None,
    }
}

impl Nic {
    /// A device, and the script's hold on it.
    #[must_use]
    pub fn new() -> (Nic, Wires) {
        let wires = Wires::default();
        let address = Address::parse("nic://victim").expect("an address");
        (Nic { address, wires: wires.clone() }, wires)
    }
}

impl Wires {
    /// The state, for the moment.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address of a node.
    #[must_use]
    pub fn address(node: usize) -> Address {
        Address::parse(&format!("nic://{node}")).expect("an address")
    }
}

impl State {
    /// A node comes up, in a new life. Its incarnation is 1 more than the lives before.
    pub fn rise(&mut self, node: usize) {
        if self.up[node].is_none() {
            self.lives += 1;
            self.up[node] = Some(self.lives);
            let (address, node) = (Wires::address(node), Node(node as u32));
            let incarnation = Incarnation::new(self.lives).expect("not zero");
            self.mail.push_back(DeviceEvent::Up { node, address, incarnation });
        }
    }

    /// A node is lost.
    pub fn lose(&mut self, node: usize) {
        if self.up[node].take().is_some() {
            let data = std::mem::take(&mut self.data);
            let (last, rest) = data.into_iter().partition(|event| node_of(event) == Some(node));
            self.data = rest;
            self.mail.extend::<VecDeque<_>>(last);
            self.fail(node);
            let (node, reason) = (Node(node as u32), LostReason::Closed);
            self.mail.push_back(DeviceEvent::Lost { node, reason });
        }
    }

    fn fail(&mut self, node: usize) {
        let running = std::mem::take(&mut self.running);
        for of in running {
            match of.node == node {
                true => {
                    let (ticket, result) = (of.ticket, Err(Fault::Lost));
                    self.mail.push_back(DeviceEvent::Done { ticket, result });
                }
                false => self.running.push_back(of),
            }
        }
    }

    /// A node sends a packet, if there is room. True if it did.
    pub fn packet(&mut self, node: usize, class: Class, bytes: &[u8]) -> bool {
        let queue = if class == Class::Data { &mut self.data } else { &mut self.mail };
        let room = self.up[node].is_some() && queue.len() < SLOTS && bytes.len() <= LIMITS.packet;
        if room {
            let (node, bytes) = (Node(node as u32), gather(&[bytes]));
            queue.push_back(DeviceEvent::Packet { node, class, bytes });
        }
        room
    }

    /// A node puts into memory that is open to writing. True if the device let it.
    pub fn put(
        &mut self,
        node: usize,
        slot: usize,
        at: usize,
        bytes: &[u8],
        event: Option<u64>,
    ) -> bool {
        let opened = self.opened.get(slot).filter(|opened| opened.access.allows(Access::WRITE));
        let Some(opened) = opened.filter(|_| self.up[node].is_some()) else { return false };
        let Some(memory) = opened.memory.part(at, bytes.len()) else { return false };
        if self.mail.len() >= SLOTS {
            return false;
        }
        memory.write(0, bytes);
        let (tag, node) = (opened.tag, Node(node as u32));
        let (offset, len) = (at as u64, bytes.len() as u64);
        let arrived = |data| DeviceEvent::PutArrived { node, tag, offset, len, data };
        self.mail.extend(event.map(arrived));
        true
    }

    /// An access of the endpoint's ends.
    pub fn finish(&mut self, nth: usize, fault: Option<Fault>, pattern: u8) {
        let Some(of) = self.running.remove(nth % self.running.len().max(1)) else { return };
        let result = match fault {
            Some(fault) => Err(fault),
            None => {
                of.into.inspect(|into| into.write(0, &vec![pattern; into.len()]));
                Ok(smallvec![pattern; of.old])
            }
        };
        self.mail.push_back(DeviceEvent::Done { ticket: of.ticket, result });
    }

    /// It has no room for what goes to nodes, or has room again.
    pub fn set_full(&mut self, full: bool) {
        self.full = full;
        if !full {
            for node in 0..NODES {
                if std::mem::take(&mut self.told[node]) && self.up[node].is_some() {
                    self.mail.push_back(DeviceEvent::Room { node: Node(node as u32) });
                }
            }
        }
    }

    /// Registrations that there are.
    #[must_use]
    pub fn opened(&self) -> usize {
        self.opened.len()
    }

    /// The endpoint is gone.
    pub fn clear(&mut self) {
        *self = State::default();
    }

    fn admit(&mut self, to: Node) -> Result<usize, Refusal> {
        let node = to.0 as usize;
        if self.up.get(node).is_none_or(Option::is_none) {
            return Err(Refusal::Gone);
        }
        if self.full || self.running.len() >= SLOTS {
            self.told[node] = true;
            return Err(Refusal::Full);
        }
        Ok(node)
    }

    fn run(
        &mut self,
        to: Node,
        ticket: Ticket,
        into: Option<Slice>,
        old: usize,
    ) -> Result<usize, Refusal> {
        let node = self.admit(to)?;
        self.running.push_back(Running { node, ticket, into, old });
        Ok(node)
    }
}

struct Silent;

impl Notify for Silent {
    fn notify(&self) {}
}

impl Device for Nic {
    fn scheme(&self) -> &'static str {
        "nic"
    }

    fn address(&self) -> &Address {
        &self.address
    }

    fn incarnation(&self) -> Incarnation {
        Incarnation::new(77).expect("not zero")
    }

    fn limits(&self) -> DeviceLimits {
        LIMITS
    }

    /// The script says when nodes come up, whether they are resolved or not.
    fn resolve(&mut self, _: &Address, _: Duration) {}

    fn close(&mut self, node: Node) {
        let mut state = self.wires.state();
        let node = node.0 as usize;
        state.up[node] = None;
        state.mail.retain(|event| node_of(event) != Some(node));
        state.data.retain(|event| node_of(event) != Some(node));
        state.fail(node);
    }

    fn send(&mut self, to: Node, _: Class, parts: &[&[u8]]) -> Result<(), Refusal> {
        let mut state = self.wires.state();
        let (node, packet) = (state.admit(to)?, parts.concat());
        assert!(packet.len() <= LIMITS.packet, "a packet of {} bytes", packet.len());
        state.sent.push((node, packet));
        Ok(())
    }

    fn put(
        &mut self,
        to: Node,
        _: &Target,
        from: &Slice,
        _: Option<u64>,
        ticket: Ticket,
    ) -> Result<(), Refusal> {
        assert!(from.len() <= LIMITS.transfer, "a put of {} bytes", from.len());
        let mut state = self.wires.state();
        let node = state.run(to, ticket, None, 0)?;
        state.sent.push((node, from.to_vec()));
        Ok(())
    }

    fn put_immediate(
        &mut self,
        to: Node,
        _: &Target,
        bytes: &[u8],
        _: Option<u64>,
    ) -> Result<(), Refusal> {
        assert!(bytes.len() <= LIMITS.immediate, "{} bytes at once", bytes.len());
        let mut state = self.wires.state();
        let node = state.admit(to)?;
        state.sent.push((node, bytes.to_vec()));
        Ok(())
    }

    fn get(&mut self, from: Node, _: &Target, into: &Slice, ticket: Ticket) -> Result<(), Refusal> {
        assert!(into.len() <= LIMITS.transfer, "a get of {} bytes", into.len());
        self.wires.state().run(from, ticket, Some(into.clone()), 0).map(|_| ())
    }

    fn atomic(
        &mut self,
        at: Node,
        _: &Target,
        access: AtomicAccess,
        ticket: Ticket,
    ) -> Result<(), Refusal> {
        self.wires.state().run(at, ticket, None, access.operand.len()).map(|_| ())
    }

    fn register(
        &mut self,
        memory: &Slice,
        access: Access,
        tag: u64,
    ) -> Result<(Registration, RemoteKey), RegisterError> {
        let mut state = self.wires.state();
        if state.opened.len() >= REGISTRATIONS {
            return Err(RegisterError::TooMany { limit: REGISTRATIONS });
        }
        let slot = state.opened.insert(Opened { memory: memory.clone(), access, tag });
        let key = RemoteKey::new(&[slot as u8; 8]).expect("a key of 8 bytes");
        Ok((Registration(slot as u64), key))
    }

    fn deregister(&mut self, registration: Registration, ticket: Option<Ticket>) {
        let mut state = self.wires.state();
        assert!(state.opened.try_remove(registration.0 as usize).is_some(), "closed twice");
        let done = |ticket| DeviceEvent::Done { ticket, result: Ok(smallvec![]) };
        state.mail.extend(ticket.map(done));
    }

    fn poll(&mut self, _: Time, data: bool, most: usize, events: &mut Vec<DeviceEvent>) -> bool {
        let mut state = self.wires.state();
        let before = events.len();
        let count = state.mail.len().min(most);
        events.extend(state.mail.drain(..count));
        if data {
            let count = state.data.len().min(most - count);
            events.extend(state.data.drain(..count));
        }
        events.len() > before
    }

    fn arm(&mut self, _: Time, data: bool) -> Sleep {
        let state = self.wires.state();
        let busy = !state.mail.is_empty() || (data && !state.data.is_empty());
        if busy { Sleep::Busy } else { Sleep::Until(Time::NEVER) }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn notifier(&self) -> Notifier {
        Notifier::new(Arc::new(Silent))
    }
}

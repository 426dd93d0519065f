//! A device that goes on writing to memory after it said that an access to a lost peer is over, as
//! libraries do: what it writes is no message.

use crate::common::{End, PATIENCE, address, message, net, open, read};
use petasos_channel::{
    Channels, Config, Device, DeviceEvent, DeviceLimits, Force,
    device::{AtomicAccess, Class, Fault, Node, Refusal, Registration, RemoteKey, Target, Ticket},
};
use petasos_fabric::{
    Access, Address, Endpoint, Event, Incarnation, Level, Notifier, Operation, Payload, Peer,
    RegisterError, Sleep, Slice, Time, Token,
};
use petasos_sim::device::{DeviceNet, SimDevice};
use std::{collections::HashMap, os::fd::BorrowedFd, time::Duration};

/// What comes late.
const LATE: u8 = 0xee;
/// Longer than a lease has room for without memory of its own, and no longer than a buffer.
const LEN: usize = 3000;

/// Writes to the memory of gets from lost peers, for ever.
struct Late {
    inner: SimDevice,
    gets: HashMap<Ticket, Slice>,
    held: Vec<Slice>,
}

impl Device for Late {
    fn scheme(&self) -> &'static str {
        self.inner.scheme()
    }
    fn address(&self) -> &Address {
        self.inner.address()
    }
    fn incarnation(&self) -> Incarnation {
        self.inner.incarnation()
    }
    fn limits(&self) -> DeviceLimits {
        self.inner.limits()
    }
    fn resolve(&mut self, address: &Address, patience: Duration) {
        self.inner.resolve(address, patience);
    }
    fn close(&mut self, node: Node) {
        self.inner.close(node);
    }
    fn send(&mut self, to: Node, class: Class, parts: &[&[u8]]) -> Result<(), Refusal> {
        self.inner.send(to, class, parts)
    }
    fn put(
        &mut self,
        to: Node,
        target: &Target,
        from: &Slice,
        event: Option<u64>,
        ticket: Ticket,
    ) -> Result<(), Refusal> {
        self.inner.put(to, target, from, event, ticket)
    }
    fn put_immediate(
        &mut self,
        to: Node,
        target: &Target,
        bytes: &[u8],
        event: Option<u64>,
    ) -> Result<(), Refusal> {
        self.inner.put_immediate(to, target, bytes, event)
    }
    fn get(
        &mut self,
        from: Node,
        target: &Target,
        into: &Slice,
        ticket: Ticket,
    ) -> Result<(), Refusal> {
        self.inner.get(from, target, into, ticket)?;
        self.gets.insert(ticket, into.clone());
        Ok(())
    }
    fn atomic(
        &mut self,
        at: Node,
        target: &Target,
        access: AtomicAccess,
        ticket: Ticket,
    ) -> Result<(), Refusal> {
        self.inner.atomic(at, target, access, ticket)
    }
    fn register(
        &mut self,
        memory: &Slice,
        access: Access,
        tag: u64,
    ) -> Result<(Registration, RemoteKey), RegisterError> {
        self.inner.register(memory, access, tag)
    }
    fn deregister(&mut self, registration: Registration, ticket: Option<Ticket>) {
        self.inner.deregister(registration, ticket);
    }
    fn poll(&mut self, now: Time, data: bool, most: usize, events: &mut Vec<DeviceEvent>) -> bool {
        let before = events.len();
        let worked = self.inner.poll(now, data, most, events);
        for event in &events[before..] {
            if let DeviceEvent::Done { ticket, result } = event
                && let Some(into) = self.gets.remove(ticket)
                && matches!(result, Err(Fault::Lost))
            {
                self.held.push(into);
            }
        }
        for memory in &self.held {
            memory.write(0, &vec![LATE; memory.len()]);
        }
        worked
    }
    fn arm(&mut self, now: Time, data: bool) -> Sleep {
        self.inner.arm(now, data)
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.fd()
    }
    fn notifier(&self) -> Notifier {
        self.inner.notifier()
    }
}

/// The receiver, and one sender at a time.
struct World {
    net: DeviceNet,
    config: Config,
    receiver: Channels<Late>,
    sender: Option<(End, Peer)>,
}

impl World {
    fn until(&mut self, mut seen: impl FnMut(&Channels<Late>, &[Event]) -> bool) -> Vec<Event> {
        let (mut events, limit) = (Vec::new(), self.net.now().after(Duration::from_millis(100)));
        while !seen(&self.receiver, &events) {
            assert!(self.net.now() < limit, "{events:?}");
            if let Some((sender, _)) = &mut self.sender {
                sender.progress(self.net.now(), 64, &mut Vec::new());
            }
            self.receiver.progress(self.net.now(), 64, &mut events);
            self.net.run_for(Duration::from_micros(1));
        }
        events
    }

    fn connect(&mut self, name: &str) {
        let mut sender = open(&self.net, name, &self.config);
        let peer = sender.resolve(&address("receiver"), PATIENCE).unwrap();
        self.sender = Some((sender, peer));
        self.until(|_, events| events.iter().any(|event| matches!(event, Event::PeerUp { .. })));
    }

    fn send(&mut self, from: u32, number: u32) {
        let (sender, peer) = self.sender.as_mut().unwrap();
        let payload = Payload::Memory(Slice::from(message(from, 0, number, LEN)));
        let (token, level) = (Token(number.into()), Level::Reusable);
        sender.submit(&mut [Operation::Send { token, peer: *peer, payload, level }].into());
    }
}

/// Senders die while their messages are fetched to buffers of the receiver's, which are written to
/// afterwards: no other sender's messages are fetched to those.
fn some_die(ahead: usize) {
    let net = net(3);
    let mut config = Config::default();
    (config.force, config.bounces, config.ahead) = (Force::Shared, 4, ahead);
    let inner = net.open(&address("receiver")).unwrap();
    let device = Late { inner, gets: HashMap::new(), held: Vec::new() };
    let receiver = Channels::new(device, config.clone());
    let mut world = World { net, config, receiver, sender: None };
    for round in 0..8 {
        world.connect(&format!("dies-{round}"));
        for number in 0..4 {
            world.send(round, number);
        }
        world.until(|receiver, _| receiver.device().gets.len() >= ahead.max(1));
        world.net.kill(&address(format!("dies-{round}")));
        world.sender = None;
        world.until(|_, events| events.iter().any(|e| matches!(e, Event::PeerLost { .. })));
    }
    assert!(world.receiver.device().held.len() >= 8, "nothing was under way");
    world.connect("lives");
    for number in 0..16 {
        world.send(99, number);
        let is = |event: &Event| matches!(event, Event::Message { .. });
        for event in world.until(|_, events| events.iter().any(is)) {
            if let Event::Message { message, .. } = event {
                assert_eq!(read(&message), (99, 0, number));
            }
        }
    }
}

#[test]
fn what_is_fetched_in_its_turn() {
    some_die(1);
}

#[test]
fn what_is_fetched_ahead_of_its_turn() {
    some_die(2);
}

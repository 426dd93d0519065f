//! The shortest device: two ends in one process, each with a queue of what the other one sent. Its
//! puts are in memory when they return, so what is counted over it is the channels' own.

use petasos::{
    channel::{
        Device, DeviceEvent, DeviceLimits,
        device::{
            AtomicAccess, Class, Fault, Node, Refusal, Registration, RemoteKey, Target, Ticket,
            gather,
        },
    },
    fabric::{
        Access, Address, AddressError, Enforcement, Incarnation, Notifier, Notify, RegisterError,
        Sleep, Slice, Time,
    },
};
use std::{
    collections::VecDeque,
    os::fd::BorrowedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// The other end, of which there is one.
const OTHER: Node = Node(0);

/// What one end has.
#[derive(Default)]
struct Side {
    mail: VecDeque<DeviceEvent>,
    /// Registered memory, by the number of its registration.
    opened: Vec<Option<Opened>>,
}

struct Opened {
    memory: Slice,
    tag: u64,
}

/// One end.
pub(crate) struct End {
    sides: Arc<[Mutex<Side>; 2]>,
    at: usize,
    addresses: [Address; 2],
    incarnations: [Incarnation; 2],
}

struct Silent;

impl Notify for Silent {
    fn notify(&self) {}
}

/// Two ends that reach each other.
pub(crate) fn pair() -> Result<[End; 2], AddressError> {
    let sides: Arc<[Mutex<Side>; 2]> = Arc::default();
    let addresses = [Address::parse("wire://a")?, Address::parse("wire://b")?];
    let incarnations = [(); 2].map(|()| Incarnation::random());
    Ok([0, 1].map(|at| End {
        sides: Arc::clone(&sides),
        at,
        addresses: addresses.clone(),
        incarnations,
    }))
}

impl End {
    fn side(&self, at: usize) -> MutexGuard<'_, Side> {
        self.sides[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn own(&self) -> MutexGuard<'_, Side> {
        self.side(self.at)
    }

    fn other(&self) -> MutexGuard<'_, Side> {
        self.side(1 - self.at)
    }
}

impl Side {
    /// The memory that a key names: it is the number of its registration.
    fn opened(&self, key: &RemoteKey) -> Option<&Opened> {
        let number = u64::from_le_bytes(key.as_bytes().try_into().ok()?);
        self.opened.get(usize::try_from(number).ok()?)?.as_ref()
    }

    /// A part of that memory, and its tag.
    fn part(&self, target: &Target, len: usize) -> Result<(Slice, u64), Fault> {
        let opened = self.opened(&target.key).ok_or(Fault::Stale)?;
        let at = usize::try_from(target.offset).map_err(|_| Fault::OutOfBounds)?;
        Ok((opened.memory.part(at, len).ok_or(Fault::OutOfBounds)?, opened.tag))
    }

    /// The bytes are at their place.
    fn arrived(&mut self, tag: u64, offset: u64, len: usize, event: Option<u64>) {
        let of = |data| DeviceEvent::PutArrived { node: OTHER, tag, offset, len: len as u64, data };
        self.mail.extend(event.map(of));
    }

    fn done(&mut self, ticket: Ticket, result: Result<(), Fault>) {
        let result = result.map(|()| Default::default());
        self.mail.push_back(DeviceEvent::Done { ticket, result });
    }
}

impl Device for End {
    fn scheme(&self) -> &'static str {
        "wire"
    }

    fn address(&self) -> &Address {
        &self.addresses[self.at]
    }

    fn incarnation(&self) -> Incarnation {
        self.incarnations[self.at]
    }

    fn limits(&self) -> DeviceLimits {
        DeviceLimits {
            packet: 64 << 10,
            immediate: 256,
            transfer: 1 << 30,
            atomic: 0,
            processor_atomics: false,
            registrations: 1 << 16,
            passive_target: true,
            serves_from: u64::MAX,
            serves_events_from: u64::MAX,
            enforcement: Enforcement::Device,
            puts_are_packets: false,
        }
    }

    fn resolve(&mut self, _: &Address, _: Duration) {
        for at in 0..2 {
            let (address, incarnation) =
                (self.addresses[1 - at].clone(), self.incarnations[1 - at]);
            self.side(at).mail.push_back(DeviceEvent::Up { node: OTHER, address, incarnation });
        }
    }

    fn close(&mut self, _: Node) {}

    fn send(&mut self, _: Node, class: Class, parts: &[&[u8]]) -> Result<(), Refusal> {
        let bytes = gather(parts);
        self.other().mail.push_back(DeviceEvent::Packet { node: OTHER, class, bytes });
        Ok(())
    }

    fn put(
        &mut self,
        _: Node,
        target: &Target,
        from: &Slice,
        event: Option<u64>,
        ticket: Ticket,
    ) -> Result<(), Refusal> {
        let mut other = self.other();
        let part = other.part(target, from.len());
        let result = part.map(|(part, tag)| {
            from.copy_to(&part);
            other.arrived(tag, target.offset, part.len(), event);
        });
        drop(other);
        self.own().done(ticket, result);
        Ok(())
    }

    fn put_immediate(
        &mut self,
        _: Node,
        target: &Target,
        bytes: &[u8],
        event: Option<u64>,
    ) -> Result<(), Refusal> {
        let mut other = self.other();
        match other.part(target, bytes.len()) {
            Ok((part, tag)) => {
                part.write(0, bytes);
                other.arrived(tag, target.offset, bytes.len(), event);
            }
            Err(fault) => {
                drop(other);
                self.own().mail.push_back(DeviceEvent::Refused { node: OTHER, fault });
            }
        }
        Ok(())
    }

    fn get(
        &mut self,
        _: Node,
        target: &Target,
        into: &Slice,
        ticket: Ticket,
    ) -> Result<(), Refusal> {
        let part = self.other().part(target, into.len());
        self.own().done(ticket, part.map(|(part, _)| _ = part.copy_to(into)));
        Ok(())
    }

    fn atomic(
        &mut self,
        _: Node,
        _: &Target,
        _: AtomicAccess,
        ticket: Ticket,
    ) -> Result<(), Refusal> {
        self.own().done(ticket, Err(Fault::Unsupported));
        Ok(())
    }

    fn register(
        &mut self,
        memory: &Slice,
        _: Access,
        tag: u64,
    ) -> Result<(Registration, RemoteKey), RegisterError> {
        let mut own = self.own();
        let number = own.opened.len() as u64;
        let key = RemoteKey::new(&number.to_le_bytes());
        let key = key.ok_or_else(|| RegisterError::System("a key that is too long".to_owned()))?;
        own.opened.push(Some(Opened { memory: memory.clone(), tag }));
        Ok((Registration(number), key))
    }

    fn deregister(&mut self, registration: Registration, ticket: Option<Ticket>) {
        let mut own = self.own();
        own.opened[registration.0 as usize] = None;
        if let Some(ticket) = ticket {
            own.done(ticket, Ok(()));
        }
    }

    fn poll(&mut self, _: Time, _: bool, most: usize, events: &mut Vec<DeviceEvent>) -> bool {
        let mut own = self.own();
        let before = events.len();
        for _ in 0..most.min(own.mail.len()) {
            events.extend(own.mail.pop_front());
        }
        events.len() > before
    }

    fn sends_at_once(&self) -> bool {
        true
    }

    fn arm(&mut self, _: Time, _: bool) -> Sleep {
        match self.own().mail.is_empty() {
            true => Sleep::Until(Time::NEVER),
            false => Sleep::Busy,
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn notifier(&self) -> Notifier {
        Notifier::new(Arc::new(Silent))
    }
}

//! What an RDMA network offers: short packets to any node, and access to registered memory.
//!
//! # Using a device
//!
//! Nodes are found by [`Device::resolve`]; [`DeviceEvent::Up`] tells a node's number, at both
//! sides. What is accepted from then on is carried out: a device may make the user wait
//! ([`Refusal::Full`], and then [`DeviceEvent::Room`]), but loses nothing unless it says that the
//! node is lost.
//!
//! # Providing one
//!
//! * Every accepted put, get and atomic raises exactly one [`DeviceEvent::Done`]. Packets and
//!   immediate puts are taken before the call returns, and raise nothing.
//! * Packets of one class from one node arrive in the order in which they were sent. Nothing else
//!   is ordered: not the two classes with each other, not puts with each other or with packets.
//! * Both classes have slots of their own, at the sender and at the receiver: data packets
//!   that are not taken in hold up no control packets.
//! * [`DeviceEvent::Up`] comes before anything else of a node. [`DeviceEvent::Lost`] comes last,
//!   after the completions of all that was under way with it; from then on the device touches no
//!   memory on behalf of that node. The same holds once [`Device::close`] has returned, but for the
//!   completions, which may still come. But a get of memory that was [exposed](Device::expose) may
//!   complete later, and local memory of an access that ended with [`Fault::Lost`] may be written
//!   for as long as the device holds it: it is not used again. Not so memory that only its program
//!   keeps ([`Slice::raw`]): of that the device holds none, and touches none after the completion,
//!   after `Lost`, or after the close.
//! * When a [`Device::deregister`] is over, nothing lands in that memory any more.
//! * A completed put is visible at the target, and what it carried to the target's events is, or
//!   will be, raised there.

use petasos_fabric::{
    Access, Address, AtomicOp, AtomicType, Buffer, Credential, Enforcement, Incarnation, Lease,
    LostReason, Notifier, Region, RegisterError, ResolveError, Sleep, Slice, Time,
    two_sided::Outgoing,
};
use smallvec::SmallVec;
use std::{os::fd::BorrowedFd, time::Duration};

/// A node of the network as one device knows it: a small number, used again once the node is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub u32);

/// The user's name of an operation, which its completion carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// A registration of memory: the device's own name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Registration(pub u64);

/// A key to registered memory, to be sent to the other side: at most [`RemoteKey::MAX`] opaque
/// bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteKey(SmallVec<[u8; 24]>);

impl RemoteKey {
    /// The longest key in bytes.
    pub const MAX: usize = 160;

    /// A key of these bytes; `None` if they are too many.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<RemoteKey> {
        (bytes.len() <= RemoteKey::MAX).then(|| RemoteKey(SmallVec::from_slice(bytes)))
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Which slots a packet takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// The slots that all senders share.
    Data,
    /// The slots for credit, and for all that keeps the rest going.
    Control,
}

/// Where in a remote node's memory an access begins.
#[derive(Clone, Debug)]
pub struct Target {
    /// Which memory.
    pub key: RemoteKey,
    /// Where in it, in bytes.
    pub offset: u64,
}

/// An atomic access: as in [`petasos_fabric::Operation::Atomic`].
#[derive(Clone, Debug)]
pub struct AtomicAccess {
    /// What to do.
    pub op: AtomicOp,
    /// Of which type the elements are.
    pub kind: AtomicType,
    /// Little-endian elements.
    pub operand: SmallVec<[u8; 16]>,
    /// As many, to compare with, for a compare and swap; else empty.
    pub compare: SmallVec<[u8; 16]>,
}

/// Why an operation was not accepted. Nothing of it has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// No room now; [`DeviceEvent::Room`] follows.
    #[error("the device's queue to this node is full")]
    Full,
    /// There is no such node any more.
    #[error("the node is lost")]
    Gone,
}

/// Whether an access to memory that was exposed can be handed to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It can.
    Now,
    /// Not yet; [`DeviceEvent::Room`] follows when that changes.
    Later,
    /// Not by this device: the owner's program is to serve it.
    Never,
}

/// Why an access failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The memory is not registered any more, or never was.
    #[error("the memory is not registered")]
    Stale,
    /// The registration does not give this right.
    #[error("the registration does not allow it")]
    Denied,
    /// Beyond the end.
    #[error("beyond the end of the memory")]
    OutOfBounds,
    /// Not aligned to its type.
    #[error("not aligned")]
    Misaligned,
    /// The device cannot do that.
    #[error("the device cannot do that")]
    Unsupported,
    /// The node is lost; whether the access took effect is not known.
    #[error("the node is lost")]
    Lost,
}

/// What happened at a device.
#[derive(Debug)]
#[non_exhaustive]
pub enum DeviceEvent {
    /// A node can be reached; also one that reached for us.
    Up {
        /// Its number from now on.
        node: Node,
        /// Where it is.
        address: Address,
        /// Which life of it.
        incarnation: Incarnation,
    },
    /// An address that was resolved was not reached.
    Unreachable {
        /// Which.
        address: Address,
        /// Why: it was tried for long enough, or refused us.
        reason: LostReason,
    },
    /// A node is lost, and all that was under way with it has completed.
    Lost {
        /// Which. The number may be used again.
        node: Node,
        /// Why.
        reason: LostReason,
    },
    /// A packet came.
    Packet {
        /// Its sender.
        node: Node,
        /// In which slots.
        class: Class,
        /// Its bytes: see [`gather`].
        bytes: Lease,
    },
    /// A put with event is visible in memory of this side.
    PutArrived {
        /// By which node.
        node: Node,
        /// The tag with which that memory was registered.
        tag: u64,
        /// Where in it the put began, in bytes.
        offset: u64,
        /// How long it was, in bytes.
        len: u64,
        /// The data of the event.
        data: u64,
    },
    /// The one completion of an operation.
    Done {
        /// Which.
        ticket: Ticket,
        /// How it went; for an atomic, the old values.
        result: Result<SmallVec<[u8; 16]>, Fault>,
    },
    /// An immediate put was refused by its target.
    Refused {
        /// By which node.
        node: Node,
        /// Why.
        fault: Fault,
    },
    /// After [`Refusal::Full`]: there is room again. After [`Readiness::Later`]: ask again.
    Room {
        /// To which node.
        node: Node,
    },
}

/// What [`Device::find_packet`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// A packet, with its sender and its length in bytes.
    Found(Node, usize),
    /// Nothing has arrived. What else is to be done is done by [`Device::poll`].
    Nothing,
    /// Only [`Device::poll`] tells what comes next.
    Poll,
}

/// A packet, the concatenation of `parts`, in memory that is used again: a device that keeps
/// packets in such leases allocates nothing for them in the long run.
#[must_use]
pub fn gather(parts: &[&[u8]]) -> Lease {
    let len = parts.iter().map(|part| part.len()).sum();
    let fill = |mut room: &mut [u8]| {
        for part in parts {
            let (here, rest) = room.split_at_mut(part.len());
            here.copy_from_slice(part);
            room = rest;
        }
    };
    gather_with(len, fill)
}

/// The same for a packet of so many bytes that `fill` writes.
#[must_use]
pub fn gather_with(len: usize, fill: impl FnOnce(&mut [u8])) -> Lease {
    if len <= Lease::INLINE {
        return Lease::inline_with(len, fill);
    }
    let mut buffer = Buffer::scratch(len);
    fill(&mut buffer);
    buffer.into_lease()
}

/// What a device can do. In bytes unless said otherwise.
#[derive(Clone, Copy, Debug)]
pub struct DeviceLimits {
    /// The longest packet, of either class; at least 256.
    pub packet: usize,
    /// The longest immediate put; 0 if there is none.
    pub immediate: usize,
    /// The longest put or get.
    pub transfer: usize,
    /// The largest operand of an atomic; 0 if there are none.
    pub atomic: usize,
    /// Whether its atomics are coherent with atomic instructions of the target's processor.
    pub processor_atomics: bool,
    /// Registrations at a time.
    pub registrations: usize,
    /// Whether accesses complete though the target's program is not running.
    pub passive_target: bool,
    /// From which length on puts and gets of programs' memory are the device's. What is shorter is
    /// left to the two-sided engine. `u64::MAX`: all is, and atomics as well; then
    /// [`Channels`](crate::Channels) registers no memory but its own.
    pub serves_from: u64,
    /// The same for puts with event.
    pub serves_events_from: u64,
    /// What checks the rights on programs' memory.
    pub enforcement: Enforcement,
    /// Whether puts travel as packets, but for those that it serves: so an immediate put of any
    /// length costs no more than another one, and is preferred; and a put with event may be longer
    /// than `transfer`.
    pub puts_are_packets: bool,
}

impl DeviceLimits {
    /// Whether the device is for the memory of programs as well.
    #[must_use]
    pub fn exposes(&self) -> bool {
        self.serves_from < u64::MAX
    }
}

/// A network device. See the [module's documentation](self) for what is promised.
pub trait Device: Send {
    /// The scheme of its addresses.
    fn scheme(&self) -> &'static str;
    /// Where this side is reached: complete.
    fn address(&self) -> &Address;
    /// This life of it.
    fn incarnation(&self) -> Incarnation;
    /// What it can do.
    fn limits(&self) -> DeviceLimits;
    /// How nodes prove that they may reach it.
    fn credential(&self) -> Credential {
        Credential::None
    }

    /// Reaches for the node at `address` for as long as `patience`. Raises `Up` or `Unreachable`;
    /// nothing more if it is up already.
    fn resolve(&mut self, address: &Address, patience: Duration);
    /// The same for a node at an address in any spelling; what it returns is the one by which the
    /// node is reported. `running`: it is to be running already, and is not reached if nothing
    /// listens there, as far as the device can tell.
    ///
    /// # Errors
    /// The address is none of this device's.
    fn resolve_as(
        &mut self,
        address: &Address,
        patience: Duration,
        running: bool,
    ) -> Result<Address, ResolveError> {
        let (_, scheme) = (running, self.scheme());
        if address.scheme() != scheme {
            return Err(ResolveError::WrongScheme { address: address.clone(), scheme });
        }
        self.resolve(address, patience);
        Ok(address.clone())
    }
    /// Closes the connection with a node; the other side sees this one as lost. No `Lost` is raised
    /// here.
    fn close(&mut self, node: Node);

    /// Sends the concatenation of `parts` as a packet, of at most `limits.packet` bytes.
    fn send(&mut self, to: Node, class: Class, parts: &[&[u8]]) -> Result<(), Refusal>;
    /// The same for a header and a payload, which is read before the call returns, or, as far as it
    /// is bytes, held.
    fn send_payload(
        &mut self,
        to: Node,
        class: Class,
        header: &[u8],
        payload: &Outgoing,
    ) -> Result<(), Refusal> {
        match payload {
            Outgoing::Nothing => self.send(to, class, &[header]),
            Outgoing::Bytes(bytes) => self.send(to, class, &[header, bytes]),
            Outgoing::Memory(_) => {
                let mut copy = Vec::with_capacity(payload.len());
                payload.append_to(&mut copy);
                self.send(to, class, &[header, &copy])
            }
        }
    }
    /// Writes local memory to remote memory. With `event`, the target sees `PutArrived` once the
    /// data is there.
    fn put(
        &mut self,
        to: Node,
        target: &Target,
        from: &Slice,
        event: Option<u64>,
        ticket: Ticket,
    ) -> Result<(), Refusal>;
    /// Writes at most `limits.immediate` bytes, which ride in the descriptor. Raises no `Done`; if
    /// the target refuses it, `Refused`.
    fn put_immediate(
        &mut self,
        to: Node,
        target: &Target,
        bytes: &[u8],
        event: Option<u64>,
    ) -> Result<(), Refusal>;
    /// Reads remote memory into local memory.
    fn get(
        &mut self,
        from: Node,
        target: &Target,
        into: &Slice,
        ticket: Ticket,
    ) -> Result<(), Refusal>;
    /// Changes remote memory atomically.
    fn atomic(
        &mut self,
        at: Node,
        target: &Target,
        access: AtomicAccess,
        ticket: Ticket,
    ) -> Result<(), Refusal>;

    /// Opens memory to the network, under a tag of the user's that comes with `PutArrived`. The
    /// device holds the memory until it is deregistered.
    fn register(
        &mut self,
        memory: &Slice,
        access: Access,
        tag: u64,
    ) -> Result<(Registration, RemoteKey), RegisterError>;
    /// As [`Device::register`], for memory of programs, which nodes access if
    /// [`Device::readiness`] says that they can. A device may wait with opening it until one does.
    fn expose(
        &mut self,
        memory: &Slice,
        access: Access,
        tag: u64,
    ) -> Result<(Registration, RemoteKey), RegisterError> {
        self.register(memory, access, tag)
    }
    /// Whether a put, or a get, of memory that a node exposed can be handed over now.
    fn readiness(&mut self, node: Node, key: &RemoteKey, put: bool) -> Readiness {
        let _ = (node, key, put);
        Readiness::Now
    }
    /// Memory for programs, which the device may keep registered. `len` is not 0.
    fn alloc(&mut self, len: usize) -> Region {
        Region::zeroed(len)
    }
    /// Closes it. With a ticket, raises `Done` once nothing lands there any more. The memory is not
    /// lost to the device before, and its key is never another's.
    fn deregister(&mut self, registration: Registration, ticket: Option<Ticket>);
    /// Whether some of this memory is still the device's for what its caller has ended: a
    /// registration that was closed without a ticket, or what was under way with a node that was
    /// closed or lost.
    fn holds(&self, memory: &Slice) -> bool {
        let _ = memory;
        false
    }
    /// The peer that still reaches the memory that is closed under this ticket, if one does and
    /// the device knows it: to be named in errors.
    fn reached_by(&self, ticket: Ticket) -> Option<Address> {
        let _ = ticket;
        None
    }

    /// Looks for a packet of the data class that is the next thing that happened, and moves the
    /// device on no more than that takes. The packet that was found lies in memory of the device,
    /// where [`Device::read_found`] reads it until [`Device::take_found`] says that it was taken,
    /// the next [`Device::poll`] reports it, or its node is closed. Default: all packets are
    /// reported by `poll`.
    fn find_packet(&mut self) -> Search {
        Search::Poll
    }
    /// Copies from the found packet, from byte `at` on: as many bytes as there is room for.
    ///
    /// # Panics
    /// If that is beyond its end, or there is none.
    fn read_found(&self, at: usize, room: &mut [u8]) {
        unreachable!("{} bytes at {at} of a packet that was not found", room.len());
    }
    /// The same into memory, as many bytes as it has.
    ///
    /// # Panics
    /// As [`Device::read_found`].
    fn copy_found(&self, at: usize, into: &Slice) {
        let mut bytes = vec![0; into.len()];
        self.read_found(at, &mut bytes);
        into.write(0, &bytes);
    }
    /// The found packet was taken.
    fn take_found(&mut self) {}

    /// Moves the device on, and appends up to `most` things that happened. Leaves packets of the
    /// data class in their slots unless `data` is true. True if anything was done. Never blocks.
    fn poll(&mut self, now: Time, data: bool, most: usize, events: &mut Vec<DeviceEvent>) -> bool;

    /// Whether what is accepted is on its way when the call returns, and needs no further
    /// [`Device::poll`] for that. Default: it may need one.
    fn sends_at_once(&self) -> bool {
        false
    }

    /// As [`petasos_fabric::Endpoint::arm`]. With `data` false, packets of the data class that
    /// wait are no reason to stay awake.
    fn arm(&mut self, now: Time, data: bool) -> Sleep;
    /// As [`petasos_fabric::Endpoint::fd`].
    fn fd(&self) -> Option<BorrowedFd<'_>>;
    /// As [`petasos_fabric::Endpoint::notifier`].
    fn notifier(&self) -> Notifier;
}

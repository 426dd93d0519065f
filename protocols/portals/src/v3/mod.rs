//! The face of Portals 3.3, over the same core.
//!
//! It has what Portals 4 has not: match entries without memory, which are inserted anywhere in a
//! list, and get memory descriptors attached that are used up and exchanged; descriptors with
//! thresholds at both sides; events for the start of an operation and for its end; event queues
//! that belong to descriptors; access control by a list, of which a request names an entry;
//! get-put. It is ruled by the Portals 3.3 specification (Sandia National Laboratories); the docs
//! name its calls.
//!
//! ```
//! use petasos_fabric::Endpoint;
//! use petasos_portals::v3::{Interface, MemoryDescriptor, Position};
//! use petasos_portals::{Config, Event, ProcessId, ProcessMap, Target};
//! use std::{sync::Arc, time::Duration};
//!
//! let endpoint = petasos_self::Local::open(&"self://*".parse()?)?;
//! let map = Arc::new(ProcessMap::ranks([endpoint.address().clone()]));
//! let interface = Interface::open(Box::new(endpoint), map, Config::default())?;
//! let queue = interface.queue(16)?;
//!
//! // The target: an entry at portal 4 for match bits 7, and memory for two puts.
//! let entry = interface.attach_entry(4, ProcessId::ANY, 7, 0, false, Position::Last)?;
//! let wanted = MemoryDescriptor {
//!     queue: Some(queue),
//!     threshold: Some(2),
//!     put: true,
//!     ..MemoryDescriptor::new(vec![0; 64])
//! };
//! let descriptor = interface.attach(entry, wanted, true)?;
//!
//! // The initiator, here the same process: access control entry 0 admits its user.
//! let source = interface.bind(MemoryDescriptor::new(b"hello".to_vec()), false)?;
//! let target = Target { bits: 7, ..Target::new(ProcessId::rank(0), 4) };
//! interface.put(source, None, false, target, 0, 0)?;
//!
//! let second = Duration::from_secs(1);
//! assert!(matches!(interface.wait_event(queue, second)?.event, Event::Start(_)));
//! let Event::Served(end) = interface.wait_event(queue, second)?.event else { panic!() };
//! assert_eq!((end.memory_descriptor(), end.len), (descriptor, 5));
//! // It still takes one more.
//! assert_eq!(interface.inspect(descriptor)?.0, Some(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A descriptor is attached to an entry, for other processes, or bound. Operations of this process
//! are started from both kinds. What they may do is counted together with what other processes do,
//! and taken off the threshold when they are started. Events say which descriptor they are about:
//! [`Completed::memory_descriptor`](crate::Completed),
//! [`Served::memory_descriptor`](crate::Served), [`Listed::memory_descriptor`](crate::Listed).

mod descriptor;

pub use descriptor::{DescriptorHandle, MemoryDescriptor};

use crate::{
    Ack, Config, Descriptor, Directory, Error, EventQueue, Handle, MatchEntry, Memory, Operation,
    Part, Permit, PortalOptions, ProcessId, Taken, Target,
    access::AccessList,
    descriptor::Bound,
    matching::{At, EntryError},
    state::State,
};
use petasos_fabric::{Endpoint, Time};
use std::{sync::Arc, time::Duration};

/// Passes before an update, which take in what has come.
const PASSES: u32 = 100;

/// Where an entry is inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// At the head of the list.
    First,
    /// At its tail.
    Last,
    /// Before another entry, in its list.
    Before(Handle<MatchEntry>),
    /// Behind another entry.
    After(Handle<MatchEntry>),
}

/// A network interface of Portals 3.3 (`PtlNIInit`). It is driven as
/// [`petasos_portals::Interface`](crate::Interface) is, which lies below it
/// ([`Interface::inner`]).
///
/// ```
/// use petasos_fabric::Endpoint;
/// use petasos_portals::v3::{Interface, MemoryDescriptor, Position};
/// use petasos_portals::{Config, Error, Permit, ProcessId, ProcessMap};
/// use std::sync::Arc;
///
/// let endpoint = petasos_self::Local::open(&"self://*".parse()?)?;
/// let map = Arc::new(ProcessMap::ranks([endpoint.address().clone()]));
/// let interface = Interface::open(Box::new(endpoint), map, Config::default())?;
/// // Entry 1 of the access control list: user 1000, at portal 4 only.
/// interface.set_access(1, Some(Permit { portal: Some(4), ..Permit::user(1000) }))?;
///
/// // An entry for match bits 7, and memory that is exchanged as long as nothing has come.
/// let queue = interface.queue(16)?;
/// let entry = interface.attach_entry(4, ProcessId::ANY, 7, 0, false, Position::Last)?;
/// let memory = |len| MemoryDescriptor {
///     put: true,
///     queue: Some(queue),
///     ..MemoryDescriptor::new(vec![0; len])
/// };
/// let descriptor = interface.attach(entry, memory(8), false)?;
/// let before = interface.update(descriptor, memory(16), false, Some(queue))?;
/// assert_eq!(before.memory.len(), 8);
/// assert_eq!(interface.unlink(descriptor)?.len(), 16);
/// assert!(matches!(interface.unlink(descriptor), Err(Error::Handle(_))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Interface {
    inner: crate::Interface,
}

impl Interface {
    /// An interface over an endpoint whose address the directory knows. All portals are open.
    /// Access control has one entry, number 0: all processes of this user may do anything.
    ///
    /// # Errors
    /// As [`crate::Interface::open`].
    pub fn open(
        endpoint: Box<dyn Endpoint>,
        directory: Arc<dyn Directory>,
        config: Config,
    ) -> Result<Interface, Error> {
        Interface::of(crate::Interface::open(endpoint, directory, config)?)
    }

    /// The same over an interface that was just opened, for instance one with a given time.
    ///
    /// # Errors
    /// None now; a `Result` because that may change.
    pub fn of(inner: crate::Interface) -> Result<Interface, Error> {
        while inner.portal(PortalOptions::default()).is_ok() {}
        inner.with_state(|state| {
            let own = Permit::user(state.config.user);
            state.portals.set_access(AccessList::new(own));
        });
        Ok(Interface { inner })
    }

    /// The interface below, for what both faces have: status, queues, progress, the engine.
    #[must_use]
    pub fn inner(&self) -> &crate::Interface {
        &self.inner
    }

    /// One pass; see [`crate::Interface::progress_at`].
    pub fn progress_at(&self, now: Time) -> bool {
        self.inner.progress_at(now)
    }

    /// Makes a queue of so many events.
    ///
    /// # Errors
    /// As [`crate::Interface::queue`].
    pub fn queue(&self, capacity: usize) -> Result<Handle<EventQueue>, Error> {
        self.inner.queue(capacity)
    }

    /// Waits for the next event of a queue.
    ///
    /// # Errors
    /// As [`crate::Interface::wait_event`].
    pub fn wait_event(&self, queue: Handle<EventQueue>, timeout: Duration) -> Result<Taken, Error> {
        self.inner.wait_event(queue, timeout)
    }

    /// Sets an entry of the access control list, up to number 1023; `None` admits no process by it.
    ///
    /// # Errors
    /// [`Error::Argument`] for another number; [`Error::Portal`] and [`Error::Process`] for a
    /// portal, and for one process, that there is not.
    pub fn set_access(&self, index: u32, permit: Option<Permit>) -> Result<(), Error> {
        if index >= 1024 {
            return Err(Error::Argument("the access control list has 1024 entries"));
        }
        self.inner.with_state(|state| {
            if let Some(Permit { process, portal, .. }) = permit {
                if let Some(portal) =
                    portal.filter(|index| !state.portals.matching.has_index(*index))
                {
                    return Err(Error::Portal(portal));
                }
                if process.is_exact() {
                    state.network.check_process(process)?;
                }
            }
            if let Some(access) = state.portals.access_mut() {
                access.set(index as usize, permit);
            }
            Ok(())
        })
    }

    /// Inserts a match entry without memory into the list of a portal, at the head, at the tail, or
    /// beside an entry of that list (`PtlMEAttach`, `PtlMEInsert`). `unlink`: it is unlinked with
    /// its memory.
    ///
    /// # Errors
    /// [`Error::Portal`] beyond the limit of portals, [`Error::Process`] for a source that the
    /// directory does not know, [`Error::Handle`] if the neighbour is gone, [`Error::NoSpace`] at a
    /// limit.
    pub fn attach_entry(
        &self,
        portal: u16,
        source: ProcessId,
        bits: u64,
        ignore: u64,
        unlink: bool,
        position: Position,
    ) -> Result<Handle<MatchEntry>, Error> {
        let spec = MatchEntry { bits, ignore, source, ..MatchEntry::new(Memory::empty()) };
        self.inner.with_state(|state| {
            let limits = state.config.limits;
            let beside = |base| {
                let found = state.portals.matching.beside(base);
                found.map_err(|error| error.explain(portal, &limits)).map(|found| found.1)
            };
            let at = match position {
                Position::First => At::First,
                Position::Last => At::Last,
                Position::Before(base) => At::Before(beside(base)?),
                Position::After(base) => At::After(beside(base)?),
            };
            let placed = state.portals.matching.insert_empty(portal, spec, at, unlink);
            placed.map_err(|error| error.explain(portal, &limits))
        })
    }

    /// The same at any portal that has no entries (`PtlMEAttachAny`). Gives the portal, too.
    ///
    /// # Errors
    /// [`Error::NoPortal`] if all portals have entries, and as [`Interface::attach_entry`].
    pub fn attach_entry_anywhere(
        &self,
        source: ProcessId,
        bits: u64,
        ignore: u64,
        unlink: bool,
    ) -> Result<(u16, Handle<MatchEntry>), Error> {
        let free = self.inner.with_state(|state| state.portals.matching.unused_portal());
        let portal = free.ok_or(Error::NoPortal)?;
        let entry = self.attach_entry(portal, source, bits, ignore, unlink, Position::Last)?;
        Ok((portal, entry))
    }

    /// Unlinks an entry, with its memory (`PtlMEUnlink`). Refused while an operation is under way
    /// in that.
    ///
    /// # Errors
    /// [`Error::Handle`] if the entry is gone, [`Error::InUse`] while an operation is under way.
    pub fn unlink_entry(&self, entry: Handle<MatchEntry>) -> Result<(), Error> {
        self.inner.unlink(entry).map(drop)
    }

    /// Attaches memory to an entry without it (`PtlMDAttach`). `unlink`: it is unlinked when its
    /// threshold or its room is used up, and an event says so; else it stays, inactive.
    ///
    /// # Errors
    /// [`Error::Handle`] if the entry or a queue is gone, [`Error::InUse`] if the entry has memory,
    /// [`Error::NoSpace`] at a limit.
    pub fn attach(
        &self,
        entry: Handle<MatchEntry>,
        descriptor: MemoryDescriptor,
        unlink: bool,
    ) -> Result<DescriptorHandle, Error> {
        check_memory(&descriptor.memory)?;
        let spec = descriptor.into_entry(unlink);
        self.inner.with_state(|state| {
            state.check_entry(&spec)?;
            let serial = state.portals.matching.attach(entry, spec).map_err(of_descriptor)?;
            Ok(DescriptorHandle::Attached(entry, serial))
        })
    }

    /// Binds memory for operations of this process (`PtlMDBind`).
    ///
    /// # Errors
    /// [`Error::Handle`] for a stale queue, [`Error::NoSpace`] beyond the limit of descriptors.
    pub fn bind(
        &self,
        descriptor: MemoryDescriptor,
        unlink: bool,
    ) -> Result<DescriptorHandle, Error> {
        check_memory(&descriptor.memory)?;
        let bound = descriptor.into_bound(unlink);
        self.inner.with_state(|state| {
            state.events.check(bound.spec.queue, None)?;
            state.descriptors.bind(bound).map(DescriptorHandle::Free)
        })
    }

    /// Unlinks a descriptor (`PtlMDUnlink`), and gives its memory back; an entry that was attached
    /// with `unlink` goes with it. Refused while an operation is under way. Raises no event.
    ///
    /// # Errors
    /// [`Error::Handle`] if the descriptor is gone, [`Error::InUse`] while an operation is under
    /// way.
    pub fn unlink(&self, descriptor: DescriptorHandle) -> Result<Memory, Error> {
        match descriptor {
            DescriptorHandle::Free(handle) => Ok(self.inner.release(handle)?.memory),
            DescriptorHandle::Attached(entry, serial) => self.inner.with_state(|state| {
                let spec = state.portals.matching.detach(entry, serial).map_err(of_descriptor)?;
                Ok(spec.memory)
            }),
        }
    }

    /// How many operations may still use a descriptor (`None` for any number), and its own offset
    /// in bytes.
    ///
    /// # Errors
    /// [`Error::Handle`] if the descriptor is gone.
    pub fn inspect(&self, descriptor: DescriptorHandle) -> Result<(Option<u64>, u64), Error> {
        self.inner.with_state(|state| match descriptor {
            DescriptorHandle::Free(handle) => {
                let bound = state.descriptors.bound(handle)?;
                Ok((bound.left(&state.portals.matching), 0))
            }
            DescriptorHandle::Attached(entry, serial) => {
                let found = state.portals.matching.inspect(entry, serial);
                let (_, left, offset) = found.map_err(of_descriptor)?;
                Ok((left, offset))
            }
        })
    }

    /// Exchanges a descriptor for another in one step (`PtlMDUpdate`), if `if_empty` has no events:
    /// else [`Error::NoUpdate`], and nothing has changed. So no message is missed between a look at
    /// the queue and the exchange. Gives the one that was there, with the threshold that was left
    /// of it.
    ///
    /// # Errors
    /// [`Error::NoUpdate`] if the queue has events or an operation is under way, [`Error::Handle`]
    /// for what is gone.
    pub fn update(
        &self,
        descriptor: DescriptorHandle,
        new: MemoryDescriptor,
        unlink: bool,
        if_empty: Option<Handle<EventQueue>>,
    ) -> Result<MemoryDescriptor, Error> {
        check_memory(&new.memory)?;
        self.inner.with_state(|state| {
            if let Some(queue) = if_empty {
                // What has come, and was not taken in yet, is an event as well.
                (0..PASSES).find(|_| !state.pass());
                if !state.events.queue(queue)?.is_empty() {
                    return Err(Error::NoUpdate);
                }
            }
            state.events.check(new.queue, None)?;
            match descriptor {
                DescriptorHandle::Attached(entry, serial) => {
                    let spec = new.into_entry(unlink);
                    state.check_entry(&spec)?;
                    let before = state.portals.matching.exchange(entry, serial, spec);
                    before.map(MemoryDescriptor::of_entry).map_err(|error| match error {
                        EntryError::InUse => Error::NoUpdate,
                        error => of_descriptor(error),
                    })
                }
                DescriptorHandle::Free(handle) => {
                    let bound = state.descriptors.get_mut(handle);
                    let bound = bound.ok_or(Error::Handle("a descriptor"))?;
                    if bound.is_in_use() {
                        return Err(Error::NoUpdate);
                    }
                    let before = std::mem::replace(bound, new.into_bound(unlink));
                    Ok(MemoryDescriptor::of_bound(before))
                }
            }
        })
    }

    /// Sends a part of a descriptor (offset and length in bytes), or all of it, to a target
    /// (`PtlPut`, `PtlPutRegion`); `cookie` is the entry of the target's access control that is to
    /// admit it.
    ///
    /// # Errors
    /// [`Error::Handle`] if the descriptor is gone, [`Error::OutOfBounds`] beyond its end,
    /// [`Error::Process`] for an unknown target, [`Error::NoSpace`] if too many operations are
    /// under way.
    pub fn put(
        &self,
        descriptor: DescriptorHandle,
        part: Option<(u64, u64)>,
        acknowledge: bool,
        target: Target,
        cookie: u32,
        header_data: u64,
    ) -> Result<(), Error> {
        let ack = if acknowledge { Ack::Full } else { Ack::None };
        self.start(descriptor, part, |part| Operation {
            ack,
            cookie,
            header_data,
            ..Operation::put(part, target)
        })
    }

    /// Fetches what is at a target into a part of a descriptor, or all of it (`PtlGet`).
    ///
    /// # Errors
    /// As [`Interface::put`].
    pub fn get(
        &self,
        descriptor: DescriptorHandle,
        part: Option<(u64, u64)>,
        target: Target,
        cookie: u32,
    ) -> Result<(), Error> {
        self.start(descriptor, part, |part| Operation { cookie, ..Operation::get(part, target) })
    }

    /// Exchanges what is at a target for all of a descriptor; what was there comes into another
    /// (`PtlGetPut`).
    ///
    /// # Errors
    /// As [`Interface::put`].
    pub fn get_put(
        &self,
        get: DescriptorHandle,
        put: DescriptorHandle,
        target: Target,
        cookie: u32,
        header_data: u64,
    ) -> Result<(), Error> {
        self.inner.with_state(|state| {
            let result = state.part(get, None)?;
            let data = state.part(put, None).inspect_err(|_| state.drop_part(result))?;
            let operation = Operation::get_put(result, data, target);
            let started = state.start(&Operation { cookie, header_data, ..operation });
            started.inspect_err(|_| [result, data].iter().for_each(|part| state.drop_part(*part)))
        })
    }

    fn start(
        &self,
        descriptor: DescriptorHandle,
        part: Option<(u64, u64)>,
        operation: impl FnOnce(Part) -> Operation,
    ) -> Result<(), Error> {
        self.inner.with_state(|state| {
            let part = state.part(descriptor, part)?;
            let started = state.start(&operation(part));
            started.inspect_err(|_| state.drop_part(part))
        })
    }
}

impl State {
    /// A part of a descriptor, or all of it. One that is attached to an entry is bound for this
    /// operation.
    fn part(
        &mut self,
        descriptor: DescriptorHandle,
        part: Option<(u64, u64)>,
    ) -> Result<Part, Error> {
        let descriptor = match descriptor {
            DescriptorHandle::Free(descriptor) => descriptor,
            DescriptorHandle::Attached(entry, serial) => {
                let found = self.portals.matching.inspect(entry, serial);
                let (spec, ..) = found.map_err(of_descriptor)?;
                let MatchEntry { queue, quiet, user_data, .. } = *spec;
                let own = Descriptor { queue, quiet, ..Descriptor::new(spec.memory.clone()) };
                self.descriptors.bind(Bound::of_attached(own, user_data, entry, serial))?
            }
        };
        let bound = self.descriptors.bound(descriptor)?;
        let (offset, len) = part.unwrap_or((0, bound.spec.memory.len()));
        Ok(Part { descriptor, offset, len })
    }

    /// The operation for which an attached descriptor was bound was not started.
    fn drop_part(&mut self, part: Part) {
        let bound = self.descriptors.get(part.descriptor);
        if bound.is_some_and(|bound| bound.attached().is_some()) {
            self.descriptors.remove(part.descriptor);
        }
    }
}

fn of_descriptor(error: EntryError) -> Error {
    match error {
        EntryError::InUse => Error::InUse("the descriptor"),
        _ => Error::Handle("a descriptor"),
    }
}

/// Operations are started from the memory of any descriptor.
fn check_memory(memory: &Memory) -> Result<(), Error> {
    match memory.may_fault() {
        true => Err(Error::Argument("the address space is no memory of a descriptor")),
        false => Ok(()),
    }
}

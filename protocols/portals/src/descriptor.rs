//! Memory descriptors: memory from which, and into which, a process starts operations.

use crate::{
    Counter, Counts, Error, EventQueue, Handle, InterfaceId, MatchEntry, Memory, Quiet,
    handle::Table, matching::Matching, message::Ack,
};

/// Memory for operations of this process, and where their events go: a memory descriptor
/// (`ptl_md_t`, section *Memory descriptors*).
///
/// ```
/// # use petasos_portals::{ProcessMap, Config, Interface};
/// # use petasos_fabric::Endpoint;
/// # use std::sync::Arc;
/// use petasos_portals::{Descriptor, Part};
///
/// # let endpoint = petasos_self::Local::open(&"self://*".parse()?)?;
/// # let map = Arc::new(ProcessMap::ranks([endpoint.address().clone()]));
/// # let interface = Interface::open(Box::new(endpoint), map, Config::default())?;
/// let bound = interface.bind(Descriptor::new(vec![0; 4096]))?;
/// // An operation uses a part of it: 16 bytes from byte 64 on.
/// let part = Part { offset: 64, ..Part::of(bound, 16) };
/// assert_eq!((part.offset, part.len), (64, 16));
/// // Nothing is under way: the memory comes back.
/// let memory = interface.release(bound)?.memory;
/// assert_eq!(memory.len(), 4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Descriptor {
    /// Where data comes from, or goes: not the address space of the process.
    pub memory: Memory,
    /// The event queue. Default: none, and then there are no events.
    pub queue: Option<Handle<EventQueue>>,
    /// The counter. Default: none.
    pub counter: Option<Handle<Counter>>,
    /// What the counter counts. Default: nothing.
    pub counts: Counts,
    /// Events that are not wanted. Default: none.
    pub quiet: Quiet,
}

impl Descriptor {
    /// Memory, without events.
    #[must_use]
    pub fn new(memory: impl Into<Memory>) -> Descriptor {
        Descriptor {
            memory: memory.into(),
            queue: None,
            counter: None,
            counts: Counts::NONE,
            quiet: Quiet::NONE,
        }
    }

    /// Whether an acknowledgement of this kind would raise an event, or be counted.
    #[inline]
    pub(crate) fn hears(&self, ack: Ack) -> bool {
        (ack == Ack::Full && self.queue.is_some())
            || (self.counter.is_some() && self.counts.has(Counts::ACK))
    }
}

/// A part of a descriptor's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The descriptor.
    pub descriptor: Handle<Descriptor>,
    /// Where it starts, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
}

impl Part {
    /// So many bytes from the start of a descriptor.
    #[must_use]
    pub fn of(descriptor: Handle<Descriptor>, len: u64) -> Part {
        Part { descriptor, offset: 0, len }
    }
}

/// A descriptor that was bound.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) spec: Descriptor,
    /// Operations under way.
    pending: u32,
    /// What it still may do (Portals 3).
    threshold: Option<Threshold>,
    /// The entry, and the number of its memory, if it was bound for one operation from memory that
    /// is attached to an entry. That says what may still be done (Portals 3).
    attached: Option<(Handle<MatchEntry>, u32)>,
}

/// What a descriptor of Portals 3 still may do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Threshold {
    /// What may still be started. A put counts once, and once more when it is acknowledged, a reply
    /// once; `None`: any number.
    pub(crate) left: Option<u64>,
    /// What was taken off that for answers that have not come yet.
    pub(crate) reserved: u64,
    /// Whether the descriptor goes when nothing is left.
    pub(crate) unlink: bool,
    /// The user data that it was given.
    pub(crate) user_data: u64,
    /// Settings that mean nothing where it is not attached to an entry.
    pub(crate) given: Given,
}

/// What a descriptor lets other processes do: of one that is bound, only kept to be given back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Given {
    pub(crate) max_size: Option<u64>,
    pub(crate) put: bool,
    pub(crate) get: bool,
    pub(crate) manage_remote: bool,
    pub(crate) truncate: bool,
    pub(crate) no_acknowledgement: bool,
}

impl Bound {
    pub(crate) fn new(spec: Descriptor) -> Bound {
        Bound { spec, pending: 0, threshold: None, attached: None }
    }

    /// A descriptor of Portals 3.
    pub(crate) fn with_threshold(spec: Descriptor, threshold: Threshold) -> Bound {
        Bound { threshold: Some(threshold), ..Bound::new(spec) }
    }

    /// A descriptor for one operation from the memory of an entry: the memory number `serial`
    /// (Portals 3).
    pub(crate) fn of_attached(
        spec: Descriptor,
        user_data: u64,
        entry: Handle<MatchEntry>,
        serial: u32,
    ) -> Bound {
        let (left, unlink, given) = (None, false, Given::default());
        let threshold = Threshold { left, reserved: 0, unlink, user_data, given };
        Bound { attached: Some((entry, serial)), ..Bound::with_threshold(spec, threshold) }
    }

    #[inline]
    pub(crate) fn has_threshold(&self) -> bool {
        self.threshold.is_some()
    }

    pub(crate) fn threshold(&self) -> Option<&Threshold> {
        self.threshold.as_ref()
    }

    #[inline]
    pub(crate) fn attached(&self) -> Option<(Handle<MatchEntry>, u32)> {
        self.attached
    }

    /// Whether operations need it.
    pub(crate) fn is_in_use(&self) -> bool {
        self.pending > 0
    }

    /// An operation that needed it has ended.
    #[inline]
    pub(crate) fn end_one(&mut self) {
        self.pending -= 1;
    }

    /// Takes one off what may be started, for something that is to come; false if nothing is left.
    /// It is spent when that comes ([`Bound::spend`]), and else restored.
    fn reserve(&mut self, matching: &mut Matching) -> bool {
        if let Some((entry, serial)) = self.attached {
            return matching.reserve(entry, serial);
        }
        let Some(threshold) = &mut self.threshold else { return true };
        match &mut threshold.left {
            Some(0) => return false,
            Some(left) => *left -= 1,
            None => {}
        }
        threshold.reserved += 1;
        true
    }

    /// What was reserved is spent.
    pub(crate) fn spend(&mut self, matching: &mut Matching) {
        match (self.attached, &mut self.threshold) {
            (Some((entry, _)), _) => matching.spend(entry),
            (None, Some(threshold)) => threshold.reserved -= 1,
            (None, None) => {}
        }
    }

    /// What was reserved is not needed, and may be used for something else.
    fn unreserve(&mut self, matching: &mut Matching) {
        match (self.attached, &mut self.threshold) {
            (Some((entry, _)), _) => matching.unreserve(entry),
            (None, Some(threshold)) => {
                threshold.reserved -= 1;
                threshold.left = threshold.left.map(|left| left + 1);
            }
            (None, None) => {}
        }
    }

    /// The user data in its events: of a descriptor of Portals 3 its own, else the operation's.
    #[inline]
    pub(crate) fn user_data(&self, of_operation: u64) -> u64 {
        self.threshold.as_ref().map_or(of_operation, |threshold| threshold.user_data)
    }

    /// What it may still do, with what is reserved for answers; `None`: any number of operations.
    #[inline]
    pub(crate) fn left(&self, matching: &Matching) -> Option<u64> {
        match self.attached {
            None => {
                let threshold = self.threshold.as_ref()?;
                Some(threshold.left? + threshold.reserved)
            }
            // Memory that was used up meanwhile may do nothing.
            Some((entry, serial)) => {
                matching.inspect(entry, serial).map_or(Some(0), |(_, left, _)| left)
            }
        }
    }

    /// Whether it goes now: used up, and nothing under way.
    pub(crate) fn is_used_up(&self) -> bool {
        let used_up =
            self.threshold.is_some_and(|threshold| threshold.unlink && threshold.left == Some(0));
        used_up && self.pending == 0
    }

    /// Checks that a part lies within.
    pub(crate) fn check(&self, part: &Part) -> Result<(), Error> {
        let (Part { offset, len, .. }, bound) = (*part, self.spec.memory.len());
        match offset.checked_add(len) {
            Some(end) if end <= bound => Ok(()),
            _ => Err(Error::OutOfBounds { offset, len, bound }),
        }
    }
}

/// The descriptors of an interface.
#[derive(Debug)]
pub(crate) struct Descriptors {
    table: Table<Bound>,
}

const USED_UP: Error = Error::Argument("the descriptor's threshold is used up");

impl Descriptors {
    pub(crate) fn new(id: InterfaceId, limit: usize) -> Descriptors {
        Descriptors { table: Table::of(id, limit) }
    }

    pub(crate) fn bind(&mut self, bound: Bound) -> Result<Handle<Descriptor>, Error> {
        let limit = self.table.limit();
        self.table.insert(bound).ok_or(Error::NoSpace { what: "descriptors", limit })
    }

    /// The descriptor with a handle that the program gave.
    #[inline]
    pub(crate) fn bound(&self, descriptor: Handle<Descriptor>) -> Result<&Bound, Error> {
        self.table.get(descriptor).ok_or(Error::Handle("a descriptor"))
    }

    #[inline]
    pub(crate) fn get(&self, descriptor: Handle<Descriptor>) -> Option<&Bound> {
        self.table.get(descriptor)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, descriptor: Handle<Descriptor>) -> Option<&mut Bound> {
        self.table.get_mut(descriptor)
    }

    #[inline]
    pub(crate) fn memory(&self, descriptor: Handle<Descriptor>) -> Option<&Memory> {
        Some(&self.table.get(descriptor)?.spec.memory)
    }

    pub(crate) fn remove(&mut self, descriptor: Handle<Descriptor>) -> Option<Bound> {
        self.table.remove(descriptor)
    }

    /// A descriptor is needed until an operation ends. Gives the events that are not wanted, and
    /// what is counted.
    #[inline(always)]
    pub(crate) fn hold(
        &mut self,
        descriptor: Handle<Descriptor>,
        matching: &mut Matching,
    ) -> (Quiet, Counts) {
        let Some(bound) = self.table.get_mut(descriptor) else {
            return (Quiet::START, Counts::NONE);
        };
        bound.pending += 1;
        if let Some((entry, _)) = bound.attached {
            matching.hold(entry);
        }
        (bound.spec.quiet, bound.spec.counts)
    }

    /// Takes off the thresholds of an operation's descriptors what will come of it: one for its
    /// data, one for the reply, and one for the acknowledgement. Without room for that the
    /// acknowledgement is not asked for. So what has begun can end (Portals 3).
    #[inline(never)]
    pub(crate) fn reserve_all(
        &mut self,
        data: Option<Part>,
        result: Option<Part>,
        ack: Ack,
        matching: &mut Matching,
    ) -> Result<Ack, Error> {
        if let Some(result) = result
            && !self.reserve(result.descriptor, matching)
        {
            return Err(USED_UP);
        }
        let Some(data) = data else { return Ok(ack) };
        if !self.reserve(data.descriptor, matching) {
            if let Some(result) = result {
                self.unreserve(result.descriptor, matching);
            }
            return Err(USED_UP);
        }
        let wanted = result.is_none() && ack != Ack::None;
        let ack = if wanted && self.reserve(data.descriptor, matching) { ack } else { Ack::None };
        // The data is as good as sent.
        if let Some(bound) = self.table.get_mut(data.descriptor) {
            bound.spend(matching);
        }
        Ok(ack)
    }

    fn reserve(&mut self, descriptor: Handle<Descriptor>, matching: &mut Matching) -> bool {
        let bound = self.table.get_mut(descriptor);
        bound.is_none_or(|bound| bound.reserve(matching))
    }

    /// What was reserved for an answer is not needed.
    pub(crate) fn unreserve(&mut self, descriptor: Handle<Descriptor>, matching: &mut Matching) {
        if let Some(bound) = self.table.get_mut(descriptor) {
            bound.unreserve(matching);
        }
    }
}

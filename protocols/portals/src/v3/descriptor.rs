//! Memory descriptors of Portals 3: as a program describes them, and as the core keeps them, which
//! has entries for other processes, and bound descriptors for this one.

use crate::{
    Accepts, Completed, Descriptor, EventQueue, Handle, InterfaceId, Listed, MatchEntry, Memory,
    Quiet, Served,
    descriptor::{Bound, Given, Threshold},
};

/// A memory descriptor, as a program describes it (`ptl_md_t` of Portals 3.3).
///
/// ```
/// use petasos_portals::v3::MemoryDescriptor;
///
/// // A block for messages one behind the other, inactive when less than 1 KiB is left.
/// let block = MemoryDescriptor {
///     put: true,
///     max_size: Some(1024),
///     truncate: true,
///     ..MemoryDescriptor::new(vec![0; 1 << 20])
/// };
/// // A window: the initiator names the offset, in bytes, of what it puts or gets.
/// let window = MemoryDescriptor {
///     put: true,
///     get: true,
///     manage_remote: true,
///     ..MemoryDescriptor::new(vec![0; 4096])
/// };
/// assert!(block.threshold.is_none() && !window.truncate);
/// ```
#[derive(Clone, Debug)]
pub struct MemoryDescriptor {
    /// Where data goes, or comes from: one piece, or several that count as one.
    pub memory: Memory,
    /// How many operations may use it; `None` for any number, which is the default. 0 makes it
    /// inactive.
    pub threshold: Option<u64>,
    /// Inactive as soon as less than so many bytes are left behind its own offset.
    pub max_size: Option<u64>,
    /// Other processes may put into it.
    pub put: bool,
    /// Other processes may get from it.
    pub get: bool,
    /// The initiator names the offset; else each operation goes behind the one before.
    pub manage_remote: bool,
    /// A message that does not fit is truncated; else it goes on to the next entry.
    pub truncate: bool,
    /// No acknowledgements are sent.
    pub no_acknowledgement: bool,
    /// No events of the starts of operations.
    pub no_start_events: bool,
    /// No events of the ends of operations.
    pub no_end_events: bool,
    /// Comes back in events.
    pub user_data: u64,
    /// Where its events go.
    pub queue: Option<Handle<EventQueue>>,
}

impl MemoryDescriptor {
    /// Memory with an offset of its own, for any number of operations, which permits nothing.
    #[must_use]
    pub fn new(memory: impl Into<Memory>) -> MemoryDescriptor {
        MemoryDescriptor {
            memory: memory.into(),
            threshold: None,
            max_size: None,
            put: false,
            get: false,
            manage_remote: false,
            truncate: false,
            no_acknowledgement: false,
            no_start_events: false,
            no_end_events: false,
            user_data: 0,
            queue: None,
        }
    }

    fn quiet(&self) -> Quiet {
        let flag = |set, flag| if set { flag } else { Quiet::NONE };
        flag(self.no_start_events, Quiet::START)
            .with(flag(self.no_end_events, Quiet::COMMUNICATION))
    }

    /// The descriptor that was attached to an entry.
    pub(super) fn of_entry(spec: MatchEntry) -> MemoryDescriptor {
        MemoryDescriptor {
            memory: spec.memory,
            threshold: spec.threshold,
            max_size: spec.min_free,
            put: spec.accepts.has(Accepts::PUT),
            get: spec.accepts.has(Accepts::GET),
            manage_remote: !spec.local_offset,
            truncate: spec.truncate,
            no_acknowledgement: !spec.acknowledge,
            no_start_events: spec.quiet.has(Quiet::START),
            no_end_events: spec.quiet.has(Quiet::COMMUNICATION),
            user_data: spec.user_data,
            queue: spec.queue,
        }
    }

    /// The descriptor that was bound.
    pub(super) fn of_bound(bound: Bound) -> MemoryDescriptor {
        let threshold = bound.threshold().copied();
        let spec = bound.spec;
        let plain = MemoryDescriptor {
            no_start_events: spec.quiet.has(Quiet::START),
            no_end_events: spec.quiet.has(Quiet::COMMUNICATION),
            queue: spec.queue,
            ..MemoryDescriptor::new(spec.memory)
        };
        let Some(Threshold { left, user_data, given, .. }) = threshold else { return plain };
        let Given { max_size, put, get, manage_remote, truncate, no_acknowledgement } = given;
        MemoryDescriptor {
            threshold: left,
            max_size,
            put,
            get,
            manage_remote,
            truncate,
            no_acknowledgement,
            user_data,
            ..plain
        }
    }

    pub(super) fn into_entry(self, unlink: bool) -> MatchEntry {
        let flag = |set, flag| if set { flag } else { Accepts::NONE };
        MatchEntry {
            accepts: flag(self.put, Accepts::PUT).with(flag(self.get, Accepts::GET)),
            threshold: self.threshold,
            unlink,
            local_offset: !self.manage_remote,
            min_free: self.max_size,
            truncate: self.truncate,
            acknowledge: !self.no_acknowledgement,
            user_data: self.user_data,
            quiet: self.quiet(),
            queue: self.queue,
            ..MatchEntry::new(self.memory)
        }
    }

    pub(super) fn into_bound(self, unlink: bool) -> Bound {
        let quiet = self.quiet();
        let given = Given {
            max_size: self.max_size,
            put: self.put,
            get: self.get,
            manage_remote: self.manage_remote,
            truncate: self.truncate,
            no_acknowledgement: self.no_acknowledgement,
        };
        let (left, user_data) = (self.threshold, self.user_data);
        let threshold = Threshold { left, reserved: 0, unlink, user_data, given };
        let spec = Descriptor { queue: self.queue, quiet, ..Descriptor::new(self.memory) };
        Bound::with_threshold(spec, threshold)
    }
}

/// Names a descriptor of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DescriptorHandle {
    /// Attached to an entry: which, and the number of its memory.
    Attached(Handle<MatchEntry>, u32),
    /// Bound, for operations of this process.
    Free(Handle<Descriptor>),
}

impl Completed {
    /// The descriptor of Portals 3 that the operation was started from.
    #[must_use]
    pub fn memory_descriptor(&self) -> DescriptorHandle {
        match self.attached {
            Some((entry, serial)) => DescriptorHandle::Attached(entry, serial),
            None => DescriptorHandle::Free(self.descriptor),
        }
    }
}

impl Served {
    /// The descriptor of Portals 3 that took it.
    #[must_use]
    pub fn memory_descriptor(&self) -> DescriptorHandle {
        DescriptorHandle::Attached(self.entry, self.serial)
    }
}

impl Listed {
    /// The descriptor of Portals 3 that it is about.
    #[must_use]
    pub fn memory_descriptor(&self) -> DescriptorHandle {
        DescriptorHandle::Attached(self.entry, self.serial)
    }
}

impl DescriptorHandle {
    /// The interface that it belongs to.
    #[must_use]
    pub fn interface(self) -> InterfaceId {
        match self {
            DescriptorHandle::Attached(entry, _) => entry.interface(),
            DescriptorHandle::Free(descriptor) => descriptor.interface(),
        }
    }
}

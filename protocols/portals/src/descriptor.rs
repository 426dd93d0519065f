//! Memory descriptors: memory from which, and into which, a process starts operations.

use crate::{
    Ack, Counts, Error, Handle, MatchEntry, Memory, Quiet, counter::Counter, event::EventQueue,
    matching::Matching,
};

/// Memory for operations of one's own, and where they tell about themselves.
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
/// // What operations work on: 16 bytes of it.
/// let part = Part { offset: 64, ..Part::of(bound, 16) };
/// assert_eq!((part.offset, part.len), (64, 16));
/// // Nothing is under way: the memory comes back.
/// let memory = interface.release(bound)?.memory;
/// assert_eq!(memory.len(), 4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Descriptor {
    /// Where data comes from, or goes.
    pub memory: Memory,
    /// Where events go.
    pub queue: Option<Handle<EventQueue>>,
    /// Counts what happens.
    pub counter: Option<Handle<Counter>>,
    /// What it counts.
    pub counts: Counts,
    /// Events that are not wanted.
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

    /// Whether an acknowledgement of this kind would be told to the program, or counted.
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
    pub(crate) pending: u32,
    /// What it still may do (Portals 3).
    pub(crate) threshold: Option<Threshold>,
    /// It is for one operation with memory that is attached to an entry, number so and so, which
    /// says what may still be done (Portals 3).
    pub(crate) attached: Option<(Handle<MatchEntry>, u32)>,
}

/// What a descriptor of Portals 3 still may do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Threshold {
    /// What may still be started. A put counts once, and once more when it is acknowledged, a reply
    /// once; `None`: any number.
    pub(crate) left: Option<u64>,
    /// What was taken off that for answers that have not come yet.
    pub(crate) kept: u64,
    /// Whether the descriptor goes when nothing is left.
    pub(crate) unlink: bool,
    /// What it was given.
    pub(crate) user_data: u64,
    /// What it was given that means nothing where it is not attached to an entry.
    pub(crate) given: Given,
}

/// What a descriptor lets others do: of one that is bound no more than what it was given.
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

    /// Takes one off what may be started, for something that is to come; false if nothing is left.
    /// It is spent when that comes ([`Bound::redeem`]), and else given back.
    pub(crate) fn keep(&mut self, matching: &mut Matching) -> bool {
        if let Some((entry, serial)) = self.attached {
            return matching.keep(entry, serial);
        }
        let Some(threshold) = &mut self.threshold else { return true };
        match &mut threshold.left {
            Some(0) => return false,
            Some(left) => *left -= 1,
            None => {}
        }
        threshold.kept += 1;
        true
    }

    /// What was kept is spent.
    pub(crate) fn redeem(&mut self, matching: &mut Matching) {
        match (self.attached, &mut self.threshold) {
            (Some((entry, _)), _) => matching.redeem(entry),
            (None, Some(threshold)) => threshold.kept -= 1,
            (None, None) => {}
        }
    }

    /// What was kept is not needed.
    pub(crate) fn give_back(&mut self, matching: &mut Matching) {
        match (self.attached, &mut self.threshold) {
            (Some((entry, _)), _) => matching.give_back(entry),
            (None, Some(threshold)) => {
                threshold.kept -= 1;
                threshold.left = threshold.left.map(|left| left + 1);
            }
            (None, None) => {}
        }
    }

    /// What its events say it was given: of a descriptor of Portals 3 that, else what the operation
    /// was.
    #[inline]
    pub(crate) fn user_data(&self, of_operation: u64) -> u64 {
        self.threshold.as_ref().map_or(of_operation, |threshold| threshold.user_data)
    }

    /// What it may still do, with what is kept for answers; `None`: any number of operations.
    #[inline]
    pub(crate) fn left(&self, matching: &Matching) -> Option<u64> {
        match self.attached {
            None => {
                let threshold = self.threshold.as_ref()?;
                Some(threshold.left? + threshold.kept)
            }
            // Memory that was used up meanwhile may do nothing.
            Some((entry, serial)) => {
                matching.look(entry, serial).map_or(Some(0), |(_, left, _)| left)
            }
        }
    }

    /// Whether it goes now: used up, and nothing under way.
    pub(crate) fn is_over(&self) -> bool {
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

//! Memory descriptors: memory from which, and into which, a process starts operations.

use crate::{
    Counts, Error, Handle, MatchEntry, Memory, Quiet, counter::Counter, event::EventQueue,
    matching::Matching,
};

/// Memory for operations of one's own, and where they tell about themselves.
///
/// ```
/// use petasos_portals::Descriptor;
/// let plain = Descriptor::new(vec![0; 1024]);
/// assert!(plain.queue.is_none());
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
    /// It is for one operation with memory that is attached to an entry, number so and so, which says
    /// what may still be done (Portals 3).
    pub(crate) attached: Option<(Handle<MatchEntry>, u32)>,
}

/// What a descriptor of Portals 3 still may do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Threshold {
    /// A put counts once, and once more when it is acknowledged, a reply once; `None`: any number.
    pub(crate) left: Option<u64>,
    /// Whether the descriptor goes when that is nothing.
    pub(crate) unlink: bool,
    /// What it was given.
    pub(crate) user_data: u64,
}

impl Bound {
    pub(crate) fn new(spec: Descriptor) -> Bound {
        Bound { spec, pending: 0, threshold: None, attached: None }
    }

    /// Takes one off what it may do; false if that was nothing.
    #[inline]
    pub(crate) fn spend(&mut self, matching: &mut Matching) -> bool {
        if let Some((entry, serial)) = self.attached {
            return matching.spend(entry, serial);
        }
        match self.threshold.as_mut().and_then(|threshold| threshold.left.as_mut()) {
            Some(0) => false,
            Some(left) => {
                *left -= 1;
                true
            }
            None => true,
        }
    }

    /// What it may still do; `None`: any number of operations.
    #[inline]
    pub(crate) fn left(&self, matching: &Matching) -> Option<u64> {
        match self.attached {
            None => self.threshold?.left,
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

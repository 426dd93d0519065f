//! Put, get, atomics and mapping without the owner's help.
//!
//! An access is moved on in slices, in turns with others of the same peer, so that messages keep
//! flowing. Before each slice the region is announced and looked up in the owner's table, which
//! says whether it lives, where it lies and what may be done with it (see [`crate::table`]). The
//! data then goes
//!
//! 1. through a mapping, if the memory is the owner transport's and is mapped here (if it is not,
//!    the descriptor is asked for);
//! 2. by reaching into the other process, where that is allowed;
//! 3. and else through packets, which the two-sided engine sends and the owner serves.
//!
//! One short piece of memory that is mapped is moved when it is submitted, unless other accesses of
//! the same peer wait: by the same rules, with no list and no turn.

mod list;
mod short;
mod step;

pub(crate) use list::Accesses;
pub(crate) use short::{Short, place};

use crate::cross_memory::{Direction, MAX_PIECES};
use bytes::Bytes;
use petasos_fabric::{
    Access as Rights, Cursor, Done, Incarnation, Key, OpErrorKind, Operation, Remote, Slice,
    Slices, Spans, Stretch, Token,
    two_sided::{Batch, Imported},
};

/// An operation on a peer's memory that does not go through the engine, or not yet.
pub(crate) struct Access {
    operation: Operation,
    /// What a flush waits for; none if it waits not for this.
    batch: Option<Batch>,
    route: Route,
    total: u64,
    /// What is moved.
    at: Cursor,
    /// So much that copies of it go past the caches.
    streams: bool,
    /// Nothing can be done before the peer has done something.
    waiting: bool,
}

/// What a key says of how to reach the memory.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) slot: u32,
    pub(crate) tag: u64,
    incarnation: Incarnation,
    /// The route through the engine, which proves that this side has the key.
    proof: Bytes,
}

/// How far a slice got.
pub(crate) enum Step {
    Moved,
    Done(Result<Done, OpErrorKind>),
    /// The owner must serve it.
    Engine,
    /// The peer is to do something first.
    Wait,
    /// There was no room in the ring.
    Full,
    /// The peer has ended.
    Over,
    Broken(String),
}

/// Bytes of a key's route: slot and tag.
pub(crate) fn route(slot: u32, tag: u64) -> Bytes {
    let mut out = Vec::with_capacity(12);
    out.extend_from_slice(&slot.to_le_bytes());
    out.extend_from_slice(&tag.to_le_bytes());
    out.into()
}

impl Route {
    pub(crate) fn of(imported: &Imported) -> Option<Route> {
        let parts = &imported.parts;
        let (slot, tag) = place(imported)?;
        Some(Route {
            slot,
            tag,
            incarnation: parts.incarnation,
            proof: parts.route(Key::ROUTE_TWO_SIDED)?.clone(),
        })
    }
}

impl Access {
    /// Nothing of it has been moved yet.
    pub(crate) fn new(
        operation: Operation,
        batch: Option<Batch>,
        route: Route,
        total: u64,
        streams: bool,
    ) -> Access {
        Access { operation, batch, route, total, at: Cursor::default(), streams, waiting: false }
    }

    pub(crate) fn token(&self) -> Token {
        self.operation.token()
    }

    /// Whether it moves bytes of this memory.
    pub(crate) fn uses(&self, memory: &Slice) -> bool {
        self.operation.uses(memory)
    }

    pub(crate) fn batch(&self) -> Option<Batch> {
        self.batch
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting
    }

    pub(crate) fn set_waiting(&mut self, waiting: bool) {
        self.waiting = waiting;
    }

    /// Bytes that have been moved.
    pub(crate) fn moved(&self) -> u64 {
        self.at.moved()
    }

    /// Whether the owner is told when the data is there.
    pub(crate) fn has_event(&self) -> bool {
        matches!(self.operation, Operation::Put { event: Some(_), .. })
    }

    /// Whether it accesses this region, by this handle.
    pub(crate) fn names(&self, remote: Remote) -> bool {
        self.operation.remote() == Some(remote)
    }

    /// The operation, for the engine.
    pub(crate) fn into_operation(self) -> Operation {
        self.operation
    }

    fn pieces(&self) -> Option<(Direction, &Slices, &Spans)> {
        match &self.operation {
            Operation::Put { local, spans, .. } => Some((Direction::Put, local, spans)),
            Operation::Get { local, spans, .. } => Some((Direction::Get, local, spans)),
            _ => None,
        }
    }

    fn needed(&self) -> Rights {
        match &self.operation {
            Operation::Put { .. } => Rights::WRITE,
            Operation::Atomic { .. } => Rights::ATOMIC,
            _ => Rights::READ,
        }
    }

    /// What is left of both sides' pieces, as far as it fits into `budget` bytes and into one
    /// call. Gives the bytes in it.
    fn stretches(&self, budget: usize, mut each: impl FnMut(Stretch<'_>)) -> usize {
        let Some((_, local, spans)) = self.pieces() else { return 0 };
        let (mut at, mut total) = (self.at, 0);
        for _ in 0..MAX_PIECES {
            let Some(stretch) = at.take(local, spans, budget - total) else { break };
            total += stretch.len;
            each(stretch);
        }
        total
    }

    /// So many bytes more have been moved.
    fn advance(&mut self, count: usize) {
        let mut at = self.at;
        if let Some((_, local, spans)) = self.pieces() {
            at.skip(local, spans, count);
        }
        self.at = at;
    }
}

pub(crate) fn within(offset: u64, len: u64, bound: u64) -> Result<(), OpErrorKind> {
    match offset.checked_add(len) {
        Some(end) if end <= bound => Ok(()),
        _ => Err(OpErrorKind::OutOfBounds { offset, len, bound }),
    }
}

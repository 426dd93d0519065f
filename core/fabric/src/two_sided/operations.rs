//! Operations under way with one peer.

use super::{
    flush::Batch,
    header::{Status, Target},
};
use crate::{
    Access, AtomicOp, AtomicType, Done, Incarnation, OpErrorKind, Payload, Refusal, Slices,
    SpanCursor, Spans, Token,
};
use bytes::Bytes;
use smallvec::SmallVec;

/// One operation. It has an `outcome` once it is known how it ends, is `done` once that was told
/// (when nothing can touch its memory any more), and is forgotten once the peer has answered all.
#[derive(Debug)]
pub(super) struct Op {
    pub(super) serial: u32,
    pub(super) token: Token,
    pub(super) kind: Kind,
    /// If it is remote access: what a flush waits for.
    pub(super) batch: Batch,
    /// Packets with its memory that the transport has.
    pub(super) flying: u32,
    /// Requests without an answer.
    pub(super) awaiting: u32,
    /// A payload is being placed in its memory.
    pub(super) placing: bool,
    /// A queue of the peer's holds its id.
    pub(super) queued: bool,
    pub(super) outcome: Option<Result<Done, OpErrorKind>>,
    pub(super) done: bool,
}

#[derive(Debug)]
pub(super) enum Kind {
    /// A message that travels with its data.
    Message {
        payload: Payload,
        tag: Option<u64>,
        asking: bool,
    },
    /// A message whose body is pulled.
    Body {
        data: Payload,
        announce: Announce,
        /// Announced, and the peer is not done with it.
        open: bool,
    },
    Pull(Pull),
    Put(Put),
    Atomic(Atomic),
    Flush,
    /// The question of a fence.
    Fence,
}

#[derive(Clone, Debug)]
pub(super) enum Announce {
    Long(Bytes),
    Tagged(u64),
}

/// Bodies are counted by sort, so that neither holds up the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Long = 0,
    Tagged = 1,
}

impl Announce {
    pub(super) fn sort(&self) -> Sort {
        match self {
            Announce::Long(_) => Sort::Long,
            Announce::Tagged(_) => Sort::Tagged,
        }
    }
}

/// Data that is fetched: by a get, or from the body of a message.
#[derive(Debug)]
pub(super) struct Pull {
    pub(super) source: Source,
    pub(super) spans: Spans,
    pub(super) local: Slices,
    pub(super) total: u64,
    /// Bytes asked for.
    pub(super) asked: u64,
    /// Where the next request begins.
    pub(super) at: SpanCursor,
    /// Bytes in place.
    pub(super) received: u64,
    pub(super) purpose: Purpose,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    Region(Route),
    Body(u64),
}

/// A region of the peer's, and the life of the peer that it belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) target: Target,
    /// `None`: of whichever the handle is.
    pub(super) incarnation: Option<Incarnation>,
    pub(super) access: Access,
    pub(super) len: u64,
}

/// What the end of a pull means.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    Got,
    Received,
    Tagged { tag: u64, sent: u64 },
}

#[derive(Debug)]
pub(super) struct Put {
    pub(super) route: Route,
    pub(super) local: Slices,
    pub(super) spans: Spans,
    /// Where the first span begins, also if all are empty.
    pub(super) begin: u64,
    pub(super) total: u64,
    pub(super) event: Option<u64>,
    /// Whether completion waits for the answer.
    pub(super) level_asks: bool,
    /// An answer is wanted, for which completion does not wait.
    pub(super) confirm: bool,
    /// Our request, once it has begun to ask for an answer.
    pub(super) request: Option<u64>,
    /// Bytes handed out.
    pub(super) handed: u64,
    /// Where the next fragment goes.
    pub(super) at: SpanCursor,
    /// The last fragment is handed out.
    pub(super) complete: bool,
}

impl Put {
    pub(super) fn asking(&self) -> bool {
        self.level_asks || self.confirm || self.event.is_some()
    }
}

#[derive(Debug)]
pub(super) struct Atomic {
    pub(super) route: Route,
    pub(super) offset: u64,
    pub(super) op: AtomicOp,
    pub(super) kind: AtomicType,
    /// The operand, and behind it what to compare with.
    pub(super) payload: SmallVec<[u8; 32]>,
    pub(super) operand: usize,
    pub(super) fetch: bool,
}

impl Op {
    pub(super) fn new(token: Token, kind: Kind) -> Op {
        Op {
            serial: 0,
            token,
            kind,
            batch: Batch::NONE,
            flying: 0,
            awaiting: 0,
            placing: false,
            queued: false,
            outcome: None,
            done: false,
        }
    }

    /// Whether it takes no further part: nothing more of it shall be sent or placed.
    pub(super) fn stopped(&self) -> bool {
        self.done || self.outcome.is_some()
    }

    /// Says how it ends, unless that was said before.
    pub(super) fn conclude(&mut self, outcome: Result<Done, OpErrorKind>) {
        if !self.stopped() {
            self.outcome = Some(outcome);
        }
    }

    /// Whether the peer may still name it.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.kind, Kind::Body { open: true, .. })
    }

    /// Lets its memory go.
    pub(super) fn release(&mut self) {
        match &mut self.kind {
            Kind::Message { payload, .. } | Kind::Body { data: payload, .. } => {
                *payload = Payload::Bytes(Bytes::new());
            }
            Kind::Pull(pull) => pull.local.clear(),
            Kind::Put(put) => put.local.clear(),
            Kind::Atomic(_) | Kind::Flush | Kind::Fence => {}
        }
    }

    /// The region it works on, if it is remote access.
    pub(super) fn route(&self) -> Option<Route> {
        match &self.kind {
            Kind::Put(Put { route, .. })
            | Kind::Atomic(Atomic { route, .. })
            | Kind::Pull(Pull { source: Source::Region(route), .. }) => Some(*route),
            _ => None,
        }
    }

    /// What a refusal by the peer means.
    pub(super) fn refusal(&self, status: Status) -> OpErrorKind {
        let (offset, len, needed) = match &self.kind {
            Kind::Put(put) => (put.begin, put.total, Access::WRITE),
            Kind::Pull(pull) => (first(&pull.spans), pull.total, Access::READ),
            Kind::Atomic(atomic) => (atomic.offset, atomic.operand as u64, Access::ATOMIC),
            // Of a put, about which no more is known here.
            Kind::Flush | Kind::Fence => (0, 0, Access::WRITE),
            _ => (0, 0, Access::NONE),
        };
        let route = self.route();
        match status {
            Status::Denied => OpErrorKind::Denied {
                allowed: route.map_or(Access::NONE, |route| route.access.without(needed)),
                needed,
            },
            Status::OutOfBounds => {
                OpErrorKind::OutOfBounds { offset, len, bound: route.map_or(0, |route| route.len) }
            }
            Status::Misaligned => OpErrorKind::Misaligned {
                offset,
                align: match &self.kind {
                    Kind::Atomic(atomic) => atomic.kind.size(),
                    _ => 1,
                },
            },
            Status::Unsupported => OpErrorKind::Unsupported("this atomic operation there"),
            Status::Withdrawn => OpErrorKind::Withdrawn,
            Status::Good | Status::Stale => OpErrorKind::StaleKey,
        }
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Refusal {
        match status {
            Status::Denied => Refusal::Denied,
            Status::OutOfBounds => Refusal::OutOfBounds,
            _ => Refusal::StaleKey,
        }
    }
}

pub(super) fn first(spans: &Spans) -> u64 {
    spans.first().map_or(0, |span| span.offset)
}

/// The part of these pieces, seen as one, from `offset` on: `len` bytes of it in at most `most`
/// pieces, fewer bytes if that is not enough.
pub(super) fn gather(pieces: &Slices, offset: u64, len: usize, most: usize) -> (Slices, usize) {
    let (mut out, mut skip, mut left) = (Slices::new(), offset, len);
    for piece in pieces {
        let size = piece.len() as u64;
        if skip >= size {
            skip -= size;
            continue;
        }
        if left == 0 || out.len() == most {
            break;
        }
        let take = left.min((size - skip) as usize);
        out.extend(piece.part(skip as usize, take));
        (skip, left) = (0, left - take);
    }
    (out, len - left)
}

/// The part of a payload from `offset` on, of `len` bytes; within bounds by the caller.
pub(super) fn payload_part(payload: &Payload, offset: u64, len: usize) -> super::Outgoing {
    let offset = offset as usize;
    match payload {
        _ if len == 0 => super::Outgoing::Nothing,
        Payload::Bytes(bytes) => super::Outgoing::Bytes(bytes.slice(offset..offset + len)),
        Payload::Memory(memory) => {
            super::Outgoing::Memory(memory.part(offset, len).into_iter().collect())
        }
    }
}

//! Remote access: executed by the initiator, in pieces, on memory that the owner registered.

use crate::hub::{Content, Hub};
use petasos_fabric::{
    Access as Rights, AtomicOp, AtomicType, Cursor, Done, Incarnation, LostReason, OpErrorKind,
    Region, RegionId, Slice, Slices, Spans, Token,
};
use smallvec::SmallVec;

/// The most that is copied under one pin.
const PIECE: u64 = 1 << 20;

/// An imported key: where its region is.
#[derive(Clone, Copy)]
pub(crate) struct Route {
    pub(crate) target: Target,
    /// `None`: good for whichever life of the owner the handle of the peer is of.
    pub(crate) owner: Option<Incarnation>,
    /// What the key says; what counts is what the owner registered.
    pub(crate) rights: Rights,
}

/// How a key names the memory.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// By its slot in the owner's table.
    Slot(RegionId),
    /// By the number under which the owner has opened it.
    Number(u64),
}

/// An access that is under way.
pub(crate) struct Access {
    pub(crate) token: Token,
    pub(crate) route: Route,
    pub(crate) what: Kind,
}

pub(crate) enum Kind {
    Put { copy: Copy, event: Option<u64> },
    Get { copy: Copy },
    Atomic(Box<Atomic>),
    Map,
}

pub(crate) struct Atomic {
    pub(crate) offset: u64,
    pub(crate) op: AtomicOp,
    pub(crate) kind: AtomicType,
    pub(crate) operand: SmallVec<[u8; 16]>,
    pub(crate) compare: SmallVec<[u8; 16]>,
    pub(crate) fetch: bool,
}

/// Two lists of pieces of the same total length, and how far the copy between them has come.
pub(crate) struct Copy {
    local: Slices,
    spans: Spans,
    total: u64,
    at: Cursor,
}

impl Copy {
    pub(crate) fn new(local: Slices, spans: Spans, total: u64) -> Copy {
        Copy { local, spans, total, at: Cursor::default() }
    }

    /// Whether it moves bytes of this memory.
    pub(crate) fn uses(&self, memory: &Slice) -> bool {
        self.local.iter().any(|piece| piece.overlaps(memory))
    }

    pub(crate) fn left(&self) -> u64 {
        self.total - self.at.moved()
    }

    /// Where the first span begins.
    fn first(&self) -> u64 {
        self.spans.first().map_or(0, |span| span.offset)
    }

    /// Moves at most `limit` bytes between the local pieces and `memory`.
    fn step(&mut self, memory: &Slice, limit: u64, put: bool) -> Result<u64, OpErrorKind> {
        let mut moved = 0;
        while moved < limit {
            let most = usize::try_from(limit - moved).unwrap_or(usize::MAX);
            let Some(stretch) = self.at.take(&self.local, &self.spans, most) else { break };
            let Some(local) = stretch.local() else { break };
            let (offset, len) = (stretch.offset, stretch.len as u64);
            let remote = usize::try_from(offset)
                .ok()
                .and_then(|offset| memory.part(offset, stretch.len))
                .ok_or(OpErrorKind::OutOfBounds { offset, len, bound: memory.len() as u64 })?;
            let copied = match put {
                true => local.try_copy_to(&remote),
                false => remote.try_copy_to(&local),
            };
            let bound = memory.len() as u64;
            copied.map_err(|_| OpErrorKind::OutOfBounds { offset, len, bound })?;
            moved += len;
        }
        Ok(moved)
    }
}

/// How far `Access::step` came.
pub(crate) enum Step {
    /// The budget is used up.
    More,
    /// The owner's inbox has no room for the event.
    Blocked,
    Done(Result<Done, OpErrorKind>),
}

impl Access {
    /// Whether a flush waits for it, and tells of its failure.
    pub(crate) fn is_flushed(&self) -> bool {
        !matches!(self.what, Kind::Map)
    }

    fn needs(&self) -> Rights {
        match self.what {
            Kind::Put { .. } => Rights::WRITE,
            Kind::Get { .. } | Kind::Map => Rights::READ,
            Kind::Atomic(_) => Rights::ATOMIC,
        }
    }

    /// Goes on for at most `budget` bytes, which it counts down.
    pub(crate) fn step(&mut self, hub: &Hub, link: u64, budget: &mut u64) -> Step {
        if self.route.owner.is_some_and(|owner| owner != hub.incarnation) {
            return Step::Done(Err(OpErrorKind::StaleKey));
        }
        loop {
            let Some(pin) = hub.regions.pin(self.route.target) else {
                // An owner that ends closes its inbox first, and then its regions.
                let lost = || OpErrorKind::PeerLost(LostReason::Closed);
                let why = if hub.is_closed() { lost() } else { OpErrorKind::StaleKey };
                return Step::Done(Err(why));
            };
            let (allowed, needed) = (pin.access, self.needs());
            if !allowed.allows(needed) {
                return Step::Done(Err(OpErrorKind::Denied { allowed, needed }));
            }
            let put = matches!(self.what, Kind::Put { .. });
            match &mut self.what {
                Kind::Put { copy, .. } | Kind::Get { copy } if copy.left() > 0 => {
                    if *budget == 0 {
                        return Step::More;
                    }
                    match copy.step(&pin.memory, PIECE.min(*budget), put) {
                        Ok(moved) => *budget -= moved.min(*budget),
                        Err(kind) => return Step::Done(Err(kind)),
                    }
                }
                Kind::Get { .. } => return Step::Done(Ok(Done::Got)),
                Kind::Put { event: None, .. } => return Step::Done(Ok(Done::Put)),
                Kind::Put { copy, event: Some(data) } => {
                    let (region, base) = pin.place;
                    let what = Content::Arrived {
                        region,
                        offset: base + copy.first(),
                        len: copy.total,
                        data: *data,
                    };
                    return match hub.offer(link, || Some(what)) {
                        Ok(()) => Step::Done(Ok(Done::Put)),
                        Err(_) => Step::Blocked,
                    };
                }
                Kind::Atomic(atomic) => return Step::Done(atomic.execute(&pin.memory)),
                Kind::Map => {
                    let what = "mapping memory that its program keeps, or of a device";
                    let view = Region::view(&pin.memory).map(Done::Mapped);
                    return Step::Done(view.ok_or(OpErrorKind::Unsupported(what)));
                }
            }
        }
    }
}

impl Atomic {
    fn execute(&self, memory: &Slice) -> Result<Done, OpErrorKind> {
        let offset = usize::try_from(self.offset).unwrap_or(usize::MAX);
        let old = memory.atomic(offset, self.op, self.kind, &self.operand, &self.compare)?;
        Ok(if self.fetch { Done::Fetched(old) } else { Done::Atomic })
    }
}

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

use crate::{
    Counters, Shm,
    channel::{Arrival, Channel, Want, kind},
    cross::{self, MAX_PIECES, Pieces, Way},
    table::Entry,
};
use bytes::Bytes;
use petasos_fabric::{
    Access as Rights, Done, Incarnation, Key, LostReason, OpErrorKind, Operation, Peer, Region,
    Remote, Slice, Slices, Spans, Token, two_sided::Imported,
};
use rustix::io::Errno;
use std::collections::VecDeque;

/// Accesses of one peer that end in one pass.
const PER_PEER: usize = 64;
/// Descriptors asked for at a time.
const MAX_WANTS: usize = 16;

/// An operation on a peer's memory that does not go through the engine, or not yet.
pub(crate) struct Access {
    operation: Operation,
    route: Route,
    /// In all, and moved so far.
    total: u64,
    moved: u64,
    /// How far that is: piece and offset in it, on each side.
    ours: (usize, usize),
    theirs: (usize, u64),
    /// So much that copies of it go past the caches.
    streams: bool,
    /// Nothing can be done before somebody else does something.
    waiting: bool,
}

/// What a key says of the way to the memory.
#[derive(Clone)]
struct Route {
    slot: u32,
    tag: u64,
    incarnation: Incarnation,
    /// The route through the engine, which proves that one has the key.
    proof: Bytes,
}

/// How far a slice got.
enum Step {
    Moved,
    Done(Result<Done, OpErrorKind>),
    /// The owner must serve it.
    Engine,
    /// Somebody else is to do something first.
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
    fn of(imported: &Imported) -> Option<Route> {
        let parts = &imported.parts;
        let (slot, tag) = parts.route(Key::ROUTE_ADDRESS)?.split_first_chunk::<4>()?;
        Some(Route {
            slot: u32::from_le_bytes(*slot),
            tag: u64::from_le_bytes(tag.try_into().ok()?),
            incarnation: parts.incarnation,
            proof: parts.route(Key::ROUTE_TWO_SIDED)?.clone(),
        })
    }
}

impl Access {
    pub(crate) fn token(&self) -> Token {
        self.operation.token()
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting
    }

    fn pieces(&self) -> Option<(Way, &Slices, &Spans)> {
        match &self.operation {
            Operation::Put { local, spans, .. } => Some((Way::Put, local, spans)),
            Operation::Get { local, spans, .. } => Some((Way::Get, local, spans)),
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
    /// call: calls `each` with our piece, its offset, their offset, and the length that both have.
    fn stretch(&self, mut budget: usize, mut each: impl FnMut(&Slice, usize, u64, usize)) -> usize {
        let Some((_, local, spans)) = self.pieces() else { return 0 };
        let (mut ours, mut theirs, mut total) = (self.ours, self.theirs, 0);
        for _ in 0..MAX_PIECES {
            while local.get(ours.0).is_some_and(|piece| ours.1 == piece.len()) {
                ours = (ours.0 + 1, 0);
            }
            while spans.get(theirs.0).is_some_and(|span| theirs.1 == span.len) {
                theirs = (theirs.0 + 1, 0);
            }
            let (Some(piece), Some(span)) = (local.get(ours.0), spans.get(theirs.0)) else { break };
            let rest = usize::try_from(span.len - theirs.1).unwrap_or(usize::MAX);
            let len = (piece.len() - ours.1).min(rest).min(budget);
            if len == 0 {
                break;
            }
            each(piece, ours.1, span.offset + theirs.1, len);
            ours.1 += len;
            theirs.1 += len as u64;
            total += len;
            budget -= len;
        }
        total
    }

    /// So many bytes more have been moved.
    fn advance(&mut self, mut count: usize) {
        self.moved += count as u64;
        let Access { operation, ours, theirs, .. } = self;
        let (local, spans) = match operation {
            Operation::Put { local, spans, .. } | Operation::Get { local, spans, .. } => {
                (local, spans)
            }
            _ => return,
        };
        let mut rest = count as u64;
        while let Some(piece) = local.get(ours.0).filter(|_| count > 0) {
            let now = count.min(piece.len() - ours.1);
            (ours.1, count) = (ours.1 + now, count - now);
            if ours.1 == piece.len() {
                *ours = (ours.0 + 1, 0);
            }
        }
        while let Some(span) = spans.get(theirs.0).filter(|_| rest > 0) {
            let now = rest.min(span.len - theirs.1);
            (theirs.1, rest) = (theirs.1 + now, rest - now);
            if theirs.1 == span.len {
                *theirs = (theirs.0 + 1, 0);
            }
        }
    }
}

impl Shm {
    /// Takes in an operation on remote memory. Gives it back if it is for the engine.
    pub(crate) fn accept_access(&mut self, operation: Operation) -> Option<Operation> {
        let (Operation::Put { remote, .. }
        | Operation::Get { remote, .. }
        | Operation::Atomic { remote, .. }
        | Operation::Map { remote, .. }) = &operation
        else {
            return Some(operation);
        };
        let remote = *remote;
        let Some(imported) = self.engine.imported(remote) else { return Some(operation) };
        let own = self.engine.is_self(remote.peer);
        if own && let Operation::Map { token, .. } = operation {
            let result = self.map_own(remote);
            self.complete(token, Some(remote.peer), result);
            return None;
        }
        let live = self
            .engine
            .peer_info(remote.peer)
            .is_some_and(|info| !matches!(info.state, petasos_fabric::PeerState::Lost(_)));
        let Some(route) = Route::of(imported).filter(|_| live && !own) else {
            return Some(operation);
        };
        let checked = self.check(&operation, imported, remote);
        match checked {
            Ok(total) => {
                let (ours, theirs) = ((0, 0), (0, 0));
                let streams = total >= self.config.stream_from;
                self.enqueue(
                    remote.peer,
                    Access {
                        operation,
                        route,
                        total,
                        moved: 0,
                        ours,
                        theirs,
                        streams,
                        waiting: false,
                    },
                );
            }
            Err(kind) => self.complete(operation.token(), Some(remote.peer), Err(kind)),
        }
        None
    }

    fn enqueue(&mut self, peer: Peer, access: Access) {
        let index = peer.index as usize;
        if self.accesses.len() <= index {
            self.accesses.resize_with(index + 1, VecDeque::new);
        }
        self.accesses[index].push_back(access);
        let connected = self.channels.get(index).is_some_and(Option::is_some);
        if self.accesses[index].len() == 1 && connected {
            self.working.push_back(peer.index);
        }
    }

    /// Checks an operation against the key and the limits, and gives its length.
    fn check(
        &self,
        operation: &Operation,
        imported: &Imported,
        remote: Remote,
    ) -> Result<u64, OpErrorKind> {
        let limits = &self.capabilities.limits;
        let allowed = imported.parts.access;
        let right = |needed| match allowed.allows(needed) {
            true => Ok(()),
            false => Err(OpErrorKind::Denied { allowed, needed }),
        };
        let (local, spans) = match operation {
            Operation::Put { local, spans, .. } => {
                right(Rights::WRITE)?;
                (local, spans)
            }
            Operation::Get { local, spans, .. } => {
                right(Rights::READ)?;
                if !local.iter().all(|piece| piece.region().is_writable()) {
                    let (allowed, needed) = (Rights::READ, Rights::WRITE);
                    return Err(OpErrorKind::Denied { allowed, needed });
                }
                (local, spans)
            }
            Operation::Map { .. } => return right(Rights::READ).map(|()| 0),
            _ => return right(Rights::ATOMIC).map(|()| 0),
        };
        let (what, pieces) = ("the number of pieces", local.len().max(spans.len()));
        if pieces > limits.max_pieces {
            let (value, limit) = (pieces as u64, limits.max_pieces as u64);
            return Err(OpErrorKind::TooLarge { what, value, limit });
        }
        let mut total = 0u64;
        for span in spans {
            within(span.offset, span.len, remote.len)?;
            total = total.saturating_add(span.len);
        }
        let ours = local.iter().map(|piece| piece.len() as u64).sum();
        if ours != total {
            return Err(OpErrorKind::LengthMismatch { local: ours, remote: total });
        }
        if let Operation::Put { event: Some(_), .. } = operation {
            within(0, total, remote.len)?;
        }
        let (what, limit) = ("the length of a transfer", limits.max_transfer);
        match total <= limit {
            true => Ok(total),
            false => Err(OpErrorKind::TooLarge { what, value: total, limit }),
        }
    }

    fn map_own(&self, remote: Remote) -> Result<Done, OpErrorKind> {
        let imported = self.engine.imported(remote).ok_or(OpErrorKind::UnknownRegion)?;
        let (allowed, needed) = (imported.parts.access, Rights::READ);
        if !allowed.allows(needed) {
            return Err(OpErrorKind::Denied { allowed, needed });
        }
        let route = Route::of(imported).ok_or(OpErrorKind::StaleKey)?;
        let slot = self.exposed.get(route.slot as usize).copied().flatten();
        let (region, _) = slot.filter(|s| s.1 == route.tag).ok_or(OpErrorKind::StaleKey)?;
        let (memory, _) = self.engine.region(region).ok_or(OpErrorKind::StaleKey)?;
        if imported.parts.incarnation != self.engine.incarnation() {
            return Err(OpErrorKind::StaleKey);
        }
        Ok(Done::Mapped(Region::view(memory)))
    }

    /// Moves accesses on, by a bounded number of bytes. True if something was done.
    pub(crate) fn work(&mut self) -> bool {
        let mut budget = self.config.transfer_budget;
        let mut worked = false;
        for _ in 0..self.working.len() {
            let Some(index) = self.working.pop_front() else { break };
            worked |= self.work_for(index, &mut budget);
            let left = self.accesses.get(index as usize).is_some_and(|queue| !queue.is_empty());
            if left && self.channel(index).is_some() {
                self.working.push_back(index);
            }
            if budget == 0 {
                break;
            }
        }
        worked
    }

    fn work_for(&mut self, index: u32, budget: &mut usize) -> bool {
        let mut worked = false;
        let turns = self.accesses.get(index as usize).map_or(0, |queue| queue.len().min(PER_PEER));
        for _ in 0..turns {
            if *budget == 0 {
                break;
            }
            let most = *budget;
            let Shm { channels, accesses, counters, .. } = self;
            let Some(channel) = channels.get_mut(index as usize).and_then(Option::as_deref_mut)
            else {
                return worked;
            };
            let peer = channel.handle;
            let Some(mut access) = accesses[index as usize].pop_front() else { break };
            if channel.ending.is_some() {
                // Fails with the rest once what the peer sent has been taken.
                access.waiting = true;
                accesses[index as usize].push_front(access);
                break;
            }
            let before = access.moved;
            let wished = channel.wanted.len();
            let step = channel.step(&mut access, most, counters);
            let asked = channel.wanted.len() > wished;
            *budget -= usize::try_from(access.moved - before).map_or(most, |moved| moved.min(most));
            access.waiting = matches!(step, Step::Wait | Step::Full);
            worked |= !access.waiting;
            match step {
                Step::Moved | Step::Wait | Step::Full => {
                    self.accesses[index as usize].push_back(access);
                }
                Step::Done(result) => {
                    let event = matches!(access.operation, Operation::Put { event: Some(_), .. });
                    self.complete(access.token(), Some(peer), result);
                    if event {
                        self.published(index);
                    }
                }
                Step::Engine => {
                    self.counters.served_by_owner += 1;
                    self.engine.submit(access.operation);
                }
                Step::Over => {
                    access.waiting = true;
                    self.accesses[index as usize].push_front(access);
                    self.hang_up(index, LostReason::Closed);
                    return true;
                }
                Step::Broken(what) => {
                    self.accesses[index as usize].push_front(access);
                    self.violated(index, what);
                    return true;
                }
            }
            if asked {
                self.published(index);
            }
        }
        worked
    }

    /// Takes back an access that has not ended. False if there is none with this token.
    pub(crate) fn cancel_access(&mut self, token: Token) -> bool {
        for index in 0..self.accesses.len() {
            let queue = &mut self.accesses[index];
            if let Some(at) = queue.iter().position(|access| access.token() == token) {
                queue.remove(at);
                let peer = self.engine.peer_at(index as u32);
                self.complete(token, peer, Err(OpErrorKind::Cancelled));
                return true;
            }
        }
        false
    }
}

fn within(offset: u64, len: u64, bound: u64) -> Result<(), OpErrorKind> {
    match offset.checked_add(len) {
        Some(end) if end <= bound => Ok(()),
        _ => Err(OpErrorKind::OutOfBounds { offset, len, bound }),
    }
}

impl Channel {
    /// One slice of an access.
    fn step(&mut self, access: &mut Access, budget: usize, counters: &mut Counters) -> Step {
        let Route { slot, tag, incarnation, .. } = access.route;
        if incarnation != self.incarnation {
            return Step::Done(Err(OpErrorKind::StaleKey));
        }
        self.pair.announce(tag);
        let step = match self.table.entry(slot, tag) {
            Some(entry) => self.step_within(access, &entry, budget, counters),
            None if self.is_over() => Step::Over,
            None => Step::Done(Err(OpErrorKind::StaleKey)),
        };
        self.pair.withdraw();
        match step {
            // Told outside of the announcement: the region may be closed now, the data is there.
            Step::Moved if access.moved == access.total => self.tell(access),
            step => step,
        }
    }

    /// The data of a put or get is in place: what is left to do.
    fn tell(&mut self, access: &Access) -> Step {
        let Operation::Put { event, spans, .. } = &access.operation else {
            return Step::Done(Ok(Done::Got));
        };
        if let Some(data) = *event {
            let offset = spans.iter().find(|span| span.len > 0).or(spans.first());
            let arrival = Arrival {
                slot: access.route.slot.into(),
                tag: access.route.tag,
                offset: offset.map_or(0, |span| span.offset),
                len: access.total,
                data,
            };
            match self.post(kind::EVENT, &arrival.encode()) {
                Ok(true) => {}
                Ok(false) => return Step::Full,
                Err(broken) => return Step::Broken(broken.to_string()),
            }
        }
        Step::Done(Ok(Done::Put))
    }

    /// A slice, while the region is announced and lives.
    fn step_within(
        &mut self,
        access: &mut Access,
        entry: &Entry,
        budget: usize,
        counters: &mut Counters,
    ) -> Step {
        let needed = access.needed();
        let (allowed, changes) = (entry.access, needed != Rights::READ);
        if !allowed.allows(needed) {
            return Step::Done(Err(OpErrorKind::Denied { allowed, needed }));
        }
        if access.moved == 0
            && let Some((_, _, spans)) = access.pieces()
        {
            for span in spans {
                if let Err(kind) = within(span.offset, span.len, entry.len) {
                    return Step::Done(Err(kind));
                }
            }
        }
        let region = match entry.segment {
            0 => None,
            id => self.segment(id, changes).and_then(|region| {
                let offset = usize::try_from(entry.offset).ok()?;
                region.slice(offset, usize::try_from(entry.len).ok()?)
            }),
        };
        let asked = entry.segment != 0 && region.is_none() && self.want(access, entry, changes);
        match &access.operation {
            Operation::Map { .. } => match region {
                Some(memory) => Step::Done(Ok(Done::Mapped(Region::view(&memory)))),
                None if asked => Step::Wait,
                None if entry.segment == 0 => {
                    let what = "mapping memory that is not the transport's own";
                    Step::Done(Err(OpErrorKind::Unsupported(what)))
                }
                None => {
                    let what = "its owner gave no descriptor that can be mapped";
                    Step::Done(Err(OpErrorKind::System(what.to_owned())))
                }
            },
            Operation::Atomic { offset, op, kind, operand, compare, fetch, .. } => {
                let Some(memory) = region else { return Step::Engine };
                if operand.len() > petasos_fabric::Limits::default().max_atomic {
                    return Step::Engine;
                }
                let at = usize::try_from(*offset).unwrap_or(usize::MAX);
                counters.mapped_bytes += operand.len() as u64;
                Step::Done(memory.atomic(at, *op, *kind, operand, compare).map(|old| match fetch {
                    true => Done::Fetched(old),
                    false => Done::Atomic,
                }))
            }
            _ if access.total == access.moved => Step::Moved,
            _ => match region {
                Some(memory) => self.copy(access, &memory, budget, counters),
                None if self.cross_memory => self.reach(access, entry, budget, counters),
                None if asked => Step::Wait,
                None => Step::Engine,
            },
        }
    }

    /// Copies through the mapping.
    fn copy(
        &mut self,
        access: &mut Access,
        memory: &Slice,
        budget: usize,
        counters: &mut Counters,
    ) -> Step {
        let Some((way, _, _)) = access.pieces() else { return Step::Engine };
        let move_one = if access.streams { Slice::stream_to } else { Slice::copy_to };
        let mut fits = true;
        let count = access.stretch(budget, |piece, at, offset, len| {
            let theirs = usize::try_from(offset).ok().and_then(|offset| memory.part(offset, len));
            match (piece.part(at, len), theirs) {
                (Some(ours), Some(theirs)) if way == Way::Get => _ = move_one(&theirs, &ours),
                (Some(ours), Some(theirs)) => _ = move_one(&ours, &theirs),
                _ => fits = false,
            }
        });
        if !fits {
            return Step::Broken("a region whose bounds changed".to_owned());
        }
        counters.mapped_bytes += count as u64;
        access.advance(count);
        Step::Moved
    }

    /// Reaches into the other process.
    fn reach(
        &mut self,
        access: &mut Access,
        entry: &Entry,
        budget: usize,
        counters: &mut Counters,
    ) -> Step {
        let Some((way, _, _)) = access.pieces() else { return Step::Engine };
        // Its number may be another's by now; the handle cannot.
        let ended = |process| crate::socket::is_over(process, rustix::event::PollFlags::IN);
        if self.process.as_ref().is_none_or(ended) {
            return Step::Over;
        }
        let (mut ours, mut theirs) = (Pieces::new(), Pieces::new());
        access.stretch(budget, |piece, at, offset, len| {
            // SAFETY: `stretch` keeps `at` within the piece.
            let base = unsafe { piece.as_ptr().add(at) };
            ours.push(cross::piece(base as usize as u64, len));
            theirs.push(cross::piece(entry.base.wrapping_add(offset), len));
        });
        // SAFETY: our pieces are parts of slices that the access holds, writable for a get (checked
        // when it was accepted), and there are no references into regions. Theirs lie within a
        // region that its owner keeps in place while it is announced.
        match unsafe { cross::transfer(way, self.pid, &ours, &theirs) } {
            Ok(0) => Step::Engine,
            Ok(count) => {
                counters.cross_memory_bytes += count as u64;
                access.advance(count);
                Step::Moved
            }
            Err(Errno::SRCH) => Step::Over,
            Err(Errno::INTR | Errno::AGAIN) => Step::Moved,
            Err(error) => {
                // EFAULT is about this memory, all else about the peer.
                self.cross_memory &= error == Errno::FAULT;
                Step::Engine
            }
        }
    }

    /// Asks for the descriptor of a segment. False if the answer was no.
    fn want(&mut self, access: &Access, entry: &Entry, writable: bool) -> bool {
        let id = entry.segment;
        if let Some(want) = self.wanted.iter().find(|w| w.id == id && w.writable == writable) {
            return !want.refused;
        }
        let proof = crate::channel::numbers::<2>(&access.route.proof);
        let (Some([first, second]), Ok(len)) = (proof, usize::try_from(entry.segment_len)) else {
            return false;
        };
        if self.wanted.len() >= MAX_WANTS {
            self.wanted.retain(|want| !want.refused);
            return self.wanted.len() >= MAX_WANTS;
        }
        let wish: [u8; 40] =
            crate::channel::words([access.route.slot.into(), id, first, second, writable.into()]);
        if let Ok(true) = self.post(kind::WANT, &wish) {
            self.wanted.push(Want { id, writable, len, refused: false });
        }
        true
    }
}

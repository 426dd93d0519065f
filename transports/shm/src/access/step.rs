//! One slice of an access: announced, looked up, moved.

use super::{Access, Route, Step, within};
use crate::{
    Counters,
    channel::{Arrival, Channel, kind},
    cross_memory::{self, Direction, Pieces},
    table::Entry,
};
use petasos_fabric::{Access as Rights, Done, OpErrorKind, Operation, Region, Slice};
use rustix::io::Errno;

impl Channel {
    /// One slice of an access.
    pub(crate) fn step(
        &mut self,
        access: &mut Access,
        budget: usize,
        counters: &mut Counters,
    ) -> Step {
        let Route { slot, tag, incarnation, .. } = access.route;
        if incarnation != self.incarnation {
            return Step::Done(Err(OpErrorKind::StaleKey));
        }
        self.pair.announce(tag);
        let step = match self.table.entry(slot, tag) {
            // It gave the pair up, and need not look at our announcements any more.
            _ if self.pair.is_ended() => Step::Over,
            Some(entry) => self.step_within(access, &entry, budget, counters),
            None if self.is_over() => Step::Over,
            None => Step::Done(Err(OpErrorKind::StaleKey)),
        };
        self.pair.withdraw();
        match step {
            // Told outside of the announcement: the region may be closed now, the data is there.
            Step::Moved if access.at.moved() == access.total => self.tell(access),
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
        if access.at.moved() == 0
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
            id => self.segments.find(id, changes).and_then(|region| {
                let offset = usize::try_from(entry.offset).ok()?;
                region.slice(offset, usize::try_from(entry.len).ok()?)
            }),
        };
        let asked = entry.segment != 0 && region.is_none() && self.want(access, entry, changes);
        match &access.operation {
            // The program counts on the length that the key says.
            Operation::Map { remote, .. } if entry.len != remote.len => {
                let (len, bound) = (remote.len, entry.len);
                Step::Done(Err(OpErrorKind::OutOfBounds { offset: 0, len, bound }))
            }
            Operation::Map { .. } => match region {
                Some(memory) => {
                    let what = "mapping memory that its program keeps, or of a device";
                    let view = Region::view(&memory).map(Done::Mapped);
                    Step::Done(view.ok_or(OpErrorKind::Unsupported(what)))
                }
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
            _ if access.total == access.at.moved() => Step::Moved,
            _ => match region {
                Some(memory) => self.copy(access, &memory, budget, counters),
                None if self.process.cross_memory() => {
                    self.copy_across(access, entry, budget, counters)
                }
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
        let Some((direction, _, _)) = access.pieces() else { return Step::Engine };
        let move_one = if access.streams { Slice::stream_to } else { Slice::copy_to };
        let mut fits = true;
        let count = access.stretches(budget, |stretch| {
            let offset = usize::try_from(stretch.offset).ok();
            let theirs = offset.and_then(|offset| memory.part(offset, stretch.len));
            match (stretch.local(), theirs) {
                (Some(ours), Some(theirs)) if direction == Direction::Get => {
                    _ = move_one(&theirs, &ours)
                }
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

    /// Copies between the two processes.
    fn copy_across(
        &mut self,
        access: &mut Access,
        entry: &Entry,
        budget: usize,
        counters: &mut Counters,
    ) -> Step {
        let Some((direction, _, _)) = access.pieces() else { return Step::Engine };
        // Its number may be another process's by now, and its memory another program's; its handle
        // and its socket are not. Between this call and the next one that is possible still: see
        // the crate's page.
        match self.process.is_running() {
            Some(true) => {}
            Some(false) => return Step::Over,
            // A signal, or no memory: nothing is known, and nothing done.
            None => return Step::Moved,
        }
        let (mut ours, mut theirs) = (Pieces::new(), Pieces::new());
        access.stretches(budget, |stretch| {
            let base = stretch.piece.as_ptr().wrapping_add(stretch.at);
            ours.push(cross_memory::piece(base as usize as u64, stretch.len));
            theirs.push(cross_memory::piece(entry.base.wrapping_add(stretch.offset), stretch.len));
        });
        // SAFETY: our pieces are parts of slices that the access holds (a stretch lies within one),
        // writable for a get (checked when it was accepted), and there are no references into
        // regions. Theirs lie within a region that its owner keeps in place while it is announced.
        match unsafe { cross_memory::transfer(direction, self.process.pid(), &ours, &theirs) } {
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
                if error != Errno::FAULT {
                    self.process.lose_cross_memory();
                }
                Step::Engine
            }
        }
    }

    /// Asks for the descriptor of a segment. False if the answer was no.
    fn want(&mut self, access: &Access, entry: &Entry, writable: bool) -> bool {
        let id = entry.segment;
        if let Some(may_come) = self.segments.may_come(id, writable) {
            return may_come;
        }
        let proof = crate::channel::numbers::<2>(&access.route.proof);
        let (Some([first, second]), Ok(len)) = (proof, usize::try_from(entry.segment_len)) else {
            return false;
        };
        if self.segments.is_full() {
            self.segments.forget_refused();
            return self.segments.is_full();
        }
        let wish: [u8; 40] =
            crate::channel::words([access.route.slot.into(), id, first, second, writable.into()]);
        if let Ok(true) = self.post(kind::WANT, &wish) {
            self.segments.asked(id, writable, len);
        }
        true
    }
}

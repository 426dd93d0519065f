//! Completions: packets that have arrived, and operations that have ended.

use super::{Net, batch::BATCH, slots::Owner};
use crate::sys::{
    FI_EAGAIN, FI_EAVAIL, FI_MULTI_RECV, FI_RECV, FI_REMOTE_CQ_DATA, FI_REMOTE_WRITE,
    fi_cq_err_entry,
};
use petasos_datagram::{Happened, Packet};
use petasos_fabric::{Region, Slice};
use std::{ffi::c_int, mem::MaybeUninit};

/// So many messages can fail one after the other, with none between that is received and no moment
/// without completions, before nothing can be received any more: more than killed senders have under
/// way, or than a process that reaches the port can have fail between two passes.
const FAILED: u32 = 1 << 16;

/// A write of a peer, with completion data.
const WRITTEN: u64 = FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;

impl Net {
    /// The next completion, if there is one.
    #[inline]
    pub(super) fn next_completion(&mut self) -> Option<Happened> {
        loop {
            let happened = match self.batch.has_more() || self.fill()? {
                true => self.take(),
                false => self.take_error(),
            };
            if happened.is_some() {
                return happened;
            }
        }
    }

    /// Reads completions: `None` if there are none, false if there is an error to be read.
    #[inline]
    fn fill(&mut self) -> Option<bool> {
        if self.lock.as_ref().is_some_and(super::spin::SpinLock::stays_held) {
            return None;
        }
        if self.slabs.has_unposted() {
            self.repost();
        }
        let (cq, room) = (self.cq, self.batch.room());
        // SAFETY: the queue is open, was made for entries of this kind, and there is room for as
        // many.
        let count = unsafe { ((*(*cq).ops).read)(cq, room.as_mut_ptr().cast(), BATCH) };
        self.batch.filled(count);
        match count {
            1.. => Some(true),
            code if code == -FI_EAVAIL => Some(false),
            _ => {
                self.failed = 0;
                None
            }
        }
    }

    /// Whether completions were read that were not taken yet.
    pub(super) fn has_read(&self) -> bool {
        self.batch.has_more()
    }

    /// Whether there is something to take; reads completions if there are none.
    pub(super) fn look_again(&mut self) -> bool {
        self.has_read() || self.fill().is_some()
    }

    /// Takes the next completion of the batch.
    #[inline]
    fn take(&mut self) -> Option<Happened> {
        let entry = self.batch.take()?;
        // Of a peer's write. Its context is none of ours, and not always null.
        if entry.flags & WRITTEN == WRITTEN {
            return Some(Happened::CompletionData(entry.data));
        }
        match self.contexts.owner(entry.op_context) {
            Some(Owner::Slot(slot)) => Some(Happened::Done(self.slots.done(slot)?.0, Ok(()))),
            Some(Owner::Receive(slab)) => {
                if entry.flags & FI_MULTI_RECV != 0 || !self.details.multi {
                    // Read to its end: posted again with the next batch, when this one has been
                    // taken.
                    self.slabs.release(slab);
                }
                if entry.flags & FI_RECV == 0 || entry.len == 0 {
                    return None;
                }
                let region = self.slabs.region(slab);
                let at = match self.details.multi {
                    true => (entry.buf as usize).wrapping_sub(region.as_ptr() as usize),
                    false => 0,
                };
                self.failed = 0;
                let within = at.checked_add(entry.len).is_some_and(|end| end <= region.len());
                // What the library says is checked.
                within.then_some(Happened::Packet(Packet { buffer: slab, at, len: entry.len }))
            }
            None => None,
        }
    }

    #[cold]
    fn take_error(&mut self) -> Option<Happened> {
        let mut entry = MaybeUninit::<fi_cq_err_entry>::zeroed();
        let cq = self.cq;
        // SAFETY: the queue is open, and the entry has room for what versions beyond ours write. No
        // buffer for more data is offered: its length is zero.
        let count = unsafe { ((*(*cq).ops).readerr)(cq, entry.as_mut_ptr(), 0) };
        if count < 1 {
            let nothing = count == -FI_EAGAIN || count == 0;
            return (!nothing).then_some(Happened::Broken(count as c_int));
        }
        // SAFETY: all zeroes is a value of it, and so is what the library wrote.
        let entry = unsafe { entry.assume_init() };
        match self.contexts.owner(entry.op_context)? {
            Owner::Slot(slot) => Some(Happened::Done(self.slots.done(slot)?.0, Err(entry.err))),
            // Of one message: its sender was killed in the middle of it, or it is longer than any
            // of ours. What others send is not concerned.
            Owner::Receive(slab) => {
                if !self.details.multi || entry.flags & FI_MULTI_RECV != 0 {
                    self.slabs.release(slab);
                }
                self.failed += 1;
                (self.failed > FAILED).then_some(Happened::Broken(entry.err))
            }
        }
    }

    /// Copies from a packet: as many bytes as there is room for.
    ///
    /// # Panics
    /// If that is beyond its end.
    #[inline]
    pub(super) fn read_packet(&self, packet: Packet, at: usize, into: &mut [u8]) {
        assert!(at.checked_add(into.len()).is_some_and(|end| end <= packet.len));
        self.slab(packet).read(packet.at + at, into);
    }

    /// A part of a packet.
    pub(super) fn part(&self, packet: Packet, at: usize, len: usize) -> Option<Slice> {
        let within = at.checked_add(len).is_some_and(|end| end <= packet.len);
        within.then(|| self.slab(packet).slice(packet.at.checked_add(at)?, len))?
    }

    fn slab(&self, packet: Packet) -> &Region {
        self.slabs.region(packet.buffer)
    }
}

impl Net {
    /// The length of the next message, if one has arrived, with as few calls as possible.
    #[inline]
    pub(super) fn read_plain(&mut self) -> Option<usize> {
        let (cq, room) = (self.cq, self.batch.room());
        // SAFETY: the queue is open, was made for entries of this kind, and there is room for one.
        let count = unsafe { ((*(*cq).ops).read)(cq, room.as_mut_ptr().cast(), 1) };
        if count != 1 {
            return None;
        }
        let entry = room[0];
        match self.contexts.owner(entry.op_context)? {
            Owner::Slot(slot) => {
                self.slots.done(slot);
                None
            }
            Owner::Receive(slab) => {
                if entry.flags & FI_MULTI_RECV != 0 || !self.details.multi {
                    self.slabs.release(slab);
                    self.repost();
                }
                (entry.len > 0).then_some(entry.len)
            }
        }
    }
}

//! What is under way: memory that the library works on, and what to tell when it is done.

use petasos_datagram::Mark;
use petasos_fabric::{Region, Slice, two_sided::Outgoing};
use std::ffi::c_void;

/// What is kept while an operation is under way.
#[derive(Debug)]
pub(super) enum Held {
    /// Nothing but the slot's own buffer.
    Nothing,
    Payload(#[expect(dead_code, reason = "held for the library")] Outgoing),
    Copy(#[expect(dead_code, reason = "held for the library")] Region),
    Memory(#[expect(dead_code, reason = "held for the library")] Slice),
}

/// The slots, at fixed places: each has room for what the library notes there (`fi_context2`), and a
/// buffer for a short packet.
pub(super) struct Slots {
    contexts: Region,
    buffers: Region,
    held: Vec<Option<(Mark, Held)>>,
    free: Vec<u32>,
    /// Contexts behind those of the slots, for receives.
    receives: usize,
}

/// The length of a context.
const CONTEXT: usize = 64;
/// The length of a slot's buffer: packets up to here are copied.
pub(super) const BUFFER: usize = 4096 + 128;

/// Whose context it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Slot(u32),
    Receive(u32),
}

impl Slots {
    pub(super) fn new(count: usize, receives: usize) -> Slots {
        Slots {
            contexts: Region::zeroed((count + receives) * CONTEXT),
            buffers: Region::zeroed(count * BUFFER),
            held: (0..count).map(|_| None).collect(),
            free: (0..count as u32).rev().collect(),
            receives,
        }
    }

    /// A slot, for now; [`Slots::keep`] takes it.
    pub(super) fn next(&self) -> Option<u32> {
        self.free.last().copied()
    }

    /// The slot that `next` gave is in use.
    pub(super) fn keep(&mut self, slot: u32, mark: Mark, held: Held) {
        let top = self.free.pop();
        debug_assert_eq!(top, Some(slot));
        self.held[slot as usize] = Some((mark, held));
    }

    /// The library is done with a slot: it may be used again, and its memory goes.
    pub(super) fn done(&mut self, slot: u32) -> Option<Mark> {
        let (mark, _) = self.held.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(mark)
    }

    /// What the library is given besides what is held.
    pub(super) fn memory(&self) -> [Region; 2] {
        [self.contexts.clone(), self.buffers.clone()]
    }

    /// How many are under way.
    pub(super) fn running(&self) -> usize {
        self.held.len() - self.free.len()
    }

    pub(super) fn context(&self, owner: Owner) -> *mut c_void {
        let index = match owner {
            Owner::Slot(slot) => slot as usize,
            Owner::Receive(slab) => self.held.len() + slab as usize,
        };
        assert!(index < self.held.len() + self.receives);
        self.contexts.as_ptr().wrapping_add(index * CONTEXT).cast()
    }

    /// Whose context this is; `None` if it is none.
    pub(super) fn owner(&self, context: *mut c_void) -> Option<Owner> {
        let offset = (context as usize).checked_sub(self.contexts.as_ptr() as usize)?;
        let index = offset / CONTEXT;
        if !offset.is_multiple_of(CONTEXT) || index >= self.held.len() + self.receives {
            return None;
        }
        Some(match index.checked_sub(self.held.len()) {
            None => Owner::Slot(index as u32),
            Some(slab) => Owner::Receive(slab as u32),
        })
    }

    /// The buffer of a slot: [`BUFFER`] bytes.
    pub(super) fn buffer(&self, slot: u32) -> *mut u8 {
        assert!((slot as usize) < self.held.len());
        self.buffers.as_ptr().wrapping_add(slot as usize * BUFFER)
    }

    /// Copies to the buffer of a slot.
    pub(super) fn write(&self, slot: u32, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= BUFFER);
        self.buffers.write(slot as usize * BUFFER + at, bytes);
    }

    /// Copies memory to the buffer of a slot.
    pub(super) fn copy(&self, slot: u32, at: usize, piece: &Slice) {
        assert!(at + piece.len() <= BUFFER);
        if let Some(room) = self.buffers.slice(slot as usize * BUFFER + at, piece.len()) {
            piece.copy_to(&room);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_know_their_owners() {
        let mut slots = Slots::new(3, 2);
        for owner in [Owner::Slot(0), Owner::Slot(2), Owner::Receive(0), Owner::Receive(1)] {
            assert_eq!(slots.owner(slots.context(owner)), Some(owner));
        }
        let base = slots.context(Owner::Slot(0)).cast::<u8>();
        for foreign in
            [base.wrapping_add(1), base.wrapping_sub(CONTEXT), base.wrapping_add(5 * CONTEXT)]
        {
            assert_eq!(slots.owner(foreign.cast()), None);
        }
        let mark = Mark::Packet { link: 1, serial: 2 };
        let slot = slots.next().unwrap();
        slots.keep(slot, mark, Held::Nothing);
        assert_eq!(slots.running(), 1);
        assert_eq!((slots.done(slot), slots.done(slot), slots.done(99)), (Some(mark), None, None));
        assert_eq!(slots.running(), 0);
    }
}

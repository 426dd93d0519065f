//! What is under way: memory that the library works on, and what to tell when it is done.

use petasos_datagram::{Mark, slots};
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

/// One for each send and access.
pub(super) type Slots = slots::Slots<(Mark, Held)>;

/// The length of a slot's buffer: packets up to here are copied.
pub(super) const BUFFER: usize = Slots::BUFFER;

/// Room at fixed places for what the library notes of an operation (`fi_context2`): of slots, and of receives behind
/// them.
pub(super) struct Contexts {
    memory: Region,
    slots: usize,
    receives: usize,
}

/// The length of a context.
const CONTEXT: usize = 64;

/// Whose context it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Slot(u32),
    Receive(u32),
}

impl Contexts {
    pub(super) fn new(slots: usize, receives: usize) -> Contexts {
        Contexts { memory: Region::zeroed((slots + receives) * CONTEXT), slots, receives }
    }

    /// All of it.
    pub(super) fn memory(&self) -> Region {
        self.memory.clone()
    }

    pub(super) fn of(&self, owner: Owner) -> *mut c_void {
        let index = match owner {
            Owner::Slot(slot) => slot as usize,
            Owner::Receive(slab) => self.slots + slab as usize,
        };
        assert!(index < self.slots + self.receives);
        self.memory.as_ptr().wrapping_add(index * CONTEXT).cast()
    }

    /// Whose context this is; `None` if it is none.
    pub(super) fn owner(&self, context: *mut c_void) -> Option<Owner> {
        let offset = (context as usize).checked_sub(self.memory.as_ptr() as usize)?;
        let index = offset / CONTEXT;
        if !offset.is_multiple_of(CONTEXT) || index >= self.slots + self.receives {
            return None;
        }
        Some(match index.checked_sub(self.slots) {
            None => Owner::Slot(index as u32),
            Some(slab) => Owner::Receive(slab as u32),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_know_their_owners() {
        let contexts = Contexts::new(3, 2);
        for owner in [Owner::Slot(0), Owner::Slot(2), Owner::Receive(0), Owner::Receive(1)] {
            assert_eq!(contexts.owner(contexts.of(owner)), Some(owner));
        }
        let base = contexts.of(Owner::Slot(0)).cast::<u8>();
        for foreign in
            [base.wrapping_add(1), base.wrapping_sub(CONTEXT), base.wrapping_add(5 * CONTEXT)]
        {
            assert_eq!(contexts.owner(foreign.cast()), None);
        }
    }
}

//! Operations under way: the memory that the library works on, and the mark that is reported on
//! completion.

use petasos_datagram::{Mark, slots};
use petasos_fabric::{Region, Slice, two_sided::Outgoing};
use std::ffi::c_void;

/// What is kept while an operation is under way.
#[derive(Debug)]
pub(super) enum Held {
    /// Nothing but the slot's own buffer.
    Nothing,
    Payload(Outgoing),
    Copy(#[expect(dead_code, reason = "held for the library")] Region),
    Memory(Slice),
}

impl Held {
    /// Whether the library may touch this memory until the operation is over.
    pub(super) fn overlaps(&self, memory: &Slice) -> bool {
        match self {
            Held::Nothing | Held::Copy(_) => false,
            Held::Payload(payload) => payload.overlaps(memory),
            Held::Memory(held) => held.overlaps(memory),
        }
    }
}

/// One for each send and access.
pub(super) type Slots = slots::Slots<(Mark, Held)>;

/// The length of a slot's buffer: packets up to here are copied.
pub(super) const BUFFER: usize = Slots::BUFFER;

/// Contexts of operations at fixed places (`fi_context2`), which the library writes to: those of
/// slots, then those of receives.
pub(super) struct Contexts {
    memory: Region,
    slots: usize,
    receives: usize,
    /// Of slots beyond, as many in each as there were at first.
    more: Vec<Region>,
}

/// The length of a context.
const CONTEXT: usize = 64;

/// The owner of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Slot(u32),
    Receive(u32),
}

impl Contexts {
    pub(super) fn new(slots: usize, receives: usize) -> Contexts {
        let memory = Region::zeroed((slots + receives) * CONTEXT);
        Contexts { memory, slots, receives, more: Vec::new() }
    }

    /// Adds as many for slots as there were at first. Returns their memory.
    #[cold]
    pub(super) fn grow(&mut self) -> Region {
        let memory = Region::zeroed(self.slots * CONTEXT);
        self.more.push(memory.clone());
        memory
    }

    /// All that there was at first.
    pub(super) fn memory(&self) -> Region {
        self.memory.clone()
    }

    pub(super) fn of(&self, owner: Owner) -> *mut c_void {
        let index = match owner {
            Owner::Slot(slot) if slot as usize >= self.slots => return self.further(slot as usize),
            Owner::Slot(slot) => slot as usize,
            Owner::Receive(slab) => self.slots + slab as usize,
        };
        assert!(index < self.slots + self.receives);
        self.memory.as_ptr().wrapping_add(index * CONTEXT).cast()
    }

    /// The owner of this context; `None` if it is not one of these.
    pub(super) fn owner(&self, context: *mut c_void) -> Option<Owner> {
        let offset = (context as usize).wrapping_sub(self.memory.as_ptr() as usize);
        let index = offset / CONTEXT;
        if !offset.is_multiple_of(CONTEXT) || index >= self.slots + self.receives {
            return self.further_owner(context);
        }
        Some(match index.checked_sub(self.slots) {
            None => Owner::Slot(index as u32),
            Some(slab) => Owner::Receive(slab as u32),
        })
    }

    #[cold]
    fn further(&self, slot: usize) -> *mut c_void {
        let beyond = slot - self.slots;
        let memory = &self.more[beyond / self.slots];
        memory.as_ptr().wrapping_add(beyond % self.slots * CONTEXT).cast()
    }

    #[cold]
    fn further_owner(&self, context: *mut c_void) -> Option<Owner> {
        self.more.iter().zip(1..).find_map(|(memory, nth)| {
            let offset = (context as usize).wrapping_sub(memory.as_ptr() as usize);
            let index = offset / CONTEXT;
            let is_one = offset.is_multiple_of(CONTEXT) && index < self.slots;
            is_one.then(|| Owner::Slot((nth * self.slots + index) as u32))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_contexts_know_their_owners() {
        let mut contexts = Contexts::new(3, 2);
        let memory = [contexts.grow(), contexts.grow()];
        let of = |slot| contexts.of(Owner::Slot(slot));
        assert_eq!((of(3), of(6)), (memory[0].as_ptr().cast(), memory[1].as_ptr().cast()));
        for slot in 0..9 {
            assert_eq!(contexts.owner(of(slot)), Some(Owner::Slot(slot)));
        }
        assert_eq!(contexts.owner(contexts.of(Owner::Receive(1))), Some(Owner::Receive(1)));
        for (memory, at) in [(&memory[0], 1), (&memory[1], 3 * CONTEXT)] {
            assert_eq!(contexts.owner(memory.as_ptr().wrapping_add(at).cast()), None);
        }
    }

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

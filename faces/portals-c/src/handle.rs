//! Handles of 32 bits, as C has them.
//!
//! ```text
//! 31   29 28    27 26                                 0
//! kind    interface  stamp, and slot
//! ```
//!
//! The crate's own handles have 64 bits and their interface. So for each slot the generation that
//! was given out last is kept here ([`Slots`]); a handle has its lowest bits, mixed with the number
//! of the interface's opening: a handle of an interface that was ended, or to something that is
//! gone, is refused. How far stamps reach depends on the kind: with 7 bits for entries, a handle
//! that is stale by a multiple of 128 uses of its slot names what is there now.

use crate::abi::{ARG_INVALID, CHandle, Code};
use petasos_portals::{Handle, InterfaceId};
use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
};

/// What a handle names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    Interface = 0,
    Queue = 1,
    Counter = 2,
    Descriptor = 3,
    Entry = 4,
}

impl Kind {
    /// Bits of the slot.
    const fn slot_bits(self) -> u32 {
        match self {
            Kind::Interface => 0,
            Kind::Queue => 12,
            Kind::Counter | Kind::Descriptor => 17,
            Kind::Entry => 20,
        }
    }

    /// How many slots there can be: one less than have a number, so that no handle is `PTL_EQ_NONE`
    /// or `PTL_CT_NONE`.
    pub(crate) const fn most(self) -> usize {
        (1 << self.slot_bits()) - 1
    }
}

/// Bits of stamp and slot.
const LOW: u32 = 27;

/// Puts a handle together.
fn compose(kind: Kind, interface: u32, stamp: u32, slot: u32) -> CHandle {
    let bits = kind.slot_bits();
    let stamp = stamp & ((1 << (LOW - bits)) - 1);
    (kind as u32) << 29 | (interface & 3) << LOW | stamp << bits | slot
}

/// The number of the interface that a handle of any kind is of.
pub(crate) fn interface_of(handle: CHandle) -> usize {
    (handle >> LOW & 3) as usize
}

fn is_of(handle: CHandle, kind: Kind) -> bool {
    handle >> 29 == kind as u32
}

/// The handle of an interface, by its number and that of its opening.
pub(crate) fn of_interface(number: u32, opening: u32) -> CHandle {
    // Not 0, which is what a program gets that clears a variable.
    compose(Kind::Interface, number, opening.max(1), 0)
}

/// Slots in a block, which is made when the first of them is used.
const BLOCK: usize = 4096;

/// The handles of one kind that were given out by an interface: for each slot the generation, and 8
/// bits of the caller's.
#[derive(Debug)]
pub(crate) struct Slots {
    kind: Kind,
    /// Number of the interface, and of its opening.
    interface: (u32, u32),
    id: InterfaceId,
    blocks: Box<[OnceLock<Box<[AtomicU64]>>]>,
}

/// Above the generation, and the caller's bits.
const GIVEN: u64 = 1 << 63;

impl Slots {
    pub(crate) fn new(kind: Kind, interface: (u32, u32), id: InterfaceId) -> Slots {
        let blocks = (kind.most() + 1).div_ceil(BLOCK);
        Slots { kind, interface, id, blocks: (0..blocks).map(|_| OnceLock::new()).collect() }
    }

    fn stamp(&self, generation: u32) -> u32 {
        // Openings are far apart in all bits of a stamp.
        generation.wrapping_add(self.interface.1.wrapping_mul(0x9e37_79b1) >> 7)
    }

    fn slot(&self, slot: u32) -> Option<&AtomicU64> {
        let block = self.blocks.get(slot as usize / BLOCK)?.get()?;
        block.get(slot as usize % BLOCK)
    }

    /// The handle for C of something that was made; `bits` come back with it.
    pub(crate) fn give<K>(&self, handle: Handle<K>, bits: u8) -> CHandle {
        let all = handle.to_bits();
        let (slot, generation) = (all as u32, (all >> 32) as u32);
        let empty = || (0..BLOCK).map(|_| AtomicU64::new(0)).collect();
        let block = self.blocks[slot as usize / BLOCK].get_or_init(empty);
        let word = GIVEN | u64::from(bits) << 32 | u64::from(generation);
        block[slot as usize % BLOCK].store(word, Ordering::Release);
        compose(self.kind, self.interface.0, self.stamp(generation), slot)
    }

    /// What a handle of this interface names, and the bits that were given with it.
    ///
    /// # Errors
    /// [`ARG_INVALID`] if it is of another kind or interface, or stale.
    #[inline]
    pub(crate) fn get<K>(&self, handle: CHandle) -> Result<(Handle<K>, u8), Code> {
        let bits = self.kind.slot_bits();
        let slot = handle & ((1 << bits) - 1);
        let word = self.slot(slot).ok_or(ARG_INVALID)?.load(Ordering::Acquire);
        let generation = word as u32;
        let known = compose(self.kind, self.interface.0, self.stamp(generation), slot);
        if word & GIVEN == 0 || known != handle {
            return Err(ARG_INVALID);
        }
        let all = u64::from(generation) << 32 | u64::from(slot);
        Ok((Handle::from_bits(self.id, all), (word >> 32) as u8))
    }

    /// A handle is stale from now on. Its slot may be another thread's by now, whose handle stays.
    pub(crate) fn forget<K>(&self, handle: Handle<K>) {
        let all = handle.to_bits();
        if let Some(word) = self.slot(all as u32) {
            let same = |word: u64| (word as u32 == (all >> 32) as u32).then_some(0);
            let _ = word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, same);
        }
    }
}

/// Whether a handle may be one of this kind.
pub(crate) fn may_be(handle: CHandle, kind: Kind) -> bool {
    is_of(handle, kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{CT_NONE, EQ_NONE};
    use petasos_portals::{Config, Counter, EventQueue, Interface, ProcessMap};
    use std::sync::Arc;

    fn interface() -> Interface {
        let endpoint = petasos_shm::Shm::open(&"shm://*".parse().unwrap()).unwrap();
        let address = petasos_fabric::Endpoint::address(&endpoint).clone();
        let map = Arc::new(ProcessMap::ranks([address]));
        Interface::open(Box::new(endpoint), map, Config::default()).unwrap()
    }

    #[test]
    fn stale_handles_and_those_of_others_are_refused() {
        let crate_side = interface();
        let counters = Slots::new(Kind::Counter, (2, 1), crate_side.id());
        let queues = Slots::new(Kind::Queue, (2, 1), crate_side.id());
        let first = crate_side.counter().unwrap();
        let handle = counters.give(first, 5);
        assert_eq!(interface_of(handle), 2);
        assert_eq!(counters.get::<Counter>(handle), Ok((first, 5)));
        assert_eq!(queues.get::<EventQueue>(handle), Err(ARG_INVALID));
        crate_side.free_counter(first).unwrap();
        let second = counters.give(crate_side.counter().unwrap(), 0);
        assert!(handle != second && counters.get::<Counter>(handle).is_err(), "the same slot");
        counters.forget(first);
        let (now, _) = counters.get::<Counter>(second).unwrap();
        counters.forget(now);
        assert!(counters.get::<Counter>(second).is_err());
        // The same slot and generation after the interface was opened again.
        let later = Slots::new(Kind::Counter, (2, 2), crate_side.id());
        later.give(first, 0);
        assert!(later.get::<Counter>(handle).is_err());
        let other = Slots::new(Kind::Counter, (3, 1), crate_side.id());
        other.give(first, 0);
        assert!(other.get::<Counter>(handle).is_err());
    }

    #[test]
    fn none_is_no_handle() {
        for none in [EQ_NONE, CT_NONE, u32::MAX, 0] {
            for kind in [Kind::Queue, Kind::Counter] {
                let last = kind.most() as u32 - 1;
                assert!((0..64).all(|stamp| compose(kind, 3, stamp, last) != none));
                assert!(compose(kind, 3, u32::MAX, last) != none);
            }
        }
        assert!(of_interface(0, 0) != 0);
        assert!(may_be(of_interface(3, 9), Kind::Interface));
    }
}

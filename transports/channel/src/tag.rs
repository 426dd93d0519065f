//! Tags of registered memory, by which puts with event say where they arrived.

use petasos_fabric::RegionId;

/// The bit of FIFOs; the rest of their tag is the peer. The tags of the user's regions do not have
/// this bit.
const FIFO: u64 = 1 << 63;

/// The tag under which a peer's FIFO is registered.
pub(crate) fn of_fifo(index: u32) -> u64 {
    FIFO | u64::from(index)
}

/// The tag of a region of the user's; `None` if its generation is too high for one.
pub(crate) fn of_region(region: RegionId) -> Option<u64> {
    let tag = u64::from(region.generation) << 32 | u64::from(region.index);
    (tag & FIFO == 0).then_some(tag)
}

/// The region of the user's that has this tag; `None` if it is the tag of a FIFO.
pub(crate) fn region(tag: u64) -> Option<RegionId> {
    let region = RegionId { index: tag as u32, generation: (tag >> 32) as u32 };
    (tag & FIFO == 0).then_some(region)
}

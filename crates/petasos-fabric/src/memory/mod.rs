//! Memory that can be lent to the network.
//!
//! A [`Region`] is a stretch of memory that lives as long as anybody holds it, a [`Slice`] a part
//! of one. Both are handles: while a network may write to the memory nobody has a reference into
//! it, only copies go in and out. Exclusive access comes back with [`Region::into_exclusive`],
//! once no operation, registration or other handle holds the region.
//!
//! All `unsafe` of this crate is here.

mod atomic;
mod copy;
pub mod memfd;
mod pages;
mod record;
mod region;
mod shared;
mod slice;

pub use copy::{copy_opaque, copy_streaming};
pub use record::{RECORD, RECORD_SPARE, Record};
pub use region::{Exclusive, Region, RegionBuilder, WeakRegion};
pub use shared::{Shared, SharedView};
pub use slice::Slice;

/// A registered region: a handle of the endpoint that registered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionId {
    /// Slot in the endpoint's table.
    pub index: u32,
    /// How often that slot was used before.
    pub generation: u32,
}

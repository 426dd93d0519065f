//! Memory that can be lent to the network.
//!
//! A [`Region`] is a stretch of memory that lives as long as it has a holder, a [`Slice`] a part of
//! one, or memory that its program keeps ([`Slice::raw`]). Both are handles: while a network may
//! write to the memory there is no reference into it, only copies go in and out. Exclusive access
//! comes back with [`Region::into_exclusive`], once no operation, registration or other handle
//! holds the region.
//!
//! # What a race gives
//!
//! Handles can be cloned and sent, so safe code may copy into a region while another thread, a
//! device or another process copies into it or out of it. A reader then gets, for each byte, one
//! that was written there, or what was there before. Which of these it is, and whether two bytes
//! belong to one write, is not said: copies tear, at any byte. Nothing worse follows: what a region
//! holds is bytes, of which all values are valid; there are no references to them; and nothing is
//! derived from them but through copies that no other process can write.
//!
//! *Why that holds.* By the letter of the language (and of C) two accesses at the same time of
//! which one writes, and that are not atomics, are undefined, whichever side makes them. Therefore
//! none of these accesses is made in the language: [`copy_opaque`] calls the C library's `memcpy`
//! by a pointer that the compiler cannot see through, [`copy_streaming`] is assembly, and the rest
//! is done by the kernel or a device. To the compiler each is a call that may read or write
//! whatever the region's pointer reaches, as a system call is; so it can conclude nothing from the
//! absence of races, and what decides is the machine, for which loads and stores that meet are
//! defined, byte by byte. That is an argument about how programs are built, and not a theorem of
//! the language: it would fail for a `memcpy` that is linked as code of the compiler's own and
//! optimised together with its caller. Under Miri, which runs no foreign code, copies are the
//! language's own, and it does complain of a race: of what is tested there, nothing races.
//!
//! *Atomics* ([`Slice::atomic`]) are the language's. Those of one size and place are atomic among
//! each other, also with those of processes that have the memory mapped. An atomic and a copy that
//! meet tear like copies. Atomics of different sizes that overlap at the same time are left open by
//! the language; on the processors that there are each is atomic for itself. Programs should do
//! none of the two.
//!
//! *Memory of a device* ([`DeviceMemory`]) has no pointer for the processor: [`Region::host_ptr`]
//! is `None`. All copies of slices know it; what works with pointers has to ask. The same holds for
//! a region of several pieces ([`Region::of_pieces`]), which has more than one, and for the address
//! space ([`AddressSpace`]), of which only the kernel can tell what is there.
//!
//! *Exclusive access* begins with the count of holders, so that all copies of this process are over
//! and seen; what peers do is over when the region was deregistered. Memory that another process
//! can map is never exclusive.
//!
//! All `unsafe` of this crate is here.

mod address_space;
mod atomic;
mod copy;
mod device;
mod freed;
pub mod memfd;
mod pages;
mod pieces;
mod record;
mod region;
mod releases;
mod shared;
mod slice;
mod words;

pub use address_space::AddressSpace;
pub use copy::{copy_opaque, copy_streaming};
pub use device::{DeviceMemory, Fault, Kind};
pub use freed::{retain_freed_memory, return_freed_memory};
pub use record::{RECORD, RECORD_SPARE, Record};
pub use region::{Exclusive, Region, RegionBuilder, WeakRegion};
pub use releases::{Owner, Releases};
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

//! One reliable datagram endpoint of libfabric, with what belongs to it, behind calls that are
//! safe.
//!
//! What makes them safe:
//!
//! * All memory that the library is given lies at a fixed place and is held here until the library
//!   has let go of it: its completion came, or the endpoint is closed. That includes memory of
//!   users, of which a holder is kept ([`slots`]).
//! * Memory that the library writes is only copied from, never referred to
//!   ([`petasos_fabric::Region`]).
//! * What the library says about where something came is checked against what it was given.
//! * One thread at a time calls in (`&mut self`), which is what was agreed with the provider
//!   (`FI_THREAD_DOMAIN`). So all objects of the library are a [`Net`]'s own, but for shares that
//!   keep an endpoint open ([`objects`]). The holder of a node or of opened memory has a name for
//!   it (`petasos_datagram::nodes`), which no other `Net` knows.

mod batch;
mod handle;
mod memory;
mod network;
mod objects;
mod open;
mod poll;
mod post;
mod slabs;
mod slots;
mod spin;

use crate::sys::{fid_cq, fid_ep, library::Library};
use batch::Batch;
use memory::{Entry, Known, Registered};
use objects::{Objects, Visitors};
use petasos_datagram::{self as datagram, Facts, Nodes};
use petasos_fabric::Slice;
use slabs::Slabs;
use slots::{Contexts, Slots};
use spin::SpinLock;
use std::{collections::HashMap, os::fd::RawFd, sync::Arc};

/// A reliable datagram endpoint of libfabric. What it does is said by
/// [`petasos_datagram::Network`].
pub struct Net {
    /// Of `objects`, for the calls that are made most.
    ep: *mut fid_ep,
    cq: *mut fid_cq,
    objects: Arc<Objects>,
    nodes: Nodes<Known>,
    /// The table of addresses, by names, with shares in endpoints of this process.
    entries: HashMap<Arc<[u8]>, Entry>,
    /// Memory that nodes reach.
    opened: datagram::Objects<Registered>,
    /// Memory that nodes accessed until now, of which replies may be under way: held until the
    /// endpoint is closed.
    last: Vec<Slice>,
    /// Endpoints of this process that have this one in their tables.
    #[expect(dead_code, reason = "kept for the library, and filled by others")]
    visitors: Arc<Visitors>,
    slots: Slots,
    contexts: Contexts,
    /// The number of slots at first.
    sends: usize,
    slabs: Slabs,
    /// Messages that could not be received since the last one that was, or since there was nothing.
    failed: u32,
    batch: Batch,
    /// For short messages, which the library copies.
    scratch: Box<[u8]>,
    library: &'static Library,
    /// Whether endpoints of one process must not be connected: this version crashes on their long
    /// packets.
    remote_only: bool,
    name: Vec<u8>,
    /// The lock in this endpoint's memory, where the provider has such.
    lock: Option<SpinLock>,
    wait: Option<RawFd>,
    facts: Facts,
    details: Details,
}

/// What is fixed for the life of the endpoint, beside its [`Facts`].
#[derive(Clone, Copy, Debug)]
struct Details {
    /// Pieces of memory in one send.
    pieces: usize,
    /// Whether messages go one behind the other into a slab.
    multi: bool,
    /// Whether remote memory can be read and written.
    rma: bool,
    /// Whether remote memory is addressed by where it lies, and not from zero.
    virtual_addresses: bool,
    /// Whether the provider makes the keys.
    provider_keys: bool,
    /// Whether memory is bound to the endpoint before use.
    bound_memory: bool,
    /// Whether every process that has the provider's key of some memory can read it, whatever it
    /// was opened for.
    all_readable: bool,
    /// Whether names are socket addresses, which begin with their family.
    socket_names: bool,
    /// Bits of keys that can be chosen.
    key_bits: u32,
}

// SAFETY: the library's objects have no tie to the thread that made them; they are used and closed
// by one thread at a time, since every call takes `&mut self` (or reads what is fixed), which is
// what FI_THREAD_DOMAIN asks for. What others hold are names, and shares of `Objects`, which they
// but drop.
unsafe impl Send for Net {}

//! A cache of registrations with the library: registering memory with a NIC takes long, for it pins
//! pages, and many programs register the same memory for each transfer.
//!
//! Only memory of the endpoint's own is kept open ([`Endpoint::alloc`]). Its owner is a [`Lent`],
//! which lives exactly as long as the memory is held, and reports when that is over. So a
//! registration is known by that owner's number, which is used once, and not by an address, at
//! which other memory may lie by then; the system's mappings need not be watched. The pages
//! themselves belong to both, the owner and the registration, and go with the last. And such memory
//! never becomes exclusive: no reference into it exists if a peer that kept a grant reaches it
//! after all.
//!
//! A registration whose grant was not returned, because the peer was lost, is not kept.
//!
//! [`Endpoint::alloc`]: petasos_fabric::Endpoint::alloc

use petasos_fabric::dropped::Dropped;
use petasos_fabric::{Access, Region, Slice, memory::RegionBuilder};
use std::{collections::VecDeque, ptr::NonNull, sync::Arc};

/// Registrations kept, at most.
const MOST: usize = 256;

/// The owner of memory that this transport allocated.
pub(crate) struct Lent {
    pub(crate) memory: Region,
    name: u64,
    dropped: Arc<Dropped>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.dropped.tell(self.name);
    }
}

/// What a registration is of.
#[derive(Clone, Copy, PartialEq, Eq)]
struct What {
    name: u64,
    offset: usize,
    len: usize,
    access: Access,
}

/// Registrations that are not in use, the longest unused first.
pub(crate) struct RegistrationCache<O> {
    list: VecDeque<(What, O)>,
    bytes: usize,
    limit: usize,
    next: u64,
    /// Owners, by their numbers.
    dropped: Arc<Dropped>,
}

impl<O> RegistrationCache<O> {
    /// Keeps up to this many bytes registered; with 0, nothing.
    pub(crate) fn new(limit: usize) -> RegistrationCache<O> {
        RegistrationCache {
            list: VecDeque::new(),
            bytes: 0,
            limit,
            next: 0,
            dropped: Arc::default(),
        }
    }

    /// Whether anything is kept.
    pub(crate) fn is_on(&self) -> bool {
        self.limit > 0
    }

    /// An owner for new memory.
    pub(crate) fn own(&mut self, memory: Region) -> Lent {
        self.next += 1;
        Lent { memory, name: self.next, dropped: Arc::clone(&self.dropped) }
    }

    fn what(&self, memory: &Slice, access: Access) -> Option<What> {
        let lent = memory.backing::<Lent>()?;
        let ours = Arc::ptr_eq(&lent.dropped, &self.dropped);
        let (name, offset, len) = (lent.name, memory.offset(), memory.len());
        ours.then_some(What { name, offset, len, access })
    }

    /// A registration of this memory with these rights that was kept.
    pub(crate) fn take(&mut self, memory: &Slice, access: Access) -> Option<O> {
        let what = self.what(memory, access)?;
        let at = self.list.iter().position(|(kept, _)| *kept == what)?;
        let (_, opened) = self.list.remove(at)?;
        self.bytes -= what.len;
        Some(opened)
    }

    /// Keeps a registration, and drops those that were not used for longest beyond the bounds.
    pub(crate) fn keep(&mut self, memory: &Slice, access: Access, opened: O) {
        let Some(what) = self.what(memory, access).filter(|what| what.len <= self.limit) else {
            return;
        };
        self.bytes += what.len;
        self.list.push_back((what, opened));
        while (self.bytes > self.limit || self.list.len() > MOST)
            && let Some((what, _)) = self.list.pop_front()
        {
            self.bytes -= what.len;
        }
    }

    /// Drops registrations of memory that is not held any more. True if there were any.
    pub(crate) fn drop_unusable(&mut self) -> bool {
        let dropped = self.dropped.take();
        if dropped.is_empty() {
            return false;
        }
        self.list.retain(|(what, _)| !dropped.contains(&what.name));
        self.bytes = self.list.iter().map(|(what, _)| what.len).sum();
        true
    }

    /// How much is kept open.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Memory that holds its owner, by which the cache knows it again; never exclusive.
pub(crate) fn lend(owner: Lent) -> Region {
    let whole = owner.memory.whole();
    let base = NonNull::new(whole.as_ptr()).expect("memory of a region is never at null");
    let builder = RegionBuilder::new(base, whole.len());
    let builder = if owner.memory.is_writable() { builder } else { builder.read_only() };
    // SAFETY: the owner holds the region that has this memory, which is mapped and initialised as
    // long, writable if that is, and never handed out as exclusive, for the owner holds it; so
    // there are no references into it.
    unsafe { builder.build(Box::new(owner)) }
}

/// The memory itself, without its owner: what a registration holds.
pub(crate) fn inner(memory: &Slice) -> Slice {
    let lent = memory.backing::<Lent>();
    lent.and_then(|lent| lent.memory.slice(memory.offset(), memory.len()))
        .unwrap_or_else(|| memory.clone())
}

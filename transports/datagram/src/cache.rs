//! Registrations with the library that are kept for the next time: opening memory to a card takes long, for it pins
//! pages, and many programs register the same memory for each transfer.
//!
//! Only memory of the endpoint's own is kept open ([`Endpoint::alloc`]). Its owner is a [`Lent`], which lives exactly as long as
//! somebody holds the memory, and says when that is over. So what is kept is known by that owner's number, which is
//! used once, and not by an address, at which other memory may lie by then; nothing has to be noticed of the system.
//! The pages themselves belong to both, the owner and the registration, and go with the last. And such memory never
//! becomes exclusive: no reference into it exists when a peer that kept a grant reaches it after all.
//!
//! A registration that a peer did not give back, for it was lost, is not kept.
//!
//! [`Endpoint::alloc`]: petasos_fabric::Endpoint::alloc

use crate::gone::Gone;
use petasos_fabric::{Access, Region, Slice, memory::RegionBuilder};
use std::{collections::VecDeque, ptr::NonNull, sync::Arc};

/// Registrations kept, at most.
const MOST: usize = 256;

/// The owner of memory that this transport allocated.
pub(crate) struct Lent {
    pub(crate) memory: Region,
    name: u64,
    gone: Arc<Gone>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.gone.tell(self.name);
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

/// Registrations that nobody uses now, the longest unused first.
pub(crate) struct Kept<O> {
    list: VecDeque<(What, O)>,
    bytes: usize,
    limit: usize,
    next: u64,
    /// Owners, by their numbers.
    gone: Arc<Gone>,
}

impl<O> Kept<O> {
    /// Keeps up to so many bytes open; with 0, nothing.
    pub(crate) fn new(limit: usize) -> Kept<O> {
        Kept { list: VecDeque::new(), bytes: 0, limit, next: 0, gone: Arc::default() }
    }

    /// Whether anything is.
    pub(crate) fn is_on(&self) -> bool {
        self.limit > 0
    }

    /// An owner for new memory.
    pub(crate) fn own(&mut self, memory: Region) -> Lent {
        self.next += 1;
        Lent { memory, name: self.next, gone: Arc::clone(&self.gone) }
    }

    fn what(&self, memory: &Slice, access: Access) -> Option<What> {
        let lent = memory.region().backing::<Lent>()?;
        let ours = Arc::ptr_eq(&lent.gone, &self.gone);
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

    /// Keeps a registration, or closes it, or one that was not used for longer.
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

    /// Drops what nobody can register again. True if there was anything.
    pub(crate) fn look_after(&mut self) -> bool {
        let gone = self.gone.take();
        if gone.is_empty() {
            return false;
        }
        self.list.retain(|(what, _)| !gone.contains(&what.name));
        self.bytes = self.list.iter().map(|(what, _)| what.len).sum();
        true
    }

    /// How much is kept open.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Memory that holds its owner, by which it is known again; never exclusive.
pub(crate) fn lend(owner: Lent) -> Region {
    let whole = owner.memory.whole();
    let base = NonNull::new(whole.as_ptr()).expect("memory of a region is never at null");
    let builder = RegionBuilder::new(base, whole.len());
    let builder = if owner.memory.is_writable() { builder } else { builder.read_only() };
    // SAFETY: the owner holds the region that has this memory, which is mapped and initialised as long, writable if that
    // is, and never handed out as exclusive, for the owner holds it; so there are no references into it.
    unsafe { builder.build(Box::new(owner)) }
}

/// The memory itself, without its owner: what a registration holds.
pub(crate) fn inner(memory: &Slice) -> Slice {
    let lent = memory.region().backing::<Lent>();
    lent.and_then(|lent| lent.memory.slice(memory.offset(), memory.len()))
        .unwrap_or_else(|| memory.clone())
}

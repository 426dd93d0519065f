//! Memory of the transport's own: each allocation lies in a file that peers can map.

use petasos_fabric::{
    AllocError, Region,
    memory::{
        RegionBuilder,
        memfd::{self, Mapping, Unfit},
    },
};
use rustix::{fd::OwnedFd, io::Errno};
use std::sync::{
    Arc, Weak,
    atomic::{AtomicU64, Ordering},
};

/// A piece of the transport's memory, as its owner has it.
pub(crate) struct Segment {
    /// Its number: no other of this process had it.
    pub(crate) id: u64,
    fd: OwnedFd,
    mapping: Mapping,
    alive: Arc<()>,
}

/// Lengths are multiples of this.
const PAGE: usize = 4096;

/// A region of `len` zeroes in a segment of its own.
pub(crate) fn alloc(len: usize, huge: bool) -> Result<Region, AllocError> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let padded = len.checked_next_multiple_of(PAGE).filter(|len| *len <= isize::MAX as usize);
    let padded = padded.filter(|_| len > 0).ok_or(AllocError::BadLength(len))?;
    let refused = |error: Errno| AllocError::System { len, reason: error.to_string() };
    let (fd, mapping) = memfd::create("petasos-segment", padded).map_err(refused)?;
    memfd::seal(&fd).map_err(refused)?;
    if huge {
        mapping.wish_huge_pages();
    }
    let base = mapping.base();
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let segment = Segment { id, fd, mapping, alive: Arc::new(()) };
    // SAFETY: the segment, which becomes the region's owner, keeps the mapping, which is `padded`
    // bytes long and writable; nobody has references into it.
    Ok(unsafe { RegionBuilder::new(base, len).build(Box::new(segment)) })
}

impl Segment {
    /// The length of its file.
    pub(crate) fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Whether a region still lies in it.
    pub(crate) fn alive(&self) -> Weak<()> {
        Arc::downgrade(&self.alive)
    }

    /// A descriptor for a peer.
    pub(crate) fn descriptor(&self, writable: bool) -> Result<OwnedFd, Errno> {
        match writable {
            true => rustix::io::fcntl_dupfd_cloexec(&self.fd, 0),
            false => memfd::read_only(&self.fd),
        }
    }
}

/// A peer's segment, mapped here. Where it may only be read, so says the region.
pub(crate) fn adopt(fd: &OwnedFd, len: usize, writable: bool) -> Result<Region, Unfit> {
    let mapping = memfd::adopt(fd, len, writable)?;
    let builder = RegionBuilder::new(mapping.base(), len);
    let builder = if writable { builder } else { builder.read_only() };
    // SAFETY: the mapping is `len` bytes long, writable if the region is, and lives as long as the
    // region, which owns it. Its length is fixed by seals; nobody has references into it.
    Ok(unsafe { builder.build(Box::new(mapping)) })
}

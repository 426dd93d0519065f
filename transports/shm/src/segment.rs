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
    memfd::seal_length(&fd).map_err(refused)?;
    if huge {
        mapping.wish_huge_pages();
    }
    let base = mapping.base();
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let segment = Segment { id, fd, mapping, alive: Arc::new(()) };
    // SAFETY: the segment, which becomes the region's owner, keeps the mapping, which is `padded`
    // bytes long and writable; no code has references into it.
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

    /// A descriptor for a peer that asks for it to read or to `write`, by the key of a region in it
    /// that peers may change, or not (`changes`). A peer that [may write anyway](crate::privileges)
    /// has one as if they might.
    ///
    /// A process with a descriptor has all of the segment, and can open it again with other rights.
    /// So the first region of which one is given decides, for good, whether peers can write there.
    /// After the key of a region that they may not change, no peer gets a descriptor to write;
    /// after the key of one that they may, no peer gets one by the key of a region that they may
    /// not. The data then goes other ways.
    pub(crate) fn descriptor(&self, changes: bool, write: bool) -> Result<OwnedFd, Errno> {
        if !changes {
            memfd::seal_for_readers(&self.fd)?;
            return memfd::read_only(&self.fd);
        }
        match memfd::seal(&self.fd) {
            Ok(()) if write => rustix::io::fcntl_dupfd_cloexec(&self.fd, 0),
            Ok(()) => memfd::reopen_to_read(&self.fd),
            Err(_) if !write => memfd::read_only(&self.fd),
            Err(error) => Err(error),
        }
    }
}

/// A peer's segment, mapped here. If it may only be read, the region is read-only.
pub(crate) fn adopt(fd: &OwnedFd, len: usize, writable: bool) -> Result<Region, Unfit> {
    let mapping = memfd::adopt(fd, len, writable)?;
    let builder = RegionBuilder::new(mapping.base(), len);
    let builder = if writable { builder } else { builder.read_only() };
    // SAFETY: the mapping is `len` bytes long, writable if the region is, and lives as long as the
    // region, which owns it. Its length is fixed by seals; no code has references into it.
    Ok(unsafe { builder.build(Box::new(mapping)) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags, open};
    use std::os::fd::AsRawFd;

    /// Whether a process with this descriptor can write, by it or by one that it opens through it.
    fn can_write(fd: &OwnedFd) -> bool {
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let again = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
        [fd, &again].iter().any(|fd| {
            memfd::adopt(fd, 4096, true).is_ok() || rustix::io::pwrite(fd, b"x", 0).is_ok()
        })
    }

    #[test]
    fn what_peers_may_only_read_they_cannot_open_again_to_be_written() {
        let region = alloc(4096, false).unwrap();
        let segment = region.backing::<Segment>().unwrap();
        assert!(!can_write(&segment.descriptor(false, false).unwrap()));
        region.write(0, b"the owner can");
        // Nor by the key of another region in the same memory, which they could change.
        assert!(!can_write(&segment.descriptor(true, false).unwrap()));
        assert!(segment.descriptor(true, true).is_err());
    }

    #[test]
    fn what_peers_may_change_is_not_given_to_readers() {
        let region = alloc(4096, false).unwrap();
        let segment = region.backing::<Segment>().unwrap();
        let reader = segment.descriptor(true, false).unwrap();
        assert!(adopt(&reader, 4096, true).is_err() && adopt(&reader, 4096, false).is_ok());
        assert!(can_write(&segment.descriptor(true, true).unwrap()));
        assert!(segment.descriptor(false, false).is_err());
    }
}

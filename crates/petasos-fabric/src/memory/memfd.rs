//! Files without a name, and their mappings: memory that processes of one node share.
//!
//! Such a file is gone when the last process that has it is gone, however that came about. One
//! that comes from somebody else is mapped only if it can neither shrink (which would make access
//! raise SIGBUS) nor grow, and has just the expected length.

use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{
        MemfdFlags, Mode, OFlags, SealFlags, fchmod, fcntl_add_seals, fcntl_get_seals, fstat,
        ftruncate, memfd_create, open,
    },
    io::Errno,
    mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap},
};
use std::{os::fd::AsRawFd, ptr::NonNull};

/// The size of a file cannot change any more, nor what this says.
const FIXED: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Why a file that came from somebody else is not mapped.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    /// It is longer or shorter than what was agreed upon.
    #[error("its file is {is} bytes long where {wanted} are needed")]
    Length {
        /// Bytes that it has.
        is: u64,
        /// Bytes that it should have.
        wanted: usize,
    },
    /// Its length may still change: these seals are not enough.
    #[error("its file could shrink: seals {0:#x}")]
    Seals(u32),
    /// It is no such file, or it cannot be mapped.
    #[error("the system said: {0}")]
    System(#[from] Errno),
}

/// A new file of `len` zeroes, and our mapping of it, writable. Pages take memory once they are written.
/// The name is for people who look at the process. Seal it before somebody else gets it.
///
/// # Errors
/// If the system refuses.
pub fn create(name: &str, len: usize) -> Result<(OwnedFd, Mapping), Errno> {
    let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    // Others of the system may not open it again through /proc with more rights.
    fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
    ftruncate(&fd, len as u64)?;
    let mapping = Mapping::new(&fd, len, true)?;
    Ok((fd, mapping))
}

/// Fixes the length for good.
///
/// # Errors
/// If it is no file of this kind.
pub fn seal(fd: &OwnedFd) -> Result<(), Errno> {
    fcntl_add_seals(fd, FIXED)
}

/// Fixes the length for good, and the contents for everybody who has not mapped it yet.
///
/// # Errors
/// As above, and if the system has no such seals (Linux before 5.1).
pub fn seal_for_readers(fd: &OwnedFd) -> Result<(), Errno> {
    fcntl_add_seals(fd, FIXED | SealFlags::FUTURE_WRITE)
}

/// The same file, opened again to be read only: no writable mapping can be made of it.
///
/// # Errors
/// If it cannot be opened, as where /proc is not mounted.
pub fn read_only(fd: &OwnedFd) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Maps a file that came from somebody else, all of it, if its length is fixed and right.
///
/// # Errors
/// If it is not, or cannot be mapped with these rights.
pub fn adopt(fd: impl AsFd, len: usize, writable: bool) -> Result<Mapping, Unfit> {
    match fixed_len(&fd)? {
        is if is == len as u64 => Ok(Mapping::new(fd, len, writable)?),
        is => Err(Unfit::Length { is, wanted: len }),
    }
}

/// The same to be read, whatever its length, if that is fixed.
///
/// # Errors
/// If it is not, or if it cannot be mapped.
pub fn adopt_whole(fd: impl AsFd) -> Result<Mapping, Unfit> {
    let len = usize::try_from(fixed_len(&fd)?).map_err(|_| Errno::OVERFLOW)?;
    Ok(Mapping::new(fd, len, false)?)
}

fn fixed_len(fd: impl AsFd) -> Result<u64, Unfit> {
    let seals = fcntl_get_seals(&fd)?;
    if !seals.contains(FIXED) {
        return Err(Unfit::Seals(seals.bits()));
    }
    Ok(fstat(fd)?.st_size as u64)
}

/// A shared mapping of a whole file. What lies there may change at any time, and is reached only by
/// atomics and opaque copies ([`copy_opaque`](super::copy_opaque)).
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; its memory is reached only by
// atomics and opaque copies.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(fd: impl AsFd, len: usize, writable: bool) -> Result<Mapping, Errno> {
        let read = ProtFlags::READ;
        let prot = if writable { read | ProtFlags::WRITE } else { read };
        // SAFETY: a new mapping at a place of the kernel's choice touches no memory of ours.
        let base = unsafe { mmap(std::ptr::null_mut(), len, prot, MapFlags::SHARED, fd, 0)? };
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Mapping { base, len })
    }

    /// Where it begins: at a page. It is mapped as long as this value lives.
    #[must_use]
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Its length in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "no mapping is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Asks for huge pages; a wish.
    pub fn wish_huge_pages(&self) {
        // SAFETY: the advice changes no contents.
        let _ = unsafe { madvise(self.base.as_ptr().cast(), self.len, Advice::LinuxHugepage) };
    }

    /// Gives pages of the file back to the system: zeroes are there then, for everybody.
    ///
    /// # Errors
    /// If the system refuses, as for memory that may only be read.
    ///
    /// # Panics
    /// If they do not lie within.
    pub fn discard(&self, at: usize, len: usize) -> Result<(), Errno> {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len));
        // SAFETY: within the mapping; what lies there is reached only by atomics and opaque copies,
        // for which it is a write like others.
        unsafe { madvise(self.base.add(at).as_ptr().cast(), len, Advice::LinuxRemove) }
    }

    /// Bytes of the file for which there is memory.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn resident(&self) -> Result<usize, Errno> {
        let mut pages = vec![0u8; self.len.div_ceil(4096)];
        // SAFETY: the vector has a byte for each page of the mapping.
        let failed =
            unsafe { libc::mincore(self.base.as_ptr().cast(), self.len, pages.as_mut_ptr()) };
        if failed != 0 {
            return Err(Errno::INVAL);
        }
        Ok(pages.iter().filter(|page| **page & 1 != 0).count() * 4096)
    }

    #[cfg(test)]
    fn byte(&self, at: usize) -> u8 {
        assert!(at < self.len);
        // SAFETY: within the mapping.
        unsafe { self.base.add(at).read_volatile() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, unmapped once; whoever reaches into the mapping
        // keeps it alive.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_shrink_is_not_mapped() {
        let (fd, _mine) = create("test", 8192).unwrap();
        assert!(matches!(adopt(&fd, 8192, true), Err(Unfit::Seals(_))));
        seal(&fd).unwrap();
        assert!(matches!(adopt(&fd, 4096, true), Err(Unfit::Length { is: 8192, wanted: 4096 })));
        assert!(matches!(adopt(&fd, 16384, true), Err(Unfit::Length { .. })));
        assert!(adopt(&fd, 8192, true).is_ok());
        assert!(ftruncate(&fd, 0).is_err(), "the seal holds");
    }

    #[test]
    fn readers_cannot_write() {
        let (fd, mine) = create("test", 4096).unwrap();
        seal_for_readers(&fd).unwrap();
        assert!(adopt(&fd, 4096, true).is_err());
        let theirs = adopt(&fd, 4096, false).unwrap();
        // SAFETY: within our mapping.
        unsafe { mine.base().add(7).write_volatile(9) };
        assert_eq!(theirs.byte(7), 9);
        let (fd, _mine) = create("test", 4096).unwrap();
        seal(&fd).unwrap();
        assert!(adopt(read_only(&fd).unwrap(), 4096, true).is_err());
    }

    #[test]
    fn not_a_file_of_memory() {
        let (end, _other) = rustix::pipe::pipe().unwrap();
        assert!(adopt(&end, 4096, true).is_err());
    }
}

//! Files without a name, and their mappings: memory that processes of one node share.
//!
//! Such a file is gone when the last process that has it is gone, however that came about. One that
//! comes from another process is mapped only if it can neither shrink (which would make access
//! raise SIGBUS) nor grow, and has just the expected length; and only if its pages are the ordinary
//! ones of the system, which do not run out under a process that has them mapped, as huge pages do.
//!
//! What a descriptor may do is no right of the file: a process of the same user opens it again by
//! way of /proc, with other rights. So memory that others may only read is *sealed* so, which no
//! way around leads out of: see [`read_only`]. (Processes of other users are kept out by the file's
//! mode.)

use super::words::load;
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{
        MemfdFlags, Mode, OFlags, SealFlags, fchmod, fcntl_add_seals, fcntl_get_seals, fstat,
        fstatfs, ftruncate, memfd_create, open,
    },
    io::Errno,
    mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap},
    process::{Resource, getrlimit},
};
use std::{
    os::fd::AsRawFd,
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

/// The size of a file cannot change any more.
const LENGTH: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
/// The same, nor what this says.
const FIXED: SealFlags = LENGTH.union(SealFlags::SEAL);
const WORD: usize = 8;

/// Why a file that came from another process is not mapped.
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
    /// It is longer than what is mapped.
    #[error("its file is {is} bytes long, and at most {most} are mapped")]
    TooLong {
        /// Bytes that it has.
        is: u64,
        /// Bytes that it may have.
        most: usize,
    },
    /// It lies in no memory of the ordinary kind: which file system it is of, by the kernel's
    /// number.
    #[error("its file is not of tmpfs, but of the file system {0:#x}: no huge pages, no disks")]
    Kind(u64),
    /// It is no such file, or it cannot be mapped.
    #[error("the system said: {0}")]
    System(#[from] Errno),
}

/// A new file of `len` zeroes, and our mapping of it, writable. Pages take memory once they are
/// written. The name is for people that look at the process. Seal it before another process gets
/// it.
///
/// # Errors
/// If the system refuses; `FBIG` beyond the limit of this process for the length of files
/// (`ulimit -f`), which holds for these, too.
pub fn create(name: &str, len: usize) -> Result<(OwnedFd, Mapping), Errno> {
    // Beyond it the system would not only refuse, but end the process by a signal (SIGXFSZ).
    if getrlimit(Resource::Fsize).current.is_some_and(|most| len as u64 > most) {
        return Err(Errno::FBIG);
    }
    let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    // Others of the system may not open it again through /proc with more rights.
    fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
    ftruncate(&fd, len as u64)?;
    let mapping = Mapping::new(&fd, len, true)?;
    Ok((fd, mapping))
}

/// Fixes the length; whether others may write is still open. One of the next two is to follow
/// before another process gets it.
///
/// # Errors
/// If it is no file of this kind.
pub fn seal_length(fd: &OwnedFd) -> Result<(), Errno> {
    fcntl_add_seals(fd, LENGTH)
}

/// Fixes the length for good, and that every process with a descriptor for it may write.
///
/// # Errors
/// If it is no file of this kind, or was sealed for readers before.
pub fn seal(fd: &OwnedFd) -> Result<(), Errno> {
    seal_as(fd, FIXED)
}

/// Fixes the length for good, and the contents for every process that has not mapped it yet.
///
/// # Errors
/// As above, if it was sealed for writers before, and if the system has no such seals (Linux before
/// 5.1).
pub fn seal_for_readers(fd: &OwnedFd) -> Result<(), Errno> {
    seal_as(fd, FIXED | SealFlags::FUTURE_WRITE)
}

/// So are the seals from now on, or they were before.
fn seal_as(fd: &OwnedFd, seals: SealFlags) -> Result<(), Errno> {
    match fcntl_get_seals(fd)? {
        is if is == seals => Ok(()),
        is if is.contains(SealFlags::SEAL) => Err(Errno::PERM),
        _ => fcntl_add_seals(fd, seals),
    }
}

/// Whether no process can write any more that has not mapped it already.
///
/// # Errors
/// If it is no file of this kind.
pub fn is_for_readers(fd: &OwnedFd) -> Result<bool, Errno> {
    Ok(fcntl_get_seals(fd)?.contains(FIXED | SealFlags::FUTURE_WRITE))
}

/// The same file, opened again to be read only: by this descriptor no writable mapping can be made.
/// By others one can, as a process of the same user can open it once more, unless it is
/// [sealed](seal_for_readers) against that.
///
/// # Errors
/// If it cannot be opened, as where /proc is not mounted.
pub fn reopen_to_read(fd: &OwnedFd) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// The same for a file that is sealed for readers: a process that gets this can write in no way.
///
/// # Errors
/// As above, and if it is not sealed so.
pub fn read_only(fd: &OwnedFd) -> Result<OwnedFd, Errno> {
    if is_for_readers(fd)? { reopen_to_read(fd) } else { Err(Errno::PERM) }
}

/// Maps a file that came from another process, all of it, if its length is fixed and right.
///
/// # Errors
/// If it is not, or cannot be mapped with these rights.
pub fn adopt(fd: impl AsFd, len: usize, writable: bool) -> Result<Mapping, Unfit> {
    match fixed_len(&fd)? {
        is if is == len as u64 => Ok(Mapping::new(fd, len, writable)?),
        is => Err(Unfit::Length { is, wanted: len }),
    }
}

/// The same to be read, whatever its length up to `most`, if that is fixed.
///
/// # Errors
/// If it is not, or if it cannot be mapped.
pub fn adopt_whole(fd: impl AsFd, most: usize) -> Result<Mapping, Unfit> {
    let is = fixed_len(&fd)?;
    match usize::try_from(is) {
        Ok(len) if len <= most => Ok(Mapping::new(fd, len, false)?),
        _ => Err(Unfit::TooLong { is, most }),
    }
}

fn fixed_len(fd: impl AsFd) -> Result<u64, Unfit> {
    // First: only files of memory have seals. Another file system, which may be a program of that
    // process, is not asked anything, for it need not answer.
    let seals = fcntl_get_seals(&fd)?;
    if !seals.contains(FIXED) {
        return Err(Unfit::Seals(seals.bits()));
    }
    // Huge pages can be sealed in the same way, but a process that touches one when there are no
    // more is killed.
    let kind = fstatfs(&fd)?.f_type as u64;
    if kind != libc::TMPFS_MAGIC as u64 {
        return Err(Unfit::Kind(kind));
    }
    Ok(fstat(fd)?.st_size as u64)
}

/// A shared mapping of a whole file. What lies there may change at any time, and is reached only by
/// atomics and opaque copies ([`copy_opaque`](super::copy_opaque)).
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    writable: bool,
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
        Ok(Mapping { base, len, writable })
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

    /// Whether it may be written.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Where the word at a place lies, if it does within, and on a multiple of 8.
    pub(super) fn place_of_word(&self, at: usize) -> Option<NonNull<AtomicU64>> {
        let end = at.checked_add(WORD)?;
        // SAFETY: `at` is within the mapping.
        (end <= self.len && at.is_multiple_of(WORD)).then(|| unsafe { self.base.add(at).cast() })
    }

    /// The word at a place, if it lies within, on a multiple of 8, and may be written.
    #[must_use]
    pub fn word(&self, at: usize) -> Option<&AtomicU64> {
        let place = self.place_of_word(at).filter(|_| self.writable)?;
        // SAFETY: within the mapping, which lives as long as the reference, and aligned, as it
        // begins at a page. It may be written, so that atomics of all kinds work; and it is reached
        // only by those, and by opaque copies.
        Some(unsafe { place.as_ref() })
    }

    /// What the word at a place says, if it lies within, on a multiple of 8. Also where memory may
    /// only be read.
    ///
    /// # Panics
    /// If that is no order of a load.
    #[must_use]
    #[inline]
    pub fn load(&self, at: usize, order: Ordering) -> Option<u64> {
        // SAFETY: as in `word`, but that it need not be writable: there is nothing but the load
        // that is made for that.
        Some(load(unsafe { self.place_of_word(at)?.as_ref() }, order))
    }

    /// Asks for huge pages; a wish.
    pub fn wish_huge_pages(&self) {
        // SAFETY: the advice changes no contents.
        let _ = unsafe { madvise(self.base.as_ptr().cast(), self.len, Advice::LinuxHugepage) };
    }

    /// Gives pages of the file back to the system: zeroes are there then, for all that map it.
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
        // SAFETY: mapped by `new` with this length, unmapped once; code that reaches into the
        // mapping keeps it alive.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "no files are mapped there")]
    fn what_could_shrink_is_not_mapped() {
        let (fd, _mine) = create("test", 8192).unwrap();
        assert!(matches!(adopt(&fd, 8192, true), Err(Unfit::Seals(_))));
        seal(&fd).unwrap();
        assert!(matches!(adopt(&fd, 4096, true), Err(Unfit::Length { is: 8192, wanted: 4096 })));
        assert!(matches!(adopt(&fd, 16384, true), Err(Unfit::Length { .. })));
        assert!(adopt(&fd, 8192, true).is_ok());
        assert!(ftruncate(&fd, 0).is_err(), "the seal holds");
    }

    /// A limit of the system refuses memory, and ends no process.
    #[test]
    #[cfg(not(loom))]
    #[cfg_attr(miri, ignore = "no files are mapped there")]
    fn longer_than_files_may_be() {
        use petasos_testing::{again, role};
        use rustix::process::{Rlimit, setrlimit};
        use std::time::Duration;
        if role().is_some() {
            let limit = Rlimit { current: Some(64 << 10), maximum: None };
            setrlimit(Resource::Fsize, limit).unwrap();
            assert_eq!(create("test", (64 << 10) + 1).unwrap_err(), Errno::FBIG);
            assert!(create("test", 64 << 10).is_ok());
            return;
        }
        let mut limited =
            again("memory::memfd::tests::longer_than_files_may_be", "limited").start();
        assert!(limited.wait(Duration::from_secs(30)).success());
    }

    #[test]
    #[cfg_attr(miri, ignore = "no files are mapped there")]
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
        assert!(adopt(reopen_to_read(&fd).unwrap(), 4096, true).is_err());
    }

    #[test]
    #[cfg_attr(miri, ignore = "no files are mapped there")]
    fn words_are_given_to_be_written_only_where_they_may_be() {
        let (fd, mine) = create("test", 4096).unwrap();
        seal(&fd).unwrap();
        let theirs = adopt(&fd, 4096, false).unwrap();
        assert!((mine.is_writable(), theirs.is_writable()) == (true, false));
        mine.word(4088).unwrap().store(5, Ordering::Release);
        for order in [Ordering::Relaxed, Ordering::Acquire, Ordering::SeqCst] {
            assert_eq!(theirs.load(4088, order), Some(5));
        }
        assert!(theirs.word(4088).is_none(), "nothing of it may be written");
        for at in [1, 4089, 4096, usize::MAX, usize::MAX - 7] {
            assert!(mine.word(at).is_none() && theirs.load(at, Ordering::Relaxed).is_none());
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "no files are mapped there")]
    fn what_was_sealed_for_the_ones_is_not_for_the_others() {
        let (fd, _mine) = create("test", 4096).unwrap();
        seal_length(&fd).unwrap();
        assert!(ftruncate(&fd, 0).is_err() && !is_for_readers(&fd).unwrap());
        seal(&fd).and_then(|()| seal(&fd)).unwrap();
        assert!(seal_for_readers(&fd).is_err() && !is_for_readers(&fd).unwrap());
        let (fd, _mine) = create("test", 4096).unwrap();
        seal_for_readers(&fd).and_then(|()| seal_for_readers(&fd)).unwrap();
        assert!(seal(&fd).is_err() && is_for_readers(&fd).unwrap());
    }

    /// The rights of a descriptor are not those of the file: its user opens it again at will.
    #[test]
    #[cfg_attr(miri, ignore = "no files are mapped there")]
    fn what_is_given_to_be_read_cannot_be_opened_again_to_be_written() {
        let (fd, _mine) = create("test", 4096).unwrap();
        seal_for_readers(&fd).unwrap();
        let theirs = read_only(&fd).unwrap();
        let path = format!("/proc/self/fd/{}", theirs.as_raw_fd());
        let again = open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
        assert!(adopt(&again, 4096, true).is_err(), "mapped to be written");
        assert!(rustix::io::pwrite(&again, b"x", 0).is_err(), "written");
        assert!(adopt(&again, 4096, false).is_ok());
        // One that is not sealed so is not given.
        let (fd, _mine) = create("test", 4096).unwrap();
        seal(&fd).unwrap();
        assert!(read_only(&fd).is_err(), "a process that has it could open it to be written");
    }

    /// Its pages can run out under a process that has it mapped, however its length is sealed.
    #[test]
    #[cfg_attr(miri, ignore = "no files are mapped there")]
    fn huge_pages_of_another_owner_are_not_mapped() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        let made = memfd_create("test", flags).and_then(|fd| {
            ftruncate(&fd, 2 << 20)?;
            Ok(fd)
        });
        let Ok(fd) = made else {
            return eprintln!("skipped: no files of huge pages here ({})", made.unwrap_err());
        };
        seal(&fd).unwrap();
        let said = adopt(&fd, 2 << 20, false).unwrap_err().to_string();
        assert!(said.contains("tmpfs"), "{said}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "no files are mapped there")]
    fn not_a_file_of_memory() {
        let (end, _other) = rustix::pipe::pipe().unwrap();
        assert!(adopt(&end, 4096, true).is_err());
    }
}

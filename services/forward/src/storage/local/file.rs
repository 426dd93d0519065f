//! An open file.

use super::{
    access,
    attr::{self, Handle},
    resolve, xattr,
};
use crate::{
    FsError, FsResult,
    protocol::{Allocation, Attr, Extent, OpenFlags, SetAttr, XattrMode},
    storage::{AT_ONCE, StoredFile},
};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{FallocateFlags, OFlags, SeekFrom, fallocate, fdatasync, fstat, fsync, seek},
    io::{Errno, ReadWriteFlags, pread, preadv2, pwritev, writev},
};
use std::{
    io::{IoSlice, IoSliceMut},
    sync::{Arc, Mutex, PoisonError},
};

/// Pieces of memory that one system call takes.
const MOST_SLICES: usize = 1024;

pub(super) struct LocalFile {
    fd: OwnedFd,
    dev: u64,
    append: bool,
    /// Held by operations that use the position of the file descriptor. All others name offsets.
    position: Mutex<()>,
}

impl LocalFile {
    pub(super) fn new(fd: OwnedFd, dev: u64, append: bool) -> LocalFile {
        LocalFile { fd, dev, append, position: Mutex::new(()) }
    }

    fn positioned<T>(&self, work: impl FnOnce() -> FsResult<T>) -> FsResult<T> {
        let _held = self.position.lock().unwrap_or_else(PoisonError::into_inner);
        work()
    }
}

impl AsFd for LocalFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl StoredFile for LocalFile {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> FsResult<usize> {
        fill(offset, into, |offset, into| pread(&self.fd, into, offset))
    }

    fn read_at_once(&self, offset: u64, into: &mut [u8]) -> Option<FsResult<usize>> {
        let read = fill(offset, into, |offset, into| {
            preadv2(&self.fd, &mut [IoSliceMut::new(into)], offset, ReadWriteFlags::NOWAIT)
        });
        match read {
            // Not in memory, or a file system that cannot tell.
            Err(error) if matches!(error.errno(), Errno::AGAIN | Errno::OPNOTSUPP) => None,
            read => Some(read),
        }
    }

    fn write_at(&self, offset: u64, from: &[IoSlice<'_>]) -> FsResult<u64> {
        if !self.append {
            let end = from.iter().try_fold(offset, |at, piece| at.checked_add(piece.len() as u64));
            if end.is_none_or(|end| i64::try_from(end).is_err()) {
                return Err(FsError::new(Errno::FBIG, format!("a write at {offset}")));
            }
            let written = write_all(from, |done, from| {
                let first = &from[0];
                let from = match first.len() > AT_ONCE {
                    true => &[IoSlice::new(&first[..AT_ONCE])],
                    false => from,
                };
                pwritev(&self.fd, from, offset + done)
            })?;
            return Ok(offset + written);
        }
        // The kernel leaves the position where this write ended, wherever others write meanwhile.
        self.positioned(|| {
            write_all(from, |_, from| writev(&self.fd, from))?;
            let at = match from.iter().all(|piece| piece.is_empty()) {
                true => SeekFrom::End(0),
                false => SeekFrom::Current(0),
            };
            Ok(seek(&self.fd, at)?)
        })
    }

    fn sync(&self, data_only: bool) -> FsResult<()> {
        let synced = if data_only { fdatasync(&self.fd) } else { fsync(&self.fd) };
        Ok(synced?)
    }

    fn attr(&self) -> FsResult<Attr> {
        Ok(attr::from_stat(&fstat(&self.fd)?, self.dev))
    }

    fn set_attr(&self, set: &SetAttr) -> FsResult<Attr> {
        attr::apply(Handle::Open(self.fd.as_fd()), set)?;
        self.attr()
    }

    fn reopen(&self, flags: OpenFlags) -> FsResult<Arc<dyn StoredFile>> {
        let mut how = access(flags)?;
        if flags.has(OpenFlags::TRUNCATE) {
            how |= OFlags::TRUNC;
        }
        let fd = resolve::reopen(self.fd.as_fd(), how)?;
        Ok(Arc::new(LocalFile::new(fd, self.dev, flags.has(OpenFlags::APPEND))))
    }

    fn extents(&self, offset: u64, most: usize) -> FsResult<Vec<Extent>> {
        self.positioned(|| {
            let (mut at, mut found) = (offset, Vec::new());
            while found.len() < most {
                let start = match seek(&self.fd, SeekFrom::Data(at)) {
                    Err(Errno::NXIO) => break,
                    start => start?,
                };
                at = seek(&self.fd, SeekFrom::Hole(start))?;
                // A file that is cut while we look may have its end before its data.
                if at > start {
                    found.push(Extent { offset: start, len: at - start });
                }
            }
            Ok(found)
        })
    }

    fn allocate(&self, how: Allocation, range: Extent) -> FsResult<()> {
        let flags = match how {
            Allocation::Reserve => FallocateFlags::empty(),
            Allocation::ReserveOnly => FallocateFlags::KEEP_SIZE,
            Allocation::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            Allocation::Zero => FallocateFlags::ZERO_RANGE,
            Allocation::ZeroOnly => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        };
        Ok(rustix::io::retry_on_intr(|| fallocate(&self.fd, flags, range.offset, range.len))?)
    }

    fn get_xattr(&self, name: &[u8]) -> FsResult<Vec<u8>> {
        xattr::get(self.fd.as_fd(), name)
    }

    fn list_xattr(&self) -> FsResult<Vec<Vec<u8>>> {
        xattr::list(self.fd.as_fd())
    }

    fn set_xattr(&self, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        xattr::set(self.fd.as_fd(), name, value, mode)
    }

    fn remove_xattr(&self, name: &[u8]) -> FsResult<()> {
        xattr::remove(self.fd.as_fd(), name)
    }
}

fn fill(
    offset: u64,
    into: &mut [u8],
    read: impl Fn(u64, &mut [u8]) -> rustix::io::Result<usize>,
) -> FsResult<usize> {
    let mut done = 0;
    while done < into.len() {
        let at = offset.checked_add(done as u64).ok_or(Errno::INVAL)?;
        match rustix::io::retry_on_intr(|| read(at, &mut into[done..]))? {
            0 => break,
            read => done += read,
        }
    }
    Ok(done)
}

/// Writes all pieces; `write` gets how much was done, and what is left. A disk that is full after
/// a part is an error: the length of the file says how far it went.
fn write_all(
    from: &[IoSlice<'_>],
    write: impl Fn(u64, &[IoSlice<'_>]) -> rustix::io::Result<usize>,
) -> FsResult<u64> {
    let mut pieces = from.to_vec();
    let (mut left, mut done) = (&mut pieces[..], 0);
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        let some = &left[..left.len().min(MOST_SLICES)];
        match rustix::io::retry_on_intr(|| write(done, some))? {
            0 => return Err(FsError::new(Errno::IO, "nothing more could be written")),
            written => {
                done += written as u64;
                IoSlice::advance_slices(&mut left, written);
            }
        }
    }
    Ok(done)
}

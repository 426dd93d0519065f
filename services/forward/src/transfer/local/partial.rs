//! A file that comes in pieces: hidden beside its place until it is complete.

use super::{apply, data, hidden};
use crate::{
    protocol::{Extent, SetAttr},
    storage::AT_ONCE,
};
use rustix::{
    fs::{
        AtFlags, FallocateFlags, FlockOperation, Mode, OFlags, fallocate, flock, fstat, fsync,
        ftruncate, openat, renameat, statat, unlinkat,
    },
    io::Errno,
};
use std::{
    ffi::OsStr,
    fs::File,
    os::{
        fd::{AsFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::FileExt},
    },
};

/// A file that is not complete. It stays when this is dropped, to be gone on with.
#[derive(Debug)]
pub(in super::super) struct Partial {
    directory: OwnedFd,
    name: Vec<u8>,
    hidden: Vec<u8>,
    file: File,
    /// Where it has data from before.
    pub(in super::super) before: Vec<Extent>,
}

impl Partial {
    /// Makes it, or finds what an earlier transfer left; `EAGAIN` while another one writes it.
    pub(in super::super) fn open(
        directory: OwnedFd,
        name: &[u8],
        key: u64,
        size: u64,
        resume: bool,
    ) -> Result<Partial, Errno> {
        let hidden = hidden(name, key);
        let path = OsStr::from_bytes(&hidden);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = loop {
            let file = openat(&directory, path, flags, Mode::RUSR | Mode::WUSR)?;
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            // The other transfer may have completed it between the two, and given it its name.
            match statat(&directory, path, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(named) if named.st_ino == fstat(&file)?.st_ino => break file,
                Ok(_) | Err(Errno::NOENT) => {}
                Err(error) => return Err(error),
            }
        };
        if !resume {
            ftruncate(&file, 0)?;
        }
        let there = (fstat(&file)?.st_size as u64).min(size);
        let before = data(&file, there)?;
        ftruncate(&file, size)?;
        let (name, file) = (name.to_vec(), File::from(file));
        Ok(Partial { directory, name, hidden, file, before })
    }

    pub(in super::super) fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Errno> {
        let mut parts = data.chunks(AT_ONCE).zip((offset..).step_by(AT_ONCE));
        parts.try_for_each(|(part, at)| self.file.write_all_at(part, at)).map_err(errno)
    }

    pub(in super::super) fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Errno> {
        self.file.read_exact_at(into, offset).map_err(errno)
    }

    /// Makes a hole where there is data that does not belong there.
    pub(in super::super) fn clear(&self, range: Extent) -> Result<(), Errno> {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, hole, range.offset, range.len) {
            Err(Errno::OPNOTSUPP) => {
                let zeroes = vec![0; range.len as usize];
                self.write_at(range.offset, &zeroes)
            }
            cleared => cleared,
        }
    }

    /// Gives it its attributes and its name.
    pub(in super::super) fn finish(&self, set: &SetAttr, durable: bool) -> Result<(), Errno> {
        apply(&self.file, set)?;
        if durable {
            fsync(&self.file)?;
        }
        let (from, to) = (OsStr::from_bytes(&self.hidden), OsStr::from_bytes(&self.name));
        renameat(&self.directory, from, &self.directory, to)?;
        if durable { fsync(&self.directory) } else { Ok(()) }
    }

    /// Throws it away.
    pub(in super::super) fn remove(&self) -> Result<(), Errno> {
        let name = OsStr::from_bytes(&self.hidden);
        unlinkat(self.directory.as_fd(), name, AtFlags::empty())
    }
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn it_goes_on_and_is_complete() {
        let place = tempfile::tempdir().unwrap();
        let names = || -> Vec<_> {
            fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect()
        };
        let open = |resume| {
            let directory = File::open(place.path()).unwrap().into();
            Partial::open(directory, b"a", 5, 3 << 20, resume)
        };
        let partial = open(true).unwrap();
        assert!(partial.before.is_empty());
        partial.write_at(1 << 20, &[7; 4096]).unwrap();
        assert_eq!(open(true).unwrap_err(), Errno::WOULDBLOCK);
        drop(partial);
        let partial = open(true).unwrap();
        assert_eq!(partial.before.len(), 1);
        partial.clear(Extent { offset: 0, len: 2 << 20 }).unwrap();
        drop(partial);
        assert_eq!(names(), [".a.petasos-0000000000000005"]);
        let partial = open(false).unwrap();
        assert!(partial.before.is_empty());
        let set = SetAttr { mode: Some(0o640), ..SetAttr::default() };
        partial.finish(&set, true).unwrap();
        assert_eq!(names(), ["a"]);
        assert_eq!(fs::read(place.path().join("a")).unwrap(), vec![0; 3 << 20]);
        open(true).unwrap().remove().unwrap();
        assert_eq!(names(), ["a"]);
    }
}

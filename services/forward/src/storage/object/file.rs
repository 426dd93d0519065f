//! Open objects: those that are read, and those that are written, by way of a spool.

use super::bucket::{self, Bucket};
use crate::{
    FsError, FsResult,
    protocol::{Attr, Extent, Kind, SetAttr, SetTime, Timestamp},
    storage::StoredFile,
};
use object_store::{ObjectMeta, path::Path};
use rustix::io::Errno;
use std::{
    fs::File,
    io::IoSlice,
    os::unix::fs::{FileExt, MetadataExt},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// An object as it was when it was opened.
pub(super) struct Reader {
    pub(super) bucket: Arc<Bucket>,
    pub(super) meta: ObjectMeta,
    /// All of it, if it is small.
    pub(super) data: Option<Vec<u8>>,
}

impl StoredFile for Reader {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> FsResult<usize> {
        if let Some(read) = self.read_at_once(offset, into) {
            return read;
        }
        let len = self.meta.size.saturating_sub(offset).min(into.len() as u64) as usize;
        if len > 0 {
            into[..len].copy_from_slice(&self.bucket.range(&self.meta, offset, len)?);
        }
        Ok(len)
    }

    fn read_at_once(&self, offset: u64, into: &mut [u8]) -> Option<FsResult<usize>> {
        let data = self.data.as_ref()?;
        let rest = usize::try_from(offset).ok().and_then(|at| data.get(at..)).unwrap_or_default();
        let len = rest.len().min(into.len());
        into[..len].copy_from_slice(&rest[..len]);
        Some(Ok(len))
    }

    fn write_at(&self, _offset: u64, _from: &[IoSlice<'_>]) -> FsResult<u64> {
        Err(Errno::BADF.into())
    }

    fn sync(&self, _data_only: bool) -> FsResult<()> {
        Ok(())
    }

    fn attr(&self) -> FsResult<Attr> {
        Ok(bucket::attr_of(&self.meta))
    }

    fn set_attr(&self, _set: &SetAttr) -> FsResult<Attr> {
        Err(Errno::BADF.into())
    }

    fn extents(&self, offset: u64, most: usize) -> FsResult<Vec<Extent>> {
        Ok(whole(offset, self.meta.size, most))
    }
}

/// A file of the local disk that is to become an object. All that have the object open for writing
/// share it, and those that open it to read meanwhile.
pub(super) struct Spool {
    bucket: Arc<Bucket>,
    file: File,
    state: Mutex<State>,
    /// One upload at a time, or what came first could come last.
    uploading: Mutex<()>,
}

struct State {
    /// The object; `None` after it was removed or replaced, when this is not needed any more.
    key: Option<Path>,
    /// Whether it differs from the object.
    dirty: bool,
}

impl Spool {
    pub(super) fn new(bucket: Arc<Bucket>, file: File, key: Path, dirty: bool) -> Spool {
        let state = Mutex::new(State { key: Some(key), dirty });
        Spool { bucket, file, state, uploading: Mutex::new(()) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object got another name, or none.
    pub(super) fn moved(&self, key: Option<Path>) {
        self.state().key = key;
    }

    pub(super) fn attr(&self) -> FsResult<Attr> {
        let meta = self.file.metadata()?;
        let nanos = u32::try_from(meta.mtime_nsec()).unwrap_or(0);
        let mtime = Timestamp { seconds: meta.mtime(), nanos };
        let key = self.state().key.clone().unwrap_or_default();
        Ok(bucket::attr(&key, Kind::File, meta.len(), mtime))
    }

    /// Makes the object what this is. What is written meanwhile makes it differ again.
    pub(super) fn upload(&self) -> FsResult<()> {
        let _one = self.uploading.lock().unwrap_or_else(PoisonError::into_inner);
        let key = {
            let mut state = self.state();
            match &state.key {
                Some(key) if state.dirty => {
                    let key = key.clone();
                    state.dirty = false;
                    key
                }
                _ => return Ok(()),
            }
        };
        let sent = self.file.metadata().map_err(FsError::from).and_then(|meta| {
            self.bucket.upload(&key, meta.len(), false, &|at, len| {
                let mut data = vec![0; len];
                self.file.read_exact_at(&mut data, at)?;
                Ok(data)
            })
        });
        if sent.is_err() {
            self.state().dirty = true;
        }
        sent
    }

    pub(super) fn resize(&self, size: u64) -> FsResult<()> {
        if i64::try_from(size).is_err() {
            return Err(Errno::FBIG.into());
        }
        self.state().dirty = true;
        Ok(self.file.set_len(size)?)
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if let Err(error) = self.upload() {
            let key = self.state().key.clone().unwrap_or_default();
            tracing::error!(%key, %error, "what was written to an object is lost");
        }
    }
}

/// An open file of a spool.
pub(super) struct Spooled {
    pub(super) spool: Arc<Spool>,
    pub(super) read: bool,
    pub(super) write: bool,
    pub(super) append: bool,
}

impl StoredFile for Spooled {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> FsResult<usize> {
        if !self.read {
            return Err(Errno::BADF.into());
        }
        let mut done = 0;
        while done < into.len() {
            match rustix::io::pread(&self.spool.file, &mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(done)
    }

    fn write_at(&self, offset: u64, from: &[IoSlice<'_>]) -> FsResult<u64> {
        if !self.write {
            return Err(Errno::BADF.into());
        }
        let mut state = self.spool.state();
        state.dirty = true;
        // An append excludes the others until it is done.
        let (mut at, _appending) = match self.append {
            true => (self.spool.file.metadata()?.len(), Some(state)),
            false => {
                drop(state);
                (offset, None)
            }
        };
        for piece in from {
            let end = at.checked_add(piece.len() as u64);
            let end = end.filter(|end| i64::try_from(*end).is_ok()).ok_or(Errno::FBIG)?;
            self.spool.file.write_all_at(piece, at)?;
            at = end;
        }
        Ok(at)
    }

    fn sync(&self, _data_only: bool) -> FsResult<()> {
        self.spool.upload()
    }

    fn attr(&self) -> FsResult<Attr> {
        self.spool.attr()
    }

    fn set_attr(&self, set: &SetAttr) -> FsResult<Attr> {
        only_size(set)?;
        if let Some(size) = set.size {
            if !self.write {
                return Err(Errno::INVAL.into());
            }
            self.spool.resize(size)?;
        }
        self.attr()
    }

    fn extents(&self, offset: u64, most: usize) -> FsResult<Vec<Extent>> {
        Ok(whole(offset, self.attr()?.size, most))
    }
}

/// Objects have a length, and the time when they came; nothing else of theirs can be set.
pub(super) fn only_size(set: &SetAttr) -> FsResult<()> {
    let set_time = |time| matches!(time, SetTime::At(_));
    let other = set.mode.is_some() || set.uid.is_some() || set.gid.is_some();
    match other || set_time(set.atime) || set_time(set.mtime) {
        true => Err(FsError::new(Errno::OPNOTSUPP, "objects have no mode, owner or times to set")),
        false => Ok(()),
    }
}

fn whole(offset: u64, size: u64, most: usize) -> Vec<Extent> {
    match offset < size && most > 0 {
        true => vec![Extent { offset, len: size - offset }],
        false => Vec::new(),
    }
}

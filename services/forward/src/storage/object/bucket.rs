//! An object store as the rest sees it: calls that wait, errors with numbers, directories.

use crate::{
    FsError, FsResult, RelPath,
    protocol::{Attr, Kind, Timestamp},
};
use futures_util::{StreamExt, TryStreamExt, future::try_join_all};
use object_store::{
    Error, GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    path::Path,
};
use rustix::io::Errno;
use std::{error, io, sync::Arc};
use tokio::runtime::{Builder, Handle, Runtime};

/// Objects that are longer are sent in parts, which have this length or more.
const PART: u64 = 8 << 20;

/// Parts that stores take for one object.
const MOST_PARTS: u64 = 10_000;

/// Parts on the way at a time.
const PARTS_AT_ONCE: usize = 4;

/// Objects that are no longer are fetched as a whole when they are opened.
const SMALL: u64 = 256 << 10;

/// Objects below a directory that is renamed; more are left to be moved one by one.
const MOST_MOVED: usize = 10_000;

/// Gives a part of what is sent: so many bytes from there on.
pub(super) type Source<'a> = &'a (dyn Fn(u64, usize) -> FsResult<Vec<u8>> + Sync);

pub(super) struct Bucket {
    store: Arc<dyn ObjectStore>,
    /// Stores may need one. `None` only while it is dropped.
    runtime: Option<Runtime>,
}

/// What has a path.
pub(super) enum Found {
    File(ObjectMeta),
    Dir,
}

impl Bucket {
    pub(super) fn new(store: Arc<dyn ObjectStore>) -> io::Result<Bucket> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Bucket { store, runtime: Some(runtime) })
    }

    /// Waits. Where a runtime of the caller's drives this thread, another thread waits.
    fn run<T: Send>(
        &self,
        work: impl Future<Output = object_store::Result<T>> + Send,
    ) -> FsResult<T> {
        let runtime = self.runtime.as_ref().ok_or(Errno::IO)?;
        let done = match Handle::try_current() {
            Err(_) => runtime.block_on(work),
            Ok(_) => std::thread::scope(|scope| {
                let waiting = scope.spawn(|| runtime.block_on(work));
                waiting.join().map_err(|_| FsError::new(Errno::IO, "the store panicked"))
            })?,
        };
        done.map_err(refusal)
    }

    pub(super) fn head(&self, key: &Path) -> FsResult<Option<ObjectMeta>> {
        absent(self.run(self.store.head(key)))
    }

    /// An object's description, and its contents where they are small.
    pub(super) fn fetch(&self, key: &Path) -> FsResult<Option<(ObjectMeta, Option<Vec<u8>>)>> {
        absent(self.run(async {
            let found = self.store.get_opts(key, GetOptions::new()).await?;
            let meta = found.meta.clone();
            let data = match meta.size {
                ..=SMALL => Some(found.bytes().await?.into()),
                _ => None,
            };
            Ok((meta, data))
        }))
    }

    /// A part of an object. `ESTALE` if it was replaced.
    pub(super) fn range(&self, meta: &ObjectMeta, offset: u64, len: usize) -> FsResult<Vec<u8>> {
        let options = GetOptions::new()
            .with_range(Some(offset..offset + len as u64))
            .with_if_match(meta.e_tag.clone());
        let data = self.run(async {
            let found = self.store.get_opts(&meta.location, options).await?;
            found.bytes().await
        })?;
        match data.len() == len {
            true => Ok(data.into()),
            false => Err(FsError::new(Errno::STALE, "the object has another length by now")),
        }
    }

    /// `EEXIST` with `new`, if there is such an object.
    pub(super) fn put(&self, key: &Path, data: Vec<u8>, new: bool) -> FsResult<()> {
        let mode = if new { PutMode::Create } else { PutMode::Overwrite };
        let options = PutOptions { mode, ..PutOptions::default() };
        self.run(self.store.put_opts(key, PutPayload::from(data), options)).map(drop)
    }

    /// Sends an object, in parts if it is long. No reader sees it before it is complete.
    pub(super) fn upload(&self, key: &Path, len: u64, new: bool, from: Source<'_>) -> FsResult<()> {
        if len <= PART {
            return self.put(key, from(0, len as usize)?, new);
        }
        // Stores have no such condition for parts.
        if new && self.head(key)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        let mut upload = self.run(self.store.put_multipart(key))?;
        let part = PART.max(len.div_ceil(MOST_PARTS));
        let starts: Vec<u64> = (0..len.div_ceil(part)).map(|at| at * part).collect();
        let sent = starts.chunks(PARTS_AT_ONCE).try_for_each(|starts| {
            let mut parts = Vec::with_capacity(starts.len());
            for start in starts {
                let data = from(*start, part.min(len - start) as usize)?;
                parts.push(upload.put_part(data.into()));
            }
            self.run(try_join_all(parts)).map(drop)
        });
        let sent = sent.and_then(|()| self.run(upload.complete()).map(drop));
        if sent.is_err() {
            // What is left of it costs room only; the error is the other one.
            let _ = self.run(upload.abort());
        }
        sent
    }

    pub(super) fn delete(&self, key: &Path) -> FsResult<()> {
        absent(self.run(self.store.delete(key))).map(drop)
    }

    /// Moves an object. Not in one step, but it is always there under one name at least.
    pub(super) fn rename(&self, from: &Path, to: &Path, new: bool) -> FsResult<()> {
        match new {
            true => self.run(self.store.rename_if_not_exists(from, to)),
            false => self.run(self.store.rename(from, to)),
        }
    }

    /// Moves all that is below a directory. `EXDEV` if that is much.
    pub(super) fn rename_all(&self, from: &Path, to: &Path) -> FsResult<()> {
        let below = self.store.list(Some(from)).take(MOST_MOVED + 1).try_collect();
        let below: Vec<ObjectMeta> = self.run(below)?;
        if below.len() > MOST_MOVED {
            let detail = format!("more than {MOST_MOVED} objects are not moved at once");
            return Err(FsError::new(Errno::XDEV, detail));
        }
        for object in below {
            let Some(rest) = object.location.prefix_match(from) else { continue };
            let moved = rest.fold(to.clone(), |path, name| path.join(name));
            self.rename(&object.location, &moved, false)?;
        }
        Ok(())
    }

    /// Whether a directory is there: it has a marker, or something else in it.
    pub(super) fn is_dir(&self, key: &Path) -> FsResult<bool> {
        match self.head(&marker(key)) {
            _ if is_root(key) => Ok(true),
            // A store of files, where this is one.
            Err(error) if error.errno() == Errno::NOTDIR => Ok(false),
            marker => Ok(marker?.is_some() || self.any_below(key, |_| true)?),
        }
    }

    pub(super) fn any_below(
        &self,
        key: &Path,
        wanted: impl Fn(&Path) -> bool + Send + Sync,
    ) -> FsResult<bool> {
        let objects = self.store.list(Some(key));
        let below = |path: &Path| path.prefix_match(key).is_some_and(|rest| rest.count() > 0);
        let mut found = objects.try_filter(|object| {
            std::future::ready(below(&object.location) && wanted(&object.location))
        });
        self.run(async { found.try_next().await }).map(|object| object.is_some())
    }

    /// What is directly in a directory: names of directories, then objects.
    pub(super) fn list(&self, key: &Path) -> FsResult<(Vec<Path>, Vec<ObjectMeta>)> {
        let listed = self.run(self.store.list_with_delimiter(Some(key)))?;
        Ok((listed.common_prefixes, listed.objects))
    }

    /// What has this path, if anything.
    pub(super) fn find(&self, key: &Path) -> FsResult<Option<Found>> {
        if !is_root(key)
            && let Some(meta) = self.head(key)?
        {
            return Ok(Some(Found::File(meta)));
        }
        Ok(self.is_dir(key)?.then_some(Found::Dir))
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The name of an object. `EILSEQ` for names that are not UTF-8.
pub(super) fn key(path: &RelPath) -> FsResult<Path> {
    let text = std::str::from_utf8(path.as_bytes())
        .map_err(|_| FsError::new(Errno::ILSEQ, "names of objects are UTF-8"))?;
    if text.split('/').any(|name| name == RelPath::RESERVED) {
        return Err(FsError::new(Errno::ACCESS, "the name marks directories here"));
    }
    Path::parse(text).map_err(|error| FsError::new(Errno::INVAL, error.to_string()))
}

fn is_root(key: &Path) -> bool {
    key.as_ref().is_empty()
}

/// The empty object that makes a directory of a name where there is nothing else in it.
pub(super) fn marker(dir: &Path) -> Path {
    dir.clone().join(RelPath::RESERVED)
}

pub(super) fn attr(key: &Path, kind: Kind, size: u64, mtime: Timestamp) -> Attr {
    let hash = blake3::hash(key.as_ref().as_bytes());
    let mut ino = [0; 8];
    ino.copy_from_slice(&hash.as_bytes()[..8]);
    Attr {
        kind,
        mode: if kind == Kind::Directory { 0o755 } else { 0o644 },
        links: 1,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        size,
        blocks: size.div_ceil(512),
        ino: u64::from_le_bytes(ino).max(1),
        atime: mtime,
        mtime,
        ctime: mtime,
    }
}

pub(super) fn attr_of(meta: &ObjectMeta) -> Attr {
    let (seconds, nanos) =
        (meta.last_modified.timestamp(), meta.last_modified.timestamp_subsec_nanos());
    let mtime = Timestamp { seconds, nanos: nanos.min(999_999_999) };
    attr(&meta.location, Kind::File, meta.size, mtime)
}

fn absent<T>(result: FsResult<T>) -> FsResult<Option<T>> {
    match result {
        Err(error) if error.errno() == Errno::NOENT => Ok(None),
        result => result.map(Some),
    }
}

/// The number that fits best: that of the system call, where a store has one.
fn refusal(error: Error) -> FsError {
    let errno = match &error {
        Error::NotFound { .. } => Errno::NOENT,
        Error::AlreadyExists { .. } => Errno::EXIST,
        Error::Precondition { .. } => Errno::STALE,
        Error::NotSupported { .. } | Error::NotImplemented { .. } => Errno::OPNOTSUPP,
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => Errno::ACCESS,
        Error::InvalidPath { .. } => Errno::INVAL,
        _ => {
            let mut sources = std::iter::successors(error::Error::source(&error), |e| e.source());
            sources
                .find_map(|source| Errno::from_io_error(source.downcast_ref::<io::Error>()?))
                .unwrap_or(Errno::IO)
        }
    };
    FsError::new(errno, error.to_string())
}

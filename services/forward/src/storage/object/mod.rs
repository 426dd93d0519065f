//! The objects of a bucket as files.
//!
//! Names of objects are paths; they must be UTF-8 without control characters. A directory is there
//! if something is in it: an object, or the empty one named `.petasos` that marks directories.
//!
//! Objects are replaced, never changed. A file that is opened for writing is a *spool*, a file of
//! the local disk, which becomes the object at `sync`, and when the last open file of it is closed.
//! A client that must know that it arrived calls `sync`: closing can only log a failure. `put` and
//! `publish` are sure when they succeed. To change an object that is there, it is fetched first, up
//! to a limit ([`Objects::edit_limit`]), beyond which opening it for writing fails with `EFBIG`.
//! A reader has the object as it was opened: when a large one is replaced, further reads fail with
//! `ESTALE`.
//!
//! A file is renamed by copying and deleting, a directory by renaming all in it (at most 10,000
//! objects, else `EXDEV`): not in one step. Nor is `replace: false`, for objects above 8 MiB and
//! stores without conditions. There are no modes, owners, times, links, holes or attributes; the
//! modes, owners and times of new files are ignored, and setting them later is refused.

mod bucket;
mod file;

use self::{
    bucket::{Bucket, Found, attr, attr_of, key, marker},
    file::{Reader, Spool, Spooled, only_size},
};
use super::{Local, Storage, StoredDir, StoredFile};
use crate::{
    FsError, FsResult, RelPath,
    protocol::{
        Abilities, Attr, Creation, DirEntry, Finish, Kind, OpenFlags, Page, RenameMode, SetAttr,
        StageKey, StatFs, Timestamp,
    },
};
use object_store::{ObjectStore, path::Path as Key};
use rustix::io::Errno;
use std::{
    collections::HashMap,
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

/// A bucket, or a part of one.
pub struct Objects {
    bucket: Arc<Bucket>,
    describe: String,
    edit_limit: u64,
    /// Where spools lie, and staged files: those as the local file system stages them.
    spools: PathBuf,
    staging: Local,
    /// Objects that are open for writing.
    open: Mutex<HashMap<Key, Weak<Spool>>>,
    /// Removes the directory at the end, if it is a temporary one.
    _temporary: Option<tempfile::TempDir>,
}

impl Objects {
    /// Serves what is in `store`, which `describe` tells people. Spools lie in a temporary
    /// directory: what is staged ends with the process.
    ///
    /// # Errors
    /// If there can be no temporary directory, or no thread.
    pub fn new(store: Arc<dyn ObjectStore>, describe: String) -> io::Result<Objects> {
        let temporary = tempfile::Builder::new().prefix("petasos-").tempdir()?;
        let mut objects = Objects::with_spools(store, describe, temporary.path())?;
        objects._temporary = Some(temporary);
        Ok(objects)
    }

    /// The same with spools in a directory of the caller's, where what is staged lasts. It should
    /// be the server's alone, and have room for all files that are written at a time.
    ///
    /// # Errors
    /// If the directory cannot be used, or there can be no thread.
    pub fn with_spools(
        store: Arc<dyn ObjectStore>,
        describe: String,
        spools: &Path,
    ) -> io::Result<Objects> {
        Ok(Objects {
            bucket: Arc::new(Bucket::new(store)?),
            describe,
            edit_limit: 1 << 30,
            spools: spools.to_owned(),
            staging: Local::open(spools)?,
            open: Mutex::default(),
            _temporary: None,
        })
    }

    /// The longest object that is fetched to be changed, in bytes; 1 GiB if nothing is said.
    #[must_use]
    pub fn edit_limit(mut self, bytes: u64) -> Objects {
        self.edit_limit = bytes;
        self
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Key, Weak<Spool>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spool(&self, key: &Key) -> Option<Arc<Spool>> {
        self.open().get(key).and_then(Weak::upgrade)
    }

    /// Files that have this object open have what no other can reach any more.
    fn detach(&self, key: &Key) {
        let spool = self.open().remove(key).and_then(|spool| spool.upgrade());
        if let Some(spool) = spool {
            spool.moved(None);
        }
    }

    /// Why there is nothing here: a file on the way is another error than nothing.
    fn absent(&self, path: &RelPath) -> FsError {
        let mut path = path.clone();
        while let Some((parent, _)) = path.split() {
            match key(&parent).and_then(|key| self.bucket.find(&key)) {
                Ok(Some(Found::Dir)) => break,
                Ok(Some(Found::File(_))) => return Errno::NOTDIR.into(),
                Ok(None) => path = parent,
                Err(error) => return error,
            }
        }
        Errno::NOENT.into()
    }

    fn find(&self, path: &RelPath) -> FsResult<Found> {
        self.bucket.find(&key(path)?)?.ok_or_else(|| self.absent(path))
    }

    /// Something can be made here: what it is in is a directory. Not for the root.
    fn in_dir(&self, path: &RelPath) -> FsResult<()> {
        let (parent, _) = path.split().ok_or(Errno::BUSY)?;
        if self.bucket.is_dir(&key(&parent)?)? {
            return Ok(());
        }
        match self.bucket.find(&key(&parent)?)? {
            Some(Found::Dir) => Ok(()),
            Some(Found::File(_)) => Err(Errno::NOTDIR.into()),
            None => Err(self.absent(&parent)),
        }
    }

    /// A whole file can get this name.
    fn target(&self, path: &RelPath) -> FsResult<Key> {
        let target = key(path)?;
        if path.is_root() || self.bucket.is_dir(&target)? {
            return Err(Errno::ISDIR.into());
        }
        self.in_dir(path)?;
        Ok(target)
    }

    /// After something was taken out of a directory: keeps that, if it was the last.
    fn keep_parent(&self, path: &RelPath) -> FsResult<()> {
        let Some((parent, _)) = path.split() else { return Ok(()) };
        let parent = key(&parent)?;
        match self.bucket.is_dir(&parent)? {
            true => Ok(()),
            false => self.bucket.put(&marker(&parent), Vec::new(), false),
        }
    }

    fn is_empty(&self, dir: &Key) -> FsResult<bool> {
        let own = marker(dir);
        Ok(!self.bucket.any_below(dir, move |object| *object != own)?)
    }

    /// A spool for this object, shared with all that have one. With `keep` it begins as the object
    /// is.
    fn begin(&self, key: Key, keep: Option<u64>) -> FsResult<Arc<Spool>> {
        let file = tempfile::tempfile_in(&self.spools)?;
        if keep.is_some_and(|size| size > self.edit_limit) {
            let limit = self.edit_limit;
            let detail = format!("objects of more than {limit} bytes can be replaced, not changed");
            return Err(FsError::new(Errno::FBIG, detail));
        }
        if keep.is_some()
            && let Some((meta, data)) = self.bucket.fetch(&key)?
        {
            const STEP: u64 = 4 << 20;
            let mut at = 0;
            while at < meta.size {
                let step = (meta.size - at).min(STEP);
                match &data {
                    Some(data) => file.write_all_at(data, 0)?,
                    None => file.write_all_at(&self.bucket.range(&meta, at, step as usize)?, at)?,
                }
                at = if data.is_some() { meta.size } else { at + step };
            }
        }
        let mut open = self.open();
        open.retain(|_, spool| spool.strong_count() > 0);
        if let Some(spool) = open.get(&key).and_then(Weak::upgrade) {
            return Ok(spool);
        }
        let bucket = Arc::clone(&self.bucket);
        let spool = Arc::new(Spool::new(bucket, file, key.clone(), keep.is_none()));
        open.insert(key, Arc::downgrade(&spool));
        Ok(spool)
    }

    /// The spool of a path that is opened for writing.
    fn open_spool(&self, path: &RelPath, flags: OpenFlags) -> FsResult<Arc<Spool>> {
        let key = key(path)?;
        let create = flags.has(OpenFlags::CREATE);
        let cut = flags.has(OpenFlags::TRUNCATE);
        loop {
            let there = match self.bucket.find(&key)? {
                Some(Found::Dir) => return Err(Errno::ISDIR.into()),
                Some(Found::File(meta)) => Some(meta),
                None if create => None,
                None => return Err(self.absent(path)),
            };
            if create && flags.has(OpenFlags::EXCLUSIVE) && there.is_some() {
                return Err(Errno::EXIST.into());
            }
            if let Some(spool) = self.spool(&key).filter(|_| there.is_some()) {
                if cut {
                    spool.resize(0)?;
                }
                return Ok(spool);
            }
            if let Some(meta) = there {
                return self.begin(key, (!cut).then_some(meta.size));
            }
            self.in_dir(path)?;
            // It is there from now on, as others expect of a file that was made.
            match self.bucket.put(&key, Vec::new(), true) {
                Ok(()) => return self.begin(key, Some(0)),
                Err(error) if error.errno() != Errno::EXIST => return Err(error),
                Err(error) if flags.has(OpenFlags::EXCLUSIVE) => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Before what has this name, or is below it, gets another: spools go with it.
    fn move_spools(
        &self,
        from: &Key,
        to: &Key,
        work: impl FnOnce() -> FsResult<()>,
    ) -> FsResult<()> {
        let moving: Vec<_> = self
            .open()
            .iter()
            .filter(|(key, _)| *key == from || key.prefix_matches(from))
            .filter_map(|(key, spool)| Some((key.clone(), spool.upgrade()?)))
            .collect();
        moving.iter().try_for_each(|(_, spool)| spool.upload())?;
        self.detach(to);
        work()?;
        for (key, spool) in moving {
            let rest = key.prefix_match(from).into_iter().flatten();
            let new = rest.fold(to.clone(), |path, name| path.join(name));
            spool.moved(Some(new.clone()));
            let mut open = self.open();
            open.remove(&key);
            open.insert(new, Arc::downgrade(&spool));
        }
        Ok(())
    }
}

impl Storage for Objects {
    fn describe(&self) -> String {
        self.describe.clone()
    }

    fn abilities(&self) -> Abilities {
        Abilities { random_write: true, ..Abilities::default() }
    }

    fn open(
        &self,
        path: &RelPath,
        flags: OpenFlags,
        _creation: &Creation,
    ) -> FsResult<Arc<dyn StoredFile>> {
        let (read, write) = (flags.has(OpenFlags::READ), flags.has(OpenFlags::WRITE));
        let append = flags.has(OpenFlags::APPEND);
        let changes = append || flags.has(OpenFlags::TRUNCATE);
        if !flags.is_known() || !read && !write || changes && !write {
            let detail = format!("opening with bits {:o}", flags.0);
            return Err(FsError::new(Errno::INVAL, detail));
        }
        if write || flags.has(OpenFlags::CREATE) {
            let spool = self.open_spool(path, flags)?;
            return Ok(Arc::new(Spooled { spool, read, write, append }));
        }
        let key = key(path)?;
        if let Some(spool) = self.spool(&key) {
            return Ok(Arc::new(Spooled { spool, read, write, append }));
        }
        if path.is_root() {
            return Err(Errno::ISDIR.into());
        }
        match self.bucket.fetch(&key)? {
            Some((meta, data)) => {
                Ok(Arc::new(Reader { bucket: Arc::clone(&self.bucket), meta, data }))
            }
            None if self.bucket.is_dir(&key)? => Err(Errno::ISDIR.into()),
            None => Err(self.absent(path)),
        }
    }

    fn open_dir(&self, path: &RelPath) -> FsResult<Box<dyn StoredDir>> {
        let dir = key(path)?;
        let (dirs, objects) = self.bucket.list(&dir)?;
        if dirs.is_empty() && objects.is_empty() {
            match self.find(path)? {
                Found::Dir => {}
                Found::File(_) => return Err(Errno::NOTDIR.into()),
            }
        }
        let mut entries = Vec::with_capacity(dirs.len() + objects.len());
        let mut add = |key: &Key, attr: Attr| match key.filename() {
            Some(name) if name != RelPath::RESERVED && *key != dir => {
                entries.push(DirEntry { name: name.as_bytes().to_vec(), attr });
            }
            _ => {}
        };
        for object in &objects {
            let spooled = self.spool(&object.location);
            add(&object.location, spooled.map_or(Ok(attr_of(object)), |spool| spool.attr())?);
        }
        for dir in &dirs {
            add(dir, dir_attr(dir));
        }
        // Where an object and a directory have one name, the object is found.
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        entries.dedup_by(|b, a| a.name == b.name);
        Ok(Box::new(Listing { entries: entries.into_iter() }))
    }

    fn stat(&self, path: &RelPath, _follow: bool) -> FsResult<Attr> {
        let key = key(path)?;
        match self.spool(&key) {
            Some(spool) => spool.attr(),
            None => match self.find(path)? {
                Found::File(meta) => Ok(attr_of(&meta)),
                Found::Dir => Ok(dir_attr(&key)),
            },
        }
    }

    fn set_attr(&self, path: &RelPath, set: &SetAttr, follow: bool) -> FsResult<Attr> {
        only_size(set)?;
        let Some(size) = set.size else { return self.stat(path, follow) };
        let cut = if size == 0 { OpenFlags::TRUNCATE } else { OpenFlags::WRITE };
        let spool = self.open_spool(path, OpenFlags::WRITE.with(cut))?;
        spool.resize(size)?;
        spool.upload()?;
        spool.attr()
    }

    fn make_dir(&self, path: &RelPath, _creation: &Creation) -> FsResult<Attr> {
        let dir = key(path)?;
        if self.bucket.find(&dir)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        self.in_dir(path)?;
        self.bucket.put(&marker(&dir), Vec::new(), false)?;
        Ok(dir_attr(&dir))
    }

    fn rename(&self, from: &RelPath, to: &RelPath, mode: RenameMode) -> FsResult<()> {
        if mode == RenameMode::Exchange {
            return Err(FsError::new(Errno::OPNOTSUPP, "objects cannot change places"));
        }
        let (old, new) = (key(from)?, key(to)?);
        if from.is_root() || to.is_root() {
            return Err(Errno::BUSY.into());
        }
        let source = self.find(from)?;
        if old != new && new.prefix_matches(&old) && matches!(source, Found::Dir) {
            return Err(FsError::new(Errno::INVAL, "a directory cannot move into itself"));
        }
        self.in_dir(to)?;
        match (&source, self.bucket.find(&new)?) {
            (_, Some(_)) if mode == RenameMode::Keep => return Err(Errno::EXIST.into()),
            _ if old == new => return Ok(()),
            (Found::Dir, Some(Found::File(_))) => return Err(Errno::NOTDIR.into()),
            (Found::Dir, Some(Found::Dir)) if !self.is_empty(&new)? => {
                return Err(Errno::NOTEMPTY.into());
            }
            (Found::File(_), Some(Found::Dir)) => return Err(Errno::ISDIR.into()),
            _ => {}
        }
        self.move_spools(&old, &new, || match source {
            Found::File(_) => self.bucket.rename(&old, &new, mode == RenameMode::Keep),
            Found::Dir => self.bucket.rename_all(&old, &new),
        })?;
        self.keep_parent(from)
    }

    fn remove(&self, path: &RelPath, directory: bool) -> FsResult<()> {
        let target = key(path)?;
        if path.is_root() {
            return Err(Errno::BUSY.into());
        }
        match (self.find(path)?, directory) {
            (Found::File(_), true) => return Err(Errno::NOTDIR.into()),
            (Found::Dir, false) => return Err(Errno::ISDIR.into()),
            (Found::Dir, true) if !self.is_empty(&target)? => return Err(Errno::NOTEMPTY.into()),
            (Found::Dir, true) => self.bucket.delete(&marker(&target))?,
            (Found::File(_), false) => {
                self.detach(&target);
                self.bucket.delete(&target)?;
            }
        }
        self.keep_parent(path)
    }

    /// How much a bucket holds is not known: plenty.
    fn stat_fs(&self) -> FsResult<StatFs> {
        const PLENTY: u64 = 1 << 38;
        Ok(StatFs {
            block: 4096,
            blocks: PLENTY,
            free: PLENTY,
            available: PLENTY,
            files: PLENTY,
            files_free: PLENTY,
            name_max: RelPath::MAX_NAME as u64,
        })
    }

    fn stage(&self, key: &StageKey) -> FsResult<Arc<dyn StoredFile>> {
        self.staging.stage(key)
    }

    fn publish(&self, stage: &StageKey, path: &RelPath, finish: &Finish) -> FsResult<Attr> {
        let staged = self.staging.staged(stage)?;
        let len = staged.attr()?.size;
        fits(len, finish)?;
        let target = self.target(path)?;
        if len < finish.size {
            staged.set_attr(&SetAttr { size: Some(finish.size), ..SetAttr::default() })?;
        }
        self.bucket.upload(&target, finish.size, !finish.replace, &|at, len| {
            let mut data = vec![0; len];
            match staged.read_at(at, &mut data)? == len {
                true => Ok(data),
                false => Err(FsError::new(Errno::IO, "the staged file became shorter")),
            }
        })?;
        self.detach(&target);
        self.staging.discard(stage)?;
        self.stat(path, false)
    }

    fn discard(&self, key: &StageKey) -> FsResult<()> {
        self.staging.discard(key)
    }

    fn put(&self, path: &RelPath, data: &[u8], finish: &Finish) -> FsResult<Attr> {
        let len = data.len() as u64;
        fits(len, finish)?;
        let target = self.target(path)?;
        self.bucket.upload(&target, finish.size, !finish.replace, &|at, part| {
            let rest = data.get(usize::try_from(at).unwrap_or(usize::MAX)..).unwrap_or_default();
            let mut part_of = rest[..rest.len().min(part)].to_vec();
            part_of.resize(part, 0);
            Ok(part_of)
        })?;
        self.detach(&target);
        self.stat(path, false)
    }

    fn sweep(&self, untouched: Duration) -> FsResult<usize> {
        self.staging.sweep(untouched)
    }
}

/// A directory as it was when it was opened.
struct Listing {
    entries: std::vec::IntoIter<DirEntry>,
}

impl StoredDir for Listing {
    fn next(&mut self, most: usize) -> FsResult<Page> {
        let entries = self.entries.by_ref().take(most.max(1)).collect();
        Ok(Page { entries, more: self.entries.len() > 0 })
    }
}

fn dir_attr(key: &Key) -> Attr {
    attr(key, Kind::Directory, 0, Timestamp::default())
}

fn fits(len: u64, finish: &Finish) -> FsResult<()> {
    match len <= finish.size {
        true => Ok(()),
        false => {
            let detail = format!("{len} bytes were written, {} announced", finish.size);
            Err(FsError::new(Errno::INVAL, detail))
        }
    }
}

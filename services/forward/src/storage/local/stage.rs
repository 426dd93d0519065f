//! Files that are not complete yet: staged ones, and those of `put`.
//!
//! Staged files lie in `.petasos/stage` in the root of the export, named by their keys, until a
//! rename gives them their place. A process that has one open holds a lock on it, also against
//! other servers of the same directory. The directories are made when they are first needed, and
//! only the server's user gets in.

use super::{
    LocalFile,
    attr::{self, Handle},
    resolve::{Export, Place, proc_path},
};
use crate::{
    FsError, FsResult, RelPath,
    protocol::{Attr, Finish, SetAttr, StageKey},
    storage::StoredFile,
};
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{
        AtFlags, CWD, Dir, FlockOperation, Mode, OFlags, RenameFlags, Stat, flock, fstat, fsync,
        linkat, mkdirat, openat, renameat_with, statat, unlinkat,
    },
    io::Errno,
};
use std::{
    collections::HashMap,
    ffi::CStr,
    fmt::Write,
    io::IoSlice,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Permissions of a file for which none were given.
const PLAIN_MODE: u32 = 0o644;

/// What the names of files begin with that `put` makes on its way.
const PUT: &str = "put-";

/// Such a name lasts for two system calls: what is older was left by a server that died.
const PUT_LASTS: Duration = Duration::from_secs(60);

pub(super) struct Staging {
    /// The stage, once it was needed.
    dir: Mutex<Option<Arc<OwnedFd>>>,
    /// Staged files that are open here.
    open: Mutex<HashMap<StageKey, Weak<LocalFile>>>,
    /// Tells the names of `put` from those of other servers.
    tag: u64,
    next: AtomicU64,
    /// Whether the file system has files without names, as far as is known.
    unnamed: AtomicBool,
}

impl Staging {
    pub(super) fn new() -> std::io::Result<Staging> {
        let tag = getrandom::u64().map_err(|error| std::io::Error::other(error.to_string()))?;
        let (dir, open) = (Mutex::default(), Mutex::default());
        let (next, unnamed) = (AtomicU64::new(0), AtomicBool::new(true));
        Ok(Staging { dir, open, tag, next, unnamed })
    }

    fn dir(&self, export: &Export) -> FsResult<Arc<OwnedFd>> {
        let mut known = self.dir.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(dir) = &*known {
            return Ok(Arc::clone(dir));
        }
        let own = own_dir(export.root(), RelPath::RESERVED, true)?;
        apart_from_clients(export)?;
        let dir = Arc::new(own_dir(own.as_fd(), "stage", true)?);
        *known = Some(Arc::clone(&dir));
        Ok(dir)
    }

    /// The stage, made again: an administrator may have removed it.
    fn dir_again(&self, export: &Export) -> FsResult<Arc<OwnedFd>> {
        self.dir.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.dir(export)
    }

    fn open(&self) -> MutexGuard<'_, HashMap<StageKey, Weak<LocalFile>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn stage(&self, export: &Export, key: &StageKey) -> FsResult<Arc<LocalFile>> {
        let (dir, name) = (self.dir(export)?, file_name(key));
        let mut open = self.open();
        open.retain(|_, file| file.strong_count() > 0);
        if open.contains_key(key) {
            return Err(in_use());
        }
        let fd = match lock(&dir, &name, OFlags::CREATE) {
            Err(error) if error.errno() == Errno::NOENT => {
                lock(&self.dir_again(export)?, &name, OFlags::CREATE)?
            }
            fd => fd?,
        };
        let file = Arc::new(LocalFile::new(fd, export.dev, false));
        open.insert(*key, Arc::downgrade(&file));
        Ok(file)
    }

    /// A file that was staged before, whether or not it is open.
    pub(super) fn staged(&self, export: &Export, key: &StageKey) -> FsResult<Arc<LocalFile>> {
        let mut open = self.open();
        if let Some(file) = open.get(key).and_then(Weak::upgrade) {
            return Ok(file);
        }
        let locked = lock(&self.dir(export)?, &file_name(key), OFlags::empty());
        let fd = locked.map_err(|error| match error.errno() {
            Errno::NOENT => FsError::new(Errno::NOENT, "nothing is staged under this key"),
            _ => error,
        })?;
        let file = Arc::new(LocalFile::new(fd, export.dev, false));
        open.insert(*key, Arc::downgrade(&file));
        Ok(file)
    }

    pub(super) fn publish(
        &self,
        export: &Export,
        key: &StageKey,
        path: &RelPath,
        finish: &Finish,
    ) -> FsResult<Attr> {
        let place = target(export, path)?;
        let (dir, name) = (self.dir(export)?, file_name(key));
        let file = self.staged(export, key)?;
        let stat = fstat(&*file)?;
        complete(file.as_fd(), &stat, stat.st_size as u64, finish, Some(&place))?;
        move_to(&dir, &name, &place, finish.replace)?;
        self.open().remove(key);
        if finish.durable {
            sync_dir(place.dir())?;
        }
        file.attr()
    }

    pub(super) fn discard(&self, export: &Export, key: &StageKey) -> FsResult<()> {
        let (dir, name) = (self.dir(export)?, file_name(key));
        let open = self.open().remove(key).and_then(|file| file.upgrade());
        // No client begins with this file again before it is gone.
        let _held = match open {
            Some(_) => None,
            None => match lock(&dir, &name, OFlags::empty()) {
                Err(error) if error.errno() == Errno::NOENT => return Ok(()),
                held => Some(held?),
            },
        };
        absent_is_fine(unlinkat(&dir, &name, AtFlags::empty()))
    }

    pub(super) fn sweep(&self, export: &Export, untouched: Duration) -> FsResult<usize> {
        let found = own_dir(export.root(), RelPath::RESERVED, false)
            .and_then(|own| own_dir(own.as_fd(), "stage", false));
        let dir = match found {
            Err(error) if error.errno() == Errno::NOENT => return Ok(0),
            found => found?,
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut gone = 0;
        let mut entries = Dir::read_from(&dir)?;
        while let Some(entry) = entries.read() {
            let entry = entry?;
            let name = entry.file_name();
            let put = name.to_bytes().starts_with(PUT.as_bytes());
            let least = if put { untouched.max(PUT_LASTS) } else { untouched };
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if let Some(_held) = left(dir.as_fd(), name, now, least)? {
                absent_is_fine(unlinkat(&dir, name, AtFlags::empty()))?;
                gone += 1;
            }
        }
        Ok(gone)
    }

    /// A file without a name is written, and linked where it belongs; where there is one already,
    /// or the file system has no files without names, it gets there by a rename.
    pub(super) fn put(
        &self,
        export: &Export,
        path: &RelPath,
        data: &[u8],
        finish: &Finish,
    ) -> FsResult<Attr> {
        let place = target(export, path)?;
        let mode = Mode::from_raw_mode(finish.set.mode.unwrap_or(PLAIN_MODE) & 0o777);
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let unnamed = match self.unnamed.load(Ordering::Relaxed) {
            true => openat(place.dir(), ".", flags | OFlags::TMPFILE, mode),
            false => Err(Errno::OPNOTSUPP),
        };
        let mut name = None;
        let fd = match unnamed {
            Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
                self.unnamed.store(false, Ordering::Relaxed);
                let flags = flags | OFlags::CREATE | OFlags::EXCL;
                openat(self.dir(export)?, &*name.insert(self.put_name()), flags, mode)?
            }
            fd => fd?,
        };
        let parent = name.is_some().then_some(&place);
        let file = LocalFile::new(fd, export.dev, false);
        let result = (|| {
            file.write_at(0, &[IoSlice::new(data)])?;
            complete(file.as_fd(), &fstat(&file)?, data.len() as u64, finish, parent)?;
            if name.is_none() {
                match link(file.as_fd(), place.dir(), Path::new(&place.name)) {
                    Err(Errno::EXIST) if finish.replace => {}
                    linked => return Ok(linked?),
                }
                let between = self.put_name();
                match link(file.as_fd(), self.dir(export)?.as_fd(), Path::new(&between)) {
                    Err(Errno::NOENT) => {
                        let dir = self.dir_again(export)?;
                        link(file.as_fd(), dir.as_fd(), Path::new(&between))?;
                    }
                    linked => linked?,
                }
                name = Some(between);
            }
            let Some(name) = &name else { return Ok(()) };
            move_to(&self.dir(export)?, name, &place, finish.replace)
        })();
        if let (Err(_), Some(name)) = (&result, &name) {
            absent_is_fine(unlinkat(self.dir(export)?, name, AtFlags::empty()))?;
        }
        result?;
        if finish.durable {
            sync_dir(place.dir())?;
        }
        file.attr()
    }

    fn put_name(&self) -> String {
        format!("{PUT}{:016x}-{}", self.tag, self.next.fetch_add(1, Ordering::Relaxed))
    }
}

/// Refuses to serve where clients could reach the server's directory by another spelling.
pub(super) fn apart_from_clients(export: &Export) -> FsResult<()> {
    let other = RelPath::RESERVED.to_ascii_uppercase();
    let look = |name: &str| statat(export.root(), name, AtFlags::SYMLINK_NOFOLLOW);
    if let (Ok(own), Ok(other)) = (look(RelPath::RESERVED), look(&other))
        && (own.st_dev, own.st_ino) == (other.st_dev, other.st_ino)
    {
        return Err(FsError::new(Errno::OPNOTSUPP, "a file system that ignores the case of names"));
    }
    Ok(())
}

fn own_dir(parent: BorrowedFd<'_>, name: &str, make: bool) -> FsResult<OwnedFd> {
    if make {
        match mkdirat(parent, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = openat(parent, name, flags, Mode::empty())?;
    let stat = fstat(&dir)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
        let detail = format!("the directory {name} must be the server's alone");
        return Err(FsError::new(Errno::PERM, detail));
    }
    Ok(dir)
}

/// Opens a staged file and locks it. One that was published or removed before the lock was there is
/// another file by now.
fn lock(dir: &Arc<OwnedFd>, name: &str, create: OFlags) -> FsResult<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | create;
    let mode = if create.is_empty() { Mode::empty() } else { Mode::RUSR | Mode::WUSR };
    loop {
        let fd = openat(dir, name, flags, mode)?;
        match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::AGAIN) => return Err(in_use()),
            locked => locked?,
        }
        let held = fstat(&fd)?;
        match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) if (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino) => {
                attr::ordinary(&held)?;
                return Ok(fd);
            }
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// A file in the stage that was left, locked: no process has it open, and nothing of it changed for
/// so long.
fn left(
    dir: BorrowedFd<'_>,
    name: &CStr,
    now: Duration,
    untouched: Duration,
) -> FsResult<Option<OwnedFd>> {
    let stat = match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(None),
        stat => stat?,
    };
    // Times that clients can set say nothing; this one is the kernel's.
    let changed = Duration::new(stat.st_ctime.max(0) as u64, stat.st_ctime_nsec as u32);
    if attr::ordinary(&stat).is_err() || now.saturating_sub(changed) < untouched {
        return Ok(None);
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = match openat(dir, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        fd => fd?,
    };
    match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::AGAIN) => Ok(None),
        locked => Ok(locked.map(|()| Some(fd))?),
    }
}

/// All that is to be true of a file before it gets its name. `parent`: a directory that it was not
/// made in, whose group it may have to take.
fn complete(
    fd: BorrowedFd<'_>,
    stat: &Stat,
    len: u64,
    finish: &Finish,
    parent: Option<&Place<'_>>,
) -> FsResult<()> {
    if len > finish.size {
        let detail = format!("{len} bytes were written, {} announced", finish.size);
        return Err(FsError::new(Errno::INVAL, detail));
    }
    let (handle, set) = (Handle::Open(fd), &finish.set);
    if len < finish.size {
        let set = SetAttr { size: Some(finish.size), ..SetAttr::default() };
        attr::apply(handle, &set)?;
    }
    let mut gid = set.gid;
    if let (None, Some(place)) = (gid, parent) {
        let parent = fstat(place.dir())?;
        gid = (parent.st_mode & 0o2000 != 0).then_some(parent.st_gid);
    }
    attr::settle(handle, set.mode.unwrap_or(PLAIN_MODE), (set.uid, gid), stat)?;
    let times = SetAttr { atime: set.atime, mtime: set.mtime, ..SetAttr::default() };
    attr::apply(handle, &times)?;
    if finish.durable {
        fsync(fd)?;
    }
    Ok(())
}

fn target<'a>(export: &'a Export, path: &RelPath) -> FsResult<Place<'a>> {
    match path.is_root() {
        true => Err(Errno::ISDIR.into()),
        false => Ok(export.place(path)?),
    }
}

fn move_to(dir: &Arc<OwnedFd>, name: &str, place: &Place<'_>, replace: bool) -> FsResult<()> {
    let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
    Ok(renameat_with(dir, name, place.dir(), &place.name, flags)?)
}

/// Names a file that has no name. Older kernels want a privilege for the direct way.
fn link(fd: BorrowedFd<'_>, dir: BorrowedFd<'_>, name: &Path) -> rustix::io::Result<()> {
    match linkat(fd, "", dir, name, AtFlags::EMPTY_PATH) {
        Err(Errno::NOENT) => linkat(CWD, proc_path(fd), dir, name, AtFlags::SYMLINK_FOLLOW),
        linked => linked,
    }
}

fn sync_dir(dir: BorrowedFd<'_>) -> FsResult<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(fsync(openat(dir, ".", flags, Mode::empty())?)?)
}

fn absent_is_fine(result: rustix::io::Result<()>) -> FsResult<()> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        result => Ok(result?),
    }
}

fn in_use() -> FsError {
    FsError::new(Errno::BUSY, "another client is staging under this key")
}

fn file_name(key: &StageKey) -> String {
    key.iter().fold(String::with_capacity(32), |mut name, byte| {
        let _ = write!(name, "{byte:02x}");
        name
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `put` where a file system has no files without names.
    #[test]
    fn by_way_of_the_stage() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        let export = Export::open(dir.path()).unwrap();
        let staging = Staging { unnamed: AtomicBool::new(false), ..Staging::new().unwrap() };
        let put = |at: &str, data: &[u8], replace| {
            let path = RelPath::parse(at.as_bytes()).unwrap();
            let finish = Finish { size: 9, replace, durable: true, ..Finish::default() };
            staging.put(&export, &path, data, &finish).map_err(|error| error.errno())
        };
        assert_eq!(put("d/a", b"first", false).unwrap().size, 9);
        assert_eq!(put("d/a", b"second", false), Err(Errno::EXIST));
        assert_eq!(put("d/a", b"second", true).unwrap().mode, PLAIN_MODE);
        assert_eq!(put("d", b"", true), Err(Errno::ISDIR));
        assert_eq!(put("b", b"too much for it", true), Err(Errno::INVAL));
        assert_eq!(std::fs::read(dir.path().join("d/a")).unwrap(), b"second\0\0\0");
        assert_eq!(std::fs::read_dir(dir.path().join(".petasos/stage")).unwrap().count(), 0);
    }

    /// What a server left that died within `put`, and what another is about to name.
    #[test]
    fn names_of_put_last_a_minute() {
        let dir = tempfile::tempdir().unwrap();
        let export = Export::open(dir.path()).unwrap();
        let staging = Staging::new().unwrap();
        let stage = staging.dir(&export).unwrap();
        let flags = OFlags::CREATE | OFlags::WRONLY;
        openat(&stage, staging.put_name(), flags, Mode::RUSR).unwrap();
        openat(&stage, "other", flags, Mode::RUSR).unwrap();
        assert_eq!(staging.sweep(&export, Duration::ZERO).unwrap(), 1);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let name = std::ffi::CString::new(format!("{PUT}{:016x}-0", staging.tag)).unwrap();
        assert!(left(stage.as_fd(), &name, now, PUT_LASTS).unwrap().is_none());
        assert!(left(stage.as_fd(), &name, now + PUT_LASTS * 2, PUT_LASTS).unwrap().is_some());
    }
}

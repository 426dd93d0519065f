//! The local file system with things wrong with it.

use petasos_forward::{
    FsResult, RelPath,
    protocol::{
        Abilities, Allocation, Attr, Creation, DirEntry, Extent, Finish, Kind, OpenFlags, Page,
        RenameMode, SetAttr, StageKey, StatFs,
    },
    storage::{Local, Storage, StoredDir, StoredFile},
};
use rustix::io::Errno;
use std::{
    io::IoSlice,
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

pub(crate) struct Odd {
    local: Local,
    /// Bytes that still fit on the disk.
    pub(crate) room: Arc<AtomicU64>,
    /// Whether directories have names in them that lead elsewhere.
    pub(crate) lies: AtomicBool,
    /// Where they lead.
    outside: Vec<u8>,
}

impl Odd {
    pub(crate) fn new(root: &Path, outside: &Path) -> Odd {
        Odd {
            local: Local::open(root).unwrap(),
            room: Arc::new(AtomicU64::new(u64::MAX)),
            lies: AtomicBool::new(false),
            outside: outside.as_os_str().as_bytes().to_vec(),
        }
    }

    /// Something that is not there.
    fn made_up(&self, path: &RelPath) -> Option<Attr> {
        let attr = self.local.stat(&RelPath::root(), true).ok()?;
        let kind = |kind| Some(Attr { kind, size: 3, mode: 0o755, links: 1, ..attr });
        match path.as_bytes() {
            _ if !self.lies.load(Relaxed) => None,
            b"trap" => kind(Kind::Directory),
            bytes if bytes.starts_with(b"trap/") => kind(Kind::File),
            _ => None,
        }
    }
}

impl Storage for Odd {
    fn describe(&self) -> String {
        self.local.describe()
    }
    fn abilities(&self) -> Abilities {
        self.local.abilities()
    }
    fn open(
        &self,
        path: &RelPath,
        flags: OpenFlags,
        creation: &Creation,
    ) -> FsResult<Arc<dyn StoredFile>> {
        if self.made_up(path).is_some() {
            return self.local.open(&RelPath::parse(b"good").unwrap(), flags, creation);
        }
        self.local.open(path, flags, creation)
    }
    fn open_dir(&self, path: &RelPath) -> FsResult<Box<dyn StoredDir>> {
        if !self.lies.load(Relaxed) {
            return self.local.open_dir(path);
        }
        let attr = self.local.stat(&RelPath::root(), true)?;
        let entry = |name: &[u8], kind| DirEntry {
            name: name.to_vec(),
            attr: Attr { kind, size: 3, mode: 0o644, links: 1, ..attr },
        };
        let inside = [entry(b"in it", Kind::File), entry(b"../../outside/x", Kind::File)];
        if !path.is_root() {
            return Ok(Box::new(Given(inside.to_vec())));
        }
        let good = self.local.stat(&RelPath::parse(b"good")?, true)?;
        let mut entries = vec![
            entry(b"../escaped", Kind::File),
            entry(b"..", Kind::Directory),
            entry(b".", Kind::Directory),
            entry(&[&self.outside[..], b"/x"].concat(), Kind::File),
            entry(b"", Kind::File),
            entry(b"zero\0", Kind::File),
            entry(b"trap", Kind::Symlink),
            DirEntry { name: b"good".to_vec(), attr: good },
        ];
        entries.extend([entry(b"trap", Kind::Directory), entry(b"trap/deep", Kind::File)]);
        Ok(Box::new(Given(entries)))
    }
    fn stat(&self, path: &RelPath, follow: bool) -> FsResult<Attr> {
        self.made_up(path).map_or_else(|| self.local.stat(path, follow), Ok)
    }
    fn set_attr(&self, path: &RelPath, set: &SetAttr, follow: bool) -> FsResult<Attr> {
        self.local.set_attr(path, set, follow)
    }
    fn make_dir(&self, path: &RelPath, creation: &Creation) -> FsResult<Attr> {
        self.local.make_dir(path, creation)
    }
    fn read_link(&self, path: &RelPath) -> FsResult<Vec<u8>> {
        match self.lies.load(Relaxed) {
            true => Ok(self.outside.clone()),
            false => self.local.read_link(path),
        }
    }
    fn rename(&self, from: &RelPath, to: &RelPath, mode: RenameMode) -> FsResult<()> {
        self.local.rename(from, to, mode)
    }
    fn remove(&self, path: &RelPath, directory: bool) -> FsResult<()> {
        self.local.remove(path, directory)
    }
    fn stat_fs(&self) -> FsResult<StatFs> {
        self.local.stat_fs()
    }
    fn stage(&self, key: &StageKey) -> FsResult<Arc<dyn StoredFile>> {
        let (file, room) = (self.local.stage(key)?, Arc::clone(&self.room));
        Ok(Arc::new(Full { file, room }))
    }
    fn publish(&self, key: &StageKey, path: &RelPath, finish: &Finish) -> FsResult<Attr> {
        self.local.publish(key, path, finish)
    }
    fn discard(&self, key: &StageKey) -> FsResult<()> {
        self.local.discard(key)
    }
    fn put(&self, path: &RelPath, data: &[u8], finish: &Finish) -> FsResult<Attr> {
        self.local.put(path, data, finish)
    }
    fn sweep(&self, untouched: Duration) -> FsResult<usize> {
        self.local.sweep(untouched)
    }
}

struct Given(Vec<DirEntry>);

impl StoredDir for Given {
    fn next(&mut self, _: usize) -> FsResult<Page> {
        Ok(Page { entries: std::mem::take(&mut self.0), more: false })
    }
}

/// A file on a disk that is full at some time.
struct Full {
    file: Arc<dyn StoredFile>,
    room: Arc<AtomicU64>,
}

impl StoredFile for Full {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> FsResult<usize> {
        self.file.read_at(offset, into)
    }
    fn write_at(&self, offset: u64, from: &[IoSlice<'_>]) -> FsResult<u64> {
        let len: u64 = from.iter().map(|part| part.len() as u64).sum();
        let fits = |room: u64| match room {
            u64::MAX => Some(room),
            room => room.checked_sub(len),
        };
        self.room.fetch_update(Relaxed, Relaxed, fits).map_err(|_| Errno::NOSPC)?;
        self.file.write_at(offset, from)
    }
    fn sync(&self, data_only: bool) -> FsResult<()> {
        self.file.sync(data_only)
    }
    fn attr(&self) -> FsResult<Attr> {
        self.file.attr()
    }
    fn set_attr(&self, set: &SetAttr) -> FsResult<Attr> {
        self.file.set_attr(set)
    }
    fn extents(&self, offset: u64, most: usize) -> FsResult<Vec<Extent>> {
        self.file.extents(offset, most)
    }
    fn allocate(&self, how: Allocation, range: Extent) -> FsResult<()> {
        self.file.allocate(how, range)
    }
}

//! A storage in memory, which notes what is asked of it, and can be made to block.

use petasos_forward::{
    FsError, FsResult, RelPath,
    protocol::{
        Abilities, Attr, Creation, DirEntry, Extent, Finish, Kind, OpenFlags, Page, RenameMode,
        SetAttr, StageKey, StatFs, Timestamp,
    },
    storage::{Storage, StoredDir, StoredFile},
};
use rustix::io::Errno;
use std::{
    collections::{BTreeMap, HashMap},
    io::IoSlice,
    sync::{
        Arc, Condvar, Mutex, MutexGuard,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

/// Files in memory, in one directory.
#[derive(Default)]
pub(crate) struct Memory {
    state: Mutex<State>,
    pub(crate) watch: Arc<Watch>,
}

#[derive(Default)]
struct State {
    files: BTreeMap<Vec<u8>, Arc<Data>>,
    directories: BTreeMap<Vec<u8>, ()>,
    staged: HashMap<StageKey, Arc<Data>>,
    ino: u64,
}

struct Data {
    ino: u64,
    bytes: Mutex<Vec<u8>>,
}

/// What a storage was asked for, and what keeps it from doing it.
#[derive(Default)]
pub(crate) struct Watch {
    /// Each `write_at`: where, and how many bytes.
    pub(crate) writes: Mutex<Vec<(u64, usize)>>,
    /// Each `read_at`.
    pub(crate) reads: Mutex<Vec<(u64, usize)>>,
    /// Whether reads can be done at once.
    pub(crate) cached: AtomicUsize,
    /// Files that are open.
    pub(crate) open: AtomicUsize,
    /// How many reads and writes have come to the gate.
    pub(crate) came: AtomicU64,
    /// How long each of them takes, in milliseconds.
    pub(crate) millis: AtomicU64,
    /// Whether writes of several pieces fail.
    pub(crate) singly: AtomicUsize,
    closed: Mutex<bool>,
    opened: Condvar,
}

impl Watch {
    /// From now on reads and writes wait.
    pub(crate) fn block(&self) {
        *self.closed.lock().unwrap() = true;
    }

    /// They go on.
    pub(crate) fn release(&self) {
        *self.closed.lock().unwrap() = false;
        self.opened.notify_all();
    }

    fn pass(&self) {
        self.came.fetch_add(1, SeqCst);
        let closed = self.closed.lock().unwrap();
        // A test that fails meanwhile drops its server, which waits for what is at work.
        let patience = Duration::from_secs(60);
        drop(self.opened.wait_timeout_while(closed, patience, |closed| *closed).unwrap());
        std::thread::sleep(Duration::from_millis(self.millis.load(SeqCst)));
    }
}

struct File {
    data: Arc<Data>,
    flags: OpenFlags,
    watch: Arc<Watch>,
}

impl Drop for File {
    fn drop(&mut self) {
        self.watch.open.fetch_sub(1, SeqCst);
    }
}

fn attr(kind: Kind, ino: u64, size: u64) -> Attr {
    let time = Timestamp::default();
    Attr {
        kind,
        mode: 0o644,
        links: 1,
        uid: 0,
        gid: 0,
        size,
        blocks: size.div_ceil(512),
        ino,
        atime: time,
        mtime: time,
        ctime: time,
    }
}

impl Memory {
    pub(crate) fn new() -> Arc<Memory> {
        Arc::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// What is in a file.
    pub(crate) fn contents(&self, path: &str) -> Option<Vec<u8>> {
        let file = self.state().files.get(path.as_bytes()).cloned()?;
        let bytes = file.bytes.lock().unwrap().clone();
        Some(bytes)
    }

    /// How many files are staged.
    pub(crate) fn staged(&self) -> usize {
        self.state().staged.len()
    }

    fn handle(&self, data: &Arc<Data>, flags: OpenFlags) -> Arc<dyn StoredFile> {
        self.watch.open.fetch_add(1, SeqCst);
        Arc::new(File { data: Arc::clone(data), flags, watch: Arc::clone(&self.watch) })
    }
}

impl State {
    fn data(&mut self, bytes: Vec<u8>) -> Arc<Data> {
        self.ino += 1;
        Arc::new(Data { ino: self.ino, bytes: Mutex::new(bytes) })
    }
}

impl Data {
    fn attr(&self) -> Attr {
        attr(Kind::File, self.ino, self.bytes.lock().unwrap().len() as u64)
    }

    fn resize(&self, size: u64) -> FsResult<()> {
        if size > 256 << 20 {
            return Err(Errno::FBIG.into());
        }
        self.bytes.lock().unwrap().resize(size as usize, 0);
        Ok(())
    }
}

impl Storage for Memory {
    fn describe(&self) -> String {
        "memory".to_owned()
    }

    fn abilities(&self) -> Abilities {
        Abilities { random_write: true, ..Abilities::default() }
    }

    fn open(
        &self,
        path: &RelPath,
        flags: OpenFlags,
        _: &Creation,
    ) -> FsResult<Arc<dyn StoredFile>> {
        let mut state = self.state();
        let found = state.files.get(path.as_bytes()).cloned();
        let data = match found {
            Some(_) if flags.has(OpenFlags::EXCLUSIVE) => return Err(Errno::EXIST.into()),
            Some(data) => data,
            None if flags.has(OpenFlags::CREATE) && !path.is_root() => {
                let data = state.data(Vec::new());
                state.files.insert(path.as_bytes().to_vec(), Arc::clone(&data));
                data
            }
            None if path.is_root() => return Err(Errno::ISDIR.into()),
            None => return Err(Errno::NOENT.into()),
        };
        if flags.has(OpenFlags::TRUNCATE) {
            data.resize(0)?;
        }
        Ok(self.handle(&data, flags))
    }

    fn open_dir(&self, path: &RelPath) -> FsResult<Box<dyn StoredDir>> {
        if !path.is_root() && !self.state().directories.contains_key(path.as_bytes()) {
            return Err(Errno::NOENT.into());
        }
        let state = self.state();
        let files = state.files.iter().filter(|_| path.is_root());
        let entry = |(name, data): (&Vec<u8>, &Arc<Data>)| DirEntry {
            name: name.clone(),
            attr: data.attr(),
        };
        Ok(Box::new(Directory(files.map(entry).collect())))
    }

    fn stat(&self, path: &RelPath, _: bool) -> FsResult<Attr> {
        let state = self.state();
        if path.is_root() || state.directories.contains_key(path.as_bytes()) {
            return Ok(attr(Kind::Directory, 1, 0));
        }
        state.files.get(path.as_bytes()).map(|data| data.attr()).ok_or(Errno::NOENT.into())
    }

    fn set_attr(&self, path: &RelPath, set: &SetAttr, _: bool) -> FsResult<Attr> {
        let file = self.state().files.get(path.as_bytes()).cloned().ok_or(Errno::NOENT)?;
        set.size.map_or(Ok(()), |size| file.resize(size))?;
        Ok(file.attr())
    }

    fn make_dir(&self, path: &RelPath, _: &Creation) -> FsResult<Attr> {
        self.state().directories.insert(path.as_bytes().to_vec(), ());
        Ok(attr(Kind::Directory, 1, 0))
    }

    fn rename(&self, from: &RelPath, to: &RelPath, _: RenameMode) -> FsResult<()> {
        let mut state = self.state();
        let file = state.files.remove(from.as_bytes()).ok_or(Errno::NOENT)?;
        state.files.insert(to.as_bytes().to_vec(), file);
        Ok(())
    }

    fn remove(&self, path: &RelPath, directory: bool) -> FsResult<()> {
        let mut state = self.state();
        let found = match directory {
            true => state.directories.remove(path.as_bytes()).is_some(),
            false => state.files.remove(path.as_bytes()).is_some(),
        };
        if found { Ok(()) } else { Err(Errno::NOENT.into()) }
    }

    fn stat_fs(&self) -> FsResult<StatFs> {
        Ok(StatFs { block: 4096, name_max: 255, ..StatFs::default() })
    }

    fn stage(&self, key: &StageKey) -> FsResult<Arc<dyn StoredFile>> {
        let mut state = self.state();
        let found = state.staged.get(key).cloned();
        let data = found.unwrap_or_else(|| state.data(Vec::new()));
        state.staged.insert(*key, Arc::clone(&data));
        Ok(self.handle(&data, OpenFlags::READ.with(OpenFlags::WRITE)))
    }

    fn publish(&self, key: &StageKey, path: &RelPath, finish: &Finish) -> FsResult<Attr> {
        let mut state = self.state();
        if !finish.replace && state.files.contains_key(path.as_bytes()) {
            return Err(Errno::EXIST.into());
        }
        let data = state.staged.remove(key).ok_or(Errno::NOENT)?;
        state.files.insert(path.as_bytes().to_vec(), Arc::clone(&data));
        Ok(data.attr())
    }

    fn discard(&self, key: &StageKey) -> FsResult<()> {
        self.state().staged.remove(key);
        Ok(())
    }

    fn put(&self, path: &RelPath, bytes: &[u8], finish: &Finish) -> FsResult<Attr> {
        let mut state = self.state();
        if !finish.replace && state.files.contains_key(path.as_bytes()) {
            return Err(Errno::EXIST.into());
        }
        let data = state.data(bytes.to_vec());
        data.resize(finish.size)?;
        state.files.insert(path.as_bytes().to_vec(), Arc::clone(&data));
        Ok(data.attr())
    }

    fn sweep(&self, _: Duration) -> FsResult<usize> {
        Ok(0)
    }
}

impl StoredFile for File {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> FsResult<usize> {
        self.watch.pass();
        self.watch.reads.lock().unwrap().push((offset, into.len()));
        let bytes = self.data.bytes.lock().unwrap();
        let from = bytes.get(offset as usize..).unwrap_or_default();
        let count = from.len().min(into.len());
        into[..count].copy_from_slice(&from[..count]);
        Ok(count)
    }

    fn read_at_once(&self, offset: u64, into: &mut [u8]) -> Option<FsResult<usize>> {
        (self.watch.cached.load(SeqCst) > 0).then(|| self.read_at(offset, into))
    }

    fn write_at(&self, offset: u64, from: &[IoSlice<'_>]) -> FsResult<u64> {
        self.watch.pass();
        if from.len() > 1 && self.watch.singly.load(SeqCst) > 0 {
            return Err(FsError::new(Errno::IO, "one at a time"));
        }
        let len: usize = from.iter().map(|slice| slice.len()).sum();
        self.watch.writes.lock().unwrap().push((offset, len));
        let mut bytes = self.data.bytes.lock().unwrap();
        let mut at = match self.flags.has(OpenFlags::APPEND) {
            true => bytes.len(),
            false if offset > 256 << 20 => return Err(FsError::new(Errno::NOSPC, "it is memory")),
            false => offset as usize,
        };
        for slice in from {
            if bytes.len() < at + slice.len() {
                bytes.resize(at + slice.len(), 0);
            }
            bytes[at..at + slice.len()].copy_from_slice(slice);
            at += slice.len();
        }
        Ok(at as u64)
    }

    fn sync(&self, _: bool) -> FsResult<()> {
        Ok(())
    }

    fn attr(&self) -> FsResult<Attr> {
        Ok(self.data.attr())
    }

    fn set_attr(&self, set: &SetAttr) -> FsResult<Attr> {
        set.size.map_or(Ok(()), |size| self.data.resize(size))?;
        Ok(self.data.attr())
    }

    fn extents(&self, offset: u64, _: usize) -> FsResult<Vec<Extent>> {
        let size = self.data.attr().size;
        Ok((offset < size).then(|| Extent { offset, len: size - offset }).into_iter().collect())
    }
}

struct Directory(std::collections::VecDeque<DirEntry>);

impl StoredDir for Directory {
    fn next(&mut self, most: usize) -> FsResult<Page> {
        // Short pages, so that there are several.
        let most = most.min(100).min(self.0.len());
        let entries: Vec<_> = self.0.drain(..most).collect();
        Ok(Page { entries, more: !self.0.is_empty() })
    }
}

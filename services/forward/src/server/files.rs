//! What a session has open: files and directories under numbers, which are not used twice.

use super::{descriptors::Descriptor, gather::Gather, leases::LockLoss};
use crate::{
    FsError, FsResult,
    protocol::{OpenFlags, StageKey},
    storage::{Storage, StoredDir, StoredFile},
};
use rustix::io::Errno;
use std::{
    collections::HashMap,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Something open. Closed when the last holder lets go.
#[derive(Clone, Debug)]
pub(super) enum Open {
    File(Arc<OpenFile>),
    Directory(Arc<OpenDir>),
}

/// An open file.
pub(super) struct OpenFile {
    /// The storage's.
    pub(super) file: Arc<dyn StoredFile>,
    /// How it was opened.
    pub(super) flags: OpenFlags,
    /// Which one it is, for locks.
    pub(super) ino: u64,
    /// Small requests that wait together.
    pub(super) gather: Arc<Gather>,
    /// With `APPEND`: one writes at a time.
    pub(super) appending: Arc<crate::semaphore::Semaphore>,
    /// Under which key it is staged.
    pub(super) staged: Option<Staged>,
    /// Whether its locks were taken, where there are leases.
    pub(super) lock_loss: Option<Arc<LockLoss>>,
    /// Counts as open until the last holder lets go.
    pub(super) _descriptor: Descriptor,
}

/// An open directory: pages come one after the other.
pub(super) struct OpenDir {
    directory: Mutex<Box<dyn StoredDir>>,
    /// Counts as open until the last holder lets go.
    _descriptor: Descriptor,
}

impl OpenFile {
    /// Whether it may be written.
    pub(super) fn to_write(&self) -> FsResult<()> {
        self.is_open_to(OpenFlags::WRITE, "writing")
    }

    /// Whether it may be read.
    pub(super) fn to_read(&self) -> FsResult<()> {
        self.is_open_to(OpenFlags::READ, "reading")
    }

    fn is_open_to(&self, what: OpenFlags, name: &str) -> FsResult<()> {
        match self.flags.has(what) {
            true => Ok(()),
            false => Err(FsError::new(Errno::BADF, format!("the file is not open for {name}"))),
        }
    }

    /// Whether writes go to the end.
    pub(super) fn appends(&self) -> bool {
        self.flags.has(OpenFlags::APPEND)
    }

    /// Under which key it is staged.
    pub(super) fn stage_key(&self) -> FsResult<StageKey> {
        let none = || FsError::new(Errno::INVAL, "the file is not staged");
        self.staged.as_ref().map(|staged| staged.key).ok_or_else(none)
    }
}

impl OpenDir {
    pub(super) fn new(directory: Box<dyn StoredDir>, descriptor: Descriptor) -> OpenDir {
        OpenDir { directory: Mutex::new(directory), _descriptor: descriptor }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Box<dyn StoredDir>> {
        self.directory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a session has open.
#[derive(Debug)]
pub(super) struct Files {
    open: slab::Slab<(u32, Open)>,
    generation: u32,
    /// Places for what is being opened.
    reserved: usize,
    most: usize,
    over: bool,
}

impl Files {
    pub(super) fn new(most: usize) -> Files {
        let open = slab::Slab::new();
        Files { open, generation: 0, reserved: 0, most: most.min(u32::MAX as usize), over: false }
    }

    /// How many are open.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Keeps a place for something that is about to be opened.
    pub(super) fn reserve(&mut self) -> FsResult<()> {
        if self.open.len() + self.reserved >= self.most {
            let detail = format!("the limit of {} open files of a session is reached", self.most);
            return Err(FsError::new(Errno::MFILE, detail));
        }
        self.reserved += 1;
        Ok(())
    }

    /// Gives a place back.
    pub(super) fn unreserve(&mut self) {
        self.reserved -= 1;
    }

    /// Gives something a number, never zero.
    pub(super) fn insert(&mut self, open: Open) -> FsResult<u64> {
        if self.over {
            return Err(super::errors::stale());
        }
        self.generation = self.generation.wrapping_add(1).max(1);
        let generation = self.generation;
        let at = self.open.insert((generation, open));
        Ok(u64::from(generation) << 32 | at as u64)
    }

    fn find(&self, number: u64) -> FsResult<usize> {
        let at = (number & u64::from(u32::MAX)) as usize;
        match self.open.get(at) {
            Some((generation, _)) if u64::from(*generation) == number >> 32 => Ok(at),
            _ => Err(FsError::new(Errno::BADF, format!("no open file has the number {number:#x}"))),
        }
    }

    /// An open file.
    pub(super) fn file(&self, number: u64) -> FsResult<Arc<OpenFile>> {
        match &self.open[self.find(number)?].1 {
            Open::File(file) => Ok(Arc::clone(file)),
            Open::Directory(_) => Err(FsError::new(Errno::ISDIR, "this number is a directory's")),
        }
    }

    /// An open directory.
    pub(super) fn directory(&self, number: u64) -> FsResult<Arc<OpenDir>> {
        match &self.open[self.find(number)?].1 {
            Open::Directory(directory) => Ok(Arc::clone(directory)),
            Open::File(_) => Err(FsError::new(Errno::NOTDIR, "this number is a file's")),
        }
    }

    /// Takes something out.
    pub(super) fn remove(&mut self, number: u64) -> FsResult<Open> {
        let at = self.find(number)?;
        Ok(self.open.remove(at).1)
    }

    /// Takes all out; nothing comes in any more.
    pub(super) fn end(&mut self) -> Vec<Open> {
        self.over = true;
        self.open.drain().map(|(_, open)| open).collect()
    }
}

/// Which keys are in use: one file at a time has a key.
pub(super) type Keys = Mutex<HashMap<StageKey, u64>>;

/// The use of a key, until it is dropped.
pub(super) struct Staged {
    key: StageKey,
    keys: Arc<Keys>,
    /// Where what is staged is to go away with this.
    discard_from: Option<Arc<dyn Storage>>,
}

impl Staged {
    /// Takes a key for a session.
    pub(super) fn take(
        keys: &Arc<Keys>,
        key: StageKey,
        session: u64,
        discard_from: Option<Arc<dyn Storage>>,
    ) -> FsResult<Staged> {
        let mut all = keys.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(by) = all.get(&key) {
            let whose = if *by == session { "this session" } else { "another session" };
            return Err(FsError::new(Errno::BUSY, format!("{whose} is staging it")));
        }
        all.insert(key, session);
        Ok(Staged { key, keys: Arc::clone(keys), discard_from })
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // Before the key is free. What has got its name is not there any more, which is no error.
        if let Some(storage) = self.discard_from.take() {
            match catch_unwind(AssertUnwindSafe(|| storage.discard(&self.key))) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "a staged file cannot be discarded"),
                Err(_) => tracing::error!("the storage panicked"),
            }
        }
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenFile({}, {:?})", self.ino, self.flags)
    }
}

impl fmt::Debug for OpenDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpenDir")
    }
}

#[cfg(test)]
mod tests {
    use super::{super::descriptors::Descriptors, *};
    use crate::protocol::Page;

    struct Empty;

    impl StoredDir for Empty {
        fn next(&mut self, _: usize) -> FsResult<Page> {
            Ok(Page::default())
        }
    }

    fn directory() -> Open {
        let descriptor = Descriptors::new(1).take(1).unwrap();
        Open::Directory(Arc::new(OpenDir::new(Box::new(Empty), descriptor)))
    }

    #[test]
    fn numbers_are_not_used_twice() {
        let mut files = Files::new(2);
        let first = files.insert(directory()).unwrap();
        assert!(first != 0 && files.directory(first).is_ok());
        assert_eq!(files.file(first).unwrap_err().errno(), Errno::ISDIR);
        files.remove(first).unwrap();
        let second = files.insert(directory()).unwrap();
        for stale in [first, 0, 1, u64::MAX, second + 1, second ^ (1 << 40)] {
            assert_eq!(files.directory(stale).unwrap_err().errno(), Errno::BADF, "{stale:x}");
        }
        files.reserve().unwrap();
        assert_eq!(files.reserve().unwrap_err().errno(), Errno::MFILE);
        files.unreserve();
        assert_eq!(files.end().len(), 1);
        assert_eq!(files.insert(directory()).unwrap_err().errno(), Errno::STALE);
    }

    #[test]
    fn a_key_is_free_again_when_its_use_ends() {
        let keys = Arc::<Keys>::default();
        let first = Staged::take(&keys, [1; 16], 1, None).unwrap();
        assert!(Staged::take(&keys, [2; 16], 1, None).is_ok());
        assert_eq!(Staged::take(&keys, [1; 16], 2, None).err().unwrap().errno(), Errno::BUSY);
        drop(first);
        assert!(Staged::take(&keys, [1; 16], 2, None).is_ok());
    }
}

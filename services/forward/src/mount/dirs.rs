//! Directories that are open.
//!
//! The server lists a directory page by page, each entry once whatever happens meanwhile. What came
//! is kept while the directory is open, so that a program may go back to where it was; going back
//! to the beginning lists it again. What was changed here since it was listed is asked for anew:
//! the kernel takes an answer for newer than its own changes.

use super::{convert, fs::Fs, table::ROOT};
use crate::{RelPath, client::RemoteDir, protocol::DirEntry};
use fuser::{FileAttr, FileType, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use futures_util::lock::Mutex;
use rustix::io::Errno;
use slab::Slab;
use std::{
    cell::RefCell,
    collections::HashSet,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    rc::{Rc, Weak},
    time::Duration,
};

/// An open directory.
struct Dir {
    ino: u64,
    path: RelPath,
    listing: Mutex<Listing>,
    changes: Rc<LocalChanges>,
}

/// What of a directory was changed here since it began to be listed.
struct LocalChanges {
    directory: u64,
    names: RefCell<HashSet<Vec<u8>>>,
    /// By the server's numbers.
    nodes: RefCell<HashSet<u64>>,
}

impl LocalChanges {
    fn has(&self, entry: &DirEntry) -> bool {
        self.nodes.borrow().contains(&entry.attr.ino) || self.names.borrow().contains(&entry.name)
    }

    fn clear(&self) {
        self.names.borrow_mut().clear();
        self.nodes.borrow_mut().clear();
    }
}

/// The directories that are open.
#[derive(Default)]
pub(super) struct OpenDirs {
    open: RefCell<Slab<Rc<Dir>>>,
    /// Of each listing, what of it may be out of date.
    listed: RefCell<Vec<Weak<LocalChanges>>>,
}

impl OpenDirs {
    /// A directory is about to be listed: from now on changes count.
    fn begin(&self, directory: u64) -> Rc<LocalChanges> {
        let (names, nodes) = (RefCell::default(), RefCell::default());
        let changes = Rc::new(LocalChanges { directory, names, nodes });
        self.listed.borrow_mut().push(Rc::downgrade(&changes));
        changes
    }

    fn insert(&self, dir: Dir) -> u64 {
        self.open.borrow_mut().insert(Rc::new(dir)) as u64
    }

    fn get(&self, handle: u64) -> Result<Rc<Dir>, Errno> {
        self.open.borrow().get(handle as usize).map(Rc::clone).ok_or(Errno::BADF)
    }

    /// Closes a directory.
    pub(super) fn close(&self, handle: u64) {
        self.open.borrow_mut().try_remove(handle as usize);
    }

    /// Closes all.
    pub(super) fn close_all(&self) {
        self.open.borrow_mut().clear();
    }

    /// How many are open.
    pub(super) fn len(&self) -> usize {
        self.open.borrow().len()
    }

    /// A name is given, or taken, here.
    pub(super) fn name_changed(&self, directory: u64, name: &[u8]) {
        self.each_listed(|old| {
            if old.directory == directory {
                old.names.borrow_mut().insert(name.to_vec());
            }
        });
    }

    fn each_listed(&self, note: impl Fn(&LocalChanges)) {
        self.listed.borrow_mut().retain(|old| old.upgrade().inspect(|old| note(old)).is_some());
    }
}

struct Listing {
    remote: RemoteDir,
    entries: Vec<DirEntry>,
    complete: bool,
    /// Whether it was read beyond the beginning.
    read: bool,
}

/// `.` and `..` come first; the server does not list them.
const DOTS: [&[u8]; 2] = [b".", b".."];

/// A buffer of the kernel's that entries go to.
trait Entries {
    /// Whether the kernel wants attributes as well.
    const PLUS: bool;
    /// False if there is no room.
    fn add(&mut self, fs: &Fs, directory: u64, next: u64, entry: &DirEntry) -> bool;
    fn add_dot(&mut self, ino: u64, next: u64, name: &[u8], attr: &FileAttr) -> bool;
}

impl Entries for ReplyDirectory {
    const PLUS: bool = false;

    fn add(&mut self, fs: &Fs, _directory: u64, next: u64, entry: &DirEntry) -> bool {
        let ino = INodeNo(fs.table.borrow().number(entry.attr.ino));
        let kind = convert::file_type(entry.attr.kind);
        !ReplyDirectory::add(self, ino, next, kind, OsStr::from_bytes(&entry.name))
    }

    fn add_dot(&mut self, ino: u64, next: u64, name: &[u8], _attr: &FileAttr) -> bool {
        let kind = FileType::Directory;
        !ReplyDirectory::add(self, INodeNo(ino), next, kind, OsStr::from_bytes(name))
    }
}

impl Entries for ReplyDirectoryPlus {
    const PLUS: bool = true;

    fn add(&mut self, fs: &Fs, directory: u64, next: u64, entry: &DirEntry) -> bool {
        let (name, attr) = (OsStr::from_bytes(&entry.name), &entry.attr);
        // Counted as looked up, unless there is no room after all.
        let found = fs.entry(directory, &entry.name, attr);
        let ino = found.attr.ino;
        let (mut shown, mut ttl) = (found.attr, fs.options.attr_ttl());
        // What is being written is longer than the server knows: to be asked for.
        if let Some(inode) = fs.unwritten_of(attr.ino) {
            shown.size = shown.size.max(inode.write_back.borrow().end());
            fs.table.borrow_mut().show(ino.0, shown.size);
            ttl = Duration::ZERO;
        }
        let full = ReplyDirectoryPlus::add(self, ino, next, name, &ttl, &shown, found.generation);
        if full {
            fs.forget(ino.0, 1);
        }
        !full
    }

    fn add_dot(&mut self, ino: u64, next: u64, name: &[u8], attr: &FileAttr) -> bool {
        let (name, ttl) = (OsStr::from_bytes(name), Duration::ZERO);
        !ReplyDirectoryPlus::add(self, INodeNo(ino), next, name, &ttl, attr, Generation(0))
    }
}

impl Fs {
    pub(super) async fn open_dir(&self, ino: u64) -> Result<u64, Errno> {
        let path = self.path(ino)?;
        // Before the server is asked.
        let changes = self.dirs.begin(ino);
        let remote = self.again(async |remote| remote.open_dir(&path).await).await?;
        let listing = Listing { remote, entries: Vec::new(), complete: false, read: false };
        Ok(self.dirs.insert(Dir { ino, path, listing: Mutex::new(listing), changes }))
    }

    /// Contents or attributes of a node are changed here.
    pub(super) fn node_changed(&self, ino: u64) {
        self.table.borrow_mut().untell(ino);
        self.dirs.each_listed(|old| {
            let server = self.table.borrow().attr(ino).map(|attr| attr.ino);
            old.nodes.borrow_mut().extend(server);
        });
    }

    /// What is known of an entry now, where that was changed here since it was listed. `None` where
    /// it is gone.
    async fn renewed(&self, dir: &Dir, entry: &DirEntry) -> Result<Option<DirEntry>, Errno> {
        let path = convert::join(&dir.path, &entry.name)?;
        match self.again(async |remote| remote.stat(&path, false).await).await {
            Ok(attr) => Ok(Some(DirEntry { name: entry.name.clone(), attr })),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    pub(super) async fn read_dir(&self, handle: u64, offset: u64, mut reply: ReplyDirectory) {
        match self.list(handle, offset, &mut reply).await {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(convert::errno(errno)),
        }
    }

    pub(super) async fn read_dir_plus(
        &self,
        handle: u64,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        match self.list(handle, offset, &mut reply).await {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(convert::errno(errno)),
        }
    }

    /// Fills in entries from `offset` on, which counts them.
    async fn list<E: Entries>(&self, handle: u64, offset: u64, reply: &mut E) -> Result<(), Errno> {
        let dir = self.dirs.get(handle)?;
        // It is read now.
        self.table.borrow_mut().untell(dir.ino);
        let mut listing = dir.listing.lock().await;
        if offset == 0 && std::mem::replace(&mut listing.read, true) {
            let path = &dir.path;
            dir.changes.clear();
            listing.remote = self.again(async |remote| remote.open_dir(path).await).await?;
            listing.entries.clear();
            listing.complete = false;
        }
        let mut at = offset as usize;
        while let Some(name) = DOTS.get(at) {
            let attr = self.table.borrow().attr(dir.ino).copied().ok_or(Errno::STALE)?;
            let attr = convert::file_attr(dir.ino, &attr);
            at += 1;
            if !reply.add_dot(dir.ino.max(ROOT), at as u64, name, &attr) {
                return Ok(());
            }
        }
        let mut any = at > offset as usize;
        loop {
            while let Some(entry) = listing.entries.get(at - DOTS.len()) {
                let mut renewed = None;
                if E::PLUS && dir.changes.has(entry) {
                    renewed = self.renewed(&dir, entry).await?;
                    if renewed.is_none() {
                        at += 1;
                        continue;
                    }
                }
                let entry = renewed.as_ref().unwrap_or(entry);
                if !reply.add(self, dir.ino, at as u64 + 1, entry) {
                    return Ok(());
                }
                (at, any) = (at + 1, true);
            }
            // No request waits for more when there is something to show.
            if listing.complete || (any && !listing.entries.is_empty()) {
                return Ok(());
            }
            match listing.remote.next_page().await {
                Ok(Some(page)) => listing.entries.extend(page),
                Ok(None) => listing.complete = true,
                Err(error) => return Err(self.dir_errno(&listing.remote, &error)),
            }
        }
    }

    fn dir_errno(&self, dir: &RemoteDir, error: &crate::client::RemoteError) -> Errno {
        match self.connection.failure(dir.remote(), error) {
            (_, true) => Errno::IO,
            (errno, false) => errno,
        }
    }
}

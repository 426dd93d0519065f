//! Open files: reading, writing, and what closing them promises.

use super::{
    convert::{self, Caller},
    fs::{Entry, Fs},
    options::Cache,
    pool::{BLOCK, Data},
    read_ahead::{Fetched, ReadAhead},
    request_queue::RequestQueue,
    table::shrink,
    write_back::WriteBackQueue,
};
use crate::{
    client::{RemoteError, RemoteFile},
    protocol::{Allocation, Attr, Creation, Extent, SetAttr, Timestamp},
};
use bytes::Bytes;
use fuser::FopenFlags;
use petasos::fabric::Exclusive;
use rustix::{fs::OFlags, io::Errno};
use slab::Slab;
use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, HashSet},
    rc::{Rc, Weak},
    sync::Arc,
};

/// Threads that were told to retry an open, at most.
const RETRYING: usize = 64;

/// A file that the kernel knows, beyond its names.
#[derive(Default)]
pub(super) struct Inode {
    pub(super) ino: u64,
    opens: RefCell<Vec<Weak<Open>>>,
    pub(super) write_back: RefCell<WriteBackQueue>,
    /// What the server's file was when the pages that the kernel keeps were known to be right.
    version: Cell<Option<Version>>,
    /// Writes that were answered, and wait for this thread; while it is open to write.
    pub(super) queue: RefCell<Option<Arc<RequestQueue>>>,
    /// Owners of locks.
    pub(super) owners: RefCell<HashSet<u64>>,
    /// Threads whose open failed with `ESTALE`, so that the kernel looks the name up again.
    retrying: RefCell<Vec<u32>>,
}

/// Tells whether a file has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    size: u64,
    mtime: Timestamp,
    ctime: Timestamp,
}

impl From<&Attr> for Version {
    fn from(attr: &Attr) -> Version {
        Version { size: attr.size, mtime: attr.mtime, ctime: attr.ctime }
    }
}

impl Inode {
    pub(super) fn new(ino: u64) -> Inode {
        Inode { ino, ..Inode::default() }
    }

    /// Notes that the open of a thread fails with `ESTALE`. False if its last one did.
    fn tells_to_retry(&self, thread: u32) -> bool {
        let retrying = &mut *self.retrying.borrow_mut();
        if let Some(at) = retrying.iter().position(|other| *other == thread) {
            retrying.swap_remove(at);
            return false;
        }
        if retrying.len() >= RETRYING {
            // It did not come back.
            retrying.remove(0);
        }
        retrying.push(thread);
        true
    }

    /// A thread has opened it, whatever came of its last open.
    fn has_retried(&self, thread: u32) {
        self.retrying.borrow_mut().retain(|other| *other != thread);
    }

    pub(super) fn each_open(&self, mut with: impl FnMut(&Open)) {
        self.opens.borrow().iter().filter_map(Weak::upgrade).for_each(|open| with(&open));
    }

    /// One of its open files that is good for this.
    pub(super) fn open_for(&self, suits: impl Fn(&Open) -> bool) -> Option<Rc<Open>> {
        self.opens.borrow().iter().filter_map(Weak::upgrade).find(|open| suits(open))
    }

    /// The kernel's pages may no longer be what the server has: changed here, which changes the
    /// version there too, and perhaps elsewhere at the same time.
    pub(super) fn changed_here(&self) {
        self.version.set(None);
        self.each_open(|open| open.read_ahead.borrow_mut().clear());
    }

    /// Notes what the server has now. True if the kernel's pages are of the same version.
    pub(super) fn is_still(&self, attr: &Attr) -> bool {
        let now = Some(Version::from(attr));
        self.version.replace(now) == now
    }

    fn add(&self, open: &Rc<Open>) {
        let mut opens = self.opens.borrow_mut();
        opens.retain(|open| open.strong_count() > 0);
        opens.push(Rc::downgrade(open));
    }
}

/// A file that is open here.
pub(super) struct Open {
    pub(super) file: RemoteFile,
    pub(super) inode: Rc<Inode>,
    flags: OFlags,
    /// What became of a write that was answered before.
    pub(super) failed: Cell<Option<Errno>>,
    pub(super) read_ahead: RefCell<ReadAhead>,
    /// The kernel has closed it.
    released: Cell<bool>,
}

impl Open {
    pub(super) fn is_append(&self) -> bool {
        self.is_writable() && self.flags.contains(OFlags::APPEND)
    }

    pub(super) fn is_writable(&self) -> bool {
        convert::writable(self.flags)
    }

    /// Whether its session goes on.
    pub(super) fn is_alive(&self) -> bool {
        self.file.remote().ended().is_none()
    }
}

/// The files that the kernel knows, and those that are open here.
#[derive(Default)]
pub(super) struct OpenFiles {
    inodes: RefCell<HashMap<u64, Rc<Inode>>>,
    open: RefCell<Slab<Rc<Open>>>,
}

impl OpenFiles {
    /// What is known of a node's file.
    pub(super) fn known(&self, ino: u64) -> Option<Rc<Inode>> {
        self.inodes.borrow().get(&ino).map(Rc::clone)
    }

    /// The same; made where there is nothing yet.
    pub(super) fn inode(&self, ino: u64) -> Rc<Inode> {
        let mut inodes = self.inodes.borrow_mut();
        Rc::clone(inodes.entry(ino).or_insert_with(|| Rc::new(Inode::new(ino))))
    }

    /// The kernel has forgotten a node.
    pub(super) fn forget(&self, ino: u64) {
        let inodes = &mut *self.inodes.borrow_mut();
        inodes.remove(&ino);
        shrink(inodes);
    }

    /// An open file, by the number that the kernel has for it.
    pub(super) fn get(&self, handle: u64) -> Result<Rc<Open>, Errno> {
        self.open.borrow().get(handle as usize).map(Rc::clone).ok_or(Errno::BADF)
    }

    fn insert(&self, open: Rc<Open>) -> u64 {
        open.inode.add(&open);
        self.open.borrow_mut().insert(open) as u64
    }

    fn remove(&self, handle: u64) {
        self.open.borrow_mut().try_remove(handle as usize);
    }

    /// Closes all.
    pub(super) fn close_all(&self) {
        self.open.borrow_mut().clear();
    }

    /// How many files there are something known of, and how many are open.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.inodes.borrow().len(), self.open.borrow().len())
    }
}

/// What `read` gives.
pub(super) enum Read {
    Bytes(Bytes),
    Block(Exclusive, usize),
    /// The network still holds the memory.
    Copy(Vec<u8>),
    /// Fetched before: from where, and how much.
    Ahead(Rc<Fetched>, usize, usize),
}

impl Read {
    pub(super) fn as_slice(&self) -> &[u8] {
        match self {
            Read::Bytes(bytes) => bytes,
            Read::Block(memory, len) => &memory[..*len],
            Read::Copy(copy) => copy,
            Read::Ahead(fetched, start, len) => fetched.part(*start, *len),
        }
    }
}

/// An open file as the kernel names it, and what it may keep of it.
pub(super) type Opened = (u64, FopenFlags);

impl Fs {
    /// The number for an error of a file. When its session is lost, it stays lost.
    pub(super) fn file_errno(&self, open: &Open, error: &RemoteError) -> Errno {
        match self.connection.failure(open.file.remote(), error) {
            (_, true) => Errno::IO,
            (errno, false) => errno,
        }
    }

    pub(super) async fn open(
        self: &Rc<Fs>,
        ino: u64,
        flags: OFlags,
        caller: Caller,
    ) -> Result<Opened, Errno> {
        let inode = self.files.inode(ino);
        self.drain(&inode).await;
        let path = match self.path(ino) {
            // No name leads there any more; a link of `/proc` to what is open still does.
            Err(Errno::STALE) => return self.reopen(inode, flags).await,
            path => path?,
        };
        let told = self.table.borrow().attr(ino).copied();
        let asked = convert::open_flags(flags - OFlags::CREATE - OFlags::EXCL);
        let open = async |remote: &_| {
            crate::client::Remote::open_as(remote, &path, asked, Creation::default()).await
        };
        // Cutting a file to nothing twice is as good as once.
        let file = match self.again(open).await {
            // Nothing has that name any more, or something else has it. So the kernel, which went
            // by what it was told a while ago, looks it up again: it may be to be made.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ISDIR | Errno::NXIO) => {
                return self.stale_name(inode, flags, caller).await;
            }
            file => file?,
        };
        let mut attr = *file.attr();
        let updated = self.table.borrow_mut().update(ino, &attr);
        if updated.is_err() {
            return self.stale_name(inode, flags, caller).await;
        }
        // Another mount has changed the length. The kernel learns that when it looks the name up
        // again, and tries once more. If it comes again without, a link of `/proc` led it.
        let shown = self.table.borrow().shows(ino, attr.size);
        if !shown && !flags.contains(OFlags::TRUNC) && inode.tells_to_retry(caller.thread) {
            if let Err(error) = file.close().await {
                tracing::debug!(%error, "closing");
            }
            return Err(Errno::STALE);
        }
        inode.has_retried(caller.thread);
        if flags.contains(OFlags::TRUNC)
            && let Some(mode) = caller.without_privileges(&attr)
            && let Ok(changed) =
                file.set_attr(SetAttr { mode: Some(mode), ..SetAttr::default() }).await
        {
            attr = changed;
        }
        let keep = inode.is_still(&attr);
        if flags.contains(OFlags::TRUNC) {
            inode.changed_here();
            self.node_changed(ino);
            self.table.borrow_mut().show(ino, 0);
        } else if let Some(told) = told
            && (told.size, told.mtime) != (attr.size, attr.mtime)
        {
            // The kernel would go by the length that it was told a while ago.
            self.kernel.expire(ino);
        }
        Ok(self.keep_open(file, inode, flags, keep))
    }

    /// The name of a file leads elsewhere, or nowhere. `ESTALE` at first: then the kernel looks the
    /// name up, if it has come by that. If it comes again without, a link of `/proc` to what is
    /// open led it.
    async fn stale_name(
        &self,
        inode: Rc<Inode>,
        flags: OFlags,
        caller: Caller,
    ) -> Result<Opened, Errno> {
        match inode.tells_to_retry(caller.thread) {
            true => Err(Errno::STALE),
            false => self.reopen(inode, flags).await,
        }
    }

    /// Opens a file that has no name any more, by what is open of it.
    async fn reopen(&self, inode: Rc<Inode>, flags: OFlags) -> Result<Opened, Errno> {
        let open = inode.open_for(Open::is_alive).ok_or(Errno::STALE)?;
        let asked = convert::open_flags(flags - OFlags::CREATE - OFlags::EXCL);
        let file = open.file.reopen(asked).await;
        let file = file.map_err(|error| self.file_errno(&open, &error))?;
        let attr = *file.attr();
        self.table.borrow_mut().update(inode.ino, &attr)?;
        let keep = inode.is_still(&attr);
        if flags.contains(OFlags::TRUNC) {
            inode.changed_here();
            self.table.borrow_mut().show(inode.ino, 0);
        } else {
            self.kernel.expire(inode.ino);
        }
        Ok(self.keep_open(file, inode, flags, keep))
    }

    pub(super) async fn create(
        self: &Rc<Fs>,
        parent: u64,
        name: &[u8],
        mode: u32,
        flags: OFlags,
        caller: Caller,
    ) -> Result<(Entry, Opened), Errno> {
        let path = self.child(parent, name)?;
        let creation = caller.creation(mode, self.table.borrow().attr(parent));
        let asked = convert::open_flags(flags | OFlags::CREATE);
        let remote = self.connection.remote().await?;
        let opened = remote.open_as(&path, asked, creation).await;
        self.changed_in(parent, opened.as_ref().ok().and_then(|file| file.directory.as_ref()));
        let file = opened.map_err(|error| match self.connection.failure(&remote, &error).0 {
            // Where the kernel took the name for missing, another mount has made something else.
            Errno::LOOP | Errno::ISDIR | Errno::NXIO => Errno::STALE,
            errno => errno,
        })?;
        let attr = *file.attr();
        let entry = self.entry(parent, name, &attr);
        self.dirs.name_changed(parent, name);
        self.node_changed(entry.attr.ino.0);
        let inode = self.files.inode(entry.attr.ino.0);
        let keep = inode.is_still(&attr);
        Ok((entry, self.keep_open(file, inode, flags, keep)))
    }

    fn keep_open(&self, file: RemoteFile, inode: Rc<Inode>, flags: OFlags, keep: bool) -> Opened {
        let (failed, read_ahead, released) = (Cell::default(), RefCell::default(), Cell::default());
        let open = Rc::new(Open { file, inode, flags, failed, read_ahead, released });
        if open.is_writable() {
            open.inode.queue.replace(Some(self.queues.open(open.inode.ino)));
        }
        // Only the server knows where appended data lands: the kernel is not to keep it.
        let direct = self.options.cache == Cache::None || open.is_append();
        let fopen = match (direct, keep) {
            (true, _) => FopenFlags::FOPEN_DIRECT_IO,
            (false, true) => FopenFlags::FOPEN_KEEP_CACHE,
            (false, false) => FopenFlags::empty(),
        };
        (self.files.insert(open), fopen)
    }

    pub(super) async fn read(
        self: &Rc<Fs>,
        handle: u64,
        offset: u64,
        size: usize,
    ) -> Result<Read, Errno> {
        let open = self.files.get(handle)?;
        let size = size.min(BLOCK);
        self.collect(&open.inode);
        let range = offset..offset.saturating_add(size as u64);
        let (pending, end) = {
            let pending = open.inode.write_back.borrow();
            (pending.touches(&range), pending.end())
        };
        if pending {
            self.drain(&open.inode).await;
        }
        let read = match self.read_ahead(&open, offset, size).await {
            Some(read) => read,
            None => self.read_now(&open, offset, size).await?,
        };
        // Less came than there is: what is pending lies beyond it, and before that is a hole, which
        // the server does not know of yet.
        let got = offset + read.as_slice().len() as u64;
        if !pending && got < range.end.min(end) {
            self.give_back(read);
            self.drain(&open.inode).await;
            return self.read_now(&open, offset, size).await;
        }
        Ok(read)
    }

    /// Reads from the server, a block at most.
    pub(super) async fn read_now(
        &self,
        open: &Open,
        offset: u64,
        size: usize,
    ) -> Result<Read, Errno> {
        if size as u64 <= open.file.remote().welcome().inline {
            let bytes = open.file.read_bytes(offset, size as u64).await;
            return bytes.map(Read::Bytes).map_err(|error| self.file_errno(open, &error));
        }
        let region = self.pool.take().into_region();
        let into = region.slice(0, size).expect("a block holds that");
        let got = open.file.read_at(offset, into).await;
        let got = got.map_err(|error| self.file_errno(open, &error))?.min(size as u64) as usize;
        Ok(match region.into_exclusive() {
            Ok(memory) => Read::Block(memory, got),
            Err(region) => {
                let mut copy = vec![0; got];
                region.read(0, &mut copy);
                Read::Copy(copy)
            }
        })
    }

    /// Takes memory back that was read into.
    pub(super) fn give_back(&self, read: Read) {
        if let Read::Block(memory, _) = read {
            self.pool.give(memory);
        }
    }

    pub(super) async fn write(
        self: &Rc<Fs>,
        handle: u64,
        offset: u64,
        data: Data,
        how: WriteMode,
    ) -> Result<u32, Errno> {
        let open = Fs::open_to_write(self.files.get(handle)?, how.from_cache)?;
        if let Some(errno) = open.failed.get() {
            return Err(errno);
        }
        let len = data.len() as u32;
        open.inode.changed_here();
        self.grown(&open, offset, data.len());
        if how.ends_privileges {
            self.end_privileges(&open).await?;
        }
        if self.options.cache == Cache::None || how.direct {
            self.drain(&open.inode).await;
            let written = self.write_out(&open, offset, data).await;
            // Also what was fetched ahead while it was on its way.
            open.inode.changed_here();
            self.node_changed(open.inode.ino);
            written?;
        } else {
            self.write_behind(&open, offset, data).await;
        }
        Ok(len)
    }

    /// The open file to write through. Pages that were mapped are written through any; but one that
    /// appends would put them at the end.
    pub(super) fn open_to_write(open: Rc<Open>, from_cache: bool) -> Result<Rc<Open>, Errno> {
        if !from_cache || !open.is_append() {
            return Ok(open);
        }
        let suits = |open: &Open| open.is_writable() && !open.is_append();
        open.inode.open_for(suits).ok_or(Errno::IO)
    }

    /// Takes the bits off a program that give it its owner's rights: it is being changed.
    async fn end_privileges(&self, open: &Open) -> Result<(), Errno> {
        let ino = open.inode.ino;
        let mode = self.table.borrow().attr(ino).and_then(|a| convert::without_privileges(a.mode));
        let Some(mode) = mode else { return Ok(()) };
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        let attr = open.file.set_attr(set).await.map_err(|error| self.file_errno(open, &error))?;
        self.table.borrow_mut().update(ino, &attr)
    }

    /// `close(2)`, of one of the descriptors that there may be: what was written is at the server
    /// then, or the error is reported. It stays for the next one, and for an `fsync`: this close
    /// may be that of a child that starts another program, where no program learns of it.
    pub(super) async fn flush(self: &Rc<Fs>, handle: u64, owner: u64) -> Result<(), Errno> {
        let open = self.files.get(handle)?;
        self.drain(&open.inode).await;
        self.give_up_locks(&open, owner).await;
        open.failed.get().map_or(Ok(()), Err)
    }

    pub(super) async fn fsync(self: &Rc<Fs>, handle: u64, data_only: bool) -> Result<(), Errno> {
        let open = self.files.get(handle)?;
        self.drain(&open.inode).await;
        if let Some(errno) = open.failed.take() {
            return Err(errno);
        }
        open.file.sync(data_only).await.map_err(|error| self.file_errno(&open, &error))
    }

    /// The last descriptor is closed, and the last mapping gone.
    pub(super) async fn release(self: &Rc<Fs>, handle: u64, owner: Option<u64>) {
        let Ok(open) = self.files.get(handle) else { return };
        self.drain(&open.inode).await;
        self.files.remove(handle);
        let inode = Rc::clone(&open.inode);
        open.released.set(true);
        let other = |other: &Open| other.is_writable() && !other.released.get();
        if open.is_writable() && inode.open_for(other).is_none() {
            self.queues.close(inode.ino);
            inode.queue.take();
        }
        if let Some(owner) = owner {
            self.give_up_locks(&open, owner).await;
        }
        // Waited for, so that there are never more such calls than the server takes.
        if let Ok(open) = Rc::try_unwrap(open)
            && open.is_alive()
            && let Err(error) = open.file.close().await
        {
            tracing::debug!(%error, "closing");
        }
    }

    pub(super) async fn allocate(
        self: &Rc<Fs>,
        handle: u64,
        range: Extent,
        mode: u32,
    ) -> Result<(), Errno> {
        const KEEP_SIZE: u32 = 1;
        const PUNCH_HOLE: u32 = 2;
        const ZERO_RANGE: u32 = 16;
        const ZERO_ONLY: u32 = ZERO_RANGE | KEEP_SIZE;
        let how = match mode {
            0 => Allocation::Reserve,
            KEEP_SIZE => Allocation::ReserveOnly,
            m if m == PUNCH_HOLE | KEEP_SIZE => Allocation::Punch,
            ZERO_RANGE => Allocation::Zero,
            ZERO_ONLY => Allocation::ZeroOnly,
            // Of the others (collapsing, inserting) the kernel does not ask.
            _ => return Err(Errno::OPNOTSUPP),
        };
        let open = self.files.get(handle)?;
        self.drain(&open.inode).await;
        open.inode.changed_here();
        let done = open.file.allocate(how, range).await;
        open.inode.changed_here();
        if done.is_ok() && matches!(how, Allocation::Reserve | Allocation::Zero) {
            let end = range.offset.saturating_add(range.len);
            self.table.borrow_mut().grow(open.inode.ino, end);
        }
        self.node_changed(open.inode.ino);
        done.map_err(|error| self.file_errno(&open, &error))
    }

    /// `lseek(2)` to data or to a hole.
    pub(super) async fn seek(
        self: &Rc<Fs>,
        handle: u64,
        offset: i64,
        whence: i32,
    ) -> Result<i64, Errno> {
        const DATA: i32 = 3;
        const HOLE: i32 = 4;
        let open = self.files.get(handle)?;
        self.drain(&open.inode).await;
        let failed = |error| self.file_errno(&open, &error);
        let size = open.file.stat().await.map_err(failed)?.size;
        let mut at = u64::try_from(offset).map_err(|_| Errno::INVAL)?;
        if at >= size {
            return Err(Errno::NXIO);
        }
        loop {
            let extents = open.file.extents(at).await.map_err(failed)?;
            let before = at;
            match whence {
                DATA => {
                    let data = extents.iter().find(|e| e.offset.saturating_add(e.len) > at);
                    return data.map(|e| e.offset.max(at) as i64).ok_or(Errno::NXIO);
                }
                HOLE => {
                    for extent in &extents {
                        if extent.offset > at {
                            return Ok(at.min(size) as i64);
                        }
                        at = at.max(extent.offset.saturating_add(extent.len));
                    }
                    // The server gives so many at a time.
                    if extents.is_empty() || at >= size || at == before {
                        return Ok(at.min(size) as i64);
                    }
                }
                _ => return Err(Errno::INVAL),
            }
        }
    }
}

/// How something is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteMode {
    /// By the kernel, out of its pages, in no process's name.
    pub(super) from_cache: bool,
    /// Past all caches.
    pub(super) direct: bool,
    /// By a process whose changes take its special rights from a program.
    pub(super) ends_privileges: bool,
}

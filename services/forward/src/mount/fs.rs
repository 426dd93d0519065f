//! The file system, as it lives on the engine's thread: names and attributes.

use super::{
    connection::Connection,
    convert::{self, Caller},
    dirs::OpenDirs,
    files::{Inode, Open, OpenFiles},
    notify::KernelCache,
    options::MountOptions,
    pool::Pool,
    read_ahead::BlocksAhead,
    request_queue::RequestQueues,
    table::{ROOT, Table},
    tasks::Tasks,
    trim::Trim,
};
use crate::{
    RelPath,
    client::{Remote, RemoteError},
    protocol::{Attr, Creation, Kind, OpenFlags, RenameMode, SetAttr, StatFs},
    timer::TimerThread,
};
use fuser::{FileAttr, Generation};
use petasos::Engine;
use rustix::io::Errno;
use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};

/// What a mount keeps in its memory now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MountUsage {
    /// Files and directories that the kernel knows, the root among them.
    pub nodes: usize,
    /// Those of them that were opened, or cut, since the kernel got to know them.
    pub inodes: usize,
    /// Open files.
    pub files: usize,
    /// Open directories.
    pub directories: usize,
    /// Bytes of blocks that are kept for the next data; at most
    /// [`write_behind`](MountOptions::write_behind), and for some ten seconds.
    pub blocks: usize,
}

/// Work for the engine's thread.
pub(super) type Job = Box<dyn FnOnce(&Rc<Fs>) + Send>;

/// What is mounted.
pub(super) struct Fs {
    pub(super) engine: Engine,
    pub(super) options: MountOptions,
    pub(super) connection: Connection,
    pub(super) pool: Arc<Pool>,
    pub(super) timer: Arc<TimerThread>,
    pub(super) table: RefCell<Table>,
    pub(super) files: OpenFiles,
    pub(super) dirs: OpenDirs,
    /// Writes that were answered, and wait for this thread.
    pub(super) queues: Arc<RequestQueues>,
    pub(super) blocks_ahead: Rc<BlocksAhead>,
    pub(super) kernel: KernelCache,
    pub(super) tasks: Tasks,
    trim: Rc<Trim>,
}

/// A name that leads somewhere.
pub(super) struct Entry {
    pub(super) attr: FileAttr,
    pub(super) generation: Generation,
}

impl Fs {
    pub(super) fn new(
        engine: Engine,
        options: MountOptions,
        connection: Connection,
        (pool, queues, timer): (Arc<Pool>, Arc<RequestQueues>, Arc<TimerThread>),
        root: Attr,
    ) -> Rc<Fs> {
        let table = RefCell::new(Table::new(options.path.clone(), root));
        let calls = connection.current().map_or(2, |remote| remote.welcome().calls as usize);
        Rc::new(Fs {
            trim: Trim::new(&engine, &pool),
            blocks_ahead: BlocksAhead::new(&pool),
            engine,
            options,
            connection,
            pool,
            timer,
            table,
            files: OpenFiles::default(),
            dirs: OpenDirs::default(),
            queues,
            kernel: KernelCache::default(),
            tasks: Tasks::new(calls),
        })
    }

    /// Runs a request beside others, when it gets a permit.
    pub(super) fn request(self: &Rc<Fs>, work: impl Future<Output = ()> + 'static) {
        let fs = Rc::clone(self);
        self.spawn(async move {
            let _permit = fs.tasks.request().await;
            work.await;
        });
    }

    /// Runs something beside requests.
    pub(super) fn spawn(self: &Rc<Fs>, work: impl Future<Output = ()> + 'static) {
        self.tasks.begin();
        let fs = Rc::clone(self);
        self.engine.spawn(async move {
            work.await;
            if fs.tasks.end() {
                fs.trim.schedule();
            }
        });
    }

    pub(super) fn usage(&self) -> MountUsage {
        let (inodes, files) = self.files.counts();
        MountUsage {
            nodes: self.table.borrow().len(),
            inodes,
            files,
            directories: self.dirs.len(),
            blocks: self.pool.kept(),
        }
    }

    /// Closes what is open.
    pub(super) fn close_all(&self) {
        self.files.close_all();
        self.dirs.close_all();
        self.kernel.end();
    }

    pub(super) fn path(&self, ino: u64) -> Result<RelPath, Errno> {
        self.table.borrow().path(ino)
    }

    pub(super) fn child(&self, parent: u64, name: &[u8]) -> Result<RelPath, Errno> {
        convert::join(&self.path(parent)?, name)
    }

    /// Runs what is idempotent: once more when the session was lost meanwhile.
    pub(super) async fn again<T>(
        &self,
        work: impl AsyncFn(&Remote) -> Result<T, RemoteError>,
    ) -> Result<T, Errno> {
        let mut first = true;
        loop {
            let remote = self.connection.remote().await?;
            let error = match work(&remote).await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            match self.connection.failure(&remote, &error) {
                (_, true) if first => first = false,
                (errno, _) => return Err(errno),
            }
        }
    }

    /// Runs what is not idempotent: once.
    pub(super) async fn once<T>(
        &self,
        work: impl AsyncFnOnce(&Remote) -> Result<T, RemoteError>,
    ) -> Result<T, Errno> {
        let remote = self.connection.remote().await?;
        let done = work(&remote).await;
        done.map_err(|error| self.connection.failure(&remote, &error).0)
    }

    /// Tells the kernel of a name.
    pub(super) fn entry(&self, parent: u64, name: &[u8], attr: &Attr) -> Entry {
        self.kernel.note_found(parent, name);
        let (ino, generation) = self.table.borrow_mut().found(parent, name, attr);
        Entry { attr: convert::file_attr(ino, attr), generation: Generation(generation) }
    }

    pub(super) fn forget(&self, ino: u64, lookups: u64) {
        if self.table.borrow_mut().forget(ino, lookups) {
            self.trim.note_forgotten();
            self.files.forget(ino);
        }
    }

    /// What is not at the server yet of what has this number there.
    pub(super) fn unwritten_of(&self, server: u64) -> Option<Rc<Inode>> {
        let ino = self.table.borrow().known(server)?;
        let inode = self.files.known(ino)?;
        self.collect(&inode);
        let empty = inode.write_back.borrow().is_empty();
        (!empty).then_some(inode)
    }

    /// `None` if there is nothing of that name.
    pub(super) async fn lookup(
        self: &Rc<Fs>,
        parent: u64,
        name: &[u8],
    ) -> Result<Option<Entry>, Errno> {
        let path = match self.child(parent, name) {
            Err(Errno::NOENT) => return Ok(None),
            path => path?,
        };
        let look = async |remote: &Remote| remote.stat(&path, false).await;
        let mut found = self.again(look).await;
        if let Ok(attr) = &found
            && let Some(inode) = self.unwritten_of(attr.ino)
        {
            self.drain(&inode).await;
            found = self.again(look).await;
        }
        match found {
            Ok(attr) => Ok(Some(self.entry(parent, name, &attr))),
            Err(Errno::NOENT) => {
                self.table.borrow_mut().missing(parent, name);
                Ok(None)
            }
            Err(errno) => Err(errno),
        }
    }

    /// An open file of a node, whose session goes on: it knows the file whatever its name is.
    fn any_open(&self, ino: u64, handle: Option<u64>) -> Option<Rc<Open>> {
        let named = handle.and_then(|handle| self.files.get(handle).ok());
        named
            .filter(|open| open.is_alive() && open.inode.ino == ino)
            .or_else(|| self.files.known(ino)?.open_for(Open::is_alive))
    }

    async fn drain_node(self: &Rc<Fs>, ino: u64) {
        if let Some(inode) = self.files.known(ino) {
            self.drain(&inode).await;
        }
    }

    /// What a node is, and for how long that holds.
    pub(super) async fn getattr(
        self: &Rc<Fs>,
        ino: u64,
        handle: Option<u64>,
    ) -> Result<(FileAttr, Duration), Errno> {
        let holds = self.options.attr_ttl();
        let recent = self.table.borrow_mut().take_recent(ino, holds);
        if let Some((attr, left)) = recent {
            return Ok((convert::file_attr(ino, &attr), left));
        }
        self.drain_node(ino).await;
        if let Some(open) = self.any_open(ino, handle)
            && let Ok(attr) = open.file.stat().await
        {
            return Ok((self.update_attr(ino, &attr)?, holds));
        }
        let path = self.path(ino)?;
        let attr = self.again(async |remote| remote.stat(&path, ino == ROOT).await).await?;
        Ok((self.update_attr(ino, &attr)?, holds))
    }

    /// Notes what the server says of a node; gives what the kernel learns of it.
    fn update_attr(&self, ino: u64, attr: &Attr) -> Result<FileAttr, Errno> {
        let mut table = self.table.borrow_mut();
        table.update(ino, attr)?;
        table.set_shown(ino, attr.size);
        Ok(convert::file_attr(ino, attr))
    }

    pub(super) async fn setattr(
        self: &Rc<Fs>,
        ino: u64,
        mut set: SetAttr,
        handle: Option<u64>,
        caller: Caller,
    ) -> Result<FileAttr, Errno> {
        self.drain_node(ino).await;
        let cut = set.size.map(|_| self.files.inode(ino));
        if let Some(inode) = &cut {
            inode.changed_here();
            if set.mode.is_none() {
                let table = self.table.borrow();
                set.mode = table.attr(ino).and_then(|attr| caller.without_privileges(attr));
            }
        }
        let attr = match self.open_to_set(ino, &set, handle) {
            Some(open) => {
                open.file.set_attr(set).await.map_err(|error| self.file_errno(&open, &error))
            }
            None => {
                let path = self.path(ino)?;
                self.once(async |remote| remote.set_attr(&path, set, ino == ROOT).await).await
            }
        };
        // Also what was fetched ahead meanwhile.
        cut.inspect(|inode| inode.changed_here());
        self.node_changed(ino);
        self.update_attr(ino, &attr?)
    }

    /// The open file to change attributes through. Only one that can be written has its length set.
    fn open_to_set(&self, ino: u64, set: &SetAttr, handle: Option<u64>) -> Option<Rc<Open>> {
        let open = self.any_open(ino, handle)?;
        if set.size.is_none() || open.is_writable() {
            return Some(open);
        }
        open.inode.open_for(|open| open.is_alive() && open.is_writable())
    }

    pub(super) async fn read_link(&self, ino: u64) -> Result<Vec<u8>, Errno> {
        let path = self.path(ino)?;
        self.again(async |remote| remote.read_link(&path).await).await
    }

    fn creation(&self, parent: u64, mode: u32, caller: Caller) -> Creation {
        caller.creation(mode, self.table.borrow().attr(parent))
    }

    pub(super) async fn make_dir(
        &self,
        parent: u64,
        name: &[u8],
        mode: u32,
        caller: Caller,
    ) -> Result<Entry, Errno> {
        let path = self.new_child(parent, name)?;
        let mut creation = self.creation(parent, mode, caller);
        if self.table.borrow().attr(parent).is_some_and(|a| a.mode & convert::SET_GROUP != 0) {
            creation.mode |= convert::SET_GROUP;
        }
        let made = self.once(async |remote| remote.make_dir_in(&path, creation).await).await;
        let attr = self.made(parent, made)?;
        self.dirs.name_changed(parent, name);
        Ok(self.entry(parent, name, &attr))
    }

    pub(super) async fn make_node(
        &self,
        parent: u64,
        name: &[u8],
        mode: u32,
        caller: Caller,
    ) -> Result<Entry, Errno> {
        let path = self.new_child(parent, name)?;
        let creation = self.creation(parent, mode, caller);
        let kind = match rustix::fs::FileType::from_raw_mode(mode) {
            rustix::fs::FileType::RegularFile => Kind::File,
            rustix::fs::FileType::Fifo => Kind::Fifo,
            rustix::fs::FileType::Socket => Kind::Socket,
            _ => return Err(Errno::PERM),
        };
        let make = async |remote: &Remote| match kind {
            Kind::File => {
                let asked = OpenFlags::WRITE.with(OpenFlags::CREATE).with(OpenFlags::EXCLUSIVE);
                let file = remote.open_as(&path, asked, creation).await?;
                Ok((*file.attr(), file.directory))
            }
            kind => remote.make_node_in(&path, kind, creation).await,
        };
        let attr = self.made(parent, self.once(make).await)?;
        self.dirs.name_changed(parent, name);
        Ok(self.entry(parent, name, &attr))
    }

    pub(super) async fn make_symlink(
        &self,
        parent: u64,
        name: &[u8],
        target: &[u8],
        caller: Caller,
    ) -> Result<Entry, Errno> {
        let path = self.new_child(parent, name)?;
        let owner = self.creation(parent, 0, caller).owner;
        let make = async |remote: &Remote| {
            let (attr, directory) = remote.make_symlink_in(&path, target).await?;
            let Some((uid, gid)) = owner.filter(|owner| *owner != (attr.uid, attr.gid)) else {
                return Ok((attr, directory));
            };
            let set = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
            // Without the right to, the link is the server's.
            Ok((remote.set_attr(&path, set, false).await.unwrap_or(attr), directory))
        };
        let attr = self.made(parent, self.once(make).await)?;
        self.dirs.name_changed(parent, name);
        Ok(self.entry(parent, name, &attr))
    }

    pub(super) async fn remove(
        &self,
        parent: u64,
        name: &[u8],
        directory: bool,
    ) -> Result<(), Errno> {
        let path = self.child(parent, name)?;
        let removed = self.once(async |remote| remote.remove_in(&path, directory).await).await;
        self.changed_in(parent, removed.as_ref().ok().and_then(Option::as_ref));
        removed?;
        self.dirs.name_changed(parent, name);
        let node = self.table.borrow().child((parent, name));
        // It may have other names.
        node.inspect(|node| self.node_changed(*node));
        self.table.borrow_mut().removed(parent, name);
        Ok(())
    }

    pub(super) async fn rename(
        &self,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        mode: RenameMode,
    ) -> Result<(), Errno> {
        let (source, target) = (self.child(from.0, from.1)?, self.new_child(to.0, to.1)?);
        let renamed = self.once(async |r| r.rename_in(&source, &target, mode).await).await;
        let (former, now) = *renamed.as_ref().unwrap_or(&(None, None));
        self.changed_in(from.0, former.as_ref());
        self.changed_in(to.0, now.as_ref());
        renamed?;
        for (directory, name) in [from, to] {
            self.dirs.name_changed(directory, name);
            let node = self.table.borrow().child((directory, name));
            node.inspect(|node| self.node_changed(*node));
        }
        let table = &mut *self.table.borrow_mut();
        match mode {
            RenameMode::Exchange => table.exchanged(from, to),
            RenameMode::Replace | RenameMode::Keep => table.renamed(from, to),
        }
        Ok(())
    }

    pub(super) async fn hard_link(
        &self,
        ino: u64,
        parent: u64,
        name: &[u8],
    ) -> Result<Entry, Errno> {
        let (from, to) = (self.path(ino)?, self.new_child(parent, name)?);
        let made = self.once(async |remote| remote.hard_link_in(&from, &to).await).await;
        let attr = self.made(parent, made)?;
        self.dirs.name_changed(parent, name);
        self.node_changed(ino);
        Ok(self.entry(parent, name, &attr))
    }

    /// Something was made in a directory, or could not be: then what is known of that is old, too,
    /// for a call without an answer may have been done.
    fn made(
        &self,
        directory: u64,
        made: Result<(Attr, Option<Attr>), Errno>,
    ) -> Result<Attr, Errno> {
        self.changed_in(directory, made.as_ref().ok().and_then(|(_, is)| is.as_ref()));
        made.map(|(attr, _)| attr)
    }

    /// A name was given or taken in a directory, and the server said what that is since, if it did.
    pub(super) fn changed_in(&self, directory: u64, is: Option<&Attr>) {
        self.table.borrow_mut().changed_in(directory, is);
    }

    /// A name that is to be given: the server's own is not to be had.
    fn new_child(&self, parent: u64, name: &[u8]) -> Result<RelPath, Errno> {
        self.child(parent, name).map_err(|errno| match errno {
            Errno::NOENT => Errno::PERM,
            errno => errno,
        })
    }

    pub(super) async fn stat_fs(&self) -> Result<StatFs, Errno> {
        self.again(async |remote| remote.stat_fs().await).await
    }
}

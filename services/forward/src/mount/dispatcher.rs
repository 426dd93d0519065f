//! The FUSE dispatcher: takes each request of the kernel, and hands it to the engine's thread,
//! which answers it.
//!
//! Nothing here waits: however long a request takes at the server, the next one is taken.

use super::{
    convert::{self, Caller},
    files::WriteMode,
    fs::{Entry, Fs, Job},
    locks::LockRequest,
    options::{Cache, MountOptions},
    pool::{BLOCK, Data, Pool},
    request_queue::{Offered, RequestQueues},
};
use crate::protocol::{Extent, RenameMode, SetAttr};
use bytes::Bytes;
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileAttr, FileHandle, Filesystem, FopenFlags, INodeNo,
    InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLock,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use futures_channel::mpsc;
use rustix::{fs::OFlags, io::Errno};
use std::{
    collections::HashSet,
    ffi::OsStr,
    io,
    os::unix::ffi::OsStrExt,
    path::Path,
    rc::Rc,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

/// Takes the kernel's requests.
pub(super) struct Dispatcher {
    jobs: mpsc::UnboundedSender<Job>,
    pool: Arc<Pool>,
    queues: Arc<RequestQueues>,
    /// Files of which parts were locked at some time.
    locked: Mutex<HashSet<u64>>,
    cache: Cache,
    spins: bool,
    attr_ttl: Duration,
    negative_ttl: Duration,
}

impl Dispatcher {
    pub(super) fn new(
        jobs: mpsc::UnboundedSender<Job>,
        pool: Arc<Pool>,
        queues: Arc<RequestQueues>,
        options: &MountOptions,
    ) -> Dispatcher {
        let (attr_ttl, negative_ttl) = (options.attr_ttl(), options.negative_ttl());
        let (cache, spins, locked) = (options.cache, !options.spin.is_zero(), Mutex::default());
        Dispatcher { jobs, pool, queues, locked, cache, spins, attr_ttl, negative_ttl }
    }

    fn locked(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a job to the engine's thread. Where that has ended, the job is dropped.
    fn send(&self, job: impl FnOnce(&Rc<Fs>) + Send + 'static) {
        let _ = self.jobs.unbounded_send(Box::new(job));
    }

    /// Has a request done beside others. Where the engine has ended, the request is dropped, which
    /// answers it with an error.
    fn run<W>(&self, work: impl FnOnce(Rc<Fs>) -> W + Send + 'static)
    where
        W: Future<Output = ()> + 'static,
    {
        self.send(move |fs| fs.request(work(Rc::clone(fs))));
    }

    fn caller(request: &Request) -> Caller {
        Caller { uid: request.uid(), gid: request.gid(), thread: request.pid() }
    }
}

fn bytes(name: &OsStr) -> Vec<u8> {
    name.as_bytes().to_vec()
}

fn flags(raw: i32) -> OFlags {
    OFlags::from_bits_retain(raw as u32)
}

fn empty(reply: ReplyEmpty, done: Result<(), Errno>) {
    match done {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(convert::errno(errno)),
    }
}

fn entry(reply: ReplyEntry, ttl: Duration, made: Result<Entry, Errno>) {
    match made {
        Ok(Entry { attr, generation }) => reply.entry(&ttl, &attr, generation),
        Err(errno) => reply.error(convert::errno(errno)),
    }
}

fn attr(reply: ReplyAttr, ttl: Duration, attr: Result<FileAttr, Errno>) {
    match attr {
        Ok(attr) => reply.attr(&ttl, &attr),
        Err(errno) => reply.error(convert::errno(errno)),
    }
}

fn opened(reply: ReplyOpen, opened: Result<(u64, FopenFlags), Errno>) {
    match opened {
        Ok((handle, flags)) => reply.opened(FileHandle(handle), flags),
        Err(errno) => reply.error(convert::errno(errno)),
    }
}

fn xattr(reply: ReplyXattr, room: u32, value: Result<impl AsRef<[u8]>, Errno>) {
    let value = match value {
        Ok(value) => value,
        Err(errno) => return reply.error(convert::errno(errno)),
    };
    let value = value.as_ref();
    match room as usize {
        0 => reply.size(value.len() as u32),
        room if room < value.len() => reply.error(fuser::Errno::ERANGE),
        _ => reply.data(value),
    }
}

impl Filesystem for Dispatcher {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut wanted = InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_ATOMIC_O_TRUNC
            | InitFlags::FUSE_POSIX_LOCKS
            | InitFlags::FUSE_FLOCK_LOCKS
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_ASYNC_DIO;
        // Attributes come with the names: programs that look at each (`find`, `ls -l`, `rsync`)
        // list a large directory to its end first, and left to itself the kernel stops asking for
        // attributes after the first page, and then for those of each file. The server sends them
        // in either case. Where nothing is kept they would be asked for again.
        wanted |= match self.cache {
            Cache::Close => InitFlags::FUSE_CACHE_SYMLINKS,
            Cache::None => InitFlags::FUSE_READDIRPLUS_AUTO,
        };
        let _ = config.add_capabilities(wanted & config.capabilities());
        let _ = config.set_max_write(BLOCK as u32);
        let _ = config.set_max_background(64);
        let _ = config.set_congestion_threshold(48);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (name, ttl, negative) = (bytes(name), self.attr_ttl, self.negative_ttl);
        self.run(move |fs| async move {
            match fs.lookup(parent.0, &name).await {
                Ok(Some(found)) => entry(reply, ttl, Ok(found)),
                Ok(None) if fs.kernel.note_missing(parent.0, &name, negative) => {
                    reply.entry(&negative, &convert::nothing(), fuser::Generation(0));
                }
                Ok(None) => reply.error(fuser::Errno::ENOENT),
                Err(errno) => reply.error(convert::errno(errno)),
            }
        });
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        self.locked().remove(&ino.0);
        self.send(move |fs| fs.forget(ino.0, lookups));
    }

    fn getattr(&self, _: &Request, ino: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        let handle = handle.map(u64::from);
        self.run(move |fs| async move {
            match fs.getattr(ino.0, handle).await {
                Ok((is, holds)) => reply.attr(&holds, &is),
                Err(errno) => reply.error(convert::errno(errno)),
            }
        });
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mode = mode.map(|mode| mode & 0o7777);
        let (atime, mtime) = (convert::set_time(atime), convert::set_time(mtime));
        let set = SetAttr { mode, uid, gid, size, atime, mtime };
        let (ttl, handle) = (self.attr_ttl, handle.map(u64::from));
        let caller = Self::caller(request);
        self.run(move |fs| async move {
            attr(reply, ttl, fs.setattr(ino.0, set, handle, caller).await);
        });
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        self.run(move |fs| async move {
            match fs.read_link(ino.0).await {
                Ok(target) => reply.data(&target),
                Err(errno) => reply.error(convert::errno(errno)),
            }
        });
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        let (name, ttl, caller) = (bytes(name), self.attr_ttl, Self::caller(request));
        self.run(move |fs| async move {
            entry(reply, ttl, fs.make_node(parent.0, &name, mode, caller).await);
        });
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let (name, ttl, caller) = (bytes(name), self.attr_ttl, Self::caller(request));
        self.run(move |fs| async move {
            entry(reply, ttl, fs.make_dir(parent.0, &name, mode, caller).await);
        });
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = bytes(name);
        self.run(move |fs| async move { empty(reply, fs.remove(parent.0, &name, false).await) });
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = bytes(name);
        self.run(move |fs| async move { empty(reply, fs.remove(parent.0, &name, true).await) });
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let (name, target) = (bytes(name), bytes(target.as_os_str()));
        let (ttl, caller) = (self.attr_ttl, Self::caller(request));
        self.run(move |fs| async move {
            entry(reply, ttl, fs.make_symlink(parent.0, &name, &target, caller).await);
        });
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        to_parent: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mode = match flags {
            flags if flags.is_empty() => RenameMode::Replace,
            RenameFlags::RENAME_NOREPLACE => RenameMode::Keep,
            RenameFlags::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return reply.error(fuser::Errno::EINVAL),
        };
        let (from, to) = (bytes(name), bytes(to_name));
        self.run(move |fs| async move {
            empty(reply, fs.rename((parent.0, &from), (to_parent.0, &to), mode).await);
        });
    }

    fn link(&self, _: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let (name, ttl) = (bytes(name), self.attr_ttl);
        self.run(move |fs| async move {
            entry(reply, ttl, fs.hard_link(ino.0, parent.0, &name).await);
        });
    }

    fn open(&self, request: &Request, ino: INodeNo, raw: OpenFlags, reply: ReplyOpen) {
        let caller = Self::caller(request);
        self.run(move |fs| async move {
            opened(reply, fs.open(ino.0, flags(raw.0), caller).await);
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        raw: i32,
        reply: ReplyCreate,
    ) {
        let (name, ttl, caller) = (bytes(name), self.attr_ttl, Self::caller(request));
        self.run(move |fs| async move {
            match fs.create(parent.0, &name, mode, flags(raw), caller).await {
                Ok((Entry { attr, generation }, (handle, flags))) => {
                    reply.created(&ttl, &attr, generation, FileHandle(handle), flags);
                }
                Err(errno) => reply.error(convert::errno(errno)),
            }
        });
    }

    fn read(
        &self,
        _: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.run(move |fs| async move {
            match fs.read(handle.0, offset, size as usize).await {
                Ok(read) => {
                    reply.data(read.as_slice());
                    fs.give_back(read);
                }
                Err(errno) => reply.error(convert::errno(errno)),
            }
        });
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        raw: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // More than was negotiated: the kernel does not do that.
        if data.len() > BLOCK {
            return reply.error(fuser::Errno::EINVAL);
        }
        let how = WriteMode {
            from_cache: write_flags.contains(WriteFlags::FUSE_WRITE_CACHE),
            direct: flags(raw.0).contains(OFlags::DIRECT),
            ends_privileges: write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID)
                && request.uid() != 0,
        };
        if self.cache == Cache::Close && !how.direct && !how.ends_privileges {
            let (ino, cached) = (ino.0, how.from_cache);
            let offered = self.queues.offer(ino, handle.0, offset, data, cached, &self.pool);
            if offered != Offered::Declined {
                reply.written(data.len() as u32);
                match offered {
                    Offered::Notify => self.send(move |fs| fs.write_back(ino)),
                    // More of this will come. An engine that looks for work keeps processors from
                    // falling asleep, and where there are few, the writer's would have to be woken
                    // each time.
                    _ if self.spins => self.send(|_| {}),
                    _ => {}
                }
                return;
            }
        }
        let data = Data::copy_of(data, &self.pool);
        self.run(move |fs| async move {
            match fs.write(handle.0, offset, data, how).await {
                Ok(len) => reply.written(len),
                Err(errno) => reply.error(convert::errno(errno)),
            }
        });
    }

    fn flush(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // All that was written is at the server, and nothing was locked.
        if self.queues.is_settled(ino.0) && !self.locked().contains(&ino.0) {
            return reply.ok();
        }
        self.run(move |fs| async move { empty(reply, fs.flush(handle.0, owner.0).await) });
    }

    fn release(
        &self,
        _: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.run(move |fs| async move {
            fs.release(handle.0, owner.map(|owner| owner.0)).await;
            reply.ok();
        });
    }

    fn fsync(
        &self,
        _: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.run(move |fs| async move { empty(reply, fs.fsync(handle.0, data_only).await) });
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        self.run(move |fs| async move {
            let handle = fs.open_dir(ino.0).await;
            opened(reply, handle.map(|handle| (handle, FopenFlags::empty())));
        });
    }

    fn readdir(
        &self,
        _: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        self.run(move |fs| async move { fs.read_dir(handle.0, offset, reply).await });
    }

    fn readdirplus(
        &self,
        _: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        self.run(move |fs| async move { fs.read_dir_plus(handle.0, offset, reply).await });
    }

    fn releasedir(
        &self,
        _: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.run(move |fs| async move {
            fs.dirs.close(handle.0);
            reply.ok();
        });
    }

    /// Names are at the server as soon as they are made here.
    fn fsyncdir(
        &self,
        _: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn statfs(&self, _: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        self.run(move |fs| async move {
            match fs.stat_fs().await {
                Ok(s) => {
                    let (block, name) = (s.block as u32, s.name_max as u32);
                    let (files, free) = (s.files, s.files_free);
                    reply.statfs(s.blocks, s.free, s.available, files, free, block, name, block);
                }
                Err(errno) => reply.error(convert::errno(errno)),
            }
        });
    }

    fn setxattr(
        &self,
        _: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let (name, value) = (bytes(name), Bytes::copy_from_slice(value));
        self.run(move |fs| async move {
            empty(reply, fs.set_xattr(ino.0, &name, value, flags).await);
        });
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, room: u32, reply: ReplyXattr) {
        let name = bytes(name);
        self.run(move |fs| async move { xattr(reply, room, fs.get_xattr(ino.0, &name).await) });
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, room: u32, reply: ReplyXattr) {
        self.run(move |fs| async move { xattr(reply, room, fs.list_xattr(ino.0).await) });
    }

    fn removexattr(&self, _: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = bytes(name);
        self.run(move |fs| async move { empty(reply, fs.remove_xattr(ino.0, &name).await) });
    }

    fn getlk(
        &self,
        _: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        let asked = LockRequest { owner: owner.0, start, end, kind, pid };
        self.run(move |fs| async move {
            match fs.test_lock(handle.0, asked).await {
                Ok((start, end, kind, pid)) => reply.locked(start, end, kind, pid),
                Err(errno) => reply.error(convert::errno(errno)),
            }
        });
    }

    fn setlk(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        self.locked().insert(ino.0);
        let asked = LockRequest { owner: owner.0, start, end, kind, pid };
        let thread = request.pid();
        // Beside other requests: it may wait for one of these.
        self.send(move |fs| {
            let waiting = Rc::clone(fs);
            fs.spawn(async move {
                empty(reply, waiting.set_lock(handle.0, asked, sleep, thread).await);
            });
        });
    }

    fn ioctl(
        &self,
        _: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        _command: u32,
        _data: &[u8],
        _room: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(fuser::Errno::ENOTTY);
    }

    fn fallocate(
        &self,
        _: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let range = Extent { offset, len };
        self.run(move |fs| async move {
            empty(reply, fs.allocate(handle.0, range, mode as u32).await);
        });
    }

    fn lseek(
        &self,
        _: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        self.run(move |fs| async move {
            match fs.seek(handle.0, offset, whence).await {
                Ok(offset) => reply.offset(offset),
                Err(errno) => reply.error(convert::errno(errno)),
            }
        });
    }

    /// The kernel reads and writes by itself then.
    fn copy_file_range(
        &self,
        _: &Request,
        _ino_in: INodeNo,
        _handle_in: FileHandle,
        _offset_in: u64,
        _ino_out: INodeNo,
        _handle_out: FileHandle,
        _offset_out: u64,
        _len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.error(fuser::Errno::ENOSYS);
    }
}

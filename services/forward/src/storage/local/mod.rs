//! The local file system.
//!
//! What clients do is done with the rights of this process. Paths are followed beneath the root
//! and nowhere else ([`resolve`]). Only ordinary files are ever opened: whatever a path names is
//! looked at first, without opening it, and what was looked at is then opened, so that no FIFO
//! blocks and no device does anything. Needs Linux 5.8 and `/proc`.
//!
//! Owners of new files are set where the process may; where it may not, files are the server's, and
//! come without set-user-ID and set-group-ID, which would give the server's rights away. Changing
//! the owner of what is there fails with `EPERM` then.

mod attr;
mod dir;
mod file;
mod resolve;
mod stage;
mod xattr;

use self::{
    attr::{Handle, from_stat},
    dir::LocalDir,
    file::LocalFile,
    resolve::{Export, Place, proc_path, reopen},
    stage::Staging,
};
use super::{Storage, StoredDir, StoredFile};
use crate::{
    FsError, FsResult, RelPath,
    protocol::{
        Abilities, Attr, Creation, Finish, Kind, OpenFlags, RenameMode, SetAttr, StageKey, StatFs,
        XattrMode,
    },
};
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{
        AtFlags, FileType, Mode, OFlags, RenameFlags, fstat, fstatvfs, linkat, mkdirat, mknodat,
        openat, readlinkat, renameat, renameat_with, statat, symlinkat, unlinkat,
    },
    io::Errno,
};
use std::{io, path::Path, sync::Arc, time::Duration};

/// A directory of the local file system.
///
/// Dropping it leaves what is staged, under `.petasos` in the directory, for the next server there.
///
/// ```
/// use petasos_forward::{RelPath, storage::{Local, Storage}};
///
/// # let folder = tempfile::tempdir()?;
/// std::fs::write(folder.path().join("a"), b"hello")?;
/// let local = Local::open(folder.path())?;
/// assert_eq!(local.stat(&RelPath::parse(b"a")?, true)?.size, 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Local {
    export: Export,
    staging: Staging,
    describe: String,
}

/// What an attempt to open or make a file gave.
enum Found {
    Made(OwnedFd),
    There(OwnedFd),
}

impl Local {
    /// Exports `root`, which must be a directory. Makes nothing there before something is staged.
    ///
    /// # Errors
    /// If it is no directory, or cannot be opened.
    pub fn open(root: &Path) -> io::Result<Local> {
        let export = Export::open(root)?;
        let again = export.open_plain(Path::new(""), OFlags::PATH, Mode::empty())?;
        rustix::fs::stat(proc_path(again.as_fd()))
            .map_err(|errno| io::Error::new(errno.kind(), format!("/proc is needed: {errno}")))?;
        stage::apart_from_clients(&export)?;
        Ok(Local { export, staging: Staging::new()?, describe: root.display().to_string() })
    }

    /// A file that was staged before, for a storage that stages here and publishes elsewhere.
    #[cfg(feature = "object-store")]
    pub(super) fn staged(&self, key: &StageKey) -> FsResult<Arc<dyn StoredFile>> {
        Ok(self.staging.staged(&self.export, key)?)
    }

    fn attr_at(&self, place: &Place<'_>) -> FsResult<Attr> {
        let stat = statat(place.dir(), &place.name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(from_stat(&stat, self.export.dev))
    }

    /// Where something new is to be made.
    fn new_place(&self, path: &RelPath) -> FsResult<Place<'_>> {
        match path.is_root() {
            true => Err(Errno::EXIST.into()),
            false => Ok(self.export.place(path)?),
        }
    }

    /// Owner and mode of something that was just made, if it is still what has the name.
    fn settle(&self, place: &Place<'_>, kind: Kind, creation: &Creation) -> FsResult<Attr> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(place.dir(), &place.name, flags, Mode::empty())?;
        let stat = fstat(&fd)?;
        if attr::kind(&stat) == kind {
            // Directories inherit from theirs that what is made in them has their group.
            let inherited = if kind == Kind::Directory { stat.st_mode & 0o2000 } else { 0 };
            let mode = creation.mode | inherited;
            attr::settle(Handle::Path(fd.as_fd()), mode, owner(creation), &stat)?;
        }
        Ok(from_stat(&fstat(&fd)?, self.export.dev))
    }
}

impl Storage for Local {
    fn describe(&self) -> String {
        self.describe.clone()
    }

    fn is_quick(&self) -> bool {
        true
    }

    fn abilities(&self) -> Abilities {
        Abilities { random_write: true, links: true, holes: true, attributes: true, xattrs: true }
    }

    fn open(
        &self,
        path: &RelPath,
        flags: OpenFlags,
        creation: &Creation,
    ) -> FsResult<Arc<dyn StoredFile>> {
        let append = flags.has(OpenFlags::APPEND);
        let access = access(flags)?;
        let create = flags.has(OpenFlags::CREATE);
        let exclusive = create && flags.has(OpenFlags::EXCLUSIVE);
        let follow = !exclusive && !flags.has(OpenFlags::NO_FOLLOW);
        let mode = Mode::from_raw_mode(attr::mode(creation.mode)?.bits() & 0o777);
        let look = if follow { OFlags::PATH } else { OFlags::PATH | OFlags::NOFOLLOW };
        let make = access | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let found = self.export.resolve(path, follow, |path| {
            loop {
                if !exclusive {
                    match self.export.open_plain(path, look, Mode::empty()) {
                        Err(Errno::NOENT) if create => {}
                        there => return there.map(Found::There),
                    }
                }
                match self.export.open_plain(path, make, mode) {
                    // Another process was faster. Whatever it is, it is there now.
                    Err(Errno::EXIST) if !exclusive => {}
                    made => return made.map(Found::Made),
                }
            }
        })?;
        let fd = match found {
            Found::Made(fd) => {
                let stat = fstat(&fd)?;
                attr::settle(Handle::Open(fd.as_fd()), creation.mode, owner(creation), &stat)?;
                fd
            }
            Found::There(fd) => {
                attr::ordinary(&fstat(&fd)?)?;
                let cut = flags.has(OpenFlags::TRUNCATE);
                reopen(fd.as_fd(), if cut { access | OFlags::TRUNC } else { access })?
            }
        };
        Ok(Arc::new(LocalFile::new(fd, self.export.dev, append)))
    }

    fn open_dir(&self, path: &RelPath) -> FsResult<Box<dyn StoredDir>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let (fd, root) = self.export.resolve(path, true, |path| {
            let fd = self.export.open_plain(path, flags, Mode::empty())?;
            Ok((fd, path.as_os_str().is_empty()))
        })?;
        Ok(Box::new(LocalDir::new(fd, self.export.dev, root)?))
    }

    fn stat(&self, path: &RelPath, follow: bool) -> FsResult<Attr> {
        if let Some((parent, name)) = path.split()
            && parent.is_root()
        {
            let stat = statat(self.export.root(), name, AtFlags::SYMLINK_NOFOLLOW)?;
            let attr = from_stat(&stat, self.export.dev);
            if !follow || attr.kind != Kind::Symlink {
                return Ok(attr);
            }
        }
        Ok(from_stat(&fstat(self.export.node(path, follow)?)?, self.export.dev))
    }

    fn set_attr(&self, path: &RelPath, set: &SetAttr, follow: bool) -> FsResult<Attr> {
        let fd = self.export.node(path, follow)?;
        attr::apply(Handle::Path(fd.as_fd()), set)?;
        Ok(from_stat(&fstat(&fd)?, self.export.dev))
    }

    fn make_dir(&self, path: &RelPath, creation: &Creation) -> FsResult<Attr> {
        let (mode, place) = (attr::mode(creation.mode)?, self.new_place(path)?);
        mkdirat(place.dir(), &place.name, mode)?;
        self.settle(&place, Kind::Directory, creation)
    }

    fn make_symlink(&self, path: &RelPath, target: &[u8]) -> FsResult<Attr> {
        let place = self.new_place(path)?;
        symlinkat(target, place.dir(), &place.name)?;
        self.attr_at(&place)
    }

    fn make_node(&self, path: &RelPath, kind: Kind, creation: &Creation) -> FsResult<Attr> {
        let file_type = match kind {
            Kind::Fifo => FileType::Fifo,
            Kind::Socket => FileType::Socket,
            Kind::CharDevice | Kind::BlockDevice => {
                return Err(FsError::new(Errno::PERM, "devices are not made"));
            }
            Kind::File | Kind::Directory | Kind::Symlink => return Err(Errno::INVAL.into()),
        };
        let (mode, place) = (attr::mode(creation.mode)?, self.new_place(path)?);
        mknodat(place.dir(), &place.name, file_type, mode, 0)?;
        self.settle(&place, kind, creation)
    }

    fn read_link(&self, path: &RelPath) -> FsResult<Vec<u8>> {
        let fd = self.export.node(path, false)?;
        match readlinkat(&fd, "", Vec::new()) {
            // What the kernel says of what is no link.
            Err(Errno::NOENT) => Err(Errno::INVAL.into()),
            target => Ok(target?.into_bytes()),
        }
    }

    fn hard_link(&self, from: &RelPath, to: &RelPath) -> FsResult<Attr> {
        if from.is_root() {
            return Err(Errno::PERM.into());
        }
        let (from, to) = (self.export.place(from)?, self.new_place(to)?);
        linkat(from.dir(), &from.name, to.dir(), &to.name, AtFlags::empty())?;
        self.attr_at(&to)
    }

    fn rename(&self, from: &RelPath, to: &RelPath, mode: RenameMode) -> FsResult<()> {
        let (from, to) = (self.export.place(from)?, self.export.place(to)?);
        let flags = match mode {
            RenameMode::Replace => {
                return Ok(renameat(from.dir(), &from.name, to.dir(), &to.name)?);
            }
            RenameMode::Keep => RenameFlags::NOREPLACE,
            RenameMode::Exchange => RenameFlags::EXCHANGE,
        };
        Ok(renameat_with(from.dir(), &from.name, to.dir(), &to.name, flags)?)
    }

    fn remove(&self, path: &RelPath, directory: bool) -> FsResult<()> {
        let place = self.export.place(path)?;
        let flags = if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        Ok(unlinkat(place.dir(), &place.name, flags)?)
    }

    fn stat_fs(&self) -> FsResult<StatFs> {
        let stat = fstatvfs(self.export.root())?;
        Ok(StatFs {
            block: stat.f_frsize,
            blocks: stat.f_blocks,
            free: stat.f_bfree,
            available: stat.f_bavail,
            files: stat.f_files,
            files_free: stat.f_ffree,
            name_max: stat.f_namemax,
        })
    }

    fn get_xattr(&self, path: &RelPath, name: &[u8]) -> FsResult<Vec<u8>> {
        xattr::get(self.export.node(path, false)?.as_fd(), name)
    }

    fn list_xattr(&self, path: &RelPath) -> FsResult<Vec<Vec<u8>>> {
        xattr::list(self.export.node(path, false)?.as_fd())
    }

    fn set_xattr(
        &self,
        path: &RelPath,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> FsResult<()> {
        xattr::set(self.export.node(path, false)?.as_fd(), name, value, mode)
    }

    fn remove_xattr(&self, path: &RelPath, name: &[u8]) -> FsResult<()> {
        xattr::remove(self.export.node(path, false)?.as_fd(), name)
    }

    fn stage(&self, key: &StageKey) -> FsResult<Arc<dyn StoredFile>> {
        Ok(self.staging.stage(&self.export, key)?)
    }

    fn publish(&self, key: &StageKey, path: &RelPath, finish: &Finish) -> FsResult<Attr> {
        self.staging.publish(&self.export, key, path, finish)
    }

    fn discard(&self, key: &StageKey) -> FsResult<()> {
        self.staging.discard(&self.export, key)
    }

    fn put(&self, path: &RelPath, data: &[u8], finish: &Finish) -> FsResult<Attr> {
        self.staging.put(&self.export, path, data, finish)
    }

    fn sweep(&self, untouched: Duration) -> FsResult<usize> {
        self.staging.sweep(&self.export, untouched)
    }
}

fn owner(creation: &Creation) -> (Option<u32>, Option<u32>) {
    creation.owner.map_or((None, None), |(uid, gid)| (Some(uid), Some(gid)))
}

fn access(flags: OpenFlags) -> FsResult<OFlags> {
    let (read, write) = (flags.has(OpenFlags::READ), flags.has(OpenFlags::WRITE));
    let changes = flags.has(OpenFlags::TRUNCATE) || flags.has(OpenFlags::APPEND);
    let access = match (read, write) {
        _ if !flags.is_known() || changes && !write => None,
        (true, true) => Some(OFlags::RDWR),
        (true, false) => Some(OFlags::RDONLY),
        (false, true) => Some(OFlags::WRONLY),
        (false, false) => None,
    };
    let append = if flags.has(OpenFlags::APPEND) { OFlags::APPEND } else { OFlags::empty() };
    access
        .map(|access| access | append)
        .ok_or_else(|| FsError::new(Errno::INVAL, format!("opening with bits {:o}", flags.0)))
}

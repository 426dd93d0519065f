//! From a path to what it names, without ever leaving the export.
//!
//! The kernel opens paths without symbolic links alone (`RESOLVE_NO_SYMLINKS`), whose names were
//! checked: such a path has no way out, and none to the server's own directory, whatever others
//! rename meanwhile. Where it meets a link, the path is walked here, name by name, each link
//! replaced by what it says, and what comes out, again without links, is tried again. Links are
//! rare, and paths without them cost one system call.

use crate::RelPath;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{Mode, OFlags, ResolveFlags, fstat, openat, openat2, readlinkat},
    io::Errno,
};
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
};

/// Links on the way of one path, as Linux has it.
const MOST_LINKS: usize = 40;

/// Attempts at a path whose links change while they are read.
const ROUNDS: usize = 8;

/// The root of what is exported.
pub(super) struct Export {
    root: OwnedFd,
    /// The file system of the root: its numbers of files are given as they are.
    pub(super) dev: u64,
}

/// A directory and a name in it, for the calls that never follow a link at the end.
pub(super) struct Place<'a> {
    dir: Option<OwnedFd>,
    root: BorrowedFd<'a>,
    /// One name: neither `.` nor `..`, nor the server's own.
    pub(super) name: OsString,
}

impl Place<'_> {
    /// The directory; can be used to reach what is in it, not to read it.
    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_ref().map_or(self.root, AsFd::as_fd)
    }
}

impl Export {
    pub(super) fn open(root: &Path) -> rustix::io::Result<Export> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(rustix::fs::CWD, root, flags, Mode::empty())?;
        let dev = fstat(&root)?.st_dev;
        Ok(Export { root, dev })
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Opens a path without symbolic links; `ELOOP` if there is one, but for a last one with
    /// `O_PATH | O_NOFOLLOW`. An empty path is the root.
    pub(super) fn open_plain(
        &self,
        path: &Path,
        flags: OFlags,
        mode: Mode,
    ) -> rustix::io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        openat2(&self.root, path, flags | OFlags::CLOEXEC, mode, how)
    }

    /// Something to look at, or to open through [`reopen`].
    pub(super) fn node(&self, path: &RelPath, follow: bool) -> rustix::io::Result<OwnedFd> {
        let flags = if follow { OFlags::PATH } else { OFlags::PATH | OFlags::NOFOLLOW };
        self.resolve(path, follow, |path| self.open_plain(path, flags, Mode::empty()))
    }

    /// Where something is, or is to be. `EBUSY` for the root, which is nowhere.
    pub(super) fn place(&self, path: &RelPath) -> rustix::io::Result<Place<'_>> {
        let (parent, name) = path.split().ok_or(Errno::BUSY)?;
        let (name, root) = (name.to_owned(), self.root());
        if parent.is_root() {
            return Ok(Place { dir: None, root, name });
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let (dir, in_root) = self.resolve(&parent, true, |path| {
            let dir = self.open_plain(path, flags, Mode::empty())?;
            Ok((dir, path.as_os_str().is_empty()))
        })?;
        if in_root && name == RelPath::RESERVED {
            return Err(Errno::ACCESS);
        }
        Ok(Place { dir: Some(dir), root, name })
    }

    /// Attempts a path, and where that meets a symbolic link (`ELOOP`) what the links make of it.
    pub(super) fn resolve<T>(
        &self,
        path: &RelPath,
        follow: bool,
        attempt: impl Fn(&Path) -> rustix::io::Result<T>,
    ) -> rustix::io::Result<T> {
        let mut result = attempt(path.as_path());
        for _ in 0..ROUNDS {
            if !matches!(result, Err(Errno::LOOP)) {
                break;
            }
            result = attempt(Path::new(&self.without_links(path, follow)?));
        }
        result
    }

    /// The path with all symbolic links replaced; with `follow` also one at its end. `EXDEV` if one
    /// leads out, `EACCES` if one leads to the server's own directory.
    fn without_links(&self, path: &RelPath, follow: bool) -> rustix::io::Result<OsString> {
        let mut pending: Vec<Vec<u8>> = names(path.as_bytes()).rev().map(Vec::from).collect();
        let (mut plain, mut links) = (Vec::new(), 0);
        let mut dir = self.open_plain(Path::new(""), OFlags::PATH, Mode::empty())?;
        while let Some(name) = pending.pop() {
            if name == b".." {
                let end = plain.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                if plain.is_empty() {
                    return Err(Errno::XDEV);
                }
                plain.truncate(end);
                let flags = OFlags::PATH | OFlags::DIRECTORY;
                dir =
                    self.open_plain(Path::new(OsStr::from_bytes(&plain)), flags, Mode::empty())?;
                continue;
            }
            if plain.is_empty() && name == RelPath::RESERVED.as_bytes() {
                return Err(Errno::ACCESS);
            }
            let name = OsStr::from_bytes(&name);
            if follow || !pending.is_empty() {
                match readlinkat(&dir, name, Vec::new()) {
                    Ok(target) => {
                        links += 1;
                        let target = target.as_bytes();
                        let length: usize = pending.iter().map(|name| name.len() + 1).sum();
                        if target.starts_with(b"/") {
                            return Err(Errno::XDEV);
                        } else if links > MOST_LINKS {
                            return Err(Errno::LOOP);
                        } else if plain.len() + target.len() + length > RelPath::MAX {
                            return Err(Errno::NAMETOOLONG);
                        }
                        pending.extend(names(target).rev().map(Vec::from));
                        continue;
                    }
                    // No link; or not there, which the attempt will find, unless more follows.
                    Err(Errno::INVAL) => {}
                    Err(Errno::NOENT) if pending.is_empty() => {}
                    Err(errno) => return Err(errno),
                }
            }
            if !pending.is_empty() {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                dir = openat(&dir, name, flags, Mode::empty())?;
            }
            if !plain.is_empty() {
                plain.push(b'/');
            }
            plain.extend_from_slice(name.as_bytes());
        }
        Ok(OsString::from_vec(plain))
    }
}

fn names(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."))
}

/// Names a file that is open, also one that was opened with `O_PATH`: for calls that want a path.
pub(super) fn proc_path(fd: BorrowedFd<'_>) -> String {
    use rustix::fd::AsRawFd;
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// Opens what was found, that and nothing else, whatever has its name by now. Only for ordinary
/// files and directories: opening others may block, or do something.
pub(super) fn reopen(fd: BorrowedFd<'_>, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    openat(rustix::fs::CWD, proc_path(fd), flags | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())
}

//! The local file system: attributes as they travel, and directories that nothing leads out of.

mod holes;
mod partial;
mod remove;
mod write;

pub(super) use holes::{data, has_holes};
pub(super) use partial::Partial;
pub(super) use remove::remove_all;
pub(super) use write::{apply, dress, hard_link, make_dir, make_fifo, make_symlink, write_whole};

use crate::{
    RelPath,
    protocol::{Attr, Kind, SetAttr, SetTime, Timestamp},
};
use rustix::{
    fs::{FileType, Mode, OFlags, ResolveFlags, Stat, open, openat, openat2},
    io::Errno,
};
use std::{
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// A directory below which a tree lies. Paths below it never lead out: no symbolic link is followed
/// on the way, whichever user made it.
#[derive(Debug)]
pub(super) struct Root {
    fd: OwnedFd,
    path: PathBuf,
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

impl Root {
    /// The user named it: here symbolic links are followed.
    pub(super) fn open(path: &Path) -> Result<Root, Errno> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let fd = open(path, DIRECTORY.difference(OFlags::NOFOLLOW), Mode::empty())?;
        Ok(Root { fd, path: path.to_owned() })
    }

    /// Opens a directory below.
    pub(super) fn directory(&self, path: &RelPath) -> Result<OwnedFd, Errno> {
        self.below(path, DIRECTORY)
    }

    /// Opens something below.
    pub(super) fn below(&self, path: &RelPath, flags: OFlags) -> Result<OwnedFd, Errno> {
        static OLD_SYSTEM: AtomicBool = AtomicBool::new(false);
        if path.is_root() {
            return openat(&self.fd, ".", flags, Mode::empty());
        }
        if !OLD_SYSTEM.load(Relaxed) {
            let resolve =
                ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            match openat2(&self.fd, path.as_path(), flags, Mode::empty(), resolve) {
                Err(Errno::NOSYS) => OLD_SYSTEM.store(true, Relaxed),
                opened => return opened,
            }
        }
        self.step_by_step(path, flags)
    }

    /// The same without `openat2`: one name after the other, none of which may be a link.
    fn step_by_step(&self, path: &RelPath, flags: OFlags) -> Result<OwnedFd, Errno> {
        let mut at: Option<OwnedFd> = None;
        let mut names = path.as_path().iter().peekable();
        while let Some(name) = names.next() {
            let flags = if names.peek().is_some() { DIRECTORY } else { flags | OFlags::NOFOLLOW };
            let from = at.as_ref().map_or(self.fd.as_fd(), AsFd::as_fd);
            at = Some(openat(from, name, flags, Mode::empty())?);
        }
        at.ok_or(Errno::INVAL)
    }

    /// For messages.
    pub(super) fn describe(&self, path: &RelPath) -> Vec<u8> {
        use std::os::unix::ffi::OsStrExt;
        self.path.join(path.as_path()).as_os_str().as_bytes().to_vec()
    }
}

/// Attributes as they travel.
pub(super) fn attr(stat: &Stat) -> Attr {
    let time = |seconds: i64, nanos: u64| Timestamp { seconds, nanos: nanos as u32 };
    Attr {
        kind: match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Symlink,
            FileType::Fifo => Kind::Fifo,
            FileType::Socket => Kind::Socket,
            FileType::CharacterDevice => Kind::CharDevice,
            FileType::BlockDevice => Kind::BlockDevice,
            _ => Kind::File,
        },
        mode: stat.st_mode & 0o7777,
        links: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        ino: stat.st_ino,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
    }
}

/// What is kept of attributes.
pub(super) fn kept(attr: &Attr, owner: bool) -> SetAttr {
    SetAttr {
        mode: Some(attr.mode),
        uid: owner.then_some(attr.uid),
        gid: owner.then_some(attr.gid),
        size: None,
        atime: SetTime::At(attr.atime),
        mtime: SetTime::At(attr.mtime),
    }
}

/// Names what is hidden of a file: the same in each transfer of it.
pub(super) fn key(path: &RelPath) -> u64 {
    let hash = blake3::hash(path.as_bytes());
    u64::from_le_bytes(hash.as_bytes()[..8].try_into().expect("eight bytes"))
}

/// The name that is hidden until a file is complete.
pub(super) fn hidden(name: &[u8], key: u64) -> Vec<u8> {
    let key = format!(".petasos-{key:016x}");
    let most = RelPath::MAX_NAME - key.len() - 1;
    [b".", &name[..name.len().min(most)], key.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn nothing_leads_out() {
        let place = tempfile::tempdir().unwrap();
        let outside = place.path().join("outside");
        let inside = place.path().join("inside");
        fs::create_dir_all(inside.join("a/b")).unwrap();
        fs::create_dir(&outside).unwrap();
        symlink(&outside, inside.join("out")).unwrap();
        symlink("a", inside.join("in")).unwrap();
        let root = Root::open(&inside).unwrap();
        let path = |text: &str| RelPath::parse(text.as_bytes()).unwrap();
        for open in
            [Root::directory, |root: &Root, path: &RelPath| root.step_by_step(path, DIRECTORY)]
        {
            assert!(open(&root, &path("a/b")).is_ok());
            for bad in ["out", "in", "in/b", "out/x"] {
                assert!(open(&root, &path(bad)).is_err(), "{bad}");
            }
        }
        assert!(root.directory(&RelPath::root()).is_ok());
    }

    #[test]
    fn hidden_names_fit() {
        assert_eq!(hidden(b"a", 1), b".a.petasos-0000000000000001");
        assert_eq!(hidden(&[b'x'; 255], 1).len(), 255);
    }
}

//! Names within a directory, given by others: they never lead out of it.

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, mkdirat, openat, renameat, statat, symlinkat},
    io::Errno,
};
use std::{
    ffi::{OsStr, OsString},
    fs::{File, Permissions},
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt, unix::fs::PermissionsExt},
    path::{Component, Path},
};

/// A directory in which others may name things.
#[derive(Debug)]
pub(super) struct Root(OwnedFd);

const DIRECTORY: OFlags =
    OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::RDONLY);

impl Root {
    pub(super) fn open(path: &Path) -> io::Result<Root> {
        Ok(Root(openat(CWD, path, DIRECTORY, Mode::empty())?))
    }

    /// The directory of `path` and its name there. Each step is taken by itself, and none through
    /// a symbolic link.
    fn locate(&self, path: &[u8]) -> io::Result<(OwnedFd, OsString)> {
        let refused = || {
            let shown = String::from_utf8_lossy(path).into_owned();
            io::Error::new(io::ErrorKind::InvalidInput, format!("`{shown}` is no relative path"))
        };
        let mut names = Vec::new();
        for part in Path::new(OsStr::from_bytes(path)).components() {
            match part {
                Component::Normal(name) => names.push(name),
                _ => return Err(refused()),
            }
        }
        let name = names.pop().ok_or_else(refused)?;
        let mut directory = self.0.try_clone()?;
        for step in names {
            directory = openat(&directory, step, DIRECTORY, Mode::empty())?;
        }
        Ok((directory, name.to_owned()))
    }

    /// Makes a directory that its owner can use.
    pub(super) fn make_directory(&self, path: &[u8]) -> io::Result<()> {
        let (directory, name) = self.locate(path)?;
        Ok(mkdirat(&directory, name, Mode::RWXU)?)
    }

    /// Makes a symbolic link.
    pub(super) fn make_link(&self, path: &[u8], to: &[u8]) -> io::Result<()> {
        let (directory, name) = self.locate(path)?;
        Ok(symlinkat(OsStr::from_bytes(to), &directory, name)?)
    }

    /// Sets the mode of a directory or file, of no link.
    pub(super) fn set_mode(&self, path: &[u8], mode: u32) -> io::Result<()> {
        let (directory, name) = self.locate(path)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(&directory, name, flags, Mode::empty())?);
        file.set_permissions(Permissions::from_mode(mode & 0o7777))
    }

    /// Opens a file to be written, that nobody else reads before it is complete.
    pub(super) fn open_to_write(&self, path: &[u8]) -> io::Result<File> {
        let (directory, name) = self.locate(path)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&directory, name, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Opens a file to be read.
    pub(super) fn open_to_read(&self, path: &[u8]) -> io::Result<File> {
        let (directory, name) = self.locate(path)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(&directory, name, flags, Mode::empty())?);
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::other("not an ordinary file")),
        }
    }

    /// Puts a complete file of `from` in its place here.
    pub(super) fn adopt(&self, from: &Root, name: &[u8], path: &[u8]) -> io::Result<()> {
        let (old, name) = from.locate(name)?;
        let (directory, new) = self.locate(path)?;
        // A rename within one file system: the name has the old file or the new one, never a part.
        match statat(&directory, &new, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir() => {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            Ok(_) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(renameat(&old, name, &directory, new)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leads_out() {
        let outside = tempfile::tempdir().unwrap();
        let inside = outside.path().join("root");
        std::fs::create_dir(&inside).unwrap();
        let root = Root::open(&inside).unwrap();
        root.make_link(b"up", b"..").unwrap();
        root.make_link(b"file", b"../secret").unwrap();
        std::fs::write(outside.path().join("secret"), "x").unwrap();
        for bad in [&b"../x"[..], b"/x", b"up/x", b"a/../../x", b"", b".", b"file", b"x\0y"] {
            assert!(root.open_to_write(bad).is_err(), "{bad:?} was taken");
        }
        assert!(root.open_to_read(b"file").is_err() && root.open_to_read(b"up/secret").is_err());
        root.make_directory(b"d").unwrap();
        root.open_to_write(b"d/ok").unwrap();
        assert!(inside.join("d/ok").exists());
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 2);
    }
}

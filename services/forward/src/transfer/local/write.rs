//! Files, links and directories are made: each gets its name in one step.

use super::hidden;
use crate::protocol::{SetAttr, SetTime, Timestamp};
use rustix::{
    fs::{
        AtFlags, CWD, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, chmodat,
        chownat, fchmod, fchown, fsync, futimens, linkat, mkdirat, mkfifoat, openat, readlinkat,
        renameat, statat, symlinkat, unlinkat, utimensat,
    },
    io::Errno,
};
use std::{
    ffi::OsStr,
    fs::File,
    io::Write,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
};

const NEW: OFlags = OFlags::WRONLY.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// A whole file at once: under its name when it is complete, in place of what has it. Until then it
/// has no name, or, where the file system cannot do that, a hidden one made of `key`.
pub(in super::super) fn write_whole(
    directory: impl AsFd,
    name: &[u8],
    key: u64,
    data: &[u8],
    set: &SetAttr,
    durable: bool,
) -> Result<(), Errno> {
    let directory = directory.as_fd();
    let mode = Mode::RUSR | Mode::WUSR;
    match openat(directory, ".", NEW.difference(OFlags::NOFOLLOW) | OFlags::TMPFILE, mode) {
        Ok(file) => {
            let file = fill(file, data, set, durable)?;
            let from = format!("/proc/self/fd/{}", file.as_raw_fd());
            let link = |to: &OsStr| linkat(CWD, &*from, directory, to, AtFlags::SYMLINK_FOLLOW);
            match link(OsStr::from_bytes(name)) {
                Err(Errno::EXIST) => replace(directory, name, key, link)?,
                linked => linked?,
            }
        }
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            replace(directory, name, key, |hidden| {
                let flags = NEW | OFlags::CREATE | OFlags::EXCL;
                let file = openat(directory, hidden, flags, mode)?;
                fill(file, data, set, durable).map(drop).inspect_err(|_| {
                    // Fails only if it is gone already.
                    let _ = unlinkat(directory, hidden, AtFlags::empty());
                })
            })?;
        }
        Err(error) => return Err(error),
    }
    if durable { fsync(directory) } else { Ok(()) }
}

fn fill(file: OwnedFd, data: &[u8], set: &SetAttr, durable: bool) -> Result<File, Errno> {
    let mut file = File::from(file);
    file.write_all(data).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    apply(&file, set)?;
    if durable {
        fsync(&file)?;
    }
    Ok(file)
}

/// Makes something under a hidden name, and gives it its own.
fn replace(
    directory: impl AsFd,
    name: &[u8],
    key: u64,
    make: impl Fn(&OsStr) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let directory = directory.as_fd();
    let hidden = hidden(name, key);
    let hidden = OsStr::from_bytes(&hidden);
    match make(hidden) {
        Err(Errno::EXIST) => {
            // Of a transfer that was interrupted at this very point.
            unlinkat(directory, hidden, AtFlags::empty())?;
            make(hidden)?;
        }
        made => made?,
    }
    let name = OsStr::from_bytes(name);
    renameat(directory, hidden, directory, name).inspect_err(|_| {
        // Fails only if it is gone already.
        let _ = unlinkat(directory, hidden, AtFlags::empty());
    })
}

/// Sets attributes of an open file: the owner first, which takes some bits of the mode away.
pub(in super::super) fn apply(file: impl AsFd, set: &SetAttr) -> Result<(), Errno> {
    if set.uid.is_some() || set.gid.is_some() {
        fchown(&file, set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw))?;
    }
    if let Some(mode) = set.mode {
        fchmod(&file, Mode::from_raw_mode(mode))?;
    }
    futimens(&file, &times(set))
}

fn times(set: &SetAttr) -> Timestamps {
    let time = |time: SetTime| match time {
        SetTime::Keep => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        SetTime::Now => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        SetTime::At(Timestamp { seconds, nanos }) => {
            Timespec { tv_sec: seconds, tv_nsec: nanos.min(999_999_999).into() }
        }
    };
    Timestamps { last_access: time(set.atime), last_modification: time(set.mtime) }
}

/// Makes a directory that this process can work in; it is well if there is one.
pub(in super::super) fn make_dir(directory: impl AsFd, name: &[u8]) -> Result<(), Errno> {
    let name = OsStr::from_bytes(name);
    match mkdirat(&directory, name, Mode::RWXU) {
        Err(Errno::EXIST) => {
            let found = super::attr(&statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?);
            if found.kind != crate::protocol::Kind::Directory {
                return Err(Errno::NOTDIR);
            }
            if found.mode & 0o700 != 0o700 {
                chmodat(
                    &directory,
                    name,
                    Mode::from_raw_mode(found.mode | 0o700),
                    AtFlags::empty(),
                )?;
            }
            Ok(())
        }
        made => made,
    }
}

/// Makes a symbolic link, in place of what has its name.
pub(in super::super) fn make_symlink(
    directory: impl AsFd,
    name: &[u8],
    key: u64,
    target: &[u8],
    set: &SetAttr,
) -> Result<(), Errno> {
    let directory = directory.as_fd();
    let target = OsStr::from_bytes(target);
    let name_of = OsStr::from_bytes(name);
    let make = |name: &OsStr| {
        symlinkat(target, directory, name)?;
        owner_and_times(directory, name, set)
    };
    match symlinkat(target, directory, name_of) {
        Ok(()) => owner_and_times(directory, name_of, set),
        Err(Errno::EXIST) => match readlinkat(directory, name_of, Vec::new()) {
            Ok(there) if there.as_bytes() == target.as_bytes() => {
                owner_and_times(directory, name_of, set)
            }
            _ => replace(directory, name, key, make),
        },
        Err(error) => Err(error),
    }
}

/// Makes a FIFO, in place of what has its name.
pub(in super::super) fn make_fifo(
    directory: impl AsFd,
    name: &[u8],
    key: u64,
    set: &SetAttr,
) -> Result<(), Errno> {
    let directory = directory.as_fd();
    let mode = Mode::from_raw_mode(set.mode.unwrap_or(0o600));
    let make = |name: &OsStr| {
        mkfifoat(directory, name, Mode::RUSR | Mode::WUSR)?;
        owner_and_times(directory, name, set)?;
        chmodat(directory, name, mode, AtFlags::empty())
    };
    replace(directory, name, key, make)
}

/// Sets attributes of something that has a name; a symbolic link is not followed.
pub(in super::super) fn dress(
    directory: impl AsFd,
    name: &[u8],
    set: &SetAttr,
) -> Result<(), Errno> {
    let name = OsStr::from_bytes(name);
    owner_and_times(&directory, name, set)?;
    let symlink =
        statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode & 0o170_000 == 0o120_000;
    if let Some(mode) = set.mode
        && !symlink
    {
        chmodat(&directory, name, Mode::from_raw_mode(mode), AtFlags::empty())?;
    }
    Ok(())
}

/// Sets owner and times of something that is no file.
fn owner_and_times(directory: impl AsFd, name: &OsStr, set: &SetAttr) -> Result<(), Errno> {
    let nofollow = AtFlags::SYMLINK_NOFOLLOW;
    if set.uid.is_some() || set.gid.is_some() {
        let (uid, gid) = (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw));
        chownat(&directory, name, uid, gid, nofollow)?;
    }
    utimensat(&directory, name, &times(set), nofollow)
}

/// Gives a file another name, in place of what has that.
pub(in super::super) fn hard_link(
    from: (impl AsFd, &[u8]),
    to: (impl AsFd, &[u8]),
    key: u64,
) -> Result<(), Errno> {
    let name = OsStr::from_bytes(from.1);
    let make = |to_name: &OsStr| linkat(&from.0, name, &to.0, to_name, AtFlags::empty());
    match make(OsStr::from_bytes(to.1)) {
        Err(Errno::EXIST) => {
            let number = |at: &dyn Fn() -> Result<rustix::fs::Stat, Errno>| {
                at().map(|stat| (stat.st_dev, stat.st_ino))
            };
            let nofollow = AtFlags::SYMLINK_NOFOLLOW;
            let ours = number(&|| statat(&from.0, name, nofollow))?;
            let theirs = number(&|| statat(&to.0, OsStr::from_bytes(to.1), nofollow))?;
            // Renaming one name of a file to another one does nothing, and would leave the hidden.
            if ours == theirs {
                return Ok(());
            }
            replace(&to.0, to.1, key, make)
        }
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::MetadataExt};

    fn set(mode: u32) -> SetAttr {
        let time = SetTime::At(Timestamp { seconds: 1_000_000_000, nanos: 7 });
        SetAttr { mode: Some(mode), atime: time, mtime: time, ..SetAttr::default() }
    }

    #[test]
    fn everything_replaces() {
        let place = tempfile::tempdir().unwrap();
        let directory = File::open(place.path()).unwrap();
        let at = |name: &str| place.path().join(name);
        for data in ["one", "two"] {
            write_whole(&directory, b"f", 1, data.as_bytes(), &set(0o4640), true).unwrap();
            assert_eq!(fs::read_to_string(at("f")).unwrap(), data);
            let found = fs::metadata(at("f")).unwrap();
            assert_eq!((found.mode() & 0o7777, found.mtime_nsec()), (0o4640, 7));
        }
        for target in ["x", "y", "y"] {
            make_symlink(&directory, b"f", 1, target.as_bytes(), &set(0)).unwrap();
            assert_eq!(fs::read_link(at("f")).unwrap().to_str(), Some(target));
            assert_eq!(fs::symlink_metadata(at("f")).unwrap().mtime(), 1_000_000_000);
        }
        make_fifo(&directory, b"f", 1, &set(0o600)).unwrap();
        write_whole(&directory, b"g", 1, b"g", &set(0o600), false).unwrap();
        for _ in 0..2 {
            hard_link((&directory, b"g"), (&directory, b"f"), 1).unwrap();
            assert_eq!(fs::metadata(at("f")).unwrap().nlink(), 2);
        }
        make_dir(&directory, b"d").unwrap();
        make_dir(&directory, b"d").unwrap();
        assert_eq!(make_dir(&directory, b"f"), Err(Errno::NOTDIR));
        assert!(write_whole(&directory, b"d", 1, b"", &set(0), false).is_err());
        let left = fs::read_dir(place.path()).unwrap().count();
        assert_eq!(left, 3, "something hidden was left behind");
    }
}

//! Attributes of files: from the system's form, and into it.

use super::resolve::{proc_path, reopen};
use crate::{
    FsError, FsResult,
    protocol::{Attr, Kind, SetAttr, SetTime, Timestamp},
};
use rustix::{
    fd::BorrowedFd,
    fs::{
        AtFlags, CWD, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_NOW,
        UTIME_OMIT, Uid, chmodat, chownat, fchmod, fchown, fstat, ftruncate, futimens, utimensat,
    },
    io::Errno,
};

/// Permissions, with set-user-ID, set-group-ID and the sticky bit.
pub(super) const ALL_MODES: u32 = 0o7777;

/// Rights of the owner or group that a file gives to a process that executes it.
const SET_ID: u32 = 0o6000;

/// How a file descriptor was opened.
#[derive(Clone, Copy)]
pub(super) enum Handle<'a> {
    /// For reading or writing.
    Open(BorrowedFd<'a>),
    /// With `O_PATH`.
    Path(BorrowedFd<'a>),
}

impl<'a> Handle<'a> {
    fn fd(self) -> BorrowedFd<'a> {
        match self {
            Handle::Open(fd) | Handle::Path(fd) => fd,
        }
    }
}

pub(super) fn kind(stat: &Stat) -> Kind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharacterDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        _ => Kind::File,
    }
}

/// `dev` is the file system of the root. Numbers of files on others, mounted below it, are mixed
/// with their own, so that they differ.
pub(super) fn from_stat(stat: &Stat, dev: u64) -> Attr {
    let other = if stat.st_dev == dev { 0 } else { stat.st_dev.rotate_right(20) };
    Attr {
        kind: kind(stat),
        mode: stat.st_mode & ALL_MODES,
        links: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        ino: stat.st_ino ^ other,
        atime: time(stat.st_atime, stat.st_atime_nsec as u32),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec as u32),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec as u32),
    }
}

fn time(seconds: i64, nanos: u32) -> Timestamp {
    Timestamp { seconds, nanos }
}

/// `EINVAL` for bits that are no permissions.
pub(super) fn mode(mode: u32) -> FsResult<Mode> {
    match mode & !ALL_MODES {
        0 => Ok(Mode::from_raw_mode(mode)),
        _ => Err(FsError::new(Errno::INVAL, format!("mode {mode:o}"))),
    }
}

/// Changes what is to be changed: the length first, then the owner, which takes set-ID bits away,
/// then the mode that may bring them back, and times last.
pub(super) fn apply(handle: Handle<'_>, set: &SetAttr) -> FsResult<()> {
    let times = times(set)?;
    let mode = set.mode.map(mode).transpose()?;
    if let Some(size) = set.size {
        resize(handle, size)?;
    }
    if set.uid.is_some() || set.gid.is_some() {
        change_owner(handle, set.uid, set.gid)?;
    }
    if let Some(mode) = mode {
        change_mode(handle, mode)?;
    }
    if let Some(times) = times {
        match handle {
            Handle::Open(fd) => futimens(fd, &times)?,
            Handle::Path(fd) => utimensat(fd, "", &times, AtFlags::EMPTY_PATH)?,
        }
    }
    Ok(())
}

/// The owner and mode of something new, that was made with `stat`. Owner and group are set where
/// the process has the right; where it has not, the rights of the owner are not given away either.
pub(super) fn settle(
    handle: Handle<'_>,
    wanted: u32,
    (uid, gid): (Option<u32>, Option<u32>),
    stat: &Stat,
) -> FsResult<()> {
    let (mut wanted, mut now) = (wanted, stat.st_mode & ALL_MODES);
    mode(wanted)?;
    if uid.is_some_and(|uid| uid != stat.st_uid) || gid.is_some_and(|gid| gid != stat.st_gid) {
        match change_owner(handle, uid, gid) {
            Ok(()) => now = fstat(handle.fd())?.st_mode & ALL_MODES,
            Err(error) if error.errno() == Errno::PERM => wanted &= !SET_ID,
            Err(error) => return Err(error),
        }
    }
    if wanted != now {
        change_mode(handle, mode(wanted)?)?;
    }
    Ok(())
}

fn change_owner(handle: Handle<'_>, uid: Option<u32>, gid: Option<u32>) -> FsResult<()> {
    if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
        return Err(FsError::new(Errno::INVAL, "no user has this number"));
    }
    let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
    match handle {
        Handle::Open(fd) => fchown(fd, uid, gid)?,
        Handle::Path(fd) => chownat(fd, "", uid, gid, AtFlags::EMPTY_PATH)?,
    }
    Ok(())
}

fn change_mode(handle: Handle<'_>, mode: Mode) -> FsResult<()> {
    match handle {
        Handle::Open(fd) => fchmod(fd, mode)?,
        Handle::Path(fd) => match FileType::from_raw_mode(fstat(fd)?.st_mode) {
            FileType::Symlink => return Err(Errno::OPNOTSUPP.into()),
            _ => chmodat(CWD, proc_path(fd), mode, AtFlags::empty())?,
        },
    }
    Ok(())
}

fn resize(handle: Handle<'_>, size: u64) -> FsResult<()> {
    if i64::try_from(size).is_err() {
        return Err(Errno::FBIG.into());
    }
    match handle {
        Handle::Open(fd) => Ok(ftruncate(fd, size)?),
        Handle::Path(fd) => {
            ordinary(&fstat(fd)?)?;
            Ok(ftruncate(reopen(fd, OFlags::WRONLY)?, size)?)
        }
    }
}

/// The error of opening what is no ordinary file.
pub(super) fn ordinary(stat: &Stat) -> FsResult<()> {
    match kind(stat) {
        Kind::File => Ok(()),
        Kind::Directory => Err(Errno::ISDIR.into()),
        Kind::Symlink => Err(Errno::LOOP.into()),
        other => Err(FsError::new(Errno::NXIO, format!("no ordinary file: {other:?}"))),
    }
}

fn times(set: &SetAttr) -> FsResult<Option<Timestamps>> {
    if set.atime == SetTime::Keep && set.mtime == SetTime::Keep {
        return Ok(None);
    }
    let time = |set| match set {
        SetTime::Keep => Ok(Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }),
        SetTime::Now => Ok(Timespec { tv_sec: 0, tv_nsec: UTIME_NOW }),
        SetTime::At(Timestamp { seconds, nanos }) if nanos < 1_000_000_000 => {
            Ok(Timespec { tv_sec: seconds, tv_nsec: nanos.into() })
        }
        SetTime::At(Timestamp { nanos, .. }) => {
            Err(FsError::new(Errno::INVAL, format!("{nanos} nanoseconds are no part of a second")))
        }
    };
    Ok(Some(Timestamps { last_access: time(set.atime)?, last_modification: time(set.mtime)? }))
}

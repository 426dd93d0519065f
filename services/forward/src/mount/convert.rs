//! Between what the kernel says and what the server says.

use crate::{
    RelPath,
    protocol::{Attr, Creation, Kind, OpenFlags, SetTime, Timestamp},
};
use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use rustix::{fs::OFlags, io::Errno};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What programs are told to read and write at a time: their buffers are of this size, and each
/// time costs a request.
const BLOCK_SIZE: u32 = 64 << 10;

/// The bit by which files made in a directory get its group.
pub(super) const SET_GROUP: u32 = 0o2000;
const SET_USER: u32 = 0o4000;
const GROUP_EXECUTES: u32 = 0o010;

pub(super) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
    }
}

/// The attributes of the node `ino`.
pub(super) fn file_attr(ino: u64, attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(ino),
        size: attr.size,
        blocks: attr.blocks,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: UNIX_EPOCH,
        kind: file_type(attr.kind),
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: 0,
        blksize: BLOCK_SIZE,
        flags: 0,
    }
}

/// Says that a name leads nowhere, for a while: number zero.
pub(super) fn nothing() -> FileAttr {
    let (at, kind) = (Timestamp::default(), Kind::File);
    let (mode, links, uid, gid, size, blocks, ino) = (0, 0, 0, 0, 0, 0, 0);
    let times = (at, at, at);
    let (atime, mtime, ctime) = times;
    file_attr(0, &Attr { kind, mode, links, uid, gid, size, blocks, ino, atime, mtime, ctime })
}

fn system_time(time: Timestamp) -> SystemTime {
    let nanos = Duration::from_nanos(time.nanos.min(999_999_999).into());
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = match time.seconds < 0 {
        true => UNIX_EPOCH.checked_sub(seconds),
        false => UNIX_EPOCH.checked_add(seconds),
    };
    whole.and_then(|whole| whole.checked_add(nanos)).unwrap_or(UNIX_EPOCH)
}

/// A time as the kernel gave it. The crate in between counts the nanoseconds of a time before 1970
/// backwards from its seconds, which the kernel counts forwards.
fn timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timestamp { seconds: after.as_secs() as i64, nanos: after.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            Timestamp { seconds: -(before.as_secs() as i64), nanos: before.subsec_nanos() }
        }
    }
}

pub(super) fn set_time(time: Option<TimeOrNow>) -> SetTime {
    match time {
        None => SetTime::Keep,
        Some(TimeOrNow::Now) => SetTime::Now,
        Some(TimeOrNow::SpecificTime(time)) => SetTime::At(timestamp(time)),
    }
}

/// What is asked of the server for `open(2)` with these flags. Symbolic links are the kernel's to
/// follow.
pub(super) fn open_flags(flags: OFlags) -> OpenFlags {
    let mut asked = OpenFlags::NO_FOLLOW;
    if readable(flags) {
        asked = asked.with(OpenFlags::READ);
    }
    if writable(flags) {
        asked = asked.with(OpenFlags::WRITE);
    }
    for (flag, ask) in [
        (OFlags::CREATE, OpenFlags::CREATE),
        (OFlags::EXCL, OpenFlags::EXCLUSIVE),
        (OFlags::TRUNC, OpenFlags::TRUNCATE),
        (OFlags::APPEND, OpenFlags::APPEND),
    ] {
        if flags.contains(flag) {
            asked = asked.with(ask);
        }
    }
    // The server wants a file that can be written for these. One that is opened to be read is cut
    // all the same, as by Linux' own file systems; where it appends means nothing.
    if !writable(flags) {
        asked = OpenFlags(asked.0 & !OpenFlags::APPEND.0);
    }
    if flags.contains(OFlags::TRUNC) {
        asked = asked.with(OpenFlags::WRITE);
    }
    asked
}

pub(super) fn readable(flags: OFlags) -> bool {
    flags & OFlags::ACCMODE != OFlags::WRONLY
}

pub(super) fn writable(flags: OFlags) -> bool {
    let mode = flags & OFlags::ACCMODE;
    mode == OFlags::WRONLY || mode == OFlags::RDWR
}

/// The process that asks, and what its new files are to be like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caller {
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Its number, if it is of the mount's own space of process numbers.
    pub(super) thread: u32,
}

impl Caller {
    /// A new file in `directory`, which hands its group on if it has the bit for that.
    pub(super) fn creation(self, mode: u32, directory: Option<&Attr>) -> Creation {
        let inherits = directory.filter(|directory| directory.mode & SET_GROUP != 0);
        let gid = inherits.map_or(self.gid, |directory| directory.gid);
        Creation { mode: mode & 0o7777, owner: Some((self.uid, gid)) }
    }

    /// The permissions that remain when this caller changes a file's contents, if others than
    /// before. What root changes keeps all.
    pub(super) fn without_privileges(self, attr: &Attr) -> Option<u32> {
        if self.uid == 0 || attr.kind != Kind::File {
            return None;
        }
        without_privileges(attr.mode)
    }
}

/// A mode without the bits that give a program the rights of its owner or group.
pub(super) fn without_privileges(mode: u32) -> Option<u32> {
    let mut kept = mode & !SET_USER;
    if mode & GROUP_EXECUTES != 0 {
        kept &= !SET_GROUP;
    }
    (kept != mode).then_some(kept)
}

/// A name in a directory. What clients never see is not there.
pub(super) fn join(directory: &RelPath, name: &[u8]) -> Result<RelPath, Errno> {
    directory.join(name).map_err(|error| match error {
        crate::PathError::Reserved => Errno::NOENT,
        error => crate::FsError::from(error).errno(),
    })
}

/// The number as the kernel takes it.
pub(super) fn errno(error: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_there_and_back() {
        for (seconds, nanos) in [(0, 0), (1, 5), (-1, 0), (1 << 33, 7)] {
            let time = Timestamp { seconds, nanos };
            assert_eq!(timestamp(system_time(time)), time);
        }
        let half = Timestamp { seconds: -1, nanos: 500_000_000 };
        assert_eq!(system_time(half), UNIX_EPOCH - Duration::from_millis(500));
        assert_eq!(timestamp(UNIX_EPOCH - Duration::from_millis(1500)), half);
        let absurd = Timestamp { seconds: i64::MIN, nanos: u32::MAX };
        let _ = system_time(absurd);
    }

    #[test]
    fn flags_of_open() {
        let asked = open_flags(OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::APPEND);
        for flag in [OpenFlags::READ, OpenFlags::WRITE, OpenFlags::CREATE, OpenFlags::EXCLUSIVE] {
            assert!(asked.has(flag) && asked.has(OpenFlags::APPEND) && asked.is_known());
        }
        let asked = open_flags(OFlags::RDONLY | OFlags::TRUNC | OFlags::APPEND);
        let cut = OpenFlags::WRITE.with(OpenFlags::TRUNCATE);
        assert_eq!(asked, OpenFlags::READ.with(OpenFlags::NO_FOLLOW).with(cut));
        let asked = open_flags(OFlags::RDONLY | OFlags::APPEND);
        assert_eq!(asked, OpenFlags::READ.with(OpenFlags::NO_FOLLOW));
        assert_eq!(open_flags(OFlags::WRONLY), OpenFlags::WRITE.with(OpenFlags::NO_FOLLOW));
    }

    #[test]
    fn privileges_end_with_the_contents() {
        assert_eq!(without_privileges(0o4755), Some(0o755));
        assert_eq!(without_privileges(0o2755), Some(0o755));
        assert_eq!(without_privileges(0o2745), None, "a mandatory lock, once");
        assert_eq!(without_privileges(0o1777), None);
    }
}

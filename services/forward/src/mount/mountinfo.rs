//! What is mounted where, and how one mount is told from others that are at the same place before
//! or after it.

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags, open, statx};
use std::{
    ffi::OsString,
    fmt, fs,
    io::{self, ErrorKind},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
    str::FromStr,
};

/// What the table of mounts shows as the type of a mount of this crate.
pub(super) const TYPE: &str = "fuse.petasos";

/// Since Linux 6.8: a number of a mount that no other mount gets until the system starts again.
const MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// One mount. As text it is what `/proc/self/mountinfo` says of it, its number and that of its
/// device, and then its unique number, where the system has one.
///
/// Linux gives the first two to the next mount when this one is gone. Before 6.8 there is no third
/// one: an id of a mount that is gone may then be equal to that of another.
///
/// ```
/// use petasos_forward::mount::MountId;
///
/// let id: MountId = "36 0:45 7".parse()?;
/// assert_eq!(id.to_string(), "36 0:45 7");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountId {
    number: String,
    device: String,
    unique: Option<u64>,
}

impl fmt::Display for MountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.number, self.device)?;
        self.unique.map_or(Ok(()), |unique| write!(f, " {unique}"))
    }
}

impl FromStr for MountId {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<MountId> {
        let mut words = text.split(' ');
        let mut word = || words.next().map(str::to_owned);
        let (Some(number), Some(device)) = (word(), word()) else {
            return Err(ErrorKind::InvalidInput.into());
        };
        let unique = word().map(|unique| unique.parse().map_err(io::Error::other)).transpose()?;
        Ok(MountId { number, device, unique })
    }
}

impl MountId {
    /// Whether the table of mounts has its number and its device. That may be another mount, if
    /// time has passed since this one was seen there.
    ///
    /// # Errors
    /// If there is no such table: without `/proc`.
    pub fn is_listed(&self) -> io::Result<bool> {
        let same = |id: &MountId| id.number == self.number && id.device == self.device;
        Ok(table()?.iter().any(|at| same(&at.id)))
    }

    /// What the kernel's directory of FUSE connections calls it.
    pub(super) fn connection(&self) -> Option<&str> {
        // The number of a device whose major number is none.
        self.device.strip_prefix("0:")
    }
}

/// A mount of this crate that is kept from going: no other one gets its numbers as long as this is
/// there. Meanwhile it can only be unmounted by taking its name away.
pub(super) struct MountHandle {
    place: OwnedFd,
    id: MountId,
}

impl MountHandle {
    /// The mount that is what is on a directory. It is asked nothing.
    pub(super) fn on(directory: &Path) -> io::Result<Option<MountHandle>> {
        // Nothing else is touched: a directory may be one that is mounted by being looked at.
        let Some(at) = last_on(directory)?.filter(Row::is_ours) else { return Ok(None) };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let place = open(&at.on, flags, Mode::empty())?;
        let asleep = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let stat = statx(&place, "", asleep, StatxFlags::empty())?;
        // Another one may have come since the table was read.
        if format!("{}:{}", stat.stx_dev_major, stat.stx_dev_minor) != at.id.device {
            return Ok(None);
        }
        // It is kept from users that the mount is not for, root among them.
        let stat = statx(&place, "", asleep, MNT_ID_UNIQUE).ok();
        let stat = stat.filter(|stat| stat.stx_mask & MNT_ID_UNIQUE.bits() != 0);
        let id = MountId { unique: stat.map(|stat| stat.stx_mnt_id), ..at.id };
        Ok(Some(MountHandle { place, id }))
    }

    pub(super) fn id(&self) -> &MountId {
        &self.id
    }

    /// A path that leads to this mount, whatever is on its directory by now. The thread may have
    /// descriptors of its own.
    pub(super) fn path(&self) -> PathBuf {
        format!("/proc/thread-self/fd/{}", self.place.as_raw_fd()).into()
    }
}

/// The mount of this crate that is what is on a directory, served by a process or not. It is asked
/// nothing.
///
/// # Errors
/// If the path to it cannot be followed; without `/proc`.
pub fn mounted_on(directory: &Path) -> io::Result<Option<MountId>> {
    Ok(MountHandle::on(directory)?.map(|held| held.id))
}

/// Whether a mount of this crate is what is on a directory, served by a process or not.
///
/// # Errors
/// If the path to it cannot be followed; without `/proc`.
pub fn is_mounted(directory: &Path) -> io::Result<bool> {
    Ok(last_on(directory)?.is_some_and(|at| at.is_ours()))
}

/// The path from the root, without asking for what is mounted at its end.
pub(super) fn full(directory: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(directory)?;
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
        _ => Ok(path),
    }
}

/// A line of the table of mounts.
#[derive(Debug, PartialEq)]
struct Row {
    id: MountId,
    on: PathBuf,
    kind: Vec<u8>,
}

impl Row {
    fn is_ours(&self) -> bool {
        self.kind == TYPE.as_bytes()
    }
}

fn last_on(directory: &Path) -> io::Result<Option<Row>> {
    let directory = full(directory)?;
    Ok(table()?.into_iter().rfind(|at| at.on == directory))
}

fn table() -> io::Result<Vec<Row>> {
    let table = fs::read("/proc/self/mountinfo")?;
    Ok(table.split(|byte| *byte == b'\n').filter_map(mounted).collect())
}

/// What is mounted, of a line of `/proc/self/mountinfo`.
fn mounted(line: &[u8]) -> Option<Row> {
    let mut words = line.split(|byte| *byte == b' ');
    let number = String::from_utf8(words.next()?.to_vec()).ok()?;
    let device = String::from_utf8(words.nth(1)?.to_vec()).ok()?;
    let on = words.nth(1)?;
    let kind = words.skip_while(|word| *word != b"-").nth(1)?.to_vec();
    let on = OsString::from_vec(plain(on)).into();
    Some(Row { id: MountId { number, device, unique: None }, on, kind })
}

/// A word of that table: blanks and such are numbers in it, octal.
fn plain(word: &[u8]) -> Vec<u8> {
    let (mut plain, mut rest) = (Vec::with_capacity(word.len()), word);
    while let Some((first, more)) = rest.split_first() {
        let number = (*first == b'\\').then(|| more.get(..3)).flatten();
        let number = number.and_then(|digits| std::str::from_utf8(digits).ok());
        match number.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = &more[3..];
            }
            None => {
                plain.push(*first);
                rest = more;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn a_line_of_the_table() {
        let line = b"36 35 98:0 / /mnt/a\\040b\\134 rw,noatime shared:1 - fuse.petasos tcp://x rw";
        let at = mounted(line).unwrap();
        assert_eq!(at.on.as_os_str().as_bytes(), b"/mnt/a b\\");
        assert!(at.is_ours());
        assert_eq!(at.id.to_string(), "36 98:0");
        assert_eq!("36 98:0".parse::<MountId>().unwrap(), at.id);
        assert_eq!(mounted(b""), None);
        assert_eq!(plain(b"a\\04"), b"a\\04", "no number");
    }

    #[test]
    fn a_mount_is_told_from_the_next_one_with_its_numbers() {
        let [one, next]: [MountId; 2] = ["36 0:45 7", "36 0:45 8"].map(|id| id.parse().unwrap());
        assert_ne!(one, next);
        assert_eq!(one.to_string(), "36 0:45 7");
        assert_eq!(one.connection(), Some("45"));
        assert!("36".parse::<MountId>().is_err());
        assert!("36 0:45 x".parse::<MountId>().is_err());
    }

    #[test]
    fn a_mount_that_is_not_there_is_not_listed() {
        let root = table().unwrap().remove(0).id;
        assert!(root.is_listed().unwrap());
        let none = MountId { number: "0".to_owned(), ..root };
        assert!(!none.is_listed().unwrap());
    }
}

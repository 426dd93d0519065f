//! The place where an export is mounted: putting the file system there, and taking it away.
//!
//! Root does both by system calls, which take the type's second half (`fuse.petasos`) as well; for
//! other users a helper does it, `fusermount3`.

use super::MountOptions;
use crate::descriptors;
use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
    mount::UnmountFlags,
};
use std::{
    ffi::{CString, OsString},
    fmt, fs,
    io::{self, ErrorKind},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    str::FromStr,
    sync::mpsc,
    thread,
    time::Duration,
};

/// What tables of mounts show as the type.
pub(super) const TYPE: &str = "fuse.petasos";

/// Mounts on top of each other that are taken away at a time.
const LAYERS: usize = 16;

/// How long what is mounted may take to answer before it is said not to.
const PATIENCE: Duration = Duration::from_secs(5);

/// One mount, told apart from others that are at the same place before or after it. As text it is
/// what `/proc/self/mountinfo` says of it: its number, and that of its device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountId {
    number: String,
    device: String,
}

impl fmt::Display for MountId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.number, self.device)
    }
}

impl FromStr for MountId {
    type Err = io::Error;

    fn from_str(text: &str) -> io::Result<MountId> {
        let (number, device) = text.split_once(' ').ok_or(ErrorKind::InvalidInput)?;
        Ok(MountId { number: number.to_owned(), device: device.to_owned() })
    }
}

/// Takes a mount of this crate away whose process has died, and which is in the way of everything
/// in `directory` since. True if there was one.
///
/// # Errors
/// If the system refuses that. `TimedOut` if a mount of this crate is there that does not answer
/// within five seconds: whether its process will is not known, so it stays.
pub fn recover(directory: &Path) -> io::Result<bool> {
    recover_within(directory, PATIENCE)
}

fn recover_within(directory: &Path, patience: Duration) -> io::Result<bool> {
    let mut any = false;
    for _ in 0..LAYERS {
        // Nothing is asked that is not ours.
        let Some(mount) = mounted_on(directory)? else { break };
        if !is_dead(directory, patience)? {
            break;
        }
        tracing::warn!(directory = %directory.display(), "a mount without a process is taken away");
        take_away(directory, &mount)?;
        any = true;
    }
    Ok(any)
}

/// Takes this mount away whatever state it is in, and asks it nothing: all that waits for it gets an
/// error, its own process as well, which may have been killed while the kernel has one of its threads
/// wait for an answer that does not come any more. False if it is not there, or not the last one that
/// was mounted there.
///
/// # Errors
/// If the system refuses that.
pub fn take_away(directory: &Path, mount: &MountId) -> io::Result<bool> {
    let directory = full(directory)?;
    let table = table();
    let on = |at: &Row| at.is_ours() && at.id == *mount;
    let ended = table.iter().any(on) && end_requests(mount);
    if !table.iter().rfind(|at| at.on == directory).is_some_and(on) {
        return Ok(false);
    }
    // Where that is allowed, it ends the requests, too.
    let force = UnmountFlags::FORCE | UnmountFlags::DETACH;
    if ended || rustix::mount::unmount(&directory, force).is_err() {
        detach(&directory)?;
    }
    Ok(true)
}

/// The kernel fails all requests of a mount, and lets its device go. False if it offers no way, or not
/// to this user.
fn end_requests(mount: &MountId) -> bool {
    // Named by the number of a device whose major number is none.
    let Some(number) = mount.device.strip_prefix("0:") else { return false };
    fs::write(format!("/sys/fs/fuse/connections/{number}/abort"), "1").is_ok()
}

/// The mount of this crate that is what is on a directory, served by a process or not.
///
/// # Errors
/// If the path to it cannot be followed.
pub fn mounted_on(directory: &Path) -> io::Result<Option<MountId>> {
    let directory = full(directory)?;
    let last = table().into_iter().rfind(|at| at.on == directory);
    Ok(last.filter(Row::is_ours).map(|at| at.id))
}

/// Whether a mount of this crate is what is on a directory, served by a process or not.
///
/// # Errors
/// If the path to it cannot be followed.
pub fn is_mounted(directory: &Path) -> io::Result<bool> {
    mounted_on(directory).map(|mount| mount.is_some())
}

/// The directory to mount on.
pub(super) fn place(directory: &Path) -> io::Result<PathBuf> {
    recover(directory)?;
    let directory = directory.canonicalize()?;
    match fs::metadata(&directory)?.is_dir() {
        true => Ok(directory),
        false => Err(ErrorKind::NotADirectory.into()),
    }
}

/// Whether the process of a mount is gone. It is asked by a thread of its own, which stays behind if
/// there is no answer.
fn is_dead(directory: &Path, patience: Duration) -> io::Result<bool> {
    let directory = directory.to_owned();
    let (sender, answer) = mpsc::channel();
    let ask = move || {
        let _ = sender.send(fs::metadata(directory).err());
    };
    thread::Builder::new().name("petasos-recover".to_owned()).spawn(ask)?;
    let error = answer.recv_timeout(patience).map_err(|_| {
        let text = "what is mounted there does not answer; `umount -f` takes it away";
        io::Error::new(ErrorKind::TimedOut, text)
    })?;
    let errno = error.and_then(|error| error.raw_os_error()).map(Errno::from_raw_os_error);
    Ok(matches!(errno, Some(Errno::NOTCONN | Errno::CONNABORTED)))
}

/// The path from the root, without asking for what is mounted at its end.
fn full(directory: &Path) -> io::Result<PathBuf> {
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

fn table() -> Vec<Row> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    table.split(|byte| *byte == b'\n').filter_map(mounted).collect()
}

/// What is mounted, of a line of `/proc/self/mountinfo`.
fn mounted(line: &[u8]) -> Option<Row> {
    let mut words = line.split(|byte| *byte == b' ');
    let number = String::from_utf8(words.next()?.to_vec()).ok()?;
    let device = String::from_utf8(words.nth(1)?.to_vec()).ok()?;
    let on = words.nth(1)?;
    let kind = words.skip_while(|word| *word != b"-").nth(1)?.to_vec();
    let on = OsString::from_vec(plain(on)).into();
    Some(Row { id: MountId { number, device }, on, kind })
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

/// Mounts by system calls: gives what the kernel's requests come through, or `None` where this
/// process may not, and a helper has to.
pub(super) fn attach(directory: &Path, options: &MountOptions) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let device = openat(CWD, "/dev/fuse", flags, Mode::empty())?;
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mut data = format!(
        "fd={},rootmode=40000,user_id={uid},group_id={gid},default_permissions",
        device.as_raw_fd()
    );
    if options.allow_other {
        data += ",allow_other";
    }
    let (source, data) = (CString::new(options.source.as_bytes())?, CString::new(data)?);
    match rustix::mount::mount(&source, directory, TYPE, options.flags(), &*data) {
        Ok(()) => Ok(Some(device)),
        Err(Errno::PERM) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Takes the name away from what is mounted on a directory; it is gone when the last one leaves it.
pub(super) fn detach(directory: &Path) -> io::Result<()> {
    match rustix::mount::unmount(directory, UnmountFlags::DETACH) {
        Ok(()) => Ok(()),
        Err(_) if detach_by_helper(directory) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The program that may unmount what a user has mounted.
fn detach_by_helper(directory: &Path) -> bool {
    let mut helper = Command::new("fusermount3");
    helper.args(["-u", "-z", "-q", "--"]).arg(directory);
    helper.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let started = descriptors::as_before(|| helper.spawn());
    started.is_ok_and(|mut helper| helper.wait().is_ok_and(|status| status.success()))
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
        assert!("36".parse::<MountId>().is_err());
        assert_eq!(mounted(b""), None);
        assert_eq!(plain(b"a\\04"), b"a\\04", "no number");
    }

    #[test]
    fn a_mount_that_does_not_answer_holds_no_command_up() {
        if !petasos_testing::is_root() || !Path::new("/dev/fuse").exists() {
            return petasos_testing::skip("only root can mount a file system that does not answer");
        }
        let directory = tempfile::tempdir().unwrap();
        // Nothing takes the kernel's requests from it.
        let device = attach(directory.path(), &MountOptions::default()).unwrap();
        assert!(device.is_some());
        let mount = mounted_on(directory.path()).unwrap().unwrap();
        let waits = recover_within(directory.path(), Duration::from_millis(50));
        let taken = take_away(directory.path(), &mount);
        assert_eq!(waits.unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(taken.unwrap());
        assert_eq!(mounted_on(directory.path()).unwrap(), None);
        assert!(!take_away(directory.path(), &mount).unwrap(), "it is gone");
        fs::write(directory.path().join("below"), "what is below").unwrap();
    }

    #[test]
    fn a_mount_whose_device_is_closed_is_recovered() {
        if !petasos_testing::is_root() || !Path::new("/dev/fuse").exists() {
            return petasos_testing::skip("only root can mount a file system that is dead");
        }
        let directory = tempfile::tempdir().unwrap();
        drop(attach(directory.path(), &MountOptions::default()).unwrap());
        let other: MountId = "1 0:1".parse().unwrap();
        let kept = take_away(directory.path(), &other);
        let recovered = recover(directory.path());
        assert!(!kept.unwrap(), "another one is there");
        assert!(recovered.unwrap());
        assert!(!recover(directory.path()).unwrap());
    }
}

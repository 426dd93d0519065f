//! The place where an export is mounted: putting the file system there, and taking it away.
//!
//! Root does both by system calls, which take the type's second half (`fuse.petasos`) as well; for
//! other users a helper does it, `fusermount3`.

use super::{
    MountId, MountOptions,
    mountinfo::{MountHandle, TYPE, full},
};
use crate::descriptors;
use rustix::{
    fs::{CWD, Mode, OFlags, getxattr_query, openat},
    io::Errno,
    mount::UnmountFlags,
};
use std::{
    ffi::CString,
    fs,
    io::{self, ErrorKind},
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

/// Mounts on top of each other that are taken away at a time.
const LAYERS: usize = 16;

/// How long a mount may take to answer before it counts as one that does not.
const PATIENCE: Duration = Duration::from_secs(5);

/// An attribute that no mount has. The kernel asks for it without a look at the caller's rights,
/// for which it may have to ask first, and the process of a mount answers without its server: one
/// that waits for its server gives `ENOTCONN` to other questions, as the kernel does for a dead
/// mount.
const NO_ATTRIBUTE: &str = "system.petasos";

/// Takes a mount of this crate away whose process has died, and which is in the way of everything
/// in `directory` since. True if there was one. One that waits for its server is not dead.
///
/// A thread asks the mount. If there is no answer it stays behind, and the end of this process
/// waits for the answer as well, if the process of the mount has taken the question and neither
/// ends nor answers. A program that is not to wait has another process ask, by [`recover_by`].
///
/// # Errors
/// If the system refuses that. `TimedOut` if a mount of this crate is there that does not answer
/// within five seconds: whether its process will is not known, so it stays.
pub fn recover(directory: &Path) -> io::Result<bool> {
    recover_by(directory, |directory| is_dead_within(directory, PATIENCE))
}

/// Does as [`recover`], with another way to find out whether the mount on a directory
/// [is dead](is_dead).
///
/// # Errors
/// If the system refuses that; the error of `is_dead`.
pub fn recover_by(
    directory: &Path,
    mut is_dead: impl FnMut(&Path) -> io::Result<bool>,
) -> io::Result<bool> {
    let mut any = false;
    for _ in 0..LAYERS {
        // Nothing is asked that is not ours.
        let Some(mount) = super::mounted_on(directory)? else { break };
        if !is_dead(directory)? {
            break;
        }
        tracing::warn!(directory = %directory.display(), "a mount without a process is taken away");
        take_away(directory, &mount)?;
        any = true;
    }
    Ok(any)
}

/// Takes this mount away whatever state it is in, and asks it nothing. False if it is not what is
/// on `directory`: then nothing is done.
///
/// All that waits for it gets an error, its own process as well, which may have been killed while
/// the kernel has one of its threads wait for an answer that does not come any more. Where this
/// user is not root, that takes the kernel's directory of connections (`fusectl`, at
/// `/sys/fs/fuse/connections`); without it, what waits is not told before the process has ended.
/// Then it is also a helper that takes the mount away, by its path: another mount that the same
/// user makes there at this moment would be taken for it.
///
/// # Errors
/// If the system refuses that.
pub fn take_away(directory: &Path, mount: &MountId) -> io::Result<bool> {
    // From here on its numbers, and the number of its connection, are its own.
    let held = MountHandle::on(directory)?.filter(|held| held.id() == mount);
    let Some(held) = held else { return Ok(false) };
    if let Some(connection) = mount.connection() {
        // It may not be there.
        let _ = fs::write(format!("/sys/fs/fuse/connections/{connection}/abort"), "1");
    }
    // By force the kernel ends the requests as well.
    let force = UnmountFlags::FORCE | UnmountFlags::DETACH;
    match rustix::mount::unmount(held.path(), force) {
        Ok(()) => Ok(true),
        // For another reason the path is not to be tried: it may lead to another mount by now.
        Err(Errno::PERM) if detach_by_helper(&full(directory)?) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Whether the process of the mount on a directory is gone. A question to it finds out, and takes
/// as long as the answer does.
///
/// A thread that asks cannot be ended once the process of the mount has taken the question: neither
/// can its own process.
///
/// # Errors
/// If the path to it cannot be followed.
pub fn is_dead(directory: &Path) -> io::Result<bool> {
    let asked = getxattr_query(full(directory)?, NO_ATTRIBUTE);
    Ok(matches!(asked, Err(Errno::NOTCONN | Errno::CONNABORTED)))
}

/// The same, asked by a thread of its own, which stays behind if there is no answer.
fn is_dead_within(directory: &Path, patience: Duration) -> io::Result<bool> {
    let directory = directory.to_owned();
    let (sender, answer) = mpsc::channel();
    let ask = move || {
        let _ = sender.send(is_dead(&directory));
    };
    thread::Builder::new().name("petasos-recover".to_owned()).spawn(ask)?;
    answer.recv_timeout(patience).unwrap_or_else(|_| Err(silent()))
}

/// The error for a mount that does not answer.
#[must_use]
pub fn silent() -> io::Error {
    let text = "what is mounted there does not answer; `umount -f` takes it away";
    io::Error::new(ErrorKind::TimedOut, text)
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
    match rustix::mount::unmount(directory, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
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
    use super::{super::mounted_on, *};

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
        let briefly = |on: &Path| is_dead_within(on, Duration::from_millis(50));
        let waits = recover_by(directory.path(), briefly);
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

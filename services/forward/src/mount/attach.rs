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
    fs,
    io::{self, ErrorKind},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::OsStringExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// What tables of mounts show as the type.
pub(super) const TYPE: &str = "fuse.petasos";

/// Mounts on top of each other that are taken away at a time.
const LAYERS: usize = 16;

/// Takes a mount of this crate away whose process has died, and which is in the way of everything
/// in `directory` since. True if there was one.
///
/// # Errors
/// If the system refuses that.
pub fn recover(directory: &Path) -> io::Result<bool> {
    let mut any = false;
    for _ in 0..LAYERS {
        let dead = match fs::metadata(directory) {
            Err(error) => is_dead(&error),
            Ok(_) => false,
        };
        if !dead || !is_ours(&full(directory)?) {
            break;
        }
        tracing::warn!(directory = %directory.display(), "a mount without a process is taken away");
        detach(directory)?;
        any = true;
    }
    Ok(any)
}

/// Whether a mount of this crate is what is on a directory, served by a process or not.
///
/// # Errors
/// If the path to it cannot be followed.
pub fn is_mounted(directory: &Path) -> io::Result<bool> {
    full(directory).map(|directory| is_ours(&directory))
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

/// What the system says of a mount whose process is gone.
fn is_dead(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::NOTCONN | Errno::CONNABORTED))
}

/// The path from the root, without asking for what is mounted at its end.
fn full(directory: &Path) -> io::Result<PathBuf> {
    let path = std::path::absolute(directory)?;
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
        _ => Ok(path),
    }
}

/// Whether what is mounted last on a directory is of this crate.
fn is_ours(directory: &Path) -> bool {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    table
        .split(|byte| *byte == b'\n')
        .filter_map(mounted)
        .rfind(|(at, _)| at == directory)
        .is_some_and(|(_, kind)| kind == TYPE.as_bytes())
}

/// Where something is mounted, and its type: of a line of `/proc/self/mountinfo`.
fn mounted(line: &[u8]) -> Option<(PathBuf, Vec<u8>)> {
    let mut words = line.split(|byte| *byte == b' ');
    let at = words.nth(4)?;
    let kind = words.skip_while(|word| *word != b"-").nth(1)?;
    Some((OsString::from_vec(plain(at)).into(), kind.to_vec()))
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
        let (at, kind) = mounted(line).unwrap();
        assert_eq!((at.as_os_str().as_bytes(), &*kind), (&b"/mnt/a b\\"[..], TYPE.as_bytes()));
        assert_eq!(mounted(b""), None);
        assert_eq!(plain(b"a\\04"), b"a\\04", "no number");
    }
}

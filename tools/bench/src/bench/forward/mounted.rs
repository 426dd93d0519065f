//! A mount for a measurement; unmounted in any state.

use super::{
    contender::READY,
    process::{self, Daemon, Logs},
};
use crate::exit::{Code, Failure, Outcome};
use std::{
    fs::{self, OpenOptions},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

/// How long a mount may take to write back its data when it is unmounted.
const WRITE_BACK: Duration = Duration::from_secs(20);

/// Why mounts are not possible here, if so.
pub(super) fn unavailable() -> Option<Failure> {
    if let Err(error) = OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        let text = format!("mounts need /dev/fuse, which cannot be opened: {error}");
        return Some(Failure::new(Code::Unavailable, text));
    }
    process::require("fusermount3", "fuse3").err()
}

/// A mounted export; unmounted when dropped.
pub(super) struct Mounted {
    at: PathBuf,
    fusermount: PathBuf,
    daemon: Daemon,
}

impl Mounted {
    pub(super) fn new(logs: &Logs, command: &Command, at: &Path) -> Outcome<Mounted> {
        let fusermount = process::require("fusermount3", "fuse3")?;
        let daemon = logs.daemon(command)?;
        let mut mounted = Mounted { at: at.to_owned(), fusermount, daemon };
        mounted.daemon.until(READY, |_| is_mounted(at).then_some(()))?;
        Ok(mounted)
    }

    /// The mount point.
    pub(super) fn at(&self) -> &Path {
        &self.at
    }

    /// Unmounts it in order: then all written data is at the server.
    pub(super) fn end(mut self, logs: &Logs) -> Outcome {
        let running = logs.start(self.unmount(false), None)?;
        process::wait_all(vec![running], Instant::now(), WRITE_BACK)?;
        if self.daemon.ends(WRITE_BACK) {
            return Ok(());
        }
        Err(Failure::new(Code::Failed, "the mount's process did not end after it was unmounted"))
    }

    fn unmount(&self, lazily: bool) -> Command {
        let mut command = Command::new(&self.fusermount);
        command.args(["-q", "-u"]).args(lazily.then_some("-z")).arg(&self.at);
        command
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if is_mounted(&self.at) {
            // Lazily: processes that use it get errors, and nothing here waits for them.
            let _ = self.unmount(true).status();
        }
    }
}

/// Whether something is mounted there, without access to the mount itself.
fn is_mounted(at: &Path) -> bool {
    let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
    mounts.split(|byte| *byte == b'\n').any(|line| {
        line.split(|byte| *byte == b' ')
            .nth(4)
            .is_some_and(|path| unescaped(path) == at.as_os_str().as_bytes())
    })
}

/// A path as the kernel lists it: spaces and the like are three octal digits.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut found = Vec::with_capacity(path.len());
    let mut at = 0;
    while at < path.len() {
        let digits = path.get(at + 1..at + 4).filter(|_| path[at] == b'\\');
        let byte =
            digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        found.push(byte.unwrap_or(path[at]));
        at += if byte.is_some() { 4 } else { 1 };
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_their_paths() {
        assert!(is_mounted(Path::new("/proc")) && !is_mounted(Path::new("/proc/self")));
        assert_eq!(unescaped(br"/a\040b\134c"), b"/a b\\c");
    }
}

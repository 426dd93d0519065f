//! What a killed process leaves in shared memory.
//!
//! The shm provider keeps an endpoint's memory under a name, `/dev/shm/NAME`, which its own process
//! removes; one that is killed does not. The names of this crate's endpoints say that they are ours
//! and which process they belong to, and each holds a lock on its file, which the kernel releases
//! when the process is gone, however it went. So the files that are left are removed twice: by a
//! peer that loses the process, at once, and by the next endpoint of this user that is opened,
//! whether or not a peer saw the death.

use petasos_fabric::Incarnation;
use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, ErrorKind},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
    thread,
    time::Duration,
};

const PREFIX: &str = "fi_shm://";
const MARK: &str = "petasos-";
const PLACE: &str = "/dev/shm";

/// A name for an endpoint of this process that was never used before.
pub(crate) fn name() -> String {
    name_of(std::process::id())
}

/// All are of one length: of a peer's name that is the first thing to be checked.
fn name_of(process: u32) -> String {
    format!("{PREFIX}{MARK}{process:010}-{:016x}", Incarnation::random().get())
}

/// The file and the process of such a name; `None` if it is none.
fn parts(name: &[u8]) -> Option<(&str, u32)> {
    let name = std::str::from_utf8(name).ok()?.trim_end_matches('\0');
    let file = name.strip_prefix(PREFIX)?;
    let (process, random) = file.strip_prefix(MARK)?.split_once('-')?;
    let plain = random.len() == 16 && random.bytes().all(|b| b.is_ascii_hexdigit());
    plain.then_some((file, process.parse().ok()?))
}

/// Whether this is the name of an endpoint of this crate's, as the provider has it: with a zero
/// behind it.
pub(crate) fn is_name(name: &[u8]) -> bool {
    let Some((0, text)) = name.split_last() else { return false };
    let of_ours = |(_, process): (&str, u32)| name_of(process).len() == text.len();
    !text.contains(&0) && parts(text).is_some_and(of_ours)
}

/// Removes what is left of a lost peer's endpoint, if its process is gone. A process of another
/// name space might not be seen, so only those of this one are looked for.
pub(crate) fn remove(name: &[u8]) {
    let Some((file, process)) = parts(name) else { return };
    let missing = |error: std::io::Error| error.kind() == ErrorKind::NotFound;
    if process != std::process::id()
        && fs::read_link(format!("/proc/{process}/exe")).is_err_and(missing)
    {
        let _ = fs::remove_file(format!("/dev/shm/{file}"));
    }
}

/// Held while an endpoint's file is made, until it is locked: no process sweeps meanwhile.
pub(crate) struct Making {
    _lock: Option<File>,
}

/// Keeps sweepers away, by a shared lock on the directory. A sweeper holds it exclusively, for some
/// milliseconds. A process that holds it for a second is not one of our sweepers, and keeps those
/// away, too.
pub(crate) fn making() -> Making {
    let Ok(directory) = File::open(PLACE) else { return Making { _lock: None } };
    for _ in 0..1000 {
        match directory.try_lock_shared() {
            Ok(()) => return Making { _lock: Some(directory) },
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(1)),
            Err(TryLockError::Error(_)) => break,
        }
    }
    Making { _lock: None }
}

impl Making {
    /// Locks the file of the endpoint of this name, for as long as the result lives, and has all of
    /// its pages made: a process that writes to one for which there is no room is ended by a signal
    /// (SIGBUS), and the library makes each when it first writes there. `None` if there is none.
    ///
    /// # Errors
    /// There is no room.
    pub(crate) fn hold(self, name: &str) -> io::Result<Option<File>> {
        let Some((file, _)) = parts(name.as_bytes()) else { return Ok(None) };
        let opened = options().write(true).open(Path::new(PLACE).join(file));
        let Some(held) = opened.ok().filter(|held| held.try_lock().is_ok()) else {
            return Ok(None);
        };
        let len = held.metadata()?.len();
        // What is there stays.
        rustix::fs::fallocate(&held, rustix::fs::FallocateFlags::empty(), 0, len)?;
        Ok(Some(held))
    }
}

/// The memory of the endpoint of this name, to be read. `None` if there is none of this user's.
pub(crate) fn memory(name: &[u8]) -> Option<File> {
    let (file, _) = parts(name)?;
    open(Path::new(PLACE).join(file).as_path()).filter(is_ours)
}

/// Removes what killed processes of this user left. Does nothing while another process does it, or
/// makes such a file.
pub(crate) fn sweep() {
    let Ok(directory) = File::open(PLACE) else { return };
    if directory.try_lock().is_err() {
        return;
    }
    let Ok(entries) = fs::read_dir(PLACE) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let full = [PREFIX.as_bytes(), name.as_encoded_bytes()].concat();
        if parts(&full).is_some()
            && let Some(file) = open(&entry.path())
            && is_ours(&file)
            && file.try_lock().is_ok()
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn open(path: &Path) -> Option<File> {
    options().open(path).ok()
}

/// How files are opened: a link, or a pipe without a writer, is none of ours.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC);
    options
}

fn is_ours(file: &File) -> bool {
    // The owner of what this process is.
    let own = fs::metadata("/proc/self").map(|process| process.uid());
    file.metadata().is_ok_and(|found| found.is_file() && own.is_ok_and(|own| found.uid() == own))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Processes have numbers of one digit, and of ten.
    #[test]
    fn all_names_are_of_one_length() {
        for process in [1, 365, 32_768, u32::MAX] {
            let of_it = name_of(process);
            assert_eq!(of_it.len(), name().len());
            assert_eq!(parts(of_it.as_bytes()), Some((&of_it[PREFIX.len()..], process)));
        }
    }

    #[test]
    fn names_of_other_things_are_left_alone() {
        let own = name();
        assert_eq!(parts(own.as_bytes()), Some((&own[PREFIX.len()..], std::process::id())));
        assert!(parts(format!("{own}\0").as_bytes()).is_some());
        for other in [
            "fi_shm://petasos-1-../../../etc/x",
            "fi_shm://other-1-0123456789abcdef",
            "fi_shm://",
            "x",
        ] {
            assert_eq!(parts(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn names_of_peers_end_where_they_should() {
        let own = name();
        assert!(is_name(format!("{own}\0").as_bytes()));
        for other in
            [own.clone(), format!("{own}\0\0"), format!("{own}0\0"), "\0".repeat(own.len() + 1)]
        {
            assert!(!is_name(other.as_bytes()), "{other:?}");
        }
        let longer = own.replacen(MARK, "petasos-0", 1);
        assert!(parts(longer.as_bytes()).is_some() && !is_name(format!("{longer}\0").as_bytes()));
    }
}

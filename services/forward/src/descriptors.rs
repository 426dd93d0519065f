//! How many descriptors this process may have.
//!
//! The soft limit of most systems (1,024) is that of programs which call `select(2)`. A server of
//! files and a mount need more: they raise it to the hard limit, which takes no rights. Programs
//! that they start get the former one back.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::OnceLock;

/// The limits before they were raised.
static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// Raises the soft limit to the hard one, where that is allowed. For programs: a library leaves the
/// limits of its process alone. To be called once, at the beginning.
pub fn raise() {
    let before = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: before.maximum, maximum: before.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => drop(BEFORE.set(before)),
        Err(error) => tracing::warn!(%error, "the limit of descriptors stays as it is"),
    }
}

/// The soft limit.
pub(crate) fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Runs what starts a program, with the limits from before [`raise`], which that then has: also
/// where a library starts it. No other thread can open anything meanwhile if more is open than was
/// allowed before, so it is to be short.
#[cfg(feature = "mount")]
pub(crate) fn as_before<T>(run: impl FnOnce() -> T) -> T {
    use std::sync::{Mutex, PoisonError};
    static ONE: Mutex<()> = Mutex::new(());
    /// Raises the limit again, also where that panics.
    struct Again(Rlimit);
    impl Drop for Again {
        fn drop(&mut self) {
            // It was so a moment ago.
            let _ = setrlimit(Resource::Nofile, self.0);
        }
    }
    let Some(before) = BEFORE.get() else { return run() };
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let again = Again(getrlimit(Resource::Nofile));
    // The soft limit alone: the hard one could not be raised again.
    let former = Rlimit { current: before.current, maximum: again.0.maximum };
    let _ = setrlimit(Resource::Nofile, former);
    run()
}

/// Starts a thread with a table of descriptors of its own, which is empty, and returns when it has
/// that. The tables of the other threads stay as they are.
///
/// What such a thread opens is closed when it ends, also where the process is killed and another
/// thread of it has to wait in the kernel: the descriptors of the others are closed after that
/// only.
///
/// `run` must own nothing that was opened elsewhere, nor reach it: no file, no socket, no channel
/// that wakes by a descriptor, no log. There, its number leads nowhere, or to what the thread has
/// opened itself, which dropping the former would close. Channels of the standard library are
/// memory alone. What `run` opens must stay with this thread as well.
///
/// # Errors
/// If the system refuses a thread, or a table of its own, or does not list what is open: without
/// `/proc`.
#[cfg(feature = "mount")]
pub fn spawn_isolated(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    use std::{io, sync::mpsc, thread};
    let (report, left) = mpsc::channel();
    let begin = move || {
        let done = leave();
        let go = done.is_ok();
        let _ = report.send(done);
        if go {
            run();
        }
    };
    thread::Builder::new().name(name.to_owned()).spawn(begin)?;
    left.recv().map_err(io::Error::other)?
}

/// Gives the calling thread, which owns no descriptor, a table of its own, and empties that.
#[cfg(feature = "mount")]
fn leave() -> std::io::Result<()> {
    use std::{fs, io, os::fd::RawFd, path::Path};
    // Before: where that is not to be had, the table stays shared, and full.
    let own = Path::new("/proc/thread-self/fd");
    fs::read_dir(own)?;
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_FILES)?;
    let names = fs::read_dir(own)?.map(|entry| entry.map(|entry| entry.file_name()));
    let names = names.collect::<io::Result<Vec<_>>>()?;
    let open = names.iter().filter_map(|name| name.to_str()?.parse::<RawFd>().ok());
    // The one of the listing is closed already.
    for descriptor in open {
        let _ = nix::unistd::close(descriptor);
    }
    Ok(())
}

#[cfg(all(test, feature = "mount"))]
mod tests {
    use super::*;
    use std::{fs, sync::mpsc};

    #[test]
    fn a_table_of_its_own_is_empty() {
        let open = || fs::read_dir("/proc/thread-self/fd").unwrap().count();
        let before = open();
        assert!(before > 1);
        let (report, found) = mpsc::channel();
        spawn_isolated("isolated", move || report.send(open()).unwrap()).unwrap();
        assert_eq!(found.recv().unwrap(), 1, "that of the listing");
        assert!(open() > 1, "others keep theirs");
    }
}

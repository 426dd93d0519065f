//! A thread that calls `statx` in the mount, as any program does: then the kernel asks here for the
//! attributes, and learns how long a file is.
//!
//! A thread that waits for an answer of its own process must not keep that process from ending.
//! When the process is killed, the threads that would answer are gone, and the kernel lets a
//! request that was taken wait until the device of the mount is closed; a thread that has this
//! device open, and waits, keeps it open forever: the process would stay, and the mount hang. So
//! this thread has a table of descriptors of its own, with nothing in it.

use crate::descriptors;
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, StatxFlags},
    io::Errno,
};
use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver, Sender},
};

/// The kernel asks for the attributes of this node, which has this name in the mount.
struct Query {
    ino: u64,
    path: PathBuf,
    done: Sender<Result<(), Errno>>,
}

/// Sends queries to the thread.
pub(super) struct Refresher {
    queries: Sender<Query>,
}

/// Where a mount is.
struct MountPoint {
    directory: PathBuf,
    /// The number of its device: something else may be there by now.
    device: (u32, u32),
}

impl Refresher {
    /// Starts the thread. It ends when this is dropped.
    pub(super) fn start(directory: &Path) -> io::Result<Refresher> {
        let (queries, queue) = mpsc::channel();
        let directory = directory.to_owned();
        descriptors::spawn_isolated("petasos-refresh", move || answer(&directory, queue))?;
        Ok(Refresher { queries })
    }

    /// Has the kernel ask for the attributes of what has this name, and waits for that.
    pub(super) fn refresh(&self, ino: u64, path: PathBuf) -> Result<(), Errno> {
        let (done, asked) = mpsc::channel();
        let _ = self.queries.send(Query { ino, path, done });
        asked.recv().unwrap_or(Err(Errno::NOTCONN))
    }
}

/// The thread. Nothing here uses a descriptor of another thread, nor wakes one by a descriptor: the
/// channels wait in memory, and nothing is logged.
fn answer(directory: &Path, queries: Receiver<Query>) {
    let mut place = None;
    for Query { ino, path, done } in queries {
        // Found when it is needed: the mount serves by then.
        let place = place.get_or_insert_with(|| MountPoint::find(directory));
        let _ = done.send(place.as_ref().map_or(Ok(()), |place| place.refresh(ino, &path)));
    }
}

/// The number of a device, as the kernel has it without asking.
pub(super) fn device(directory: &Path) -> Option<(u32, u32)> {
    let flags = AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(CWD, directory, flags, StatxFlags::empty()).ok()?;
    Some((stat.stx_dev_major, stat.stx_dev_minor))
}

impl MountPoint {
    fn find(directory: &Path) -> Option<MountPoint> {
        let device = device(directory)?;
        Some(MountPoint { directory: directory.to_owned(), device })
    }

    fn open(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(&self.directory, flags, Mode::empty())
    }

    /// Has the kernel ask for the attributes of what has this name, which should be this node.
    fn refresh(&self, ino: u64, path: &Path) -> Result<(), Errno> {
        let root = self.open()?;
        let asleep = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let stat = rustix::fs::statx(&root, "", asleep, StatxFlags::empty())?;
        // Another mount may hide this one.
        if (stat.stx_dev_major, stat.stx_dev_minor) != self.device {
            return Err(Errno::XDEV);
        }
        let anew = AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC;
        let stat = rustix::fs::statx(&root, path, anew, StatxFlags::BASIC_STATS)?;
        match stat.stx_ino == ino {
            true => Ok(()),
            // Another mount gave the name to another file.
            false => Err(Errno::STALE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fuser::{Config, Filesystem, INodeNo, MountOption, ReplyEntry, Request, Session};
    use petasos_testing::{again, is_root, role, skip};
    use std::{ffi::OsStr, mem, process::Command, thread, time::Duration};

    /// A file system that takes requests and does not answer them.
    struct Silent;

    impl Filesystem for Silent {
        fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
            println!("asked for {}", name.display());
            mem::forget(reply);
        }
    }

    /// Takes the mount away whatever becomes of the test, and ends the requests of it.
    struct Away(PathBuf);

    impl Drop for Away {
        fn drop(&mut self) {
            let _ = Command::new("umount").args(["-f", "-l", "-i"]).arg(&self.0).status();
        }
    }

    fn a_process_that_asks(directory: &Path) {
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("silent".to_owned())];
        let session = Session::new(Silent, directory, &config).unwrap();
        thread::spawn(move || session.run());
        let asked = Refresher::start(directory).unwrap().refresh(7, "f".into());
        panic!("there is no answer, but {asked:?}");
    }

    #[test]
    fn a_process_that_is_killed_while_it_asks_ends() {
        if role().is_some() {
            return a_process_that_asks(std::env::var("AT").unwrap().as_ref());
        }
        if !is_root() || !Path::new("/dev/fuse").exists() {
            return skip("only root can mount a file system that does not answer");
        }
        let directory = tempfile::tempdir().unwrap();
        let name = "mount::refresh::tests::a_process_that_is_killed_while_it_asks_ends";
        let process = again(name, "refresher").env("AT", directory.path().to_str().unwrap());
        let mut process = process.start();
        // Before the process is waited for in the end: its requests end with the mount.
        let _away = Away(directory.path().to_owned());
        assert_eq!(process.line("asked for "), "f");
        let killed = Command::new("kill").args(["-KILL", &process.id().to_string()]).status();
        assert!(killed.unwrap().success());
        process.wait(Duration::from_secs(20));
    }
}

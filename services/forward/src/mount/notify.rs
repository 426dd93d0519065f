//! Notifications to the kernel: to invalidate what it has cached, and how long a file is.
//!
//! Where the kernel may have to wait for an answer of the engine's thread first (for pages that are
//! being read, or a directory in which something is being made), a thread of its own sends them.
//!
//! The kernel uses the length that it was told last, and asks for it only when a program reads
//! beyond that: so it would not see that another mount has cut a file, nor would mappings and
//! `copy_file_range` see that one has made it longer. No notification changes the length, but an
//! answer to the kernel's own request does: see [`Refresher`].

use super::refresh::Refresher;
use fuser::{INodeNo, Notifier};
use futures_channel::oneshot;
use std::{
    cell::RefCell,
    collections::HashMap,
    ffi::OsString,
    io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver, Sender},
    thread,
    time::{Duration, Instant},
};

/// Negative entries, at most. Beyond that the kernel gets no time for which a name is missing.
const MISSING: usize = 4096;

/// What the thread is to do.
enum Action {
    /// Invalidate the kernel's attributes and pages of a node.
    InvalidatePages(u64),
    /// Invalidate the kernel's entry of a name.
    InvalidateName(u64, OsString),
    /// Have the kernel ask for the attributes of this node, which has this name in the mount.
    Refresh(u64, PathBuf),
}

struct Task {
    action: Action,
    done: oneshot::Sender<()>,
}

/// Notifies the kernel.
pub(super) struct KernelNotifier {
    fuse: Notifier,
    tasks: Sender<Task>,
}

impl KernelNotifier {
    /// Starts the thread. It ends when this is dropped.
    pub(super) fn start(fuse: Notifier, directory: &Path) -> io::Result<KernelNotifier> {
        let (tasks, queue) = mpsc::channel();
        let (notifier, directory) = (fuse.clone(), directory.to_owned());
        let run = move || notify(&notifier, &directory, queue);
        thread::Builder::new().name("petasos-tell".to_owned()).spawn(run)?;
        Ok(KernelNotifier { fuse, tasks })
    }
}

fn notify(notifier: &Notifier, directory: &Path, tasks: Receiver<Task>) {
    let refresher = Refresher::start(directory);
    let refresher =
        refresher.inspect_err(|error| tracing::warn!(%error, "lengths are not asked for")).ok();
    for Task { action, done } in tasks {
        let notified = match action {
            Action::InvalidatePages(ino) => notifier.inval_inode(INodeNo(ino), 0, 0),
            Action::InvalidateName(directory, name) => {
                notifier.inval_entry(INodeNo(directory), &name)
            }
            Action::Refresh(ino, path) => refresher
                .as_ref()
                .map_or(Ok(()), |refresher| refresher.refresh(ino, path))
                .map_err(Into::into),
        };
        if let Err(error) = notified {
            tracing::debug!(%error, "the kernel keeps what it has cached");
        }
        let _ = done.send(());
    }
}

/// Negative entries of the kernel: names that it takes for missing, until they expire.
#[derive(Default)]
struct Missing {
    names: HashMap<u64, HashMap<Vec<u8>, Instant>>,
    count: usize,
}

impl Missing {
    /// Notes a name. False if there are too many: then the kernel is not to cache it.
    fn add(&mut self, directory: u64, name: &[u8], holds: Duration) -> bool {
        let now = Instant::now();
        if self.count >= MISSING {
            self.names.retain(|_, names| {
                names.retain(|_, until| *until > now);
                !names.is_empty()
            });
            self.count = self.names.values().map(HashMap::len).sum();
        }
        let Some(until) = now.checked_add(holds).filter(|_| self.count < MISSING) else {
            return false;
        };
        let before = self.names.entry(directory).or_default().insert(name.to_vec(), until);
        self.count += usize::from(before.is_none());
        true
    }

    /// Something has that name.
    fn remove(&mut self, directory: u64, name: &[u8]) {
        let Some(names) = self.names.get_mut(&directory) else { return };
        self.count -= usize::from(names.remove(name).is_some());
        if names.is_empty() {
            self.names.remove(&directory);
        }
    }

    /// Takes those of a directory that have not expired.
    fn take(&mut self, directory: u64) -> Vec<Vec<u8>> {
        let names = self.names.remove(&directory).unwrap_or_default();
        self.count -= names.len();
        let now = Instant::now();
        names.into_iter().filter(|(_, until)| *until > now).map(|(name, _)| name).collect()
    }
}

/// What the kernel has cached of a mount, as far as it may have to be told to give that up.
#[derive(Default)]
pub(super) struct KernelCache {
    /// From when the kernel has begun with the mount, until the end.
    notifier: RefCell<Option<KernelNotifier>>,
    missing: RefCell<Missing>,
}

impl KernelCache {
    pub(super) fn set_notifier(&self, notifier: KernelNotifier) {
        self.notifier.replace(Some(notifier));
    }

    /// Ends the notifications.
    pub(super) fn end(&self) {
        self.notifier.take();
    }

    /// Has the kernel give up a node's attributes, which waits for nothing.
    pub(super) fn expire(&self, ino: u64) {
        if let Some(notifier) = &*self.notifier.borrow()
            && let Err(error) = notifier.fuse.inval_inode(INodeNo(ino), -1, 0)
        {
            tracing::debug!(ino, %error, "the kernel keeps what it has cached");
        }
    }

    /// Has the kernel give up a node's attributes and pages.
    pub(super) async fn invalidate(&self, ino: u64) {
        self.notify(Action::InvalidatePages(ino)).await;
    }

    /// Has the kernel ask how long a node is that has this path in the mount.
    pub(super) async fn refresh(&self, ino: u64, path: Vec<u8>) {
        self.notify(Action::Refresh(ino, OsString::from_vec(path).into())).await;
    }

    /// Invalidates the negative entries in these directories.
    pub(super) async fn invalidate_missing(&self, directories: impl IntoIterator<Item = u64>) {
        for directory in directories {
            let names = self.missing.borrow_mut().take(directory);
            for name in names {
                self.notify(Action::InvalidateName(directory, OsString::from_vec(name))).await;
            }
        }
    }

    /// Notes that a name is missing. True if the kernel may cache that for so long.
    pub(super) fn note_missing(&self, directory: u64, name: &[u8], holds: Duration) -> bool {
        !holds.is_zero() && self.missing.borrow_mut().add(directory, name, holds)
    }

    /// Notes that something has a name.
    pub(super) fn note_found(&self, directory: u64, name: &[u8]) {
        self.missing.borrow_mut().remove(directory, name);
    }

    async fn notify(&self, action: Action) {
        let (done, notified) = oneshot::channel();
        let sent = match &*self.notifier.borrow() {
            Some(notifier) => notifier.tasks.send(Task { action, done }).is_ok(),
            None => false,
        };
        if sent {
            let _ = notified.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_names_are_bounded_and_expire() {
        let mut missing = Missing::default();
        let hour = Duration::from_secs(3600);
        assert!(
            missing.add(1, b"a", hour) && missing.add(1, b"a", hour) && missing.add(2, b"b", hour)
        );
        missing.remove(2, b"b");
        assert_eq!((missing.count, missing.take(2)), (1, vec![]));
        assert!(missing.add(1, b"gone", Duration::ZERO));
        assert_eq!(missing.take(1), [b"a"]);
        assert!(missing.take(1).is_empty() && missing.count == 0 && missing.names.is_empty());
        assert!(missing.add(1, b"gone", Duration::ZERO));
        for n in 1..MISSING {
            assert!(missing.add(2, &n.to_le_bytes(), hour));
        }
        assert!(missing.add(3, b"one more", hour), "one had expired");
        assert!(!missing.add(3, b"too many", hour) && missing.count == MISSING);
        assert!(!missing.add(3, b"forever", Duration::MAX));
    }
}

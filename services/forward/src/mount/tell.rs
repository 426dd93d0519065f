//! What the kernel is told without having asked: to give up what it knows, and how long a file is.
//!
//! That has a thread of its own where the kernel may have to wait for an answer of the engine's
//! thread first: for pages that are being read, or a directory in which something is being made.
//!
//! The kernel goes by the length that it was told last, and asks for it only when a program reads
//! beyond that: so it would not see that another mount has cut a file, nor would mappings and
//! `copy_file_range` see that one has made it longer. Nothing that can be sent to it changes the
//! length, but an answer to its own question does: see [`Asker`].

use super::{ask::Asker, fs::Fs};
use fuser::{INodeNo, Notifier};
use futures_channel::{mpsc as queue, oneshot};
use std::{
    collections::HashMap,
    ffi::OsString,
    io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
    sync::mpsc::{self, Receiver, Sender},
    thread,
    time::{Duration, Instant},
};

/// Names that are known to be missing, at most: of others the kernel is not told for how long.
const MISSING: usize = 4096;

/// What the thread is to do.
enum Word {
    /// The kernel gives up attributes and pages of a node.
    Pages(u64),
    /// The kernel gives up what it knows of a name.
    Name(u64, OsString),
    /// The kernel asks for the attributes of this node, which has this name in the mount.
    Ask(u64, PathBuf),
}

struct Task {
    word: Word,
    done: oneshot::Sender<()>,
}

/// The way to the kernel.
pub(super) struct Teller {
    notifier: Notifier,
    tasks: Sender<Task>,
}

impl Teller {
    /// Starts the thread. It ends with the file system, which has the other end of its queue.
    pub(super) fn start(
        notifier: Notifier,
        directory: &Path,
        jobs: &queue::UnboundedSender<super::front::Job>,
    ) -> io::Result<()> {
        let (tasks, queue) = mpsc::channel();
        let teller = Teller { notifier: notifier.clone(), tasks };
        let _ = jobs.unbounded_send(Box::new(move |fs| fs.set_teller(teller)));
        let directory = directory.to_owned();
        let run = move || tell(&notifier, &directory, queue);
        thread::Builder::new().name("petasos-tell".to_owned()).spawn(run).map(drop)
    }
}

fn tell(notifier: &Notifier, directory: &Path, tasks: Receiver<Task>) {
    let asker = Asker::start(directory);
    let asker = asker.inspect_err(|error| tracing::warn!(%error, "lengths are not asked for")).ok();
    for Task { word, done } in tasks {
        let told = match word {
            Word::Pages(ino) => notifier.inval_inode(INodeNo(ino), 0, 0),
            Word::Name(directory, name) => notifier.inval_entry(INodeNo(directory), &name),
            Word::Ask(ino, path) => {
                asker.as_ref().map_or(Ok(()), |asker| asker.ask(ino, path)).map_err(Into::into)
            }
        };
        if let Err(error) = told {
            tracing::debug!(%error, "the kernel keeps what it knows");
        }
        let _ = done.send(());
    }
}

/// Names that the kernel was told are missing, as long as it goes by that.
#[derive(Default)]
pub(super) struct Missing {
    names: HashMap<u64, HashMap<Vec<u8>, Instant>>,
    count: usize,
}

impl Missing {
    /// Notes a name. False if there are too many: then the kernel is not to go by that.
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
    pub(super) fn remove(&mut self, directory: u64, name: &[u8]) {
        let Some(names) = self.names.get_mut(&directory) else { return };
        self.count -= usize::from(names.remove(name).is_some());
        if names.is_empty() {
            self.names.remove(&directory);
        }
    }

    /// Those of a directory that the kernel still goes by; they are not kept.
    fn take(&mut self, directory: u64) -> Vec<Vec<u8>> {
        let names = self.names.remove(&directory).unwrap_or_default();
        self.count -= names.len();
        let now = Instant::now();
        names.into_iter().filter(|(_, until)| *until > now).map(|(name, _)| name).collect()
    }
}

impl Fs {
    /// Has the kernel give up a node's attributes, which waits for nothing.
    pub(super) fn expire(&self, ino: u64) {
        if let Some(teller) = &*self.teller.borrow()
            && let Err(error) = teller.notifier.inval_inode(INodeNo(ino), -1, 0)
        {
            tracing::debug!(ino, %error, "the kernel keeps what it knows");
        }
    }

    /// Has the kernel give up a node's attributes and pages.
    pub(super) async fn invalidate(&self, ino: u64) {
        self.tell(Word::Pages(ino)).await;
    }

    /// Has the kernel ask how long a node is, as far as that has a name here.
    pub(super) async fn show_length(&self, ino: u64) {
        let below = self.table.borrow().below(ino);
        if let Ok(path) = below {
            self.tell(Word::Ask(ino, OsString::from_vec(path).into())).await;
        }
    }

    /// Has the kernel look names up again that were missing in the directories of a node.
    pub(super) async fn look_again(&self, ino: u64) {
        let directories = self.table.borrow().parents(ino);
        for directory in directories {
            let names = self.missing.borrow_mut().take(directory);
            for name in names {
                self.tell(Word::Name(directory, OsString::from_vec(name))).await;
            }
        }
    }

    /// The kernel is told that a name is missing. True if it may go by that for so long.
    pub(super) fn misses(&self, directory: u64, name: &[u8], holds: Duration) -> bool {
        !holds.is_zero() && self.missing.borrow_mut().add(directory, name, holds)
    }

    async fn tell(&self, word: Word) {
        let (done, told) = oneshot::channel();
        let sent = match &*self.teller.borrow() {
            Some(teller) => teller.tasks.send(Task { word, done }).is_ok(),
            None => false,
        };
        if sent {
            let _ = told.await;
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

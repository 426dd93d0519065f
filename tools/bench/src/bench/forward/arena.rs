//! The private directory of a run, with the export, fetched copies, and mounts; and how a command
//! or a piece of work is run there.

use super::{
    contender::Site,
    process::{self, Logs, Running},
    sample,
    work::{self, SUBCOMMAND, Work},
};
use crate::{
    exit::{Code, Failure, Outcome},
    output,
    scratch::{self, Scratch},
};
use rustix::fs::{FlockOperation, flock};
use std::{
    cell::Cell as Counter,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

/// Free space that is needed, in sizes of the large file, for copies that exist at a time.
const COPIES: u64 = 5;

/// Bytes of a small file on a disk, with its name.
const SMALL_FILE: u64 = 20 << 10;

/// Smaller blocks move a part of a file only.
const SMALL_BLOCK: u64 = 64 << 10;

/// Between two checks whether a process is ready.
const READY: Duration = Duration::from_millis(1);

/// Parts of the large file for clients to share, at least.
const PARTS: usize = 32;

/// The sizes and numbers of a run.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    /// Bytes of the large file.
    pub(super) large: u64,
    /// Bytes of a file through mounts.
    pub(super) medium: u64,
    /// Small files.
    pub(super) files: usize,
    /// Empty files, for metadata.
    pub(super) empty: usize,
    /// Blocks of reads and writes.
    pub(super) blocks: Vec<u64>,
    /// Numbers of clients.
    pub(super) clients: Vec<usize>,
}

impl Sizes {
    /// Bytes that are moved in blocks of this size. Some contenders take ten seconds for a megabyte
    /// in small blocks.
    pub(super) fn by_block(&self, block: u64) -> u64 {
        if block < SMALL_BLOCK { (self.medium / 8).max(1) } else { self.medium }
    }
}

/// A locked file on which processes wait; removed and unlocked when dropped, which starts them.
struct StartBarrier {
    path: PathBuf,
    _closed: File,
}

impl StartBarrier {
    fn closed(path: PathBuf) -> io::Result<StartBarrier> {
        let file = File::create_new(&path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(StartBarrier { path, _closed: file })
    }
}

impl Drop for StartBarrier {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

pub(super) struct Arena {
    pub(super) sizes: Sizes,
    /// How long one step may take.
    pub(super) patience: Duration,
    pub(super) logs: Logs,
    root: PathBuf,
    export: PathBuf,
    secret: PathBuf,
    next: Counter<usize>,
}

impl Arena {
    /// Lays out the directories; see [`Arena::fill`].
    pub(super) fn new(
        scratch: &Scratch,
        secret: &Path,
        sizes: Sizes,
        patience: Duration,
    ) -> Outcome<Arena> {
        let root = scratch.path().to_owned();
        let found = rustix::fs::statvfs(&root).map_err(Failure::system("asking for free space"))?;
        let free = found.f_bavail * found.f_frsize;
        let needed = COPIES * sizes.large + 3 * SMALL_FILE * sizes.files as u64;
        if free < needed {
            let (free, needed) = (output::size(free >> 20 << 20), output::size(needed));
            let text = format!("{free} are free for temporary files, and {needed} are needed");
            return Err(Failure::new(Code::Failed, text)
                .advise("--dir DIR on another file system, or a smaller --size"));
        }
        let logs = Logs::new(scratch.directory("logs")?);
        let (export, secret) = (root.join("export"), secret.to_owned());
        let arena = Arena { sizes, patience, logs, root, export, secret, next: Counter::new(0) };
        for name in ["export", "export/to", "back", "own", "mounts"] {
            scratch.directory(name)?;
        }
        Ok(arena)
    }

    /// Makes the files that will be moved, also those for several clients if wanted. Called before
    /// any server runs, as some cache what they have seen.
    pub(super) fn fill(&self, for_clients: bool) -> Outcome {
        let block = sample::LONGEST;
        let (path, bytes) = (self.large(), self.sizes.large);
        self.work(&[Work::Write { path, bytes, block, sync: false }])?;
        let (path, bytes) = (self.medium(), self.sizes.medium);
        self.work(&[Work::Write { path, bytes, block, sync: false }])?;
        let (directory, end) = (self.tree(), self.sizes.files);
        self.work(&[Work::CreateFiles { directory, first: 0, end }])?;
        if for_clients {
            self.fill_for_clients()?;
        }
        // Write everything to the disk now, so that it is not written during a measurement.
        rustix::fs::sync();
        Ok(())
    }

    pub(super) fn site(&self, name: &str) -> Outcome<Site<'_>> {
        let own = self.made(self.root.join("own").join(name))?;
        Ok(Site { export: self.export(), own, secret: &self.secret, logs: &self.logs })
    }

    /// A directory, made if it does not exist.
    fn made(&self, path: PathBuf) -> Outcome<PathBuf> {
        fs::create_dir_all(&path).map_err(|error| Failure::file("making", &path, &error))?;
        Ok(path)
    }

    /// The exported directory.
    pub(super) fn export(&self) -> &Path {
        &self.export
    }

    pub(super) fn large(&self) -> PathBuf {
        self.export().join("large")
    }

    pub(super) fn medium(&self) -> PathBuf {
        self.export().join("medium")
    }

    pub(super) fn tree(&self) -> PathBuf {
        self.export().join("tree")
    }

    /// The mount point of one contender: a new directory each time.
    pub(super) fn mount_point(&self, name: &str) -> Outcome<PathBuf> {
        self.made(self.root.join("mounts").join(self.fresh(name)))
    }

    /// A name that was not used before, so that no mount has cached it.
    fn fresh(&self, name: &str) -> String {
        let number = self.next.replace(self.next.get() + 1);
        format!("{name}-{number}")
    }

    /// A new path in the export.
    pub(super) fn target(&self, name: &str) -> PathBuf {
        self.export().join("to").join(self.fresh(name))
    }

    /// A new path for a fetched copy.
    pub(super) fn fetched(&self, name: &str) -> PathBuf {
        self.root.join("back").join(self.fresh(name))
    }

    /// The directories with the parts of so many clients, together of the large file's size.
    pub(super) fn parts(&self, clients: usize) -> Vec<PathBuf> {
        self.shares("parts", clients)
    }

    /// The same for the small files.
    pub(super) fn trees(&self, clients: usize) -> Vec<PathBuf> {
        self.shares("trees", clients)
    }

    fn shares(&self, name: &str, clients: usize) -> Vec<PathBuf> {
        let root = self.export().join(format!("{name}-{clients}"));
        (0..clients).map(|at| root.join(at.to_string())).collect()
    }

    /// Makes the files of all numbers of clients, the same under several names.
    fn fill_for_clients(&self) -> Outcome {
        let parts = PARTS.max(self.sizes.clients.iter().copied().max().unwrap_or(1));
        let whole = self.made(self.export().join("parts"))?;
        let bytes = (self.sizes.large / parts as u64).max(1);
        let part = |number: usize| format!("part-{number:04}");
        for number in 0..parts {
            let (path, block) = (whole.join(part(number)), sample::LONGEST);
            self.work(&[Work::Write { path, bytes, block, sync: false }])?;
        }
        for &clients in &self.sizes.clients {
            for (client, directory) in self.parts(clients).into_iter().enumerate() {
                for number in (client..parts).step_by(clients) {
                    link(&whole.join(part(number)), &directory.join(part(number)))?;
                }
            }
            for (client, directory) in self.trees(clients).into_iter().enumerate() {
                for small in share(self.sizes.files, client, clients).map(sample::small) {
                    link(&self.tree().join(&small.path), &directory.join(&small.path))?;
                }
                process::pause(Duration::ZERO)?;
            }
        }
        Ok(())
    }

    /// Runs commands at once until all have ended; gives the seconds.
    pub(super) fn run(&self, commands: Vec<Command>) -> Outcome<f64> {
        let mut running = Vec::with_capacity(commands.len());
        let begin = Instant::now();
        for command in commands {
            running.push(self.logs.start(command, None)?);
        }
        process::wait_all(running, begin, self.patience)
    }

    /// Runs each piece of work in a process; returns the seconds: of one, as the process reports,
    /// of several, from when all were ready until all have ended.
    pub(super) fn work(&self, all: &[Work]) -> Outcome<f64> {
        let failed = Failure::system("the start barrier of the processes");
        let barrier = self.logs.fresh();
        let barrier = StartBarrier::closed(barrier).map_err(failed)?;
        let (mut running, mut answers) = (Vec::new(), Vec::new());
        for work in all {
            let text = serde_json::to_string(work).map_err(Failure::system("writing JSON"))?;
            let out = self.logs.fresh();
            let mut command = process::own_program(&[SUBCOMMAND, &text]);
            command.arg(&barrier.path);
            running.push(self.logs.start(command, Some(&out))?);
            answers.push(out);
        }
        let took = self.release(barrier, running, &answers);
        let outputs: Vec<_> = answers.iter().map(fs::read_to_string).collect();
        answers.iter().for_each(|path| scratch::remove(path));
        match (took?, outputs.as_slice()) {
            (_, [Ok(one)]) => {
                let seconds = one.trim_start_matches(work::READY).trim().parse();
                seconds.map_err(Failure::system("the output of a process"))
            }
            (took, _) => Ok(took),
        }
    }

    /// Opens the barrier when all are ready, and waits until they have ended.
    fn release(
        &self,
        barrier: StartBarrier,
        mut running: Vec<Running>,
        answers: &[PathBuf],
    ) -> Outcome<f64> {
        let begin = Instant::now();
        for (running, answer) in running.iter_mut().zip(answers) {
            while !fs::metadata(answer).is_ok_and(|found| found.len() > 0) {
                if running.ended()? || begin.elapsed() > self.patience {
                    return Err(Failure::new(Code::Failed, "a process did not begin its work"));
                }
                process::pause(READY)?;
            }
        }
        let begin = Instant::now();
        drop(barrier);
        process::wait_all(running, begin, self.patience)
    }

    /// Waits until so many entries are in a directory of the export.
    pub(super) fn wait_for_entries(&self, directory: &Path, count: usize) -> Outcome {
        let begin = Instant::now();
        while fs::read_dir(directory).map_or(0, Iterator::count) < count {
            if begin.elapsed() > self.patience {
                let text = format!("not all of {count} files arrived at the server");
                return Err(Failure::new(Code::Failed, text));
            }
            process::pause(READY)?;
        }
        Ok(())
    }

    /// Fails unless a copy is the same as its original.
    pub(super) fn compare(&self, original: &Path, copy: &Path) -> Outcome {
        let (original, copy) = (original.to_owned(), copy.to_owned());
        self.work(&[Work::Compare { original, copy }]).map(drop)
    }
}

/// Gives a file another name, in a directory that may not exist yet.
fn link(original: &Path, name: &Path) -> Outcome {
    name.parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::hard_link(original, name))
        .map_err(|error| Failure::file("linking", name, &error))
}

/// The range of one of several clients, of so many items.
pub(super) fn share(all: usize, client: usize, clients: usize) -> std::ops::Range<usize> {
    all * client / clients..all * (client + 1) / clients
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_cover_everything_once() {
        for clients in [1, 3, 32] {
            let found: Vec<usize> = (0..clients).flat_map(|at| share(100, at, clients)).collect();
            assert_eq!(found, (0..100).collect::<Vec<_>>());
        }
    }
}

//! Where it all happens: a private directory with what is exported, what comes back, and mounts; and
//! how a command or a piece of work is run there.

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

/// How many times the large file must have room, for copies that are there at a time.
const COPIES: u64 = 5;

/// The least that a small file takes on a disk, with its name.
const SMALL_FILE: u64 = 20 << 10;

/// Blocks that are smaller move a part of a file only.
const SMALL_BLOCK: u64 = 64 << 10;

/// Between two looks whether a process is ready.
const READY: Duration = Duration::from_millis(1);

/// Parts of the large file, for clients to share: at least so many.
const PARTS: usize = 32;

/// What is measured with.
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
    /// Bytes that are moved in blocks of this size. In small ones some take ten seconds for a
    /// megabyte.
    pub(super) fn by_block(&self, block: u64) -> u64 {
        if block < SMALL_BLOCK { (self.medium / 8).max(1) } else { self.medium }
    }
}

/// A file on which processes wait; removed when dropped, which lets them go.
struct Gate {
    path: PathBuf,
    _closed: File,
}

impl Gate {
    fn closed(path: PathBuf) -> io::Result<Gate> {
        let file = File::create_new(&path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Gate { path, _closed: file })
    }
}

impl Drop for Gate {
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

    /// Makes what is going to be moved; for several clients, if so wanted. Before any server is there,
    /// as some remember what they have seen.
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
        // What is on the disk need not be written there while others are measured.
        rustix::fs::sync();
        Ok(())
    }

    pub(super) fn site(&self, name: &str) -> Outcome<Site<'_>> {
        let own = self.made(self.root.join("own").join(name))?;
        Ok(Site { export: self.export(), own, secret: &self.secret, logs: &self.logs })
    }

    /// A directory, made if it is not there.
    fn made(&self, path: PathBuf) -> Outcome<PathBuf> {
        fs::create_dir_all(&path).map_err(|error| Failure::file("making", &path, &error))?;
        Ok(path)
    }

    /// What is exported.
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

    /// Where to mount it for one contender: a new directory each time.
    pub(super) fn mount_point(&self, name: &str) -> Outcome<PathBuf> {
        self.made(self.root.join("mounts").join(self.fresh(name)))
    }

    /// A name that was not used before. What a mount remembers of another file is not of this one.
    fn fresh(&self, name: &str) -> String {
        let number = self.next.replace(self.next.get() + 1);
        format!("{name}-{number}")
    }

    /// Where something is going to be in the export: a path that is not there yet.
    pub(super) fn target(&self, name: &str) -> PathBuf {
        self.export().join("to").join(self.fresh(name))
    }

    /// Where something is going to be that comes back.
    pub(super) fn back(&self, name: &str) -> PathBuf {
        self.root.join("back").join(self.fresh(name))
    }

    /// The directories from which so many clients take what is theirs, of the large file's size
    /// altogether.
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

    /// Does work in a process for each; gives the seconds that it took: of one, as it says, of
    /// several, from when all were ready until all have ended.
    pub(super) fn work(&self, all: &[Work]) -> Outcome<f64> {
        let failed = Failure::system("the gate of the processes");
        let gate = self.logs.fresh();
        let gate = Gate::closed(gate).map_err(failed)?;
        let (mut running, mut answers) = (Vec::new(), Vec::new());
        for work in all {
            let text = serde_json::to_string(work).map_err(Failure::system("writing JSON"))?;
            let out = self.logs.fresh();
            let mut command = process::ourselves(&[SUBCOMMAND, &text]);
            command.arg(&gate.path);
            running.push(self.logs.start(command, Some(&out))?);
            answers.push(out);
        }
        let took = self.through(gate, running, &answers);
        let said: Vec<_> = answers.iter().map(fs::read_to_string).collect();
        answers.iter().for_each(|path| scratch::remove(path));
        match (took?, said.as_slice()) {
            (_, [Ok(one)]) => {
                let seconds = one.trim_start_matches(work::READY).trim().parse();
                seconds.map_err(Failure::system("what a process said"))
            }
            (took, _) => Ok(took),
        }
    }

    /// Opens the gate when all are ready, and waits until they have ended.
    fn through(&self, gate: Gate, mut running: Vec<Running>, answers: &[PathBuf]) -> Outcome<f64> {
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
        drop(gate);
        process::wait_all(running, begin, self.patience)
    }

    /// Waits until so many entries are in a directory of the export.
    pub(super) fn until_there(&self, directory: &Path, count: usize) -> Outcome {
        let begin = Instant::now();
        while fs::read_dir(directory).map_or(0, Iterator::count) < count {
            if begin.elapsed() > self.patience {
                let text = format!("not all of {count} files came to the server");
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

/// Gives a file another name, in a directory that may not be there yet.
fn link(there: &Path, here: &Path) -> Outcome {
    here.parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::hard_link(there, here))
        .map_err(|error| Failure::file("linking", here, &error))
}

/// The numbers of what one of several clients has, of so many.
pub(super) fn share(all: usize, client: usize, clients: usize) -> std::ops::Range<usize> {
    all * client / clients..all * (client + 1) / clients
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn all_is_shared_out() {
        for clients in [1, 3, 32] {
            let found: Vec<usize> = (0..clients).flat_map(|at| share(100, at, clients)).collect();
            assert_eq!(found, (0..100).collect::<Vec<_>>());
        }
    }
}

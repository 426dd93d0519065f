//! Where it all happens: a private directory with what is exported, what comes back, and mounts; and
//! how a command or a piece of work is run there.

use super::{
    contender::Site,
    process::{self, Logs},
    sample,
    work::{SUBCOMMAND, Work},
};
use crate::{
    exit::{Failure, Outcome},
    output,
    scratch::{self, Scratch},
};
use std::{
    cell::Cell as Counter,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

/// How many times the large file must have room, for copies that are there at a time.
const COPIES: u64 = 5;

/// The least that a small file takes on a disk, with its name.
const SMALL_FILE: u64 = 20 << 10;

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
            return Err(Failure::new(crate::exit::Code::Failed, text)
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

    /// Makes what is going to be moved.
    pub(super) fn fill(&self) -> Outcome {
        let block = sample::LONGEST;
        let (path, bytes) = (self.large(), self.sizes.large);
        self.work(&[Work::Write { path, bytes, block, sync: false }])?;
        let (path, bytes) = (self.medium(), self.sizes.medium);
        self.work(&[Work::Write { path, bytes, block, sync: false }])?;
        let (directory, end) = (self.tree(), self.sizes.files);
        self.work(&[Work::CreateFiles { directory, first: 0, end }])?;
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
    /// altogether. Made when they are needed first.
    pub(super) fn parts(&self, clients: usize) -> Outcome<Vec<PathBuf>> {
        let all = PARTS.max(self.sizes.clients.iter().copied().max().unwrap_or(1));
        let whole = self.export().join("parts-1/0");
        let part = |number: usize| format!("part-{number:04}");
        if !whole.exists() {
            self.made(whole.clone())?;
            let bytes = (self.sizes.large / all as u64).max(1);
            for number in 0..all {
                let (path, block) = (whole.join(part(number)), sample::LONGEST);
                self.work(&[Work::Write { path, bytes, block, sync: false }])?;
            }
        }
        let linked = |directory: &Path, client: usize| {
            let of_client = (client..all).step_by(clients);
            of_client
                .map(|number| (whole.join(part(number)), directory.join(part(number))))
                .collect()
        };
        self.shared("parts", clients, linked)
    }

    /// The same for the small files.
    pub(super) fn trees(&self, clients: usize) -> Outcome<Vec<PathBuf>> {
        let linked = |directory: &Path, client: usize| {
            let of_client = share(self.sizes.files, client, clients).map(sample::small);
            of_client
                .map(|small| (self.tree().join(&small.path), directory.join(small.path)))
                .collect()
        };
        self.shared("trees", clients, linked)
    }

    /// Directories for so many clients, with links to files that are there.
    fn shared(
        &self,
        name: &str,
        clients: usize,
        linked: impl Fn(&Path, usize) -> Vec<(PathBuf, PathBuf)>,
    ) -> Outcome<Vec<PathBuf>> {
        let root = self.export().join(format!("{name}-{clients}"));
        let directories: Vec<PathBuf> = (0..clients).map(|at| root.join(at.to_string())).collect();
        for (client, directory) in directories.iter().enumerate() {
            if directory.exists() {
                continue;
            }
            self.made(directory.clone())?;
            for (there, here) in linked(directory, client) {
                here.parent()
                    .map_or(Ok(()), fs::create_dir_all)
                    .and_then(|()| fs::hard_link(&there, &here))
                    .map_err(|error| Failure::file("linking", &here, &error))?;
            }
            process::pause(Duration::ZERO)?;
        }
        Ok(directories)
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
    /// several, until all have ended.
    pub(super) fn work(&self, all: &[Work]) -> Outcome<f64> {
        let (mut running, mut answers) = (Vec::new(), Vec::new());
        let begin = Instant::now();
        for work in all {
            let text = serde_json::to_string(work).map_err(Failure::system("writing JSON"))?;
            let out = self.logs.fresh();
            running.push(self.logs.start(process::ourselves(&[SUBCOMMAND, &text]), Some(&out))?);
            answers.push(out);
        }
        let took = process::wait_all(running, begin, self.patience);
        let said: Vec<_> = answers.iter().map(fs::read_to_string).collect();
        answers.iter().for_each(|path| scratch::remove(path));
        match (took?, said.as_slice()) {
            (_, [Ok(one)]) => one.trim().parse().map_err(Failure::system("what a process said")),
            (took, _) => Ok(took),
        }
    }

    /// Fails unless a copy is the same as its original.
    pub(super) fn compare(&self, original: &Path, copy: &Path) -> Outcome {
        let (original, copy) = (original.to_owned(), copy.to_owned());
        self.work(&[Work::Compare { original, copy }]).map(drop)
    }
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

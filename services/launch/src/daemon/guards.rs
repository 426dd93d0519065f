//! The guards of a daemon: one at a time, and another one where that is ended.

use super::{guard::Guard, sweep};
use rustix::process::Pid;
use std::{io, os::unix::net::UnixStream, path::PathBuf, sync::Arc};

/// Guards that are started, one after the other was ended.
const MAX_GUARDS: u32 = 16;

#[derive(Debug)]
pub(super) struct Guards {
    /// The program that this is, to start others of.
    own: PathBuf,
    /// What processes of this node have in their environment, by which a guard finds them.
    mark: String,
    /// What a guard removes.
    directories: Vec<PathBuf>,
    guard: Option<Guard>,
    /// How many there have been after the first.
    replaced: u32,
}

impl Guards {
    pub(super) fn new() -> io::Result<Guards> {
        Ok(Guards {
            own: std::env::current_exe()?,
            mark: sweep::mark(),
            directories: Vec::new(),
            guard: None,
            replaced: 0,
        })
    }

    pub(super) fn mark(&self) -> &str {
        &self.mark
    }

    /// Starts the first one, which removes these directories in the end.
    pub(super) fn start(&mut self, directories: Vec<PathBuf>) -> io::Result<()> {
        self.directories = directories;
        self.start_one()
    }

    fn start_one(&mut self) -> io::Result<()> {
        let directories = self.directories.iter().map(PathBuf::as_path);
        self.guard = Some(Guard::start(&self.own, &self.mark, directories)?);
        Ok(())
    }

    /// The guard was ended: starts another one, which learns of the processes that run.
    pub(super) fn replace(&mut self, running: impl Iterator<Item = Pid>) -> io::Result<()> {
        self.guard = None;
        self.replaced += 1;
        if self.replaced > MAX_GUARDS {
            return Ok(());
        }
        self.start_one()?;
        if let Some(guard) = &self.guard {
            running.for_each(|pid| guard.runs(pid));
        }
        Ok(())
    }

    /// The guard that there is, which is ready when it has ended.
    pub(super) fn watched(&self) -> Option<&Guard> {
        self.guard.as_ref()
    }

    /// Where processes that begin make themselves known.
    pub(super) fn socket(&self) -> Option<Arc<UnixStream>> {
        self.guard.as_ref().map(Guard::socket)
    }

    /// A process has ended, so that its number is about to be another's.
    pub(super) fn process_ended(&self, pid: Pid) {
        self.guard.iter().for_each(|guard| guard.ended(pid));
    }

    /// Whether this process is the guard.
    pub(super) fn is(&self, pid: Pid) -> bool {
        self.guard.as_ref().is_some_and(|guard| guard.pid() == Some(pid))
    }

    /// The daemon has ended the processes of the job; `nothing_left`: and all that these have left
    /// behind.
    pub(super) fn finish(&self, nothing_left: bool) {
        match &self.guard {
            Some(guard) if nothing_left => guard.nothing_is_left(),
            // It sees to the rest when it ends, which is waited for.
            Some(_) => {}
            // There has been one, and its successors were killed.
            None if self.replaced > 0 && !nothing_left => drop(sweep::sweep(&self.mark)),
            None => {}
        }
    }

    /// Ends the guard, and waits for that.
    pub(super) fn end(&mut self) {
        self.guard = None;
    }
}

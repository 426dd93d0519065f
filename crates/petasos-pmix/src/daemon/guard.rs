//! A process beside each daemon that outlives it, however it dies: it ends what the daemon started,
//! and removes what it left. It learns by the end of its standard input that the daemon is gone.

use rustix::process::{Pid, Signal, kill_process_group, setsid};
use std::{
    collections::BTreeSet,
    io::{self, BufRead, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
};

/// The word on the command line that makes a process the guard.
pub const GUARD: &str = "pmix-guard";

/// The daemon's end.
#[derive(Debug)]
pub(crate) struct Guard {
    child: Child,
    input: Option<ChildStdin>,
}

impl Guard {
    /// Starts it; it removes this directory in the end.
    pub(crate) fn start(own: &Path, directory: &Path) -> io::Result<Guard> {
        let mut command = Command::new(own);
        command.arg(GUARD).arg(directory).stdin(Stdio::piped());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn()?;
        let input = child.stdin.take();
        Ok(Guard { child, input })
    }

    fn tell(&mut self, word: &str, pid: Pid) {
        if let Some(input) = &mut self.input {
            // Without a guard the job goes on.
            let _ = writeln!(input, "{word} {}", pid.as_raw_nonzero());
        }
    }

    /// A process, and whatever it starts, is to be ended with the daemon.
    pub(crate) fn add(&mut self, pid: Pid) {
        self.tell("add", pid);
    }

    /// It has ended, and its number is not its own any more.
    pub(crate) fn remove(&mut self, pid: Pid) {
        self.tell("del", pid);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}

/// What the guard does.
pub fn run(directory: Option<PathBuf>) {
    // The terminal's signals are for the daemon.
    let _ = setsid();
    let mut groups = BTreeSet::new();
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        let Some((word, number)) = line.split_once(' ') else { continue };
        let Ok(number) = number.parse::<i32>() else { continue };
        match word {
            "add" => groups.insert(number),
            _ => groups.remove(&number),
        };
    }
    for group in groups.into_iter().filter_map(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    if let Some(directory) = directory {
        super::place::remove(&directory);
    }
}

//! What is left of a job's processes on a node, found by a mark in their environments: for the
//! guard of a daemon that was killed, as the processes that it adopted are children of another
//! process by then.
//!
//! A process with another environment is not found, nor one that runs as another user. One is
//! looked at only while a descriptor of it is held, so that none is ended that has got its number.

use petasos_pmix::server::{hex, random};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};
use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// The variable: the marks of all daemons below which a process runs, with a space between them.
pub(crate) const MARKS: &str = "PETASOS_JOB_MARKS";
/// How long it may take until all that is killed is gone.
const PATIENCE: Duration = Duration::from_secs(10);
/// Before it is looked again: a process that becomes a program has no environment for a moment.
const PAUSE: Duration = Duration::from_millis(5);
/// After so many looks that find none, none is left.
const QUIET: u32 = 2;
/// And after so many where a process shows no environment at all.
const DOUBTFUL: u32 = 6;

/// A mark that no other daemon has.
pub(crate) fn mark() -> String {
    hex(&random()[..8])
}

/// The mark, with those that this process has itself.
pub(crate) fn marks(own: &str, before: Option<OsString>) -> OsString {
    let mut all = before.unwrap_or_default();
    if !all.is_empty() {
        all.push(" ");
    }
    all.push(own);
    all
}

/// What can be seen of a process's environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Marked,
    Other,
    /// It has none, or is just about to get one.
    Nothing,
}

fn look(process: &Path, variable: &str, mark: &str) -> Seen {
    let Ok(environment) = fs::read(process.join("environ")) else { return Seen::Other };
    if environment.is_empty() {
        // Nothing of the kernel, and nothing that has ended, runs a file.
        let runs = fs::read_link(process.join("exe")).is_ok();
        return if runs { Seen::Nothing } else { Seen::Other };
    }
    let value = environment
        .split(|byte| *byte == 0)
        .find_map(|line| line.strip_prefix(variable.as_bytes())?.strip_prefix(b"="));
    let marked = value
        .is_some_and(|value| value.split(|byte| *byte == b' ').any(|one| one == mark.as_bytes()));
    if marked { Seen::Marked } else { Seen::Other }
}

/// Whether a child of this process has this mark.
pub(super) fn has(child: Pid, variable: &str, mark: &str) -> bool {
    let process = PathBuf::from(format!("/proc/{}", child.as_raw_nonzero()));
    look(&process, variable, mark) == Seen::Marked
}

/// Ends all processes of this user with this mark, and those that they start meanwhile. Says
/// whether none is left.
pub(crate) fn sweep(mark: &str) -> bool {
    let until = Instant::now() + PATIENCE;
    let (mut quiet, mut wanted) = (0, QUIET);
    while quiet < wanted {
        if Instant::now() >= until {
            return false;
        }
        let Ok((found, doubtful)) = pass(mark) else { return false };
        (quiet, wanted) = match (found, doubtful) {
            (true, _) => (0, QUIET),
            (false, true) => (quiet + 1, DOUBTFUL),
            (false, false) => (quiet + 1, wanted),
        };
        if quiet < wanted {
            thread::sleep(PAUSE);
        }
    }
    true
}

/// Looks at each process once; says whether one was ended, and whether one shows nothing.
fn pass(mark: &str) -> std::io::Result<(bool, bool)> {
    let (own, user) = (getpid(), rustix::process::geteuid().as_raw());
    let (mut found, mut doubtful) = (false, false);
    for entry in fs::read_dir("/proc")?.flatten() {
        let Some(pid) = number(&entry.file_name()) else { continue };
        let path = entry.path();
        if pid == own || fs::metadata(&path).map_or(true, |found| found.uid() != user) {
            continue;
        }
        match look(&path, MARKS, mark) {
            Seen::Other => {}
            Seen::Nothing => doubtful = true,
            Seen::Marked => {
                // It may have ended, and another one have its number now.
                let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
                if look(&path, MARKS, mark) == Seen::Marked {
                    found |= pidfd_send_signal(&process, Signal::KILL).is_ok();
                }
            }
        }
    }
    Ok((found, doubtful))
}

fn number(name: &OsStr) -> Option<Pid> {
    Pid::from_raw(std::str::from_utf8(name.as_bytes()).ok()?.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn sleeper(environment: &[(&str, &str)]) -> Child {
        let mut command = Command::new("sleep");
        command.arg("1000").env_clear().envs(environment.iter().copied());
        command.spawn().unwrap()
    }

    #[test]
    fn who_has_the_mark_ends_and_nobody_else() {
        let (one, other) = (mark(), mark());
        assert_ne!(one, other);
        let both = marks(&one, Some(OsString::from(&other)));
        let both = both.to_str().unwrap();
        let mut marked = [&[(MARKS, &*one)][..], &[("A", "b"), (MARKS, both)]].map(sleeper);
        let longer = format!("{one}1");
        let mut others = [
            &[(MARKS, &*other)][..],
            &[(MARKS, &longer)],
            &[("NOT_PETASOS_JOB_MARKS", &one)],
            &[("A", &one)],
        ]
        .map(sleeper);
        assert!(sweep(&one));
        for child in &mut marked {
            use std::os::unix::process::ExitStatusExt;
            assert_eq!(child.wait().unwrap().signal(), Some(9));
        }
        for child in &mut others {
            assert!(child.try_wait().unwrap().is_none());
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    #[test]
    fn who_starts_others_all_the_time_ends_with_them() {
        let mark = mark();
        // They end by themselves, should this test not end them.
        let script = "i=0; while [ $i -lt 1000 ]; do sleep 5 & i=$((i + 1)); done; wait";
        let mut command = Command::new("setsid");
        let mut child = command.args(["sh", "-c", script]).env(MARKS, &mark).spawn().unwrap();
        thread::sleep(Duration::from_millis(100));
        assert!(sweep(&mark));
        child.wait().unwrap();
        let left = fs::read_dir("/proc").unwrap().flatten();
        assert!(!left.map(|at| at.path()).any(|at| look(&at, MARKS, &mark) == Seen::Marked));
    }
}

//! What ranks leave behind comes to the daemon, which ends it with the job: a process that leaves
//! session, group and parent, as a process does that makes a daemon of itself, becomes a child of
//! this one (`PR_SET_CHILD_SUBREAPER`). So when it has no children any more but those of its own
//! (the guard, the start commands of other hosts), nothing of the job is left, whatever became of
//! environments and names.
//!
//! A program that has children of its own when it runs a job does not take in others, for it could
//! not tell them apart: there the guard finds what is left by its mark ([`sweep`](super::sweep)).

use super::{Daemon, GUARD, sweep};
use nix::{
    errno::Errno,
    sys::{
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
        wait::{Id, WaitPidFlag, WaitStatus, waitid},
    },
};
use rustix::process::{
    Pid, Signal as Kill, WaitOptions, getpgid, getpgrp, getpid, kill_process, set_child_subreaper,
    waitpid,
};
use std::{
    ffi::OsStr,
    fs,
    os::fd::{AsFd, BorrowedFd},
    thread,
    time::{Duration, Instant},
};

/// What start commands have in their environment, with the mark of the daemon that starts them:
/// what one leaves behind, as ssh does with a connection that it shares, is not the job's.
pub(crate) const STARTED_BY: &str = "PETASOS_JOB_STARTED_BY";
/// How long it may take until all that was killed is gone.
const PATIENCE: Duration = Duration::from_secs(5);
/// Before it is looked again for what is left.
const PAUSE: Duration = Duration::from_micros(500);

/// Processes that become this one's children.
#[derive(Debug)]
pub(crate) struct Subreaper {
    /// Tells that a child has ended; `None`: none is taken in.
    ends: Option<SignalFd>,
    /// The signal by which it does was blocked before.
    was_blocked: bool,
    /// Some may have ended.
    ended: bool,
}

impl Subreaper {
    /// Takes in what the ranks of a job will leave behind, where this process has no children yet.
    pub(crate) fn begin() -> Subreaper {
        let before = SigSet::thread_get_mask();
        let was_blocked = before.is_ok_and(|before| before.contains(Signal::SIGCHLD));
        let mut subreaper = Subreaper { ends: None, was_blocked, ended: false };
        if !matches!(next_ended(), Err(Errno::ECHILD)) {
            return subreaper;
        }
        let ends = ends();
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let Ok(socket) = SignalFd::with_flags(&ends, flags) else { return subreaper };
        if ends.thread_block().is_ok() && set_child_subreaper(Some(getpid())).is_ok() {
            subreaper.ends = Some(socket);
        }
        subreaper
    }

    /// Ready when a child has ended.
    pub(crate) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.ends.as_ref().map(AsFd::as_fd)
    }

    /// It was ready.
    pub(crate) fn hear(&mut self) {
        if let Some(ends) = &self.ends {
            // Several are told of at once.
            while matches!(ends.read_signal(), Ok(Some(_))) {}
        }
        self.ended = true;
    }

    /// What was taken in and has ended leaves the system's list of processes.
    fn reap(&mut self, is_own: impl Fn(Pid) -> bool) {
        while self.ended {
            let next = next_ended().ok().flatten();
            // Of those of its own the daemon hears by itself; then it looks again.
            if next.is_some_and(&is_own) {
                return;
            }
            self.ended = next.is_some();
            if next.is_some() {
                let _ = waitpid(next, WaitOptions::NOHANG);
            }
        }
    }

    /// Ends all that was taken in, and is to be ended. Says whether nothing of the job is left.
    fn end_all(&mut self, is_own: impl Fn(Pid) -> bool, is_ours: impl Fn(Pid) -> bool) -> bool {
        if self.ends.is_none() {
            return false;
        }
        let until = Instant::now() + PATIENCE;
        loop {
            // Processes that have ended have left their children to this one by now.
            let Some(children) = children() else { return false };
            let left: Vec<Pid> =
                children.into_iter().filter(|pid| !is_own(*pid) && is_ours(*pid)).collect();
            if left.is_empty() {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            let patient = Instant::now() + PATIENCE / 2 < until;
            for pid in left {
                // A guard of a job within this one has just lost its daemon, and cleans up.
                if !(patient && is_guard(pid)) {
                    // It is not waited for yet, so that its number still is its own.
                    let _ = kill_process(pid, Kill::KILL);
                }
                let _ = waitpid(Some(pid), WaitOptions::NOHANG);
            }
            thread::sleep(PAUSE);
        }
    }
}

impl Drop for Subreaper {
    fn drop(&mut self) {
        if self.ends.is_some() {
            let _ = set_child_subreaper(None);
            if !self.was_blocked {
                // Others that were blocked meanwhile stay so: this process may have work to do
                // still.
                let _ = ends().thread_unblock();
            }
        }
    }
}

/// The signal that tells of the end of a child.
fn ends() -> SigSet {
    let mut ends = SigSet::empty();
    ends.add(Signal::SIGCHLD);
    ends
}

fn is_guard(pid: Pid) -> bool {
    let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
    line.split(|byte| *byte == 0).nth(1) == Some(GUARD.as_bytes())
}

/// A child that has ended, and is not waited for yet.
fn next_ended() -> Result<Option<Pid>, Errno> {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let found: WaitStatus = waitid(Id::All, flags)?;
    Ok(found.pid().and_then(|pid| Pid::from_raw(pid.as_raw())))
}

/// The children of this process, of all its threads. `None`: the system does not say.
fn children() -> Option<Vec<Pid>> {
    let mut found = Vec::new();
    for task in fs::read_dir("/proc/self/task").ok()?.flatten() {
        let said = fs::read_to_string(task.path().join("children"));
        // A thread may have ended just now; it has left its children to another one.
        let Ok(said) = said else {
            if task.path().exists() {
                return None;
            }
            continue;
        };
        found.extend(said.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)));
    }
    Some(found)
}

impl Daemon {
    /// Whether it was started to be a child of this process.
    fn is_own(&self, pid: Pid) -> bool {
        self.guards.is(pid)
            || self.is_start_command(pid)
            || self.ranks.all_running().any(|running| running == pid)
            // What a plug-in has started: ranks, and what they leave behind, are in other groups.
            || getpgid(Some(pid)).is_ok_and(|group| group == getpgrp())
    }

    pub(super) fn reap_adopted(&mut self) {
        let mut subreaper = std::mem::take(&mut self.subreaper);
        if let Some(subreaper) = &mut subreaper {
            subreaper.reap(|pid| self.is_own(pid));
        }
        self.subreaper = subreaper;
    }

    /// In the end, when no rank is left: ends what they have left behind. Says whether nothing is
    /// left of it.
    pub(super) fn end_adopted(&mut self) -> bool {
        let Some(mut subreaper) = self.subreaper.take() else { return false };
        let ours = |pid| !sweep::has(pid, STARTED_BY, self.guards.mark());
        subreaper.end_all(|pid| self.is_own(pid), ours)
    }

    /// What a start command has in its environment besides.
    pub(super) fn started_by(&self) -> (&OsStr, &OsStr) {
        (STARTED_BY.as_ref(), self.guards.mark().as_ref())
    }
}

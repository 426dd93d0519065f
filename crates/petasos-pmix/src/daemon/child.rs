//! The first moments of a rank, between fork and exec: what only the process itself can do.
//!
//! It asks the kernel to end it with the daemon, and makes itself known to the guard, both before the
//! program runs: so there is no moment at which the death of the daemon leaves it, or what it started,
//! behind. The standard library runs something there only by an unsafe call, the one of this crate.

#![allow(unsafe_code)]

use super::guard::{Word, tell};
use rustix::{
    io::{Errno, FdFlags, fcntl_setfd},
    process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal},
    thread::{CpuSet, sched_setaffinity},
};
use std::{
    io,
    os::{
        fd::OwnedFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    process::Command,
    sync::Arc,
};

/// What a rank does before it becomes the program.
#[derive(Debug)]
pub(crate) struct First {
    /// Who starts it.
    pub(crate) daemon: Pid,
    pub(crate) guard: Option<Arc<UnixStream>>,
    /// Where it runs, if not anywhere.
    pub(crate) cores: Option<CpuSet>,
    /// A connection that the program inherits, by the same number.
    pub(crate) inherited: Option<OwnedFd>,
}

impl First {
    /// Has it done by the processes that this command starts, in a process group of their own.
    pub(crate) fn done_by(self, command: &mut Command) {
        command.process_group(0);
        // SAFETY: the closure runs in a copy of this process that has one thread, while locks may be held
        // for ever by threads that were not copied. So it may only do what is safe in a signal handler.
        // `First::run` makes system calls by rustix, which for each of these are the bare call (or libc's
        // wrapper of it, all of them async-signal-safe but `prctl` and `sched_setaffinity`, which are bare
        // calls in every libc). Nothing there allocates, frees, locks, panics or looks at the environment:
        // arguments and results are plain values, an error is only its number, and what the closure has
        // captured is read and not dropped, as the process ends by exec or `_exit`. Memory that
        // is shared with the daemon is not touched, and no descriptor is made or closed.
        unsafe { command.pre_exec(move || self.run()) };
    }

    /// In the new process.
    fn run(&self) -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // The daemon may have died before the kernel was asked.
        if getppid() != Some(self.daemon) {
            return Err(Errno::SRCH.into());
        }
        if let Some(guard) = &self.guard {
            // Without a guard the job goes on.
            let _ = tell(guard, Word::Begins, getpid());
        }
        if let Some(cores) = &self.cores {
            // It may have been taken from this process just now.
            let _ = sched_setaffinity(None, cores);
        }
        if let Some(inherited) = &self.inherited {
            fcntl_setfd(inherited, FdFlags::empty())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::sched_getaffinity;
    use std::{
        io::{Read, Write},
        os::fd::AsRawFd,
        process::Stdio,
    };

    /// What a shell says that is started so, and what the guard has heard until its end.
    fn started(
        mut first: First,
        script: impl FnOnce(i32) -> String,
    ) -> (io::Result<String>, Vec<u8>) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        first.guard = Some(Arc::new(ours));
        let number = first.inherited.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let mut command = Command::new("sh");
        command.args(["-c", &script(number)]).stdout(Stdio::piped());
        first.done_by(&mut command);
        let said = command.spawn().map(|child| {
            let output = child.wait_with_output().unwrap();
            String::from_utf8(output.stdout).unwrap()
        });
        drop(command);
        let mut heard = Vec::new();
        theirs.read_to_end(&mut heard).unwrap();
        (said, heard)
    }

    fn first() -> First {
        First { daemon: getpid(), guard: None, cores: None, inherited: None }
    }

    #[test]
    fn it_is_known_before_it_runs_in_a_group_of_its_own() {
        // The sixth field is after the name, which has no spaces: the group.
        let script =
            |_| "read pid name state parent group rest < /proc/$$/stat; echo $$ $group".into();
        let (said, heard) = started(first(), script);
        let said = said.unwrap();
        let (pid, group) = said.trim().split_once(' ').unwrap();
        assert_eq!(pid, group);
        let pid: i32 = pid.parse().unwrap();
        assert_eq!(heard, [&[Word::Begins as u8, 0, 0, 0][..], &pid.to_le_bytes()].concat());
    }

    #[test]
    fn where_its_daemon_is_gone_it_is_no_program() {
        let daemon = Pid::INIT;
        let (said, heard) = started(First { daemon, ..first() }, |_| "echo ran".into());
        assert_eq!(said.unwrap_err().raw_os_error(), Some(Errno::SRCH.raw_os_error()));
        assert_eq!(heard, []);
    }

    #[test]
    fn it_keeps_to_its_core_and_inherits_what_it_is_to() {
        let allowed = sched_getaffinity(None).unwrap();
        let last = (0..CpuSet::MAX_CPU).rfind(|core| allowed.is_set(*core)).unwrap();
        let mut cores = CpuSet::new();
        cores.set(last);
        let (theirs, mut ours) = io::pipe().unwrap();
        writeln!(ours, "a word").unwrap();
        drop(ours);
        let first = First { cores: Some(cores), inherited: Some(theirs.into()), ..first() };
        let (said, _) = started(first, |number| {
            format!("grep Cpus_allowed_list /proc/self/status; cat /proc/self/fd/{number}")
        });
        assert_eq!(said.unwrap(), format!("Cpus_allowed_list:\t{last}\na word\n"));
    }
}

//! How a process begins: what it does itself before it becomes its program.
//!
//! It asks the kernel to end it with the daemon, and makes itself known to the guard, both before
//! the program runs: so there is no moment at which the death of the daemon leaves it, or what it
//! started, behind.
//!
//! Until it becomes the program it shares the memory of the daemon, of which only the thread that
//! starts it stands still meanwhile, as with `vfork` and `posix_spawn`. The standard library starts
//! processes so only if there is nothing to be done in them; otherwise it copies the daemon's page
//! tables for each, and both sides then take a fault at each page that they write. No safe call
//! does without that, and here are the only unsafe ones of this crate.

#![allow(unsafe_code)]

use super::{
    guard::{Word, tell},
    image::{Image, Pointers},
    stack::Stack,
};
use nix::{
    libc,
    sched::{CloneCb, CloneFlags, clone},
    sys::signal::{SigSet, SigmaskHow},
};
use rustix::{
    io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd, retry_on_intr},
    process::{
        Pid, PidfdFlags, Resource, Rlimit, Signal, WaitOptions, chdir, getpid, getppid, pidfd_open,
        set_parent_process_death_signal, setpgid, setrlimit, setsid, waitpid,
    },
    stdio::{dup2_stderr, dup2_stdin, dup2_stdout},
    thread::{CpuSet, sched_setaffinity},
};
use std::{
    convert::Infallible,
    ffi::{CStr, CString, c_char},
    fs::File,
    io::{self, PipeReader, PipeWriter},
    mem,
    os::{
        fd::{AsRawFd, BorrowedFd, OwnedFd},
        unix::{net::UnixStream, process::ExitStatusExt},
    },
    process::ExitStatus,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
};

/// What a process does before it becomes its program.
#[derive(Debug)]
pub(crate) struct First {
    /// The process that starts it.
    pub(crate) daemon: Pid,
    /// Whether the kernel ends it with that one.
    pub(crate) ends: bool,
    pub(crate) guard: Option<Arc<UnixStream>>,
    /// Where it runs, if not anywhere.
    pub(crate) cores: Option<CpuSet>,
    /// Whether it has a session of its own, and not only a group: the scheduler then gives it a
    /// share of its own, where many compete for the processors (`sched_autogroup_enabled`). It has
    /// no terminal then.
    pub(crate) session: bool,
    /// Its limit on open files, if not that of this process.
    pub(crate) files: Option<Rlimit>,
    /// A connection that the program inherits, by the same number.
    pub(crate) inherited: Option<OwnedFd>,
}

impl First {
    /// In the new process.
    fn run(&self) -> Result<(), Errno> {
        // In a group of its own, which has its number, either way.
        match self.session {
            true => drop(setsid()?),
            false => setpgid(None, None)?,
        }
        if self.ends {
            set_parent_process_death_signal(Some(Signal::KILL))?;
        }
        // The daemon may have died before the kernel was asked.
        if getppid() != Some(self.daemon) {
            return Err(Errno::SRCH);
        }
        if let Some(guard) = &self.guard {
            // Without a guard the job goes on.
            let _ = tell(guard, Word::Begins, getpid());
        }
        if let Some(cores) = &self.cores {
            // It may have been taken from this process just now.
            let _ = sched_setaffinity(None, cores);
        }
        if let Some(files) = &self.files {
            // It was this process's own: it may have it.
            setrlimit(Resource::Nofile, *files)?;
        }
        if let Some(inherited) = &self.inherited {
            fcntl_setfd(inherited, FdFlags::empty())?;
        }
        Ok(())
    }
}

/// Whether this process has a terminal. Those in another group that read from it, or change it, are
/// stopped, and no process would ever resume them: programs that ask for it (a shell that is to be
/// interactive) are better off without.
pub(crate) fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// What a process has as its standard streams: where there is none, this process's own. None of
/// them is one of this process's standard streams itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Streams<'a> {
    pub(crate) input: Option<BorrowedFd<'a>>,
    pub(crate) output: Option<BorrowedFd<'a>>,
    pub(crate) errors: Option<BorrowedFd<'a>>,
}

/// A process that this one has started.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
}

impl Process {
    /// Waits for its end, after which its number is not its own any more.
    pub(crate) fn wait(&self) -> io::Result<ExitStatus> {
        self.wait_with(WaitOptions::empty())?.ok_or_else(|| Errno::CHILD.into())
    }

    /// How it ended, if it has.
    pub(crate) fn try_wait(&self) -> io::Result<Option<ExitStatus>> {
        self.wait_with(WaitOptions::NOHANG)
    }

    fn wait_with(&self, options: WaitOptions) -> io::Result<Option<ExitStatus>> {
        let ended = retry_on_intr(|| waitpid(Some(self.pid), options))?;
        Ok(ended.map(|(_, status)| ExitStatus::from_raw(status.as_raw())))
    }

    /// By which its end is noticed.
    pub(crate) fn pidfd(&self) -> io::Result<OwnedFd> {
        Ok(pidfd_open(self.pid, PidfdFlags::empty())?)
    }
}

/// A pipe for a process: neither end has the number of a standard stream.
pub(crate) fn pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let (from, to) = io::pipe()?;
    Ok((beyond_streams(from.into())?.into(), beyond_streams(to.into())?.into()))
}

/// The same, by another number if its own is that of a standard stream, as where this process has
/// none.
pub(crate) fn beyond_streams(fd: OwnedFd) -> io::Result<OwnedFd> {
    match fd.as_raw_fd() {
        ..=2 => Ok(fcntl_dupfd_cloexec(fd, 3)?),
        _ => Ok(fd),
    }
}

/// Starts processes. Each ends with the thread that started it.
#[derive(Debug)]
pub(crate) struct Spawner {
    stack: Option<Stack>,
}

impl Spawner {
    pub(crate) fn new() -> Spawner {
        Spawner { stack: None }
    }

    /// A process that has done what it is to do first, and is this program, with these variables
    /// besides the image's own.
    ///
    /// # Errors
    /// If there can be no process, or it could not become the program; it is gone then.
    pub(crate) fn spawn(
        &mut self,
        image: &Image,
        variables: &[CString],
        streams: Streams<'_>,
        first: &First,
    ) -> io::Result<Process> {
        let stack = match &mut self.stack {
            Some(stack) => stack,
            none => none.insert(Stack::new()?),
        };
        let next = Next { image, pointers: image.pointers(variables), streams, first };
        let failed = AtomicI32::new(0);
        // Runs in the memory of this process, whose other threads go on, and touches nothing that
        // they may: it reads what it has captured, which no other process has, and writes `failed`
        // and its own stack. The thread-local memory is this thread's, and it writes only `errno`
        // there, on which nothing relies across this call. Its system calls are rustix's, which are
        // the bare ones (or libc's wrappers, which keep no state for these), and three of libc:
        // `sigaction`, `pthread_sigmask` and `execve`, which POSIX allows where a signal
        // interrupted anything. It does not allocate, free, lock, panic, or drop what others own.
        let begin: CloneCb<'_> = Box::new(|| {
            let Err(error) = next.begin();
            failed.store(error.raw_os_error(), Ordering::Relaxed);
            127
        });
        // What this process does at a signal is not to be done by the other one, in the same
        // memory.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        // SAFETY: the other process runs `begin` on a stack of its own, in the memory of this one,
        // while this thread stands still (`CLONE_VFORK`) until it is another program or gone; so
        // `begin`, what it borrows, and the stack live longer than that. What `begin` does is right
        // there, as said above, and the stack is large enough: the calls are few and not recursive,
        // and their largest values are a set of processors and a signal action, of less than a KiB
        // (and if it were not, the process would end at the page below, and harm nothing). No
        // signal handler runs in it: all signals are blocked until none has a handler.
        let cloned = unsafe {
            let shared = CloneFlags::CLONE_VM | CloneFlags::CLONE_VFORK;
            clone(begin, stack.bytes(), shared, Some(libc::SIGCHLD))
        };
        // A set of signals is never refused.
        let _ = before.thread_set_mask();
        let pid = Pid::from_raw(cloned?.as_raw()).ok_or(Errno::CHILD)?;
        let process = Process { pid };
        match failed.load(Ordering::Relaxed) {
            0 => Ok(process),
            number => {
                if let Some(guard) = &first.guard {
                    let _ = tell(guard, Word::Ended, pid);
                }
                process.wait()?;
                Err(io::Error::from_raw_os_error(number))
            }
        }
    }
}

/// What is left to do in the new process.
struct Next<'a> {
    image: &'a Image,
    pointers: Pointers,
    streams: Streams<'a>,
    first: &'a First,
}

impl Next<'_> {
    /// In the new process, which ends if this fails.
    fn begin(&self) -> Result<Infallible, Errno> {
        self.first.run()?;
        let Streams { input, output, errors } = self.streams;
        input.map_or(Ok(()), dup2_stdin)?;
        output.map_or(Ok(()), dup2_stdout)?;
        errors.map_or(Ok(()), dup2_stderr)?;
        self.image.directory().map_or(Ok(()), chdir)?;
        forget_handlers();
        let _ = SigSet::empty().thread_set_mask();
        let Pointers { arguments, script, environment } = &self.pointers;
        let error = execute(self.image.path(), arguments, environment);
        if error == Errno::NOEXEC {
            return Err(execute(self.image.shell(), script, environment));
        }
        Err(error)
    }
}

/// Has no signal call anything of this process; those that are ignored stay so, but for one that
/// the runtime of Rust has ignored, and that a program expects to end it.
fn forget_handlers() {
    for number in 1..=libc::SIGRTMAX() {
        // SAFETY: a signal action is plain data, of which all zeroes are a value, the default one.
        // The calls read and write those given here, which live, and otherwise refuse numbers that
        // no signal has.
        unsafe {
            let (default, mut is): (libc::sigaction, libc::sigaction) = mem::zeroed();
            if libc::sigaction(number, ptr::null(), &raw mut is) != 0 {
                continue;
            }
            let ignored = is.sa_sigaction == libc::SIG_IGN && number != libc::SIGPIPE;
            if is.sa_sigaction != libc::SIG_DFL && !ignored {
                libc::sigaction(number, &raw const default, ptr::null_mut());
            }
        }
    }
}

/// Becomes a program, or says why not. Both lists end with a null pointer.
fn execute(path: &CStr, arguments: &[*const c_char], environment: &[*const c_char]) -> Errno {
    // SAFETY: both lists come from `Image::pointers`: they end with a null pointer, and what is
    // before it points to texts of an image and of variables that `Next` and its caller hold.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    Errno::from_raw_os_error(nix::errno::Errno::last_raw())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::sched_getaffinity;
    use std::{
        collections::BTreeMap,
        ffi::OsString,
        fs,
        io::{ErrorKind, Read, Write},
        os::{fd::AsFd, unix::fs::PermissionsExt},
    };

    fn environment() -> BTreeMap<OsString, OsString> {
        std::env::vars_os().collect()
    }

    /// What a program says that is started so, and how it ends.
    fn output(words: &[&str], directory: Option<&str>, first: &First) -> io::Result<(String, i32)> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let image = Image::new(&words, &environment(), directory)?;
        let (mut out, theirs) = pipe()?;
        let streams = Streams { output: Some(theirs.as_fd()), ..Streams::default() };
        let started = Spawner::new().spawn(&image, &[c"OWN=word".into()], streams, first);
        drop(theirs);
        let mut said = String::new();
        out.read_to_string(&mut said)?;
        let status = started?.wait()?;
        Ok((said, status.code().unwrap_or(-1)))
    }

    /// What a shell says that is started so, and what the guard has heard until its end.
    fn started(
        mut first: First,
        script: impl FnOnce(i32) -> String,
    ) -> (io::Result<String>, Vec<u8>) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        first.guard = Some(Arc::new(ours));
        let number = first.inherited.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        let said = output(&["sh", "-c", &script(number)], None, &first);
        drop(first);
        let mut heard = Vec::new();
        theirs.read_to_end(&mut heard).unwrap();
        (said.map(|(said, _)| said), heard)
    }

    fn first() -> First {
        let (guard, cores, files, inherited) = (None, None, None, None);
        let (daemon, ends, session) = (getpid(), true, false);
        First { daemon, ends, guard, cores, session, files, inherited }
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
    fn in_a_session_of_its_own_it_has_no_terminal() {
        let script = |_| {
            "read pid name state parent group session rest < /proc/$$/stat; echo $$ $group $session
             (exec </dev/tty) 2>&- || echo none"
                .into()
        };
        let (said, _) = started(First { session: true, ..first() }, script);
        let said = said.unwrap();
        let mut words = said.split_whitespace();
        let pid = words.next();
        assert_eq!([words.next(), words.next(), words.next()], [pid, pid, Some("none")], "{said}");
    }

    #[test]
    fn where_its_daemon_is_gone_it_is_no_program() {
        let daemon = Pid::INIT;
        let (said, heard) = started(First { daemon, ..first() }, |_| "echo ran".into());
        assert_eq!(said.unwrap_err().raw_os_error(), Some(Errno::SRCH.raw_os_error()));
        // That a number is over which the guard has not heard of says nothing to it.
        assert_eq!((heard.len(), heard[0]), (8, Word::Ended as u8));
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

    #[test]
    fn it_has_its_words_its_variables_and_its_directory() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().canonicalize().unwrap();
        let script = "echo $0 $1 $OWN; pwd; exit 7";
        let words = ["sh", "-c", script, "a name", "a word"];
        let (said, code) = output(&words, directory.to_str(), &first()).unwrap();
        assert_eq!(said, format!("a name a word word\n{}\n", directory.display()));
        assert_eq!(code, 7);
    }

    #[test]
    fn a_program_without_a_format_is_a_script() {
        let place = tempfile::tempdir().unwrap();
        let program = place.path().join("script");
        fs::write(&program, "echo $1 $OWN\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let words = ["./script", "said"];
        let (said, code) = output(&words, place.path().to_str(), &first()).unwrap();
        assert_eq!((said.as_str(), code), ("said word\n", 0));
    }

    #[test]
    fn why_it_did_not_become_its_program_is_said() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("text"), "").unwrap();
        let directory = place.path().to_str();
        let why = |word, directory| output(&[word], directory, &first()).unwrap_err().kind();
        assert_eq!(why("./none", directory), ErrorKind::NotFound);
        assert_eq!(why("./text", directory), ErrorKind::PermissionDenied);
        assert_eq!(why("/bin/true", Some("/nowhere")), ErrorKind::NotFound);
    }

    /// As a shell shows it: in hexadecimal, the first signal in the lowest bit.
    #[test]
    fn its_signals_are_neither_blocked_nor_caught_nor_those_of_the_runtime() {
        let (said, _) = output(&["cat", "/proc/self/status"], None, &first()).unwrap();
        let set = |name: &str| {
            let value = said.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            u64::from_str_radix(value.trim(), 16).unwrap()
        };
        let pipe = 1 << (libc::SIGPIPE - 1);
        let found = (set("SigBlk:"), set("SigIgn:") & pipe, set("SigCgt:"));
        assert_eq!(found, (0, 0, 0), "{said}");
    }
}

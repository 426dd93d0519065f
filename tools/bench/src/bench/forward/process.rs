//! Processes of other programs and of this one: started, waited for, and ended by their numbers.
//!
//! Every wait has a deadline. A command that exceeds it is killed; a [`Daemon`] ends when it is
//! dropped, and the kernel ends it if this process dies first: it is started through this
//! executable ([`run_tied`]), which requests that signal and then executes the program.

use crate::{
    exit::{Code, Failure, Outcome},
    interrupt,
};
use rustix::process::{Pid, Signal, getppid, kill_process_group, set_parent_process_death_signal};
use std::{
    cell::Cell,
    env,
    ffi::{OsStr, OsString},
    fs::{self, File},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

/// The hidden subcommand for which `main` calls [`run_tied`].
pub(crate) const TIED: &str = "tied-process";

/// Between two polls of a process; also the resolution of its time.
const POLL_INTERVAL: Duration = Duration::from_micros(300);

/// How long a daemon may take to end by itself.
const GRACE: Duration = Duration::from_secs(3);

/// Lines of a process's errors that are quoted.
const QUOTED_LINES: usize = 3;

/// This executable, also if an upgrade has replaced its file.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// The name of this program's own processes.
const OWN_NAME: &str = "petasos";

/// The failure after Ctrl-C.
pub(super) fn interrupted() -> Failure {
    Failure::new(Code::Interrupted, "interrupted")
}

/// Sleeps for so long, or until Ctrl-C, which is a failure.
pub(super) fn pause(time: Duration) -> Outcome {
    if interrupt::wait(Some(time)) { Err(interrupted()) } else { Ok(()) }
}

/// The command `petasos`, by this executable, with these arguments.
pub(super) fn command(arguments: &[&str]) -> Command {
    let mut command = own_program(&[crate::COMMAND]);
    command.args(arguments);
    command
}

/// This executable with these arguments.
pub(super) fn own_program(arguments: &[&str]) -> Command {
    let mut command = Command::new(OWN_PROGRAM);
    command.arg0(OWN_NAME).args(arguments);
    command
}

/// The path of a program: in the directories of `PATH`, and those of administration programs.
pub(super) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from);
    env::split_paths(&path)
        .chain(usual)
        .map(|directory| directory.join(program))
        .find(|at| at.is_file())
}

/// The same; an error names the package if the program is missing.
pub(super) fn require(program: &str, package: &str) -> Outcome<PathBuf> {
    find(program).ok_or_else(|| {
        let text = format!("`{program}` is not installed; it is in the package {package}");
        Failure::new(Code::Unavailable, text)
    })
}

/// The files to which processes print.
pub(super) struct Logs {
    directory: PathBuf,
    next: Cell<u64>,
}

impl Logs {
    pub(super) fn new(directory: PathBuf) -> Logs {
        Logs { directory, next: Cell::new(0) }
    }

    /// A new file name.
    pub(super) fn fresh(&self) -> PathBuf {
        let at = self.next.replace(self.next.get() + 1);
        self.directory.join(at.to_string())
    }

    /// Starts a command: what it prints goes to `out`, or nowhere.
    pub(super) fn start(&self, mut command: Command, out: Option<&Path>) -> Outcome<Running> {
        let what = name_of(&command);
        let failed = |error| Failure::new(Code::Failed, format!("starting {what}: {error}"));
        let log = self.fresh();
        let errors = File::create(&log).map_err(failed)?;
        let out = match out {
            Some(path) => Stdio::from(File::create(path).map_err(failed)?),
            None => Stdio::null(),
        };
        // A process group of its own: all processes that it starts end with it.
        command.stdin(Stdio::null()).stdout(out).stderr(errors).process_group(0);
        let child = command.spawn().map_err(failed)?;
        Ok(Running { child, what, log, ended: false })
    }

    /// Starts a program that runs until it gets SIGTERM. Its output is kept as well.
    pub(super) fn daemon(&self, command: &Command) -> Outcome<Daemon> {
        let mut tied = own_program(&[TIED, &std::process::id().to_string()]);
        tied.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => tied.env(name, value),
                None => tied.env_remove(name),
            };
        }
        let out = self.fresh();
        let mut running = self.start(tied, Some(&out))?;
        running.what = name_of(command);
        Ok(Daemon { running, out })
    }
}

/// The last part of a program's path; of this program, with its subcommand.
fn name_of(command: &Command) -> String {
    if command.get_program() == OWN_PROGRAM {
        let word =
            |word: &&OsStr| word.as_encoded_bytes().first().is_some_and(u8::is_ascii_lowercase);
        let words = command.get_args().take_while(word).take(2);
        let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
        return format!("{OWN_NAME} {}", words.join(" "));
    }
    let program = Path::new(command.get_program());
    program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned()
}

/// A process, killed when dropped.
pub(super) struct Running {
    child: Child,
    what: String,
    log: PathBuf,
    ended: bool,
}

impl Running {
    /// Whether it has ended with success; else a failure.
    pub(super) fn ended(&mut self) -> Outcome<bool> {
        match self.status()? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) => {
                // The exit codes of this program are known.
                let wrong = status.code() == Some(Code::Mismatch as i32);
                let wrong = wrong && self.what.starts_with(OWN_NAME);
                let failure = self.failed(format!("ended with {status}"));
                Err(if wrong { Failure::new(Code::Mismatch, failure) } else { failure })
            }
        }
    }

    fn status(&mut self) -> Outcome<Option<ExitStatus>> {
        let status = self.child.try_wait().map_err(Failure::system("waiting for a process"))?;
        self.ended |= status.is_some();
        Ok(status)
    }

    /// A failure of this process, with its last lines.
    fn failed(&self, how: impl std::fmt::Display) -> Failure {
        let said = fs::read(&self.log).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let lines: Vec<&str> =
            said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let last = lines[lines.len().saturating_sub(QUOTED_LINES)..].join("; ");
        let colon = if last.is_empty() { "" } else { ": " };
        Failure::new(Code::Failed, format!("{} {how}{colon}{last}", self.what))
    }

    /// Waits for its end, and returns whether it has ended.
    fn ends(&mut self, patience: Duration) -> bool {
        let end = Instant::now() + patience;
        loop {
            match self.status() {
                Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(1)),
                Ok(None) => return false,
                _ => return true,
            }
        }
    }

    fn signal(&self, signal: Signal) {
        // Not reaped yet: no other process has its number, or that of its group.
        if !self.ended
            && let Some(pid) = Pid::from_raw(self.child.id() as i32)
        {
            let _ = kill_process_group(pid, signal);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        // A process that waits for a mount that hangs ends only with that mount.
        self.ends(GRACE);
        let _ = fs::remove_file(&self.log);
    }
}

/// Waits until all of them have ended with success, and returns how long that took since `begin`.
pub(super) fn wait_all(mut all: Vec<Running>, begin: Instant, patience: Duration) -> Outcome<f64> {
    let mut left = all.len();
    while left > 0 {
        for running in &mut all {
            if !running.ended && running.ended()? {
                left -= 1;
            }
        }
        let waited = begin.elapsed();
        if left == 0 {
            return Ok(waited.as_secs_f64());
        }
        if waited > patience
            && let Some(slow) = all.iter().find(|running| !running.ended)
        {
            return Err(slow.failed(format!("did not end within {patience:.0?}")).within(TOO_SLOW));
        }
        pause(POLL_INTERVAL)?;
    }
    Ok(begin.elapsed().as_secs_f64())
}

/// The beginning of the failures of processes that were given up.
const TOO_SLOW: &str = "given up";

/// Whether a failure is that of a process that was given up.
pub(super) fn was_too_slow(failure: &Failure) -> bool {
    failure.to_string().starts_with(TOO_SLOW)
}

/// A process that serves; ended when dropped.
pub(super) struct Daemon {
    running: Running,
    out: PathBuf,
}

impl Daemon {
    /// Waits until `found` returns a value, for so long at most, and as long as the daemon lives.
    pub(super) fn until<T>(
        &mut self,
        patience: Duration,
        mut found: impl FnMut(&Path) -> Option<T>,
    ) -> Outcome<T> {
        let end = Instant::now() + patience;
        loop {
            if let Some(found) = found(&self.out) {
                return Ok(found);
            }
            if let Some(status) = self.running.status()? {
                return Err(self.running.failed(format!("ended with {status}")));
            }
            if Instant::now() > end {
                return Err(self.running.failed(format!("was not ready within {patience:.0?}")));
            }
            pause(Duration::from_millis(5))?;
        }
    }

    /// Waits for its own end.
    pub(super) fn ends(&mut self, patience: Duration) -> bool {
        self.running.ends(patience)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.running.signal(Signal::TERM);
        // If it does not end, its `Running` kills it.
        self.ends(GRACE);
        let _ = fs::remove_file(&self.out);
    }
}

/// What the tied process does: it executes the program of its arguments, and ends when the process
/// that started it does.
pub(crate) fn run_tied(mut arguments: impl Iterator<Item = OsString>) -> Outcome {
    interrupt::unblock_terminate().map_err(Failure::system("signals"))?;
    let word = |word: OsString| word.to_string_lossy().parse::<i32>().ok();
    let (Some(parent), Some(program)) = (arguments.next().and_then(word), arguments.next()) else {
        let text = "this subcommand is for petasos itself";
        return Err(Failure::new(Code::Usage, text).advise("petasos bench forward"));
    };
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(Failure::system("signals"))?;
    // The parent may have died before that was requested.
    if getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(parent) {
        return Err(Failure::new(Code::Failed, "the process that started this one has ended"));
    }
    let error = Command::new(&program).args(arguments).exec();
    Err(Failure::file("starting", Path::new(&program), &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_process_that_hangs_is_killed_with_all_that_it_started() {
        let directory = tempfile::tempdir().unwrap();
        let logs = Logs::new(directory.path().to_owned());
        let out = logs.fresh();
        let running = logs.start(shell("sleep 1000 & echo $!; wait"), Some(&out)).unwrap();
        let grandchild = loop {
            match fs::read_to_string(&out).unwrap().trim().parse::<i32>() {
                Ok(pid) => break pid,
                Err(_) => std::thread::sleep(POLL_INTERVAL),
            }
        };
        let failure = wait_all(vec![running], Instant::now(), POLL_INTERVAL).unwrap_err();
        assert!(was_too_slow(&failure), "{failure}");
        // Its own parent has ended: the process that inherits it reaps it.
        let end = Instant::now() + Duration::from_secs(20);
        let state = || fs::read_to_string(format!("/proc/{grandchild}/stat")).unwrap_or_default();
        while !state().is_empty() && !state().contains(") Z") {
            assert!(Instant::now() < end, "{}", state());
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    #[test]
    fn failures_quote_the_process() {
        let directory = tempfile::tempdir().unwrap();
        let logs = Logs::new(directory.path().to_owned());
        let running = logs.start(shell("echo no such bucket >&2; exit 4"), None).unwrap();
        let failure = wait_all(vec![running], Instant::now(), Duration::from_secs(20)).unwrap_err();
        // Its exit codes are not those of this program.
        assert!(failure.code == Code::Failed && !was_too_slow(&failure));
        let text = failure.to_string();
        assert!(text.starts_with("sh ended with") && text.ends_with("no such bucket"), "{text}");
        let missing = logs.start(Command::new("/no/such/program"), None).err().unwrap();
        assert!(missing.to_string().contains("program"));
    }
}

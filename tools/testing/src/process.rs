//! Real processes: the test's own binary started again in another role.
//!
//! ```no_run
//! use petasos_testing::{again, role};
//! fn a_server_dies() {
//!     if role() == Some("server".into()) {
//!         return; // what the other process does
//!     }
//!     let mut server = again("a_server_dies", "server").start();
//!     server.kill();
//! }
//! ```

use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::{BufRead, BufReader, ErrorKind, Write},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

const ROLE: &str = "PETASOS_TEST_ROLE";
/// `nobody` and `nogroup`, on Debian and most others.
const NOBODY: u32 = 65534;

/// The role in which this process was started by [`again`]; `None` in the test itself.
#[must_use]
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// A command that runs the test `name` (its path within the test binary) of this binary again, in
/// `role`: the test looks at [`role`] first and then does something else.
#[must_use]
pub fn again(name: &str, role: &str) -> Starter {
    let program = std::env::current_exe().expect("a test binary has a path");
    let mut command = Command::new(program);
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(ROLE, role);
    Starter { command, copy: None }
}

/// Copies a program, for all to run. Another process writes the copy: every process that another
/// thread starts meanwhile would have this one's descriptor for a moment, and the system runs no
/// program that can be written.
///
/// # Panics
/// If it cannot be copied.
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("--").args([from, to]).status();
    assert!(copied.is_ok_and(|status| status.success()), "{} is not copied", from.display());
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(to, mode).expect("the copy can be opened to all");
}

/// Like [`again`], as the user `nobody`; `None`, with a message, when this process is not root and
/// therefore cannot change its user.
#[must_use]
pub fn again_as_nobody(name: &str, role: &str) -> Option<Starter> {
    if !crate::is_root() {
        crate::skip("only root can run a part of this test as another user");
        return None;
    }
    let mut starter = again(name, role);
    // The build directory may be closed to others: run a copy that they can reach.
    let program = std::env::current_exe().expect("a test binary has a path");
    // A copy of its own for each: one that runs cannot be removed for another.
    static COPIES: AtomicU32 = AtomicU32::new(0);
    let nth = COPIES.fetch_add(1, Ordering::Relaxed);
    let id = std::process::id();
    let copy = std::env::temp_dir().join(format!("petasos-test-{id}-{nth}"));
    copy_program(&program, &copy);
    let mut command = Command::new(&copy);
    command.args(starter.command.get_args()).env(ROLE, role);
    command.current_dir("/").uid(NOBODY).gid(NOBODY);
    starter.command = command;
    starter.copy = Some(copy);
    Some(starter)
}

/// A process to be started.
#[derive(Debug)]
pub struct Starter {
    command: Command,
    /// The program, where it was copied for another user.
    copy: Option<PathBuf>,
}

impl Starter {
    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Starter {
        self.command.env(name, value);
        self
    }

    /// Runs it in an emulated host: a namespace of [`Hosts`](crate::Hosts).
    #[must_use]
    pub fn in_host(mut self, namespace: &str) -> Starter {
        let mut command = crate::in_host(namespace, self.command.get_program().as_ref());
        command.args(self.command.get_args());
        for (name, value) in self.command.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        self.command = command;
        self
    }

    /// Runs it by another program, which is to become it: as `unshare` does.
    #[must_use]
    pub fn by(mut self, program: &str, arguments: &[&str]) -> Starter {
        let mut command = Command::new(program);
        command.args(arguments).arg(self.command.get_program()).args(self.command.get_args());
        for (name, value) in self.command.get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        self.command = command;
        self
    }

    /// Starts it, with its standard input and output connected to this process.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start(mut self) -> Process {
        let command = self.command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let end = Instant::now() + Duration::from_secs(5);
        let mut child = loop {
            match command.spawn() {
                // The copy is still open for writing in a process that another test is about to
                // start, which inherited that and closes it when its own program begins.
                Err(error)
                    if error.kind() == ErrorKind::ExecutableFileBusy && Instant::now() < end =>
                {
                    std::thread::sleep(Duration::from_millis(1));
                }
                started => break started.expect("the process starts"),
            }
        };
        let output = BufReader::new(child.stdout.take().expect("a piped output"));
        Process { child, output, copy: self.copy }
    }
}

/// A process of the test's own: killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    copy: Option<PathBuf>,
}

impl Process {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line it prints that begins with `prefix`, without the prefix; others (the test
    /// harness's) are passed over.
    ///
    /// # Panics
    /// If it ends before printing one.
    pub fn line(&mut self, prefix: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            let read = self.output.read_line(&mut line).expect("output can be read");
            assert!(read > 0, "the process ended without a line `{prefix}…`");
            // The harness prints "test NAME ... " before the first line, without a line break.
            if let Some(at) = line.find(prefix) {
                return line[at + prefix.len()..].trim_end().to_owned();
            }
        }
    }

    /// Sends it a line.
    ///
    /// # Panics
    /// If it no longer reads.
    pub fn tell(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().expect("a piped input");
        writeln!(input, "{line}").expect("the process reads");
    }

    /// Closes its standard input.
    pub fn close_input(&mut self) {
        self.child.stdin = None;
    }

    /// `kill -9`, and waits until it has ended.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Stops it, as SIGSTOP does, until [`Process::go_on`].
    ///
    /// # Panics
    /// If it has ended, and was waited for.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Has it go on after [`Process::stop`].
    ///
    /// # Panics
    /// If it has ended, and was waited for.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it has not ended");
    }

    /// Waits until it ends by itself.
    ///
    /// # Panics
    /// If it does not within `patience`.
    pub fn wait(&mut self, patience: Duration) -> ExitStatus {
        let end = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return status;
            }
            assert!(Instant::now() < end, "the process did not end within {patience:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if let Some(copy) = &self.copy {
            let _ = std::fs::remove_file(copy);
        }
    }
}

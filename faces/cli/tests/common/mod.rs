//! The command as a user runs it.

#![allow(dead_code)]

use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Transports that need a library, or take one of the others.
pub(crate) const NETWORKS: [&str; 5] = ["auto", "ofi+tcp", "ofi+shm", "ucx+tcp", "ucx+posix"];

/// Those of these that are here; of the others it is said why they are skipped.
pub(crate) fn present<'a>(networks: &[&'a str]) -> Vec<&'a str> {
    let here = |network: &&&str| {
        let transport = petasos::Transport::of(network).expect("a transport");
        let missing = transport.missing();
        missing.inspect(|why| petasos_testing::skip(&format!("{network}: {why}"))).is_none()
    };
    networks.iter().filter(here).copied().collect()
}

/// A place for one test: its own temporary directory, which must be empty in the end.
pub(crate) struct Place {
    pub(crate) directory: TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("tmp")).unwrap();
        Place { directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = petasos(arguments);
        command.args(arguments).env("TMPDIR", self.path("tmp")).env_remove("RUST_BACKTRACE");
        // What the user that runs the tests has found out of this machine is of no concern.
        command.env("PETASOS_TUNING", self.path("no-tuning"));
        // Jobs have their directories in TMPDIR then.
        command.env_remove("XDG_RUNTIME_DIR");
        command.current_dir(self.directory.path()).stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(&self.command(arguments).output().unwrap())
    }

    /// The same, with something else in its environment.
    pub(crate) fn run_with(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Ran {
        let mut command = self.command(arguments);
        Ran::of(&command.envs(environment.iter().copied()).output().unwrap())
    }

    /// Nothing was left behind, here or in shared memory.
    pub(crate) fn assert_clean(&self) {
        let left = |path: &Path| -> Vec<_> {
            fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect()
        };
        assert!(left(&self.path("tmp")).is_empty(), "left: {:?}", left(&self.path("tmp")));
        let hidden = |name: &&std::ffi::OsString| name.to_string_lossy().starts_with(".petasos");
        let here = left(self.directory.path());
        assert!(here.iter().find(hidden).is_none(), "left: {here:?}");
        // What libfabric, and other stacks, make there is named by the process that lives: tests
        // beside this one have some, and may have killed one whose peers have not removed its own
        // yet.
        let ours = |name: &std::ffi::OsString| {
            let name = name.to_string_lossy();
            let owner = name.split('-').find_map(|part| part.parse::<u32>().ok());
            name.contains("petasos")
                && !owner.is_some_and(|pid| Path::new("/proc").join(pid.to_string()).exists())
        };
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let mut shared: Vec<_> = left(Path::new("/dev/shm"));
            shared.retain(&ours);
            if shared.is_empty() {
                return;
            }
            assert!(Instant::now() < until, "left in /dev/shm: {shared:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// The command, to which these arguments come. The tests of `petasos-bench` have that program,
/// which is the command, too, behind a word; its hidden subcommands are its own.
fn petasos(arguments: &[&str]) -> Command {
    let (ours, tool) =
        (option_env!("CARGO_BIN_EXE_petasos"), option_env!("CARGO_BIN_EXE_petasos-bench"));
    let program = match (ours, tool) {
        (Some(program), _) => return Command::new(program),
        (None, Some(program)) => program,
        (None, None) => unreachable!("cargo names the programs of a package to its tests"),
    };
    let mut command = Command::new(program);
    if !arguments.first().is_some_and(|word| word.ends_with("-process")) {
        command.arg("petasos");
    }
    command
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn of(output: &Output) -> Ran {
        Ran {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    #[track_caller]
    pub(crate) fn assert(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    /// It said this on standard error.
    #[track_caller]
    pub(crate) fn says(self, what: &str) -> Ran {
        assert!(self.err.contains(what), "`{what}` is not in {self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

/// A running `petasos serve`; killed when dropped.
pub(crate) struct Serving {
    child: Child,
    pub(crate) urls: Vec<String>,
}

impl Serving {
    pub(crate) fn start(place: &Place, arguments: &[&str], urls: usize) -> Serving {
        let arguments = [&["serve"], arguments].concat();
        let mut child = place.command(&arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url = |line: std::io::Result<String>| {
            line.unwrap().strip_prefix("listening at ").expect("a URL").to_owned()
        };
        let urls = lines.take(urls).map(url).collect();
        Serving { child, urls }
    }

    /// Asks it to end, as Ctrl-C does, and says how it ended.
    pub(crate) fn interrupt(&mut self) -> Option<i32> {
        signal(self.child.id(), "INT");
        wait(&mut self.child, Duration::from_secs(10)).code()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a signal to a process that the test started.
pub(crate) fn signal(pid: u32, name: &str) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    let signal = match name {
        "HUP" => rustix::process::Signal::HUP,
        "INT" => rustix::process::Signal::INT,
        "TERM" => rustix::process::Signal::TERM,
        "STOP" => rustix::process::Signal::STOP,
        "CONT" => rustix::process::Signal::CONT,
        "KILL" => rustix::process::Signal::KILL,
        "USR1" => rustix::process::Signal::USR1,
        _ => panic!("{name} is none of these"),
    };
    // It may have ended meanwhile.
    let _ = rustix::process::kill_process(pid, signal);
}

pub(crate) fn wait(child: &mut Child, patience: Duration) -> std::process::ExitStatus {
    let end = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > end {
            let _ = child.kill();
            panic!("the command did not end within {patience:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The server process that a command has started for itself.
pub(crate) fn server_of(pid: u32) -> Option<u32> {
    child_of(pid, "server-process")
}

/// A process of this kind that a command has started for itself.
pub(crate) fn child_of(pid: u32, kind: &str) -> Option<u32> {
    // Children may be those of any thread.
    fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten().find_map(|task| {
        let children = fs::read_to_string(task.path().join("children")).ok()?;
        children.split_whitespace().filter_map(|child| child.parse().ok()).find(|child: &u32| {
            let line = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(kind)
        })
    })
}

/// Waits until `found` gives something.
pub(crate) fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < end, "{what}: not within 30 s");
        std::thread::sleep(Duration::from_millis(2));
    }
}

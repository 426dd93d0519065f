//! Exports, mounts, and programs that have to end.

use petasos::{EngineConfig, Idle, OpenOptions};
use petasos_forward::{
    mount::{MountOptions, Mounted},
    server::{Server, ServerConfig},
    storage::Local,
};
use petasos_testing::{is_root, skip};
use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// How long a test may take. The machine may be busy.
const LIMIT: Duration = Duration::from_secs(240);

/// An export, its server, and a mount of it.
pub(crate) struct Bench {
    pub(crate) mounted: Option<Mounted>,
    pub(crate) server: Option<Server>,
    /// Where the files really are.
    pub(crate) export: PathBuf,
    /// Where they are mounted.
    pub(crate) at: PathBuf,
    pub(crate) url: String,
    directory: TempDir,
    watch: Watch,
}

/// Ends the process when a test takes too long, and what it mounted before.
struct Watch(mpsc::Sender<()>);

fn watch(directory: PathBuf) -> Watch {
    let (alive, gone) = mpsc::channel();
    let name = thread::current().name().unwrap_or("a test").to_owned();
    thread::spawn(move || {
        // Each word of the test's begins the time anew.
        while gone.recv_timeout(LIMIT).is_ok() {}
        if gone.recv_timeout(Duration::ZERO) != Err(mpsc::RecvTimeoutError::Disconnected) {
            eprintln!("{name} takes longer than {LIMIT:?}");
            for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
                let _ = Command::new("umount").args(["-l", "-i"]).arg(entry.path()).status();
            }
            std::process::exit(101);
        }
    });
    Watch(alive)
}

/// Whether this machine can mount; says so where it cannot.
pub(crate) fn can_mount() -> bool {
    if fs::File::options().read(true).write(true).open("/dev/fuse").is_err() {
        skip("/dev/fuse cannot be opened");
        return false;
    }
    if !is_root() && !has("fusermount3") {
        skip("only root can mount without fusermount3 (package fuse3)");
        return false;
    }
    true
}

fn has(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|path| path.join(program).is_file())
}

/// Whether these programs are here; says which one is not.
pub(crate) fn have(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| !has(program));
    if let Some(program) = missing {
        skip(&format!("{program} is not installed"));
    }
    missing.is_none()
}

/// An export over shared memory, mounted.
pub(crate) fn bench() -> Option<Bench> {
    bench_over("shm://*", |_| {})
}

/// An export over any transport, mounted as `change` says.
pub(crate) fn bench_over(any: &str, change: impl FnOnce(&mut MountOptions)) -> Option<Bench> {
    bench_of(any, ServerConfig::default(), change)
}

/// An export for programs that make one call after the other. Over TCP its mount and its server
/// sleep when there is nothing to do: else two threads would look for the next call all the time.
pub(crate) fn bench_for_programs(any: &str) -> Option<Bench> {
    bench_over(any, |options| {
        if any.starts_with("tcp") {
            options.spin = Duration::ZERO;
        }
    })
}

/// The same of a server with these settings.
pub(crate) fn bench_of(
    any: &str,
    config: ServerConfig,
    change: impl FnOnce(&mut MountOptions),
) -> Option<Bench> {
    if !can_mount() {
        return None;
    }
    let directory = tempfile::Builder::new().prefix("petasos-mount-").tempdir().unwrap();
    let watch = watch(directory.path().to_owned());
    let (export, at) = (directory.path().join("export"), directory.path().join("at"));
    fs::create_dir(&export).unwrap();
    fs::create_dir(&at).unwrap();
    let mut options = MountOptions::default();
    change(&mut options);
    let server = serve_as(&export, any, config, options.spin);
    let url = server.addresses()[0].to_string();
    let mounted = Some(mount(&url, &at, options));
    let server = Some(server);
    Some(Bench { mounted, server, export, at, url, directory, watch })
}

pub(crate) fn serve(export: &Path, url: &str) -> Server {
    let spin = MountOptions::default().spin;
    serve_as(export, url, ServerConfig::default(), spin)
}

/// A server that looks for more to do for as long as its mounts.
fn serve_as(export: &Path, url: &str, mut config: ServerConfig, spin: Duration) -> Server {
    let storage = Arc::new(Local::open(export).unwrap());
    if !spin.is_zero() {
        return Server::listen(storage, &[url], &OpenOptions::default(), config).unwrap();
    }
    config.spin = spin;
    let endpoint = petasos::open(url, &OpenOptions::default()).unwrap();
    let engine = EngineConfig::default().idle(Idle::Sleep);
    Server::start_with(storage, vec![endpoint], config, engine, |_| {}).unwrap()
}

pub(crate) fn mount(url: &str, at: &Path, options: MountOptions) -> Mounted {
    let any = if url.starts_with("shm") { "shm://*" } else { "tcp://127.0.0.1:0" };
    let endpoint = petasos::open(any, &OpenOptions::default()).unwrap();
    let server = petasos::fabric::Address::parse(url).unwrap();
    Mounted::new(endpoint, &server, at, options).unwrap()
}

impl Bench {
    /// A path in the mount.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.at.join(name)
    }

    /// Another mount of the same export.
    pub(crate) fn second(&self, change: impl FnOnce(&mut MountOptions)) -> (PathBuf, Mounted) {
        let at = self.directory.path().join("second");
        fs::create_dir(&at).unwrap();
        let mut options = MountOptions::default();
        change(&mut options);
        let mounted = mount(&self.url, &at, options);
        (at, mounted)
    }

    /// Says that the test, which may take long, goes on.
    pub(crate) fn alive(&self) {
        let _ = self.watch.0.send(());
    }

    /// A directory outside of the mount.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // The mount goes first: its requests are answered as long as the server is there.
        self.mounted.take();
        self.server.take();
    }
}

/// Runs a program that must succeed within a minute or two, and gives what it printed.
pub(crate) fn run<S: AsRef<OsStr>>(program: &str, arguments: &[S], at: &Path) -> String {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(at);
    let output = finish(command, Duration::from_secs(150));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{program} ended with {}:\n{text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text
}

/// Waits until a program ends; if it takes too long, kills it and panics.
pub(crate) fn finish(mut command: Command, limit: Duration) -> Output {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let (sender, receiver) = mpsc::channel();
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let reader = thread::spawn(move || {
        let mut text = Vec::new();
        let _ = std::io::Read::read_to_end(&mut err, &mut text);
        text
    });
    thread::spawn(move || {
        let mut text = Vec::new();
        let _ = std::io::Read::read_to_end(&mut out, &mut text);
        let _ = sender.send(text);
    });
    let end = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > end {
            let _ = child.kill();
            panic!("{command:?} did not end within {limit:?}");
        }
        thread::sleep(Duration::from_millis(5));
    };
    let stdout = receiver.recv_timeout(Duration::from_secs(5)).unwrap_or_default();
    Output { status, stdout, stderr: reader.join().unwrap_or_default() }
}

/// Bytes that no two places have alike.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    petasos_testing::Xorshift::from_state(seed).bytes(len)
}

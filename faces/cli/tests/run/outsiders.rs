//! Another user of the machine connects to the port of a job for clients of OpenPMIx, and knows all
//! but what only the job's user can read: joins it, ends it, or keeps it from its work.

use crate::{
    common::{Place, until, wait},
    private::{NOBODY, USER, answer, greeting, waits_for_a_word},
    text,
};
use petasos_pmix::Job;
use petasos_testing::{is_root, role, skip};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketType, bind, connect, listen, socket, sockopt,
};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddrV4, TcpStream},
    os::{
        fd::OwnedFd,
        unix::{
            fs::{PermissionsExt, chown},
            process::CommandExt,
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

const JOINS: &str = "outsiders::another_user_at_the_listeners_own_port_is_refused";
const COSTS: &str = "outsiders::what_another_user_connects_costs_a_job_little";
const SQUATS: &str = "outsiders::who_takes_the_names_of_ranks_keeps_them_from_nothing";

/// A place that other users can reach, with this test's binary for all of them.
pub(crate) fn open_place() -> (Place, PathBuf) {
    let place = Place::new();
    // The build directory may be closed to others. Another process copies: what this one has open
    // to be written, processes that other tests start just now have it open, too, and it cannot be
    // run.
    let copy = |from: &Path, name: &str| {
        let copied = Command::new("cp").arg(from).arg(place.path(name)).status();
        assert!(copied.unwrap().success());
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(0o755)).unwrap();
        place.path(name)
    };
    copy(Path::new(env!("CARGO_BIN_EXE_petasos")), "petasos");
    let own = copy(&std::env::current_exe().unwrap(), "ranks");
    for open in [place.directory.path(), &place.path("tmp")] {
        fs::set_permissions(open, fs::Permissions::from_mode(0o755)).unwrap();
    }
    chown(place.path("tmp"), Some(USER), Some(USER)).unwrap();
    (place, own)
}

/// A job of an ordinary user there, to be started: its ranks run the test `name` in the role
/// `rank`.
pub(crate) fn of_user(place: &Place, name: &str, options: &[&str]) -> Command {
    let mut command = Command::new(place.path("petasos"));
    command.arg("run").args(options).arg(place.path("ranks"));
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]);
    command.env("TMPDIR", place.path("tmp")).env("PETASOS_TEST_ROLE", "rank");
    command.env_remove("XDG_RUNTIME_DIR").current_dir(place.directory.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.uid(USER).gid(USER);
    command
}

/// A job of an ordinary user, in a place that this one can reach, with programs that others can
/// run.
pub(crate) struct OfUser {
    pub(crate) place: Place,
    pub(crate) child: Child,
    /// This test's binary, for all users.
    pub(crate) own: PathBuf,
    pub(crate) directories: Vec<PathBuf>,
    /// What a rank knows the job by.
    pub(crate) space: String,
    errors: Receiver<String>,
}

impl OfUser {
    /// Ranks of it run the test `name` of this binary in the role `rank`, and wait for a word.
    pub(crate) fn start(name: &str, options: &[&str]) -> OfUser {
        let (place, own) = open_place();
        let mut command = of_user(&place, name, options);
        let mut child = command.spawn().unwrap();
        // A process that writes much there does not wait for this one.
        let (mut said, (sender, errors)) = (child.stderr.take().unwrap(), channel());
        std::thread::spawn(move || {
            let mut all = Vec::new();
            let _ = said.read_to_end(&mut all);
            let _ = sender.send(String::from_utf8_lossy(&all).into_owned());
        });
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let (mut directories, mut space) = (Vec::new(), String::new());
        while directories.len() < 2 {
            let line = lines.next().expect("two ranks that are ready");
            directories.extend(line.strip_prefix("ready ").map(PathBuf::from));
            space = line.strip_prefix("space ").map_or(space, str::to_owned);
        }
        std::thread::spawn(move || lines.for_each(drop));
        OfUser { place, child, own, directories, space, errors }
    }

    /// Runs the test `name` in a role, as this user, and tells it where a daemon listens.
    pub(crate) fn visits(&self, name: &str, user: u32, role: &str, directory: &Path) -> Command {
        let mut visitor = Command::new(&self.own);
        visitor.args([name, "--exact", "--nocapture", "--test-threads=1"]).uid(user).gid(user);
        let pmix = fs::read_to_string(directory.join("pmix41")).unwrap();
        let name = directory.file_stem().unwrap().to_str().unwrap();
        visitor.env("PMIX_PORT", pmix.rsplit_once(':').unwrap().1).env("JOB_NAME", name);
        visitor.env("PETASOS_TEST_ROLE", role).env("SPACE", &self.space);
        visitor.env("DIRECTORY", directory).current_dir("/");
        visitor
    }

    /// The ranks go on, and do well; gives what was said on standard error.
    pub(crate) fn ends_well(mut self) -> String {
        writeln!(self.child.stdin.take().unwrap(), "go on").unwrap();
        let status = wait(&mut self.child, Duration::from_secs(60));
        let said = self.errors.recv_timeout(Duration::from_secs(30)).unwrap();
        assert!(status.success(), "{said}");
        let place = &self.place;
        let empty = || fs::read_dir(place.path("tmp")).unwrap().next().is_none().then_some(());
        until("an empty directory", empty);
        place.assert_clean();
        said
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap()
}

/// Says these bytes over a connection from this address; gives the answer.
fn answer_at(from: SocketAddrV4, port: u16, said: &[u8]) -> Option<Vec<u8>> {
    let own = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_reuseaddr(&own, true).unwrap();
    bind(&own, &from).unwrap();
    // Where the listener rests its queue may be full.
    connect(&own, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).ok()?;
    Some(answer(TcpStream::from(own), said))
}

/// Everything that another user can read of processes and of sockets.
fn what_others_see() -> Vec<u8> {
    let mut all = fs::read("/proc/net/unix").unwrap_or_default();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        all.extend(fs::read(process.path().join("cmdline")).unwrap_or_default());
    }
    all
}

/// Of the kernel's tables of sockets one row has the ports of a peer that connects from the
/// listener's own port to it, with the other user, and one with the job's own.
#[test]
fn another_user_at_the_listeners_own_port_is_refused() {
    match role().as_deref() {
        Some("rank") => return waits_for_a_word(),
        Some("joins") => return joins(),
        Some("sees") => {
            let (all, space) = (what_others_see(), variable("SPACE"));
            assert!(!all.windows(space.len()).any(|part| part == space.as_bytes()), "{space}");
            return;
        }
        Some("owner") => {
            let stream = |port: u16| TcpStream::connect(("127.0.0.1", port)).unwrap();
            let port = variable("PMIX_PORT").parse().unwrap();
            // The name that many know is not enough, and what a rank was told is.
            assert!(answer(stream(port), &greeting(&variable("JOB_NAME"), 0)).is_empty());
            assert_eq!(answer(stream(port), &greeting(&variable("SPACE"), 0)).len(), 8);
            return;
        }
        _ => {}
    }
    if !is_root() {
        return skip("only root can run programs as two other users");
    }
    let job = OfUser::start(JOINS, &["-n", "2"]);
    for (user, role) in [(NOBODY, "joins"), (NOBODY, "sees"), (USER, "owner")] {
        let said = job.visits(JOINS, user, role, &job.directories[0]).output().unwrap();
        assert!(said.status.success(), "{role}: {}", text(&said));
    }
    assert!(job.space.len() >= 32, "`{}` can be guessed", job.space);
    let said = job.ends_well();
    assert!(said.contains("refused a client: it is another user's"), "{said}");
}

/// Knows more than another user can: also what ranks call the job.
fn joins() {
    let port: u16 = variable("PMIX_PORT").parse().unwrap();
    let mut tried = 0;
    for last in 2..34 {
        for space in ["SPACE", "JOB_NAME"] {
            let from = SocketAddrV4::new(Ipv4Addr::new(127, 0, tried as u8 + 1, last), port);
            let said = answer_at(from, port, &greeting(&variable(space), 1));
            assert!(said.as_ref().is_none_or(Vec::is_empty), "{from}: it is let in, {said:?}");
            tried += u32::from(said.is_some());
        }
    }
    assert!(tried > 0);
}

/// How long the main thread of a process ran, and how long it waited for a processor.
fn times(process: u32) -> [Duration; 2] {
    let said = fs::read_to_string(format!("/proc/{process}/schedstat")).unwrap();
    let mut times = said.split_whitespace().map(|word| Duration::from_nanos(word.parse().unwrap()));
    [times.next().unwrap(), times.next().unwrap()]
}

/// Which part of a time, while this ran, its main thread did not sleep. Time in which it waited for
/// a processor does not count: one that never sleeps is awake for all of the rest, also on a
/// machine that is busy.
pub(crate) fn awake_while(process: u32, run: impl FnOnce()) -> f64 {
    let (begun, before) = (Instant::now(), times(process));
    run();
    let [ran, waited] = [0, 1].map(|at| times(process)[at] - before[at]);
    ran.as_secs_f64() / (begun.elapsed() - waited).as_secs_f64()
}

fn descriptors(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

/// Connections that say nothing, and others as fast as they can be made: the daemon has none of
/// them open, and most of its time for the job.
#[test]
fn what_another_user_connects_costs_a_job_little() {
    match role().as_deref() {
        Some("rank") => return waits_for_a_word(),
        Some("floods") => return floods(),
        _ => {}
    }
    if !is_root() {
        return skip("only root can run programs as two other users");
    }
    let job = OfUser::start(COSTS, &["-n", "2"]);
    let before = descriptors(job.child.id());
    let mut flood = job.visits(COSTS, NOBODY, "floods", &job.directories[0]);
    let mut flood = flood.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(flood.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "many"));
    let mut most = 0;
    let share = awake_while(job.child.id(), || {
        for _ in 0..200 {
            most = most.max(descriptors(job.child.id()));
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    // A tenth is for refusing; the rest is for what the daemon does besides.
    assert!(share < 0.5, "awake {share} of the time");
    // One is open for the moment of being refused.
    assert!(most <= before + 4, "{most} descriptors, {before} before");
    let said = job.ends_well();
    drop(flood.stdin.take());
    assert!(wait(&mut flood, Duration::from_secs(60)).success());
    let refused = said.matches("refused a client").count();
    assert!((1..=20).contains(&refused), "{refused} lines about refused peers");
}

/// Goes on until its standard input ends.
fn floods() {
    let port: u16 = variable("PMIX_PORT").parse().unwrap();
    let to = ("127.0.0.1", port);
    let idle: Vec<_> = (0..400).map_while(|_| TcpStream::connect(to).ok()).collect();
    let over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let told = over.clone();
    let connects = std::thread::spawn(move || {
        let to = ([127, 0, 0, 1], port).into();
        while !told.load(std::sync::atomic::Ordering::Relaxed) {
            // Where its queue is full the next attempt of the kernel would come after a second.
            let _ = TcpStream::connect_timeout(&to, Duration::from_millis(50));
        }
    });
    println!("\nmany");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    over.store(true, std::sync::atomic::Ordering::Relaxed);
    connects.join().unwrap();
    drop(idle);
}

/// Another user listens, before the ranks do, at the names that they would have by the name of the
/// job.
#[test]
fn who_takes_the_names_of_ranks_keeps_them_from_nothing() {
    match role().as_deref() {
        Some("rank") => return meets(),
        Some("squats") => return squats(),
        _ => {}
    }
    if !is_root() {
        return skip("only root can run programs as two other users");
    }
    let job = OfUser::start(SQUATS, &["-n", "2"]);
    let mut squatter = job.visits(SQUATS, NOBODY, "squats", &job.directories[0]);
    let mut squatter = squatter.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(squatter.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "taken"), "it takes none");
    job.ends_well();
    drop(squatter.stdin.take());
    assert!(wait(&mut squatter, Duration::from_secs(60)).success());
}

/// Listens at the names of some ranks, until standard input ends.
fn squats() {
    // The node is behind the job's name.
    let taken = take_names(USER, &variable("JOB_NAME"), 2);
    println!("\ntaken");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    drop(taken);
}

/// Listens at the names that follow, for a user's ranks, from the name of their job.
pub(crate) fn take_names(user: u32, job: &str, ranks: u32) -> Vec<OwnedFd> {
    let taken = (0..ranks).map(|rank| {
        let fd = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        let name = format!("petasos/{user}/petasos-{job}-{rank}");
        bind(&fd, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
        listen(&fd, 4).unwrap();
        fd
    });
    taken.collect()
}

/// A rank that opens its endpoint when it was told to, and is heard of by the others.
fn meets() {
    let job = petasos::job().unwrap();
    job.fence().unwrap();
    println!("\nspace -\nready {}", variable("PETASOS_JOB_DIR"));
    let mut line = String::new();
    if job.rank() == 0 {
        std::io::stdin().read_line(&mut line).unwrap();
    }
    job.fence().unwrap();
    meets_the_other(job);
    job.finalize().unwrap();
}

/// Opens the endpoint of one of two ranks, and waits until the other one is there.
pub(crate) fn meets_the_other(job: &Job) {
    let mut own = petasos::open_own(job).unwrap();
    job.fence().unwrap();
    let other = job.peer(1 - job.rank()).unwrap();
    let other = own.resolve(&other, Duration::from_secs(30)).unwrap();
    let clock = petasos::fabric::Clock::start();
    let up = || petasos::fabric::PeerState::Up;
    until("the other rank", || {
        own.progress(clock.now(), 64, &mut Vec::new());
        own.peer(other).is_some_and(|info| info.state == up()).then_some(())
    });
    // The other one may need an answer still.
    std::thread::scope(|scope| {
        let met = scope.spawn(|| job.fence().unwrap());
        while !met.is_finished() {
            own.progress(clock.now(), 64, &mut Vec::new());
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

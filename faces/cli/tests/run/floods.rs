//! Another user of the machine holds connections to the ports of a job, proves nothing, and makes
//! another one whenever one is closed. What belongs to the job comes in all the same.

use crate::{
    common::{Place, until, wait},
    outsiders::{OfUser, awake_while},
    private::{NOBODY, USER, answer, greeting, ports_of, waits_for_a_word},
    text,
};
use petasos_testing::{again_as_nobody, is_root, role, skip};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, connect, socket_with},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddrV4, TcpStream},
    process::Stdio,
    time::{Duration, Instant},
};

const HOLDS: &str = "floods::idle_connections_keep_no_daemon_out";
const WAITS: &str = "floods::idle_connections_keep_no_client_of_pmix_out";
/// How often a client comes while strangers hold the port.
const VISITS: u32 = 6;

/// A daemon of the job comes while strangers hold the port that it needs: few of them, many, and
/// more than the daemon there may have descriptors.
#[test]
fn idle_connections_keep_no_daemon_out() {
    if role().as_deref() == Some("holds") {
        return holds();
    }
    for (kind, count, descriptors) in
        [("silent", 64, 0), ("drips", 200, 0), ("stops", 1000, 0), ("silent", 1000, 512)]
    {
        let Some(stranger) = again_as_nobody(HOLDS, "holds") else { return };
        let place = Place::new();
        let script =
            "cd \"$(dirname $0)\"; echo > waits; until [ -e go ]; do sleep 0.02; done; exec \"$@\"";
        fs::write(place.path("start"), script).unwrap();
        let start = format!("sh {} env X={{host}}", place.path("start").display());
        let words = ["run", "-n", "2", "--hosts", "localhost:1,x:1", "--remote-start", &start];
        let mut command = place.command(&[&words[..], &["echo", "ran"]].concat());
        if descriptors > 0 {
            command = limited(command, descriptors);
        }
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        until("the start of the other daemon", || place.path("waits").exists().then_some(()));
        let ports: Vec<String> = ports_of(child.id()).iter().map(u16::to_string).collect();
        assert!(!ports.is_empty());
        let stranger = stranger.env("PORTS", &ports.join(" ")).env("KIND", kind);
        let mut stranger = stranger.env("COUNT", &count.to_string()).start();
        stranger.line("many");
        fs::write(place.path("go"), "").unwrap();
        let status = wait(&mut child, Duration::from_secs(100));
        let (mut said, mut errors) = (String::new(), String::new());
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert!(status.success(), "{kind}, {count}: {errors}");
        assert_eq!(said, "ran\nran\n", "{kind}, {count}: {errors}");
        // What strangers do takes a few lines to tell.
        assert!(errors.lines().count() <= 40, "{errors}");
        stranger.close_input();
        assert!(stranger.wait(Duration::from_secs(60)).success());
        place.assert_clean();
    }
}

/// The port for clients of OpenPMIx refuses other users, each of which takes its turn: a client of
/// the job's own user comes in meanwhile, however often the others connect again, and refusing them
/// is not all that the daemon does.
#[test]
fn idle_connections_keep_no_client_of_pmix_out() {
    match role().as_deref() {
        Some("rank") => return waits_for_a_word(),
        Some("holds") => return holds(),
        Some("owner") => return comes_in(),
        _ => {}
    }
    if !is_root() {
        return skip("only root can run programs as two other users");
    }
    for count in ["400", "1200"] {
        let job = OfUser::start(WAITS, &["-n", "2"]);
        let mut flood = job.visits(WAITS, NOBODY, "holds", &job.directories[0]);
        let uri = fs::read_to_string(job.directories[0].join("pmix41")).unwrap();
        flood.env("PORTS", uri.rsplit_once(':').unwrap().1);
        flood.env("KIND", "silent").env("COUNT", count);
        let mut flood = flood.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(flood.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line == "many"));
        let share = awake_while(job.child.id(), || {
            let mut owner = job.visits(WAITS, USER, "owner", &job.directories[0]);
            let said = owner.output().unwrap();
            assert!(said.status.success(), "{count}: {}", text(&said));
        });
        assert!(share < 0.7, "{count}: awake {share} of the time");
        job.ends_well();
        drop(flood.stdin.take());
        assert!(wait(&mut flood, Duration::from_secs(60)).success());
    }
}

/// Some clients, one after the other, as each rank of a job connects once.
fn comes_in() {
    for _ in 0..VISITS {
        let port: u16 = variable("PMIX_PORT").parse().unwrap();
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        assert_eq!(answer(stream, &greeting(&variable("SPACE"), 0)).len(), 8);
    }
}

/// The command, in a process that may have so many descriptors, as many as that can be raised to.
fn limited(command: std::process::Command, descriptors: u32) -> std::process::Command {
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &format!("ulimit -n {descriptors}; exec \"$@\""), "sh"]);
    shell.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.current_dir(command.get_current_dir().unwrap()).stdin(Stdio::null());
    shell
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap()
}

/// A connection that is held, and what was said over it.
struct Held {
    stream: TcpStream,
    heard: usize,
    said: usize,
    last: Instant,
}

impl Held {
    fn new(port: u16) -> Option<Held> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let fd = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).ok()?;
        match connect(&fd, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)) {
            Ok(()) | Err(Errno::INPROGRESS) => {
                let (stream, last) = (TcpStream::from(fd), Instant::now());
                Some(Held { stream, heard: 0, said: 0, last })
            }
            Err(_) => None,
        }
    }

    /// Plays its part; false: the connection is closed.
    fn goes_on(&mut self, kind: &str) -> bool {
        let mut heard = [0; 256];
        let open = match self.stream.read(&mut heard) {
            Ok(0) => false,
            Ok(count) => {
                self.heard += count;
                true
            }
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        };
        let say = match kind {
            "drips" => usize::from(self.last.elapsed() >= Duration::from_secs(1)),
            // Half of what a daemon says when it has been greeted.
            "stops" if self.heard > 0 && self.said == 0 => 30,
            _ => 0,
        };
        if say > 0 && self.stream.write(&vec![7; say]).is_ok() {
            (self.said, self.last) = (self.said + say, Instant::now());
        }
        open
    }
}

/// Holds so many connections to some ports, until standard input ends.
fn holds() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    let ports: Vec<u16> = variable("PORTS").split(' ').map(|port| port.parse().unwrap()).collect();
    let (kind, count) = (variable("KIND"), variable("COUNT").parse().unwrap());
    let mut turn = ports.iter().cycle();
    let mut next = || Held::new(*turn.next().unwrap());
    let mut held: Vec<Held> = (0..count).filter_map(|_| next()).collect();
    assert_eq!(held.len(), count);
    println!("\nmany");
    let stdin = rustix::stdio::stdin();
    let moment = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    loop {
        let mut fds = vec![PollFd::from_borrowed_fd(stdin, PollFlags::IN)];
        fds.extend(held.iter().map(|held| PollFd::new(&held.stream, PollFlags::IN)));
        let _ = poll(&mut fds, Some(&moment));
        if !fds[0].revents().is_empty() {
            return;
        }
        held.retain_mut(|held| held.goes_on(&kind));
        // When the job is over there is nothing to connect to.
        held.extend((held.len()..count).map_while(|_| next()));
    }
}

//! A listener of a process that has no descriptor left, and peers that hold descriptors without
//! ever authenticating.

use petasos_fabric::{Address, Clock, Endpoint, Event, LostReason, Sleep};
use petasos_shm::Shm;
use petasos_testing::{Process, again, role};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{
        AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
        socket_with,
    },
    process::{Resource, Rlimit, setrlimit},
};
use std::{
    fs::{self, File},
    io::stdin,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

const LIMIT: u64 = 64;
const IDLE: Duration = Duration::from_secs(1);
/// More often than this nothing wakes an endpoint that waits so long at a listener that it cannot
/// serve.
const WAKE_UPS: u64 = 400;

struct Driven {
    shm: Shm,
    clock: Clock,
}

impl Driven {
    fn open(url: &str) -> Driven {
        let shm = Shm::open(&Address::parse(url).unwrap()).unwrap();
        Driven { shm, clock: Clock::start() }
    }

    /// Drives it as an engine does that sleeps, until something is so or the time is over: how
    /// often it was woken, and whether it is so.
    fn until(&mut self, time: Duration, mut so: impl FnMut(&[Event]) -> bool) -> (u64, bool) {
        let end = Instant::now() + time;
        let (mut wake_ups, mut events) = (0, Vec::new());
        while Instant::now() < end {
            wake_ups += 1;
            while self.shm.progress(self.clock.now(), 64, &mut events) {
                wake_ups += 1;
                if Instant::now() >= end {
                    break;
                }
            }
            if so(&events) {
                return (wake_ups, true);
            }
            let now = self.clock.now();
            if let Sleep::Until(then) = self.shm.arm(now) {
                let sleep = then.since(now).min(end.saturating_duration_since(Instant::now()));
                let sleep = Timespec::try_from(sleep).unwrap();
                let _ =
                    poll(&mut [PollFd::new(&self.shm.fd().unwrap(), PollFlags::IN)], Some(&sleep));
            }
        }
        (wake_ups, false)
    }
}

/// The process under test: does what each line says, and answers with one.
fn serve() {
    let limit = Rlimit { current: Some(LIMIT), maximum: Some(LIMIT) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut driven = Driven::open("shm://*");
    println!("listens at {}", driven.shm.address());
    let mut taken: Vec<OwnedFd> = Vec::new();
    let source = File::open("/dev/null").unwrap();
    for line in stdin().lines() {
        match line.unwrap().as_str() {
            "take" => {
                taken.extend(std::iter::from_fn(|| source.try_clone().ok().map(Into::into)));
                println!("done {}", taken.len());
            }
            // Enough to take a connection, and not the descriptors that come by it.
            "one" => {
                taken.truncate(taken.len() - 1);
                println!("done 1");
            }
            "free" => {
                taken.clear();
                println!("done 0");
            }
            "idle" => println!("done {}", driven.until(IDLE, |_| false).0),
            "open" => println!("done {}", usize::from(File::open("/dev/null").is_ok())),
            "count" => println!("done {}", fs::read_dir("/proc/self/fd").unwrap().count()),
            "hear" => {
                let heard = |events: &[Event]| events.iter().any(is_message);
                let (_, heard) = driven.until(Duration::from_secs(20), heard);
                println!("done {}", usize::from(heard));
            }
            other => panic!("{other}"),
        }
    }
}

fn is_message(event: &Event) -> bool {
    matches!(event, Event::Message { .. })
}

fn ask(server: &mut Process, what: &str) -> u64 {
    server.tell(what);
    server.line("done ").parse().unwrap()
}

/// A connection to the socket behind an address, over which nothing is said.
fn dial(at: &str) -> OwnedFd {
    let name = at.strip_prefix("shm://").unwrap();
    let uid = rustix::process::getuid().as_raw();
    let name = format!("petasos/{uid}/{name}");
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
    socket
}

/// A client that knows what to say gets in.
fn is_heard(server: &mut Process, at: &str) {
    server.tell("hear");
    let mut client = Driven::open("shm://*");
    let peer = client.shm.resolve(&at.parse().unwrap(), Duration::from_secs(20)).unwrap();
    client.shm.inject(peer, &[b"hello"]).unwrap();
    let mut line = String::new();
    std::thread::scope(|scope| {
        let heard = scope.spawn(|| server.line("done "));
        while !heard.is_finished() {
            client.until(Duration::from_millis(20), |_| false);
        }
        line = heard.join().unwrap();
    });
    assert_eq!(line, "1");
}

#[test]
fn a_listener_without_descriptors_rests() {
    if role().is_some() {
        return serve();
    }
    let mut server = again("a_listener_without_descriptors_rests", "server").start();
    let at = server.line("listens at ");
    assert!(ask(&mut server, "take") > 40);
    let callers: Vec<_> = (0..20).map(|_| dial(&at)).collect();
    let wake_ups = ask(&mut server, "idle");
    assert!(wake_ups < WAKE_UPS, "woken {wake_ups} times in {IDLE:?}");
    // The clients were told why, and cut off.
    for caller in &callers {
        let mut said = [0; 1024];
        let (count, _) = recv(caller, &mut said, RecvFlags::DONTWAIT).unwrap();
        let said = String::from_utf8_lossy(&said[..count]);
        assert!(said.contains("RLIMIT_NOFILE"), "{said}");
    }
    ask(&mut server, "free");
    is_heard(&mut server, &at);
}

/// The shortage is not taken for a refusal: a client is admitted when there are descriptors again;
/// while there are none it is told of them, not of credentials.
#[test]
fn a_client_is_told_that_there_is_no_descriptor() {
    if role().is_some() {
        return serve();
    }
    let mut server = again("a_client_is_told_that_there_is_no_descriptor", "server").start();
    let at = server.line("listens at ");
    for some in ["take", "one"] {
        ask(&mut server, some);
        let mut client = Driven::open("shm://*");
        let peer = client.shm.resolve(&at.parse().unwrap(), Duration::from_millis(600)).unwrap();
        client.shm.inject(peer, &[b"hello"]).unwrap();
        server.tell("idle");
        let mut reason = None;
        client.until(Duration::from_secs(20), |events| {
            reason = events.iter().find_map(|event| match event {
                Event::PeerLost { reason, .. } => Some(reason.clone()),
                _ => None,
            });
            reason.is_some()
        });
        server.line("done ");
        let Some(LostReason::Unreachable(_, why)) = &reason else { panic!("{some}: {reason:?}") };
        assert!(why.contains("descriptor"), "{some}: {why}");
    }
    ask(&mut server, "free");
    is_heard(&mut server, &at);
}

#[test]
fn silent_clients_keep_no_client_out() {
    if role().is_some() {
        return serve();
    }
    let mut server = again("silent_clients_keep_no_client_out", "server").start();
    let at = server.line("listens at ");
    let before = ask(&mut server, "count");
    let callers: Vec<_> = (0..100).map(|_| dial(&at)).collect();
    let wake_ups = ask(&mut server, "idle");
    assert!(wake_ups < WAKE_UPS, "woken {wake_ups} times in {IDLE:?}");
    let held = ask(&mut server, "count") - before;
    assert!(held <= LIMIT / 8, "{held} of {LIMIT} descriptors are held by silent clients");
    assert_eq!(ask(&mut server, "open"), 1, "it cannot open a file");
    drop(callers);
    is_heard(&mut server, &at);
}

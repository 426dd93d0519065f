//! A listener of a process that has no descriptor left, and peers that hold descriptors without
//! ever authenticating.

use petasos_fabric::{Address, Clock, Endpoint, Event, Sleep};
use petasos_tcp::{Config, TcpEndpoint};
use petasos_testing::{Process, again, role};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Resource, Rlimit, setrlimit},
};
use std::{
    fs::{self, File},
    io::{ErrorKind, Read, stdin},
    net::TcpStream,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

/// Descriptors that the process under test may have.
const LIMIT: u64 = 64;

/// How long it is driven without anything to do.
const IDLE: Duration = Duration::from_secs(1);

/// An endpoint that waits at a listener that it cannot serve is not woken more often than this.
const WAKE_UPS: u64 = 200;

struct Driven {
    tcp: TcpEndpoint,
    clock: Clock,
}

impl Driven {
    fn open(url: &str) -> Driven {
        let tcp = TcpEndpoint::open(&Address::parse(url).unwrap(), Config::default()).unwrap();
        Driven { tcp, clock: Clock::start() }
    }

    /// Drives it as an engine does that sleeps, until something is so or the time is over: how
    /// often it was woken, and whether it is so.
    fn until(&mut self, time: Duration, mut so: impl FnMut(&[Event]) -> bool) -> (u64, bool) {
        let end = Instant::now() + time;
        let (mut wake_ups, mut events) = (0, Vec::new());
        while Instant::now() < end {
            wake_ups += 1;
            while self.tcp.progress(self.clock.now(), 64, &mut events) {
                wake_ups += 1;
                if Instant::now() >= end {
                    break;
                }
            }
            if so(&events) {
                return (wake_ups, true);
            }
            let now = self.clock.now();
            if let Sleep::Until(then) = self.tcp.arm(now) {
                let sleep = then.since(now).min(end.saturating_duration_since(Instant::now()));
                let sleep = Timespec::try_from(sleep).unwrap();
                let _ =
                    poll(&mut [PollFd::new(&self.tcp.fd().unwrap(), PollFlags::IN)], Some(&sleep));
            }
        }
        (wake_ups, false)
    }
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").map_or(LIMIT as usize, Iterator::count)
}

/// The process under test: does what each line says, and answers with one.
fn serve() {
    let limit = Rlimit { current: Some(LIMIT), maximum: Some(LIMIT) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut driven = Driven::open("tcp://127.0.0.1:0");
    println!("listens at {}", driven.tcp.address());
    let mut taken: Vec<OwnedFd> = Vec::new();
    let source = File::open("/dev/null").unwrap();
    for line in stdin().lines() {
        match line.unwrap().as_str() {
            "take" => {
                taken.extend(std::iter::from_fn(|| source.try_clone().ok().map(Into::into)));
                println!("done {}", taken.len());
            }
            "free" => {
                taken.clear();
                println!("done 0");
            }
            "idle" => println!("done {}", driven.until(IDLE, |_| false).0),
            "open" => println!("done {}", usize::from(File::open("/dev/null").is_ok())),
            "count" => println!("done {}", descriptors()),
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

/// Whether the connection has been closed by the other side.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    match stream.read(&mut [0; 1024]) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// A client that authenticates gets in.
fn is_heard(server: &mut Process, at: &str) {
    server.tell("hear");
    let mut client = Driven::open("tcp://127.0.0.1:0");
    let peer = client.tcp.resolve(&at.parse().unwrap(), Duration::from_secs(20)).unwrap();
    client.tcp.inject(peer, &[b"hello"]).unwrap();
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
    let place = at.strip_prefix("tcp://").unwrap();
    let mut callers: Vec<_> = (0..20).map(|_| TcpStream::connect(place).unwrap()).collect();
    let wake_ups = ask(&mut server, "idle");
    assert!(wake_ups < WAKE_UPS, "woken {wake_ups} times in {IDLE:?}");
    // The clients were not left to wait.
    for caller in &mut callers {
        assert!(is_closed(caller));
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
    let place = at.strip_prefix("tcp://").unwrap();
    let _callers: Vec<_> = (0..100).map(|_| TcpStream::connect(place).unwrap()).collect();
    ask(&mut server, "idle");
    let held = ask(&mut server, "count") - before;
    assert!(held <= LIMIT / 8, "{held} of {LIMIT} descriptors are held by silent clients");
    assert_eq!(ask(&mut server, "open"), 1, "it cannot open a file");
    is_heard(&mut server, &at);
}

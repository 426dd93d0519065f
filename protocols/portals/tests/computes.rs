//! Targets that compute, and make no call: the thread of an [`Engine`] matches and answers, also
//! while another process of the job is stopped.

mod common;

use common::*;
use petasos_conformance::free_port;
use petasos_fabric::{Address, Endpoint, Region};
use petasos_portals::*;
use petasos_testing::{Process, again, role};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::BufRead,
    sync::Arc,
    time::{Duration, Instant},
};

const LONG_TIME: Duration = Duration::from_secs(20);
const COMPUTES: Duration = Duration::from_secs(1);
/// Match bits: of memory to put to and get from, of a counter, and of one that counts down its
/// uses.
const MEMORY: u64 = 1;
const COUNTER: u64 = 2;
const ONCE: u64 = 3;
/// Entries that are used once.
const USES: u64 = 50;
const LEN: usize = 200_000;

/// The endpoint of a rank, and the job of three.
fn open(addresses: &[Address], rank: usize) -> Interface {
    let at = &addresses[rank];
    let endpoint: Box<dyn Endpoint> = match at.scheme() {
        "shm" => Box::new(petasos_shm::Shm::open(at).unwrap()),
        _ => Box::new(petasos_tcp::TcpEndpoint::open(at, Default::default()).unwrap()),
    };
    let map = Arc::new(ProcessMap::ranks(addresses.iter().cloned()));
    Interface::open(endpoint, map, Config::default()).unwrap()
}

fn addresses(scheme: &str) -> Vec<Address> {
    let place = |rank| match scheme {
        "shm" => format!("shm://computes-{}-{rank}", std::process::id()),
        _ => format!("tcp://127.0.0.1:{}", free_port("127.0.0.1")),
    };
    (0..3).map(|rank| Address::parse(&place(rank)).unwrap()).collect()
}

/// What the test says to this process: the addresses of all.
fn told() -> String {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).unwrap();
    line.trim().to_owned()
}

fn listed(line: &str) -> Vec<Address> {
    line.split(' ').map(|at| Address::parse(at).unwrap()).collect()
}

/// What a target has: a portal with entries of the three kinds.
fn prepare(interface: &Interface) -> Door {
    let door = door_with(interface, 100_000, false);
    let accepts = Accepts::PUT.with(Accepts::GET);
    let window = |bits, len| MatchEntry { bits, accepts, ..MatchEntry::new(Region::zeroed(len)) };
    append(interface, &door, List::Priority, window(MEMORY, LEN));
    append(interface, &door, List::Priority, window(COUNTER, 8));
    for _ in 0..USES {
        append(interface, &door, List::Priority, MatchEntry { once: true, ..window(ONCE, 8) });
    }
    door
}

fn compute() {
    let (begin, mut count) = (Instant::now(), 0u64);
    while begin.elapsed() < COMPUTES {
        count = count.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    }
    std::hint::black_box(count);
}

/// The process that computes.
fn target() {
    let interface = open(&listed(&told()), 1);
    let door = prepare(&interface);
    let engine = Engine::start(&interface).unwrap();
    println!("\nready");
    compute();
    assert_eq!(told(), "report");
    let mut uses = 0;
    while let Ok(taken) = interface.take_event(door.queue) {
        if let Event::Served(served) = taken.event {
            // The other process was killed, perhaps within a put.
            assert!(served.result.is_ok() || served.arrival.bits == MEMORY);
            uses += u64::from(served.arrival.bits == ONCE);
        }
    }
    assert_eq!(uses, USES);
    println!("\nreported");
    told();
    drop(engine);
}

/// Another one, which puts to the target until it is killed.
fn another() {
    let interface = open(&listed(&told()), 2);
    let source = source(&interface, &pattern(LEN));
    for nth in 0.. {
        let put = Operation::put(source.part, to(1, 0, MEMORY));
        interface.start(Operation { ack: Ack::Full, ..put }).unwrap();
        while !matches!(interface.wait_event(source.queue, LONG_TIME).unwrap().event, Event::Ack(_))
        {
        }
        if nth == 0 {
            println!("\nputs flow");
        }
    }
}

/// The initiator.
struct Initiator<'a> {
    interface: &'a Interface,
    data: Source,
    one: Source,
    back: Source,
    rounds: u64,
}

impl Initiator<'_> {
    fn new(interface: &Interface) -> Initiator<'_> {
        let data = source(interface, &pattern(LEN));
        let one = source(interface, &1u64.to_le_bytes());
        Initiator { interface, data, one, back: source(interface, &vec![0; LEN]), rounds: 0 }
    }

    /// Starts it, and waits for the event that ends it.
    fn run(&self, operation: Operation, queue: Handle<EventQueue>) {
        self.interface.start(Operation { ack: Ack::Full, ..operation }).unwrap();
        loop {
            match self.interface.wait_event(queue, LONG_TIME).expect("it goes on").event {
                Event::Ack(end) | Event::Reply(end) => return end.result.unwrap(),
                Event::Send(sent) => sent.result.unwrap(),
                _ => {}
            }
        }
    }

    /// A put, a get and an atomic; and a put for an entry that is used once, while there are some.
    fn round(&mut self) {
        let len = 1 + (self.rounds * 7919) % LEN as u64;
        let part = |source: &Source, len| Part { len, ..source.part };
        self.run(Operation::put(part(&self.data, len), to(1, 0, MEMORY)), self.data.queue);
        self.run(Operation::get(part(&self.back, len), to(1, 0, MEMORY)), self.back.queue);
        let (sum, kind) = (Operator::Sum, Datatype::U64);
        let (old, one) = (part(&self.back, 8), self.one.part);
        let add = Operation::fetch_atomic(sum, kind, old, one, to(1, 0, COUNTER));
        self.run(add, self.back.queue);
        if self.rounds < USES {
            self.run(Operation::put(self.one.part, to(1, 0, ONCE)), self.one.queue);
        }
        self.rounds += 1;
    }
}

struct Stopped(Pid);

impl Stopped {
    fn new(process: &Process) -> Stopped {
        let pid = Pid::from_raw(process.id() as i32).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// The target in a process of its own; another one is stopped in the middle.
fn among_processes(name: &str, scheme: &str) {
    match role().as_deref() {
        Some("target") => return target(),
        Some("another") => return another(),
        _ => {}
    }
    let addresses = addresses(scheme);
    let all = addresses.iter().map(|at| at.as_str().to_owned()).collect::<Vec<_>>().join(" ");
    let start = |role: &str| {
        let mut process = again(name, role).start();
        process.tell(&all);
        process
    };
    let mut owner = start("target");
    owner.line("ready");
    let interface = open(&addresses, 0);
    let mut initiator = Initiator::new(&interface);
    let begin = Instant::now();
    while initiator.rounds < USES || begin.elapsed() < COMPUTES * 3 / 2 {
        initiator.round();
    }
    let mut other = start("another");
    other.line("puts flow");
    for _ in 0..4 {
        let stopped = Stopped::new(&other);
        (0..20).for_each(|_| initiator.round());
        drop(stopped);
        initiator.round();
    }
    other.kill();
    initiator.round();
    owner.tell("report");
    owner.line("reported");
    owner.tell("end");
    assert!(owner.wait(LONG_TIME).success());
}

#[test]
fn a_process_that_computes_is_a_target_over_shared_memory() {
    among_processes("a_process_that_computes_is_a_target_over_shared_memory", "shm");
}

#[test]
fn a_process_that_computes_is_a_target_over_tcp() {
    among_processes("a_process_that_computes_is_a_target_over_tcp", "tcp");
}

/// Both in one process; the target's program does nothing until all is done.
#[test]
fn an_interface_that_nobody_drives_is_a_target() {
    for over in [Over::Local, Over::Shm, Over::Tcp] {
        let job = Job::new(over, 2);
        let (a, b) = (&job.ranks[0], &job.ranks[1]);
        let door = prepare(b);
        assert_eq!(door.portal, 0);
        let _engine = Engine::start(b).unwrap();
        let mut initiator = Initiator::new(a);
        (0..100).for_each(|_| initiator.round());
    }
}

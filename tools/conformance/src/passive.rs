//! Targets whose programs compute, and make no call: put, get, atomics, flushes and matching go on
//! at them where a thread drives the endpoint ([`Attended`]).
//!
//! `conformance!(attended, fixture)` makes the whole suite over attended endpoints, these probes
//! included; `conformance!(passive, fixture)` these probes alone. [`among_processes`] has the
//! target in a process of its own, and another peer of it that is stopped in the middle.

use crate::{
    Fixture, World,
    world::{Node, memory, pattern, room},
};
use petasos_fabric::{
    Access, Address, AtomicOp, AtomicType, Attended, AttendedConfig, Done, Endpoint, Event,
    InjectError, Key, Level, OpError, Operation, Payload, Peer, Region, Remote, RemoteSpan, Slice,
    Time, Token,
};
use petasos_testing::{Process, again, role};
use rustix::process::{Pid, Signal, kill_process};
use smallvec::smallvec;
use std::{
    io::BufRead,
    time::{Duration, Instant},
};

/// For how long a target computes.
const COMPUTES: Duration = Duration::from_secs(1);
/// Expected messages for which it has posted receives before.
const RECEIVES: u64 = 64;
/// Bytes of its memory: for the puts of a peer, a counter, and those of another peer.
const LEN: usize = 1 << 20;
const COUNTER: u64 = 512 << 10;
const OTHERS: u64 = 768 << 10;
/// Their tag.
const TAG: u64 = 7;

/// A fixture all of whose endpoints are [`Attended`].
pub struct AttendedFixture<F> {
    inner: F,
    config: AttendedConfig,
}

impl<F: Fixture> AttendedFixture<F> {
    /// Attends the endpoints of this one.
    pub fn new(inner: F) -> AttendedFixture<F> {
        AttendedFixture { inner, config: AttendedConfig::default() }
    }

    /// The same with other settings.
    pub fn with(inner: F, config: AttendedConfig) -> AttendedFixture<F> {
        AttendedFixture { inner, config }
    }
}

impl<F: Fixture> Fixture for AttendedFixture<F> {
    fn fresh(&self) -> Address {
        self.inner.fresh()
    }

    fn open(&self, at: &Address) -> Box<dyn Endpoint> {
        let endpoint = self.inner.open(at);
        Box::new(Attended::new(endpoint, self.config).expect("an endpoint with a descriptor"))
    }

    fn now(&self) -> Time {
        self.inner.now()
    }

    fn missing(&self) -> Option<String> {
        self.inner.missing()
    }

    fn stands_still(&self) -> Option<&'static str> {
        self.inner.stands_still()
    }

    fn holds_up_others(&self) -> Option<&'static str> {
        self.inner.holds_up_others()
    }

    fn keeps_memory(&self) -> Option<&'static str> {
        self.inner.keeps_memory()
    }

    fn refuses(&self) -> bool {
        self.inner.refuses()
    }

    fn pass(&self, idle: u32) {
        self.inner.pass(idle);
    }

    fn settle(&self) {
        self.inner.settle();
    }

    fn kill(&self, endpoint: Box<dyn Endpoint>) {
        self.inner.kill(endpoint);
    }

    fn deadline(&self) -> Duration {
        self.inner.deadline()
    }
}

/// Waits until the peer has said that its endpoint is attended.
fn until_attended(w: &mut World, n: Node, peer: Peer) {
    let end = w.now().after(w.fixture().deadline());
    while !w.capabilities_of(n, peer).attended {
        assert!(w.now() < end, "the peer does not say that it is attended");
        w.run_for(Duration::from_millis(1));
    }
    assert!(w.capabilities_of(n, peer).passive_target && w.capabilities(n).attended);
}

/// One of each access, and an expected message.
fn round(w: &mut World, a: Node, ab: Peer, remote: Remote, nth: u64) {
    let bytes = pattern(1 + (nth as usize * 7919) % (200 << 10), nth as u8);
    let put = w.put(a, remote, 0, &memory(&bytes));
    w.ok(a, put);
    let back = room(bytes.len());
    let get = w.get(a, remote, 0, &back);
    w.ok(a, get);
    assert!(back.to_vec() == bytes, "other bytes came back");
    let add = w.op(a, |token| add(token, remote));
    match w.ok(a, add) {
        Done::Fetched(old) => assert_eq!(old[..], nth.to_le_bytes()),
        done => panic!("{done:?}"),
    }
    let flush = w.op(a, |token| Operation::Flush { token, peer: ab });
    w.ok(a, flush);
    if nth < RECEIVES {
        let sent = w.op(a, |token| tagged(token, ab, nth));
        w.ok(a, sent);
    }
    let put = w.op(a, |token| Operation::Put {
        token,
        remote,
        local: smallvec![memory(&[1])],
        spans: smallvec![RemoteSpan { offset: COUNTER + 8, len: 1 }],
        level: Level::Visible,
        event: (nth < 500).then_some(nth),
    });
    w.ok(a, put);
}

fn add(token: Token, remote: Remote) -> Operation {
    Operation::Atomic {
        token,
        remote,
        offset: COUNTER,
        op: AtomicOp::Sum,
        kind: AtomicType::U64,
        operand: smallvec![1, 0, 0, 0, 0, 0, 0, 0],
        compare: smallvec![],
        fetch: true,
    }
}

fn tagged(token: Token, peer: Peer, nth: u64) -> Operation {
    // Some are announced, and fetched by the target.
    let bytes = pattern(if nth.is_multiple_of(2) { 16 } else { 100_000 }, nth as u8);
    let payload = Payload::Bytes(bytes.into());
    Operation::SendTagged { token, peer, tag: TAG, payload, level: Level::Visible }
}

/// The target computes for a second: put, get, atomics, flushes and matching go on, with and
/// without its program's looking in now and then.
pub fn everything_goes_on(w: &mut World) {
    let (a, b, ab, ba) = w.pair();
    until_attended(w, a, ab);
    let target = room(LEN);
    let (region, key) = w.expose(b, &target, Access::ALL);
    let remote = w.import(a, &key);
    let rooms: Vec<Slice> = (0..RECEIVES).map(|_| room(100_000)).collect();
    let posted: Vec<Token> = rooms.iter().map(|room| w.post(b, None, TAG, 0, room)).collect();
    w.run_for(Duration::from_millis(5));
    w[b].frozen = true;
    let end = w.now().after(COMPUTES);
    let mut rounds = 0;
    while rounds < RECEIVES || w.now() < end {
        round(w, a, ab, remote, rounds);
        rounds += 1;
        if rounds.is_multiple_of(37) {
            // It looks in, by another call than those that drive.
            assert!(w[b].endpoint().peer(ba).is_some());
            let spare = w[b].endpoint().export_part(region, 0..8, Access::READ);
            let (key, _) = spare.expect("another key");
            w.revoke(b, key);
        }
    }
    w[b].frozen = false;
    for (nth, token) in posted.into_iter().enumerate() {
        let len = if nth.is_multiple_of(2) { 16 } else { 100_000 };
        match w.ok(b, token) {
            Done::Tagged { peer, tag, len: got } => {
                assert_eq!((peer, tag, got), (ba, TAG, len as u64));
            }
            done => panic!("{done:?}"),
        }
        let there = rooms[nth].part(0, len).expect("within").to_vec();
        assert!(there == pattern(len, nth as u8), "expected message {nth}");
    }
    let arrivals = rounds.min(500);
    w.until("the arrivals are told", |w| w[b].arrivals.len() as u64 == arrivals);
    let told: Vec<u64> = w[b].arrivals.drain(..).map(|arrival| arrival.4).collect();
    assert!(told.into_iter().eq(0..arrivals), "in the order in which they were put");
}

/// A peer that sends messages to a program that takes none is stopped by a bound, however short
/// they are; its accesses go on, and those of another peer do. Nothing is lost, and order holds.
pub fn unread_messages_stop_nothing_else(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    let c = w.open();
    let (cb, _) = w.join(c, b);
    let target = room(LEN);
    let (_, key) = w.expose(b, &target, Access::ALL);
    let remotes = [w.import(a, &key), w.import(c, &key)];
    w[b].frozen = true;
    // Past any transport's buffers.
    let (mut count, mut refused) = (0u32, 0);
    while refused < 20 {
        assert!(count < 4_000_000, "messages without end are kept somewhere");
        match w.try_inject(a, ab, &[&count.to_le_bytes()]) {
            Ok(()) => (count, refused) = (count + 1, 0),
            Err(InjectError::Full) => {
                w.run_for(Duration::from_millis(5));
                refused += 1;
            }
            Err(error) => w.fail(&error.to_string()),
        }
    }
    for nth in 0..40 {
        let (from, peer, remote) = [(a, ab, remotes[0]), (c, cb, remotes[1])][nth % 2];
        let bytes = memory(&pattern(100_000, nth as u8));
        let put = w.put(from, remote, 0, &bytes);
        w.ok(from, put);
        let back = room(100_000);
        let get = w.get(from, remote, 0, &back);
        w.ok(from, get);
        assert!(back.to_vec() == bytes.to_vec());
        let add = w.op(from, |token| add(token, remote));
        w.ok(from, add);
        let flush = w.op(from, |token| Operation::Flush { token, peer });
        w.ok(from, flush);
    }
    // A message of the other peer is taken in all the same.
    w.inject(c, cb, b"another");
    w[b].frozen = false;
    let mut seen = 0;
    let mut other = false;
    while seen < count || !other {
        let (_, message) = w.message(b);
        match <[u8; 4]>::try_from(&message[..]) {
            Ok(number) => {
                assert_eq!(u32::from_le_bytes(number), seen, "in order");
                seen += 1;
            }
            Err(_) => other = true,
        }
    }
    w.inject(a, ab, b"and then");
    assert_eq!(w.message(b).1, b"and then");
}

/// Without a thread: whether put and get reach memory, to which there was an access before, with no
/// call of its owner's. They do where the capabilities say so; elsewhere they complete once the
/// owner drives. Prints what was found.
pub fn memory_that_was_accessed_before(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    if !w.has(a, |c| c.remote_access) {
        return;
    }
    let target = room(LEN);
    let (_, key) = w.expose(b, &target, Access::ALL);
    let remote = w.import(a, &key);
    // What needs the owner's consent has it from now on.
    for nth in 0..4 {
        let put = w.put(a, remote, 0, &memory(&pattern(LEN, nth)));
        w.ok(a, put);
        let get = w.get(a, remote, 0, &room(LEN));
        w.ok(a, get);
    }
    let promised = w.capabilities_of(a, ab).passive_target;
    let mut found = Vec::new();
    for (what, is_put) in [("put", true), ("get", false)] {
        w[b].frozen = true;
        let there = room(LEN);
        let token = match is_put {
            true => w.put(a, remote, 0, &memory(&pattern(LEN, 9))),
            false => w.get(a, remote, 0, &there),
        };
        let end = w.now().after(COMPUTES);
        while w.now() < end && !w[a].ledger.is_settled() {
            w.run_for(Duration::from_millis(1));
        }
        let went = w[a].ledger.is_settled();
        assert!(went || !promised, "a {what} waits for its target");
        w[b].frozen = false;
        w.ok(a, token);
        assert!(is_put || there.to_vec() == pattern(LEN, 9));
        found.push(format!("{what}: {}", if went { "goes on" } else { "waits" }));
    }
    println!("without a call of the owner's, {}", found.join(", "));
}

// Among processes.

/// Drives an endpoint of this process.
struct Driver<'f> {
    fixture: &'f dyn Fixture,
    end: Box<dyn Endpoint>,
    events: Vec<Event>,
    tokens: u64,
}

impl Driver<'_> {
    fn open(fixture: &dyn Fixture) -> Driver<'_> {
        let end = fixture.open(&fixture.fresh());
        Driver { fixture, end, events: Vec::new(), tokens: 0 }
    }

    fn until<T>(&mut self, what: &str, mut seen: impl FnMut(&mut Self) -> Option<T>) -> T {
        let (end, mut idle) = (Instant::now() + self.fixture.deadline(), 0);
        loop {
            if let Some(found) = seen(self) {
                return found;
            }
            if self.end.progress(self.fixture.now(), 64, &mut self.events) {
                idle = 0;
            } else {
                self.fixture.pass(idle);
                idle += 1;
            }
            assert!(Instant::now() < end, "not seen: {what}; {:?}", self.events);
        }
    }

    fn submit(&mut self, make: impl FnOnce(Token) -> Operation) -> Token {
        self.tokens += 1;
        let token = Token(self.tokens);
        self.end.try_submit(make(token)).expect("there is room");
        token
    }

    fn done(&mut self, token: Token) -> Result<Done, OpError> {
        self.until("a completion", |driver| {
            let is = |event: &Event| matches!(event, Event::Done { token: of, .. } if *of == token);
            let at = driver.events.iter().position(is)?;
            match driver.events.remove(at) {
                Event::Done { result, .. } => Some(result),
                _ => None,
            }
        })
    }

    fn ok(&mut self, make: impl FnOnce(Token) -> Operation) -> Done {
        let token = self.submit(make);
        self.done(token).expect("it goes on")
    }

    /// The peer at this address, once it is up and has said that it is attended.
    fn meet(&mut self, at: &str) -> Peer {
        let address = Address::parse(at).expect("an address");
        let peer = self.end.resolve(&address, self.fixture.deadline()).expect("it is resolved");
        self.until("the peer is attended", |driver| {
            driver.end.capabilities_of(peer).filter(|can| can.attended).map(|_| ())
        });
        peer
    }

    fn put(&mut self, remote: Remote, offset: u64, bytes: &[u8]) -> Token {
        let (local, len) = (memory(bytes), bytes.len() as u64);
        self.submit(|token| Operation::Put {
            token,
            remote,
            local: smallvec![local],
            spans: smallvec![RemoteSpan { offset, len }],
            level: Level::Visible,
            event: None,
        })
    }

    /// One of each access, and an expected message.
    fn round(&mut self, peer: Peer, remote: Remote, nth: u64) {
        let bytes = pattern(1 + (nth as usize * 7919) % (200 << 10), nth as u8);
        let put = self.put(remote, 0, &bytes);
        self.done(put).expect("it is put");
        let (back, len) = (room(bytes.len()), bytes.len() as u64);
        let local = smallvec![back.clone()];
        let spans = smallvec![RemoteSpan { offset: 0, len }];
        self.ok(|token| Operation::Get { token, remote, local, spans });
        assert!(back.to_vec() == bytes, "other bytes came back");
        match self.ok(|token| add(token, remote)) {
            Done::Fetched(old) => assert_eq!(old[..], nth.to_le_bytes()),
            done => panic!("{done:?}"),
        }
        self.ok(|token| Operation::Flush { token, peer });
        if nth < RECEIVES {
            self.ok(|token| tagged(token, peer, nth));
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn key(hex: &str) -> Key {
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("a byte");
    Key::from_bytes((0..hex.len()).step_by(2).map(byte).collect::<Vec<u8>>()).expect("a key")
}

/// The next line that the test says to this process.
fn told() -> String {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).expect("it is told");
    line.trim().to_owned()
}

/// The process that is the target: it has receives posted and memory open, computes, and makes no
/// call before it is told to report.
fn target(fixture: &dyn Fixture) {
    let mut driver = Driver::open(fixture);
    let memory = Region::zeroed(LEN).whole();
    let region = driver.end.register(&memory, Access::ALL).expect("memory is registered");
    let key = driver.end.export(region).expect("it has a key");
    let rooms: Vec<Slice> = (0..RECEIVES).map(|_| room(100_000)).collect();
    let posted: Vec<Token> = rooms
        .iter()
        .map(|room| {
            let into = room.clone();
            let (source, tag, ignore) = (None, TAG, 0);
            driver.submit(|token| Operation::PostReceive { token, source, tag, ignore, into })
        })
        .collect();
    println!("\nat {} {}", driver.end.address(), hex(key.as_bytes()));
    let (begin, mut count) = (Instant::now(), 0u64);
    while begin.elapsed() < COMPUTES {
        count = count.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    }
    std::hint::black_box(count);
    assert_eq!(told(), "report");
    for (nth, token) in posted.into_iter().enumerate() {
        let len = if nth.is_multiple_of(2) { 16 } else { 100_000 };
        let done = driver.done(token).expect("it was received");
        assert!(matches!(done, Done::Tagged { len: got, .. } if got == len as u64), "{done:?}");
        let there = rooms[nth].part(0, len).expect("within").to_vec();
        assert!(there == pattern(len, nth as u8), "expected message {nth}");
    }
    println!("\nreceived all");
    assert_eq!(told(), "end");
}

/// Another peer of the target, which puts to it until it is killed.
fn another(fixture: &dyn Fixture) {
    let mut driver = Driver::open(fixture);
    let line = told();
    let (at, of) = line.split_once(' ').expect("address and key");
    driver.meet(at);
    let remote = driver.end.import(&key(of)).expect("it is imported");
    for nth in 0u64.. {
        let put = driver.put(remote, OTHERS, &pattern(200_000, nth as u8));
        driver.done(put).expect("it is put");
        if nth == 0 {
            println!("\nputs flow");
        }
    }
}

/// Stopped, and continued when it is dropped.
struct Stopped(Pid);

impl Stopped {
    fn new(process: &Process) -> Stopped {
        let pid = Pid::from_raw(process.id() as i32).expect("a process");
        kill_process(pid, Signal::STOP).expect("it lives");
        Stopped(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// The target is a process that computes: accesses and matching go on, also while another of its
/// peers is stopped in the middle of an access. `name` is the path of the test that calls this,
/// without the crate.
///
/// # Panics
/// If something does not go on.
pub fn among_processes(fixture: &dyn Fixture, name: &str) {
    if fixture.missing().is_some() {
        return;
    }
    match role().as_deref() {
        Some("target") => return target(fixture),
        Some("another") => return another(fixture),
        _ => {}
    }
    let start = |role: &str| again(name, role).start();
    let mut owner = start("target");
    let line = owner.line("at ");
    let (at, of) = line.split_once(' ').expect("address and key");
    let mut driver = Driver::open(fixture);
    let peer = driver.meet(at);
    let remote = driver.end.import(&key(of)).expect("it is imported");
    let (begin, mut rounds) = (Instant::now(), 0);
    while rounds < RECEIVES || begin.elapsed() < COMPUTES * 3 / 2 {
        driver.round(peer, remote, rounds);
        rounds += 1;
    }
    // Not where a stopped process stops others by locks of its library.
    if fixture.stands_still().is_none() && fixture.holds_up_others().is_none() {
        let mut other = start("another");
        other.tell(&line);
        other.line("puts flow");
        for _ in 0..4 {
            let stopped = Stopped::new(&other);
            for _ in 0..20 {
                driver.round(peer, remote, rounds);
                rounds += 1;
            }
            drop(stopped);
            driver.round(peer, remote, rounds);
            rounds += 1;
        }
        // Nor is it of any consequence that it dies.
        other.kill();
        driver.round(peer, remote, rounds);
    }
    owner.tell("report");
    owner.line("received all");
    owner.tell("end");
    assert!(owner.wait(fixture.deadline()).success());
}

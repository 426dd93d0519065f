//! Memory that is closed under a peer that is stopped: in a process of its own, by a signal.
//!
//! A peer may be stopped at any moment, also in the middle of a copy, and continue at any later
//! one. Once a region is deregistered, its memory belongs to its owner alone: nothing that the peer
//! does afterwards changes it or reads it. The same holds of a part of a region once the key to it
//! is revoked. Until then [`Operation::Deregister`] ends with an error,
//! when its patience is over.
//!
//! No call of the owner's endpoint waits for a stopped peer: a watchdog continues the peer if one
//! does, and the test fails, unless the fixture says that its library is made so
//! ([`Fixture::stands_still`]).
//!
//! A flush to a peer that is stopped ends when the peer goes on ([`flushes`]), and what carries a
//! fence arrives when all before it is there ([`fences`]).
//!
//! `conformance!(stopped, fixture)` makes a test of each kind of access and memory, and the process
//! that they start.

mod flush;
mod operations;
mod watch;

pub use self::{
    flush::{fences, flushes},
    operations::operations,
};

use self::{flush::Exposed, watch::Watch};
use crate::{
    Fixture, Random,
    foreign::{self, Over, Pages},
    world::all_are,
};
use petasos_fabric::{
    Access, Address, Done, Endpoint, Event, Key, KeyId, Level, OpError, OpErrorKind, Operation,
    Peer, Region, RegionId, Remote, RemoteSpan, Slice, Support, Token,
};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use smallvec::smallvec;
use std::{
    collections::VecDeque,
    env,
    io::{BufRead, BufReader, IsTerminal, Write},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// Bytes of the memory: some slices of a copy, and more than sockets hold.
const LEN: usize = 8 << 20;
/// The content of the memory at first, what the peer puts there, and what the owner writes once the
/// region is closed.
const FIRST: u8 = 0x11;
const PUT: u8 = 0xaa;
const OWN: u8 = foreign::OVER;
/// What the process prints first.
const HERE: &str = "petasos-conformance, the peer to be stopped, at ";
/// How late the end may be on a busy machine.
const LATE: Duration = Duration::from_secs(4);
/// Closings of regions under a stopped peer in one test, and of keys.
const ROUNDS: usize = 12;
const KEYS: usize = 6;

/// What the peer does with the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum What {
    /// Puts to all of it, again and again.
    Put,
    /// Gets all of it, again and again.
    Get,
}

/// Where the memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// Any memory of the process.
    Heap,
    /// Memory that the endpoint gave.
    Alloc,
    /// Memory that the program keeps, and frees at once.
    Raw,
    /// Several pieces as one.
    Pieces,
}

/// What is closed under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closed {
    Region(RegionId),
    /// The key to the middle of this region, which stays open.
    Key(KeyId, RegionId),
}

/// Bytes before and after a part.
const BESIDE: usize = 4096;

/// When the peer is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// Before it knows of the memory.
    Before,
    /// In the middle of accesses.
    Within,
    /// After one, which was the last.
    After,
}

/// The first byte of a message: from the owner what to do, before a key; from the peer the outcome.
mod message {
    pub(super) const FOREVER: u8 = 0;
    pub(super) const ONCE: u8 = 1;
    pub(super) const BEGUN: u8 = 2;
    pub(super) const OVER: u8 = 3;
    pub(super) const BAD: u8 = 4;
    pub(super) const EXPOSE: u8 = 5;
    pub(super) const KEY: u8 = 6;
    pub(super) const CHECK: u8 = 7;
    /// To open memory, and to do nothing more: its key comes back.
    pub(super) const EXPOSE_AND_END: u8 = 8;
}

/// Drives an endpoint.
struct Driver<'f> {
    fixture: &'f dyn Fixture,
    end: Box<dyn Endpoint>,
    events: Vec<Event>,
    tokens: u64,
    /// Passes in a row in which there was nothing to do.
    idle: u32,
    watch: Watch,
}

impl Driver<'_> {
    fn open(fixture: &dyn Fixture) -> Driver<'_> {
        let end = fixture.open(&fixture.fresh());
        Driver { fixture, end, events: Vec::new(), tokens: 0, idle: 0, watch: Watch::start() }
    }

    fn pass(&mut self) -> bool {
        self.watch.beat();
        self.end.progress(self.fixture.now(), 64, &mut self.events)
    }

    /// A pass, and a little time where there was nothing to do.
    fn pass_or_wait(&mut self) {
        if self.pass() {
            self.idle = 0;
        } else {
            self.fixture.pass(self.idle);
            self.idle += 1;
        }
    }

    /// Drives until `seen` takes something from the events.
    fn until<T>(&mut self, what: &str, mut seen: impl FnMut(&mut Vec<Event>) -> Option<T>) -> T {
        let end = Instant::now() + self.fixture.deadline();
        loop {
            if let Some(found) = seen(&mut self.events) {
                return found;
            }
            self.pass_or_wait();
            assert!(Instant::now() < end, "not seen: {what}; {:?}", self.events);
        }
    }

    fn submit(&mut self, make: impl FnOnce(Token) -> Operation) -> Token {
        self.tokens += 1;
        let token = Token(self.tokens);
        let mut queue = VecDeque::from([make(token)]);
        let end = Instant::now() + self.fixture.deadline();
        while !queue.is_empty() {
            self.end.submit(&mut queue);
            self.pass();
            assert!(Instant::now() < end, "an operation was not taken");
        }
        token
    }

    fn done(&mut self, token: Token) -> Result<Done, OpError> {
        self.until("the end of an operation", |events| {
            let is = |event: &Event| matches!(event, Event::Done { token: of, .. } if *of == token);
            let at = events.iter().position(is)?;
            match events.remove(at) {
                Event::Done { result, .. } => Some(result),
                _ => None,
            }
        })
    }

    fn say(&mut self, peer: Peer, parts: &[&[u8]]) {
        let end = Instant::now() + self.fixture.deadline();
        while let Err(error) = self.end.inject(peer, parts) {
            assert!(Instant::now() < end, "not injected: {error}");
            self.pass();
        }
    }

    /// The next message and its sender; `None` if the sender is lost.
    fn message(&mut self) -> Option<(Peer, Vec<u8>)> {
        self.until("a message", |events| {
            let of =
                |event: &Event| matches!(event, Event::Message { .. } | Event::PeerLost { .. });
            let at = events.iter().position(of)?;
            Some(match events.remove(at) {
                Event::Message { peer, message } => Some((peer, message.to_vec())),
                _ => None,
            })
        })
    }
}

/// The peer: connects to the address that it reads from standard input, and carries out requests
/// until it is killed. Returns if there is no input, as when it was started by mistake.
///
/// # Panics
/// If a request makes no sense.
pub fn serve(fixture: &dyn Fixture) {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        eprintln!("this is the other side of a test, which starts it by itself");
        return;
    }
    let mut line = String::new();
    println!("\n{HERE}");
    if stdin.lock().read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    let owner = Address::parse(line.trim()).expect("an address");
    let mut driver = Driver::open(fixture);
    let peer = driver.end.resolve(&owner, fixture.deadline()).expect("it is resolved");
    driver.until("the owner", |events| {
        events.iter().any(|event| matches!(event, Event::PeerUp { .. })).then_some(())
    });
    driver.say(peer, &[&[message::BEGUN]]);
    let mut exposed = Exposed::default();
    loop {
        let end = Instant::now() + fixture.deadline();
        // No request comes while this process is stopped.
        let said = loop {
            let is = |event: &Event| matches!(event, Event::Message { .. });
            if let Some(at) = driver.events.iter().position(is) {
                break driver.events.remove(at);
            }
            if driver.events.iter().any(|event| matches!(event, Event::PeerLost { .. })) {
                return;
            }
            driver.pass_or_wait();
            assert!(Instant::now() < end + fixture.deadline(), "no request comes");
        };
        let Event::Message { message, .. } = said else { continue };
        let (&[much, what], key) = message.split_first_chunk::<2>().expect("what to do");
        if much == message::EXPOSE_AND_END {
            return operations::expose(&mut driver, peer);
        }
        if much >= message::EXPOSE {
            let answer = exposed.answer(&mut *driver.end, [much, what]);
            driver.say(peer, &[&answer]);
            continue;
        }
        let what = if what == What::Put as u8 { What::Put } else { What::Get };
        let key = Key::from_bytes(key.to_vec()).expect("a key");
        let remote = driver.end.import(&key).expect("it is imported");
        let memory = Region::from_vec(vec![PUT; LEN]).whole();
        let mut count = 0u32;
        let error = loop {
            let token = driver.submit(|token| access(token, what, remote, &memory));
            let result = driver.done(token);
            let unseen = what == What::Put || !memory.to_vec().contains(&OWN);
            if !unseen {
                driver
                    .say(peer, &[&[message::BAD], b"it got what its owner wrote to closed memory"]);
                return;
            }
            match result {
                Err(error) => break error.to_string(),
                Ok(_) if much == message::ONCE => break String::new(),
                Ok(_) if count == 0 => driver.say(peer, &[&[message::BEGUN]]),
                Ok(_) => {}
            }
            count += 1;
        };
        driver.end.release(remote);
        driver.say(peer, &[&[message::OVER], error.as_bytes()]);
    }
}

fn access(token: Token, what: What, remote: Remote, memory: &Slice) -> Operation {
    let (local, spans) =
        (smallvec![memory.clone()], smallvec![RemoteSpan { offset: 0, len: memory.len() as u64 }]);
    match what {
        What::Put => {
            Operation::Put { token, remote, local, spans, level: Level::Visible, event: None }
        }
        What::Get => Operation::Get { token, remote, local, spans },
    }
}

/// The process of the peer, which ends with this.
struct Stoppable {
    child: Child,
    pid: Pid,
}

impl Stoppable {
    /// Starts one, which connects to `owner`.
    fn start(serve: &str, owner: &Address) -> Stoppable {
        let test = serve.split_once("::").map_or(serve, |(_, test)| test);
        let mut command = Command::new(env::current_exe().expect("a test binary's path"));
        command.args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the peer is started");
        let pid = Pid::from_raw(child.id() as i32).expect("a process");
        let mut said = BufReader::new(child.stdout.take().expect("piped"));
        let mut stoppable = Stoppable { child, pid };
        let mut line = String::new();
        while !line.contains(HERE.trim_end()) {
            line.clear();
            assert!(said.read_line(&mut line).unwrap_or(0) > 0, "the peer did not begin");
        }
        let input = stoppable.child.stdin.as_mut().expect("piped");
        writeln!(input, "{owner}").expect("it reads");
        stoppable
    }

    /// Stops it, and returns when it is stopped.
    fn stop(&self) {
        kill_process(self.pid, Signal::STOP).expect("it lives");
        let stopped = waitpid(Some(self.pid), WaitOptions::UNTRACED).expect("a child");
        assert!(stopped.is_some_and(|(_, status)| status.stopped()), "{stopped:?}");
    }

    fn go_on(&self) {
        kill_process(self.pid, Signal::CONT).expect("it lives");
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|ended| ended.is_none())
    }
}

impl Drop for Stoppable {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The owner of the memory.
struct Owner<'f> {
    driver: Driver<'f>,
    serve: &'f str,
    random: Random,
    /// The current peer.
    peer: Option<(Stoppable, Peer)>,
}

/// Closes memory under a peer that is stopped, many times, at many moments.
///
/// # Panics
/// If what was closed is not closed, or a close does not end.
pub fn closings(fixture: &dyn Fixture, serve: &str, what: What, of: Where) {
    let can = |driver: &Driver<'_>| driver.end.capabilities().remote_access != Support::None;
    close_all(fixture, serve, what, of, (ROUNDS, false), can);
}

/// Revokes keys to parts of regions under a peer that is stopped, many times, at many moments.
///
/// # Panics
/// If what was revoked is not, or a revocation does not end.
pub fn revocations(fixture: &dyn Fixture, serve: &str, what: What) {
    let can = |driver: &Driver<'_>| driver.end.capabilities().part_keys != Support::None;
    close_all(fixture, serve, what, Where::Heap, (KEYS, true), can);
}

fn close_all(
    fixture: &dyn Fixture,
    serve: &str,
    what: What,
    of: Where,
    (rounds, part): (usize, bool),
    can: impl Fn(&Driver<'_>) -> bool,
) {
    if fixture.missing().is_some() {
        return;
    }
    let mut owner = Owner::new(fixture, serve, what as u64 + 7);
    if !can(&owner.driver) {
        return;
    }
    for round in 0..rounds {
        let when = match round % 6 {
            0 => When::Before,
            5 => When::After,
            _ => When::Within,
        };
        owner.close_under_stopped(what, of, when, part);
    }
}

impl<'f> Owner<'f> {
    fn new(fixture: &'f dyn Fixture, serve: &'f str, seed: u64) -> Owner<'f> {
        let driver = Driver::open(fixture);
        Owner { driver, serve, random: Random::new(seed), peer: None }
    }

    fn peer(&mut self) -> Peer {
        if let Some((_, peer)) = self.peer {
            return peer;
        }
        let process = Stoppable::start(self.serve, &self.driver.end.address().clone());
        let (peer, _) = self.driver.message().expect("it lives");
        self.peer = Some((process, peer));
        peer
    }

    fn close(&mut self, closed: Closed, patience: Duration) -> Result<(), OpError> {
        let token = self.driver.submit(|token| match closed {
            Closed::Region(region) => Operation::Deregister { token, region, patience },
            Closed::Key(key, _) => Operation::Revoke { token, key, patience },
        });
        let done = self.driver.done(token)?;
        match closed {
            Closed::Region(_) => assert!(matches!(done, Done::Deregistered), "{done:?}"),
            Closed::Key(..) => assert!(matches!(done, Done::Revoked), "{done:?}"),
        }
        Ok(())
    }

    /// Once the peer goes on.
    fn close_at_last(&mut self, closed: Closed) {
        let patience = self.driver.fixture.deadline() * 2;
        self.close(closed, patience).expect("the peer goes on, and leaves");
    }

    fn stop(&self) {
        let (process, _) = self.peer.as_ref().expect("started");
        process.stop();
        self.driver.watch.begin(process.pid);
    }

    fn go_on(&self) {
        self.driver.watch.end();
        self.peer.as_ref().expect("started").0.go_on();
    }

    /// Whether a call waited for the peer, which therefore goes on already.
    fn has_waited(&self) -> bool {
        let waited = self.driver.watch.has_continued();
        let allowed = self.driver.fixture.stands_still().is_some();
        assert!(!waited || allowed, "a call of the endpoint waited for a peer that was stopped");
        waited
    }

    /// Opens this memory, or all of it but some bytes at both ends.
    fn open(&mut self, memory: &Slice, part: bool) -> (Closed, Key) {
        let end = &mut self.driver.end;
        let region = end.register(memory, Access::ALL).expect("registered");
        if !part {
            return (Closed::Region(region), end.export(region).expect("a key"));
        }
        let range = BESIDE as u64..(memory.len() - BESIDE) as u64;
        let (id, key) = end.export_part(region, range, Access::ALL).expect("a key");
        (Closed::Key(id, region), key)
    }

    fn close_under_stopped(&mut self, what: What, of: Where, when: When, part: bool) {
        let peer = self.peer();
        let len = if part { LEN + 2 * BESIDE } else { LEN };
        let memory = match of {
            Where::Heap => Memory::Region(Region::from_vec(vec![FIRST; len])),
            Where::Alloc => Memory::Region(self.driver.end.alloc(len).expect("memory")),
            Where::Raw => Memory::Raw(Pages::new(&vec![FIRST; len])),
            Where::Pieces => {
                let lens = [1000, len / 2, len - len / 2 - 1000];
                let pieces = lens.map(|len| Region::zeroed(len).whole());
                Memory::Region(Region::of_pieces(pieces))
            }
        };
        memory.slice().write(0, &vec![FIRST; len]);
        let (region, key) = self.open(&memory.slice(), part);
        let much = if when == When::After { message::ONCE } else { message::FOREVER };
        let task: [&[u8]; 2] = [&[much, what as u8], key.as_bytes()];
        if when != When::Before {
            self.driver.say(peer, &task);
            let (_, said) = self.driver.message().expect("it lives");
            let wanted = if when == When::After { message::OVER } else { message::BEGUN };
            assert_eq!(said[0], wanted, "{}", String::from_utf8_lossy(&said[1..]));
        }
        // Anywhere in an access, and in what this side has to do for it.
        for _ in 0..self.random.below(400) {
            self.driver.pass();
        }
        let pause = self.random.below(3000) as u64;
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_micros(pause) {
            std::hint::spin_loop();
        }
        self.stop();
        let patience = Duration::from_millis([0, 20, 300][self.random.below(3)]);
        let begin = Instant::now();
        let first = self.close(region, patience);
        let waited = self.has_waited();
        assert!(waited || begin.elapsed() < patience + LATE, "its patience was over long ago");
        if let Closed::Region(region) = region {
            assert!(self.driver.end.export(region).is_err(), "it is closed to new access");
        }
        let held = match first {
            Ok(()) => self.take(memory, of, region),
            Err(error) if waited => {
                assert_eq!(error.kind, OpErrorKind::StillReached, "{error}");
                self.close_at_last(region);
                self.take(memory, of, region)
            }
            Err(error) => {
                assert_eq!(error.kind, OpErrorKind::StillReached, "{error}");
                let known = self.driver.end.peer(peer).map(|info| info.address);
                assert_eq!(error.peer, known, "the peer is named");
                // Again, still stopped: what it had sent before may have come meanwhile, and was
                // the last that reached the memory.
                let again = self.close(region, Duration::ZERO);
                self.has_waited();
                if let Err(again) = again {
                    assert_eq!(again.kind, OpErrorKind::StillReached, "{again}");
                    self.go_on();
                    self.close_at_last(region);
                }
                self.take(memory, of, region)
            }
        };
        self.go_on();
        if when == When::Before {
            self.driver.say(peer, &task);
        }
        if when != When::After {
            match self.driver.message() {
                Some((_, said)) => {
                    assert_eq!(said[0], message::OVER, "{}", String::from_utf8_lossy(&said[1..]));
                }
                // It was cut off.
                None => self.peer = None,
            }
        }
        held.check(when);
        if let Closed::Key(_, region) = region {
            self.close_at_last(Closed::Region(region));
        }
    }

    /// The memory belongs to this side alone: it writes there.
    fn take(&mut self, memory: Memory, of: Where, closed: Closed) -> Held {
        let mut held = match (memory, of) {
            (Memory::Region(memory), _) if matches!(closed, Closed::Key(..)) => {
                memory.write(BESIDE, &vec![OWN; LEN]);
                return Held::Part(memory);
            }
            (Memory::Region(memory), Where::Heap) => {
                Held::Exclusive(memory.into_exclusive().expect("nothing else holds it"))
            }
            (Memory::Region(memory), _) => Held::Shared(memory),
            (Memory::Raw(pages), _) => Held::Raw(pages.end(self.random.below(2) == 0).1),
        };
        match &mut held {
            Held::Exclusive(memory) => memory.fill(OWN),
            Held::Shared(memory) => memory.write(0, &vec![OWN; LEN]),
            Held::Raw(_) | Held::Part(_) => {}
        }
        held
    }
}

/// Memory that is registered.
enum Memory {
    Region(Region),
    Raw(Pages),
}

impl Memory {
    fn slice(&self) -> Slice {
        match self {
            Memory::Region(region) => region.whole(),
            Memory::Raw(pages) => pages.slice(),
        }
    }
}

/// Memory after its end.
enum Held {
    Exclusive(petasos_fabric::Exclusive),
    Shared(Region),
    Raw(Over),
    /// A part belongs to the owner alone, and some bytes beside it were nothing to the peer.
    Part(Region),
}

impl Held {
    fn check(self, when: When) {
        let bytes = match self {
            Held::Exclusive(memory) => memory.to_vec(),
            Held::Shared(memory) => memory.to_vec(),
            Held::Raw(over) => return assert!(over.is_untouched(), "stopped: {when:?}"),
            Held::Part(memory) => {
                let mut bytes = memory.to_vec();
                let (rest, after) = bytes.split_at(BESIDE + LEN);
                let beside = all_are(&rest[..BESIDE], FIRST) && all_are(after, FIRST);
                assert!(beside, "bytes beside the part changed; stopped: {when:?}");
                bytes.drain(..BESIDE);
                bytes.truncate(LEN);
                bytes
            }
        };
        assert!(all_are(&bytes, OWN), "bytes of closed memory changed; stopped: {when:?}");
    }
}

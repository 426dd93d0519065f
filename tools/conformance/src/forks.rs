//! A process that forks while its memory is open to another.
//!
//! The rule: an endpoint belongs to the process that opened it. What a child does with its copy,
//! short of driving it, must not be felt by the parent, nor by the parent's peers: the child may
//! write to memory that it inherited, drop the endpoint, end, start another program, or live on.
//! When both write, one keeps the pages and the other gets a copy of them; a peer that accesses the
//! parent's memory must find the parent's pages, whichever those are.
//!
//! The test starts a process that [`obey`]s an [`Overseer`], and knows how to fork.

use crate::{fixture::wait, processes::PATIENCE, world::all_are};
use petasos_fabric::{
    Access, Address, Clock, Done, Endpoint, Event, Key, Level, OpErrorKind, Operation, Peer,
    Region, RegionId, Remote, RemoteSpan, Slice, Support, Token,
};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use smallvec::smallvec;
use std::{
    collections::VecDeque,
    os::unix::process::CommandExt,
    process::{Command, exit},
    time::{Duration, Instant},
};

/// Bytes of each piece of memory: of a length that comes from the system, in pages of its own.
const LEN: usize = 1 << 20;
/// What the child writes, which no other process may see.
const CHILDS: u8 = 0xee;
/// Messages that wait to leave when the process forks.
const WAITING: u8 = 20;

/// What a child does after it wrote to its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Child {
    /// Is killed.
    Dies,
    /// Ends as programs do: what libraries do at the end of a process is done.
    Exits,
    /// Drops what it inherited, and then ends.
    Drops,
    /// Becomes another program.
    Executes,
    /// Goes on writing, until the parent kills it.
    Stays,
}

impl Child {
    /// All of them.
    pub const ALL: [Child; 5] =
        [Child::Dies, Child::Exits, Child::Drops, Child::Executes, Child::Stays];

    fn ends_well(self) -> bool {
        !matches!(self, Child::Dies | Child::Stays)
    }
}

/// The order of the overseer, as the first byte of a message; the second byte is its argument, or
/// which child.
mod order {
    pub(super) const KEY: u8 = 0;
    pub(super) const WRITE: u8 = 1;
    pub(super) const CHECK: u8 = 2;
    pub(super) const AGAIN: u8 = 3;
    pub(super) const PUT: u8 = 4;
    pub(super) const GET: u8 = 5;
    pub(super) const FORK: u8 = 6;
    pub(super) const ENDED: u8 = 7;
    pub(super) const END: u8 = 8;
}

fn fill(memory: &Slice, byte: u8) {
    memory.write(0, &vec![byte; memory.len()]);
}

fn is_full_of(memory: &Slice, byte: u8) -> bool {
    all_are(&memory.to_vec(), byte)
}

/// An endpoint, and how to wait for what it does.
struct Driver<E> {
    end: E,
    clock: Clock,
    events: Vec<Event>,
    tokens: u64,
    /// Passes in a row in which there was nothing to do.
    idle: u32,
}

impl<E: Endpoint> Driver<E> {
    fn new(end: E) -> Driver<E> {
        Driver { end, clock: Clock::start(), events: Vec::new(), tokens: 0, idle: 0 }
    }

    fn pass(&mut self) {
        if self.end.progress(self.clock.now(), 64, &mut self.events) {
            self.idle = 0;
        } else {
            wait(self.idle);
            self.idle += 1;
        }
    }

    /// The first event of this kind, once it is there.
    fn find<T>(&mut self, what: &str, mut is: impl FnMut(&Event) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = self.events.iter().enumerate().find_map(|(at, e)| Some((at, is(e)?)));
            if let Some((at, found)) = found {
                self.events.remove(at);
                return found;
            }
            assert!(Instant::now() < end, "not seen: {what}; {:?}", self.events);
            self.pass();
        }
    }

    fn run(&mut self, operation: impl FnOnce(Token) -> Operation) -> Result<Done, OpErrorKind> {
        self.tokens += 1;
        let token = Token(self.tokens);
        self.end.submit(&mut VecDeque::from([operation(token)]));
        self.find("a completion", |event| match event {
            Event::Done { token: t, result, .. } if *t == token => {
                Some(result.clone().map_err(petasos_fabric::OpError::into_kind))
            }
            _ => None,
        })
    }

    fn put(&mut self, remote: Remote, from: &Slice) {
        let (local, level) = (smallvec![from.clone()], Level::Visible);
        let spans = smallvec![RemoteSpan { offset: 0, len: from.len() as u64 }];
        let put = |token| Operation::Put { token, remote, local, spans, level, event: None };
        self.run(put).expect("it is put");
    }

    fn get(&mut self, remote: Remote, into: &Slice) {
        let local = smallvec![into.clone()];
        let spans = smallvec![RemoteSpan { offset: 0, len: into.len() as u64 }];
        self.run(|token| Operation::Get { token, remote, local, spans }).expect("it is got");
    }

    fn import(&mut self, key: &[u8]) -> Remote {
        self.end.import(&Key::from_bytes(key.to_vec()).expect("a key")).expect("it is imported")
    }

    fn open(&mut self, memory: &Slice) -> (RegionId, Vec<u8>) {
        let region = self.end.register(memory, Access::ALL).expect("memory is registered");
        (region, self.end.export(region).expect("it has a key").as_bytes().to_vec())
    }

    fn say(&mut self, peer: Peer, parts: &[&[u8]]) {
        let end = Instant::now() + PATIENCE;
        while self.end.inject(peer, parts).is_err() {
            self.pass();
            assert!(Instant::now() < end, "no room for a message");
        }
    }

    fn receive(&mut self) -> (Peer, Vec<u8>) {
        self.find("a message", |event| match event {
            Event::Message { peer, message } => Some((*peer, message.to_vec())),
            _ => None,
        })
    }
}

/// The process that forks, until it is ordered to end. Prints `at ADDRESS` first. `fork` returns
/// the number of the child's process, and 0 in the child.
///
/// # Panics
/// If something fails that must not.
pub fn obey<E: Endpoint>(end: E, fork: impl Fn() -> i32) {
    let mut driver = Driver::new(end);
    let ordinary = Region::zeroed(LEN).whole();
    let own = driver.end.alloc(LEN).expect("memory").whole();
    let local = Region::zeroed(LEN).whole();
    // Memory that peers map is one and the same in both processes: the child leaves it alone.
    let copied = match driver.end.capabilities().map {
        Support::Native => vec![ordinary.clone(), local.clone()],
        _ => vec![ordinary.clone(), own.clone(), local.clone()],
    };
    let (_, of_ordinary) = driver.open(&ordinary);
    let mut region = None;
    println!("at {}", driver.end.address());
    let (mut theirs, mut child) = (None, None);
    loop {
        let (peer, message) = driver.receive();
        let byte = message.get(1).copied().unwrap_or_default();
        let answer = match message[0] {
            order::KEY => {
                // A later client only checks that it is admitted.
                let remote = driver.import(&message[2..]);
                theirs.get_or_insert(remote);
                of_ordinary.clone()
            }
            order::WRITE => {
                fill(&ordinary, byte);
                fill(&own, byte);
                vec![1]
            }
            order::CHECK => vec![(is_full_of(&ordinary, byte) && is_full_of(&own, byte)).into()],
            // Its own memory is closed and opened again: what is kept registered is found again.
            order::AGAIN => {
                if let Some(region) = region.take() {
                    let close = |token| Operation::Deregister {
                        token,
                        region,
                        patience: Operation::PATIENCE,
                    };
                    driver.run(close).expect("it is closed");
                }
                let (opened, key) = driver.open(&own);
                region = Some(opened);
                key
            }
            order::PUT => {
                fill(&local, byte);
                driver.put(theirs.expect("a key"), &local);
                vec![1]
            }
            order::GET => {
                driver.get(theirs.expect("a key"), &local);
                vec![is_full_of(&local, byte).into()]
            }
            order::FORK => {
                let kind = Child::ALL[usize::from(byte)];
                // What waits leaves once.
                for i in 0..WAITING {
                    driver.end.inject(peer, &[&waiting(i)]).expect("room for a few messages");
                }
                match fork() {
                    0 => be(kind, &copied, (driver, own, region)),
                    id => {
                        fill(&ordinary, byte);
                        fill(&own, byte);
                        child = Some((Pid::from_raw(id).expect("a process"), kind));
                        vec![1]
                    }
                }
            }
            order::ENDED => {
                let (id, kind) = child.expect("a child");
                if kind == Child::Stays {
                    kill_process(id, Signal::KILL).expect("it can be killed");
                }
                match waitpid(Some(id), WaitOptions::NOHANG).expect("a child") {
                    None => vec![0],
                    Some((_, status)) if kind.ends_well() && status.exit_status() != Some(0) => {
                        panic!("the child {kind:?} ended with {status:?}")
                    }
                    Some(_) => vec![1],
                }
            }
            order::END => return,
            _ => message,
        };
        driver.say(peer, &[&answer]);
    }
}

fn waiting(i: u8) -> Vec<u8> {
    vec![i; 500]
}

/// The child.
fn be(kind: Child, copied: &[Slice], inherited: impl Sized) -> ! {
    // Not beyond the test.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let write = || copied.iter().for_each(|memory| fill(memory, CHILDS));
    write();
    match kind {
        Child::Dies => {
            let _ = kill_process(rustix::process::getpid(), Signal::KILL);
        }
        Child::Exits => {}
        Child::Drops => drop(inherited),
        Child::Executes => {
            let error = Command::new("true").exec();
            eprintln!("no other program: {error}");
            exit(1);
        }
        Child::Stays => loop {
            write();
            std::thread::sleep(Duration::from_millis(1));
        },
    }
    exit(0);
}

/// The peer of the process that forks: each accesses the memory of the other.
pub struct Overseer<E> {
    driver: Driver<E>,
    peer: Peer,
    /// Its ordinary memory, and memory of its endpoint's own.
    theirs: Vec<Remote>,
    /// Open to it.
    memory: Slice,
    local: Slice,
}

impl<E: Endpoint> Overseer<E> {
    /// Connects to the process that obeys, at the address that it printed.
    ///
    /// # Panics
    /// If it is not there.
    #[must_use]
    pub fn meet(end: E, address: &str) -> Overseer<E> {
        let mut driver = Driver::new(end);
        let address = Address::parse(address).expect("an address");
        let peer = driver.end.resolve(&address, PATIENCE).expect("it is resolved");
        driver.find("the peer is up", |e| matches!(e, Event::PeerUp { .. }).then_some(()));
        let memory = Region::zeroed(LEN).whole();
        let local = Region::zeroed(LEN).whole();
        let (_, key) = driver.open(&memory);
        driver.say(peer, &[&[order::KEY, 0], &key]);
        let (_, answer) = driver.receive();
        let theirs = vec![driver.import(&answer)];
        Overseer { driver, peer, theirs, memory, local }
    }

    /// The endpoint.
    pub fn end(&self) -> &E {
        &self.driver.end
    }

    fn ask(&mut self, order: u8, byte: u8) -> Vec<u8> {
        self.driver.say(self.peer, &[&[order, byte]]);
        self.driver.receive().1
    }

    fn tell(&mut self, order: u8, byte: u8, what: &str) {
        assert_eq!(self.ask(order, byte), [1], "{what}: {byte:#x}");
    }

    /// Has its own memory closed and opened again.
    fn again(&mut self) {
        let key = self.ask(order::AGAIN, 0);
        for remote in self.theirs.drain(1..) {
            self.driver.end.release(remote);
        }
        self.theirs.push(self.driver.import(&key));
    }

    /// The memory over there, by put and get of ours.
    fn reach(&mut self, byte: u8, written: Option<u8>) {
        for remote in self.theirs.clone() {
            if let Some(byte) = written {
                self.driver.get(remote, &self.local);
                assert!(is_full_of(&self.local, byte), "got other bytes than {byte:#x}");
            }
            fill(&self.local, byte);
            self.driver.put(remote, &self.local);
        }
        self.tell(order::CHECK, byte, "it finds what was put");
    }

    /// Every access to its memory, and from it to ours.
    fn all_is_right(&mut self) {
        self.tell(order::WRITE, 1, "it writes");
        self.again();
        self.reach(2, Some(1));
        self.tell(order::WRITE, 3, "it writes");
        self.again();
        self.reach(4, Some(3));
        self.tell(order::PUT, 5, "it puts");
        assert!(is_full_of(&self.memory, 5), "it put something else");
        fill(&self.memory, 6);
        self.tell(order::GET, 6, "it gets");
        let text = |i: u8| vec![100 + i; 1 + usize::from(i) * 37];
        for i in 0..100 {
            self.driver.say(self.peer, &[&text(i)]);
        }
        for i in 0..100 {
            assert!(self.driver.receive().1 == text(i), "message {i}");
        }
    }

    /// It forks, a child of this kind. `ended` is called when the child has ended.
    ///
    /// # Panics
    /// If anything is not as it was.
    pub fn forks(&mut self, kind: Child, ended: impl FnOnce()) {
        self.again();
        self.driver.say(self.peer, &[&[order::FORK, kind as u8]]);
        for i in 0..WAITING {
            assert!(self.driver.receive().1 == waiting(i), "message {i} of those that waited");
        }
        assert_eq!(self.driver.receive().1, [1], "it forks");
        // The child may be writing, or at its end.
        self.reach(7, Some(kind as u8));
        self.all_is_right();
        let end = Instant::now() + PATIENCE;
        while self.ask(order::ENDED, 0) != [1] {
            assert!(Instant::now() < end, "the child does not end: {kind:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
        ended();
        self.all_is_right();
    }

    /// It ends.
    pub fn end_it(mut self) {
        self.driver.say(self.peer, &[&[order::END, 0]]);
        self.driver.find("its end", |e| matches!(e, Event::PeerLost { .. }).then_some(()));
    }
}

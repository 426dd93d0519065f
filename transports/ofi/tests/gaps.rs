//! A peer that dies between a packet and the write that belongs to it, in either order: what was
//! announced and is not there is never told of, nor is what came behind it; the loss is; and others
//! go on.
//!
//! The moment is not waited for but made: the peer's network swallows one of the two, and then its
//! process is killed.

mod common;

use common::{SHM, config, found, network};
use petasos_channel::Channels;
use petasos_conformance::{Network as Place, processes::PATIENCE};
use petasos_datagram::{
    Config, Facts, Happened, Mark, Medium, Network, Nic, Node, Packet, Refusal, RemoteOp, Taken,
};
use petasos_fabric::{
    Access, Address, Clock, Endpoint, Event, Key, Level, Operation, Region, RemoteSpan, Slice,
    Support, Token, two_sided::Outgoing,
};
use petasos_ofi::{Net, OpenError};
use petasos_testing::{Process, again, role, skip};
use smallvec::smallvec;
use std::{
    collections::VecDeque,
    env, iter,
    os::fd::BorrowedFd,
    sync::atomic::{AtomicU8, Ordering},
    thread,
    time::Instant,
};

/// Bytes of memory: room for each number.
const LEN: usize = 256 * LONG;
/// Bytes of a put, which the provider writes.
const LONG: usize = 8000;
/// Puts that come whole.
const WHOLE: u64 = 20;
/// What is said of those before, until the provider has leave to write.
const EARLY: u64 = 253;

/// What the network of this process swallows.
static SWALLOWED: AtomicU8 = AtomicU8::new(NOTHING);
const NOTHING: u8 = 0;
const WRITES: u8 = 1;
const PACKETS: u8 = 2;

fn swallows(what: u8) -> bool {
    SWALLOWED.load(Ordering::Relaxed) == what
}

/// libfabric's endpoint, less what is swallowed.
struct Swallowing(Net);

impl Network for Swallowing {
    type Kind = <Net as Network>::Kind;
    type OpenError = OpenError;
    type Opened = <Net as Network>::Opened;
    type Key = <Net as Network>::Key;

    const SHORT: usize = Net::SHORT;

    fn kind(address: &Address) -> Result<(Self::Kind, Medium), OpenError> {
        Net::kind(address)
    }

    fn open(
        kind: Self::Kind,
        host: Option<&str>,
        heads: usize,
        config: &Config,
    ) -> Result<Self, OpenError> {
        Net::open(kind, host, heads, config).map(Swallowing)
    }

    fn facts(&self) -> &Facts {
        self.0.facts()
    }

    fn name(&self) -> &[u8] {
        self.0.name()
    }

    fn error(&self, code: isize) -> String {
        Network::error(&self.0, code)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.wait_fd()
    }

    fn try_wait(&mut self) -> bool {
        self.0.try_wait()
    }

    fn insert(&mut self, name: &[u8]) -> Result<Node, String> {
        self.0.insert(name)
    }

    fn remove(&mut self, node: Node) {
        self.0.remove(node);
    }

    fn inject(
        &mut self,
        to: Node,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
        mark: Mark,
    ) -> Result<Taken, Refusal> {
        match swallows(PACKETS) {
            true => Ok(Taken::Left),
            false => self.0.inject(to, len, fill, mark),
        }
    }

    fn send_short(
        &mut self,
        to: Node,
        heads: &[&[u8]],
        parts: &[&[u8]],
        mark: Mark,
    ) -> Result<(), Refusal> {
        match swallows(PACKETS) {
            true => Ok(()),
            false => self.0.send_short(to, heads, parts, mark),
        }
    }

    fn send(
        &mut self,
        to: Node,
        head: &[u8],
        payload: Outgoing,
        mark: Mark,
    ) -> Result<(), (Refusal, Outgoing)> {
        match swallows(PACKETS) {
            true => Ok(()),
            false => self.0.send(to, head, payload, mark),
        }
    }

    fn access(
        &mut self,
        node: Node,
        op: RemoteOp,
        local: Slice,
        key: &Self::Key,
        offset: u64,
        mark: Mark,
    ) -> Result<(), Refusal> {
        match swallows(WRITES) {
            true => Ok(()),
            false => self.0.access(node, op, local, key, offset, mark),
        }
    }

    fn holds(&self, memory: &Slice) -> bool {
        self.0.holds(memory)
    }

    fn running(&self) -> usize {
        self.0.running()
    }

    fn spare(&mut self, lost: usize) {
        self.0.spare(lost);
    }

    fn next(&mut self) -> Option<Happened> {
        self.0.next()
    }

    fn has_more(&self) -> bool {
        self.0.has_more()
    }

    fn poll(&mut self) -> bool {
        self.0.poll()
    }

    fn read(&self, packet: Packet, at: usize, into: &mut [u8]) {
        self.0.read(packet, at, into);
    }

    fn copy(&self, packet: Packet, at: usize, into: &Slice) -> usize {
        self.0.copy(packet, at, into)
    }

    fn open_memory(&mut self, memory: &Slice, access: Access) -> Option<Self::Opened> {
        self.0.open_memory(memory, access)
    }

    fn close_memory(&mut self) {
        self.0.close_memory();
    }

    fn location(opened: &Self::Opened) -> Vec<u8> {
        Net::location(opened)
    }

    fn key(&mut self, node: Node, place: &[u8]) -> Option<Self::Key> {
        self.0.key(node, place)
    }
}

fn numbers(network: Place) -> Config {
    let mut config = config(network);
    config.completion_data_from = Some(4096);
    config
}

/// One that is driven until something is there.
struct Driven<E> {
    end: E,
    clock: Clock,
    events: Vec<Event>,
}

impl<E: Endpoint> Driven<E> {
    fn new(end: E) -> Driven<E> {
        Driven { end, clock: Clock::start(), events: Vec::new() }
    }

    fn pass(&mut self) {
        if !self.end.progress(self.clock.now(), 64, &mut self.events) {
            thread::yield_now();
        }
        // The early ones are not kept: the endpoint lends memory for this many messages only.
        self.events.retain(|event| !is_early(event));
    }

    fn until(&mut self, what: &str, mut seen: impl FnMut(&Driven<E>) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !seen(self) {
            self.pass();
            assert!(Instant::now() < end, "not seen: {what}; {:?}", self.events);
        }
    }

    fn is_lost(&self) -> bool {
        self.events.iter().any(|e| matches!(e, Event::PeerLost { .. }))
    }

    /// What puts with event said, and how messages began, in their order.
    fn told(&self) -> Vec<u64> {
        let told = |event: &Event| match event {
            Event::PutArrived { data, .. } => Some(*data),
            Event::Message { message, .. } => Some(message[0].into()),
            _ => None,
        };
        self.events.iter().filter_map(told).collect()
    }
}

fn is_early(event: &Event) -> bool {
    match event {
        Event::PutArrived { data, .. } => *data == EARLY,
        Event::Message { message, .. } => u64::from(message[0]) == EARLY,
        _ => false,
    }
}

/// The next process in this role, which finds what it needs in its environment.
fn start(test: &str, role: &str, of: &[(&str, &str)]) -> Process {
    of.iter().fold(again(test, role), |starter, (name, value)| starter.env(name, value)).start()
}

fn variable(name: &str) -> String {
    env::var(name).expect("the test says it")
}

/// From here on: what this role says.
fn swallow() {
    let what = match role().as_deref() {
        Some("no writes") => WRITES,
        Some("no packets") => PACKETS,
        _ => NOTHING,
    };
    SWALLOWED.store(what, Ordering::Relaxed);
}

// Puts with event.

/// Puts some whole, then one of which a part is swallowed, and a message behind it; and goes on
/// until it is killed.
fn puts(network: Place) {
    let place = network.anywhere();
    let mut driven =
        Driven::new(Nic::<Swallowing>::open(&place, numbers(network)).unwrap().into_endpoint());
    let at = Address::parse(&variable("PETASOS_AT")).unwrap();
    let hex = variable("PETASOS_KEY");
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let key: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
    let peer = driven.end.resolve(&at, PATIENCE).unwrap();
    let remote = driven.end.import(&Key::from_bytes(key).unwrap()).unwrap();
    let put = |driven: &mut Driven<Channels<Nic<Swallowing>>>, number: u64| {
        let operation = Operation::Put {
            token: Token(number),
            remote,
            local: smallvec![Slice::from(vec![number as u8; LONG])],
            spans: smallvec![RemoteSpan { offset: number * LONG as u64, len: LONG as u64 }],
            level: Level::Visible,
            event: Some(number),
        };
        driven.end.submit(&mut VecDeque::from([operation]));
    };
    let early = iter::repeat_n(EARLY, 10_000);
    for number in early.chain(0..WHOLE) {
        if number == EARLY && driven.end.device().counters().completion_data_out > 0 {
            continue;
        }
        driven.events.clear();
        put(&mut driven, number);
        let done = |e: &Event| matches!(e, Event::Done { result: Ok(_), .. });
        driven.until("it is put", |driven| driven.events.iter().any(done));
    }
    swallow();
    let before = driven.end.device().counters().completion_data_out;
    put(&mut driven, WHOLE);
    driven.until("it is handed to the network", |driven| {
        driven.end.device().counters().completion_data_out > before
    });
    while driven.end.inject(peer, &[&[255]]).is_err() {
        driven.pass();
    }
    println!("so far");
    loop {
        driven.pass();
    }
}

fn of_a_put(test: &str, network: Place) {
    if found().is_none() {
        return;
    }
    if role().is_some() {
        return puts(network);
    }
    let mut driven = Driven::new(
        Nic::<Net>::open(&network.anywhere(), numbers(network)).unwrap().into_endpoint(),
    );
    if driven.end.capabilities().put_with_event != Support::Native {
        return skip(&format!("{} has no completion data here", driven.end.device().carrier()));
    }
    for role in ["no writes", "no packets"] {
        let memory = Region::zeroed(LEN).whole();
        let rights = Access::READ.with(Access::WRITE);
        let region = driven.end.register(&memory, rights).unwrap();
        let key = driven.end.export(region).unwrap();
        let hex: String = key.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let at = driven.end.address().to_string();
        let of = [("PETASOS_AT", &*at), ("PETASOS_KEY", &*hex)];
        driven.events.clear();
        let mut dies = start(test, role, &of);
        driven.until("the whole ones", |driven| driven.told().len() == WHOLE as usize);
        let (deferred, noticed) = (
            driven.end.device().counters().deferred,
            driven.end.device().counters().completion_data_in,
        );
        assert!(noticed > 0);
        let swallowed = memory.part(WHOLE as usize * LONG, LONG).unwrap();
        match role {
            // The packet is there, and the message behind it, and wait.
            "no writes" => driven.until("the packets", |driven| {
                driven.end.device().counters().deferred >= deferred + 2
            }),
            // The write is there, and was told of by the provider.
            _ => driven.until("the write", |driven| {
                driven.end.device().counters().completion_data_in > noticed
            }),
        }
        dies.line("so far");
        (0..100).for_each(|_| driven.pass());
        dies.kill();
        driven.until("the loss", Driven::is_lost);
        assert!(driven.told().into_iter().eq(0..WHOLE), "{role}: {:?}", driven.events);
        let there = if role == "no writes" { 0 } else { WHOLE as u8 };
        assert!(swallowed.to_vec().iter().all(|byte| *byte == there), "{role}");
        // No process can write there any more, so it can be closed.
        let close =
            Operation::Deregister { token: Token(7), region, patience: Operation::PATIENCE };
        driven.end.submit(&mut VecDeque::from([close]));
        let closed = |e: &Event| matches!(e, Event::Done { token: Token(7), result: Ok(_), .. });
        driven.until("it is closed", |driven| driven.events.iter().any(closed));
        let counters = driven.end.device().counters();
        assert_eq!((counters.stray_completion_data, counters.violations), (0, 0), "{role}");
    }
}

#[test]
fn of_a_put_over_a_network() {
    of_a_put("of_a_put_over_a_network", network());
}

#[test]
fn of_a_put_over_shared_memory() {
    of_a_put("of_a_put_over_shared_memory", SHM);
}

//! Many senders to one receiver that is short of time: nothing is lost, no sender starves (the
//! slowest gets at least half of its share), and memory has a bound.
//!
//! `PETASOS_SENDERS` sets how many there are at most over shared memory and TCP (default 1000).

use petasos::{
    OpenOptions, Transport,
    fabric::{Clock, Endpoint, Event, Lease, Peer},
    open,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    collections::HashMap,
    fs,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(60);

/// Descriptors that a sender takes with its connection, on both sides.
const DESCRIPTORS: u64 = 12;

/// Events that the receiver takes in a pass, as engines do, and passes between which it looks for
/// messages alone.
const BUDGET: usize = 64;
const FULL: u32 = 16;

/// Messages of which each is heard before it ends.
const EACH: u32 = 150;

/// How the receiver takes what has come.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Taking {
    /// By events alone.
    Events,
    /// As an engine does: messages without events, and events in some of the passes.
    Messages,
}

/// One crowd at a time, for memory is the process's.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has room made for descriptors, and says how many senders there can be.
fn thousand() -> usize {
    let wanted = std::env::var("PETASOS_SENDERS").ok().and_then(|n| n.parse().ok());
    let limit = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit }).unwrap();
    let fit = limit.map_or(u64::MAX, |limit| limit.saturating_sub(100) / DESCRIPTORS);
    wanted.unwrap_or(1000).min(usize::try_from(fit).unwrap_or(usize::MAX))
}

/// Bytes of this process's own memory that are there: without what lies in rings, which is shared.
fn own_memory() -> usize {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("RssAnon")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

/// Messages of one cache line, of two, and of more.
fn len(number: u32) -> usize {
    [8, 40, 100, 8, 300, 8, 8, 1000][number as usize % 8]
}

struct Sender {
    end: Box<dyn Endpoint>,
    to: Peer,
    sent: u32,
    /// How many it may have sent by now: what lies in sockets is the system's memory.
    most: u32,
}

impl Sender {
    /// As much as there is room for.
    fn send(&mut self, clock: &Clock) {
        while self.sent < self.most {
            let mut bytes = [self.sent as u8; 1000];
            bytes[..4].copy_from_slice(&self.sent.to_le_bytes());
            if self.end.inject(self.to, &[&bytes[..len(self.sent)]]).is_err() {
                break;
            }
            self.sent += 1;
        }
        self.end.progress(clock.now(), BUDGET, &mut Vec::new());
    }
}

struct Receiver {
    end: Box<dyn Endpoint>,
    taking: Taking,
    passes: u32,
    message: Lease,
    events: Vec<Event>,
    /// Messages of each, which came in order.
    got: HashMap<Peer, u32>,
    up: usize,
}

impl Receiver {
    fn pass(&mut self, clock: &Clock) {
        self.passes += 1;
        if self.taking == Taking::Messages {
            for _ in 0..BUDGET {
                let Some(peer) = self.end.poll_message(&mut self.message) else { break };
                let message = std::mem::take(&mut self.message);
                self.take(peer, &message);
            }
            if !self.passes.is_multiple_of(FULL) {
                return;
            }
        }
        let mut events = std::mem::take(&mut self.events);
        self.end.progress(clock.now(), BUDGET, &mut events);
        for event in events.drain(..) {
            match event {
                Event::PeerUp { .. } => self.up += 1,
                Event::Message { peer, message } => self.take(peer, &message),
                Event::PeerLost { peer, reason } => panic!("{peer:?} is lost: {reason}"),
                _ => {}
            }
        }
        self.events = events;
    }

    fn take(&mut self, peer: Peer, message: &[u8]) {
        let number = u32::from_le_bytes(*message.first_chunk().unwrap());
        let expected = self.got.entry(peer).or_default();
        assert_eq!((number, message.len()), (*expected, len(number)), "from {peer:?}");
        *expected += 1;
    }
}

/// A receiver, and its senders.
struct Crowd {
    scheme: &'static str,
    receiver: Receiver,
    senders: Vec<Sender>,
    clock: Clock,
}

impl Crowd {
    fn meet(scheme: &'static str, count: usize) -> Crowd {
        let here = || open(&format!("{scheme}://*"), &OpenOptions::default()).unwrap();
        let (clock, begin) = (Clock::start(), Instant::now());
        let (message, events, got) = Default::default();
        let (end, taking) = (here(), Taking::Events);
        let mut receiver = Receiver { end, taking, passes: 0, message, events, got, up: 0 };
        let address = receiver.end.address().clone();
        let mut senders: Vec<Sender> = Vec::new();
        for _ in 0..count {
            let mut end = here();
            let to = end.resolve(&address, PATIENCE).unwrap();
            while receiver.up <= senders.len() {
                assert!(begin.elapsed() < PATIENCE, "{} of {count} are up", receiver.up);
                end.progress(clock.now(), BUDGET, &mut Vec::new());
                receiver.pass(&clock);
            }
            senders.push(Sender { end, to, sent: 0, most: 0 });
        }
        Crowd { scheme, receiver, senders, clock }
    }

    /// All send all the time, to a receiver that makes a few passes meanwhile, until each was heard
    /// so often.
    fn send(&mut self, taking: Taking) {
        let Crowd { scheme, receiver, senders, clock } = self;
        let (count, begin) = (senders.len(), Instant::now());
        senders
            .iter_mut()
            .for_each(|s| s.most = s.sent + EACH * if count > 100 { 10 } else { 100 });
        receiver.taking = taking;
        let before = receiver.got.clone();
        let of_each = |got: &HashMap<Peer, u32>| -> Vec<u32> {
            got.iter().map(|(peer, got)| got - before.get(peer).copied().unwrap_or(0)).collect()
        };
        let mut at_first = None;
        let heard = loop {
            // Another one is the first each time, where they share room.
            senders.rotate_left(1);
            senders.iter_mut().for_each(|sender| sender.send(clock));
            at_first.get_or_insert_with(own_memory);
            (0..8).for_each(|_| receiver.pass(clock));
            let heard = of_each(&receiver.got);
            if heard.len() == count && heard.iter().all(|got| *got >= EACH) {
                break heard;
            }
            assert!(begin.elapsed() < PATIENCE, "{} of {count}: {heard:?}", heard.len());
        };
        let [slowest, first] = [heard.iter().min(), heard.iter().max()].map(|of| *of.unwrap());
        let share = heard.iter().sum::<u32>() / count as u32;
        let grown = own_memory().saturating_sub(at_first.unwrap_or_default()) / count;
        println!(
            "{scheme}, {taking:?}: of {count} the slowest had {slowest} through, the first {first}, a share is \
             {share}; {grown} bytes for each more than when they first had no room; {:?}",
            begin.elapsed()
        );
        // Through a library a sender that finds its queue full asks again, and may find it full
        // again: there all are heard, and how soon is the library's matter, as is the memory that
        // it takes.
        if !scheme.contains('+') {
            assert!(
                2 * slowest >= share,
                "the slowest had {slowest} through, its share is {share}"
            );
            // A buffer of a connection, and something besides.
            assert!(grown * count < (count * 100 + 16_384) << 10, "{grown} bytes for each");
        }
    }
}

/// Both ways to take what has come, one after the other.
fn crowd(scheme: &'static str, count: usize) {
    let _alone = alone();
    let mut crowd = Crowd::meet(scheme, count);
    crowd.send(Taking::Events);
    crowd.send(Taking::Messages);
}

#[test]
fn a_thousand_over_shared_memory() {
    crowd("shm", thousand());
}

#[test]
fn a_thousand_over_tcp() {
    crowd("tcp", thousand());
}

/// As many as can be looked at in each pass, and some more.
#[test]
fn a_handful() {
    for scheme in ["shm", "tcp", "auto", "ofi+tcp", "ofi+shm", "ucx+tcp", "ucx+posix"] {
        let transport = Transport::of(scheme).expect("a transport");
        if let Some(why) = transport.missing() {
            petasos_testing::skip(&format!("{scheme}: {why}"));
            continue;
        }
        for count in [3, 12] {
            crowd(scheme, count);
        }
    }
}

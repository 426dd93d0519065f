//! Processes that are killed or stopped in the middle of what they send: the endpoint that receives
//! loses no other peer with them, no message of others, and mixes none with another.
//!
//! Each test starts its own binary again for the processes that send; so a test is called with its
//! name, and has the same endpoint everywhere.

use crate::world::all_are;
use petasos_fabric::{
    Address, Clock, Endpoint, Event, Level, Operation, Payload, Peer, Region, Token,
};
use petasos_testing::{Process, again, role};
use std::{
    collections::VecDeque,
    thread,
    time::{Duration, Instant},
};

/// How long each wait may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// How many are killed, one after the other.
const KILLED: u32 = 6;
/// How often one is stopped.
const STOPPED: u32 = 5;
/// Bytes of the messages of those: in several packets or fetched by the receiver, and in one packet.
const LENGTHS: [usize; 2] = [64 << 10, 12_000];
/// Bytes that come while a process is stopped: more than an endpoint has memory to receive into.
const MEANWHILE: usize = 12 << 20;
/// Sends of one process under way.
const UNDER_WAY: u32 = 16;

/// Processes that send as fast as they can are killed, while another one sends a number each
/// millisecond: all of its numbers come, in order, and it is not lost.
///
/// # Panics
/// If something of that does not hold.
pub fn killed<E: Endpoint>(test: &str, open: impl Fn() -> E) {
    if let Some(role) = role() {
        return send(&mut open(), &role);
    }
    let mut receiver = Receiver::new(open());
    let _counts = receiver.start(test, "count");
    receiver.until("the first number", |r| r.next > 0);
    for nth in 0..KILLED {
        let len = LENGTHS[nth as usize % LENGTHS.len()];
        let mut floods = receiver.start(test, &format!("{len} 1"));
        let before = receiver.came[1];
        receiver.until("what is to be killed sends", |r| r.came[1] > before + (1 << 20));
        let later = Instant::now() + Duration::from_micros(u64::from(nth) * 370);
        receiver.until("a moment later", |_| Instant::now() > later);
        floods.kill();
        let next = receiver.next + 20;
        receiver.until("more numbers after one was killed", |r| r.next > next);
    }
    assert!(receiver.lost.len() <= KILLED as usize, "{:?}", receiver.lost);
}

/// A process that sends as fast as it can is stopped now and then, and goes on later, while another
/// one sends: each message is whole, of one sender, and none of them is lost.
///
/// # Panics
/// If something of that does not hold.
pub fn stopped<E: Endpoint>(test: &str, open: impl Fn() -> E) {
    if let Some(role) = role() {
        return send(&mut open(), &role);
    }
    let mut receiver = Receiver::new(open());
    let [stops, _goes_on] = ["65536 1", "65536 2"].map(|role| receiver.start(test, role));
    for nth in 0..STOPPED {
        let before = receiver.came;
        receiver.until("both send", |r| [1, 2].iter().all(|i| r.came[*i] > before[*i] + (1 << 20)));
        let later = Instant::now() + Duration::from_micros(u64::from(nth) * 97);
        receiver.until("a moment later", |_| Instant::now() > later);
        stops.stop();
        let before = receiver.came;
        receiver.until("the other one goes on", |r| r.came[2] > before[2] + MEANWHILE);
        stops.go_on();
    }
    assert!(receiver.lost.is_empty(), "{:?}", receiver.lost);
}

/// A process that sends: `LENGTH BYTE ADDRESS`, or `count ADDRESS`.
fn send(end: &mut dyn Endpoint, role: &str) {
    let words: Vec<&str> = role.split(' ').collect();
    let at = Address::parse(words.last().expect("an address")).expect("an address");
    let peer = end.resolve(&at, PATIENCE).expect("it is resolved");
    match words[..] {
        [len, byte, _] => {
            flood(end, peer, vec![byte.parse().expect("a byte"); len.parse().expect("a length")]);
        }
        _ => count(end, peer),
    }
}

/// Sends these bytes again and again, until the peer is lost.
fn flood(end: &mut dyn Endpoint, peer: Peer, bytes: Vec<u8>) {
    let memory = Region::from_vec(bytes);
    let (clock, mut events) = (Clock::start(), Vec::new());
    let mut under_way = 0;
    loop {
        while under_way < UNDER_WAY {
            let payload = Payload::Memory(memory.whole());
            let send = Operation::Send { token: Token(1), peer, payload, level: Level::Delivered };
            end.submit(&mut VecDeque::from([send]));
            under_way += 1;
        }
        end.progress(clock.now(), 64, &mut events);
        for event in events.drain(..) {
            match event {
                Event::Done { .. } => under_way -= 1,
                Event::PeerLost { .. } => return,
                _ => {}
            }
        }
    }
}

/// Sends a number each millisecond, one more each time, until the peer is lost.
fn count(end: &mut dyn Endpoint, peer: Peer) {
    let (clock, mut events) = (Clock::start(), Vec::new());
    let mut next = 0u64;
    loop {
        next += u64::from(end.inject(peer, &[&next.to_le_bytes()]).is_ok());
        end.progress(clock.now(), 64, &mut events);
        if events.drain(..).any(|event| matches!(event, Event::PeerLost { .. })) {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// The endpoint that receives.
struct Receiver<E> {
    end: E,
    clock: Clock,
    events: Vec<Event>,
    /// The next number of the process that counts.
    next: u64,
    /// Bytes that came in messages of this byte.
    came: [usize; 3],
    /// What is said of peers that are lost.
    lost: Vec<String>,
}

impl<E: Endpoint> Receiver<E> {
    fn new(end: E) -> Receiver<E> {
        let (clock, events, lost) = (Clock::start(), Vec::new(), Vec::new());
        Receiver { end, clock, events, next: 0, came: [0; 3], lost }
    }

    fn start(&self, test: &str, role: &str) -> Process {
        again(test, &format!("{role} {}", self.end.address())).start()
    }

    fn step(&mut self) {
        self.end.progress(self.clock.now(), 64, &mut self.events);
        for event in self.events.drain(..) {
            match event {
                Event::Message { message, .. } => {
                    let bytes = message.to_vec();
                    if let Ok(number) = bytes[..].try_into() {
                        let number = u64::from_le_bytes(number);
                        assert_eq!(number, self.next, "nothing is lost, and all is in order");
                        self.next += 1;
                    } else {
                        assert!(all_are(&bytes, bytes[0]), "bytes of two messages in one");
                        self.came[usize::from(bytes[0])] += bytes.len();
                    }
                }
                Event::PeerLost { peer, reason } => self.lost.push(format!("{peer:?} {reason:?}")),
                _ => {}
            }
        }
    }

    fn until(&mut self, what: &str, seen: impl Fn(&Receiver<E>) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !seen(self) {
            self.step();
            let (next, lost) = (self.next, &self.lost);
            assert!(Instant::now() < end, "not seen: {what}, after {next} numbers; lost: {lost:?}");
        }
    }
}

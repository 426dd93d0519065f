//! Processes that are killed while they send, again and again: peers that live are not lost with
//! them, and what they send still comes.

mod common;

use common::{config, found, network};
use petasos_conformance::Network;
use petasos_fabric::{Address, Clock, Endpoint, Event, Level, Operation, Payload, Region, Token};
use petasos_ofi::Ofi;
use petasos_testing::{again, role};
use std::{
    collections::VecDeque,
    thread,
    time::{Duration, Instant},
};

/// How long each wait may take.
const PATIENCE: Duration = Duration::from_secs(20);
const KILLED: u32 = 8;
/// Bytes of the messages of those: fetched by the receiver, and in one packet.
const LENGTHS: [usize; 2] = [64 << 10, 12_000];

fn open(network: Network) -> Ofi {
    petasos_ofi::open(&network.anywhere(), config(network)).unwrap()
}

/// Sends messages of so many bytes, as fast as they are taken, until it is killed.
fn flood(end: &mut Ofi, at: &Address, len: usize) {
    let peer = end.resolve(at, PATIENCE).unwrap();
    let memory = Region::from_vec(vec![1; len]);
    let (clock, mut events) = (Clock::start(), Vec::new());
    let mut under_way = 0;
    println!("ready");
    loop {
        while under_way < 16 {
            let payload = Payload::Memory(memory.whole());
            let level = Level::Delivered;
            let send = Operation::Send { token: Token(1), peer, payload, level };
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
fn count(end: &mut Ofi, at: &Address) {
    let peer = end.resolve(at, PATIENCE).unwrap();
    let (clock, mut events) = (Clock::start(), Vec::new());
    println!("ready");
    let mut next = 0u64;
    loop {
        if end.inject(peer, &[&next.to_le_bytes()]).is_ok() {
            next += 1;
        }
        end.progress(clock.now(), 64, &mut events);
        if events.drain(..).any(|event| matches!(event, Event::PeerLost { .. })) {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

struct Receiver {
    end: Ofi,
    clock: Clock,
    events: Vec<Event>,
    /// The next number of the one that counts.
    next: u64,
    /// Bytes of the others.
    flooded: usize,
}

impl Receiver {
    fn step(&mut self) {
        self.end.progress(self.clock.now(), 64, &mut self.events);
        for event in self.events.drain(..) {
            match event {
                Event::Message { message, .. } if message.len() == 8 => {
                    let number = u64::from_le_bytes(message.to_vec().try_into().unwrap());
                    assert_eq!(number, self.next, "nothing is lost, and all is in order");
                    self.next += 1;
                }
                Event::Message { message, .. } => self.flooded += message.len(),
                _ => {}
            }
        }
    }

    fn until(&mut self, what: &str, seen: impl Fn(&Receiver) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !seen(self) {
            self.step();
            assert!(Instant::now() < end, "not seen: {what}, after {} numbers", self.next);
        }
    }
}

fn with(test: &str, network: Network) {
    if found().is_none() {
        return;
    }
    if let Some(role) = role() {
        let (what, at) = role.split_once(' ').unwrap();
        let at = Address::parse(at).unwrap();
        let mut end = open(network);
        return match what.parse() {
            Ok(len) => flood(&mut end, &at, len),
            Err(_) => count(&mut end, &at),
        };
    }
    let end = open(network);
    let at = end.address().to_string();
    let (clock, events) = (Clock::start(), Vec::new());
    let mut receiver = Receiver { end, clock, events, next: 0, flooded: 0 };
    let _counts = again(test, &format!("count {at}")).start();
    receiver.until("the first number", |r| r.next > 0);
    for nth in 0..KILLED {
        let len = LENGTHS[nth as usize % LENGTHS.len()];
        let mut floods = again(test, &format!("{len} {at}")).start();
        let before = receiver.flooded;
        receiver.until("what is to be killed sends", |r| r.flooded > before + (1 << 20));
        let later = Instant::now() + Duration::from_micros(u64::from(nth) * 370);
        receiver.until("a moment later", |_| Instant::now() > later);
        floods.kill();
        let next = receiver.next + 20;
        receiver.until("more numbers after one was killed", |r| r.next > next);
    }
}

#[test]
fn over_the_network() {
    with("over_the_network", network());
}

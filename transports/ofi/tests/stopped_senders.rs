//! A process that is stopped in the middle of a message, while another one sends: no message is
//! mixed with another, when it goes on.

mod common;

use common::{SHM, config, found, network};
use petasos_conformance::Network;
use petasos_fabric::{Address, Clock, Endpoint, Event, Level, Operation, Payload, Region, Token};
use petasos_ofi::Ofi;
use petasos_testing::{again, role};
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// How long each wait may take.
const PATIENCE: Duration = Duration::from_secs(20);
const ROUNDS: u32 = 12;
/// More than the endpoint has to receive into.
const MEANWHILE: usize = 12 << 20;

fn open(network: Network) -> Ofi {
    petasos_ofi::open(&network.anywhere(), config(network)).unwrap()
}

/// Sends the longest messages there are, all of one byte, as fast as they are taken.
fn flood(end: &mut Ofi, at: &Address, byte: u8) {
    let peer = end.resolve(at, PATIENCE).unwrap();
    let memory = Region::from_vec(vec![byte; end.capabilities().limits.max_message]);
    let (clock, mut events) = (Clock::start(), Vec::new());
    let mut under_way = 0;
    println!("ready");
    loop {
        while under_way < 16 {
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

struct Receiver {
    end: Ofi,
    clock: Clock,
    events: Vec<Event>,
    /// Bytes that came of each.
    came: [usize; 2],
}

impl Receiver {
    fn until(&mut self, what: &str, seen: impl Fn(&Receiver) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !seen(self) {
            self.end.progress(self.clock.now(), 64, &mut self.events);
            for event in self.events.drain(..) {
                match event {
                    Event::Message { message, .. } => {
                        let bytes = message.to_vec();
                        let other = bytes.iter().position(|byte| *byte != bytes[0]);
                        assert_eq!(other, None, "bytes of two messages in one");
                        self.came[usize::from(bytes[0])] += bytes.len();
                    }
                    Event::PeerLost { reason, .. } => panic!("{reason:?}"),
                    _ => {}
                }
            }
            assert!(Instant::now() < end, "not seen: {what}");
        }
    }
}

fn with(test: &str, network: Network) {
    if found().is_none() {
        return;
    }
    if let Some(role) = role() {
        let (byte, at) = role.split_once(' ').unwrap();
        return flood(&mut open(network), &Address::parse(at).unwrap(), byte.parse().unwrap());
    }
    let end = open(network);
    let at = end.address().to_string();
    let (clock, events) = (Clock::start(), Vec::new());
    let mut receiver = Receiver { end, clock, events, came: [0; 2] };
    let stops = again(test, &format!("0 {at}")).start();
    let _goes_on = again(test, &format!("1 {at}")).start();
    for nth in 0..ROUNDS {
        let before = receiver.came;
        receiver.until("both send", |r| (0..2).all(|i| r.came[i] > before[i] + (1 << 20)));
        let later = Instant::now() + Duration::from_micros(u64::from(nth) * 97);
        receiver.until("a moment later", |_| Instant::now() > later);
        stops.stop();
        let before = receiver.came;
        receiver.until("the other one goes on", |r| r.came[1] > before[1] + MEANWHILE);
        stops.go_on();
    }
}

#[test]
fn over_the_network() {
    with("over_the_network", network());
}

#[test]
fn over_shared_memory() {
    with("over_shared_memory", SHM);
}

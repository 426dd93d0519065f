//! A device over an endpoint against a peer whose messages are none of a device's: packets of any
//! class, immediate puts to memory it knows and to memory it does not, answers to nothing.
//!
//! Whatever it does: nothing panics; memory is bounded; nothing is written but what it has the
//! right to, and not after it was closed; every access ends once; nothing of a node comes before it
//! is up or after it is lost.
#![no_main]

use libfuzzer_sys::fuzz_target;
use petasos_channel::{
    Device, DeviceEvent, Over,
    device::{Class, Node, Registration, RemoteKey, Target, Ticket},
};
use petasos_fabric::{Access, Address, Endpoint, Operation, Peer, Slice, Time, Token};
use petasos_fuzz::{Cut, Guarded};
use petasos_self::Local;
use std::{collections::VecDeque, time::Duration};

const STEPS: usize = 200;
const LIVES: usize = 4;
/// What both sides hold at most, with what they send to each other.
const MEMORY: usize = 2 << 20;
const LEN: usize = 300;
const PATIENCE: Duration = Duration::from_secs(1);

fuzz_target!(|data: &[u8]| {
    petasos_fuzz::bounded(MEMORY + 256 * data.len(), || {
        let mut world = World::new(Cut(data));
        for _ in 0..STEPS {
            if world.cut.is_over() {
                break;
            }
            world.step();
        }
        world.finish();
    });
});

fn open() -> Local {
    Local::open(&Address::parse("self://*").expect("an address")).expect("an endpoint")
}

/// Memory that is open, or was.
struct Opened {
    memory: Guarded,
    registration: Option<Registration>,
    key: RemoteKey,
}

struct World<'a> {
    cut: Cut<'a>,
    victim: Over<Local>,
    hostile: Local,
    at_hostile: Peer,
    lives: usize,
    node: Option<Node>,
    now: Time,
    opened: Vec<Opened>,
    /// By ticket: whether it is over, and what it closes.
    tickets: Vec<(bool, Option<usize>)>,
}

impl<'a> World<'a> {
    fn new(cut: Cut<'a>) -> World<'a> {
        let (victim, mut hostile) = (Over::new(open()), open());
        let at_hostile = hostile.resolve(victim.address(), PATIENCE).expect("an address");
        let (node, now, opened, tickets) = (None, Time(1), Vec::new(), Vec::new());
        let mut world =
            World { cut, victim, hostile, at_hostile, lives: 1, node, now, opened, tickets };
        for access in [Access::ALL, Access::READ, Access::WRITE] {
            world.register(access);
        }
        world.meet();
        world
    }

    fn register(&mut self, access: Access) {
        let mut memory = Guarded::new(LEN);
        let tag = self.opened.len() as u64;
        let Ok((registration, key)) = self.victim.register(&memory.slice(), access, tag) else {
            return;
        };
        if !access.allows(Access::WRITE) {
            memory.settle();
        }
        self.opened.push(Opened { memory, registration: Some(registration), key });
    }

    fn meet(&mut self) {
        for _ in 0..8 {
            self.hostile.progress(self.now, 64, &mut Vec::new());
            self.poll(true, 64);
        }
    }

    fn step(&mut self) {
        match self.cut.u8() % 12 {
            0 => {
                let bytes = self.cut.short();
                let _ = self.hostile.inject(self.at_hostile, &[bytes]);
            }
            1..=3 => self.immediate(),
            4 => {
                let (class, bytes) = (self.cut.u8() % 4, self.cut.short());
                let _ = self.hostile.inject(self.at_hostile, &[&[class], bytes]);
            }
            5 => {
                let (token, peer) = (Token(1), self.at_hostile);
                let header = vec![self.cut.u8() % 4; 40].into();
                let body = Slice::from(vec![7; 100]);
                let send = Operation::SendLong { token, peer, header, body };
                self.hostile.submit(&mut VecDeque::from([send]));
            }
            6 => self.access(),
            7 => {
                let at = self.cut.upto(self.opened.len());
                if let Some(registration) = self.opened[at].registration.take() {
                    let ticket = self.ticket(Some(at));
                    self.victim.deregister(registration, Some(ticket));
                }
            }
            8 if self.opened.len() < 8 => self.register(Access::WRITE),
            9 if self.lives < LIVES => {
                self.lives += 1;
                self.hostile = open();
                let to = self.victim.address();
                self.at_hostile = self.hostile.resolve(to, PATIENCE).expect("an address");
                self.meet();
            }
            10 => _ = self.hostile.progress(self.now, 16, &mut Vec::new()),
            _ => {
                let (data, most) = (self.cut.u8() & 1 == 0, 1 + self.cut.upto(16));
                self.now = Time(self.now.0 + 1000);
                self.poll(data, most);
            }
        }
    }

    /// An immediate put whose parts make sense one by one.
    fn immediate(&mut self) {
        let at = self.cut.upto(self.opened.len());
        let mut name = self.opened[at].key.as_bytes()[..16].to_vec();
        if self.cut.u8() == 255 {
            name[self.cut.upto(16)] ^= 1 << self.cut.upto(8);
        }
        let offset = match self.cut.u8() {
            255 => u64::MAX - u64::from(self.cut.u8()),
            _ => u64::from(self.cut.u16()) % 400,
        };
        let (event, data) = (self.cut.u8() & 1, u64::from(self.cut.u8()));
        let (offset, data, bytes) = (offset.to_le_bytes(), data.to_le_bytes(), self.cut.short());
        let parts: [&[u8]; 5] = [&[2, event], &name, &offset, &data, bytes];
        let _ = self.hostile.inject(self.at_hostile, &parts);
    }

    /// Something of the victim's own.
    fn access(&mut self) {
        let Some(node) = self.node else { return };
        let (choice, offset) = (self.cut.upto(4), u64::from(self.cut.u8()));
        // Its own key is no key of the node's.
        let key = match self.cut.upto(3) {
            0 => self.opened[0].key.clone(),
            _ => RemoteKey::new(self.cut.short()).unwrap_or_else(|| self.opened[0].key.clone()),
        };
        let (target, memory) = (Target { key, offset }, Slice::from(vec![1; 50]));
        if choice == 0 {
            let _ = self.victim.put_immediate(node, &target, &[1; 20], Some(offset));
        } else if choice == 1 {
            let _ = self.victim.send(node, Class::Control, &[&[5; 30]]);
        } else {
            let ticket = self.ticket(None);
            let begun = match choice {
                2 => self.victim.put(node, &target, &memory, Some(offset), ticket),
                _ => self.victim.get(node, &target, &memory, ticket),
            };
            self.tickets[ticket.0 as usize].0 |= begun.is_err();
        }
    }

    fn ticket(&mut self, closes: Option<usize>) -> Ticket {
        self.tickets.push((false, closes));
        Ticket(self.tickets.len() as u64 - 1)
    }

    fn poll(&mut self, data: bool, most: usize) {
        let mut events = Vec::new();
        self.victim.poll(self.now, data, most, &mut events);
        for event in events {
            match event {
                DeviceEvent::Up { node, .. } => {
                    // A successor may be there before its predecessor is noticed.
                    self.node = Some(node);
                }
                DeviceEvent::Lost { node, .. } => _ = self.node.take_if(|up| *up == node),
                DeviceEvent::Packet { bytes, .. } => assert!(bytes.len() < 1 << 16),
                DeviceEvent::PutArrived { tag, offset, len, .. } => {
                    assert!(offset + len <= LEN as u64 && tag < self.opened.len() as u64);
                }
                DeviceEvent::Done { ticket, .. } => {
                    let (over, closes) = &mut self.tickets[ticket.0 as usize];
                    assert!(!std::mem::replace(over, true), "an access ended twice");
                    if let Some(at) = closes {
                        self.opened[*at].memory.settle();
                    }
                }
                _ => {}
            }
        }
    }

    fn finish(mut self) {
        drop(self.hostile);
        for _ in 0..20 {
            self.now = Time(self.now.0 + 1_000_000);
            let mut events = Vec::new();
            self.victim.poll(self.now, true, 1000, &mut events);
            for event in events {
                if let DeviceEvent::Done { ticket, .. } = event {
                    let (over, _) = &mut self.tickets[ticket.0 as usize];
                    assert!(!std::mem::replace(over, true), "an access ended twice");
                }
            }
        }
        assert!(self.tickets.iter().all(|(over, _)| *over), "an access that never ends");
        drop(self.victim);
        self.opened.into_iter().for_each(|opened| opened.memory.finish());
    }
}

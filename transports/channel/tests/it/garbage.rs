//! A peer that lies: it speaks to the device itself, and sends packets and puts of its own making.
//! Whatever they are, the endpoint goes on with others, holds no more than it should, and at worst
//! ends that peer.
//!
//! `PETASOS_SEEDS` sets how many liars there are (default 300).

use crate::common::{address, from_environment, join, message, numbers_of, open};
use petasos_channel::{
    Config, Device, DeviceEvent, Force,
    device::{Class, Node, RemoteKey, Target, Ticket},
    fifo::CELL,
};
use petasos_fabric::{Access, Endpoint, Event, LostReason, Region, Slice, two_sided::header};
use petasos_sim::{
    Random,
    device::{DeviceConfig, DeviceNet, SimDevice},
};
use std::{collections::BTreeSet, time::Duration};

const RECORD: u8 = 1;

/// An encoded header, with its body.
fn packet(kind: u8, flags: u8, seq: u32, ack: u32, body: &[u8]) -> Vec<u8> {
    let mut out = (body.len() as u32).to_le_bytes().to_vec();
    out.extend_from_slice(&seq.to_le_bytes());
    out.extend_from_slice(&ack.to_le_bytes());
    out.extend_from_slice(&[kind, flags, 1, 0]);
    out.extend_from_slice(body);
    out
}

fn plain(bytes: &[u8]) -> Vec<u8> {
    [&header::message_header(bytes.len() as u32)[..], bytes].concat()
}

struct Liar {
    nic: SimDevice,
    node: Option<Node>,
    seq: u32,
    fifo: Option<(u32, RemoteKey)>,
    lent: RemoteKey,
    lost: bool,
    /// So many things it says are true; and where the next record goes in its FIFO.
    truths: u64,
    tail: u32,
}

impl Liar {
    fn new(net: &DeviceNet, truths: u64) -> Liar {
        let mut nic = net.open(&address("liar")).unwrap();
        let memory = Region::zeroed(4096).whole();
        let (_, lent) = nic.register(&memory, Access::READ, 0).unwrap();
        nic.resolve(&address("honest"), Duration::from_secs(1));
        Liar { nic, node: None, seq: 0, fifo: None, lent, lost: false, truths, tail: 0 }
    }

    /// Takes what comes, and keeps what is of use.
    fn listen(&mut self, net: &DeviceNet) {
        let mut events = Vec::new();
        self.nic.poll(net.now(), true, 100, &mut events);
        for event in events {
            match event {
                DeviceEvent::Up { node, .. } => self.node = Some(node),
                DeviceEvent::Packet { class: Class::Control, bytes, .. }
                    if bytes.len() > 20 && bytes[12] == 4 =>
                {
                    let cells = u32::from_le_bytes(bytes[16..20].try_into().unwrap());
                    self.fifo = RemoteKey::new(&bytes[20..]).map(|key| (cells, key));
                }
                DeviceEvent::Lost { .. } => (self.node, self.lost) = (None, true),
                _ => {}
            }
        }
    }

    /// What an honest peer would send: it asks for a channel, and uses it.
    fn tell_truth(&mut self, random: &mut Random) {
        let Some(node) = self.node else { return };
        let record = packet(RECORD, 3, self.seq, 0, &plain(&[7; 20]));
        let sent = match self.fifo.clone() {
            None if random.one_in(3) => {
                let ask = packet(3, 0, 0, 0, &1000u32.to_le_bytes());
                self.truths = self.truths.max(20);
                // Once only.
                self.fifo = Some((0, self.lent.clone()));
                let _ = self.nic.send(node, Class::Control, &[&ask]);
                false
            }
            Some((cells, key)) if cells > 0 => {
                let target = Target { key, offset: u64::from(self.tail) * CELL as u64 };
                let mark = u64::from_le_bytes(record[..8].try_into().unwrap());
                self.tail = (self.tail + 1) % cells;
                let from = Slice::from(record);
                self.nic.put(node, &target, &from, Some(mark), Ticket(2)).is_ok()
            }
            _ => self.nic.send(node, Class::Data, &[&record]).is_ok(),
        };
        self.seq = self.seq.wrapping_add(sent.into());
    }

    /// Something that an honest peer might have sent, mostly with a flaw.
    fn lie(&mut self, random: &mut Random) {
        if self.truths > 0 {
            self.truths -= 1;
            return self.tell_truth(random);
        }
        let Some(node) = self.node else { return };
        let mut noise = |most: u64| -> Vec<u8> {
            (0..random.below(most)).map(|_| random.number() as u8).collect()
        };
        let (some, few) = (noise(1900), noise(64));
        let mut seq = self.seq;
        if random.one_in(12) {
            seq = seq.wrapping_add(random.below(40) as u32).wrapping_sub(20);
        }
        let ack = if random.one_in(30) { random.number() as u32 } else { 0 };
        let flags = if random.one_in(3) { random.below(8) as u8 } else { 3 };
        let (class, mut bytes) = match random.below(12) {
            0 => (Class::Data, some),
            1 => (Class::Control, few),
            2 => (Class::Data, packet(RECORD, flags, seq, ack, &some)),
            3 => (Class::Control, packet(random.below(9) as u8, 0, 0, ack, &few)),
            4 => (Class::Control, packet(3, 0, 0, ack, &(random.below(2000) as u32).to_le_bytes())),
            5 => {
                // A descriptor that may be true.
                let len = random.below(5000) as u32;
                let mut body = len.to_le_bytes().to_vec();
                body.push(self.lent.as_bytes().len() as u8);
                body.extend_from_slice(self.lent.as_bytes());
                body.extend_from_slice(&header::message_header(random.below(5000) as u32));
                (Class::Data, packet(RECORD, flags | 4, seq, ack, &body))
            }
            6 => (Class::Control, packet(7, 0, 0, ack, &[])),
            7..10 => return self.put(random, node, seq, ack, flags, &few),
            _ => (Class::Data, packet(RECORD, flags, seq, ack, &plain(&few))),
        };
        if random.one_in(8) && !bytes.is_empty() {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
        }
        if self.nic.send(node, class, &[&bytes]).is_ok() && class == Class::Data {
            self.seq = self.seq.wrapping_add(1);
        }
    }

    /// Anything into the FIFO, if it was given one.
    fn put(&mut self, random: &mut Random, node: Node, seq: u32, ack: u32, flags: u8, few: &[u8]) {
        let Some((cells, key)) = self.fifo.clone() else { return };
        let tail = u64::from(self.tail);
        let cell = if random.one_in(4) { random.below(cells.into()) } else { tail };
        let offset = cell * CELL as u64 + if random.one_in(9) { random.below(70) } else { 0 };
        let record = packet(RECORD, flags, seq, ack, &plain(few));
        let mark = match random.below(4) {
            0 => random.number(),
            1 => u64::from(u32::MAX),
            _ => u64::from_le_bytes(record[..8].try_into().unwrap()),
        };
        let event = (!random.one_in(5)).then_some(mark);
        let from = Slice::from(record);
        let target = Target { key, offset };
        if self.nic.put(node, &target, &from, event, Ticket(1)).is_ok() {
            self.seq = self.seq.wrapping_add(1);
        }
    }
}

/// One liar, and an honest pair beside it: for what the liar was cut off.
fn lies(seed: u64) -> Option<String> {
    let mut random = Random::new(seed);
    let mut device = DeviceConfig::with_seed(seed);
    // What is found is checked as what is reported.
    device.finds = seed.is_multiple_of(2);
    let net = DeviceNet::new(device);
    let mut config = Config::default();
    config.exclusive.cells = 8 + random.below(30) as u32;
    if random.one_in(2) {
        config.force = Force::Exclusive;
    }
    let mut honest = open(&net, "honest", &config);
    let mut friend = open(&net, "friend", &config);
    let (to, _) = join(&net, &mut friend, &mut honest);
    let mut liar = Liar::new(&net, random.below(60));
    let (mut number, mut heard, mut why) = (0, 0, None);
    for _ in 0..400 {
        liar.listen(&net);
        for _ in 0..random.below(4) {
            liar.lie(&mut random);
        }
        if friend.inject(to, &[&message(0, 1, number, 100)]).is_ok() {
            number += 1;
        }
        let mut events = Vec::new();
        friend.progress(net.now(), 64, &mut Vec::new());
        honest.progress(net.now(), 64, &mut events);
        let strange = |event: &Event| matches!(event, Event::PeerLost { .. });
        for event in events.iter().filter(|event| strange(event)) {
            let Event::PeerLost { reason, peer } = event else { continue };
            let theirs = honest.peer(*peer).map(|info| info.address);
            assert_ne!(theirs, Some(address("friend")), "{reason}");
            why = Some(reason.clone());
        }
        heard += numbers_of(&honest, &events, &address("friend"), heard);
        let counters = honest.counters();
        assert!(counters.memory < 2_000_000 && counters.deferred < 64, "{counters:?}");
        net.run_for(Duration::from_micros(3));
    }
    assert!(heard > 300, "the friend was heard {heard} times");
    match why {
        None => None,
        Some(LostReason::Protocol(what)) => Some(what),
        Some(reason) => panic!("{reason}"),
    }
}

/// Packets of the engine's that are shorter or longer than they say, reported and found.
#[test]
fn false_lengths() {
    let says = |kind: u8, payload: u32, rest: usize| {
        [&[kind, header::VERSION, 0, 0][..], &payload.to_le_bytes(), &vec![0; rest]].concat()
    };
    // Messages, without and with a request for credit (headers of 8 and 16 bytes); no packet.
    let packets = [says(1, 9, 8), says(1, 8, 9), says(2, 5, 11), says(2, 5, 15), says(200, 0, 0)];
    for (finds, bytes) in
        [true, false].into_iter().flat_map(|f| packets.iter().map(move |p| (f, p)))
    {
        let mut device = DeviceConfig::with_seed(1);
        device.finds = finds;
        let net = DeviceNet::new(device);
        let mut honest = open(&net, "honest", &Config::default());
        let mut liar = Liar::new(&net, 0);
        let (mut sent, mut lost) = (false, None);
        for _ in 0..1000 {
            liar.listen(&net);
            if let Some(node) = liar.node.filter(|_| !sent) {
                let record = packet(RECORD, 3, 0, 0, bytes);
                sent = liar.nic.send(node, Class::Data, &[&record]).is_ok();
            }
            let mut events = Vec::new();
            honest.progress(net.now(), 64, &mut events);
            lost = lost.or(events.into_iter().find_map(|event| match event {
                Event::PeerLost { reason, .. } => Some(reason),
                _ => None,
            }));
            net.run_for(Duration::from_micros(1));
        }
        assert!(matches!(lost, Some(LostReason::Protocol(_))), "{finds}, {bytes:?}: {lost:?}");
    }
}

#[test]
fn liars_are_cut_off() {
    let seeds = from_environment("PETASOS_SEEDS", 300);
    let reasons: Vec<String> = (0..seeds).filter_map(lies).collect();
    let kinds: BTreeSet<&str> =
        reasons.iter().filter_map(|reason| reason.split(" (").next()).collect();
    println!("{} of {seeds} were cut off: {kinds:#?}", reasons.len());
    assert!(reasons.len() as u64 > seeds / 2, "{} of {seeds}", reasons.len());
    assert!(kinds.len() >= 15 || seeds < 300, "always for the same: {kinds:?}");
}

//! What comes from the network is hostile: garbage, answers to nothing, requests that make no
//! sense.

use crate::common::*;
use bytes::Bytes;
use petasos_fabric::{
    Address, Endpoint, Event as FabricEvent, Operation as Raw, Peer, Region, Token,
};
use petasos_portals::*;
use petasos_sim::{SimConfig, SimNet};
use petasos_wire::portals::{Atomic, Kind, Request as Head, Response};
use proptest::prelude::*;
use std::{collections::VecDeque, sync::Arc, time::Duration};

/// An interface, and an endpoint of the job that says what it likes.
struct Scene {
    net: SimNet,
    victim: Interface,
    door: Door,
    memory: Region,
    villain: Box<dyn Endpoint>,
    peer: Peer,
    own: Address,
    /// Another one of the job, which does nothing by itself.
    asked: Option<Box<dyn Endpoint>>,
}

impl Scene {
    fn new(known: bool) -> Scene {
        let net = SimNet::new(SimConfig::with_seed(3));
        let [at, mut villain, asked] = [(); 3].map(|()| open(Over::Sim, Some(&net)));
        let own = at.address().clone();
        let peer = villain.resolve(&own, Duration::from_secs(5)).unwrap();
        let mut addresses = vec![own.clone()];
        if known {
            addresses.extend([villain.address().clone(), asked.address().clone()]);
        }
        let map = Arc::new(ProcessMap::ranks(addresses));
        let config = Config::default();
        let victim = Interface::with_given_time(at, map, config, net.now()).unwrap();
        let door = door_with(&victim, 10_000, false);
        let memory = Region::zeroed(64);
        let accepts = Accepts::PUT.with(Accepts::GET);
        append(
            &victim,
            &door,
            List::Priority,
            MatchEntry { accepts, ..MatchEntry::new(memory.clone()) },
        );
        let any = MatchEntry { ignore: !0, accepts, ..MatchEntry::new(vec![0; 100]) };
        append(&victim, &door, List::Overflow, any);
        Scene { net, victim, door, memory, villain, peer, own, asked: Some(asked) }
    }

    fn settle(&mut self) {
        let mut events = Vec::new();
        loop {
            let mut busy = self.victim.progress_at(self.net.now());
            busy |= self.villain.progress(self.net.now(), 64, &mut events);
            if let Some(body) = events.drain(..).find_map(|event| match event {
                FabricEvent::LongMessage { body, .. } => Some(body),
                _ => None,
            }) {
                self.villain.submit(&mut VecDeque::from([Raw::Discard { token: Token(1), body }]));
            }
            if !self.net.step() && !busy {
                return;
            }
        }
    }

    fn send(&mut self, frame: &[u8], long: Option<usize>) {
        match long {
            None => {
                while self.villain.inject(self.peer, &[frame]).is_err() {
                    self.villain.progress(self.net.now(), 64, &mut Vec::new());
                    self.victim.progress_at(self.net.now());
                    self.net.step();
                }
            }
            Some(len) => {
                let (token, peer) = (Token(0), self.peer);
                let header = Bytes::copy_from_slice(&frame[..frame.len().min(1024)]);
                let body = Region::zeroed(len).whole();
                let send = Raw::SendLong { token, peer, header, body };
                self.villain.submit(&mut VecDeque::from([send]));
            }
        }
        self.settle();
    }

    /// It still does what it should.
    fn check(&mut self) {
        let status = self.victim.status();
        assert_eq!(status.operations, 0);
        let source = source(&self.victim, &[5; 8]);
        self.memory.write(0, &[0; 8]);
        let put = Operation::put(source.part, to(0, self.door.portal, 0));
        self.victim.start(Operation { ack: Ack::Full, ..put }).unwrap();
        self.settle();
        let events = std::iter::from_fn(|| self.victim.take_event(source.queue).ok());
        let names: Vec<_> = events.map(|taken| name(&taken.event)).collect();
        assert_eq!(names, ["send", "ack"]);
        assert_eq!(self.memory.to_vec()[..8], [5; 8]);
    }
}

/// Requests and responses with wild values, and damaged ones.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let numbers = (any::<[u64; 4]>(), any::<(u8, u8, [u8; 16])>(), any::<[bool; 4]>());
    let request =
        (0_u8..6, numbers, 0_u16..3).prop_map(|(kind, (words, atomic, flags), portal)| {
            use Kind::{Atomic as Change, Fence, FetchAtomic, Get, GetPut, Put};
            let kind = [Put, Get, GetPut, Change, FetchAtomic, Fence][usize::from(kind)];
            if kind == Fence && flags[0] {
                let mut frame = Vec::new();
                Head::fence(words[0]).encode(&mut frame);
                return frame;
            }
            let lent = flags[2] && flags[0] && matches!(kind, Kind::Put | Kind::Get);
            let small = |word: u64| if flags[3] { word } else { word % 80 };
            let head = Head {
                kind,
                operation: flags[0].then_some(words[0]),
                portal,
                user: words[1] as u32,
                bits: words[1] >> 62,
                offset: if flags[1] { small(words[2]) } else { 0 },
                header_data: words[0],
                length: if kind == Kind::Get || lent { small(words[3]) } else { 0 },
                lent,
                job: (0, words[0] as u32),
                atomic: matches!(kind, Kind::Atomic | Kind::FetchAtomic).then_some(Atomic {
                    operator: atomic.0 % 20,
                    datatype: atomic.1 % 14,
                    operand: atomic.2,
                }),
            };
            let mut frame = Vec::new();
            head.encode(&mut frame);
            if kind != Kind::Get || lent {
                frame.extend_from_slice(&atomic.2[..(words[3] % 17) as usize]);
            }
            frame
        });
    let response =
        any::<(u64, bool, u8, Option<(u64, u64)>)>().prop_map(|(op, real, status, moved)| {
            let mut frame = Vec::new();
            let operation = if real { (1 << 32) | (op % 4) } else { op };
            Response { operation, status, moved }.encode(&mut frame);
            frame
        });
    let damaged = (frame_of(request.clone().boxed()), any::<usize>(), any::<u8>(), any::<bool>());
    let damaged = damaged.prop_map(|(mut frame, at, byte, cut)| {
        let at = at % frame.len();
        frame[at] = byte;
        if cut {
            frame.truncate(at);
        }
        frame
    });
    prop_oneof![4 => request, 2 => response, 2 => damaged, 1 => any::<Vec<u8>>()]
}

fn frame_of(strategy: BoxedStrategy<Vec<u8>>) -> BoxedStrategy<Vec<u8>> {
    strategy
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn garbage_is_dropped_and_counted(
        frames in proptest::collection::vec((frame(), proptest::option::of(0_usize..300_000)), 1..40)
    ) {
        let mut scene = Scene::new(true);
        for (frame, long) in frames {
            scene.send(&frame, long.filter(|len| len % 4 == 0));
        }
        scene.check();
    }
}

#[test]
fn messages_of_unknown_endpoints_are_dropped() {
    let mut scene = Scene::new(false);
    let mut put = Vec::new();
    let head = Head {
        kind: Kind::Put,
        operation: Some(0),
        portal: 0,
        user: 0,
        bits: 0,
        offset: 0,
        header_data: 0,
        length: 0,
        lent: false,
        job: (0, 0),
        atomic: None,
    };
    head.encode(&mut put);
    scene.send(&put, None);
    scene.send(&put, Some(1000));
    assert_eq!(scene.victim.status().unknown_endpoints, 2);
    assert!(scene.victim.take_event(scene.door.queue).is_err());
    scene.check();
}

/// A peer that goes on asking, and takes no answers, fills its outbox, and is cut off.
#[test]
fn a_peer_that_takes_no_answers_is_cut_off() {
    let (at, mut villain) = (open(Over::Shm, None), open(Over::Shm, None));
    let own = at.address().clone();
    let map = ProcessMap::ranks([own.clone(), villain.address().clone()]);
    let limits = Limits { waiting: 100_000, ..Limits::default() };
    let config = Config { limits, ..Config::default() };
    let victim = Interface::open(at, Arc::new(map), config).unwrap();
    let door = door(&victim);
    let entry = MatchEntry { accepts: Accepts::GET, ..MatchEntry::new(vec![0; 4096]) };
    append(&victim, &door, List::Priority, entry);
    let mut get = Vec::new();
    let head = Head {
        kind: Kind::Get,
        operation: Some(1),
        portal: door.portal,
        user: 0,
        bits: 0,
        offset: 0,
        header_data: 0,
        length: 4096,
        lent: false,
        job: (0, 0),
        atomic: None,
    };
    head.encode(&mut get);
    let peer = villain.resolve(&own, Duration::from_secs(5)).unwrap();
    let clock = petasos_fabric::Clock::start();
    // Until it is connected it has to be driven; after that it takes nothing any more.
    while villain.inject(peer, &[&get]).is_err() || victim.status().peers == 0 {
        villain.progress(clock.now(), 64, &mut Vec::new());
        victim.progress();
    }
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while victim.status().cut_off == 0 {
        let _ = villain.inject(peer, &[&get]);
        victim.progress();
        assert!(std::time::Instant::now() < end, "{:?}", victim.status());
    }
    victim.progress();
    assert_eq!(victim.status().peers, 0, "nothing is kept of it");
}

/// Only the process that was asked can answer, and that once.
#[test]
fn an_answer_of_another_process_counts_for_nothing() {
    let mut scene = Scene::new(true);
    let (net, victim) = (scene.net.clone(), scene.victim.clone());
    // It is connected, and does not answer by itself.
    let mut asked = scene.asked.take().unwrap();
    let back = asked.resolve(&scene.own, Duration::from_secs(5)).unwrap();
    let source = source(&victim, &[5; 8]);
    victim.start(Operation { ack: Ack::Full, ..Operation::put(source.part, to(2, 0, 0)) }).unwrap();
    let mut answer = Vec::new();
    Response { operation: 1 << 32, status: 0, moved: None }.encode(&mut answer);
    let told = |victim: &Interface| {
        let events = std::iter::from_fn(|| victim.take_event(source.queue).ok());
        events.map(|taken| name(&taken.event)).collect::<Vec<_>>()
    };
    let drive = |asked: &mut Box<dyn Endpoint>| {
        for _ in 0..1000 {
            victim.progress_at(net.now());
            asked.progress(net.now(), 64, &mut Vec::new());
            net.step();
        }
    };
    drive(&mut asked);
    assert_eq!((told(&victim), victim.status().operations), (vec!["send".to_owned()], 1));
    scene.send(&answer, None);
    assert_eq!((told(&victim), victim.status().operations), (vec![], 1));
    assert_eq!(victim.status().garbage, 1);
    for _ in 0..2 {
        assert!(asked.inject(back, &[&answer]).is_ok());
        drive(&mut asked);
    }
    assert_eq!((told(&victim), victim.status().operations), (vec!["ack".to_owned()], 0));
    assert_eq!(victim.status().garbage, 2);
}

/// A reply is as long as it says, and no longer than what was asked for.
#[test]
fn replies_of_a_wrong_length_are_not_taken() {
    let mut scene = Scene::new(true);
    let queue = scene.victim.queue(10).unwrap();
    let memory = Region::zeroed(16);
    let bound = Descriptor { queue: Some(queue), ..Descriptor::new(memory.clone()) };
    let part = Part::of(scene.victim.bind(bound).unwrap(), 8);
    let long = 300_000;
    let mut garbage = 0;
    for (nth, (came, moved, taken)) in [
        (3, None, false),
        (9, None, false),
        (9, Some((9, 0)), false),
        (8, Some((3, 0)), false),
        (3, Some((4, 0)), false),
        (long, None, false),
        (long, Some((long as u64, 0)), false),
        (3, Some((3, 0)), true),
        (8, None, true),
    ]
    .into_iter()
    .enumerate()
    {
        scene.victim.start(Operation::get(part, to(1, 0, 0))).unwrap();
        scene.settle();
        // The same slot of its table, used once more.
        let operation = (nth as u64 + 1) << 32;
        let mut answer = Vec::new();
        Response { operation, status: 0, moved }.encode(&mut answer);
        if came < long {
            answer.extend(vec![7; came]);
        }
        scene.send(&answer, (came >= long).then_some(long));
        let events = std::iter::from_fn(|| scene.victim.take_event(queue).ok());
        let names: Vec<_> = events.map(|taken| name(&taken.event)).collect();
        let reply = if taken { "reply" } else { "reply: Undelivered" };
        assert_eq!(names, [reply], "{came} bytes, {moved:?}");
        garbage += u64::from(!taken);
        assert_eq!(scene.victim.status().garbage, garbage);
        let written = if taken { came } else { 0 };
        assert_eq!(memory.to_vec(), [vec![7; written], vec![0; 16 - written]].concat());
        memory.write(0, &[0; 16]);
    }
    scene.check();
}

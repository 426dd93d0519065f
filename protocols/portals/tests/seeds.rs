//! Random traffic of a few processes with entries that come and go, and a death: every operation of
//! the survivors ends as it should. A seed that fails is a test.

mod common;

use common::*;
use petasos_fabric::Region;
use petasos_portals::*;
use petasos_sim::Random;
use std::collections::HashMap;

const RANKS: usize = 4;

struct Rank {
    door: Door,
    queue: Handle<EventQueue>,
    descriptor: Handle<Descriptor>,
    /// Events of each operation, and what they were.
    ends: HashMap<u64, Vec<(String, bool)>>,
    /// What each operation was.
    started: Vec<Operation>,
    /// Operations that were served, and the numbers that initiators gave them, by initiator.
    served: Vec<(u32, u64)>,
    entries: Vec<Handle<MatchEntry>>,
    alive: bool,
}

fn entry(random: &mut Random) -> MatchEntry {
    let accepts = Accepts::PUT.with(if random.one_in(4) { Accepts::NONE } else { Accepts::GET });
    MatchEntry {
        bits: random.below(3),
        ignore: if random.one_in(4) { !0 } else { 0 },
        source: if random.one_in(3) {
            ProcessId::rank(random.below(4) as u32)
        } else {
            ProcessId::ANY
        },
        accepts,
        once: random.one_in(2),
        local_offset: random.one_in(3),
        truncate: !random.one_in(4),
        acknowledge: !random.one_in(8),
        ..MatchEntry::new(Region::zeroed([16, 1000, LONG][random.below(3) as usize]))
    }
}

fn operation(random: &mut Random, descriptor: Handle<Descriptor>, portal: u16) -> Operation {
    let len = [0, 8, 24, 3000, 20_000, LONG as u64][random.below(6) as usize];
    let part = Part::of(descriptor, len);
    let short = Part::of(descriptor, 8);
    let to = random.below(RANKS as u64) as u32;
    let target = Target { offset: 8 * random.below(3), ..self::to(to, portal, random.below(4)) };
    let (op, kind) = (Operator::Sum, Datatype::U64);
    let operation = match random.below(6) {
        0 | 1 => Operation::put(part, target),
        2 | 3 => Operation::get(part, target),
        4 => Operation::atomic(op, kind, short, target),
        _ => Operation::fetch_atomic(op, kind, short, short, target),
    };
    let ack = if random.one_in(2) { Ack::Full } else { Ack::None };
    Operation { ack, ..operation }
}

/// Takes in what there is to be read at a rank.
fn read(interface: &Interface, rank: &mut Rank) {
    while let Ok(taken) = interface.take_event(rank.queue) {
        let (kind, completed) = match taken.event {
            Event::Send(completed) => ("send", completed),
            Event::Ack(completed) => ("ack", completed),
            Event::Reply(completed) => ("reply", completed),
            other => panic!("{other:?}"),
        };
        let end = (kind.to_owned(), completed.result.is_ok());
        rank.ends.entry(completed.user_data).or_default().push(end);
    }
    while let Ok(taken) = interface.take_event(rank.door.queue) {
        assert_eq!(taken.lost, 0);
        if let Event::Served(served) = taken.event {
            rank.served.push((served.arrival.initiator.process, served.arrival.header_data));
        }
    }
}

fn run(seed: u64) {
    let job = Job::new(Over::Sim, RANKS);
    let mut random = Random::new(seed);
    let mut ranks: Vec<Rank> = job
        .ranks
        .iter()
        .map(|interface| {
            let queue = interface.queue(100_000).unwrap();
            let bound = Descriptor { queue: Some(queue), ..Descriptor::new(vec![1; LONG]) };
            Rank {
                door: door_with(interface, 100_000, false),
                queue,
                descriptor: interface.bind(bound).unwrap(),
                ends: HashMap::new(),
                started: Vec::new(),
                served: Vec::new(),
                entries: Vec::new(),
                alive: true,
            }
        })
        .collect();
    let victim = random.one_in(2).then(|| random.below(RANKS as u64) as usize);
    let death = random.below(300);
    for step in 0..300 {
        let at = random.below(RANKS as u64) as usize;
        let (interface, rank) = (&job.ranks[at], &mut ranks[at]);
        if Some(at) == victim && step >= death && rank.alive {
            job.net.as_ref().unwrap().kill(&job.addresses[at]);
            rank.alive = false;
        }
        let portal = rank.door.portal;
        match random.below(8) {
            0..4 if rank.alive => {
                let number = rank.started.len() as u64;
                let operation = operation(&mut random, rank.descriptor, portal);
                let operation = Operation { user_data: number, header_data: number, ..operation };
                interface.start(operation).unwrap();
                rank.started.push(operation);
            }
            4 | 5 => {
                let list = if random.one_in(3) { List::Overflow } else { List::Priority };
                let entry = interface.append(portal, list, entry(&mut random)).unwrap();
                rank.entries.push(entry);
            }
            6 if !rank.entries.is_empty() => {
                let entry = random.below(rank.entries.len() as u64) as usize;
                // It may be in use, or gone.
                let _ = interface.unlink(rank.entries[entry]);
            }
            7 => interface.search_and_delete(portal, entry(&mut random)).unwrap(),
            _ => {}
        }
        job.passes(random.below(4) as usize);
    }
    let mut idle = 0;
    while idle < 5 {
        idle = if job.pass() { 0 } else { idle + 1 };
    }
    for (interface, rank) in job.ranks.iter().zip(&mut ranks) {
        read(interface, rank);
    }
    for (at, rank) in ranks.iter().enumerate().filter(|(_, rank)| rank.alive) {
        for (number, operation) in rank.started.iter().enumerate() {
            let ends = rank.ends.get(&(number as u64)).cloned().unwrap_or_default();
            let names: Vec<&str> = ends.iter().map(|(name, _)| name.as_str()).collect();
            let sent = ends.first().is_some_and(|(name, ok)| name == "send" && *ok);
            let context = format!("seed {seed}, rank {at}, {operation:?}: {ends:?}");
            match (operation.data.is_some(), operation.result.is_some(), operation.ack) {
                (true, true, _) => assert_eq!(names, ["send", "reply"], "{context}"),
                (false, true, _) => assert_eq!(names, ["reply"], "{context}"),
                // Some entries acknowledge nothing.
                (_, _, Ack::Full) if sent && names.len() > 1 => {
                    assert_eq!(names, ["send", "ack"], "{context}");
                }
                _ => assert_eq!(names, ["send"], "{context}"),
            }
            if victim.is_none() && operation.data.is_some() {
                assert!(sent, "{context}");
            }
        }
        let mut served = rank.served.clone();
        served.sort_unstable();
        served.dedup();
        assert_eq!(served.len(), rank.served.len(), "seed {seed}: served twice at {at}");
        let interface = &job.ranks[at];
        assert_eq!(interface.status().operations, 0, "seed {seed}, rank {at}");
        interface.release(rank.descriptor).expect("nothing needs it any more");
        // What is not in use goes; then nothing is left.
        while interface.search_and_delete(rank.door.portal, all()).is_ok() {
            if interface.status().headers == 0 {
                break;
            }
        }
        for entry in &rank.entries {
            let _ = interface.unlink(*entry);
        }
        let status = interface.status();
        assert_eq!((status.entries, status.headers), (0, 0), "seed {seed}, rank {at}");
        interface.close_portal(rank.door.portal).unwrap();
    }
}

fn all() -> MatchEntry {
    MatchEntry { ignore: !0, ..MatchEntry::new(vec![]) }
}

/// `PETASOS_SEEDS=1000..2000` runs others.
#[test]
fn every_operation_of_the_survivors_ends() {
    let seeds = std::env::var("PETASOS_SEEDS").ok().and_then(|text| {
        let (from, to) = text.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    });
    seeds.unwrap_or(0..60).for_each(run);
}

//! Whatever other daemons or clients send, a daemon goes on: nothing panics, and corrupted messages
//! are refused or answered.

use super::common::{get, job, rank};
use petasos_fabric::Time;
use petasos_launch::{
    engine::{ClientId, Config, Engine},
    message::{ControllerRequest, FenceStep, Message, Replacement},
};
use petasos_pmix::{
    BusinessCard, Entry, Error, Group, JobId, Missing, Node, Proc, Scope, Span, Termination, Value,
    event::{Event, EventId, Range},
    message::{Answer, Persistence, Published, Request},
};
use petasos_sim::Random;
use petasos_wire::{Encoding, Wire, from_bytes, to_vec};
use std::time::Duration;

fn proc(random: &mut Random) -> Proc {
    let job = if random.one_in(8) { random.number() as u32 } else { random.below(3) as u32 };
    let any = if random.one_in(8) { random.number() as u32 } else { random.below(9) as u32 };
    Proc::new(JobId(job), any)
}

fn group(random: &mut Random) -> Group {
    let span = |random: &mut Random| {
        let Proc { job, rank: first } = proc(random);
        let more = if random.one_in(8) { u32::MAX } else { random.below(8) as u32 };
        let last = first.saturating_add(more);
        Span { job, first, last }
    };
    Group::new((0..random.below(3)).map(|_| span(random)).collect::<Vec<_>>())
}

fn card(random: &mut Random) -> BusinessCard {
    let mut card = BusinessCard::default();
    for _ in 0..random.below(3) {
        let value = Value::List(vec![Value::Real(f64::NAN), Value::Bytes(vec![1; 100])]);
        card.commit([("k".to_owned(), Entry { scope: Scope::Global, value })]);
    }
    card.version = random.number();
    card.restarts = number(random) as u32;
    card
}

fn range(random: &mut Random) -> Range {
    match random.below(7) {
        0 => Range::Rm,
        1 => Range::Local,
        2 => Range::Namespace,
        3 => Range::Session,
        4 => Range::Global,
        5 => Range::Custom(group(random)),
        _ => Range::ProcLocal,
    }
}

fn number(random: &mut Random) -> u64 {
    if random.one_in(4) { random.number() } else { random.below(6) }
}

fn message(random: &mut Random) -> Message {
    let id = number(random);
    let error = Error::Ending("why not".to_owned());
    match random.below(14) {
        0..4 => {
            let missing = || Missing { more: u64::MAX, ..Missing::default() };
            let step = match random.below(8) {
                0 => FenceStep::Up(vec![(proc(random), card(random))]),
                1 => FenceStep::Down(Ok(vec![(proc(random), card(random))])),
                2 => FenceStep::Down(Err(error)),
                3 => FenceStep::Fail(error),
                4 => FenceStep::Late,
                5 => FenceStep::Count,
                6 => FenceStep::Missing(missing()),
                _ => FenceStep::Check,
            };
            let whole = Group::all(JobId(0), 6);
            let group = if random.one_in(2) { whole } else { group(random) };
            Message::Fence { group, replaced: number(random) as u32, nth: id, step }
        }
        4 => {
            let (wait, patience) = (random.one_in(2), Duration::MAX);
            let (proc, restarts, key) = (proc(random), number(random) as u32, "k".to_owned());
            let replaced = number(random) as u32;
            Message::CardAsk { id, proc, restarts, replaced, key, wait, patience }
        }
        5 => Message::CardAnswer { id, result: Ok(card(random)) },
        6 => Message::Ask {
            id,
            asker: proc(random),
            what: match random.below(6) {
                4 => ControllerRequest::Replace(Node(number(random) as u32)),
                0 => ControllerRequest::Processes,
                1 => ControllerRequest::Lookup {
                    keys: vec!["k".to_owned()],
                    wait: Some(Duration::MAX),
                    least: id as u32,
                    within: Range::Global,
                },
                2 => ControllerRequest::Query(vec!["petasos.processes".to_owned()]),
                3 => {
                    ControllerRequest::Restart { proc: proc(random), after: number(random) as u32 }
                }
                _ => ControllerRequest::Publish(Published {
                    key: "k".to_owned(),
                    value: Value::Bool(true),
                    range: range(random),
                    persistence: Persistence::FirstRead,
                }),
            },
        },
        7 => Message::Answer { id, result: Ok(Answer::Done) },
        8 => {
            let node = Node(number(random) as u32);
            let (source, range) = (proc(random), range(random));
            let (code, info) = (random.below(400) as i32 - 350, Vec::new());
            let id = EventId { node, number: id };
            let event = Event { id, code, source, node, range, non_default: false, info };
            Message::Event { event, all: random.one_in(2) }
        }
        9 => Message::Interest { code: -250, wanted: random.one_in(2) },
        10 => {
            let (proc, restarts) = (proc(random), number(random) as u32);
            Message::Termination { proc, restarts, why: Termination::Exited(1) }
        }
        11 => Message::Restarted { proc: proc(random), restarts: number(random) as u32 },
        12 => {
            let (node, by) = (Node(random.below(5) as u32), Node(random.below(5) as u32));
            let number = if random.one_in(2) { 1 } else { number(random) as u32 };
            let again = vec![(proc(random), self::number(random) as u32)];
            let ended = vec![(proc(random), self::number(random) as u32, Termination::Finalized)];
            Message::Replaced(Box::new(Replacement { number, node, by, again, ended }))
        }
        // The loss of the head node, or of itself, ends everything; that of another node happens
        // now and then.
        _ if random.one_in(50) => Message::Lost(vec![Node(3), Node(u32::MAX)]),
        _ => Message::Wired,
    }
}

fn request(random: &mut Random) -> Request {
    match random.below(13) {
        0 => Request::Connect(proc(random)),
        1 => Request::Fence { group: Some(group(random)), collect: true, timeout: None },
        2 => Request::Fence { group: None, collect: true, timeout: Some(Duration::MAX) },
        3 => get(proc(random), "k"),
        4 => Request::Lookup {
            keys: Vec::new(),
            wait: Some(Duration::MAX),
            least: u32::MAX,
            within: Range::Global,
        },
        5 => Request::Register { handler: random.below(3), codes: vec![-250, 5] },
        6 => Request::Deregister(random.below(3)),
        7 => {
            let (range, info) = (range(random), vec![("k".into(), Value::Int(i64::MIN))]);
            Request::Notify { code: i32::MIN, range, non_default: true, info }
        }
        8 => Request::Commit(card(random).entries.into_iter().collect()),
        9 => Request::Watch(
            [None, Some(Duration::ZERO), Some(Duration::MAX)][random.below(3) as usize],
        ),
        10 => Request::Progress,
        11 => {
            let after = random.one_in(2).then(|| number(random) as u32);
            Request::Restart { proc: proc(random), after }
        }
        _ => Request::ConnectTool,
    }
}

/// The value after its bytes were corrupted, if they still decode.
fn spoiled<T: Wire>(random: &mut Random, value: &T) -> Option<T> {
    let mut bytes = to_vec(Encoding::Native, value);
    for _ in 0..random.below(3) {
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] = random.number() as u8;
    }
    bytes.truncate(bytes.len() - usize::from(random.one_in(4)));
    from_bytes(Encoding::Native, &bytes).ok()
}

#[test]
fn no_message_brings_a_daemon_down() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let mut now = Time(1_000_000_000);
        let me = Node(random.below(6) as u32);
        let (restarts, restart_failed) = ([None, Some(2)][seed as usize % 2], seed % 3 == 0);
        let spares = 1 + random.below(2) as u32;
        let config = Config { fanout: 2, restarts, restart_failed, spares, ..Config::default() };
        let mut engine = Engine::new(me, 6, config, now);
        engine.add_job(job(JobId(0), &[2, 2, 1, 1, 0, 0]));
        engine.add_job(job(JobId(1), &[1, 1, 0, 0, 0, 0]));
        engine.client_opened(ClientId(0));
        engine.request(now, ClientId(0), 0, Request::Connect(rank(2 * me.0.min(1))));
        for nth in 1..400 {
            now = now.after(random.time(Duration::from_secs(1)));
            let from = Node((me.0 + 1 + random.below(5) as u32) % 6);
            let client = ClientId(random.below(4));
            match random.below(4) {
                0 => {
                    let asked = request(&mut random);
                    if let Some(what) = spoiled(&mut random, &asked) {
                        engine.request(now, client, nth, what);
                    }
                }
                1 if random.one_in(8) => engine.client_closed(now, client),
                1 => engine.client_opened(ClientId(nth + 10)),
                _ => {
                    let said = message(&mut random);
                    if let Some(message) = spoiled(&mut random, &said) {
                        engine.message(now, from, message);
                    }
                }
            }
            while engine.poll().is_some() {}
        }
        engine.advance(Time::NEVER);
        while engine.poll().is_some() {}
    }
}

//! The rules of event chains, one by one, and generated chains against a plain model.

use petasos_fabric::Time;
use petasos_pmix::{
    Error, Group, JobId, Node, Proc, Value,
    chain::{Handlers, Position, Registration, Returned, Which},
    event::{Event, EventId, Range},
    status,
};
use petasos_sim::Random;
use std::time::Duration;

const ME: Proc = Proc::new(JobId(0), 0);
const OTHER: Proc = Proc::new(JobId(0), 1);
const NOW: Time = Time(1);

fn event(code: i32, source: Proc) -> Event {
    let id = EventId { node: Node(1), number: 1 };
    let (node, range) = (Node(u32::from(source != ME)), Range::Namespace);
    Event { id, code, source, node, range, non_default: false, info: Vec::new() }
}

fn handlers() -> Handlers {
    Handlers::new(ME, Node(0))
}

/// A handler named `name`, registered completely.
fn add(handlers: &mut Handlers, name: &str, codes: &[i32], position: Position) -> u64 {
    let (name, codes) = (Some(name.to_owned()), codes.to_vec());
    let with = Registration { name, codes, position, ..Registration::default() };
    let id = handlers.add(with).unwrap();
    handlers.activate(id, NOW);
    id
}

/// Runs an event through; each handler returns what `says` gives for its name.
fn run(handlers: &mut Handlers, event: Event, says: impl Fn(&str) -> i32) -> Vec<String> {
    let mut run = handlers.gather(event, None);
    let mut called = Vec::new();
    while let Some((id, name)) = handlers.next(&mut run) {
        let text = name.clone().unwrap_or_default();
        assert_eq!(run.returned.len(), called.len(), "each sees what those before returned");
        let seen: Vec<_> =
            run.returned.iter().map(|r| r.name.clone().unwrap_or_default()).collect();
        assert_eq!(seen, called);
        run.completed(Returned { id, name, status: says(&text), info: Vec::new() });
        called.push(text);
    }
    called
}

fn order(handlers: &mut Handlers, event: Event) -> String {
    run(handlers, event, |_| status::SUCCESS).join(" ")
}

fn name(text: &str) -> Which {
    Which::Name(text.to_owned())
}

type Case = (&'static str, Vec<(&'static str, &'static [i32], Position)>, &'static str);

/// What an event with code 5 calls, rule by rule.
#[test]
fn the_order_of_a_chain() {
    use Position::{After, Append, Before, First, Last, Prepend};
    let cases: Vec<Case> = vec![
        (
            "first, single-code, multi-code, default, last",
            vec![
                ("last", &[5], Last),
                ("default", &[], Prepend),
                ("multi", &[5, 6], Prepend),
                ("single", &[5], Prepend),
                ("first", &[5], First),
            ],
            "first single multi default last",
        ),
        (
            "the first and the last may have no codes",
            vec![("l", &[], Last), ("s", &[5], Prepend), ("f", &[], First)],
            "f s l",
        ),
        (
            "the first and the last are left out if their codes do not match",
            vec![("l", &[6], Last), ("s", &[5], Prepend), ("f", &[6, 7], First)],
            "s",
        ),
        ("others' codes do not match", vec![("a", &[6], Prepend), ("b", &[7, 8], Prepend)], ""),
        (
            "newest first in each category",
            vec![
                ("a", &[5], Prepend),
                ("m", &[5, 6], Prepend),
                ("d", &[], Prepend),
                ("b", &[5], Prepend),
                ("n", &[5, 7], Prepend),
                ("e", &[], Prepend),
            ],
            "b a n m e d",
        ),
        (
            "append goes behind those that are there",
            vec![("a", &[5], Append), ("b", &[5], Prepend), ("c", &[5], Append)],
            "b a c",
        ),
        (
            "before and after a name",
            vec![
                ("a", &[5], Prepend),
                ("b", &[5], Prepend),
                ("c", &[5], After(name("b"))),
                ("d", &[5], Before(name("a"))),
            ],
            "b c d a",
        ),
        (
            "before and after a number",
            vec![("a", &[5], Prepend), ("b", &[5], Prepend), ("c", &[5], After(Which::Id(1)))],
            "b a c",
        ),
        (
            "before a number",
            vec![("a", &[5], Append), ("b", &[5], Append), ("c", &[5], Before(Which::Id(2)))],
            "a c b",
        ),
        (
            "an order relative to a handler that is not in the chain is ignored",
            vec![
                ("other", &[6], Prepend),
                ("a", &[5], Prepend),
                ("b", &[5], After(name("other"))),
                ("c", &[5], Before(name("nobody"))),
            ],
            "c b a",
        ),
        (
            "the categories come before any such order",
            vec![("d", &[], Before(name("s"))), ("s", &[5], Prepend), ("m", &[5, 6], Prepend)],
            "s m d",
        ),
        (
            "relative to one that is itself relative, and registered later",
            vec![
                ("a", &[5], After(name("b"))),
                ("b", &[5], After(name("c"))),
                ("c", &[5], Prepend),
            ],
            "c b a",
        ),
        (
            "a circle ends, with everybody in it",
            vec![("a", &[5], Before(name("b"))), ("b", &[5], Before(name("a")))],
            "b a",
        ),
    ];
    for (rule, registered, expected) in cases {
        let mut handlers = handlers();
        for (name, codes, position) in registered {
            add(&mut handlers, name, codes, position);
        }
        assert_eq!(order(&mut handlers, event(5, OTHER)), expected, "{rule}");
    }
}

#[test]
fn several_after_one_all_come_after_it() {
    let mut handlers = handlers();
    add(&mut handlers, "a", &[5], Position::Prepend);
    for after in ["x", "y", "z"] {
        add(&mut handlers, after, &[5], Position::After(name("a")));
    }
    let all = order(&mut handlers, event(5, OTHER));
    assert!(all.starts_with("a ") && all.len() == 7, "{all}");
    // And so before it.
    for before in ["p", "q"] {
        add(&mut handlers, before, &[5], Position::Before(name("a")));
    }
    let all = order(&mut handlers, event(5, OTHER));
    assert!(all.find("a") == Some(4) && all.len() == 11, "{all}");
}

#[test]
fn the_next_one_sees_what_those_before_returned() {
    let mut handlers = handlers();
    let ids = ["a", "b", "c"].map(|name| add(&mut handlers, name, &[5], Position::Append));
    let mut run = handlers.gather(event(5, OTHER), None);
    let info = |nth: u64| vec![("nth".to_owned(), Value::from(nth))];
    for (nth, id) in (0..).zip(ids) {
        let (next, name) = handlers.next(&mut run).unwrap();
        assert_eq!(next, id);
        let seen: Vec<_> = run.returned.iter().map(|r| (r.id, r.status, r.info.clone())).collect();
        let expected: Vec<_> = (0..nth).map(|n| (ids[n as usize], n as i32 + 7, info(n))).collect();
        assert_eq!(seen, expected);
        let names: Vec<_> = run.returned.iter().map(|r| r.name.as_deref().unwrap()).collect();
        assert_eq!(names, ["a", "b", "c"][..nth as usize]);
        run.completed(Returned { id, name, status: nth as i32 + 7, info: info(nth) });
    }
    assert!(handlers.next(&mut run).is_none());
}

#[test]
fn there_is_one_first_and_one_last() {
    for position in [Position::First, Position::Last] {
        let mut handlers = handlers();
        let with = || Registration { position: position.clone(), ..Registration::default() };
        let id = handlers.add(with()).unwrap();
        let refused = handlers.add(with()).unwrap_err();
        assert_eq!(refused.code(), status::EVENT_REGISTRATION, "{refused}");
        handlers.remove(id).unwrap();
        handlers.add(with()).unwrap();
    }
}

#[test]
fn a_handler_ends_the_chain_and_the_last_one_is_not_run() {
    let mut handlers = handlers();
    add(&mut handlers, "last", &[], Position::Last);
    add(&mut handlers, "default", &[], Position::Prepend);
    add(&mut handlers, "single", &[5], Position::Prepend);
    let says = |who: &str| if who == "single" { status::ACTION_COMPLETE } else { 0 };
    assert_eq!(run(&mut handlers, event(5, OTHER), says), ["single"]);
    // Any other status does not.
    let says = |_: &str| status::NO_ACTION_TAKEN;
    assert_eq!(run(&mut handlers, event(5, OTHER), says), ["single", "default", "last"]);
}

#[test]
fn default_handlers_are_left_out_of_what_is_not_for_them() {
    let mut handlers = handlers();
    add(&mut handlers, "default", &[], Position::Prepend);
    add(&mut handlers, "single", &[5], Position::Prepend);
    // The first and the last are default handlers, too, if they have no codes.
    add(&mut handlers, "first", &[], Position::First);
    add(&mut handlers, "last", &[5], Position::Last);
    let event = Event { non_default: true, ..event(5, OTHER) };
    assert_eq!(order(&mut handlers, event), "single last");
}

#[test]
fn once_is_once() {
    let mut handlers = handlers();
    let with = Registration { once: true, ..Registration::default() };
    let id = handlers.add(with).unwrap();
    handlers.activate(id, NOW);
    // Both are gathered before either runs.
    let mut runs = [event(5, OTHER), event(6, OTHER)].map(|event| handlers.gather(event, None));
    assert!(handlers.next(&mut runs[0]).is_some());
    assert!(handlers.next(&mut runs[1]).is_none());
    assert_eq!(handlers.remove(id), Err(Error::UnknownHandler(id)));
}

#[test]
fn what_is_not_there_cannot_be_removed_and_what_is_removed_is_not_called() {
    let mut handlers = handlers();
    assert_eq!(handlers.remove(77), Err(Error::UnknownHandler(77)));
    let a = add(&mut handlers, "a", &[5], Position::Append);
    let b = add(&mut handlers, "b", &[5], Position::Append);
    let mut run = handlers.gather(event(5, OTHER), None);
    assert_eq!(handlers.next(&mut run).unwrap().0, a);
    handlers.remove(b).unwrap();
    assert!(handlers.next(&mut run).is_none());
}

#[test]
fn a_handler_is_not_called_before_it_is_registered() {
    let mut handlers = handlers();
    let id = handlers.add(Registration::default()).unwrap();
    assert_eq!(order(&mut handlers, event(5, OTHER)), "");
    handlers.activate(id, NOW);
    assert!(handlers.next(&mut handlers.gather(event(5, OTHER), None)).is_some());
}

#[test]
fn a_handler_can_choose_whose_events_it_wants() {
    let elsewhere = Proc::new(JobId(1), 9);
    let daemons = Proc::new(JobId(0), Proc::JOB);
    let cases = [
        (Range::Custom(Group::of([elsewhere])), vec![elsewhere]),
        (Range::Namespace, vec![ME, OTHER, daemons]),
        (Range::Local, vec![ME]),
        (Range::ProcLocal, vec![ME]),
        (Range::Rm, vec![daemons]),
        (Range::Session, vec![ME, OTHER, elsewhere, daemons]),
        (Range::Global, vec![ME, OTHER, elsewhere, daemons]),
    ];
    for (sources, wanted) in cases {
        let mut handlers = handlers();
        let with = Registration { sources: Some(sources.clone()), ..Registration::default() };
        let id = handlers.add(with).unwrap();
        handlers.activate(id, NOW);
        for source in [ME, OTHER, elsewhere, daemons] {
            let called = handlers.next(&mut handlers.gather(event(5, source), None)).is_some();
            assert_eq!(called, wanted.contains(&source), "{sources:?}: {source}");
        }
    }
}

#[test]
fn own_events_are_kept_for_later_handlers_in_order() {
    let mut handlers = handlers();
    for code in 0..600 {
        handlers.keep(&event(code, ME), Time(code as u64));
    }
    for _ in 0..2 {
        let with = Registration { codes: (0..600).collect(), ..Registration::default() };
        let id = handlers.add(with).unwrap();
        let codes: Vec<i32> = handlers.activate(id, NOW).iter().map(|e| e.code).collect();
        assert_eq!(codes, (88..600).collect::<Vec<_>>(), "512 of them, the oldest gone");
    }
    let id = handlers.add(Registration::default()).unwrap();
    let later = Time(600).after(Duration::from_secs(121));
    assert_eq!(handlers.activate(id, later), [], "too old");
}

#[test]
fn an_event_from_before_is_for_the_late_handler_alone() {
    let mut handlers = handlers();
    add(&mut handlers, "early", &[5], Position::Prepend);
    let late = add(&mut handlers, "late", &[5], Position::Prepend);
    let mut run = handlers.gather(event(5, OTHER), Some(late));
    assert_eq!(handlers.next(&mut run).unwrap().0, late);
    assert!(handlers.next(&mut run).is_none());
}

/// A handler as it was registered, for the plain model.
struct Plain {
    id: u64,
    name: String,
    codes: Vec<i32>,
    position: Position,
    once: bool,
}

/// Whether a chain keeps the rules, checked pair by pair.
fn check(chain: &[String], registered: &[Plain], event: &Event, seed: u64) {
    let takes = |plain: &&Plain| match plain.codes.is_empty() {
        true => !event.non_default,
        false => plain.codes.contains(&event.code),
    };
    let expected: Vec<&Plain> = registered.iter().filter(takes).collect();
    assert_eq!(chain.len(), expected.len(), "seed {seed}: {chain:?}");
    let at = |name: &str| chain.iter().position(|n| n == name);
    let category = |plain: &Plain| match (&plain.position, plain.codes.len()) {
        (Position::First, _) => 0,
        (Position::Last, _) => 4,
        (_, 1) => 1,
        (_, 0) => 3,
        _ => 2,
    };
    let target = |plain: &Plain| match &plain.position {
        Position::Before(which) | Position::After(which) => {
            let is = |other: &&&Plain| match which {
                Which::Name(name) => other.name == *name,
                Which::Id(id) => other.id == *id,
            };
            let found = expected.iter().find(is)?;
            (category(found) == category(plain)).then(|| found.name.clone())
        }
        _ => None,
    };
    for (i, a) in expected.iter().enumerate() {
        let index = at(&a.name).unwrap_or_else(|| panic!("seed {seed}: {} is missing", a.name));
        for b in &expected[i + 1..] {
            let later = at(&b.name).unwrap();
            if category(a) != category(b) {
                assert_eq!(index < later, category(a) < category(b), "seed {seed}: {chain:?}");
                continue;
            }
            // `b` was registered after `a`.
            match (&a.position, &b.position) {
                (Position::Prepend | Position::Append, Position::Prepend) => assert!(later < index),
                (Position::Prepend | Position::Append, Position::Append) => assert!(index < later),
                _ => {}
            }
        }
        // Relative order holds, unless it goes round in a circle.
        let mut seen = vec![a.name.clone()];
        let mut on = target(a);
        let circle = loop {
            let Some(name) = on else { break false };
            if seen.contains(&name) {
                break true;
            }
            let next = expected.iter().find(|p| p.name == name).unwrap();
            seen.push(name);
            on = target(next);
        };
        if let (Some(target), false) = (target(a), circle) {
            let other = at(&target).unwrap();
            match a.position {
                Position::Before(_) => assert!(index < other, "seed {seed}: {chain:?}"),
                _ => assert!(index > other, "seed {seed}: {chain:?}"),
            }
        }
    }
}

/// Registers random handlers, and removes some of them again.
fn generate(random: &mut Random, handlers: &mut Handlers, seed: u64) -> Vec<Plain> {
    let mut registered: Vec<Plain> = Vec::new();
    for nth in 0..random.below(12) {
        if !registered.is_empty() && random.one_in(6) {
            let gone = registered.remove(random.below(registered.len() as u64) as usize);
            handlers.remove(gone.id).unwrap();
        }
        let codes: Vec<i32> = match random.below(3) {
            0 => vec![],
            1 => vec![random.below(3) as i32],
            _ => vec![random.below(3) as i32, 7],
        };
        let whom = match random.one_in(2) {
            true => name(&format!("h{}", random.below(12))),
            false => Which::Id(1 + random.below(12)),
        };
        let position = match random.below(8) {
            0 => Position::First,
            1 => Position::Last,
            2 => Position::Append,
            3 | 4 => Position::Before(whom),
            5 | 6 => Position::After(whom),
            _ => Position::Prepend,
        };
        let only = matches!(position, Position::First | Position::Last);
        let taken = registered.iter().any(|plain| plain.position == position);
        let (title, once) = (format!("h{nth}"), random.one_in(5));
        let with = Registration {
            name: Some(title.clone()),
            codes: codes.clone(),
            position: position.clone(),
            once,
            ..Registration::default()
        };
        match handlers.add(with) {
            Ok(id) => {
                assert!(!(only && taken), "seed {seed}");
                handlers.activate(id, NOW);
                registered.push(Plain { id, name: title, codes, position, once });
            }
            Err(_) => assert!(only && taken, "seed {seed}"),
        }
    }
    registered
}

#[test]
fn generated_chains_keep_the_rules() {
    for seed in 0..3000 {
        for code in 0..3 {
            let make = || {
                let mut handlers = handlers();
                let registered = generate(&mut Random::new(seed), &mut handlers, seed);
                (handlers, registered)
            };
            let mut random = Random::new(seed << 2 | code as u64);
            let event = Event { non_default: random.one_in(3), ..event(code, OTHER) };
            let goes_on = |_: &str| status::NO_ACTION_TAKEN;
            let (mut handlers, mut registered) = make();
            let chain = run(&mut handlers, event.clone(), goes_on);
            check(&chain, &registered, &event, seed);
            // Those that are called once have been called.
            registered.retain(|plain| !plain.once || !chain.contains(&plain.name));
            check(&run(&mut handlers, event.clone(), goes_on), &registered, &event, seed);
            if chain.is_empty() {
                continue;
            }
            // The same, but one of them ends the chain: the others are not called, and remain
            // registered.
            let end = random.below(chain.len() as u64) as usize;
            let says = |who: &str| if who == chain[end] { status::ACTION_COMPLETE } else { 1 };
            let (mut handlers, mut registered) = make();
            let called = run(&mut handlers, event.clone(), says);
            assert_eq!(called, chain[..=end], "seed {seed}");
            registered.retain(|plain| !plain.once || !called.contains(&plain.name));
            check(&run(&mut handlers, event.clone(), goes_on), &registered, &event, seed);
        }
    }
}

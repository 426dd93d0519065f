//! Jobs of many shapes on a network with faults, one seed each: whatever happens, every request is
//! answered, in time, and correctly.

#[allow(dead_code)] // `it` uses the rest.
#[path = "it/common/mod.rs"]
mod common;

use common::{Net, collect, fence, get, job, ms};
use petasos_launch::engine::Config;
use petasos_pmix::{
    BusinessCard, Entry, Error, JobId, Node, Proc, Scope, Termination, Value,
    event::Range,
    message::{Answer, Request},
    status,
};
use petasos_sim::Random;
use std::collections::{BTreeMap, BTreeSet};

fn seeds() -> u64 {
    std::env::var("PETASOS_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(150)
}

/// The entries of a process, each named after its scope.
fn card(proc: Proc) -> Request {
    let entry = |(name, scope): (&str, Scope)| {
        let value = Value::Text(format!("{name} of {}", proc.rank));
        (name.to_string(), Entry { scope, value })
    };
    let all = [("local", Scope::Local), ("remote", Scope::Remote), ("global", Scope::Global)];
    Request::Commit(all.into_iter().map(entry).collect())
}

fn shape(random: &mut Random) -> Vec<u32> {
    let nodes = 1 + random.below(24) as usize;
    let mut ranks: Vec<u32> = (0..nodes).map(|_| random.below(4) as u32).collect();
    ranks[random.below(nodes as u64) as usize] += 1;
    ranks
}

fn config(random: &mut Random) -> Config {
    Config { fanout: 1 + random.below(4) as u32, ..Config::default() }
}

fn cards_are_right(net: &Net) {
    for asked in &net.asked {
        let Request::Get { proc, key, .. } = &asked.what else { continue };
        let Some((_, Ok(Answer::BusinessCard(BusinessCard { entries, .. })))) = &asked.answer
        else {
            continue;
        };
        let same = net.node_of(*proc) == net.node_of(asked.proc);
        let expected: BTreeSet<&str> =
            if same { ["local", "global"].into() } else { ["remote", "global"].into() };
        assert_eq!(entries.keys().map(String::as_str).collect::<BTreeSet<_>>(), expected);
        assert_eq!(entries[key].value.as_str(), Some(&*format!("{key} of {}", proc.rank)));
    }
}

#[test]
fn without_faults_everything_succeeds() {
    for seed in 0..seeds() {
        let mut random = Random::new(seed);
        let shape = shape(&mut random);
        let mut net = Net::new(seed, config(&mut random), vec![job(JobId(0), &shape)]);
        net.reorder = random.one_in(2);
        let procs = net.procs();
        for proc in &procs {
            let mut script = vec![Request::Connect(*proc)];
            let other = |random: &mut Random| {
                get(procs[random.below(procs.len() as u64) as usize], "global")
            };
            script.push(card(*proc));
            // Some before all others have committed: they wait.
            script.extend((0..random.below(3)).map(|_| other(&mut random)));
            script.push(if seed % 2 == 0 { collect() } else { fence() });
            script.extend((0..random.below(3)).map(|_| other(&mut random)));
            script.extend([fence(), fence(), Request::Finalize]);
            net.script(*proc, script);
        }
        net.run(ms(5000));
        for proc in procs {
            for answer in net.answers(proc) {
                assert!(answer.is_ok(), "seed {seed}: {proc}: {answer:?}");
            }
        }
        cards_are_right(&net);
        assert!(net.never.is_empty() && net.orphaned.is_empty(), "seed {seed}");
    }
}

/// When the `nth` fence is complete for one process, all had come.
fn fences_hold(net: &Net, seed: u64) {
    let mut came: BTreeMap<Proc, usize> = BTreeMap::new();
    let mut complete: BTreeMap<usize, petasos_fabric::Time> = BTreeMap::new();
    let mut calls: BTreeMap<(Proc, usize), petasos_fabric::Time> = BTreeMap::new();
    for asked in net.asked.iter().filter(|asked| matches!(asked.what, Request::Fence { .. })) {
        let nth = came.entry(asked.proc).or_default();
        calls.insert((asked.proc, *nth), asked.at);
        if let Some((at, Ok(_))) = &asked.answer {
            let first = complete.entry(*nth).or_insert(*at);
            *first = (*first).min(*at);
        }
        *nth += 1;
    }
    for (nth, at) in complete {
        for proc in net.procs() {
            let came = calls.get(&(proc, nth));
            assert!(came.is_some_and(|came| *came <= at), "seed {seed}: fence {nth}, {proc}");
        }
    }
}

#[test]
fn whatever_dies_every_request_ends_soon_and_says_why() {
    for seed in 0..seeds() {
        let mut random = Random::new(seed ^ 0xdead);
        let shape = shape(&mut random);
        let nodes = shape.len() as u64;
        let mut net = Net::new(seed, config(&mut random), vec![job(JobId(0), &shape)]);
        net.reorder = random.one_in(2);
        let procs = net.procs();
        for proc in &procs {
            let other = procs[random.below(procs.len() as u64) as usize];
            let mut script = vec![Request::Connect(*proc), card(*proc), get(other, "global")];
            for _ in 0..6 {
                script.push(if random.one_in(2) { fence() } else { collect() });
                let other = procs[random.below(procs.len() as u64) as usize];
                script.push(get(other, "global"));
            }
            net.script(*proc, script);
        }
        let mut last = ms(0);
        for _ in 0..1 + random.below(3) {
            let when = random.time(ms(30));
            last = last.max(when);
            // Without the head node the job ends.
            if nodes > 1 && random.one_in(2) {
                net.kill(when, Node(1 + random.below(nodes - 1) as u32));
            } else {
                let proc = procs[random.below(procs.len() as u64) as usize];
                let why = match random.below(3) {
                    0 => Termination::Exited(3),
                    1 => Termination::Signalled(9),
                    _ => Termination::Disconnected,
                };
                net.end(when, proc, why);
            }
        }
        // Detection takes up to 100 ms, and may have to be repeated along a line of dead nodes.
        net.run(last + ms(1500));
        for asked in net.asked.iter().filter(|asked| !net.dead.contains(&asked.proc)) {
            match &asked.answer {
                None => panic!("seed {seed}: no answer to {asked:?}"),
                Some((_, Ok(_))) => {}
                Some((_, Err(error))) => names_the_dead(&net, error, seed),
            }
        }
        fences_hold(&net, seed);
        cards_are_right(&net);
    }
}

fn names_the_dead(net: &Net, error: &Error, seed: u64) {
    let named: Vec<Proc> = match error {
        Error::FenceBroken { proc, .. } | Error::ProcGone { proc, .. } => vec![*proc],
        Error::NodeLost { node, missing } => {
            assert!(net.engines[node.0 as usize].is_none(), "seed {seed}: {error}");
            missing.procs.clone()
        }
        other => panic!("seed {seed}: {other}"),
    };
    for proc in named {
        assert!(net.dead.contains(&proc), "seed {seed}: {error}");
    }
}

/// Each event of a live process reaches all other live processes exactly once, whatever node dies
/// between them; and each of them is told of the loss of each node once.
#[test]
fn no_event_is_lost_or_doubled() {
    for seed in 0..seeds() {
        let mut random = Random::new(seed ^ 0xe7e7);
        let ranks = vec![1; 2 + random.below(40) as usize];
        let mut net = Net::new(seed, config(&mut random), vec![job(JobId(0), &ranks)]);
        let procs = net.procs();
        for proc in &procs {
            let register = Request::Register { handler: 1, codes: vec![] };
            net.ask(ms(0), *proc, Request::Connect(*proc));
            net.ask(ms(1), *proc, register);
        }
        let mut sent = Vec::new();
        for code in 1..=30 {
            let from = procs[random.below(procs.len() as u64) as usize];
            let range = if random.one_in(2) { Range::Namespace } else { Range::Global };
            let info = Vec::new();
            let what = Request::Notify { code, range, non_default: false, info };
            net.ask(ms(2) + random.time(ms(200)), from, what);
            sent.push((from, code));
        }
        let mut killed = BTreeSet::new();
        for _ in 0..random.below(1 + ranks.len() as u64 / 3) {
            let node = Node(1 + random.below(ranks.len() as u64 - 1) as u32);
            if killed.insert(node) {
                net.kill(ms(2) + random.time(ms(200)), node);
            }
        }
        net.run(ms(10_000));
        for proc in procs.iter().filter(|proc| !net.dead.contains(proc)) {
            let mut codes = net.codes(*proc);
            codes.sort_unstable();
            let lost = codes.iter().filter(|code| **code == status::PROC_ABORTED).count();
            assert_eq!(lost, killed.len(), "seed {seed}: {proc}");
            codes.retain(|code| *code > 0);
            let doubled = codes.windows(2).any(|pair| pair[0] == pair[1]);
            assert!(!doubled, "seed {seed}: {proc}: {codes:?}");
            for (from, code) in &sent {
                let told = codes.binary_search(code).is_ok();
                assert!(!(from == proc && told), "seed {seed}: {code} came back to {from}");
                let lives = !net.dead.contains(from);
                assert!(told || from == proc || !lives, "seed {seed}: {proc} misses {code}");
            }
        }
    }
}

//! `petasos bench`: calls and bulk data, each beside the machine's limit.
//!
//! Limit and figure are measured in turn, several times, on the same two cores, so that a time in
//! which the machine is slow is slow for both: see [`crate::beside`].

mod bulk;
mod channel_rates;
mod channels;
mod clients;
mod connect;
mod echo;
mod engines;
pub(crate) mod forward;
mod in_place;
pub(crate) mod launch;
mod mpi;
mod null;
mod options;
mod paper;
#[cfg(feature = "peers")]
mod peers;
#[cfg(not(feature = "peers"))]
#[path = "no_peers.rs"]
mod peers;
mod pipeline;
mod portals;
mod results;
mod so_far;

pub(crate) use options::Options;

use crate::{
    all_limits::{Found, QUICK, SIZES},
    client,
    exit::{Failure, Outcome},
    figures::Row,
    interrupt,
    limits::Plan,
    machine,
    pair::Setting,
    progress::Progress,
    report::Folder,
    scratch::Scratch,
    waiting::Waiting,
};
use options::{BenchCommand, Measuring, Topic};
use petasos::Transport;
use so_far::SoFar;
use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// State that the parts of the bench share.
struct Bench {
    plan: Plan,
    quick: bool,
    /// How often limit and figure are measured in turn.
    rounds: usize,
    scratch: PathBuf,
    secret: PathBuf,
    progress: Progress,
    /// Why something was not measured.
    skipped: Mutex<Vec<String>>,
}

/// What a run consists of.
struct Run<'a> {
    /// The title of its results.
    title: &'a str,
    measuring: &'a Measuring,
    parts: &'a [Part<'a>],
    limits: bool,
    peers: bool,
}

/// What is measured over each transport.
struct Part<'a> {
    measure: &'a dyn Fn(&Bench, &'static Transport) -> Outcome<Vec<Row>>,
    /// Steps of the progress bar, over one transport.
    steps: fn(&Bench, &Transport) -> usize,
    /// How long a round takes, within a node and over a network.
    takes: [Takes; 2],
}

/// Seconds of a round, and of a quick one.
type Takes = (f64, f64);

/// The time of one measurement where none is given.
fn usual_time(quick: bool) -> Duration {
    Duration::from_millis(if quick { 100 } else { 300 })
}

const NULL: Part<'_> = Part { measure: &null::measure, steps: |_, _| 2, takes: [(3.7, 1.7); 2] };
const ECHO: Part<'_> =
    Part { measure: &echo::measure, steps: |b, _| 2 * b.rounds, takes: [(11.0, 1.5); 2] };
const BULK: Part<'_> = Part {
    measure: &bulk::measure,
    steps: |b, _| bulk::steps(b),
    takes: [(30.0, 3.0), (12.0, 1.7)],
};
const PIPELINE: Part<'_> =
    Part { measure: &pipeline::measure, steps: |b, _| b.rounds, takes: [(4.5, 0.7); 2] };
const CLIENTS: Part<'_> = Part {
    measure: &clients::measure,
    steps: |b, _| 2 * b.rounds,
    takes: [(4.1, 0.9), (3.0, 0.7)],
};
const CHANNELS: Part<'_> = Part {
    measure: &channels::measure,
    steps: |b, t| channels::steps(b, t),
    takes: [(60.0, 12.0), (55.0, 5.0)],
};

const CONNECT: Part<'_> = Part {
    measure: &connect::measure,
    steps: |b, _| b.waitings().len() * b.rounds,
    takes: [(1.5, 0.6); 2],
};
const ENGINES: Part<'_> = Part {
    measure: &engines::measure,
    steps: |b, _| (2 + usize::from(!b.plan.cores.alone())) * b.rounds,
    takes: [(2.0, 0.8); 2],
};

const PORTALS: Part<'_> = Part {
    measure: &portals::measure,
    steps: |b, t| b.rounds * usize::from(!b.plan.cores.alone()) + usize::from(t.scheme == "shm"),
    takes: [(4.0, 1.5); 2],
};

const LIMITS: Takes = (4.0, 2.0);
const PEERS: Takes = (39.0, 11.0);

pub(crate) fn run(options: &Options) -> Outcome {
    match &options.command {
        Some(BenchCommand::Paper(paper)) => return paper::run(paper),
        Some(BenchCommand::Forward(forward)) => return forward::run(forward),
        Some(BenchCommand::Launch(options)) => return launch::run(options),
        Some(BenchCommand::Mpi(options)) => return mpi::run(options),
        None => {}
    }
    let has = |topic: Topic| match options.what.as_slice() {
        [] => topic != Topic::Peers || peers::BUILT_IN,
        some => some.contains(&topic),
    };
    if has(Topic::Peers) {
        peers::require_built_in()?;
    }
    let all = [
        (Topic::Null, NULL),
        (Topic::Echo, ECHO),
        (Topic::Bulk, BULK),
        (Topic::Pipeline, PIPELINE),
        (Topic::Clients, CLIENTS),
        (Topic::Channels, CHANNELS),
        (Topic::Connect, CONNECT),
        (Topic::Engines, ENGINES),
        (Topic::Portals, PORTALS),
    ];
    let parts: Vec<Part<'_>> =
        all.into_iter().filter(|(topic, _)| has(*topic)).map(|(_, part)| part).collect();
    let run = Run {
        title: "Petasos beside the machine",
        measuring: &options.measuring,
        parts: &parts,
        limits: has(Topic::Limits),
        peers: has(Topic::Peers),
    };
    run.go()
}

impl Run<'_> {
    fn go(&self) -> Outcome {
        let Measuring { transport, quick, rounds, time, report, json } = self.measuring;
        let transports = client::transports(transport)?;
        let folder = report.as_deref().map(Folder::prepare).transpose()?;
        let scratch = Scratch::new()?;
        let bench = Arc::new(Bench {
            plan: Plan { time: time.unwrap_or(usual_time(*quick)), ..Plan::default() },
            quick: *quick,
            rounds: rounds.map_or(if *quick { 3 } else { 5 }, usize::from),
            scratch: scratch.path().to_owned(),
            secret: scratch.secret()?,
            progress: Progress::steps(0),
            skipped: Mutex::default(),
        });
        self.announce(&bench, &transports);
        let found = Arc::new(SoFar::new(self.title, bench.clone(), folder, json.json));
        let early = found.clone();
        interrupt::at_interrupt(move || early.cut_short());
        let ended = self.measure(&bench, &transports, &found);
        interrupt::clear_at_interrupt();
        // Show what was measured, also if another part failed.
        if ended.is_ok() || !found.is_empty() {
            found.give()?;
        }
        ended
    }

    /// Limits, and all parts over each transport in turn. A failure is returned when the other
    /// parts have been measured.
    fn measure(&self, bench: &Bench, transports: &[&'static Transport], found: &SoFar) -> Outcome {
        if self.limits {
            let sizes = if bench.quick { &QUICK[..] } else { &SIZES };
            let plan = bench.plan_of(3);
            let limits = Found::measure(&plan, sizes, bench.rounds, &bench.progress)?;
            found.lock().limits = Some(limits);
        }
        let mut ended = Ok(());
        for transport in transports {
            let mut note = |failure: Failure| {
                let failure = failure.within(transport.title);
                bench.skip(failure.to_string());
                if ended.is_ok() {
                    ended = Err(failure);
                }
            };
            for part in self.parts {
                match (part.measure)(bench, transport) {
                    Ok(rows) => found.lock().figures.extend(rows),
                    Err(failure) => note(failure),
                }
            }
            if self.peers {
                let mut peers = found.lock().peers.take();
                let measured = peers::measure(bench, transport, &mut peers);
                found.lock().peers = peers;
                measured.unwrap_or_else(note);
            }
        }
        ended
    }

    /// Prints how long the run will take, and sets up the progress bar.
    fn announce(&self, bench: &Bench, transports: &[&Transport]) {
        if let Some(busy) = machine::load_of_others() {
            bench.progress.say(&busy);
        }
        let of = |transport: &Transport| -> usize {
            self.parts.iter().map(|part| (part.steps)(bench, transport)).sum()
        };
        let steps: usize = transports.iter().map(|transport| of(transport)).sum();
        let of_peers = if self.peers { 2 * transports.len() } else { 0 };
        let limits = if self.limits { Found::STEPS * bench.rounds } else { 0 };
        bench.progress.total((limits + steps + of_peers) as u64);
        let mut takes: Vec<Takes> = Vec::new();
        for transport in transports {
            let far = usize::from(!client::is_within_node(transport.scheme));
            takes.extend(self.parts.iter().map(|part| part.takes[far]));
            takes.extend(self.peers.then_some(PEERS));
        }
        takes.extend(self.limits.then_some(LIMITS));
        let round: f64 =
            takes.iter().map(|takes| if bench.quick { takes.1 } else { takes.0 }).sum();
        let seconds = bench.rounds as f64 * round;
        if seconds > 30.0 && self.measuring.time.is_none() {
            let hint = if bench.quick { "" } else { "; with --quick, much less" };
            let minutes = (seconds / 60.0).ceil();
            let s = if minutes > 1.0 { "s" } else { "" };
            bench.progress.say(&format!("this takes about {minutes:.0} minute{s}{hint}"));
        }
    }
}

impl Bench {
    /// The setting of a pair over this transport, both sides waiting in this manner.
    fn setting<'a>(
        &'a self,
        transport: &'static Transport,
        waiting: Waiting,
        plan: &'a Plan,
    ) -> Setting<'a> {
        Setting {
            transport,
            waiting,
            plan,
            secret: &self.secret,
            store: None,
            scratch: &self.scratch,
            channel: None,
            lend_above: None,
            engines: 1,
        }
    }

    /// The same plan with a part of its time.
    fn plan_of(&self, part: u32) -> Plan {
        Plan { time: self.plan.time / part, ..self.plan }
    }

    /// The manners of waiting that are measured.
    fn waitings(&self) -> Vec<Waiting> {
        let mut waitings = vec![Waiting::for_latency(&self.plan), Waiting::Sleeping];
        waitings.dedup();
        waitings
    }

    /// Shows the next step.
    fn step(&self, transport: &Transport, what: impl std::fmt::Display) {
        self.progress.step(format!("{}: {what}", transport.scheme));
    }

    /// The same, for one of the rounds.
    fn round(&self, transport: &Transport, what: impl std::fmt::Display, round: usize) {
        self.step(transport, format_args!("{what}, round {} of {}", round + 1, self.rounds));
    }

    /// Why things were not measured.
    fn skipped(&self) -> Vec<String> {
        self.skipped.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes that later figures were not measured.
    fn cut_short(&self) {
        self.skip("all figures after these: the run was cut short".to_owned());
    }

    /// Notes why something was not measured.
    fn skip(&self, why: String) {
        let mut skipped = self.skipped.lock().unwrap_or_else(PoisonError::into_inner);
        if !skipped.contains(&why) {
            skipped.push(why);
        }
    }
}

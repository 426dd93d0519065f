//! The rounds: the figures of all launchers right after each other, several times.

use super::{
    bare,
    lines::{FIGURES, Line, Standing, Table},
    programs::{Launcher, Programs, Ran},
    rank::Modex,
    simulated,
};
use crate::{
    exit::{Code, Failure, Outcome},
    limits::median,
    plots::Plot,
    progress::Progress,
};
use std::{collections::BTreeMap, path::Path};

/// What a launched process does: nothing.
const PROGRAM: &str = "true";
/// In a full exchange each node keeps as many cards as there are nodes, all in this process.
const FULL_NODES: u32 = 1_000;

/// The launchers whose starts are measured, in the order of the columns.
const LAUNCHERS: [Launcher; 4] =
    [Launcher::Petasos, Launcher::OpenPmix, Launcher::Mpich, Launcher::Bare];
/// The launchers within whose jobs something is measured.
const WITHIN: [Launcher; 3] = [Launcher::Petasos, Launcher::PetasosLibpmix, Launcher::OpenPmix];

pub(super) struct Rounds<'a> {
    pub(super) programs: &'a Programs,
    pub(super) rounds: usize,
    pub(super) progress: &'a Progress,
    pub(super) skipped: &'a mut Vec<String>,
}

/// The figures of a rank, by name.
type Found = BTreeMap<String, f64>;

/// What a rank prints when it has its addresses.
#[derive(Clone, Copy, serde::Deserialize)]
struct Wired {
    wired: f64,
    at: f64,
}

/// How ranks under a launcher learn addresses, and how long that took in each round.
struct Exchange {
    launcher: Launcher,
    modex: Modex,
    /// Of a rank, after its init.
    own: Vec<f64>,
    /// Of the last rank, since the start of the launcher.
    last: Vec<f64>,
}

impl Exchange {
    fn new(launcher: Launcher, modex: Modex) -> Exchange {
        Exchange { launcher, modex, own: Vec::new(), last: Vec::new() }
    }
}

impl Rounds<'_> {
    /// The result of a job, or nothing and a reason among those skipped. For Petasos that is a
    /// failure.
    fn value_or_skip<T>(
        &mut self,
        launcher: Launcher,
        ranks: u32,
        given: Result<T, String>,
    ) -> Outcome<Option<T>> {
        match given {
            Ok(given) => Ok(Some(given)),
            Err(why) => {
                let why = format!("{}, {ranks} ranks: {why}", launcher.name());
                if launcher == Launcher::Petasos {
                    return Err(Failure::new(Code::Failed, why));
                }
                if !self.skipped.contains(&why) {
                    self.skipped.push(why);
                }
                Ok(None)
            }
        }
    }

    /// Jobs that do nothing, from their start to their end.
    pub(super) fn starts(&mut self, ranks: u32) -> Outcome<Line> {
        let present: Vec<Launcher> =
            LAUNCHERS.into_iter().filter(|launcher| self.programs.starts(*launcher)).collect();
        let mut found: Vec<Vec<f64>> = vec![Vec::new(); present.len()];
        for round in 0..self.rounds {
            for (launcher, found) in present.iter().zip(&mut found) {
                if found.len() < round {
                    // It failed before; a launcher that hangs takes long to fail.
                    continue;
                }
                self.progress.step(format!("{ranks} ranks that do nothing: {}", launcher.name()));
                let took = match launcher {
                    Launcher::Bare => Some(bare::start(PROGRAM, ranks)?),
                    _ => {
                        let ran = self.programs.job(*launcher, ranks, Path::new(PROGRAM), &[]);
                        self.value_or_skip(*launcher, ranks, ran)?.map(|ran| ran.took)
                    }
                };
                found.extend(took);
            }
        }
        let standings = standings(&present, found, |standing| {
            standing.at(Plot::LaunchStart, "jobs that do nothing", ranks)
        });
        let line = Line::new(Table::Start, ("start", "start to end"), ranks, "ns", standings);
        let goal = line.of(Launcher::Bare).filter(|_| ranks >= 64).map(|bare| 2.0 * bare);
        Ok(line.with_goal(goal))
    }

    /// What is measured within jobs of so many ranks.
    pub(super) fn within(&mut self, ranks: u32, with_events: bool) -> Outcome<Vec<Line>> {
        let present: Vec<Launcher> =
            WITHIN.into_iter().filter(|launcher| self.programs.has(*launcher)).collect();
        let mut found: Vec<Vec<Found>> = vec![Vec::new(); present.len()];
        let mut limits: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        let words = ["measure", if with_events { "1" } else { "0" }];
        for round in 0..self.rounds {
            for count in [1, ranks] {
                self.progress.step(format!("{count} bare processes at a barrier"));
                let rounds = limits.entry(count).or_default();
                if rounds.len() < self.rounds {
                    rounds.push(bare::together(count)?);
                }
            }
            for (launcher, found) in present.iter().zip(&mut found) {
                if found.len() < round {
                    continue;
                }
                self.progress.step(format!("within a job of {ranks} ranks: {}", launcher.name()));
                let ran = self.programs.measuring(*launcher, ranks, &words);
                let figures = ran.and_then(|ran| figures(&ran));
                found.extend(self.value_or_skip(*launcher, ranks, figures)?);
            }
        }
        let mut lines = Vec::new();
        for figure in &FIGURES {
            let of_all = found.iter().map(|rounds| {
                let values = rounds.iter().filter_map(|found| found.get(figure.key).copied());
                values.filter(|value| *value > 0.0).collect()
            });
            let plotted = |standing: Standing| match figure.plot {
                Some(plot) => standing.at(plot, figure.what, ranks),
                None => standing,
            };
            let mut all = standings(&present, of_all.collect(), plotted);
            if all.is_empty() {
                continue;
            }
            let limit = figure.limit(ranks).and_then(|count| limits.get(&count));
            all.extend(limit.map(|rounds| plotted(Standing::new(Launcher::Bare, rounds.clone()))));
            let line = Line::new(Table::Within, (figure.key, figure.what), ranks, figure.unit, all);
            lines.push(line.with_goal(figure.goal(ranks)));
        }
        Ok(lines)
    }

    /// How long processes take to learn their neighbours' addresses.
    pub(super) fn wire_up(&mut self, ranks: u32) -> Outcome<Vec<Line>> {
        let modexes = |launcher: Launcher| match launcher {
            Launcher::Petasos => &Modex::ALL[..],
            // OpenPMIx assigns no addresses.
            _ => &Modex::ALL[1..],
        };
        let present = [Launcher::Petasos, Launcher::OpenPmix].into_iter();
        let present = present.filter(|launcher| self.programs.has(*launcher));
        let mut all: Vec<Exchange> = present
            .flat_map(|launcher| {
                modexes(launcher).iter().map(move |modex| Exchange::new(launcher, *modex))
            })
            .collect();
        for round in 0..self.rounds {
            for Exchange { launcher, modex, own, last } in &mut all {
                if last.len() < round {
                    continue;
                }
                self.progress.step(format!(
                    "{ranks} ranks, {}: {}",
                    modex.title(),
                    launcher.name()
                ));
                let ran = self.programs.measuring(*launcher, ranks, &[modex.word()]);
                let wired = ran.and_then(|ran| wired(&ran, ranks));
                if let Some((median, until)) = self.value_or_skip(*launcher, ranks, wired)? {
                    own.push(median);
                    last.push(until);
                }
            }
        }
        let of = |what: &str, pick: fn(&Exchange) -> &Vec<f64>| {
            let named = all.iter().filter(|one| !pick(one).is_empty()).map(|one| {
                let name = match one.launcher {
                    Launcher::Petasos => one.modex.title().to_owned(),
                    launcher => format!("{}: {}", launcher.name(), one.modex.title()),
                };
                Standing::new(one.launcher, pick(one).clone()).named(name).at(
                    Plot::WireUp,
                    what,
                    ranks,
                )
            });
            named.collect::<Vec<_>>()
        };
        let own = ("wired", "after init, a process (median)");
        let last = ("ready", "from the start of the launcher, the last process");
        Ok(vec![
            Line::new(Table::WireUp, own, ranks, "ns", of(own.1, |one| &one.own)),
            Line::new(Table::WireUp, last, ranks, "ns", of(last.1, |one| &one.last)),
        ])
    }

    /// The same with daemons that are simulated.
    pub(super) fn simulated(&mut self, nodes: u32) -> Outcome<Vec<Line>> {
        let mut found = Vec::new();
        for modex in Modex::ALL {
            self.progress.step(format!("simulated: {nodes} nodes, {}", modex.title()));
            if modex == Modex::Full && nodes > FULL_NODES {
                self.skipped.push(format!(
                    "simulated, {nodes} nodes, {}: each node would keep {nodes} business cards, all in this process",
                    modex.title()
                ));
                continue;
            }
            let ran = simulated::run(nodes, modex);
            let ran = ran.ok_or_else(|| {
                let why = format!("simulated, {nodes} nodes: not all got their addresses");
                Failure::new(Code::Failed, why)
            })?;
            found.push((modex, ran));
        }
        let line =
            |(key, what), unit, plot: Plot, panel: &str, pick: fn(&simulated::Found) -> f64| {
                let standings = found.iter().map(|(modex, ran)| {
                    let standing = Standing::new(Launcher::Petasos, vec![pick(ran)]);
                    standing.named(modex.title()).at(plot, panel, nodes)
                });
                Line::new(Table::Simulated, (key, what), nodes, unit, standings.collect())
            };
        let (times, loads) = (Plot::Simulated, Plot::SimulatedBytes);
        Ok(vec![
            line(
                ("ready", "all ready, after the last start"),
                "ns",
                times,
                "one process a node",
                |f| f.ready_ns,
            ),
            line(
                ("most_bytes", "bytes of the busiest daemon"),
                "B",
                loads,
                "the busiest daemon",
                |f| f.most_bytes,
            ),
            line(("bytes", "bytes of a daemon"), "B", loads, "on average", |f| f.bytes),
        ])
    }
}

/// The launchers that have figures.
fn standings(
    all: &[Launcher],
    found: Vec<Vec<f64>>,
    plotted: impl Fn(Standing) -> Standing,
) -> Vec<Standing> {
    let with_figures = all.iter().zip(found).filter(|(_, rounds)| !rounds.is_empty());
    with_figures.map(|(launcher, rounds)| plotted(Standing::new(*launcher, rounds))).collect()
}

/// What rank 0 printed.
fn figures(ran: &Ran) -> Result<Found, String> {
    let line = ran.out.lines().find(|line| line.starts_with('{'));
    let line = line.ok_or("rank 0 printed no figures")?;
    serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))
}

/// What all ranks printed: the median of their times, and when the last was done.
fn wired(ran: &Ran, ranks: u32) -> Result<(f64, f64), String> {
    let lines = ran.out.lines().filter(|line| line.starts_with('{'));
    let all: Vec<Wired> = lines.filter_map(|line| serde_json::from_str(line).ok()).collect();
    if all.len() != ranks as usize {
        return Err(format!("{} of {ranks} ranks printed when they were done", all.len()));
    }
    let mut times: Vec<f64> = all.iter().map(|one| one.wired).collect();
    let last = all.iter().map(|one| one.at).fold(0.0, f64::max);
    Ok((median(&mut times), last - ran.begin))
}

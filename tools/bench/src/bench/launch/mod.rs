//! `petasos bench launch`: how long jobs take to start and end, what fences, business cards and
//! events take between their ranks, and how ranks learn the addresses of others: beside OpenPMIx
//! and `mpirun`, and beside the machine without any launcher.
//!
//! The figures of all launchers are measured right after each other, several times. OpenPMIx's come
//! from a small program on its client library (`peer.c`), which is compiled when it is needed.

mod bare;
mod lines;
mod programs;
mod rank;
mod rounds;
mod show;
mod simulated;

pub(crate) use bare::{BARE, run_bare};
pub(super) use programs::{Ran, ran_within};
pub(crate) use rank::{RANK, run_rank};

use crate::{exit::Outcome, progress::Progress, report::Folder, scratch::Scratch};
use clap::{Args, ValueEnum};
use petasos_cli::cli::Json;
use programs::Programs;
use rounds::Rounds;
use show::Results;
use std::{path::PathBuf, time::Instant};

#[derive(Debug, Args)]
pub(crate) struct BenchLaunch {
    /// What to measure [default: all]
    #[arg(value_enum)]
    what: Vec<Part>,
    /// Numbers of ranks [default: 16,64,256 to start, 2,16,64 within a job, 1,4,16,64,256 to wire
    /// up]
    #[arg(short = 'n', long, value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    ranks: Vec<u32>,
    /// The most ranks of any job; larger jobs are left out
    #[arg(long, value_name = "N", default_value_t = 256)]
    most: u32,
    /// Numbers of nodes to simulate
    #[arg(long, value_delimiter = ',', default_value = "10,100,1000,10000", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    nodes: Vec<u32>,
    /// How often each figure is measured, in turn with the others
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=101))]
    rounds: u8,
    /// Write a page with plots to this directory, and the results as JSON beside it
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    #[command(flatten)]
    json: Json,
}

/// A part of what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Jobs that do nothing, from their start to their end
    Start,
    /// Init, gets, fences and events within a job
    Within,
    /// Until each process has its neighbours' addresses: assigned, asked for, or exchanged
    WireUp,
    /// The same on thousands of simulated nodes
    Simulated,
}

impl Part {
    /// The numbers of ranks, if none are asked for.
    fn usual(self) -> &'static [u32] {
        match self {
            Part::Start => &[16, 64, 256],
            Part::Within => &[2, 16, 64],
            Part::WireUp => &[1, 4, 16, 64, 256],
            Part::Simulated => &[],
        }
    }
}

pub(super) fn run(options: &BenchLaunch) -> Outcome {
    let parts = match options.what.as_slice() {
        [] => Part::value_variants(),
        some => some,
    };
    let folder = options.report.as_deref().map(Folder::prepare).transpose()?;
    let (scratch, progress, begin) = (Scratch::new()?, Progress::steps(0), Instant::now());
    let (mut skipped, mut lines) = (Vec::new(), Vec::new());
    let programs = Programs::find(&scratch, |why| skipped.push(why))?;
    skipped.iter().for_each(|why| progress.say(&format!("skipped: {why}")));
    let rounds = usize::from(options.rounds);
    let mut measuring =
        Rounds { programs: &programs, rounds, progress: &progress, skipped: &mut skipped };
    let sizes = |part: Part| {
        let sizes = if options.ranks.is_empty() { part.usual() } else { &options.ranks };
        sizes.iter().copied().filter(|ranks| *ranks <= options.most)
    };
    for part in parts {
        if *part == Part::Simulated {
            for nodes in &options.nodes {
                lines.extend(measuring.simulated(*nodes)?);
            }
        }
        // OpenPMIx takes milliseconds for an event: once is enough.
        let mut events = true;
        for ranks in sizes(*part) {
            match part {
                Part::Start => lines.push(measuring.starts(ranks)?),
                Part::Within => {
                    let with_events = ranks > 1 && std::mem::take(&mut events);
                    lines.extend(measuring.within(ranks, with_events)?);
                }
                Part::WireUp => lines.extend(measuring.wire_up(ranks)?),
                Part::Simulated => {}
            }
        }
    }
    drop(progress);
    let results = Results::new(rounds, begin.elapsed(), lines, skipped);
    results.give(folder.as_ref(), options.json.json)
}

//! `petasos bench mpi`: a ping-pong of MPI over the provider for libfabric, beside the way that the
//! MPI takes by itself, and libfabric's own providers of this machine.
//!
//! The program is one (`mpi.c`), compiled with each MPI that is here; only variables differ. All
//! ways of an MPI are measured right after each other, several times, under the same launcher.

mod programs;
mod show;

use crate::{
    exit::{Code, Failure, Outcome},
    output::parse_size,
    progress::Progress,
    scratch::Scratch,
};
use clap::Args;
use petasos_cli::cli::Json;
use programs::{Measured, Mpi, Way};
use show::{Found, Results};
use std::{collections::BTreeMap, path::PathBuf, time::Instant};

/// The longest message, in bytes.
const LONGEST: u64 = 256 << 20;
/// How long a batch takes, in milliseconds, and a quick one.
const BATCH: [u32; 2] = [20, 2];

#[derive(Debug, Args)]
pub(crate) struct BenchMpi {
    /// Sizes of messages in bytes, as 8,64KiB [default: 8 B to 1 MiB]
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = parse_message)]
    size: Vec<u64>,
    /// Compilers of the MPIs to measure [default: mpicc.mpich, mpicc.openmpi and mpicc in PATH, and
    /// those that scripts/mpi fetched]
    #[arg(long, value_name = "PROGRAM")]
    mpicc: Vec<PathBuf>,
    /// How often each is measured, in turn with the others [default: 5; with --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=101))]
    rounds: Option<u8>,
    /// Fewer sizes, shorter runs
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    json: Json,
}

fn parse_message(text: &str) -> Result<u64, String> {
    let size = parse_size(text)?;
    (1..=LONGEST).contains(&size).then_some(size).ok_or("1 B to 256 MiB".to_owned())
}

pub(super) fn run(options: &BenchMpi) -> Outcome {
    let usual: &[u64] = match options.quick {
        true => &[8, 64 << 10, 1 << 20],
        false => &[8, 64, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20],
    };
    let sizes = if options.size.is_empty() { usual.to_vec() } else { options.size.clone() };
    let rounds = options.rounds.map_or(if options.quick { 3 } else { 5 }, usize::from);
    let batch = BATCH[usize::from(options.quick)];
    let (scratch, progress, begin) = (Scratch::new()?, Progress::steps(0), Instant::now());
    programs::require_provider(&scratch)?;
    let mut skipped = Vec::new();
    let mpis = programs::find(&options.mpicc, &scratch, &mut skipped)?;
    skipped.iter().for_each(|why| progress.say(&format!("skipped: {why}")));
    progress.total((mpis.iter().map(|mpi| mpi.ways.len()).sum::<usize>() * rounds) as u64);
    let mut found = Vec::new();
    for mpi in &mpis {
        found.push(measure(mpi, &sizes, rounds, batch, &progress, &mut skipped)?);
    }
    drop(progress);
    Results::new(rounds, begin.elapsed(), found, skipped).give(options.json.json)
}

/// All ways of an MPI, in turn. One that fails is left out from then on; ours may not.
fn measure(
    mpi: &Mpi,
    sizes: &[u64],
    rounds: usize,
    batch: u32,
    progress: &Progress,
    skipped: &mut Vec<String>,
) -> Outcome<Found> {
    let mut all: BTreeMap<Way, Vec<Measured>> = BTreeMap::new();
    let mut library = String::new();
    for round in 0..rounds {
        for way in &mpi.ways {
            progress.step(format!("{}: {}", mpi.name, way.name()));
            if round > 0 && all.get(way).is_none_or(|measured| measured.len() < round) {
                continue;
            }
            match mpi.measured(*way, sizes, batch) {
                Ok(measured) => {
                    library.clone_from(&measured.library);
                    all.entry(*way).or_default().push(measured);
                }
                Err(why) => {
                    let why = format!("{}, {}: {why}", mpi.name, way.name());
                    if *way == Way::Petasos {
                        return Err(Failure::new(Code::Failed, why));
                    }
                    skipped.push(why);
                }
            }
        }
    }
    Ok(Found::new(mpi.name.clone(), library, sizes, &all))
}

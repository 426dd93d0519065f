//! `petasos bench forward`: files through a server of Petasos, by commands and by mounts, beside
//! other programs and the local disk.
//!
//! All servers run at once and export one directory; each row is measured for all of them right
//! after each other, several times. Processes that hang are killed, wrong data is reported, and
//! nothing is left: processes, mounts and files are removed when the command ends, also by Ctrl-C.

mod arena;
mod board;
mod candidates;
mod cells;
mod contender;
mod local;
mod mounted;
mod petasos;
mod process;
mod rclone;
mod rounds;
mod rsync;
mod sample;
mod show;
mod ssh;
mod work;

pub(crate) use process::{TIED, run_tied};
pub(crate) use work::{SUBCOMMAND as WORK, run as run_work};

use super::{Bench, usual_time};
use crate::{
    client,
    exit::{Code, Failure, Outcome},
    interrupt,
    limits::Plan,
    output::parse_size,
    progress::Progress,
    report::Folder,
    scratch::Scratch,
};
use arena::{Arena, Sizes};
use clap::{Args, ValueEnum};
use petasos_cli::cli::Json;
use rounds::Rounds;
use show::Results;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Mutex,
    time::{Duration, Instant},
};

/// The large file has so many times the size of one through a mount.
const MEDIUM: u64 = 4;

/// How many small files there are for one that is empty.
const EMPTY: usize = 5;

/// How long one step may take.
const PATIENCE: Duration = Duration::from_secs(180);
const QUICK_PATIENCE: Duration = Duration::from_secs(60);

/// The most clients at a time.
const MOST_CLIENTS: usize = 256;

#[derive(Debug, Args)]
pub(crate) struct BenchForward {
    /// What to measure [default: all]
    #[arg(value_enum)]
    what: Vec<Part>,
    /// Transports of petasos forward, as in URLs: shm, tcp, auto, ofi+tcp [default: shm,tcp]
    #[arg(long, value_delimiter = ',')]
    transport: Vec<String>,
    /// Smaller files, fewer of them, fewer clients
    #[arg(long)]
    quick: bool,
    /// How often each figure is measured, in turn with its limit and the others [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=101))]
    rounds: Option<u8>,
    /// Bytes of the large file; one through a mount has a quarter [default: 1GiB; with --quick
    /// 128MiB]
    #[arg(long, value_parser = parse_large)]
    size: Option<u64>,
    /// How many small files [default: 10000; with --quick 1000]
    #[arg(long, value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    files: Option<u32>,
    /// Numbers of clients [default: 1,2,4,8,16,32; with --quick 1,4,16]
    #[arg(long, value_delimiter = ',', value_parser = parse_clients)]
    clients: Vec<usize>,
    /// Where to keep temporary files, some five times the size: the file system that is measured
    /// [default: the directory for temporary files]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Write a page with plots to this directory, and the results as JSON beside it
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    #[command(flatten)]
    json: Json,
}

/// A part of what is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Large and small files, put and got, by the commands
    Commands,
    /// Large files by block size, small files and metadata through mounts
    Mounts,
    /// Both by number of clients
    Clients,
}

fn parse_large(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        size if size < 64 << 10 => Err("at least 64KiB".to_owned()),
        size => Ok(size),
    }
}

fn parse_clients(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(clients) if (1..=MOST_CLIENTS).contains(&clients) => Ok(clients),
        _ => Err(format!("`{text}` is no number from 1 to {MOST_CLIENTS}")),
    }
}

pub(super) fn run(options: &BenchForward) -> Outcome {
    // On a signal, processes and mounts end in order.
    interrupt::be_polite();
    let parts = match options.what.as_slice() {
        [] => Part::value_variants(),
        some => some,
    };
    let transports = client::transports(&options.transport)?;
    let folder = options.report.as_deref().map(Folder::prepare).transpose()?;
    let scratch = options.dir.as_deref().map_or_else(Scratch::new, Scratch::within)?;
    let bench = bench(options, &scratch)?;
    let sizes = sizes(options);
    let patience = if options.quick { QUICK_PATIENCE } else { PATIENCE };
    let begin = Instant::now();
    bench.skip(nfs());
    let arena = Arena::new(&scratch, &bench.secret, sizes.clone(), patience)?;
    bench.progress.step("making files");
    arena.fill(parts.contains(&Part::Clients))?;
    let mut rounds = Rounds::new(&bench, &arena, transports)?;
    let ended = (0..bench.rounds).try_for_each(|_| rounds.round(parts));
    if ended.is_err() {
        bench.cut_short();
    }
    let results = Results::new(&bench, &sizes, begin.elapsed(), rounds.end());
    drop(bench);
    // Show what was measured, also if another part failed.
    if ended.is_ok() || results.has_some() {
        results.give(folder.as_ref(), options.json.json)?;
    }
    ended?;
    match results.broken() {
        Some(broken) => Err(Failure::new(Code::Failed, broken)),
        None => Ok(()),
    }
}

fn sizes(options: &BenchForward) -> Sizes {
    let quick = options.quick;
    let large = options.size.unwrap_or(if quick { 128 << 20 } else { 1 << 30 });
    let files = options.files.map_or(if quick { 1_000 } else { 10_000 }, |files| files as usize);
    let mut clients = match (options.clients.as_slice(), quick) {
        ([], false) => vec![1, 2, 4, 8, 16, 32],
        ([], true) => vec![1, 4, 16],
        (some, _) => some.to_vec(),
    };
    clients.sort_unstable();
    clients.dedup();
    let blocks = if quick { vec![4 << 10, 1 << 20] } else { vec![4 << 10, 64 << 10, 1 << 20] };
    Sizes { large, medium: large / MEDIUM, files, empty: (files / EMPTY).max(1), blocks, clients }
}

fn bench(options: &BenchForward, scratch: &Scratch) -> Outcome<Bench> {
    let progress = Progress::steps(0);
    Ok(Bench {
        plan: Plan { time: usual_time(options.quick), ..Plan::default() },
        quick: options.quick,
        rounds: options.rounds.map_or(3, usize::from),
        scratch: scratch.path().to_owned(),
        secret: scratch.secret()?,
        progress,
        skipped: Mutex::default(),
    })
}

/// Why there is no NFS in the tables.
fn nfs() -> String {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let has = |name: &str| known.split_whitespace().any(|word| word == name);
    let why = match (has("nfs") || has("nfs4"), has("nfsd")) {
        (false, _) => "the kernel that runs has no client for it",
        (true, false) => "the kernel that runs has no server for it",
        (true, true) => "it is set up for the whole machine, which this command does not change",
    };
    format!("NFS: {why}")
}

/// The text of a secret file.
fn secret_text(secret: &Path) -> Outcome<String> {
    let text = fs::read_to_string(secret).map_err(|e| Failure::file("reading", secret, &e))?;
    Ok(text.trim().to_owned())
}

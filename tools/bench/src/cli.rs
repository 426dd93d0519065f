//! The command line of `petasos bench`.

use crate::{
    bench::{forward::BenchForward, launch::BenchLaunch},
    output::parse_time,
};
use clap::{Args, Parser, Subcommand, ValueEnum};
pub(crate) use petasos_cli::cli::{Common, Json};
use std::{path::PathBuf, time::Duration};

/// The part of the command's line that is parsed here: options of all commands, before or after
/// `bench`.
#[derive(Debug, Parser)]
#[command(name = "petasos", version)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measures calls and bulk data, each beside the machine's limit in the same run
    Bench(Bench),
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Bench {
    #[command(subcommand)]
    pub(crate) command: Option<BenchCommand>,
    /// What to measure [default: all; peers where they are built in]
    #[arg(value_enum)]
    pub(crate) what: Vec<Topic>,
    #[command(flatten)]
    pub(crate) measuring: Measuring,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Repeats experiments of papers by name, with Petasos
    Paper(Paper),
    /// Files through petasos forward, beside sshfs, rclone, rsync and the local disk
    Forward(BenchForward),
    /// Jobs: their start, fences, business cards and events in them, and how ranks find each other,
    /// beside OpenPMIx with mpirun
    Launch(BenchLaunch),
}

#[derive(Debug, Args)]
#[command(after_long_help = PAPERS)]
pub(crate) struct Paper {
    /// Which experiments [default: all]
    #[arg(value_enum, value_name = "EXPERIMENT")]
    pub(crate) experiments: Vec<Experiment>,
    #[command(flatten)]
    pub(crate) measuring: Measuring,
}

const PAPERS: &str = "\
Papers:
  Mercury     J. Soumagne et al., \"Mercury: Enabling Remote Procedure Call for High-Performance
              Computing\", IEEE CLUSTER 2013
  TH-Express  the communication framework of the TH-Express interconnect, on which UCX and OFI
              are implemented: short packets, shared and exclusive RDMA channels";

/// An experiment of a paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Experiment {
    /// Mercury: the time of a null call and of calls with arguments, with and without XDR encoding,
    /// and the rate of calls by how many are in flight
    NullCall,
    /// Mercury: bandwidth of a transfer that the target pulls in blocks, by size of block and by
    /// how many are in flight; and with work on each block
    PipelinedBulk,
    /// Mercury: total bandwidth of bulk data by number of clients, against that from point to point
    Clients,
    /// TH-Express: latency and bandwidth of each channel by size, bare and under RPC, against the
    /// bare device
    Channels,
}

/// How to measure, and where the results go.
#[derive(Debug, Args)]
pub(crate) struct Measuring {
    /// Transports to use, one after the other, as in URLs: shm, tcp, tcp?encrypt, auto, ofi+tcp
    /// [default: shm,tcp]
    #[arg(long, value_delimiter = ',')]
    pub(crate) transport: Vec<String>,
    /// Fewer sizes, fewer clients, shorter runs
    #[arg(long)]
    pub(crate) quick: bool,
    /// How often each figure is measured, in turn with its limit [default: 5; with --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=101))]
    pub(crate) rounds: Option<u8>,
    /// Time of one measurement, which others take parts of [default: 300ms; with --quick 100ms]
    #[arg(long, value_parser = parse_measurement)]
    pub(crate) time: Option<Duration>,
    /// Write a page with plots to this directory, and the results as JSON beside it
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) json: Json,
}

/// The time of one measurement where none is given.
pub(crate) fn usual_time(quick: bool) -> Duration {
    Duration::from_millis(if quick { 100 } else { 300 })
}

fn parse_measurement(text: &str) -> Result<Duration, String> {
    match parse_time(text)? {
        time if time < Duration::from_millis(1) => Err("at least 1ms".to_owned()),
        time if time > Duration::from_secs(60) => Err("at most 60s".to_owned()),
        time => Ok(time),
    }
}

/// A part of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Topic {
    /// What the machine can do by itself
    Limits,
    /// Latency and rate of calls that do nothing
    Null,
    /// Echoes by size: latency, percentiles, steps, rate by calls in flight, in both encodings
    Echo,
    /// Bandwidth in both directions, by size
    Bulk,
    /// A large pull in blocks, by size of block and by depth, also with work on each block
    Pipeline,
    /// Rate of calls and bandwidth by number of clients
    Clients,
    /// Each channel bare and under RPC, by size
    Channels,
    /// The first call of a new peer, with its connection
    Connect,
    /// Two engines in one server against one: rate, time on a core, switches
    Engines,
    /// Matching one-sided messages: puts with acknowledgement, matching among many entries
    Portals,
    /// Other stacks, measured in turn with Petasos
    Peers,
}

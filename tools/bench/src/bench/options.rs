//! The options of `petasos bench`, but for those of files and of jobs, which are with them.

use super::{forward::BenchForward, launch::BenchLaunch, mpi::BenchMpi};
use crate::output::parse_measurement;
use clap::{Args, Subcommand, ValueEnum};
use petasos_cli::cli::Json;
use std::{path::PathBuf, time::Duration};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(super) command: Option<BenchCommand>,
    /// What to measure [default: all; peers where they are built in]
    #[arg(value_enum)]
    pub(super) what: Vec<Topic>,
    #[command(flatten)]
    pub(super) measuring: Measuring,
}

#[derive(Debug, Subcommand)]
pub(super) enum BenchCommand {
    /// Repeats experiments of papers by name, with Petasos
    Paper(Paper),
    /// Files through petasos forward, beside sshfs, rclone, rsync and the local disk
    Forward(BenchForward),
    /// Jobs: their start, fences, business cards and events in them, and how ranks find each other,
    /// beside OpenPMIx with mpirun
    Launch(BenchLaunch),
    /// Messages of MPI over the provider for libfabric, beside the MPI's own way and libfabric's
    /// providers
    Mpi(BenchMpi),
}

#[derive(Debug, Args)]
#[command(after_long_help = PAPERS)]
pub(super) struct Paper {
    /// Which experiments [default: all]
    #[arg(value_enum, value_name = "EXPERIMENT")]
    pub(super) experiments: Vec<Experiment>,
    #[command(flatten)]
    pub(super) measuring: Measuring,
}

const PAPERS: &str = "\
Papers:
  Mercury     J. Soumagne et al., \"Mercury: Enabling Remote Procedure Call for High-Performance
              Computing\", IEEE CLUSTER 2013
  TH-Express  the communication framework of the TH-Express interconnect, on which UCX and OFI
              are implemented: short packets, shared and exclusive RDMA channels";

/// An experiment of a paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Experiment {
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
pub(super) struct Measuring {
    /// Transports to use, one after the other, as in URLs: shm, tcp, tcp?encrypt, auto, ofi+tcp
    /// [default: shm,tcp]
    #[arg(long, value_delimiter = ',')]
    pub(super) transport: Vec<String>,
    /// Fewer sizes, fewer clients, shorter runs
    #[arg(long)]
    pub(super) quick: bool,
    /// How often each figure is measured, in turn with its limit [default: 5; with --quick 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=101))]
    pub(super) rounds: Option<u8>,
    /// Time of one measurement, which others take parts of; less than 5ms is a trial, whether all
    /// works, with one sample of what is slow [default: 300ms; with --quick 100ms]
    #[arg(long, value_parser = parse_measurement)]
    pub(super) time: Option<Duration>,
    /// Write a page with plots to this directory, and the results as JSON beside it
    #[arg(long, value_name = "DIR")]
    pub(super) report: Option<PathBuf>,
    #[command(flatten)]
    pub(super) json: Json,
}

/// A part of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Topic {
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

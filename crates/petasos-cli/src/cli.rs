//! The command line.

use crate::{
    client::parse_url,
    exit::CODES,
    output::{parse_size, parse_time},
};
use clap::{Args, Parser, Subcommand, ValueEnum};
use petasos::fabric::Address;
use std::{path::PathBuf, time::Duration};

/// Calls with bulk data between processes, over shared memory and TCP: try it, look at it,
/// measure it.
#[derive(Debug, Parser)]
#[command(name = "petasos", version, after_help = CODES, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Writes files to a server process of its own and reads them back, checks every byte, and
    /// shows latency and bandwidth beside what this machine can do at best
    Quickstart(Quickstart),
    /// Answers ping and bench until it is interrupted
    Serve(Serve),
    /// Says what transports there are here, what they can do, and why others are not there
    Info(Info),
    /// Calls a server again and again, and says how long the answers take
    Ping(Ping),
    /// Measures calls and bulk data, each beside the machine's limit in the same run
    Bench(Bench),
    /// Measures what this machine can do at best, without Petasos
    Limits(Json),
    /// Prints completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// What all have in common.
#[derive(Debug, Args)]
pub(crate) struct Json {
    /// Print JSON instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Quickstart {
    /// A file or directory to write and read back; without one, data is made
    pub(crate) path: Option<PathBuf>,
    /// How much data to make
    #[arg(long, default_value = "256MiB", value_parser = parse_size, conflicts_with = "path")]
    pub(crate) size: u64,
    /// Transports to use, one after the other: shm, tcp [default: all]
    #[arg(long, value_delimiter = ',')]
    pub(crate) transport: Vec<String>,
    /// Keep what was read back under this name; what is there stays until all has come
    #[arg(long, value_name = "PATH")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Where to listen, more than once if wanted [default: shm://* and tcp://127.0.0.1:0]
    #[arg(long, value_name = "URL", value_parser = parse_url)]
    pub(crate) listen: Vec<Address>,
    /// A file with the secret that both sides of TCP know: needed beyond this machine
    #[arg(long, value_name = "FILE")]
    pub(crate) secret: Option<PathBuf>,
    /// How to wait for calls
    #[arg(long, value_enum, default_value = "adaptive")]
    pub(crate) wait: Wait,
    #[command(flatten)]
    pub(crate) json: Json,
}

/// How a server waits.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Wait {
    /// Spin for a little while, then sleep
    Adaptive,
    /// Never sleep: the lowest latency, a whole core
    Spin,
    /// Sleep at once
    Sleep,
}

#[derive(Debug, Args)]
pub(crate) struct Info {
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Debug, Args)]
pub(crate) struct Ping {
    /// Who is to answer, as `petasos serve` prints it
    #[arg(value_parser = parse_url)]
    pub(crate) url: Address,
    /// How often; 0: until interrupted
    #[arg(short, long, default_value_t = 5)]
    pub(crate) count: u64,
    /// Time between two calls
    #[arg(short, long, default_value = "200ms", value_parser = parse_time)]
    pub(crate) interval: Duration,
    /// Bytes of each message
    #[arg(short, long, default_value = "64", value_parser = parse_size)]
    pub(crate) size: u64,
    /// How long to wait for an answer
    #[arg(short, long, default_value = "3s", value_parser = parse_time)]
    pub(crate) timeout: Duration,
    /// A file with the secret that both sides of TCP know
    #[arg(long, value_name = "FILE")]
    pub(crate) secret: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// What to measure [default: null, bulk, clients]
    #[arg(value_enum)]
    pub(crate) what: Vec<Topic>,
    /// Transports to use, one after the other: shm, tcp [default: all]
    #[arg(long, value_delimiter = ',')]
    pub(crate) transport: Vec<String>,
    /// Fewer sizes, fewer clients, shorter runs
    #[arg(long)]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) json: Json,
}

/// A part of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Topic {
    /// Latency and rate of calls that do nothing
    Null,
    /// Bandwidth both ways, by size
    Bulk,
    /// Rate by number of clients
    Clients,
    /// Other stacks, measured in turn with us; not among what is measured by default
    Peers,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

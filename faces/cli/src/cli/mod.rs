//! The command line: which commands there are, and their options.

pub(crate) mod broker;
pub(crate) mod forward;
mod jobs;
pub(crate) mod location;
pub(crate) mod run;

pub(crate) use broker::Broker;
pub(crate) use forward::Forward;
pub(crate) use jobs::{Events, Notify, Query, Which};
pub(crate) use run::Run;

use crate::{
    client::parse_url,
    exit::CODES,
    metrics::parse_address,
    output::{parse_measurement, parse_size, parse_time},
};
use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use petasos::fabric::Address;
use std::{ffi::OsString, net::SocketAddr, path::PathBuf, time::Duration};

/// Calls with bulk data between processes, over shared memory and TCP: try it, look at it,
/// measure it.
#[derive(Debug, Parser)]
#[command(name = "petasos", version, after_help = CODES, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command, before its name or after it.
#[derive(Debug, Args)]
pub struct Common {
    /// Print results as JSON, and errors as JSON on standard error
    #[arg(long, global = true)]
    pub json: bool,
    /// Log on standard error what happens; -vv says more, -vvv all
    #[arg(short, long, action = ArgAction::Count, global = true)]
    pub verbose: u8,
    /// What to log: a level, or TARGET=LEVEL,TARGET=LEVEL [default: what RUST_LOG says, else
    /// warnings of servers and errors of others]
    #[arg(long, value_name = "FILTER", global = true)]
    pub log: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Writes files to a server process of its own, or to a server on another host, and reads them
    /// back, checks every byte, and shows latency and bandwidth beside what this machine can do at
    /// best
    Quickstart(Quickstart),
    /// Serves ping, bench and quickstart until it is interrupted
    Serve(Serve),
    /// Shows the transports of this machine, what they can do, and why others are missing
    Info(Info),
    /// Forwards files: exports a directory, moves files and trees to it and from it
    Forward(Forward),
    /// Lends the fast paths of this host to containers, by rules and limits, until it is interrupted
    Broker(Broker),
    /// Calls a server again and again, and shows how long the answers take
    Ping(Ping),
    /// Measures calls and bulk data, each beside the machine's limit in the same run (by the
    /// program petasos-bench)
    Bench(Bench),
    /// Measures what this machine can do at best, without Petasos
    Limits(Json),
    /// Finds out which settings are best for this machine, and writes them to a file that this
    /// command and other programs read
    Tune(Tune),
    /// Runs a program as a job of many ranks, here or on several hosts
    Run(Run),
    /// Lists this user's running jobs and their ranks
    Ps(Json),
    /// Shows the events of a running job as they come
    Events(Events),
    /// Asks a running job for what it knows
    Query(Query),
    /// Sends an event to the ranks of a running job
    Notify(Notify),
    /// Shows where the provider for libfabric is, and with which variables MPIs use it
    Provider(Provider),
    /// Prints completions for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
}

impl Command {
    /// Whether it runs until it is stopped.
    pub(crate) fn is_server(&self) -> bool {
        match self {
            Command::Serve(_) => true,
            Command::Forward(forward) => forward.is_server(),
            Command::Broker(broker) => broker.is_server(),
            _ => false,
        }
    }
}

/// What all have in common.
#[derive(Clone, Debug, Args)]
pub struct Json {
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Quickstart {
    /// A file or directory to write and read back; without one, data is made
    pub(crate) path: Option<PathBuf>,
    /// How much data to make
    #[arg(long, default_value = "256MiB", value_parser = parse_size, conflicts_with = "path")]
    pub(crate) size: u64,
    /// Transports to use, one after the other, as in URLs: shm, tcp, auto, ofi+tcp [default:
    /// shm,tcp]
    #[arg(long, value_delimiter = ',')]
    pub(crate) transport: Vec<String>,
    /// The server on another host, as `petasos serve --files` prints it there, instead of a process
    /// of its own
    #[arg(long, value_name = "URL", value_parser = parse_url, conflicts_with = "transport")]
    pub(crate) server: Option<Address>,
    /// The file with the secret that both sides of a network know
    #[arg(long, value_name = "FILE", requires = "server")]
    pub(crate) secret: Option<PathBuf>,
    /// Time of one measurement, of calls and between memories
    #[arg(long, default_value = "300ms", value_parser = parse_measurement)]
    pub(crate) time: Duration,
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
    /// Keep files for `petasos quickstart --server`, in a temporary directory ($TMPDIR), for one
    /// client at a time and until it has finished: a client that may call this server can fill
    /// that directory
    #[arg(long)]
    pub(crate) files: bool,
    /// With --files, over TCP on the loopback interface, let every user of this machine in without
    /// a secret
    #[arg(long, requires = "files", conflicts_with = "secret")]
    pub(crate) open: bool,
    /// How to wait for calls
    #[arg(long, value_enum, default_value = "adaptive")]
    pub(crate) wait: Wait,
    /// Give metrics to Prometheus over HTTP at this address; a port alone is of the loopback
    /// interface
    #[arg(long, value_name = "[HOST:]PORT", value_parser = parse_address)]
    pub(crate) metrics: Option<SocketAddr>,
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
pub(crate) struct Tune {
    /// Transports to measure, one after the other, as in URLs [default: shm,tcp]
    #[arg(long, value_delimiter = ',')]
    pub(crate) transport: Vec<String>,
    /// Where to write [default: where programs look, as PETASOS_TUNING says or
    /// ~/.config/petasos/tuning]
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Show what would be written, and write nothing
    #[arg(long, conflicts_with = "out")]
    pub(crate) dry_run: bool,
    /// Fewer sizes, shorter runs
    #[arg(long)]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Debug, Args)]
pub(crate) struct Info {
    /// A server, as `petasos serve` prints it: show by which route it is reached from here, and why
    #[arg(value_name = "PEER", value_parser = parse_url)]
    pub(crate) peer: Option<Address>,
    /// The file with the secret that both sides of a network know
    #[arg(long, value_name = "FILE", requires = "peer")]
    pub(crate) secret: Option<PathBuf>,
    /// How long to wait for an answer
    #[arg(short, long, default_value = "3s", value_parser = parse_time, requires = "peer")]
    pub(crate) timeout: Duration,
    /// Show endpoints that a thread drives while their program computes
    #[arg(long, conflicts_with = "peer")]
    pub(crate) attended: bool,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Debug, Args)]
pub(crate) struct Ping {
    /// The server, as `petasos serve` prints it
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
pub(crate) struct Provider {
    /// Print the folder of the library, for FI_PROVIDER_PATH
    #[arg(long)]
    pub(crate) print_path: bool,
    /// Print the variables, for a shell: eval "$(petasos provider --print-variables)"
    #[arg(long, conflicts_with = "print_path")]
    pub(crate) print_variables: bool,
    #[command(flatten)]
    pub(crate) json: Json,
}

/// What is handed on to `petasos-bench`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Bench {
    /// Its arguments: `petasos bench --help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    pub(crate) words: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

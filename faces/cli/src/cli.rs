//! The command line.

use crate::{
    client::parse_url,
    commands::forward::Forward,
    exit::CODES,
    metrics::parse_address,
    output::{parse_rate, parse_size, parse_time},
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
    /// What to log: a level, or TARGET=LEVEL,TARGET=LEVEL [default: what RUST_LOG says, else warnings
    /// of servers and errors of others]
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
    /// Calls a server again and again, and shows how long the answers take
    Ping(Ping),
    /// Measures calls and bulk data, each beside the machine's limit in the same run (by the program
    /// petasos-bench)
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
            _ => false,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// How many ranks [default: 1, or as many as Slurm was asked for tasks]
    #[arg(short = 'n', long = "ranks", visible_alias = "np", value_name = "N")]
    pub(crate) ranks: Option<u32>,
    /// Hosts, between commas, each with the number of ranks it takes if that is not its number of
    /// cores: a,b:4; several at once as node[01-16]:4 [default: those of the Slurm allocation, or this
    /// host, for any number]
    #[arg(
        short = 'H',
        long,
        visible_alias = "host",
        value_name = "HOSTS",
        conflicts_with = "hostfile"
    )]
    pub(crate) hosts: Option<String>,
    /// A file with a host on each line, as NAME or NAME slots=N
    #[arg(long, alias = "machinefile", value_name = "FILE")]
    pub(crate) hostfile: Option<PathBuf>,
    /// Give hosts more ranks than they take, where there are more
    #[arg(long)]
    pub(crate) oversubscribe: bool,
    /// Set a variable for the ranks, or hand on that of this environment, also one that belongs to this
    /// host (all others go along by themselves); may be given several times
    #[arg(short = 'x', value_name = "NAME[=VALUE]")]
    pub(crate) export: Vec<String>,
    /// The directory in which ranks begin [default: this one]
    #[arg(long, visible_aliases = ["wd", "chdir"], value_name = "DIR")]
    pub(crate) wdir: Option<PathBuf>,
    /// How ranks are spread over hosts
    #[arg(long, value_enum, default_value = "by-core")]
    pub(crate) map: MapBy,
    /// What each rank keeps to
    #[arg(long, value_enum, default_value = "none")]
    pub(crate) bind: Bind,
    /// How long the job may take
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) timeout: Option<Duration>,
    /// How long after the first rank has connected all others must have
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    pub(crate) connect_timeout: Duration,
    /// How long a host may be silent before it is held for lost (0: as long as the system allows, 5 s)
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    pub(crate) silence: Duration,
    /// Measure how long messages between the hosts take before the ranks start, for them to read
    #[arg(long)]
    pub(crate) measure_links: bool,
    /// What the program speaks to its daemon
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) wire: WireBy,
    /// Begin each line of output with its rank
    #[arg(long)]
    pub(crate) label: bool,
    /// Let the other ranks go on when one fails
    #[arg(long)]
    pub(crate) keep_going: bool,
    /// How often a rank that failed may be started again, by one of the others (with --keep-going) or by
    /// --restart-failed
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) restarts: u32,
    /// Start ranks again that fail, with --spares also those of a host that is lost
    #[arg(long)]
    pub(crate) restart_failed: bool,
    /// Keep the last N hosts of the list without ranks, to take the place of hosts that are lost: with
    /// --restart-failed without anybody asking, with --keep-going when a rank asks
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) spares: u32,
    /// The command that starts a program on another host; {host} stands for its name [default: ssh -x
    /// -o BatchMode=yes, or srun within an allocation of Slurm]
    #[arg(long, value_name = "COMMAND", env = "PETASOS_REMOTE_START")]
    pub(crate) remote_start: Option<String>,
    /// How many other hosts a host starts: where there are more, those that are started start others; 0: this
    /// one starts all
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) fan_out: u32,
    /// A file or directory that the ranks find on their hosts, in $PETASOS_STAGE_DIR, by its own
    /// name or this one; may be given several times
    #[arg(long, value_name = "FILE[:NAME]", help_heading = "Files")]
    pub(crate) stage: Vec<OsString>,
    /// Copy the program to the hosts, and run it there
    #[arg(long, help_heading = "Files")]
    pub(crate) stage_program: bool,
    /// Where on each host the job's directory for files is made [default: where that host has
    /// temporary files]
    #[arg(long, value_name = "DIR", help_heading = "Files")]
    pub(crate) stage_dir: Option<String>,
    /// The most bytes a second that are copied to one host: 100MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_rate, help_heading = "Files")]
    pub(crate) stage_rate: Option<u64>,
    /// Show which rank would go where (with --bind core, on this host also to which CPU), and which
    /// files, and run nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// In the end, print what became of each rank as JSON on standard error (with --dry-run, the
    /// placement on standard output)
    #[arg(long)]
    pub json: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true)]
    pub(crate) program: Vec<String>,
}

/// How ranks are spread.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum MapBy {
    /// Host by host
    ByCore,
    /// One on each host in turn
    ByNode,
}

/// What a program speaks.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum WireBy {
    /// PMI-1 if it is linked with MPICH, PMIx if with Open MPI; both for others, which may be scripts
    /// that start such programs
    Auto,
    /// Petasos programs, and those that speak nothing
    Native,
    /// MPICH and its descendants
    Pmi1,
    /// Open MPI, and other clients of OpenPMIx 4 and later
    Pmix,
}

/// What a rank keeps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Bind {
    /// Nothing
    None,
    /// A core, one after the other
    Core,
}

/// Which job.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// The job, by its name in `petasos ps` [default: the only one]
    #[arg(long, value_name = "NAME")]
    pub(crate) job: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Events {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Only events with these codes
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true)]
    pub(crate) code: Vec<i32>,
    /// End after so many
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Debug, Args)]
pub(crate) struct Query {
    #[command(flatten)]
    pub(crate) which: Which,
    /// What: keys of job data such as pmix.job.size, or petasos.nodes, petasos.processes,
    /// petasos.published, petasos.inventory, petasos.inventory.NODE
    #[arg(required = true)]
    pub(crate) keys: Vec<String>,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Debug, Args)]
pub(crate) struct Notify {
    #[command(flatten)]
    pub(crate) which: Which,
    /// The code of the event
    #[arg(allow_hyphen_values = true)]
    pub(crate) code: i32,
    /// More about it, as NAME=TEXT
    #[arg(value_name = "NAME=TEXT")]
    pub(crate) info: Vec<String>,
    /// Only for these ranks, between commas
    #[arg(long, value_delimiter = ',')]
    pub(crate) ranks: Vec<u32>,
    /// Only for handlers that are registered for this code: default ones of some MPIs end their program
    #[arg(long)]
    pub(crate) by_code: bool,
}

/// What all have in common.
#[derive(Debug, Args)]
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
    /// Transports to use, one after the other, as in URLs: shm, tcp, auto, ofi+tcp [default: shm,tcp]
    #[arg(long, value_delimiter = ',')]
    pub(crate) transport: Vec<String>,
    /// The server on another host, as `petasos serve --files` prints it there, instead of a process
    /// of its own
    #[arg(long, value_name = "URL", value_parser = parse_url, conflicts_with = "transport")]
    pub(crate) server: Option<Address>,
    /// The file with the secret that both sides of a network know
    #[arg(long, value_name = "FILE", requires = "server")]
    pub(crate) secret: Option<PathBuf>,
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
    /// With --files, over TCP on the loopback interface, let every user of this machine in without a
    /// secret
    #[arg(long, requires = "files", conflicts_with = "secret")]
    pub(crate) open: bool,
    /// How to wait for calls
    #[arg(long, value_enum, default_value = "adaptive")]
    pub(crate) wait: Wait,
    /// Give metrics to Prometheus over HTTP at this address; a port alone is of the loopback interface
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

//! The options of `petasos run`.

use crate::output::{parse_rate, parse_time};
use clap::{Args, ValueEnum};
use std::{ffi::OsString, path::PathBuf, str::FromStr, time::Duration};

#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) hosts: JobHosts,
    #[command(flatten)]
    pub(crate) setup: RankSetup,
    #[command(flatten)]
    pub(crate) times: JobTimes,
    /// Measure how long messages between the hosts take before the ranks start, for them to read
    #[arg(long)]
    pub(crate) measure_links: bool,
    /// What the program speaks to its daemon
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) wire: WireBy,
    /// Have programs of MPICH, Intel MPI and Open MPI communicate by the provider for libfabric
    /// (`petasos provider` shows where it is, and the variables that are set; -x goes before them)
    #[arg(long)]
    pub(crate) provider: bool,
    /// Begin each line of output with its rank
    #[arg(long)]
    pub(crate) label: bool,
    /// Write what each rank says into files of its own on this host, DIR/rank-N.out and
    /// DIR/rank-N.err, and print nothing of it; files of these names begin anew
    #[arg(long, value_name = "DIR", conflicts_with = "label")]
    pub(crate) output: Option<PathBuf>,
    /// The rank that standard input goes to, or none
    #[arg(long, visible_alias = "stdin", value_name = "RANK", default_value = "0")]
    pub(crate) input: Reader,
    #[command(flatten)]
    pub(crate) recovery: Recovery,
    #[command(flatten)]
    pub(crate) start: RemoteStart,
    #[command(flatten)]
    pub(crate) staging: Staging,
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

/// The rank that reads standard input, if one does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader(pub(crate) Option<u32>);

impl FromStr for Reader {
    type Err = String;

    fn from_str(text: &str) -> Result<Reader, String> {
        match text {
            "none" => Ok(Reader(None)),
            _ => text.parse().map(|rank| Reader(Some(rank))).map_err(|_| {
                "neither the number of a rank nor `none` (to have all ranks read it, redirect a \
                 file in a script: `petasos run sh -c 'program < file'`)"
                    .to_owned()
            }),
        }
    }
}

/// How many ranks there are, and on which hosts.
#[derive(Debug, Args)]
pub(crate) struct JobHosts {
    /// How many ranks [default: 1, or as many as Slurm was asked for tasks]
    #[arg(short = 'n', long = "ranks", visible_alias = "np", value_name = "N")]
    pub(crate) ranks: Option<u32>,
    /// Hosts, between commas, each with the number of ranks it takes if that is not its number of
    /// cores: a,b:4; several at once as node[01-16]:4 [default: those of the Slurm allocation, or
    /// this host, for any number]
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
}

/// What ranks begin with, and where on their host.
#[derive(Debug, Args)]
pub(crate) struct RankSetup {
    /// Set a variable for the ranks, or hand on that of this environment, also one that belongs to
    /// this host (all others go along by themselves); may be given several times
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
}

/// How long the job, its beginning and a silence may take.
#[derive(Debug, Args)]
pub(crate) struct JobTimes {
    /// How long the job may take
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) timeout: Option<Duration>,
    /// How long after the first rank has connected all others must have
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    pub(crate) connect_timeout: Duration,
    /// How long a host may be silent before it is held for lost (0: as long as the system allows, 5
    /// s)
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    pub(crate) silence: Duration,
}

/// What happens when ranks fail and hosts are lost.
#[derive(Debug, Args)]
pub(crate) struct Recovery {
    /// Let the other ranks go on when one fails
    #[arg(long)]
    pub(crate) keep_going: bool,
    /// How often a rank that failed may be started again, by one of the others (with --keep-going)
    /// or by --restart-failed
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub(crate) restarts: u32,
    /// Start ranks again that fail, with --spares also those of a host that is lost
    #[arg(long)]
    pub(crate) restart_failed: bool,
    /// Keep the last N hosts of the list without ranks, to take the place of hosts that are lost:
    /// with --restart-failed by itself, with --keep-going when a rank asks
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) spares: u32,
}

/// How programs are started on other hosts.
#[derive(Debug, Args)]
pub(crate) struct RemoteStart {
    /// The command that starts a program on another host; {host} stands for its name [default: ssh
    /// -x -o BatchMode=yes, or srun within an allocation of Slurm]
    #[arg(long, value_name = "COMMAND", env = "PETASOS_REMOTE_START")]
    pub(crate) remote_start: Option<String>,
    /// How many other hosts a host starts: where there are more, those that are started start
    /// others; 0: this one starts all
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(crate) fan_out: u32,
}

/// What is copied to the hosts before the ranks start.
#[derive(Debug, Args)]
pub(crate) struct Staging {
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
    /// PMI-1 if it is linked with MPICH, PMIx if with Open MPI; both for others, which may be
    /// scripts that start such programs
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

//! The command line of `petasos forward`.

use super::{
    Json,
    location::{Location, Side},
};
use crate::{
    client::parse_url,
    metrics::parse_address,
    output::{parse_rate, parse_size, parse_time},
};
use clap::{Args, Subcommand, builder::OsStringValueParser, builder::TypedValueParser};
use petasos::fabric::Address;
use std::{ffi::OsString, net::SocketAddr, path::PathBuf, time::Duration};

const LOCATIONS: &str = "\
How paths at a server are written:
  tcp://HOST:PORT/PATH    a path after the server's URL, any bytes
  shm://NAME/PATH         the same over shared memory
  shm:///SOCKET//PATH     two slashes end the URL where it is a path itself; they may stand in all
Without a path it is what the server exports.";

#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Forward {
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Forward {
    /// Whether it runs until it is stopped.
    pub(crate) fn is_server(&self) -> bool {
        matches!(self.command, Command::Serve(_) | Command::Mount(_))
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Exports a directory, or a bucket of an object store, until it is interrupted
    Serve(Serve),
    /// Copies files and trees to a server
    Put(Put),
    /// Copies files and trees from a server
    Get(Get),
    /// Synchronizes a tree at a server with one here, or one here with one at a server
    Sync(Sync),
    /// Lists directories
    Ls(Ls),
    /// Shows the attributes of files
    Stat(Stat),
    /// Writes files to standard output
    Cat(Cat),
    /// Removes files, or whole trees
    Rm(Rm),
    /// Makes directories
    Mkdir(Mkdir),
    /// Renames a file or directory
    Mv(Mv),
    /// Shows what a server does, and for which clients
    Status(Status),
    /// Mounts an export, or a part of it, through FUSE
    Mount(Mount),
}

/// How to reach a server.
#[derive(Clone, Debug, Args)]
pub(crate) struct ServerAccess {
    /// A file with the secret that both sides of TCP know
    #[arg(long, value_name = "FILE")]
    pub(crate) secret: Option<PathBuf>,
    /// How long one operation may take
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_some_time)]
    pub(crate) timeout: Duration,
}

/// How data is moved.
#[derive(Clone, Debug, Args)]
pub(crate) struct Moving {
    /// How long to try to connect again to a server that was lost, or that no longer answers: one
    /// time for all that is under way, which begins anew when the server answers. After it the
    /// command ends
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_time)]
    pub(crate) retry: Duration,
    /// Files in flight at a time
    #[arg(long, value_name = "N", default_value_t = 64,
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) parallel: u16,
    /// Memory for data in flight
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_memory)]
    pub(crate) memory: u64,
    /// The most bytes a second
    #[arg(long, value_name = "SIZE", value_parser = parse_rate)]
    pub(crate) rate: Option<u64>,
    /// Compare hashes of what was read and what was written, from end to end
    #[arg(long)]
    pub(crate) checksum: bool,
    /// Start again where an earlier transfer was interrupted, and do not resume it
    #[arg(long)]
    pub(crate) no_resume: bool,
    /// Sync each file to the disk before it gets its name
    #[arg(long)]
    pub(crate) durable: bool,
    /// Keep owners and groups, by their numbers: needs the right to set them on the other side
    #[arg(long)]
    pub(crate) owner: bool,
    /// Copy FIFOs as well, which are otherwise left out
    #[arg(long)]
    pub(crate) fifos: bool,
    /// Leave out names that match this pattern: * and ? stop at slashes, ** does not; a pattern
    /// with a slash is about the path within the tree, one with a slash at its end about
    /// directories
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<OsString>,
    /// No progress, no summary; errors only
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Print each failure and a summary as lines of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// What to export
    #[arg(value_name = "DIR", required_unless_present = "object_store")]
    pub(crate) directory: Option<PathBuf>,
    /// Where to listen, more than once if wanted [default: shm://*, which only processes of the
    /// same user reach; with --secret or --open also tcp://127.0.0.1:0]
    #[arg(long, value_name = "URL", value_parser = parse_url)]
    pub(crate) listen: Vec<Address>,
    /// Refuse all changes
    #[arg(long)]
    pub(crate) read_only: bool,
    /// A file with the secret that both sides of TCP know: needed for TCP, unless --open is given
    #[arg(long, value_name = "FILE")]
    pub(crate) secret: Option<PathBuf>,
    /// Over TCP on the loopback interface, let every user of this machine in without a secret: all
    /// of them can then read and write what is exported, with the rights of the server
    #[arg(long, conflicts_with = "secret")]
    pub(crate) open: bool,
    /// A limit of the server's; `--limit help` lists them
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_limit)]
    pub(crate) limit: Vec<(String, u64)>,
    /// Export a bucket in place of a directory: file:///PATH or memory:///, where this is built in
    /// (cargo's feature `object-store`)
    #[arg(long, value_name = "URL", conflicts_with = "directory")]
    pub(crate) object_store: Option<String>,
    /// Give metrics to Prometheus over HTTP at this address; a port alone is of the loopback
    /// interface
    #[arg(long, value_name = "[HOST:]PORT", value_parser = parse_address)]
    pub(crate) metrics: Option<SocketAddr>,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Debug, Args)]
#[command(after_help = LOCATIONS)]
pub(crate) struct Mount {
    /// What to mount
    #[arg(value_name = "URL[/PATH]", value_parser = location())]
    pub(crate) location: Location,
    /// Where to
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Refuse all changes through this mount
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Let other users use it as well, each with their own rights
    #[arg(long)]
    pub(crate) allow_other: bool,
    /// Stay in the foreground until it is unmounted, or interrupted, which unmounts it
    #[arg(short, long)]
    pub(crate) foreground: bool,
    /// A file with the secret that both sides of TCP know
    #[arg(long, value_name = "FILE")]
    pub(crate) secret: Option<PathBuf>,
    /// What of files is cached here
    #[arg(long, value_enum, default_value = "close")]
    pub(crate) cache: CacheMode,
    /// How long attributes, and names that were found, are cached
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_time)]
    pub(crate) attr_timeout: Duration,
    /// How long a name that was not found is taken for missing
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = parse_time)]
    pub(crate) negative_timeout: Duration,
    /// How long one operation may take at the server
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_some_time)]
    pub(crate) timeout: Duration,
    /// How much written data may wait here for the server, before writers wait
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = parse_size)]
    pub(crate) write_behind: u64,
    /// How much is read ahead, where this process may set that
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = parse_size)]
    pub(crate) read_ahead: u64,
    /// Append what the mount warns of, and what --log or -v ask for, to this file once it is
    /// mounted; its size has no limit. Without it, warnings of a mount in the background are lost
    #[arg(long, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,
    /// Options as of mount(8), with commas between them: noexec, nosuid, noatime, …
    #[arg(short, value_name = "OPTIONS")]
    pub(crate) option: Vec<String>,
}

/// What a mount caches of files.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum CacheMode {
    /// Close-to-open: what was closed elsewhere is seen at the next opening
    Close,
    /// Nothing: each read and each write goes to the server
    None,
}

#[derive(Debug, Args)]
#[command(after_help = LOCATIONS)]
pub(crate) struct Put {
    /// What to copy
    #[arg(value_name = "SRC", required = true, num_args = 1..)]
    pub(crate) sources: Vec<PathBuf>,
    /// Where to: into a directory that exists, or, for one source, under this very name
    #[arg(value_name = "URL[/PATH]", value_parser = location())]
    pub(crate) target: Location,
    #[command(flatten)]
    pub(crate) moving: Moving,
    #[command(flatten)]
    pub(crate) access: ServerAccess,
}

#[derive(Debug, Args)]
#[command(after_help = LOCATIONS)]
pub(crate) struct Get {
    /// What to copy
    #[arg(value_name = "URL/PATH", required = true, num_args = 1.., value_parser = location())]
    pub(crate) sources: Vec<Location>,
    /// Where to: into a directory that exists, or, for one source, under this very name
    #[arg(value_name = "DST")]
    pub(crate) target: PathBuf,
    #[command(flatten)]
    pub(crate) moving: Moving,
    #[command(flatten)]
    pub(crate) access: ServerAccess,
}

#[derive(Debug, Args)]
#[command(after_help = LOCATIONS)]
pub(crate) struct Sync {
    /// The source, which is not changed
    #[arg(value_name = "SRC", value_parser = side())]
    pub(crate) source: Side,
    /// The tree to change. What has the same length and time is not sent again (with
    /// --checksum: what has the same hash); what differs is sent as a whole
    #[arg(value_name = "DST", value_parser = side())]
    pub(crate) target: Side,
    /// Remove what the source does not have
    #[arg(long)]
    pub(crate) delete: bool,
    /// Only show what would be done
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) moving: Moving,
    #[command(flatten)]
    pub(crate) access: ServerAccess,
}

#[derive(Debug, Args)]
#[command(after_help = LOCATIONS)]
pub(crate) struct Ls {
    /// What to list
    #[arg(value_name = "URL[/PATH]", required = true, value_parser = location())]
    pub(crate) locations: Vec<Location>,
    /// Show kinds, modes, owners, sizes and times as well
    #[arg(short, long)]
    pub(crate) long: bool,
    /// List the directories below as well
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
    /// Print a line of JSON for each
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) access: ServerAccess,
}

#[derive(Debug, Args)]
#[command(after_help = LOCATIONS)]
pub(crate) struct Stat {
    /// The files
    #[arg(value_name = "URL[/PATH]", required = true, value_parser = location())]
    pub(crate) locations: Vec<Location>,
    /// Follow a symbolic link at the end of the path
    #[arg(short = 'L', long)]
    pub(crate) follow: bool,
    /// Print a line of JSON for each
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) access: ServerAccess,
}

#[derive(Debug, Args)]
#[command(after_help = LOCATIONS)]
pub(crate) struct Cat {
    /// Files, one after the other
    #[arg(value_name = "URL/PATH", required = true, value_parser = location())]
    pub(crate) locations: Vec<Location>,
    #[command(flatten)]
    pub(crate) access: ServerAccess,
}

#[derive(Debug, Args)]
#[command(after_help = LOCATIONS)]
pub(crate) struct Rm {
    /// What to remove
    #[arg(value_name = "URL/PATH", required = true, value_parser = location())]
    pub(crate) locations: Vec<Location>,
    /// Directories, with all that is in them
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Ignore what is not there
    #[arg(short, long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) access: ServerAccess,
}

#[derive(Debug, Args)]
#[command(after_help = LOCATIONS)]
pub(crate) struct Mkdir {
    /// The directories to make
    #[arg(value_name = "URL/PATH", required = true, value_parser = location())]
    pub(crate) locations: Vec<Location>,
    /// Make missing parents as well
    #[arg(short, long)]
    pub(crate) parents: bool,
    /// Permissions, in octal
    #[arg(short, long, default_value = "755", value_parser = parse_mode)]
    pub(crate) mode: u32,
    #[command(flatten)]
    pub(crate) access: ServerAccess,
}

#[derive(Debug, Args)]
#[command(after_help = LOCATIONS)]
pub(crate) struct Mv {
    /// What to rename
    #[arg(value_name = "URL/PATH", value_parser = location())]
    pub(crate) from: Location,
    /// Its new name, at the same server, or a directory that exists
    #[arg(value_name = "URL/PATH", value_parser = location())]
    pub(crate) to: Location,
    /// Fail where the new name exists
    #[arg(short = 'n', long, conflicts_with = "exchange")]
    pub(crate) no_replace: bool,
    /// Exchange the two
    #[arg(long)]
    pub(crate) exchange: bool,
    #[command(flatten)]
    pub(crate) access: ServerAccess,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// The server
    #[arg(value_name = "URL", value_parser = location())]
    pub(crate) location: Location,
    #[command(flatten)]
    pub(crate) json: Json,
    #[command(flatten)]
    pub(crate) access: ServerAccess,
}

fn location() -> impl TypedValueParser<Value = Location> {
    OsStringValueParser::new().try_map(|text| Location::parse(&text))
}

fn side() -> impl TypedValueParser<Value = Side> {
    OsStringValueParser::new().try_map(|text| Side::parse(&text))
}

fn parse_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err(format!("`{text}` is no mode: write it as 755")),
    }
}

fn parse_some_time(text: &str) -> Result<Duration, String> {
    match parse_time(text)? {
        Duration::ZERO => Err("it must be longer than nothing".to_owned()),
        time => Ok(time),
    }
}

fn parse_memory(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        size if size < 8 << 20 => Err("at least 8MiB".to_owned()),
        size => Ok(size),
    }
}

fn parse_limit(text: &str) -> Result<(String, u64), String> {
    if text == "help" {
        return Ok((text.to_owned(), 0));
    }
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    Ok((name.to_owned(), parse_size(value)?))
}

//! The command line of `petasos broker`.

use super::Json;
use crate::output::parse_time;
use clap::{Args, Subcommand};
use std::{path::PathBuf, time::Duration};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Broker {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) serve: Serve,
}

impl Broker {
    /// Whether it runs until it is stopped.
    pub(crate) fn is_server(&self) -> bool {
        matches!(self.command, None | Some(Command::Serve(_)))
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serves containers until it is interrupted: what `petasos broker` does without this word
    Serve(Serve),
    /// Shows a broker's tenants, connections, counters, and whom it has refused
    Status(Status),
    /// Has a broker read its file again, with its options: rules and limits; connections that are not allowed any
    /// more are ended
    Reload(Status),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Serve {
    /// A file of TOML with tenants, rules and limits; other options add to it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// A tenant, and the socket that is given into its containers
    #[arg(long, value_name = "NAME=SOCKET")]
    pub(crate) tenant: Vec<String>,
    /// Endpoints that may connect to others: TENANT, NAME@TENANT or *. What is not allowed is
    /// denied, but within a tenant
    #[arg(long, value_name = "FROM=TO")]
    pub(crate) allow: Vec<String>,
    /// A limit of a tenant: bytes_per_second, messages_per_second, endpoints, connections,
    /// outstanding_bytes, registered_bytes, registered_files
    #[arg(long, value_name = "TENANT.LIMIT=VALUE")]
    pub(crate) limit: Vec<String>,
    /// The socket for `petasos broker status` [default: /run/petasos/broker.sock]
    #[arg(long, value_name = "SOCKET")]
    pub(crate) control: Option<PathBuf>,
    /// How long to look for work before sleeping [default: 0]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) spin: Option<Duration>,
    #[command(flatten)]
    pub(crate) json: Json,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// The broker's socket
    #[arg(long, value_name = "SOCKET", default_value = petasos_broker::CONTROL)]
    pub(crate) control: PathBuf,
    #[command(flatten)]
    pub(crate) json: Json,
}

//! The command line of `petasos bench`.

use crate::bench::Options;
use clap::{Parser, Subcommand};
use petasos_cli::cli::Common;

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
    Bench(Options),
}

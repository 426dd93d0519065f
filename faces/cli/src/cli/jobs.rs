//! The options of what looks at running jobs.

use super::Json;
use clap::Args;

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
    /// Only for handlers that are registered for this code: default ones of some MPIs end their
    /// program
    #[arg(long)]
    pub(crate) by_code: bool,
}

//! What is measured: the rows of the tables.

use super::contender::Way;
use crate::{
    output,
    plots::{At, Plot},
};
use serde::Serialize;

/// Large files by the commands are to reach so much of the slower of disk and transport.
const GOAL_OF_COMMANDS: f64 = 0.8;

/// The same for large files by a mount.
const GOAL_OF_MOUNTS: f64 = 0.6;

/// A table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Table {
    Commands,
    Mounts,
    Metadata,
    ClientsByCommands,
    ClientsByMounts,
}

impl Table {
    pub(super) const ALL: [Table; 5] = [
        Table::Commands,
        Table::Mounts,
        Table::Metadata,
        Table::ClientsByCommands,
        Table::ClientsByMounts,
    ];

    pub(super) fn title(self) -> &'static str {
        match self {
            Table::Commands => "Whole commands",
            Table::Mounts => "Files through mounts",
            Table::Metadata => "Metadata through mounts",
            Table::ClientsByCommands => "Commands by number of clients",
            Table::ClientsByMounts => "One mount by number of processes",
        }
    }
}

/// What each of several clients does with files of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Write,
    Read,
    Small,
}

/// A row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    Put,
    Get,
    PutTree,
    GetTree,
    List,
    Write { block: u64, sync: bool },
    Read { block: u64 },
    CreateFiles,
    ReadFiles,
    Create,
    Stat,
    Readdir,
    Rename,
    Unlink,
    Clients { way: Way, doing: Doing, clients: usize },
}

impl Cell {
    pub(super) fn table(self) -> Table {
        match self {
            Cell::Put | Cell::Get | Cell::PutTree | Cell::GetTree | Cell::List => Table::Commands,
            Cell::Write { .. } | Cell::Read { .. } | Cell::CreateFiles | Cell::ReadFiles => {
                Table::Mounts
            }
            Cell::Create | Cell::Stat | Cell::Readdir | Cell::Rename | Cell::Unlink => {
                Table::Metadata
            }
            Cell::Clients { way: Way::Commands, .. } => Table::ClientsByCommands,
            Cell::Clients { way: Way::Mount, .. } => Table::ClientsByMounts,
        }
    }

    pub(super) fn way(self) -> Way {
        match self.table() {
            Table::Commands | Table::ClientsByCommands => Way::Commands,
            Table::Mounts | Table::Metadata | Table::ClientsByMounts => Way::Mount,
        }
    }

    pub(super) fn what(self) -> String {
        match self {
            Cell::Put => "put, large file".to_owned(),
            Cell::Get => "get, large file".to_owned(),
            Cell::PutTree => "put, small files".to_owned(),
            Cell::GetTree => "get, small files".to_owned(),
            Cell::List => "list, small files".to_owned(),
            Cell::Write { block, sync: false } => format!("write, {} blocks", output::size(block)),
            Cell::Write { block, sync: true } => {
                format!("write, {} blocks, fsync", output::size(block))
            }
            Cell::Read { block } => format!("read, {} blocks", output::size(block)),
            Cell::CreateFiles => "write small files".to_owned(),
            Cell::ReadFiles => "read small files".to_owned(),
            Cell::Create => "create".to_owned(),
            Cell::Stat => "stat".to_owned(),
            Cell::Readdir => "readdir".to_owned(),
            Cell::Rename => "rename".to_owned(),
            Cell::Unlink => "unlink".to_owned(),
            Cell::Clients { doing, clients, .. } => {
                let doing = match doing {
                    Doing::Write => "write",
                    Doing::Read => "read",
                    Doing::Small => "write small files",
                };
                format!("{doing}, {clients}")
            }
        }
    }

    /// What a value counts by the second: 10^9 bytes, files, or operations.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Cell::PutTree | Cell::GetTree | Cell::CreateFiles | Cell::ReadFiles => "files/s",
            Cell::Clients { doing: Doing::Small, .. } => "files/s",
            Cell::List | Cell::Readdir => "entries/s",
            Cell::Create | Cell::Stat | Cell::Rename | Cell::Unlink => "operations/s",
            _ => "GB/s",
        }
    }

    /// Whether the transport's bandwidth limits it, and if so whether the server pulls.
    pub(super) fn pulls(self) -> Option<bool> {
        match self {
            Cell::Put | Cell::Write { .. } | Cell::Clients { doing: Doing::Write, .. } => {
                Some(true)
            }
            Cell::Get | Cell::Read { .. } | Cell::Clients { doing: Doing::Read, .. } => Some(false),
            _ => None,
        }
    }

    /// The part of the limit that we want to reach.
    pub(super) fn goal(self) -> Option<f64> {
        match self {
            Cell::Put | Cell::Get => Some(GOAL_OF_COMMANDS),
            Cell::Write { sync: false, .. } | Cell::Read { .. } => Some(GOAL_OF_MOUNTS),
            _ => None,
        }
    }

    /// Where it stands in a plot, on the line of that name.
    pub(super) fn at(self, series: &str) -> Option<At> {
        let at = |plot, panel: &str, x: f64| {
            Some(At { plot, panel: panel.to_owned(), series: series.to_owned(), x })
        };
        match self {
            Cell::Write { block, sync: false } => at(Plot::ForwardBlocks, "write", block as f64),
            Cell::Read { block } => at(Plot::ForwardBlocks, "read", block as f64),
            Cell::Clients { way, doing, clients } => {
                let by = if way == Way::Commands { "by commands" } else { "through one mount" };
                let (plot, word) = match doing {
                    Doing::Write => (Plot::ForwardClients, "write"),
                    Doing::Read => (Plot::ForwardClients, "read"),
                    Doing::Small => (Plot::ForwardSmall, "write"),
                };
                at(plot, &format!("{word} {by}"), clients as f64)
            }
            _ => None,
        }
    }
}

//! The rows of the tables.

use super::contender::Access;
use crate::{
    output,
    plots::{At, Plot},
};
use serde::Serialize;

/// The goal of large files by commands: the ratio to the slower of disk and transport.
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
pub(super) enum Task {
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
    Clients { access: Access, task: Task, clients: usize },
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
            Cell::Clients { access: Access::Commands, .. } => Table::ClientsByCommands,
            Cell::Clients { access: Access::Mount, .. } => Table::ClientsByMounts,
        }
    }

    pub(super) fn access(self) -> Access {
        match self.table() {
            Table::Commands | Table::ClientsByCommands => Access::Commands,
            Table::Mounts | Table::Metadata | Table::ClientsByMounts => Access::Mount,
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
            Cell::Clients { task, clients, .. } => {
                let task = match task {
                    Task::Write => "write",
                    Task::Read => "read",
                    Task::Small => "write small files",
                };
                format!("{task}, {clients}")
            }
        }
    }

    /// What a value counts per second: 10^9 bytes, files, or operations.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Cell::PutTree | Cell::GetTree | Cell::CreateFiles | Cell::ReadFiles => "files/s",
            Cell::Clients { task: Task::Small, .. } => "files/s",
            Cell::List | Cell::Readdir => "entries/s",
            Cell::Create | Cell::Stat | Cell::Rename | Cell::Unlink => "operations/s",
            _ => "GB/s",
        }
    }

    /// Whether the transport's bandwidth limits it, and if so whether the server pulls.
    pub(super) fn pulls(self) -> Option<bool> {
        match self {
            Cell::Put | Cell::Write { .. } | Cell::Clients { task: Task::Write, .. } => Some(true),
            Cell::Get | Cell::Read { .. } | Cell::Clients { task: Task::Read, .. } => Some(false),
            _ => None,
        }
    }

    /// The ratio to the limit that is the goal.
    pub(super) fn goal(self) -> Option<f64> {
        match self {
            Cell::Put | Cell::Get => Some(GOAL_OF_COMMANDS),
            Cell::Write { sync: false, .. } | Cell::Read { .. } => Some(GOAL_OF_MOUNTS),
            _ => None,
        }
    }

    /// Its point in a plot, on the line of that name.
    pub(super) fn at(self, series: &str) -> Option<At> {
        let at = |plot, panel: &str, x: f64| {
            Some(At { plot, panel: panel.to_owned(), series: series.to_owned(), x })
        };
        match self {
            Cell::Write { block, sync: false } => at(Plot::ForwardBlocks, "write", block as f64),
            Cell::Read { block } => at(Plot::ForwardBlocks, "read", block as f64),
            Cell::Clients { access, task, clients } => {
                let by =
                    if access == Access::Commands { "by commands" } else { "through one mount" };
                let (plot, word) = match task {
                    Task::Write => (Plot::ForwardClients, "write"),
                    Task::Read => (Plot::ForwardClients, "read"),
                    Task::Small => (Plot::ForwardSmall, "write"),
                };
                at(plot, &format!("{word} {by}"), clients as f64)
            }
            _ => None,
        }
    }
}

//! Launches parallel jobs: starts processes on many nodes, and is the server of each node, by which
//! they find each other without a global exchange or barrier, and learn of faults. What a process
//! of a job sees of this is the crate [`petasos_pmix`].
//!
//! * [`Launch`] runs a job, as the command `petasos run` does.
//! * [`engine`] is the core of each node's daemon, a state machine without I/O. [`message`] is what
//!   daemons send each other, and [`inventory`] what a node has.
//!
//! A program that runs jobs is also the program of the processes that guard a daemon ([`GUARD`])
//! and of the daemons of other hosts ([`DAEMON`]): it must run them when its first argument says
//! so.
//!
#![doc = include_str!("../DESIGN.md")]
#![warn(clippy::missing_errors_doc)]
// One call, where a process of a job begins.
#![deny(unsafe_code)]

mod controller;
mod daemon;
pub mod engine;
mod files;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod handshake;
mod hosts;
pub mod inventory;
mod launch;
pub mod message;
mod outcome;
mod plugins;
mod pmi1;
mod pmix41;
mod settings;
mod slurm;
mod speaks;

pub use daemon::{DAEMON, GUARD, run_daemon, run_guard};
pub use files::{FileToStage, Files, FilesError};
pub use hosts::{Host, HostError, parse_hostfile, parse_hosts};
pub use launch::{Launch, LaunchError, Map, Placement, Staging};
pub use outcome::{Outcome, Staged};
pub use plugins::{
    Estimate, FileMover, ForRanks, Key, Known, Network, NotPlaced, Placing, Plugins, Receiving,
    Reserved, Row, SECRET_FILE, Target, ThisNode, Wants,
};
pub use settings::Settings;
pub use slurm::{Allocation, AllocationError, allocation};
pub use speaks::Speaks;

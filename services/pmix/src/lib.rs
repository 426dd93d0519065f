//! Launch, wire-up and events of parallel jobs: starts processes on many nodes, lets them find each
//! other without a global exchange or barrier, and tells them of faults. The model is that of the
//! PMIx Standard (version 4.1), in its terms.
//!
//! * [`launch`] runs a job, as the command `petasos run` does.
//! * [`Job`] is a process as a member of its job: rank, size, the addresses of the others; business
//!   cards (put, commit, get), fences, publishing, queries, events. The face crate's `job()` gives
//!   the process's own. It also connects to other launchers: to PMIx servers (`mpirun` of Open
//!   MPI), and PMI-1 (`mpiexec` of MPICH).
//! * [`engine`] is the core of each node's daemon, a state machine without I/O; [`chain`] the same
//!   for the event handlers of a process. [`message`], [`event`], [`job`] and [`inventory`] are the
//!   data that they exchange.
//!
//! A program that runs jobs is also the program of the processes that guard a daemon ([`GUARD`])
//! and of the daemons of other hosts ([`DAEMON`]): it must run them when its first argument says
//! so.
//!
//! Every request ends, with success or with an [`Error`] that names the process and what is
//! missing.
//!
#![doc = include_str!("../DESIGN.md")]
#![warn(clippy::missing_errors_doc)]
// One call, where a process of a job begins.
#![deny(unsafe_code)]

pub mod chain;
mod client;
mod controller;
mod daemon;
mod datastore;
pub mod engine;
mod error;
pub mod event;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod inventory;
pub mod job;
pub mod launch;
pub mod message;
mod names;
mod net;
mod numbers;
mod pmi1;
mod pmix41;
pub mod status;
mod table;
mod value;

pub use client::{FenceOptions, GetOptions, JOB_DIR, Job, JobError, RANK_VARIABLE, Reply, running};
pub use daemon::{DAEMON, GUARD, run_daemon, run_guard};
pub use error::{Error, Termination};
pub use names::{Group, JobId, Missing, Node, Proc, Span};
pub use value::{BusinessCard, Entry, Info, MAX_KEY, MAX_VALUE, RESERVED, Scope, Value};

//! A process as a member of a parallel job: its rank, the addresses of the others, what they put
//! and publish, and events. The model is that of the PMIx Standard (version 4.1), in its terms.
//!
//! * [`Job`] is a process in its job: rank, size, the addresses of the others; business cards (put,
//!   commit, get), fences, publishing, queries, events. The face crate's `job()` gives the
//!   process's own. It connects to the daemon of its node (of `petasos run`), or to other
//!   launchers: to PMIx servers (`mpirun` of Open MPI), and PMI-1 (`mpiexec` of MPICH).
//! * [`chain`] is the chain of the event handlers of a process, a state machine without I/O.
//!   [`message`], [`event`] and [`job`] are the data that a process and its daemon exchange;
//!   [`server`] is the rest of what the daemon's end needs. The launcher itself is the crate
//!   `petasos-launch`.
//!
//! Every request ends, with success or with an [`Error`] that names the process and what is
//! missing.
//!
#![doc = include_str!("../DESIGN.md")]
#![warn(clippy::missing_errors_doc)]
#![forbid(unsafe_code)]

pub mod chain;
mod client;
mod conversion;
mod datastore;
mod directory;
mod error;
pub mod event;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod hosts;
pub mod job;
pub mod message;
mod names;
mod native;
mod packing;
mod random;
pub mod server;
pub mod status;
mod table;
mod value;

pub use client::{FenceOptions, GetOptions, JOB_DIR, Job, JobError, RANK_VARIABLE, Reply, running};
pub use error::{Error, Termination};
pub use names::{Group, JobId, Missing, Node, Proc, Span};
pub use value::{BusinessCard, Entry, Info, MAX_KEY, MAX_VALUE, RESERVED, Scope, Value};

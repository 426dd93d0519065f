//! Launch, wire-up and events of parallel jobs.

#![forbid(unsafe_code)]

pub mod chain;
mod client;
mod daemon;
pub mod engine;
mod error;
pub mod event;
pub mod job;
pub mod launch;
pub mod message;
mod names;
mod net;
mod pmi1;
pub mod status;
mod value;

pub use client::{FenceOptions, GetOptions, JOB_DIR, Job, JobError, RANK_VARIABLE, Reply, running};
pub use daemon::{DAEMON, GUARD, RANK, run_daemon, run_guard, run_rank};
pub use error::{Error, Gone};
pub use names::{Group, JobId, Missing, Node, Proc, Span};
pub use value::{Card, Entry, Info, MAX_KEY, MAX_VALUE, RESERVED, Scope, Value};

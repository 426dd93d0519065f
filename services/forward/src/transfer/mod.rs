//! Whole files and trees, in parallel: [`put`], [`get`], and synchronisation in both directions.
//!
//! Small files travel within calls, many at a time. Large ones are staged at the server, or come
//! into a hidden file here, piece by piece, several pieces at a time, in bounded memory. Either way
//! a file gets its name in one step when it is complete, with its permissions, times and holes.
//! Directories get their modes and times last. Threads read and write the local disk, so that it
//! and the network work at the same time.
//!
//! An interrupted transfer is resumed: of a large file the blocks whose hashes are right stay. When
//! the server goes away meanwhile, a [`Connection`] connects again, and the transfer continues.

mod connection;
mod disk;
mod download;
mod get;
mod glob;
mod index;
mod job;
mod local;
mod options;
mod put;
mod remove;
mod source;
mod sync;
mod tasks;
mod upload;

pub use connection::Connection;
pub use get::get;
pub use glob::Glob;
pub use options::{
    Cause, Event, Observer, Options, Problem, Progress, ProgressSnapshot, Report, SyncOptions,
};
pub use put::put;
pub use remove::remove_tree;
pub use sync::{sync_from, sync_to};

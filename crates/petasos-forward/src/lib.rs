//! I/O forwarding: a server exports a directory or a bucket, clients use its files as if they were
//! their own, and large data moves by remote memory access, pulled and pushed by the server.
//!
//! * [`Server`](server) serves a [`Storage`](storage::Storage): the local file system, an
//!   object store, or one of yours.
//! * [`Remote`](client) is the client: calls like those of POSIX, asynchronous.
//! * [`transfer`] moves whole files and trees, in parallel, and goes on where it was interrupted.
//! * [`mount`] makes a file system of an export, through FUSE.
//!
//! What a client may do, it does with the rights of the server's process; paths never lead out of
//! what is exported. A session is a client's life at the server: when it ends, whatever the reason,
//! its files are closed, its locks are free, and what it had not finished never gets its final name.

#![forbid(unsafe_code)]

pub mod client;
pub mod descriptors;
mod error;
mod keeper;
#[cfg(feature = "mount")]
pub mod mount;
mod path;
pub mod protocol;
pub mod server;
pub mod storage;
pub mod transfer;

pub use error::{FsError, FsResult};
pub use path::{PathError, RelPath};

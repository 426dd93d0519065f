//! The fabric inside one process: `self://NAME`.
//!
//! All endpoints of a process find each other through a registry. A message is one copy into a
//! buffer of the receiver's pool and one push into its inbox; remote access is executed by the
//! initiator, directly on the memory, while the owner may sleep. There is no engine behind it
//! and no thread; endpoints may be driven from one thread or from many.
//!
//! Data is exposed to no code beyond the process, whose threads could reach it anyway. The rights
//! and bounds of keys are nevertheless checked against what the owner registered, so that mistakes
//! show.

#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

mod access;
mod allotment;
mod closing;
mod endpoint;
mod fence;
mod flush;
mod hub;
mod in_use;
mod local;
mod matching;
mod offer;
mod outgoing;
mod peers;
mod quota;
mod regions;
mod registry;
mod remotes;
mod room;
mod submit;

pub use local::{Local, OpenError};

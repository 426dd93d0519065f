//! Portals.
#![forbid(unsafe_code)]
mod atomic;
mod counter;
mod descriptor;
mod event;
mod flags;
mod handle;
mod id;
mod matching;
mod memory;
mod message;

pub use atomic::{Datatype, Operator};
pub use event::{Completed, Event, Failure, Listed, Served, Taken};
pub use flags::{Accepts, Counts, Quiet};
pub use handle::Handle;
pub use id::{ANY_PART, Directory, ProcessId, ProcessMap};
pub use matching::{List, MatchEntry};
pub use memory::Memory;
pub use message::{Arrival, Request};

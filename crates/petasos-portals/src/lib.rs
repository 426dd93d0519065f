//! Matching one-sided messages, with the semantics of Portals 4.
#![forbid(unsafe_code)]

mod atomic;
mod config;
mod counter;
mod descriptor;
mod drive;
mod engine;
mod error;
mod event;
mod flags;
mod handle;
mod id;
mod initiator;
mod interface;
mod matching;
mod memory;
mod message;
mod operation;
mod peers;
mod state;
mod target;
pub mod v3;
mod wait;

pub use atomic::{Datatype, Operator};
pub use config::{Config, Idle, Limits, Status};
pub use counter::{Count, Counter};
pub use descriptor::{Descriptor, Part};
pub use engine::Engine;
pub use error::Error;
pub use event::{Completed, Event, EventQueue, Failure, Listed, Served, Taken};
pub use flags::{Accepts, Counts, Quiet};
pub use handle::Handle;
pub use id::{ANY_PART, Directory, ProcessId, ProcessMap};
pub use interface::{Interface, PortalOptions};
pub use matching::{List, MatchEntry};
pub use memory::Memory;
pub use message::{Arrival, Request};
pub use operation::{Ack, Action, Operation, Place};
pub use target::Permit;

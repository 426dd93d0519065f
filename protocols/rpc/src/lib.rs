//! Remote calls with bulk data, over any transport of the fabric.
//!
//! An [`Engine`] belongs to one thread and drives one endpoint. It calls ([`Engine::target`],
//! then [`Target::call`]), it serves ([`Engine::register`]), and it moves large data
//! ([`Engine::bulk`] at the side that has the memory, [`Engine::open`] at the side that moves).
//! Services are best written as traits with `#[service]` (the `petasos` crate); what that makes
//! stands on the layer here, which plug-ins and bindings can use directly.
//!
//! * A small call is one message each way. Arguments and results of any size are allowed: what
//!   does not fit is fetched by the other side, unseen.
//! * A call, and every transfer, is under way when the method that makes it has returned; its
//!   future waits for the end. Dropping the future cancels, here and there.
//! * Every call has a deadline, which travels with it ([`CallOptions`]); the target drops the
//!   handler's future when it is over.
//! * Handlers and tasks can sleep ([`Engine::sleep`]); no other runtime is needed.
//! * Every call ends exactly once: with its result, or with a [`CallError`] that names the peer
//!   and the method.
//! * Memory lent for bulk transfer belongs to the engine until the network has let go of it, also
//!   when futures are dropped or forgotten.
//! * Nothing is unbounded: the target says how many calls it takes from a caller at a time, the
//!   caller queues so many beyond, and then it is `Busy`.
//!
//! # How it works
//!
//! The request carries the ids of method and provider, the hash of the signature, the call's slot
//! at the caller, and the time that is left. Arguments or results that do not fit stay where they
//! are, and the message carries the key to them; the other side fetches them.
//!
//! A call that fits a message allocates nothing on either side once it has been made before: the
//! slot of a call stays where it is and is used again, frames are put together in one buffer, and
//! the future of a typed handler lives in the room that the last one left, unless it has to wait.
//! What few calls need (arguments on loan, a trace, latencies) lies apart, and errors are put into
//! words only where the caller looks at them.
//!
//! An engine belongs to one thread: it shares nothing, and handles for other threads go through a
//! queue and a wake-up. What wakes a future on that very thread, as an answer does, is a flag
//! without any barrier. Sleeps are an ordered map beside the deadlines; it is looked at whenever
//! the clock is read, and bounds how long the engine sleeps. A call to an address at which there
//! was a peer once, and whose system refuses connections now, fails at once; one to a peer that has
//! not started yet waits for it.

#![warn(clippy::missing_errors_doc)]
#![forbid(unsafe_code)]

mod body;
mod bulk;
mod call;
mod calls;
mod clock;
mod commands;
mod config;
mod context;
mod engine;
mod error;
mod frames;
mod handler;
mod idle;
mod inbound;
mod inner;
mod memory;
mod method;
mod operation;
mod options;
mod outbound;
mod outbox;
mod overflow;
mod peers;
mod received;
mod registry;
mod served;
mod sleep;
mod stats;
mod sync;
mod target;
mod tasks;
mod thread;
mod timers;
mod transport;
mod typed;
mod wake;

#[cfg(feature = "tokio")]
pub mod tokio;

pub use petasos_fabric::{self as fabric, Access, Address, AddressError, Region, Slice};
pub use petasos_macros::{Wire, service};
pub use petasos_wire as wire;

pub use bulk::{
    Block, BlockStream, Bulk, BulkCall, BulkHandle, Destination, Lent, RemoteBulk, Sink,
};
pub use call::Call;
pub use config::{EngineConfig, Idle, Refused};
pub use context::{Context, Incoming, Responder};
pub use engine::Engine;
pub use error::{BulkError, CallError, Failure, ServeError};
pub use handler::{Arrival, Begun, Handler, HandlerFuture, Reply, bytes};
pub use memory::{Exported, RemoteMemory};
pub use method::Method;
pub use options::CallOptions;
pub use sleep::{Elapsed, Limited, Sleep};
pub use stats::{MethodStats, Stats, Usage};
pub use target::Target;
pub use thread::{EngineHandle, EngineThread, Running, ThreadError};
pub use typed::{TypedCall, serve, typed};

//! Remote procedure calls with bulk data, over any transport of the fabric.
//!
//! A service is a trait: one program implements it and serves it with an [`Engine`], others call
//! its methods and get futures of the results. Small arguments and results travel in one message
//! each way; large data stays where it is, and the target of the call moves it.
//!
//! ```
//! use petasos_rpc::{CallOptions, Engine, EngineConfig, EngineThread, Region, service};
//! use std::time::Duration;
//!
//! #[service]
//! trait Store {
//!     async fn size(&self, key: String) -> Option<u64>;
//!     /// Large data: what the target writes to `into` goes to memory of the caller.
//!     async fn read(&self, key: String, #[bulk(push)] into: Region) -> u64;
//! }
//!
//! struct Sevens;
//!
//! impl Store for Sevens {
//!     async fn size(&self, key: String) -> Option<u64> {
//!         (key == "sevens").then_some(1_000_000)
//!     }
//!     async fn read(&self, _key: String, into: Region) -> u64 {
//!         into.write(0, &vec![7; into.len()]);
//!         into.len() as u64
//!     }
//! }
//!
//! // Any transport will do: this one connects endpoints of one process.
//! let endpoint = || petasos_self::Local::open(&"self://*".parse().unwrap());
//! let server = EngineThread::start(Box::new(endpoint()?), EngineConfig::default(), |engine| {
//!     Sevens.serve(engine, 0).expect("the service is registered once");
//! })?;
//!
//! let engine = Engine::new(Box::new(endpoint()?), EngineConfig::default());
//! let store = StoreClient::new(&engine, server.handle().address())
//!     .with(CallOptions::default().timeout(Duration::from_secs(5)));
//! let into = engine.block_on(async {
//!     let size = store.size("sevens".into()).await?.unwrap_or(0);
//!     let into = Region::zeroed(size as usize);
//!     store.read("sevens".into(), &into).await?;
//!     Ok::<_, petasos_rpc::CallError>(into)
//! })?;
//! assert_eq!(into.to_vec(), vec![7; 1_000_000]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What there is
//!
//! | to | use |
//! |---|---|
//! | drive an endpoint, and get everything else | [`Engine`]; [`EngineThread`] gives it a thread |
//! | define a service | [`#[service]`](macro@service); [`Method`] if it is known at run time only |
//! | call | the client of the service, or [`Target::call`]; [`CallOptions`] have the time limit |
//! | look at a call, or wait a while | [`TypedCall::is_ready`], `ready_within`, `wait_for` |
//! | serve | the trait of the service, or [`Engine::register`]; [`Context`] describes the call |
//! | move large data | `#[bulk]` parameters, or [`Engine::bulk`] and [`Engine::open`] |
//! | lend memory in pieces as one argument | [`Pieces`] |
//! | give memory back before the answer | [`RemoteBulk::release`]; [`BulkCall::released`] waits for it |
//! | read arrays of others where they lie | [`Engine::array`] and [`Engine::borrow`] |
//! | access memory one-sidedly | [`Engine::export`] and [`Engine::import`] |
//! | sleep, limit the time of any future | [`Engine::sleep`], [`Engine::limit`] |
//!
//! # What holds
//!
//! * A call, and every transfer, is under way when the method that makes it has returned; its
//!   future waits for the end. Dropping the future cancels it, here and at the target.
//! * Every call has a deadline, which travels with it; when it has passed, the target drops the
//!   handler's future.
//! * Every call ends exactly once: with its result, or with a [`CallError`] that names the peer
//!   and the method.
//! * Memory lent for bulk transfer belongs to the engine until the network no longer uses it, even
//!   if futures are dropped or forgotten. It is lent until the call ends or the target gives it
//!   back; then its owner revokes the key.
//! * An answer can always be received. Of the leases that the endpoint lends the engine keeps a
//!   quarter at most, for results that were not read and requests at work; what is more is copied
//!   to memory of its own. So no answer waits for what the program or another peer does.
//! * Nothing is unbounded: the target says how many calls it takes from a caller at a time, the
//!   caller queues a limited number beyond, and then it gets [`CallError::Busy`]. The bounds are in
//!   [`EngineConfig`].
//!
//! # How it works
//!
//! The request carries the ids of method and provider, the hash of the signature, the slot of the
//! call at the caller, and the time that is left. Arguments or results that do not fit stay where
//! they are; the message carries the key to them, and the other side fetches them.
//!
//! A call that fits a message allocates nothing on either side, once it has been made before: the
//! slot of a call stays where it is and is reused, frames are built in one buffer, and the future
//! of a typed handler is placed where the last one was, unless it has to wait. What only few calls
//! need (lent arguments, a trace, latencies) is allocated separately, and error texts are made only
//! when the caller reads the outcome.
//!
//! An engine belongs to one thread and shares nothing; handles for other threads go through a queue
//! and a wake-up. To wake a future on the engine's own thread, as an answer does, takes a flag and
//! no barrier. Sleeps are an ordered map beside the deadlines; it is checked whenever the clock is
//! read, and bounds how long the engine sleeps. A call to an address at which there was a peer
//! before, and whose system refuses connections now, fails at once; a call to a peer that has not
//! started yet waits for it.

// What has a state of its own (`calls`, `peers`, `outbox`, `transport`, `timers`, `tasks` and
// others) knows nothing of the engine. The rest, from `inbound` and `outbound` to `memory` and
// `bulk`, are the operations of one `Inner`, which calls them, and the handles by which programs
// and their handlers reach it: they know each other by design.

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
mod inbound;
mod inner;
mod loan;
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
mod sleepers;
mod stats;
mod target;
mod tasks;
mod thread;
mod timers;
mod transport;
mod typed;
mod waiting;

#[cfg(feature = "tokio")]
pub mod tokio;

pub use petasos_fabric::{self as fabric, Access, Address, AddressError, Region, Slice};
pub use petasos_macros::{Wire, service};
pub use petasos_wire as wire;

pub use bulk::{
    Block, BlockStream, Bulk, BulkCall, BulkHandle, Destination, Lent, Pieces, Released,
    RemoteBulk, Sink, release_while,
};
pub use call::Call;
pub use config::{EngineConfig, Idle, Refused};
pub use context::{Context, Incoming, Responder};
pub use engine::Engine;
pub use error::{BulkError, CallError, Failure, ServeError};
pub use handler::{Arrival, Begun, Handler, HandlerFuture, Reply, bytes};
pub use loan::{Array, Borrowed, Loan, Number};
pub use memory::{Exported, RemoteMemory};
pub use method::Method;
pub use options::CallOptions;
pub use sleep::{Elapsed, Limited, Sleep};
pub use stats::{MethodStats, Stats, Usage};
pub use target::Target;
pub use thread::{EngineHandle, EngineThread, Running, ThreadError};
pub use typed::{TypedCall, serve, typed};

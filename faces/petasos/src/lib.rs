//! Calls with bulk data between processes, for high-performance computing: the one crate to
//! depend on.
//!
//! * [`open`] makes an endpoint of a URL, whose scheme says over what: `shm://*`,
//!   `tcp://HOST:PORT`, `self://*`, `auto://*` for the best way to each peer. Each transport is
//!   behind a feature of the same name (`self-transport` for the first); [`transports()`] lists
//!   them. Their settings are in the modules [`shm`], [`tcp`] and [`local`], for programs that open
//!   an endpoint themselves.
//! * An [`Engine`] drives it: it calls, it serves, it moves bulk data.
//! * Handlers and tasks sleep by the engine's own timers ([`Engine::sleep`]), calls have time
//!   limits ([`CallOptions`]): no other runtime is needed.
//! * With the feature `portals`, `portals` has matching one-sided messages.
//! * With the feature `channel`, `channel` makes an endpoint of an RDMA device.
//! * In a program started by `petasos run`, `mpirun` or `mpiexec`, [`job()`] knows the other ranks,
//!   and where their endpoints are.
//! * [`Tuning`] knows what `petasos tune` found out about this machine; engines and channels go by
//!   it where they are told nothing else.
//! * [`service`] makes an interface of a trait, [`Wire`] makes types travel.
//!
//! ```
//! use petasos::{CallOptions, Engine, EngineConfig, OpenOptions, service};
//!
//! #[service]
//! trait Greeter {
//!     async fn greet(&self, name: String) -> String;
//! }
//!
//! struct Polite;
//!
//! impl Greeter for Polite {
//!     async fn greet(&self, name: String) -> String {
//!         format!("Good morning, {name}.")
//!     }
//! }
//!
//! let endpoint = petasos::open("self://*", &OpenOptions::default())?;
//! let engine = Engine::new(endpoint, EngineConfig::default());
//! Polite.serve(&engine, 0)?;
//! let greeter = GreeterClient::new(&engine, engine.address());
//! assert_eq!(engine.block_on(greeter.greet("Ada".into()))?, "Good morning, Ada.");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![warn(clippy::missing_errors_doc)]
#![forbid(unsafe_code)]

#[cfg(feature = "job")]
mod job;
mod transports;
#[cfg(feature = "auto")]
mod whichever;

#[cfg(feature = "job")]
pub use job::{job, open_own};
#[cfg(feature = "auto")]
pub use petasos_auto as auto;
#[cfg(feature = "channel")]
pub use petasos_channel as channel;
pub use petasos_fabric::{Tuning, TuningError};
#[cfg(feature = "ofi")]
pub use petasos_ofi as ofi;
#[cfg(feature = "job")]
pub use petasos_pmix as pmix;
#[cfg(feature = "portals")]
pub use petasos_portals as portals;
pub use petasos_rpc::*;
#[cfg(feature = "self-transport")]
pub use petasos_self as local;
#[cfg(feature = "shm")]
pub use petasos_shm as shm;
#[cfg(feature = "tcp")]
pub use petasos_tcp as tcp;
#[cfg(feature = "ucx")]
pub use petasos_ucx as ucx;
pub use transports::{
    OpenError, OpenOptions, SecretBytes, Transport, open, prepare, stays_on_node, transports,
};
#[cfg(feature = "auto")]
pub use whichever::open_auto;

/// The programs of the front page are compiled, and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Those of the guide to services as well.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/services.md")]
struct Services;

/// Those of the guide to jobs are compiled; they run in jobs.
#[cfg(all(doctest, feature = "job"))]
#[doc = include_str!("../../../docs/launch.md")]
struct Launch;

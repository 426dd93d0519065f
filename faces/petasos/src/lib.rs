//! Petasos lets the programs of a large machine call each other, and moves large data between them
//! by remote memory access. This is the one crate to depend on: it has the engine that makes and
//! serves calls, and its features choose the transports.
//!
//! # A service and its client
//!
//! A service is a trait: [`service`] makes of it the interface to implement, and a client. Small
//! arguments and results travel within the call. A `#[bulk(pull)]` argument stays in the client's
//! memory, and the server fetches it before the method runs.
//!
//! ```
//! use petasos::{Engine, EngineConfig, EngineThread, OpenOptions, Region, open, service};
//!
//! #[service]
//! trait Statistics {
//!     async fn name(&self) -> String;
//!     async fn largest(&self, #[bulk(pull)] data: Region) -> Option<u8>;
//! }
//!
//! struct Server;
//!
//! impl Statistics for Server {
//!     async fn name(&self) -> String {
//!         "node 7".to_owned()
//!     }
//!
//!     async fn largest(&self, data: Region) -> Option<u8> {
//!         data.to_vec().into_iter().max()
//!     }
//! }
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     // The server: an endpoint over shared memory, and a thread that drives it.
//!     let endpoint = open("shm://*", &OpenOptions::default())?;
//!     let server = EngineThread::start(endpoint, EngineConfig::default(), |engine| {
//!         Server.serve(engine, 0).expect("a new engine serves nothing else");
//!     })?;
//!     let address = server.handle().address().clone();
//!
//!     // The client: here in the same process, as a rule in another one.
//!     let endpoint = open("shm://*", &OpenOptions::default())?;
//!     let engine = Engine::new(endpoint, EngineConfig::default());
//!     let client = StatisticsClient::new(&engine, &address);
//!     assert_eq!(engine.block_on(client.name())?, "node 7");
//!     let data = vec![5; 16 << 20];
//!     assert_eq!(engine.block_on(client.largest(data))?, Some(5));
//!     Ok(())
//! }
//! ```
//!
//! Over TCP only the URL is another one: `tcp://HOST:PORT`, beyond this machine with a secret
//! ([`OpenOptions::secret_file`]).
//!
//! # Features
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `self-transport` | yes | `self://NAME`: endpoints of one process, for tests ([`local`]) |
//! | `shm` | yes | `shm://NAME`: shared memory between the processes of a node ([`shm`]) |
//! | `tcp` | yes | `tcp://HOST:PORT`: TCP ([`tcp`]) |
//! | `ofi` | yes | `ofi://HOST:PORT`: RDMA networks by libfabric, loaded when it is first needed |
//! | `ucx` | yes | `ucx://HOST:PORT`: RDMA networks by UCX, loaded when it is first needed |
//! | `auto` | yes | `auto://HOST:PORT`: shared memory on a node, a network between nodes ([`auto`]) |
//! | `plugin` | yes | transports that `PETASOS_TRANSPORTS` lists, loaded at run time ([`plugin`]) |
//! | `tenant` | yes | `tenant://NAME@TENANT`: containers, through the host's broker |
//! | `job` | yes | the other ranks of a job of `petasos run` or `mpirun` ([`job()`], [`pmix`]) |
//! | `portals` | no | matching one-sided messages with the semantics of Portals 4 (`portals`) |
//! | `channel` | no | endpoints of RDMA devices, for transports of your own (`channel`) |
//! | `tokio` | no | drives an engine inside a tokio runtime (`tokio`) |
//!
//! What a program is built without, [`open`] refuses with an error that names the feature, and
//! [`transports()`] lists what there is.
//!
//! # Where to go on
//!
//! * [`Engine`] makes calls, serves them and sleeps; [`EngineThread`] gives it a thread of its own;
//!   [`EngineConfig`] has the limits. No other runtime is needed.
//! * [`CallOptions`] has the time limit of a call, [`CallError`] says how one fails.
//! * [`Wire`] is derived for the types that travel, [`wire`] is the encoding.
//! * [`Engine::bulk`] lends memory, [`Engine::open`] moves data from it and into it.
//! * [`fabric`] is the contract below the engine: endpoints, messages, regions and keys.
//! * [`Tuning`] reads what `petasos tune` has measured on this machine; engines and channels use it
//!   where the program sets nothing.
//! * The guides in `docs/` (services, jobs, networks, Portals) and the programs in `examples/` of
//!   this crate show more.

#![warn(clippy::missing_errors_doc)]
#![forbid(unsafe_code)]

#[cfg(feature = "job")]
mod job;
#[cfg(feature = "plugin")]
mod loaded;
mod open;
mod options;
mod transports;
#[cfg(feature = "auto")]
mod whichever;

#[cfg(feature = "job")]
pub use job::{job, open_own};
pub use open::open;
#[cfg(feature = "auto")]
pub use open::open_auto;
pub use options::{OpenError, OpenOptions, SecretBytes};
#[cfg(feature = "auto")]
pub use petasos_auto as auto;
#[cfg(feature = "channel")]
pub use petasos_channel as channel;
pub use petasos_fabric::{Tuning, TuningError};
#[cfg(feature = "ofi")]
pub use petasos_ofi as ofi;
#[cfg(feature = "plugin")]
pub use petasos_plugin as plugin;
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
pub use transports::{Transport, not_loaded, prepare, stays_on_node, transports};

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

/// And those of the guide to networks.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/networks.md")]
struct Networks;

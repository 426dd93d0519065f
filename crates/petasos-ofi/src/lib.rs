//! The fabric over RDMA networks, by libfabric: `ofi+PROVIDER://HOST:PORT`, `ofi+shm://NAME`.

mod access;
#[doc(hidden)]
pub mod bare;
mod config;
mod endpoint;
mod error;
mod exposure;
pub mod frame;
mod leftovers;
mod link;
mod meet;
mod net;
mod probe;
mod providers;
mod receive;
mod send;
mod sleep;
mod state;
mod sys;

pub use config::{Config, Counters};
pub use error::{LoadError, OpenError};
pub use petasos_tcp::{Secret, SecretError};
pub use probe::{find, probe};
pub use providers::{Meeting, Provider, providers};
pub use state::Ofi;

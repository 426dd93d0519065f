//! placeholder
mod error;
mod kinds;
mod net;
mod probe;
mod signals;
mod sys;

pub use error::{LoadError, OpenError};
pub use kinds::{Kind, kinds};
#[doc(hidden)]
pub use net::Net;
pub use petasos_datagram::{Config, Counters, Meeting, Secret, SecretError};
pub use probe::{find, missing, probe};

/// An endpoint of the fabric over UCX.
pub type Ucx = petasos_datagram::Datagrams<Net>;

/// An endpoint of the library's without the contract, for measurements.
#[doc(hidden)]
pub type Bare = petasos_datagram::bare::Bare<Net>;

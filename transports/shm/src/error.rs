//! Why an endpoint does not open.

use petasos_fabric::{Address, AddressError};

/// Why [`Shm::open`](crate::Shm::open) failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Of another transport.
    #[error("{0} is not an address of shared memory: shm://NAME or shm:///PATH")]
    WrongScheme(Address),
    /// Not a name.
    #[error("{address}: {reason}")]
    Malformed {
        /// What was to be opened.
        address: Address,
        /// What is wrong with it.
        reason: String,
    },
    /// The complete address is no address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Another endpoint listens there.
    #[error("{0} is taken by another process")]
    Taken(Address),
    /// A process of another user listens there: names without a file belong to the process that
    /// takes them first.
    #[error(
        "{address} is taken by a process of user {by}: open shm://* (a random name), or shm:///PATH in a directory of your own"
    )]
    TakenBy {
        /// What was to be opened.
        address: Address,
        /// The user of that process.
        by: u32,
    },
    /// The name belongs to another user.
    #[error("{address} is for user {owner}, this process runs as {uid}")]
    NotYours {
        /// What was to be opened.
        address: Address,
        /// The user to which it belongs.
        owner: u32,
        /// The user of this process.
        uid: u32,
    },
    /// Settings out of their bounds.
    #[error("the configuration has {0}")]
    Config(String),
    /// The system refused something.
    #[error("{what}: the system said: {reason}")]
    System {
        /// What was to be done.
        what: &'static str,
        /// What it said.
        reason: String,
    },
}

//! Why an endpoint was not opened.

use petasos_fabric::{Address, AddressError};

/// Why [`Auto::open`](crate::Auto::open) refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// None, or too many.
    #[error("{count} transports under one address: from 1 to {most} are possible", most = crate::address::MOST)]
    Members {
        /// How many were given.
        count: usize,
    },
    /// Two members of one kind.
    #[error("two of {0}:// under one address")]
    Twice(String),
    /// A member's address that cannot be part of an address.
    #[error("{0} cannot be part of an address, for its comma")]
    Comma(Address),
    /// The members' addresses are too long together.
    #[error("the members' addresses are too many, or too long: {0}")]
    TooLong(#[from] AddressError),
    /// A transport whose messages are too short for a handshake message.
    #[error("{scheme}://: messages of {found} bytes, {needed} are needed")]
    TooShort {
        /// Which.
        scheme: &'static str,
        /// Its longest message, in bytes.
        found: usize,
        /// What is needed, in bytes.
        needed: usize,
    },
    /// The system refused to let several things be waited for.
    #[error("waiting for several transports: {0}")]
    System(#[from] std::io::Error),
}

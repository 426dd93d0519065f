//! Why the library cannot be used, and why an endpoint does not open.

use petasos_fabric::Address;

/// Why UCX cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It, or a library that it needs, is not installed.
    #[error(
        "UCX was not found ({0}): install it (on Debian and Ubuntu the package libucx0), or name its libucp in \
         PETASOS_UCX"
    )]
    Missing(String),
    /// A library without one of UCX's functions.
    #[error("this is not a UCX that can be used: {0}")]
    Symbol(String),
    /// Another one than this transport asks for.
    #[error(
        "UCX {found} cannot be used: its interface is known here from 1.13 on, as long as the first number is 1"
    )]
    Version {
        /// The version that was found.
        found: String,
    },
}

/// Why an endpoint was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no library.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Not an address of this transport.
    #[error(
        "`{}://` means nothing to UCX: write addresses as ucx+TLS://HOST:PORT or ucx+posix://NAME, where TLS is one \
         of {known}; or as ucx://HOST:PORT for the best network that is here",
        .address.scheme()
    )]
    NotUcx {
        /// What was given.
        address: Address,
        /// What there is.
        known: String,
    },
    /// An error that is not the library's.
    #[error(transparent)]
    Common(#[from] petasos_datagram::OpenError),
    /// The kernel does not let processes reach each other's memory.
    #[error("{transports}: {reason}")]
    NotPermitted {
        /// What was asked for, in UCX's words.
        transports: &'static str,
        /// The reason.
        reason: String,
    },
    /// The library does not connect endpoints over the loopback interface.
    #[error(
        "UCX {version} does not connect over the loopback interface, where it takes the number of a machine for an \
         address: name the address of another interface, or take a version before 1.20, or after it"
    )]
    Loopback {
        /// The library's version.
        version: String,
    },
    /// What the library packs is not what this transport can check when a peer says it.
    #[error(
        "UCX {version} over {transports} packs addresses in a form that is not known here, so that those of peers could \
         not be checked: take another version, or, if it is set, UCX_UNIFIED_MODE out of the environment"
    )]
    Form {
        /// The library's version.
        version: String,
        /// What was asked for, in UCX's words.
        transports: &'static str,
    },
    /// Another process has written to the shared memory of each queue that was tried, before it was
    /// ready: nothing would be received there.
    #[error(
        "UCX {version} over {transports}: another process has written to each of {tries} new queues before it was ready, so \
         that nothing would be received: end processes of this user that send to endpoints which are gone"
    )]
    WrittenTo {
        /// The library's version.
        version: String,
        /// What was asked for, in UCX's words.
        transports: &'static str,
        /// How many queues were tried.
        tries: usize,
    },
    /// The library refused.
    #[error("UCX {version} over {transports}: {call}: {reason}{advice}")]
    Refused {
        /// The library's version.
        version: String,
        /// What was asked for, in UCX's words.
        transports: &'static str,
        /// Which call.
        call: &'static str,
        /// What the library said.
        reason: String,
        /// What may help: nothing, or a sentence in parentheses.
        advice: &'static str,
    },
}

impl From<petasos_datagram::SecretError> for OpenError {
    fn from(error: petasos_datagram::SecretError) -> OpenError {
        OpenError::Common(error.into())
    }
}

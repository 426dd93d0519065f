//! Why the library cannot be used, and why an endpoint does not open.

use petasos_fabric::Address;

/// Why libfabric cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// It, or a library that it needs, is not installed.
    #[error(
        "libfabric was not found ({0}): install it (on Debian and Ubuntu the package libfabric1), or name \
         its file in PETASOS_LIBFABRIC"
    )]
    Missing(String),
    /// A library without one of libfabric's functions.
    #[error("this is not a libfabric that can be used: {0}")]
    Symbol(String),
    /// Older than this transport supports.
    #[error("libfabric {found} is too old: from 1.17 on, and of 2, it can be used")]
    TooOld {
        /// The version that was found.
        found: String,
    },
    /// Newer than what is known to have the interface that this transport asks for.
    #[error(
        "libfabric {found} is not known here, and its binary interface may differ: from 1.17 on, and of 2, it \
         can be used"
    )]
    TooNew {
        /// The version that was found.
        found: String,
    },
    /// The library gave no memory.
    #[error("libfabric has no memory")]
    NoMemory,
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
        "`{}://` means nothing to libfabric: write addresses as ofi+PROVIDER://HOST:PORT, where PROVIDER is one of \
         {known}; as ofi+shm://NAME; or as ofi://HOST:PORT for the best network that is here",
        .address.scheme()
    )]
    NotOfi {
        /// What was given.
        address: Address,
        /// What there is.
        known: String,
    },
    /// The provider exists, but not in this library, or not on this machine.
    #[error(
        "libfabric {version} has no provider {provider} here, or no device for it (`FI_LOG_LEVEL=warn fi_info -p \
         {provider}` says more): {offered} can be used"
    )]
    NoProvider {
        /// What was asked for, in libfabric's words.
        provider: String,
        /// The library's version.
        version: String,
        /// What there is.
        offered: String,
    },
    /// The library needs a setting in the environment, which cannot be set any more.
    #[error(
        "{provider} needs {setting} in the environment, and this process has threads already: set it, or call \
         petasos::prepare() at the beginning of the program"
    )]
    Environment {
        /// By which provider.
        provider: String,
        /// What is to be set, as `NAME=VALUE`.
        setting: String,
    },
    /// An error that is not the library's.
    #[error(transparent)]
    Common(#[from] petasos_datagram::OpenError),
    /// The library refused.
    #[error("{provider}: {call}: {reason}{advice}")]
    Fabric {
        /// By which provider.
        provider: String,
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

//! What programs give to open an endpoint, and why it may fail.

use petasos_fabric::{AddressError, AttendError, AttendedConfig};
use std::path::PathBuf;

/// What transports may need to know beside the URL. `Default` suits endpoints of one machine.
///
/// ```
/// use petasos::{OpenOptions, SecretBytes, open};
///
/// let mut options = OpenOptions::default();
/// // In place of `.secret_file("/home/ada/.petasos-secret")`.
/// options.secret = Some(SecretBytes::new(*b"at least sixteen random bytes"));
/// let endpoint = open("tcp://127.0.0.1:0", &options)?;
/// assert!(endpoint.address().as_str().starts_with("tcp://127.0.0.1:"));
/// # Ok::<(), petasos::OpenError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct OpenOptions {
    /// A file with the secret that both sides of a connection over a network prove to know. It must
    /// belong to this user, and no other may read it.
    pub secret_file: Option<PathBuf>,
    /// The secret itself, in place of a file.
    pub secret: Option<SecretBytes>,
    /// Whether a thread drives the endpoint while the program does not: then put, get, atomics and
    /// expected messages of others go on while it computes, over every transport (see
    /// [`Attended`](petasos_fabric::Attended)). Default: no thread.
    pub attended: Option<AttendedConfig>,
}

/// A secret, which is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretBytes(pub(crate) Vec<u8>);

impl SecretBytes {
    /// These bytes; how many there have to be is the transport's to say.
    pub fn new(bytes: impl Into<Vec<u8>>) -> SecretBytes {
        SecretBytes(bytes.into())
    }
}

impl std::fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretBytes(…)")
    }
}

impl OpenOptions {
    /// Sets the file with the secret, for networks.
    #[must_use]
    pub fn secret_file(mut self, path: impl Into<PathBuf>) -> OpenOptions {
        self.secret_file = Some(path.into());
        self
    }

    /// Has a thread drive the endpoint while the program does not.
    ///
    /// ```
    /// use petasos::{OpenOptions, fabric::AttendedConfig, open};
    ///
    /// let options = OpenOptions::default().attended(AttendedConfig::default());
    /// let endpoint = open("tcp://127.0.0.1:0", &options)?;
    /// assert!(endpoint.capabilities().attended);
    /// # Ok::<(), petasos::OpenError>(())
    /// ```
    #[must_use]
    pub fn attended(mut self, config: AttendedConfig) -> OpenOptions {
        self.attended = Some(config);
        self
    }
}

/// Why [`open`](crate::open) gave no endpoint.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Not an address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// No transport has this scheme.
    #[error("`{scheme}` is no transport: write {known}")]
    UnknownScheme {
        /// The scheme asked for.
        scheme: String,
        /// What there is.
        known: String,
    },
    /// The transport exists, but this program was built without it.
    #[error("{scheme}: {reason}")]
    NotBuilt {
        /// The scheme asked for.
        scheme: &'static str,
        /// What to do about that.
        reason: &'static str,
    },
    /// No thread can drive it.
    #[error(transparent)]
    Attended(#[from] AttendError),
    /// The job does not say where this rank's endpoint is.
    #[cfg(feature = "job")]
    #[error(transparent)]
    Job(Box<petasos_pmix::JobError>),
    /// The endpoint within the process was refused.
    #[cfg(feature = "self-transport")]
    #[error(transparent)]
    Local(#[from] petasos_self::OpenError),
    /// Shared memory was refused.
    #[cfg(feature = "shm")]
    #[error(transparent)]
    Shm(#[from] petasos_shm::OpenError),
    /// TCP was refused.
    #[cfg(feature = "tcp")]
    #[error(transparent)]
    Tcp(#[from] petasos_tcp::OpenError),
    /// libfabric is missing, or refused.
    #[cfg(feature = "ofi")]
    #[error(transparent)]
    Ofi(#[from] petasos_ofi::OpenError),
    /// UCX is missing, or refused.
    #[cfg(feature = "ucx")]
    #[error(transparent)]
    Ucx(#[from] petasos_ucx::OpenError),
    /// A transport that was loaded refused.
    #[cfg(feature = "plugin")]
    #[error(transparent)]
    Plugin(#[from] petasos_plugin::OpenError),
    /// Several transports were not put under one address.
    #[cfg(feature = "auto")]
    #[error(transparent)]
    Auto(#[from] petasos_auto::OpenError),
}

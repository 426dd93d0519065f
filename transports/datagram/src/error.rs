//! Why an endpoint does not open, as far as the library has no part in it.

/// Why an endpoint was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The secret is no good.
    #[error(transparent)]
    Secret(#[from] petasos_tcp::SecretError),
    /// The connections by which endpoints find each other, over TCP.
    #[error(transparent)]
    Tcp(#[from] petasos_tcp::OpenError),
    /// The same, over shared memory.
    #[error(transparent)]
    Shm(#[from] petasos_shm::OpenError),
    /// Numbers that cannot be.
    #[error("the configuration has {0}")]
    Config(String),
    /// The system refused.
    #[error("{what}: {error}")]
    System {
        /// What was to be done.
        what: &'static str,
        /// What it said.
        error: std::io::Error,
    },
}

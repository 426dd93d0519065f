//! Why an endpoint does not open, apart from the library's errors.

/// Why an endpoint was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The secret is not valid.
    #[error(transparent)]
    Secret(#[from] petasos_tcp::SecretError),
    /// The endpoint by which peers meet, over TCP, did not open.
    #[error(transparent)]
    Tcp(#[from] petasos_tcp::OpenError),
    /// The endpoint by which peers meet, over shared memory, did not open.
    #[error(transparent)]
    Shm(#[from] petasos_shm::OpenError),
    /// The configuration is not valid.
    #[error("the configuration has {0}")]
    Config(String),
    /// The system refused.
    #[error("{what}: {error}")]
    System {
        /// What was to be done.
        what: &'static str,
        /// The system's error.
        error: std::io::Error,
    },
}

//! How the client's operations fail.

use crate::FsError;
use petasos::{BulkError, CallError, fabric::OpErrorKind};
use rustix::io::Errno;
use std::io;

/// An operation that failed: what it was, on what, and why.
///
/// ```
/// use petasos_forward::{RelPath, client::{ConnectOptions, Remote}};
/// use rustix::io::Errno;
///
/// # use petasos_forward::{server::{Server, ServerConfig}, storage::Local};
/// # use petasos::{Engine, EngineConfig, OpenOptions};
/// # use std::sync::Arc;
/// # let folder = tempfile::tempdir()?;
/// # let storage = Arc::new(Local::open(folder.path())?);
/// # let server =
/// #     Server::listen(storage, &["self://*"], &OpenOptions::default(), ServerConfig::default())?;
/// # let address = &server.addresses()[0];
/// # let endpoint = petasos::open("self://*", &OpenOptions::default())?;
/// # let engine = Engine::new(endpoint, EngineConfig::default());
/// engine.block_on(async {
///     let remote = Remote::connect(&engine, address, ConnectOptions::default()).await?;
///     let error = remote.stat(&RelPath::parse(b"missing")?, true).await.unwrap_err();
///     // The number of the system call; and whether a new session may help.
///     assert_eq!((error.errno(), error.is_lost()), (Errno::NOENT, false));
///     Ok(())
/// })
/// # .map_err(|error: Box<dyn std::error::Error>| error)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The server refused it, or could not do it.
    #[error("{operation} {subject}: {error}")]
    Refused {
        /// What was to be done.
        operation: &'static str,
        /// With what: a path as a rule.
        subject: String,
        /// Why not.
        error: FsError,
    },
    /// There was no answer. Whether the work was done is not known.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The memory could not be lent.
    #[error(transparent)]
    Bulk(#[from] BulkError),
    /// The session has ended: the server went away, or gave it up. Files are no longer open.
    #[error("the session with {peer} has ended: {reason}")]
    Ended {
        /// The server.
        peer: String,
        /// Why.
        reason: String,
    },
}

impl RemoteError {
    /// The number that a system call would give.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            RemoteError::Refused { error, .. } => error.errno(),
            RemoteError::Call(CallError::Deadline { .. }) => Errno::TIMEDOUT,
            RemoteError::Call(CallError::Busy { .. }) => Errno::AGAIN,
            RemoteError::Call(CallError::TooLarge { .. }) => Errno::TOOBIG,
            RemoteError::Call(_) | RemoteError::Bulk(_) => Errno::IO,
            RemoteError::Ended { .. } => Errno::NOTCONN,
        }
    }

    /// Whether the server is gone, or the session: it may be worth while to connect again.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        match self {
            RemoteError::Ended { .. } => true,
            RemoteError::Refused { error, .. } => {
                matches!(error.errno(), Errno::STALE | Errno::SHUTDOWN)
            }
            RemoteError::Call(error) => matches!(
                error,
                CallError::PeerLost { .. }
                    | CallError::Deadline { .. }
                    | CallError::Cancelled { .. }
                    | CallError::Transfer { .. }
            ),
            RemoteError::Bulk(BulkError::Transfer(error)) => {
                matches!(error.kind, OpErrorKind::PeerLost(_))
            }
            RemoteError::Bulk(_) => false,
        }
    }
}

impl From<RemoteError> for io::Error {
    fn from(error: RemoteError) -> io::Error {
        io::Error::new(io::Error::from(error.errno()).kind(), error)
    }
}

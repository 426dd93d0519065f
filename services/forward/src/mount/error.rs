//! Why there is no mount.

use crate::client::RemoteError;
use std::{io, path::PathBuf};

/// Why an export could not be mounted, or not be unmounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The server cannot be reached, or refuses.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// What is to be mounted is no directory.
    #[error("{0} is no directory of the export")]
    NoDirectory(String),
    /// An option that there is not.
    #[error("`{0}` is no option of this mount")]
    Option(String),
    /// The system refused.
    #[error("{doing} {}: {error}", path.display())]
    System {
        /// What was to be done.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// The engine's thread ended before there was a mount.
    #[error("the engine of the mount has ended")]
    Engine,
}

//! What a call gets when its session has ended, or the server ends.

use crate::FsError;
use rustix::io::Errno;

/// There is no such session.
#[cold]
pub(super) fn stale() -> FsError {
    FsError::new(Errno::STALE, "there is no such session, or it has ended")
}

/// The server ends.
#[cold]
pub(super) fn stopped() -> FsError {
    FsError::new(Errno::SHUTDOWN, "the server ends")
}

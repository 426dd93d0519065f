//! Errors of file systems, as they travel: the number that the system call gave, and what for.

use petasos::Wire;
use rustix::io::Errno;
use std::{fmt, io};

/// Why something was refused at the server. The number is Linux's, on every machine.
///
/// ```
/// use petasos_forward::FsError;
/// use rustix::io::Errno;
///
/// let error = FsError::new(Errno::MFILE, "the limit of 64 open files is reached");
/// assert_eq!(error.errno(), Errno::MFILE);
/// assert!(error.to_string().ends_with("the limit of 64 open files is reached"));
/// // As one of the standard library.
/// assert_eq!(std::io::Error::from(FsError::from(Errno::NOENT)).raw_os_error(), Some(2));
/// ```
#[derive(Clone, PartialEq, Eq, Wire)]
pub struct FsError {
    errno: i32,
    detail: String,
}

/// What operations on files give.
pub type FsResult<T> = Result<T, FsError>;

impl FsError {
    /// An error with words about it: the limit that was exceeded, the value that makes no sense.
    #[must_use]
    pub fn new(errno: Errno, detail: impl Into<String>) -> FsError {
        FsError { errno: errno.raw_os_error(), detail: detail.into() }
    }

    /// Its number. What another process sent as a number, and is none, is an input/output error.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self.errno {
            1..4096 => Errno::from_raw_os_error(self.errno),
            _ => Errno::IO,
        }
    }

    /// Words about it; may be empty.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Adds words, if it has none yet.
    #[must_use]
    pub fn about(mut self, detail: impl FnOnce() -> String) -> FsError {
        if self.detail.is_empty() {
            self.detail = detail();
        }
        self
    }
}

impl From<Errno> for FsError {
    fn from(errno: Errno) -> FsError {
        FsError::new(errno, "")
    }
}

impl From<io::Error> for FsError {
    fn from(error: io::Error) -> FsError {
        match Errno::from_io_error(&error) {
            Some(errno) => errno.into(),
            None => FsError::new(Errno::IO, error.to_string()),
        }
    }
}

impl From<FsError> for io::Error {
    fn from(error: FsError) -> io::Error {
        match error.detail.is_empty() {
            true => error.errno().into(),
            false => io::Error::new(io::Error::from(error.errno()).kind(), error),
        }
    }
}

impl fmt::Display for FsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.errno())?;
        if !self.detail.is_empty() {
            write!(f, ": {}", self.detail)?;
        }
        Ok(())
    }
}

impl fmt::Debug for FsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FsError({self})")
    }
}

impl std::error::Error for FsError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_others() {
        assert_eq!(FsError { errno: 2, detail: String::new() }.errno(), Errno::NOENT);
        for errno in [0, -5, i32::MIN, i32::MAX, 4096] {
            assert_eq!(FsError { errno, detail: String::new() }.errno(), Errno::IO);
        }
    }

    #[test]
    fn there_and_back() {
        let error = FsError::from(io::Error::from(io::ErrorKind::NotFound));
        assert_eq!(error.errno(), Errno::IO, "a kind without a number is no number");
        let error = FsError::from(io::Error::from_raw_os_error(28));
        assert_eq!(error.errno(), Errno::NOSPC);
        assert_eq!(io::Error::from(error).raw_os_error(), Some(28));
        let error = FsError::new(Errno::MFILE, "64 files are open");
        assert!(error.to_string().ends_with(": 64 files are open"), "{error}");
    }
}

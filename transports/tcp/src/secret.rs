//! The shared secret, and the file that it is kept in.

use petasos_noise::Psk;
use rustix::{
    fs::{FileType, Mode, OFlags, fstat, open},
    process::geteuid,
};
use std::{
    fmt,
    io::Read,
    path::{Path, PathBuf},
};

/// A secret that both sides of a connection know.
#[derive(Clone)]
pub struct Secret(Psk);

/// Why a secret was not accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The file could not be opened or read.
    #[error("the secret in {0}: {1}")]
    Io(PathBuf, std::io::Error),
    /// Not an ordinary file.
    #[error("the secret in {0} is not in an ordinary file")]
    NotAFile(PathBuf),
    /// A file of another user.
    #[error("the secret in {path} belongs to user {owner}, not to this process's user {user}")]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// The user of this process.
        user: u32,
    },
    /// Others can read or write it.
    #[error("the secret in {path} is open to others (mode {mode:03o}): chmod 600 {path}")]
    Open {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Too short to be a secret, or too long.
    #[error("a secret has {min} to {max} bytes, this one has {len}", min = Secret::MIN, max = Secret::MAX)]
    BadLength {
        /// Its length in bytes.
        len: usize,
    },
}

impl Secret {
    /// The shortest secret in bytes.
    pub const MIN: usize = 16;
    /// The longest secret in bytes.
    pub const MAX: usize = 4096;

    /// A secret from bytes: as random as can be, for a process that has seen one connection can try
    /// out guesses.
    ///
    /// # Errors
    /// [`SecretError::BadLength`] outside of [`Secret::MIN`] to [`Secret::MAX`] bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Secret, SecretError> {
        let bytes = bytes.into();
        let len = bytes.len();
        if !(Secret::MIN..=Secret::MAX).contains(&len) {
            return Err(SecretError::BadLength { len });
        }
        Ok(Secret(Psk::new("petasos tcp", &bytes)))
    }

    /// Reads the secret from a file that belongs to this process's user and is closed to all
    /// others (mode 600 or 400). White space at the end does not count.
    ///
    /// # Errors
    /// If the file cannot be read, is no ordinary file, belongs to another user, is open to others,
    /// or does not hold [`Secret::MIN`] to [`Secret::MAX`] bytes: see [`SecretError`].
    pub fn from_file(path: impl AsRef<Path>) -> Result<Secret, SecretError> {
        let path = path.as_ref();
        let failed = |error: rustix::io::Errno| SecretError::Io(path.to_owned(), error.into());
        // Neither through a link that another user made, nor waiting for a pipe.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = open(path, flags, Mode::empty()).map_err(failed)?;
        // What was opened is looked at, not what the name means by now.
        let stat = fstat(&file).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(SecretError::NotAFile(path.to_owned()));
        }
        let user = geteuid().as_raw();
        if stat.st_uid != user {
            return Err(SecretError::NotOurs { path: path.to_owned(), owner: stat.st_uid, user });
        }
        let mode = stat.st_mode & 0o777;
        if mode & 0o077 != 0 {
            return Err(SecretError::Open { path: path.to_owned(), mode });
        }
        let mut bytes = Vec::new();
        let mut file = std::fs::File::from(file).take(Secret::MAX as u64 + 2);
        file.read_to_end(&mut bytes).map_err(|error| SecretError::Io(path.to_owned(), error))?;
        bytes.truncate(bytes.trim_ascii_end().len());
        Secret::new(bytes)
    }

    /// A code of some bytes that shows that its maker knows the secret: for handshakes of other
    /// transports, each with a purpose of its own.
    #[must_use]
    pub fn code(&self, purpose: &str, bytes: &[u8]) -> [u8; 32] {
        self.0.code(purpose, bytes)
    }

    /// As the handshake takes it.
    pub(crate) fn psk(&self) -> &Psk {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

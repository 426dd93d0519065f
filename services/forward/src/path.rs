//! Paths within an export: checked once, where they enter.

use rustix::io::Errno;
use std::{
    ffi::OsStr,
    fmt,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// A path below the root of an export: names with one slash between them, none of them `.` or
/// `..`, none empty. The root itself is the empty path.
///
/// ```
/// use petasos_forward::{PathError, RelPath};
///
/// let path = RelPath::parse(b"/results/./step-7.dat")?;
/// assert_eq!(path, RelPath::parse(b"results")?.join(b"step-7.dat")?);
/// assert!(matches!(RelPath::parse(b"../secret"), Err(PathError::Escapes(_))));
/// # Ok::<(), PathError>(())
/// ```
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelPath(PathBuf);

/// Why bytes are no path within an export.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// Longer than [`RelPath::MAX`].
    #[error("a path of {0} bytes, the longest has {max}", max = RelPath::MAX)]
    TooLong(usize),
    /// A name longer than [`RelPath::MAX_NAME`].
    #[error("a name of {0} bytes, the longest has {max}", max = RelPath::MAX_NAME)]
    NameTooLong(usize),
    /// It would lead elsewhere.
    #[error("`{0}` leads out of the export")]
    Escapes(String),
    /// A byte that no name has.
    #[error("a path with a zero byte")]
    Zero,
    /// A name that the server keeps for itself.
    #[error("the name `{name}` is the server's own", name = RelPath::RESERVED)]
    Reserved,
}

impl RelPath {
    /// The longest path, in bytes: one less than `PATH_MAX`, which counts the zero at the end.
    pub const MAX: usize = 4095;

    /// The longest name, in bytes.
    pub const MAX_NAME: usize = 255;

    /// The directory in the root where a server keeps what is not complete. Clients never see it.
    pub const RESERVED: &str = ".petasos";

    /// The root of the export.
    #[must_use]
    pub fn root() -> RelPath {
        RelPath::default()
    }

    /// Checks what a peer sent. A leading slash is the export's root; slashes that say nothing, and
    /// `.`, are left out.
    ///
    /// # Errors
    /// [`PathError`] if it is too long, has too long a name or a zero byte, leads out of the
    /// export, or names what the server keeps for itself.
    pub fn parse(bytes: &[u8]) -> Result<RelPath, PathError> {
        if bytes.len() > Self::MAX {
            return Err(PathError::TooLong(bytes.len()));
        }
        if bytes.contains(&0) {
            return Err(PathError::Zero);
        }
        let mut path = Vec::with_capacity(bytes.len());
        for name in bytes.split(|byte| *byte == b'/') {
            match name {
                b"" | b"." => continue,
                b".." => {
                    return Err(PathError::Escapes(String::from_utf8_lossy(bytes).into_owned()));
                }
                _ if name.len() > Self::MAX_NAME => {
                    return Err(PathError::NameTooLong(name.len()));
                }
                _ if path.is_empty() && name == Self::RESERVED.as_bytes() => {
                    return Err(PathError::Reserved);
                }
                _ => {}
            }
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name);
        }
        Ok(RelPath(std::ffi::OsString::from_vec(path).into()))
    }

    /// As the system takes it, relative to the root. Empty for the root itself.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_os_str().as_bytes()
    }

    /// Whether it is the root.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.as_bytes().is_empty()
    }

    /// Its directory and its name there; `None` for the root.
    #[must_use]
    pub fn split(&self) -> Option<(RelPath, &OsStr)> {
        let name = self.0.file_name()?;
        let parent = self.0.parent().map(Path::to_owned).unwrap_or_default();
        Some((RelPath(parent), name))
    }

    /// A name in this directory.
    ///
    /// # Errors
    /// As [`RelPath::parse`].
    pub fn join(&self, name: &[u8]) -> Result<RelPath, PathError> {
        if name.contains(&b'/') || name == b"." || name.is_empty() {
            return Err(PathError::Escapes(String::from_utf8_lossy(name).into_owned()));
        }
        RelPath::parse(&[self.as_bytes(), b"/", name].concat())
    }
}

impl From<PathError> for crate::FsError {
    fn from(error: PathError) -> crate::FsError {
        let errno = match error {
            PathError::TooLong(_) | PathError::NameTooLong(_) => Errno::NAMETOOLONG,
            PathError::Escapes(_) => Errno::XDEV,
            PathError::Zero => Errno::INVAL,
            PathError::Reserved => Errno::ACCESS,
        };
        crate::FsError::new(errno, error.to_string())
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.0.display())
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RelPath({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &[u8]) -> Result<String, PathError> {
        RelPath::parse(text).map(|path| String::from_utf8_lossy(path.as_bytes()).into_owned())
    }

    #[test]
    fn what_is_taken() {
        for (text, path) in
            [("", ""), ("/", ""), ("a//b/./c/", "a/b/c"), ("/a", "a"), ("...", "...")]
        {
            assert_eq!(parse(text.as_bytes()).as_deref(), Ok(path), "{text}");
        }
        let (directory, name) = RelPath::parse(b"a/b/c").unwrap().split().map(own).unwrap();
        assert_eq!((directory.as_bytes(), name.as_bytes()), (&b"a/b"[..], &b"c"[..]));
        assert!(RelPath::root().split().is_none());
    }

    fn own((path, name): (RelPath, &OsStr)) -> (RelPath, std::ffi::OsString) {
        (path, name.to_owned())
    }

    #[test]
    fn what_is_refused() {
        for text in ["..", "a/..", "../a", "/a/../../b"] {
            assert!(matches!(parse(text.as_bytes()), Err(PathError::Escapes(_))), "{text}");
        }
        assert_eq!(parse(b"a\0b"), Err(PathError::Zero));
        assert_eq!(parse(b".petasos/x"), Err(PathError::Reserved));
        assert_eq!(parse(b"a/.petasos").as_deref(), Ok("a/.petasos"));
        assert_eq!(parse(&[b'x'; 256]), Err(PathError::NameTooLong(256)));
        assert_eq!(parse(&[b'/'; 4096]), Err(PathError::TooLong(4096)));
        let root = RelPath::root();
        assert!([&b"a/b"[..], b"..", b".", b"", b".petasos"].iter().all(|n| root.join(n).is_err()));
    }

    proptest! {
        #[test]
        fn nothing_leads_out(bytes in proptest::collection::vec(prop_oneof![
            Just(b'.'), Just(b'/'), Just(b'a'), any::<u8>()], 0..300)) {
            if let Ok(path) = RelPath::parse(&bytes) {
                prop_assert!(path.as_path().is_relative());
                let normal = |c| matches!(c, std::path::Component::Normal(_));
                prop_assert!(path.as_path().components().all(normal));
                prop_assert_eq!(RelPath::parse(path.as_bytes()).unwrap(), path);
            }
        }
    }
}

//! Paths at a server: a URL and a path in what it exports.

use crate::client::parse_url;
use petasos::fabric::Address;
use petasos_forward::RelPath;
use std::{
    ffi::OsStr,
    fmt,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
};

/// A server, and a path there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) address: Address,
    pub(crate) path: RelPath,
    /// Written with a slash at the end: meant as a directory.
    pub(crate) directory: bool,
}

impl Location {
    /// Reads `URL`, `URL/PATH` or `URL//PATH`. A URL that is a path itself, as `shm:///run/x`, ends
    /// at two slashes only.
    pub(crate) fn parse(text: &OsStr) -> Result<Location, String> {
        let bytes = text.as_bytes();
        let Some(rest) = after_scheme(bytes, 0) else {
            let text = text.display();
            return Err(format!(
                "`{text}` names no path at a server: write it as tcp://HOST:PORT/PATH"
            ));
        };
        let (url, path) = bytes.split_at(end_of_url(bytes, rest));
        let address = parse_url(&String::from_utf8_lossy(url))?;
        let rel = RelPath::parse(path).map_err(|error| error.to_string())?;
        let directory = !rel.is_root() && path.ends_with(b"/");
        Ok(Location { address, path: rel, directory })
    }
}

/// What follows the scheme of a URL that begins at `at`, if one does.
fn after_scheme(bytes: &[u8], at: usize) -> Option<usize> {
    let scheme = bytes.get(at..)?.iter().take_while(|byte| !b":/,".contains(byte)).count();
    let found = scheme > 0 && bytes[at + scheme..].starts_with(b"://");
    found.then_some(at + scheme + 3)
}

/// Where the URL ends whose scheme ends at `rest`.
fn end_of_url(bytes: &[u8], rest: usize) -> usize {
    let slash = end_of_one(bytes, rest);
    // Several URLs under one address stand behind the node where they are: auto://NODE/URL,URL.
    let mut next = after_scheme(bytes, slash + 1).filter(|_| bytes.starts_with(b"auto://"));
    let mut end = slash;
    while let Some(rest) = next {
        end = end_of_one(bytes, rest);
        let comma = bytes[rest..end].iter().position(|byte| *byte == b',');
        next = comma.and_then(|at| after_scheme(bytes, rest + at + 1));
    }
    end
}

/// The same of one that has no others in it.
fn end_of_one(bytes: &[u8], rest: usize) -> usize {
    let found = match bytes.get(rest) {
        // The first slash belongs to it.
        Some(b'/') => bytes[rest + 1..].windows(2).position(|two| two == b"//").map(|at| at + 1),
        _ => bytes[rest.min(bytes.len())..].iter().position(|byte| *byte == b'/'),
    };
    found.map_or(bytes.len(), |at| rest + at)
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_root() {
            return write!(f, "{}", self.address);
        }
        let slash = if self.address.rest().starts_with('/') { "/" } else { "" };
        write!(f, "{}{slash}{}", self.address, self.path)
    }
}

/// One side of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Here(PathBuf),
    There(Location),
}

impl Side {
    /// What has `://` in it is at a server; `./a://b` is not.
    pub(crate) fn parse(text: &OsStr) -> Result<Side, String> {
        let bytes = text.as_bytes();
        let scheme = bytes.iter().take_while(|byte| !b":/".contains(byte)).count();
        match bytes[scheme..].starts_with(b"://") {
            true => Location::parse(text).map(Side::There),
            false => Ok(Side::Here(std::ffi::OsString::from_vec(bytes.to_vec()).into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &str = "auto://0123456789abcdef/shm://x.y,tcp://127.0.0.1:4040";

    fn parsed(text: &str) -> (String, String, bool) {
        let location = Location::parse(OsStr::new(text)).unwrap();
        (location.address.to_string(), location.path.to_string(), location.directory)
    }

    #[test]
    fn where_a_url_ends() {
        for (text, url, path, directory) in [
            ("tcp://h:1", "tcp://h:1", "/", false),
            ("tcp://h:1/", "tcp://h:1", "/", false),
            ("tcp://h:1/a/b", "tcp://h:1", "/a/b", false),
            ("tcp://[::1]:1//a/", "tcp://[::1]:1", "/a", true),
            ("shm://x", "shm://x", "/", false),
            ("shm://7@x.y/a", "shm://7@x.y", "/a", false),
            ("shm:///run/x", "shm:///run/x", "/", false),
            ("shm:///run/x//a/b", "shm:///run/x", "/a/b", false),
            ("shm:///run/x//", "shm:///run/x", "/", false),
            ("auto://h:1/a", "auto://h:1", "/a", false),
            (KNOWN, KNOWN, "/", false),
            (&format!("{KNOWN}/a//b/"), KNOWN, "/a/b", true),
            (&format!("{KNOWN}//tcp://h:1"), KNOWN, "/tcp:/h:1", false),
        ] {
            assert_eq!(parsed(text), (url.to_owned(), path.to_owned(), directory), "{text}");
        }
        let odd = OsStr::from_bytes(b"shm://x/a\xff b");
        assert_eq!(Location::parse(odd).unwrap().path.as_bytes(), b"a\xff b");
        assert_eq!(Location::parse(OsStr::new("shm:///s//a")).unwrap().to_string(), "shm:///s//a");
    }

    #[test]
    fn what_is_refused() {
        for (text, why) in [
            ("a/b", "names no path at a server"),
            ("ftp://h/a", "no transport"),
            ("shm://x/../a", "leads out"),
            ("shm://x/.petasos", "the server's own"),
        ] {
            let error = Location::parse(OsStr::new(text)).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn sides() {
        let side = |text: &str| Side::parse(OsStr::new(text)).unwrap();
        assert!(matches!(side("a/b"), Side::Here(_)) && matches!(side("./a://b"), Side::Here(_)));
        assert!(matches!(side("shm://b"), Side::There(_)));
    }
}

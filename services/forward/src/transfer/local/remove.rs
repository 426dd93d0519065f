//! Trees, removed.

use crate::RelPath;
use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags, openat, unlinkat},
    io::Errno,
};
use std::{
    ffi::OsStr,
    os::{fd::AsFd, unix::ffi::OsStrExt},
};

/// Removes something, whatever it is, with all that is in it. Links are not followed. Something
/// that is not there is no error.
pub(in super::super) fn remove_all(directory: &impl AsFd, name: &[u8]) -> Result<(), Errno> {
    /// Deeper than any path can name.
    const DEEPEST: usize = RelPath::MAX;
    fn remove(directory: &impl AsFd, name: &OsStr, depth: usize) -> Result<(), Errno> {
        match unlinkat(directory, name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(Errno::NOENT) => return Ok(()),
            removed => return removed,
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let below = openat(directory, name, flags, Mode::empty())?;
        for entry in Dir::read_from(&below)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") && depth < DEEPEST {
                remove(&below, OsStr::from_bytes(name), depth + 1)?;
            }
        }
        unlinkat(directory, name, AtFlags::REMOVEDIR)
    }
    remove(directory, OsStr::from_bytes(name), 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn links_are_removed_and_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let keep = place.path().join("keep");
        fs::create_dir_all(place.path().join("a/b/c")).unwrap();
        fs::create_dir(&keep).unwrap();
        fs::write(keep.join("x"), "x").unwrap();
        symlink(&keep, place.path().join("a/b/link")).unwrap();
        let directory = fs::File::open(place.path()).unwrap();
        remove_all(&directory, b"a").unwrap();
        remove_all(&directory, b"a").unwrap();
        assert!(keep.join("x").exists() && !place.path().join("a").exists());
    }
}

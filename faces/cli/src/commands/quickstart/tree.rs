//! What is in a directory.

use crate::exit::{Failure, Outcome};
use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
};

/// Something in a tree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    /// Its path within the tree.
    pub(super) path: Vec<u8>,
    /// Its permissions. Zero for links, which have none.
    pub(super) mode: u32,
    /// What it is.
    pub(super) kind: Kind,
}

/// What something in a tree is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A directory.
    Directory,
    /// A file of so many bytes.
    File(u64),
    /// A symbolic link, and what it says.
    Link(Vec<u8>),
}

impl Entry {
    /// Its path, to be used below a directory.
    pub(super) fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.path))
    }
}

/// All that is below `root`, parents before what is in them, and what was left out: pipes,
/// sockets and devices, which have no bytes to copy. If `root` is a file, it is the one entry, by
/// its name.
pub(super) fn walk(root: &Path) -> Outcome<(Vec<Entry>, Vec<PathBuf>)> {
    let (mut entries, mut left_out) = (Vec::new(), Vec::new());
    let found = fs::metadata(root).map_err(|e| Failure::file("reading attributes of", root, &e))?;
    if !found.is_dir() {
        let name = root.file_name().unwrap_or(root.as_os_str());
        if found.is_file() {
            let (path, mode) = (name.as_bytes().to_vec(), found.permissions().mode() & 0o7777);
            entries.push(Entry { path, mode, kind: Kind::File(found.len()) });
        } else {
            left_out.push(root.to_owned());
        }
        return Ok((entries, left_out));
    }
    let mut open = vec![PathBuf::new()];
    while let Some(within) = open.pop() {
        let directory = root.join(&within);
        let failed = |e: std::io::Error| Failure::file("looking into", &directory, &e);
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let within = within.join(entry.file_name());
            let path = root.join(&within);
            let failed = |e| Failure::file("reading attributes of", &path, &e);
            let found = entry.metadata().map_err(failed)?;
            let (kind, mode) = if found.is_dir() {
                open.push(within.clone());
                (Kind::Directory, found.permissions().mode() & 0o7777)
            } else if found.is_file() {
                (Kind::File(found.len()), found.permissions().mode() & 0o7777)
            } else if found.is_symlink() {
                let to = fs::read_link(&path).map_err(failed)?;
                (Kind::Link(to.as_os_str().as_bytes().to_vec()), 0)
            } else {
                left_out.push(path);
                continue;
            };
            entries.push(Entry { path: within.as_os_str().as_bytes().to_vec(), mode, kind });
        }
    }
    Ok((entries, left_out))
}

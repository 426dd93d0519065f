//! Where the private directories of jobs are on a node.
//!
//! Where such directories are others can be before us, as any user may make one of any name where
//! temporary files are: then jobs are in another one beside it, whose name cannot be known before.

use crate::random::{hex, random};
use rustix::process::geteuid;
use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Bytes of a name that cannot be guessed. It is part of the path of a socket.
const RANDOM: usize = 6;

/// Where the jobs of this user are to be: in `XDG_RUNTIME_DIR`, else in a directory of our own for
/// temporary files.
#[must_use]
pub fn base() -> PathBuf {
    let uid = geteuid().as_raw();
    let ours = |path: &PathBuf| fs::metadata(path).is_ok_and(|m| m.is_dir() && m.uid() == uid);
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(ours) {
        Some(runtime) => runtime.join("petasos"),
        None => std::env::temp_dir().join(format!("petasos-{uid}")),
    }
}

/// Where the jobs of this user may be: that directory, and those that were made in the place of it.
pub(crate) fn bases() -> Vec<PathBuf> {
    let base = base();
    let mut all: Vec<PathBuf> = beside(&base).unwrap_or_default();
    all.push(base);
    // In others another user may have put what looks like a job.
    all.retain(|path| is_private(path).is_ok());
    all
}

/// The directories whose names [`another`] may have made for this one.
fn beside(base: &Path) -> Option<Vec<PathBuf>> {
    let name = format!("{}-", base.file_name()?.to_str()?);
    let entries = fs::read_dir(base.parent()?).ok()?.flatten();
    let ours = entries.filter(|entry| {
        entry
            .file_name()
            .to_str()
            .and_then(|found| found.strip_prefix(&name))
            .is_some_and(is_random)
    });
    Some(ours.map(|entry| entry.path()).collect())
}

/// A name for a directory beside one that is taken.
#[must_use]
pub fn another(base: &Path) -> PathBuf {
    let random = hex(&random()[..RANDOM]);
    let mut name = base.as_os_str().to_owned();
    name.push(format!("-{random}"));
    name.into()
}

fn is_random(text: &str) -> bool {
    text.len() == 2 * RANDOM && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Checks that a directory is this user's and closed to all others, and no link.
///
/// # Errors
/// If it is not, or cannot be examined.
pub fn is_private(path: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    if found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    let why = format!("{} is not a directory of this user alone (mode 700)", path.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

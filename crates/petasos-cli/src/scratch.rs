//! Private temporary directories that go away, whatever happens.
//!
//! Dropping removes one; so does Ctrl-C ([`remove_all`]). What `kill -9` leaves is removed by the
//! next one that is made: its owner no longer holds the lock.

use crate::exit::{Failure, Outcome};
use rustix::fs::{FlockOperation, flock};
use std::{
    fs::{self, File, Permissions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

const PREFIX: &str = "petasos-scratch-";
const LOCK: &str = "lock";

/// What must be removed before this process ends.
static PATHS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A directory that only this user can enter, removed when dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    /// Held as long as the directory is in use.
    _lock: File,
}

impl Scratch {
    /// Makes one where temporary files belong (`TMPDIR`, else `/tmp`).
    pub(crate) fn new() -> Outcome<Scratch> {
        let parent = std::env::temp_dir();
        sweep(&parent);
        let failed = |error| Failure::file("making a temporary directory in", &parent, &error);
        // Made with mode 0700.
        let made = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&parent).map_err(failed)?;
        let lock = File::create_new(made.path().join(LOCK)).map_err(failed)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|e| failed(e.into()))?;
        let path = made.keep();
        watch(&path);
        Ok(Scratch { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a directory within.
    pub(crate) fn directory(&self, name: &str) -> Outcome<PathBuf> {
        let path = self.path.join(name);
        fs::create_dir(&path).map_err(|e| Failure::file("making", &path, &e))?;
        Ok(path)
    }

    /// A file with a fresh secret, for this user alone.
    pub(crate) fn secret(&self) -> Outcome<PathBuf> {
        let path = self.path.join("secret");
        let mut bytes = [0u8; 32];
        getrandom::fill(&mut bytes).map_err(Failure::system("the system's random source"))?;
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        file.and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()))
            .map_err(|e| Failure::file("writing", &path, &e))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        unwatch(&self.path);
        remove(&self.path);
    }
}

/// Has `path` removed if this process is interrupted.
pub(crate) fn watch(path: &Path) {
    PATHS.lock().unwrap_or_else(PoisonError::into_inner).push(path.to_owned());
}

/// Takes that back.
pub(crate) fn unwatch(path: &Path) {
    PATHS.lock().unwrap_or_else(PoisonError::into_inner).retain(|watched| watched != path);
}

/// Removes all that must not stay. The last thing that a process does.
pub(crate) fn remove_all() {
    let paths = std::mem::take(&mut *PATHS.lock().unwrap_or_else(PoisonError::into_inner));
    paths.iter().for_each(|path| remove(path));
}

/// Removes a file or a tree, also one with directories that may not be written to. A failure has
/// nobody to be told.
pub(crate) fn remove(path: &Path) {
    let _ = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path).or_else(|_| {
            open_up(path);
            fs::remove_dir_all(path)
        }),
        _ => fs::remove_file(path),
    };
}

fn open_up(directory: &Path) {
    let _ = fs::set_permissions(directory, Permissions::from_mode(0o700));
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}

/// Removes directories of this user whose owners are gone.
fn sweep(parent: &Path) {
    let own = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == own);
        // A directory without a lock is being made.
        if ours
            && let Ok(lock) = File::open(entry.path().join(LOCK))
            && flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()
        {
            remove(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_is_swept() {
        let parent = tempfile::tempdir().unwrap();
        let dead = parent.path().join(format!("{PREFIX}dead"));
        fs::create_dir_all(dead.join("a/b")).unwrap();
        File::create(dead.join(LOCK)).unwrap();
        fs::set_permissions(dead.join("a"), Permissions::from_mode(0o500)).unwrap();
        let alive = parent.path().join(format!("{PREFIX}alive"));
        fs::create_dir(&alive).unwrap();
        let lock = File::create(alive.join(LOCK)).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        fs::create_dir(parent.path().join("another")).unwrap();
        sweep(parent.path());
        assert!(!dead.exists() && alive.exists() && parent.path().join("another").exists());
    }
}

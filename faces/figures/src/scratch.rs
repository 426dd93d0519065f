//! Private temporary directories that go away, whatever happens.
//!
//! Dropping removes one; so does Ctrl-C ([`remove_all`]). What `kill -9` leaves is removed by the
//! server process that outlives it ([`inherit`]), or by the next one that is made in the same
//! place: its owner no longer holds the lock.

use crate::exit::{Failure, Outcome};
use rustix::fs::{FlockOperation, flock};
use std::{
    ffi::OsStr,
    fs::{self, File, Permissions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

const PREFIX: &str = "petasos-scratch-";
const LOCK: &str = "lock";

/// To remove a directory.
const ATTEMPTS: usize = 10;

/// What must be removed before this process ends.
static PATHS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A directory that only this user can enter, removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// Held as long as the directory is in use.
    _lock: File,
}

impl Scratch {
    /// Makes one where temporary files belong (`TMPDIR`, else `/tmp`).
    pub fn new() -> Outcome<Scratch> {
        Scratch::make(&std::env::temp_dir(), PREFIX)
    }

    /// Makes a hidden one for what is going to be moved elsewhere in `parent`.
    pub fn within(parent: &Path) -> Outcome<Scratch> {
        Scratch::make(parent, &format!(".{PREFIX}"))
    }

    fn make(parent: &Path, prefix: &str) -> Outcome<Scratch> {
        sweep(parent);
        let failed = |error| Failure::file("making a temporary directory in", parent, &error);
        // Made with mode 0700.
        let made = tempfile::Builder::new().prefix(prefix).tempdir_in(parent).map_err(failed)?;
        let lock = File::create_new(made.path().join(LOCK)).map_err(failed)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|e| failed(e.into()))?;
        let path = made.keep();
        watch(&path);
        Ok(Scratch { path, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a directory within.
    pub fn directory(&self, name: &str) -> Outcome<PathBuf> {
        let path = self.path.join(name);
        fs::create_dir(&path).map_err(|e| Failure::file("making", &path, &e))?;
        Ok(path)
    }

    /// A file with a fresh secret, for this user alone.
    pub fn secret(&self) -> Outcome<PathBuf> {
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
pub fn watch(path: &Path) {
    PATHS.lock().unwrap_or_else(PoisonError::into_inner).push(path.to_owned());
}

/// Takes that back.
pub fn unwatch(path: &Path) {
    PATHS.lock().unwrap_or_else(PoisonError::into_inner).retain(|watched| watched != path);
}

/// Removes all that must not stay. The last thing that a process does.
pub fn remove_all() {
    let paths = std::mem::take(&mut *PATHS.lock().unwrap_or_else(PoisonError::into_inner));
    paths.iter().for_each(|path| remove(path));
}

/// Removes the [`Scratch`] of a process that died, and nothing that is none.
pub fn inherit(path: &Path) {
    if path.file_name().is_some_and(is_scratch) {
        remove(path);
    }
}

fn is_scratch(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.strip_prefix('.').unwrap_or(&name).starts_with(PREFIX)
}

/// Removes a file or a tree, also one with directories that may not be written to. A failure
/// is left: nothing waits for a report of it.
pub fn remove(path: &Path) {
    if !fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        let _ = fs::remove_file(path);
        return;
    }
    // Again where another thread, which does not know yet, has put something in meanwhile.
    for _ in 0..ATTEMPTS {
        if fs::remove_dir_all(path).is_ok() {
            return;
        }
        open_up(path);
    }
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
        let ours = is_scratch(&entry.file_name())
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
        let hidden = parent.path().join(format!(".{PREFIX}dead"));
        fs::create_dir(&hidden).unwrap();
        File::create(hidden.join(LOCK)).unwrap();
        let alive = parent.path().join(format!("{PREFIX}alive"));
        fs::create_dir(&alive).unwrap();
        let lock = File::create(alive.join(LOCK)).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        fs::create_dir(parent.path().join("another")).unwrap();
        sweep(parent.path());
        assert!(
            !dead.exists()
                && !hidden.exists()
                && alive.exists()
                && parent.path().join("another").exists()
        );
    }

    #[test]
    fn nothing_else_is_inherited() {
        let parent = tempfile::tempdir().unwrap();
        let (dead, other) = (parent.path().join(format!("{PREFIX}x")), parent.path().join("other"));
        for path in [&dead, &other] {
            fs::create_dir(path).unwrap();
            inherit(path);
        }
        assert!(!dead.exists() && other.exists());
    }
}

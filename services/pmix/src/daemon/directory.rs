//! The private directory of a job on a node: the socket, the token, and what all processes share.
//!
//! Where such directories are others can be before us, as any user may make one of any name where
//! temporary files are: then jobs are in another one beside it, whose name cannot be known before.

use crate::net::handshake::{hex, random};
use rustix::process::geteuid;
use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// The longest path of a socket that the system takes.
const MAX_SOCKET: usize = 107;
/// Bytes of a name that cannot be guessed. It is part of the path of a socket.
const RANDOM: usize = 6;

/// A directory that only this user can enter; it goes with the value.
#[derive(Debug)]
pub(crate) struct JobDirectory {
    path: PathBuf,
}

/// Where the jobs of this user are to be: in `XDG_RUNTIME_DIR`, else in a directory of our own for
/// temporary files.
fn base() -> PathBuf {
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
fn another(base: &Path) -> PathBuf {
    let random = hex(&random()[..RANDOM]);
    let mut name = base.as_os_str().to_owned();
    name.push(format!("-{random}"));
    name.into()
}

fn is_random(text: &str) -> bool {
    text.len() == 2 * RANDOM && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Where files are that were brought for the jobs of this user: below this directory, else in one
/// of our own for temporary files. They may be large, so that they are not where the sockets are.
pub(crate) fn files_base(directory: Option<&Path>) -> PathBuf {
    let name = format!("petasos-files-{}", geteuid().as_raw());
    directory.map_or_else(std::env::temp_dir, Path::to_owned).join(name)
}

/// Whether a directory is this user's and closed to all others, and no link.
fn is_private(path: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    if found.is_dir() && found.uid() == geteuid().as_raw() && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    let why = format!("{} is not a directory of this user alone (mode 700)", path.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

impl JobDirectory {
    /// Also gives what is to be said if it is not where it is to be.
    pub(crate) fn make(name: &str) -> io::Result<(JobDirectory, Option<String>)> {
        let made = JobDirectory::below(&base(), name)?;
        let socket = made.0.socket();
        if socket.as_os_str().len() > MAX_SOCKET {
            let why = format!(
                "{} is too long for the path of a socket: set TMPDIR to a shorter one",
                socket.display()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(made)
    }

    /// One of this name in a directory for all jobs of this user, which is made if it is not there;
    /// or in another one beside that, if it is not this user's alone. Then also gives what is to be
    /// said of that.
    pub(crate) fn below(base: &Path, name: &str) -> io::Result<(JobDirectory, Option<String>)> {
        let why = match JobDirectory::right_below(base, name) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => error,
            made => return Ok((made?, None)),
        };
        let other = another(base);
        // Where there may be none either, that is why.
        let Ok(made) = JobDirectory::right_below(&other, name) else { return Err(why) };
        Ok((made, Some(format!("{why}: this job is in {} instead", other.display()))))
    }

    fn right_below(base: &Path, name: &str) -> io::Result<JobDirectory> {
        let path = base.join(name);
        // The last job to end takes the base away, perhaps just now.
        for _ in 0..100 {
            match fs::DirBuilder::new().mode(0o700).create(base) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => is_private(base).or_else(|e| match e.kind() {
                    io::ErrorKind::NotFound => Ok(()),
                    _ => Err(e),
                })?,
            }
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                made => {
                    return made.map(|()| JobDirectory { path });
                }
            }
        }
        Err(io::Error::other(format!("{} goes away again and again", base.display())))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path.join("server")
    }

    /// Puts a file in the place of one of that name, at once for all readers.
    pub(crate) fn renew(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let new = format!("{name}.new");
        self.write(&new, bytes)?;
        fs::rename(self.path.join(new), self.path.join(name))
    }

    /// Writes a file that only this user reads.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut options = fs::OpenOptions::new();
        let mut file =
            options.write(true).create_new(true).mode(0o600).open(self.path.join(name))?;
        file.write_all(bytes)
    }
}

impl Drop for JobDirectory {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Removes the directory of a job, and the base if it was the last.
pub(crate) fn remove(path: &Path) {
    if fs::remove_dir_all(path).is_err() {
        // Files that were brought may have come in directories in which nothing can be removed.
        open_up(path);
        let _ = fs::remove_dir_all(path);
    }
    if let Some(base) = path.parent() {
        let _ = fs::remove_dir(base);
    }
}

/// Has this user write in all directories below, symbolic links not followed.
fn open_up(path: &Path) {
    let is_dir = fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    if !is_dir {
        return;
    }
    let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        open_up(&entry.path());
    }
}

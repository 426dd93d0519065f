//! The private directory of a job on a node: the socket, the token, and what all processes share.
//!
//! Where such directories are others can be before us, as any user may make one of any name where
//! temporary files are: then jobs are in another one beside it, whose name cannot be known before.

use petasos_pmix::server::{base, is_private, other_base};
use rustix::process::geteuid;
use std::{
    fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// The longest path of a socket that the system takes.
const MAX_SOCKET: usize = 107;
/// A directory that only this user can enter; it goes with the value.
#[derive(Debug)]
pub(crate) struct JobDirectory {
    path: PathBuf,
}

/// Where files are that were brought for the jobs of this user: below this directory, else in one
/// of our own for temporary files. They may be large, so that they are not where the sockets are.
pub(crate) fn files_base(directory: Option<&Path>) -> PathBuf {
    let name = format!("petasos-files-{}", geteuid().as_raw());
    directory.map_or_else(std::env::temp_dir, Path::to_owned).join(name)
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
        let other = other_base(base);
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

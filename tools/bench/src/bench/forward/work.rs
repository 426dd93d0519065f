//! Work in a directory, which may be a mount. It runs in a process of its own, so that work that
//! hangs can be killed, and each measurement starts with empty memory.
//!
//! The work is an argument in JSON, the answer a line of JSON: how long it took, without the start
//! of the process and the making of the data.

use super::sample::{self, LONGEST, Pattern};
use crate::{
    exit::{Code, Failure, Outcome},
    output,
};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    time::Instant,
};

/// The hidden subcommand for which `main` calls [`run`].
pub(crate) const SUBCOMMAND: &str = "forward-work";

/// A piece of work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Work {
    /// Writes a file in blocks, and closes it; with `sync`, all is on the disk.
    Write { path: PathBuf, bytes: u64, block: usize, sync: bool },
    /// Reads so many bytes of a file from its beginning.
    Read { path: PathBuf, bytes: u64, block: usize },
    /// Writes the small files of these numbers, with their directories.
    CreateFiles { directory: PathBuf, first: usize, end: usize },
    /// Reads these.
    ReadFiles { directory: PathBuf, first: usize, end: usize },
    /// Reads all files of a directory.
    ReadAll { directory: PathBuf },
    /// Makes so many empty files.
    Create { directory: PathBuf, count: usize },
    /// Stats each of them.
    Stat { directory: PathBuf, count: usize },
    /// Lists them.
    Readdir { directory: PathBuf, count: usize },
    /// Gives each of them another name.
    Rename { directory: PathBuf, count: usize },
    /// Removes all of them, by their new names.
    Unlink { directory: PathBuf, count: usize },
    /// Fails unless both are the same.
    Compare { original: PathBuf, copy: PathBuf },
    /// Fails unless the file begins with what [`Work::Write`] writes.
    Check { path: PathBuf, bytes: u64 },
}

/// What the process prints when it is ready to begin.
pub(super) const READY: &str = "ready";

/// What the process does: the work, once it has passed the start barrier, a file that is locked
/// until all are ready.
pub(crate) fn run(mut arguments: impl Iterator<Item = OsString>) -> Outcome {
    let (work, barrier) =
        (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default());
    let work: Work = serde_json::from_slice(work.as_encoded_bytes()).map_err(|error| {
        let text = format!("this subcommand is for petasos itself: {error}");
        Failure::new(Code::Usage, text).advise("petasos bench forward")
    })?;
    let seconds = match work.go(Path::new(&barrier)) {
        Ok(seconds) => seconds,
        Err(WorkError::Different(what)) => return Err(Failure::new(Code::Mismatch, what)),
        Err(WorkError::System(error)) => {
            return Err(Failure::new(Code::Failed, format!("{error}")));
        }
    };
    output::print(&seconds.to_string())
}

/// Why the work failed.
enum WorkError {
    Different(String),
    System(io::Error),
}

impl From<io::Error> for WorkError {
    fn from(error: io::Error) -> WorkError {
        WorkError::System(error)
    }
}

impl Work {
    /// Does the work, and returns how many seconds it took.
    fn go(&self, barrier: &Path) -> Result<f64, WorkError> {
        let timed = |work: &mut dyn FnMut() -> io::Result<()>| -> Result<f64, WorkError> {
            wait_at(barrier)?;
            let begin = Instant::now();
            work()?;
            Ok(begin.elapsed().as_secs_f64())
        };
        match self {
            Work::Write { path, bytes, block, sync } => {
                let pattern = Pattern::new();
                timed(&mut || write(path, *bytes, *block, *sync, &pattern))
            }
            Work::Read { path, bytes, block } => {
                let mut buffer = vec![1; *block];
                timed(&mut || read(path, *bytes, &mut buffer))
            }
            Work::CreateFiles { directory, first, end } => {
                let pattern = Pattern::new();
                timed(&mut || create_files(directory, *first, *end, &pattern))
            }
            Work::ReadFiles { directory, first, end } => {
                let mut buffer = vec![1; LONGEST];
                timed(&mut || {
                    (*first..*end).try_for_each(|number| {
                        let small = sample::small(number);
                        read(&directory.join(&small.path), small.len as u64, &mut buffer)
                    })
                })
            }
            Work::ReadAll { directory } => {
                let mut buffer = vec![1; LONGEST];
                timed(&mut || read_all(directory, &mut buffer))
            }
            Work::Create { directory, count } => {
                fs::create_dir(directory)?;
                timed(&mut || each(directory, *count, |path| close(File::create_new(path)?)))
            }
            Work::Stat { directory, count } => {
                timed(&mut || each(directory, *count, |path| fs::metadata(path).map(drop)))
            }
            Work::Readdir { directory, count } => timed(&mut || {
                let mut found = 0;
                for entry in fs::read_dir(directory)? {
                    entry?;
                    found += 1;
                }
                if found == *count { Ok(()) } else { Err(short(directory)) }
            }),
            Work::Rename { directory, count } => {
                timed(&mut || each(directory, *count, |path| fs::rename(path, renamed(path))))
            }
            Work::Unlink { directory, count } => {
                timed(&mut || each(directory, *count, |path| fs::remove_file(renamed(path))))
            }
            Work::Compare { original, copy } => {
                match wait_at(barrier).and_then(|()| sample::difference(original, copy))? {
                    None => Ok(0.0),
                    Some(what) => Err(WorkError::Different(what)),
                }
            }
            Work::Check { path, bytes } => {
                match wait_at(barrier).and_then(|()| check(path, *bytes))? {
                    None => Ok(0.0),
                    Some(what) => Err(WorkError::Different(what)),
                }
            }
        }
    }
}

/// Prints that all is prepared, and waits until the barrier opens.
fn wait_at(barrier: &Path) -> io::Result<()> {
    let barrier = File::open(barrier)?;
    let mut out = io::stdout();
    writeln!(out, "{READY}")?;
    out.flush()?;
    Ok(flock(&barrier, FlockOperation::LockShared)?)
}

fn short(path: &Path) -> io::Error {
    let text = format!("{} has fewer entries or bytes than were written", path.display());
    io::Error::new(io::ErrorKind::UnexpectedEof, text)
}

/// Closes a file: an error of a write may be reported only then.
fn close(file: File) -> io::Result<()> {
    Ok(nix::unistd::close(file)?)
}

fn write(path: &Path, bytes: u64, block: usize, sync: bool, pattern: &Pattern) -> io::Result<()> {
    let mut file = File::create(path)?;
    let mut at = 0;
    while at < bytes {
        let len = (bytes - at).min(block.min(LONGEST) as u64) as usize;
        file.write_all(pattern.at(at, len))?;
        at += len as u64;
    }
    if sync {
        file.sync_all()?;
    }
    close(file)
}

fn read(path: &Path, bytes: u64, buffer: &mut [u8]) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut at = 0;
    while at < bytes {
        match file.read(buffer)? {
            0 => return Err(short(path)),
            len => at += len as u64,
        }
    }
    Ok(())
}

fn read_all(directory: &Path, buffer: &mut [u8]) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let len = entry.metadata()?.len();
        read(&entry.path(), len, buffer)?;
    }
    Ok(())
}

fn create_files(root: &Path, first: usize, end: usize, pattern: &Pattern) -> io::Result<()> {
    fs::create_dir_all(root)?;
    let mut directory = PathBuf::new();
    for number in first..end {
        let small = sample::small(number);
        let parent = small.path.parent().unwrap_or(root);
        if directory != parent {
            directory = parent.to_owned();
            fs::create_dir_all(root.join(&directory))?;
        }
        let mut file = File::create_new(root.join(&small.path))?;
        file.write_all(pattern.at(small.begin, small.len))?;
        close(file)?;
    }
    Ok(())
}

fn each(
    directory: &Path,
    count: usize,
    mut work: impl FnMut(&Path) -> io::Result<()>,
) -> io::Result<()> {
    (0..count).try_for_each(|number| work(&directory.join(format!("empty-{number:06}"))))
}

fn renamed(path: &Path) -> PathBuf {
    path.with_extension("renamed")
}

fn check(path: &Path, bytes: u64) -> io::Result<Option<String>> {
    let found = fs::metadata(path)?.len();
    if found != bytes {
        return Ok(Some(format!("{} has {found} of {bytes} bytes", path.display())));
    }
    let (pattern, mut file, mut buffer) = (Pattern::new(), File::open(path)?, vec![0; LONGEST]);
    let mut at = 0;
    while at < bytes {
        let len = (bytes - at).min(LONGEST as u64) as usize;
        file.read_exact(&mut buffer[..len])?;
        if buffer[..len] != *pattern.at(at, len) {
            return Ok(Some(format!("{} is wrong from byte {at} on", path.display())));
        }
        at += len as u64;
    }
    Ok(None)
}

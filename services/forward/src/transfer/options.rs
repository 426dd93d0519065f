//! How trees are moved, and what became of it.

use super::Glob;
use crate::{PathError, client::RemoteError};
use rustix::io::Errno;
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// How trees are moved.
///
/// ```
/// use petasos_forward::transfer::{Glob, Options};
///
/// let mut options = Options::default();
/// // 100 MB a second, from end to end with hashes, without what a compiler makes.
/// options.rate = Some(100_000_000);
/// options.checksum = true;
/// options.exclude = vec![Glob::new(b"*.o"), Glob::new(b"target/")];
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Files on the way at a time. Default: 64.
    pub parallel: usize,
    /// Memory for data on the way here, in bytes. Default: 64 MiB.
    pub memory: u64,
    /// The most bytes a second. Default: no limit.
    pub rate: Option<u64>,
    /// Compares hashes of what was read and what was written, from end to end. Default: no.
    pub checksum: bool,
    /// Resumes an earlier transfer of the same file that was interrupted. Default: yes.
    pub resume: bool,
    /// Files are on the disk before they get their names. Default: no.
    pub durable: bool,
    /// Keeps owners and groups, by their numbers. Default: no.
    pub owner: bool,
    /// Makes FIFOs as well. Default: no, they are left out.
    pub fifos: bool,
    /// What is left out.
    pub exclude: Vec<Glob>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            parallel: 64,
            memory: 64 << 20,
            rate: None,
            checksum: false,
            resume: true,
            durable: false,
            owner: false,
            fifos: false,
            exclude: Vec::new(),
        }
    }
}

impl Options {
    pub(super) fn excludes(&self, path: &[u8], directory: bool) -> bool {
        self.exclude.iter().any(|glob| glob.matches(path, directory))
    }
}

/// What a synchronisation does beyond copying. By default it removes nothing, and is no dry run.
///
/// ```
/// use petasos_forward::{
///     RelPath,
///     client::ConnectOptions,
///     transfer::{self, Connection, Event, Options, Progress, SyncOptions},
/// };
/// use std::time::Duration;
///
/// # use petasos_forward::{server::{Server, ServerConfig}, storage::Local};
/// # use petasos::{Engine, EngineConfig, OpenOptions};
/// # use std::sync::Arc;
/// # let folder = tempfile::tempdir()?;
/// # let storage = Arc::new(Local::open(folder.path())?);
/// # let server =
/// #     Server::listen(storage, &["self://*"], &OpenOptions::default(), ServerConfig::default())?;
/// # let address = &server.addresses()[0];
/// # let endpoint = petasos::open("self://*", &OpenOptions::default())?;
/// # let engine = Engine::new(endpoint, EngineConfig::default());
/// # let here = tempfile::tempdir()?;
/// # std::fs::write(here.path().join("new"), b"hello")?;
/// # std::fs::create_dir(folder.path().join("copy"))?;
/// # std::fs::write(folder.path().join("copy/old"), b"")?;
/// engine.block_on(async {
///     let options = ConnectOptions::default();
///     let retry = Duration::from_secs(5);
///     let connection = Connection::connect(&engine, address, options, retry).await?.into();
///     let mut sync = SyncOptions::default();
///     sync.delete = true;
///     // First see what would be done.
///     sync.dry_run = true;
///     let show = |event: Event<'_>| println!("{event:?}");
///     let (options, progress) = (Options::default(), Progress::new());
///     let to = RelPath::parse(b"copy")?;
///     let report = transfer::sync_to(
///         &connection, here.path(), &to, &options, sync, &progress, Box::new(show),
///     )
///     .await?;
///     assert_eq!((report.files, report.deleted), (1, 1));
///     assert!(folder.path().join("copy/old").exists());
///     Ok(())
/// })
/// # .map_err(|error: Box<dyn std::error::Error>| error)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct SyncOptions {
    /// Removes what the source does not have; what is excluded stays.
    pub delete: bool,
    /// Only reports what would be done.
    pub dry_run: bool,
}

/// What was done.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Report {
    /// Files that came to be, or were replaced.
    pub files: u64,
    /// Directories that are there now.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Names beside the first of files.
    pub hard_links: u64,
    /// FIFOs.
    pub fifos: u64,
    /// Bytes of the files' data that were moved.
    pub bytes: u64,
    /// Bytes that were there from an earlier transfer.
    pub resumed: u64,
    /// Files and links that were the same already.
    pub same: u64,
    /// What was removed.
    pub deleted: u64,
    /// What was left out: sockets, devices, FIFOs without the wish for them.
    pub left_out: u64,
    /// How often the server was connected to again.
    pub reconnected: u64,
    /// What failed. The rest went on.
    pub problems: Vec<Problem>,
    /// Why the transfer ended before its time: the server was lost for good.
    pub lost: Option<RemoteError>,
    /// What had been begun or was about to, and was not moved for that reason. More may not even
    /// have been looked for.
    pub unreached: u64,
    /// How long it took.
    pub took: Duration,
}

/// Something that could not be moved.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Problem {
    /// What: its path within the tree, or as it was named.
    pub path: Vec<u8>,
    /// Why.
    pub cause: Cause,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", String::from_utf8_lossy(&self.path), self.cause)
    }
}

/// Why something could not be moved.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// The server refused it, or there was no answer.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The local system refused it.
    #[error("{doing}: {error}")]
    Local {
        /// What was to be done.
        doing: &'static str,
        /// Why not.
        error: Errno,
    },
    /// Its length or time was another after it was read than before.
    #[error("it changed while it was read")]
    Changed,
    /// What was written is not what was read.
    #[error("what was written is not what was read: the hash differs from byte {0} on")]
    Mismatch(u64),
    /// A name that cannot be used.
    #[error("{0}")]
    Name(#[from] PathError),
    /// Something else has its name.
    #[error("there is something that is no {0}")]
    OtherKind(&'static str),
    /// Its directory could not be made.
    #[error("its directory is not there")]
    Directory,
    /// Not all of the source could be seen, so that nothing is removed in the target.
    #[error("not all of it could be seen: nothing was removed on the other side")]
    Incomplete,
    /// Another transfer writes it.
    #[error("another transfer writes it now")]
    InUse,
}

impl Cause {
    /// For `map_err`.
    pub(super) fn local(doing: &'static str) -> impl Fn(Errno) -> Cause {
        move |error| Cause::Local { doing, error }
    }

    /// Whether the session ended, so that it is worth while to try again in the next one.
    pub(super) fn lost(&self) -> bool {
        matches!(self, Cause::Remote(error) if error.is_lost())
    }
}

/// What a transfer reports while it runs.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// This failed.
    Failed(&'a Problem),
    /// This is left out: its path, and its kind.
    LeftOut(&'a [u8], &'static str),
    /// This would be written.
    WouldWrite(&'a [u8]),
    /// This is, or would be, removed.
    Delete(&'a [u8]),
}

/// A function that is called with each event, on the thread of the engine.
pub type Observer = Box<dyn Fn(Event<'_>)>;

/// How far a transfer is, for other threads to look at.
///
/// ```
/// use petasos_forward::transfer::Progress;
/// use std::sync::Arc;
///
/// let progress = Progress::new();
/// let shown = Arc::clone(&progress);
/// // The other one goes to the transfer.
/// std::thread::spawn(move || println!("{} bytes so far", shown.snapshot().bytes)).join().unwrap();
/// assert!(!progress.snapshot().all_found);
/// ```
#[derive(Debug, Default)]
pub struct Progress {
    pub(super) files: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) files_found: AtomicU64,
    pub(super) bytes_found: AtomicU64,
    pub(super) all_found: AtomicBool,
}

/// How far a transfer is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProgressSnapshot {
    /// Files that are there.
    pub files: u64,
    /// Bytes that are there.
    pub bytes: u64,
    /// Files that were found so far.
    pub files_found: u64,
    /// Bytes in them.
    pub bytes_found: u64,
    /// Whether there are no more.
    pub all_found: bool,
}

impl Progress {
    /// None yet.
    #[must_use]
    pub fn new() -> Arc<Progress> {
        Arc::default()
    }

    /// How far it is now.
    #[must_use]
    pub fn snapshot(&self) -> ProgressSnapshot {
        ProgressSnapshot {
            files: self.files.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            files_found: self.files_found.load(Relaxed),
            bytes_found: self.bytes_found.load(Relaxed),
            all_found: self.all_found.load(Relaxed),
        }
    }

    pub(super) fn found(&self, bytes: u64) {
        self.files_found.fetch_add(1, Relaxed);
        self.bytes_found.fetch_add(bytes, Relaxed);
    }

    pub(super) fn done(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }
}

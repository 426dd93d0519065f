//! What a server keeps files in: a plug-in interface, and the implementations.
//!
//! A storage is called by several threads at a time, and may block. It gets paths that were checked
//! ([`RelPath`]); that symbolic links do not lead out of the export is its own work.

mod local;
#[cfg(feature = "object-store")]
mod object;

pub use local::Local;
#[cfg(feature = "object-store")]
pub use object::Objects;

use crate::{
    FsError, FsResult, RelPath,
    protocol::{
        Abilities, Allocation, Attr, Creation, Extent, Finish, Kind, OpenFlags, Page, RenameMode,
        SetAttr, StageKey, StatFs, XattrMode,
    },
};
use rustix::io::Errno;
use std::{io::IoSlice, sync::Arc, time::Duration};

/// Bytes that one system call writes to a file. Systems choose the size of the pieces of their page
/// cache by that, and large pieces are made of memory that was not used for long: on virtual
/// machines, whose host takes such memory back, writing there takes six times as long.
pub(crate) const AT_ONCE: usize = 128 << 10;

/// A place with files.
///
/// What a storage cannot do fails with `EOPNOTSUPP`, which is what the default methods do.
pub trait Storage: Send + Sync + 'static {
    /// What is exported, for people.
    fn describe(&self) -> String;

    /// What it can do.
    fn abilities(&self) -> Abilities;

    /// Whether work on names and attributes mostly takes microseconds, as where they are in this
    /// machine's memory. Then it is done on the threads that serve the network, for as long as that
    /// is so.
    fn is_quick(&self) -> bool {
        false
    }

    /// Opens a file; never a directory or anything else that is no ordinary file.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn open(
        &self,
        path: &RelPath,
        flags: OpenFlags,
        creation: &Creation,
    ) -> FsResult<Arc<dyn StoredFile>>;

    /// Opens a directory.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn open_dir(&self, path: &RelPath) -> FsResult<Box<dyn StoredDir>>;

    /// The attributes of a path; with `follow`, of what a symbolic link at its end leads to.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn stat(&self, path: &RelPath, follow: bool) -> FsResult<Attr>;

    /// Changes attributes.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn set_attr(&self, path: &RelPath, set: &SetAttr, follow: bool) -> FsResult<Attr>;

    /// Makes a directory.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn make_dir(&self, path: &RelPath, creation: &Creation) -> FsResult<Attr>;

    /// Makes a symbolic link. Its target is up to the client; it is never followed out of the
    /// export.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn make_symlink(&self, path: &RelPath, target: &[u8]) -> FsResult<Attr> {
        let _ = (path, target);
        unsupported("symbolic links")
    }

    /// Makes a FIFO or a socket. Devices are refused.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn make_node(&self, path: &RelPath, kind: Kind, creation: &Creation) -> FsResult<Attr> {
        let _ = (path, kind, creation);
        unsupported("special files")
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn read_link(&self, path: &RelPath) -> FsResult<Vec<u8>> {
        let _ = path;
        unsupported("symbolic links")
    }

    /// Makes a hard link to a file; a symbolic link is not followed.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn hard_link(&self, from: &RelPath, to: &RelPath) -> FsResult<Attr> {
        let _ = (from, to);
        unsupported("hard links")
    }

    /// Renames something.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn rename(&self, from: &RelPath, to: &RelPath, mode: RenameMode) -> FsResult<()>;

    /// Removes a file, or an empty directory.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn remove(&self, path: &RelPath, directory: bool) -> FsResult<()>;

    /// How full it is.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn stat_fs(&self) -> FsResult<StatFs>;

    /// An extended attribute.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn get_xattr(&self, path: &RelPath, name: &[u8]) -> FsResult<Vec<u8>> {
        let _ = (path, name);
        unsupported("extended attributes")
    }

    /// The names of all extended attributes.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn list_xattr(&self, path: &RelPath) -> FsResult<Vec<Vec<u8>>> {
        let _ = path;
        unsupported("extended attributes")
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn set_xattr(
        &self,
        path: &RelPath,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> FsResult<()> {
        let _ = (path, name, value, mode);
        unsupported("extended attributes")
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn remove_xattr(&self, path: &RelPath, name: &[u8]) -> FsResult<()> {
        let _ = (path, name);
        unsupported("extended attributes")
    }

    /// Begins or resumes a file that has no name yet: what was written under the same key
    /// before is there. It can be written and read. Staged files live on the same file system as
    /// the export, where clients do not see them.
    ///
    /// # Errors
    /// If there can be no such file: [`FsError`] with the system's number.
    fn stage(&self, key: &StageKey) -> FsResult<Arc<dyn StoredFile>>;

    /// Gives a staged file its attributes and its name, in one step: a reader sees the old
    /// file or the whole new one. The hash was checked before.
    ///
    /// # Errors
    /// If the name or the attributes cannot be given. The staged file stays.
    fn publish(&self, key: &StageKey, path: &RelPath, finish: &Finish) -> FsResult<Attr>;

    /// Throws a staged file away; nothing if there is none.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn discard(&self, key: &StageKey) -> FsResult<()>;

    /// A whole small file at once, as [`Storage::stage`] and [`Storage::publish`] would do it.
    ///
    /// # Errors
    /// As those two.
    fn put(&self, path: &RelPath, data: &[u8], finish: &Finish) -> FsResult<Attr>;

    /// Throws away what was staged and not touched for so long; gives how many.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn sweep(&self, untouched: Duration) -> FsResult<usize>;
}

/// An open file. Dropping it closes it.
pub trait StoredFile: Send + Sync {
    /// Fills `into` from `offset` on; less only at the end of the file.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> FsResult<usize>;

    /// The same without waiting for a disk; `None` where that is not possible now, or never.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn read_at_once(&self, offset: u64, into: &mut [u8]) -> Option<FsResult<usize>> {
        let _ = (offset, into);
        None
    }

    /// Writes all of these, one after the other from `offset` on; with `APPEND` at the end of the
    /// file. Gives where it ended.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn write_at(&self, offset: u64, from: &[IoSlice<'_>]) -> FsResult<u64>;

    /// Puts what was written onto the disk.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn sync(&self, data_only: bool) -> FsResult<()>;

    /// Its attributes.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn attr(&self) -> FsResult<Attr>;

    /// Changes attributes, its length among them.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn set_attr(&self, set: &SetAttr) -> FsResult<Attr>;

    /// Opens the same file once more, whatever its name is by now; never makes one.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn reopen(&self, flags: OpenFlags) -> FsResult<Arc<dyn StoredFile>> {
        let _ = flags;
        unsupported("second opening of what is open")
    }

    /// Where there is data from `offset` on, in order, at most `most` pieces.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn extents(&self, offset: u64, most: usize) -> FsResult<Vec<Extent>>;

    /// Reserves room, or makes a hole.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn allocate(&self, how: Allocation, range: Extent) -> FsResult<()> {
        let _ = (how, range);
        unsupported("reserving room")
    }

    /// An extended attribute.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn get_xattr(&self, name: &[u8]) -> FsResult<Vec<u8>> {
        let _ = name;
        unsupported("extended attributes")
    }

    /// The names of all extended attributes.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn list_xattr(&self) -> FsResult<Vec<Vec<u8>>> {
        unsupported("extended attributes")
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn set_xattr(&self, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        let _ = (name, value, mode);
        unsupported("extended attributes")
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn remove_xattr(&self, name: &[u8]) -> FsResult<()> {
        let _ = name;
        unsupported("extended attributes")
    }
}

/// An open directory.
pub trait StoredDir: Send {
    /// The next entries, at most so many. What comes and goes meanwhile may be there or not; all
    /// else comes exactly once.
    ///
    /// # Errors
    /// [`FsError`] with the number that the system call gives.
    fn next(&mut self, most: usize) -> FsResult<Page>;
}

fn unsupported<T>(what: &str) -> FsResult<T> {
    Err(FsError::new(Errno::OPNOTSUPP, format!("this storage has no {what}")))
}

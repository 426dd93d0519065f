//! Leases: a client keeps its locks as long as it sends something from time to time.
//!
//! A client that waits for a lock takes it from one that has been silent for longer than the lease.
//! What that client still writes through the file with which the lock went is refused, until it
//! unlocks or closes the file: so it learns of the loss before it can spoil what others write.

use crate::{
    FsError, FsResult,
    protocol::{Allocation, Attr, Extent, OpenFlags, SetAttr, XattrMode},
    storage::StoredFile,
};
use rustix::io::Errno;
use std::{
    io::IoSlice,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard, TryLockError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

/// Whether the locks that went with an open file were taken away.
#[derive(Debug, Default)]
pub(super) struct LockLoss {
    declared: AtomicBool,
    /// Shared by writers. The thread that declares the loss waits for them; engines never wait.
    writing: RwLock<()>,
}

impl LockLoss {
    /// Whether it is not.
    pub(super) fn check(&self) -> FsResult<()> {
        match self.declared.load(SeqCst) {
            true => Err(lock_lost()),
            false => Ok(()),
        }
    }

    /// Leave to write. As long as it is kept, no lock is taken.
    fn to_write(&self) -> FsResult<RwLockReadGuard<'_, ()>> {
        let writing = match self.writing.try_read() {
            Ok(writing) => writing,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // It is being declared.
            Err(TryLockError::WouldBlock) => return Err(lock_lost()),
        };
        self.check().map(|()| writing)
    }

    /// Nothing more is written; waits for what is being written now. Blocks.
    pub(super) fn declare(&self) {
        self.declared.store(true, SeqCst);
        drop(self.writing.write().unwrap_or_else(PoisonError::into_inner));
    }

    /// Tells the client once, and lets it go on.
    pub(super) fn settle(&self) -> FsResult<()> {
        match self.declared.swap(false, SeqCst) {
            true => Err(lock_lost()),
            false => Ok(()),
        }
    }
}

fn lock_lost() -> FsError {
    FsError::new(Errno::NOLCK, "a lock on this file was taken: its client was silent for too long")
}

/// A file that is not written once its locks were taken.
pub(super) struct Leased {
    pub(super) file: Arc<dyn StoredFile>,
    pub(super) lock_loss: Arc<LockLoss>,
}

impl StoredFile for Leased {
    fn read_at(&self, offset: u64, into: &mut [u8]) -> FsResult<usize> {
        self.file.read_at(offset, into)
    }
    fn read_at_once(&self, offset: u64, into: &mut [u8]) -> Option<FsResult<usize>> {
        self.file.read_at_once(offset, into)
    }
    fn write_at(&self, offset: u64, from: &[IoSlice<'_>]) -> FsResult<u64> {
        let _writing = self.lock_loss.to_write()?;
        self.file.write_at(offset, from)
    }
    fn sync(&self, data_only: bool) -> FsResult<()> {
        self.file.sync(data_only)
    }
    fn attr(&self) -> FsResult<Attr> {
        self.file.attr()
    }
    fn set_attr(&self, set: &SetAttr) -> FsResult<Attr> {
        let _writing = set.size.map(|_| self.lock_loss.to_write()).transpose()?;
        self.file.set_attr(set)
    }
    fn reopen(&self, flags: OpenFlags) -> FsResult<Arc<dyn StoredFile>> {
        self.file.reopen(flags)
    }
    fn extents(&self, offset: u64, most: usize) -> FsResult<Vec<Extent>> {
        self.file.extents(offset, most)
    }
    fn allocate(&self, how: Allocation, range: Extent) -> FsResult<()> {
        let _writing = self.lock_loss.to_write()?;
        self.file.allocate(how, range)
    }
    fn get_xattr(&self, name: &[u8]) -> FsResult<Vec<u8>> {
        self.file.get_xattr(name)
    }
    fn list_xattr(&self) -> FsResult<Vec<Vec<u8>>> {
        self.file.list_xattr()
    }
    fn set_xattr(&self, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        self.file.set_xattr(name, value, mode)
    }
    fn remove_xattr(&self, name: &[u8]) -> FsResult<()> {
        self.file.remove_xattr(name)
    }
}

//! Locks of parts of files, which the server keeps: so they hold between mounts.
//!
//! The kernel does not say whether a lock is one of `flock` or of `fcntl`; both are the server's
//! byte-range locks, as with NFS.

use super::{files::Open, fs::Fs};
use crate::{client::RemoteError, protocol::Lock};
use petasos::CallError;
use rustix::io::Errno;
use std::{fs, rc::Rc, time::Duration};

/// How often to check whether a signal is pending for a process that waits for a lock.
const SIGNAL_CHECK: Duration = Duration::from_millis(250);

/// Kinds of locks, as of `fcntl(2)`.
const READ: i32 = 0;
const WRITE: i32 = 1;
const UNLOCK: i32 = 2;

/// A lock as the kernel describes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LockRequest {
    pub(super) owner: u64,
    pub(super) start: u64,
    /// The last byte.
    pub(super) end: u64,
    pub(super) kind: i32,
    pub(super) pid: u32,
}

impl LockRequest {
    fn lock(self) -> Lock {
        let (owner, pid, start) = (self.owner, self.pid, self.start);
        // The largest offset that there is stands for the end of the file.
        let end = if self.end >= i64::MAX as u64 { u64::MAX } else { self.end + 1 };
        Lock { owner, pid, exclusive: self.kind == WRITE, start, end }
    }
}

impl Fs {
    /// The lock that would be in the way: where it begins and ends, its kind, and whose it is.
    pub(super) async fn test_lock(
        &self,
        handle: u64,
        request: LockRequest,
    ) -> Result<(u64, u64, i32, u32), Errno> {
        let open = self.files.get(handle)?;
        let found = open.file.test_lock(request.lock()).await;
        Ok(match found.map_err(|error| self.file_errno(&open, &error))? {
            None => (request.start, request.end, UNLOCK, 0),
            Some(lock) => {
                let last = lock.end.saturating_sub(1).min(i64::MAX as u64);
                (lock.start, last, if lock.exclusive { WRITE } else { READ }, lock.pid)
            }
        })
    }

    /// Locks or unlocks. What was written is at the server before a lock is free, and what others
    /// wrote while they had it is seen by the process that gets it.
    pub(super) async fn set_lock(
        self: &Rc<Fs>,
        handle: u64,
        request: LockRequest,
        wait: bool,
        thread: u32,
    ) -> Result<(), Errno> {
        let open = self.files.get(handle)?;
        let lock = request.lock();
        if request.kind == UNLOCK {
            self.drain(&open.inode).await;
            return open.file.unlock(lock).await.map_err(|error| self.file_errno(&open, &error));
        }
        let held = open.inode.owners.borrow().contains(&request.owner);
        loop {
            let limit = wait.then_some(SIGNAL_CHECK);
            match open.file.lock_within(lock, limit).await {
                Ok(()) => break,
                Err(RemoteError::Call(CallError::Deadline { .. })) if wait => {
                    if !has_signal(thread) {
                        continue;
                    }
                    // It may just have been given to us.
                    if !held {
                        let _ = open.file.unlock(lock).await;
                    }
                    return Err(Errno::INTR);
                }
                Err(error) => return Err(self.file_errno(&open, &error)),
            }
        }
        open.inode.owners.borrow_mut().insert(request.owner);
        self.revalidate(&open).await
    }

    /// Has the kernel give up its pages of a file that another client has changed, and see how long
    /// that is now. What was missing beside it may be there: the lock may be for that, too, as with
    /// the journal of a database.
    async fn revalidate(self: &Rc<Fs>, open: &Open) -> Result<(), Errno> {
        self.drain(&open.inode).await;
        let attr = open.file.stat().await.map_err(|error| self.file_errno(open, &error))?;
        let ino = open.inode.ino;
        self.table.borrow_mut().update(ino, &attr)?;
        if !open.inode.is_still(&attr) {
            open.inode.each_open(|open| open.read_ahead.borrow_mut().clear());
            self.kernel.invalidate(ino).await;
        }
        let shown = self.table.borrow().shows(ino, attr.size);
        if !shown {
            let path = self.table.borrow().below(ino);
            // Without a name here it cannot be asked for.
            if let Ok(path) = path {
                self.kernel.refresh(ino, path).await;
            }
        }
        let parents = self.table.borrow().parents(ino);
        self.kernel.invalidate_missing(parents).await;
        Ok(())
    }

    /// Frees all that an owner has of a file, as the first `close` of it does.
    pub(super) async fn give_up_locks(&self, open: &Open, owner: u64) {
        if !open.inode.owners.borrow_mut().remove(&owner) {
            return;
        }
        let lock = Lock { owner, pid: 0, exclusive: false, start: 0, end: u64::MAX };
        if let Err(error) = open.file.unlock(lock).await {
            tracing::debug!(%error, "locks end with their session");
        }
    }
}

/// Whether a signal waits for a thread that would end a system call. A request cannot be taken back
/// by the kernel here; so the process that waits for a lock is checked, or it could not be
/// killed.
fn has_signal(thread: u32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{thread}/status")) else {
        // The thread is gone, or not to be seen from here: then it cannot be looked after.
        return thread != 0;
    };
    let signals = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
    };
    (signals("SigPnd:") | signals("ShdPnd:")) & !signals("SigBlk:") != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_locks() {
        let request = LockRequest { owner: 1, start: 5, end: 9, kind: WRITE, pid: 2 };
        let lock = request.lock();
        assert_eq!((lock.start, lock.end, lock.exclusive), (5, 10, true));
        let all = LockRequest { end: i64::MAX as u64, kind: READ, ..request };
        assert_eq!((all.lock().end, all.lock().exclusive), (u64::MAX, false));
    }

    #[test]
    fn a_process_that_waits_is_looked_after() {
        let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
        assert!(!has_signal(thread));
        assert!(has_signal(u32::MAX), "a thread that is gone");
    }
}

//! Calls about open files, with data that travels within the call.

use super::{
    call::{Call, sane, short_enough, within_reach},
    config::INLINE,
    descriptors::Descriptor,
    errors::stopped,
    files::{Open, OpenFile},
    gather::{self, Gathered},
    latencies::WorkKind,
    leases::{Leased, LockLoss},
    names::checked_creation,
};
use crate::{
    FsError, FsResult, RelPath,
    protocol::{Allocation, Attr, Creation, Extent, OpenFlags},
    semaphore::Semaphore,
};
use bytes::Bytes;
use rustix::io::Errno;
use std::{
    io::IoSlice,
    sync::{Arc, atomic::Ordering::Relaxed},
};

/// Up to so many bytes, a read that need not wait is done on the engine's thread, and a write that
/// usually does not.
const AT_ONCE: usize = 64 << 10;

/// Pieces of data that one answer tells of.
const EXTENTS: usize = 1024;

/// What changes something.
const CHANGING: [OpenFlags; 4] =
    [OpenFlags::WRITE, OpenFlags::CREATE, OpenFlags::TRUNCATE, OpenFlags::APPEND];

impl Call {
    pub(super) async fn open(
        &self,
        path: &[u8],
        flags: OpenFlags,
        creation: Creation,
    ) -> FsResult<(u64, Attr, Option<Attr>)> {
        self.may_open(flags)?;
        let (path, creation) = (RelPath::parse(path)?, checked_creation(creation)?);
        let (place, descriptor) = self.reserve()?;
        let makes = flags.has(OpenFlags::CREATE) || flags.has(OpenFlags::TRUNCATE);
        let kind = if makes { WorkKind::Make } else { WorkKind::Open };
        let leases = self.core.config.limits.lease.is_some();
        let above = Some(self.above()).filter(|_| flags.has(OpenFlags::CREATE));
        let opened = self.run_short(kind, move |storage| {
            let file = storage.open(&path, flags, &creation)?;
            let attr = file.attr()?;
            let directory = above.and_then(|above| above.of(storage, &path));
            let file = OpenFile::new(file, flags, attr.ino, None, leases, descriptor);
            Ok((file, attr, directory))
        });
        let (file, attr, directory) = opened.await?;
        Ok((place.fill(Open::File(Arc::new(file)))?, attr, directory))
    }

    pub(super) async fn reopen(&self, number: u64, flags: OpenFlags) -> FsResult<(u64, Attr)> {
        self.may_open(flags)?;
        let open = self.file(number)?;
        if open.staged.is_some() {
            return Err(FsError::new(Errno::BUSY, "a file that is staged is open once"));
        }
        let (place, descriptor) = self.reserve()?;
        let leases = self.core.config.limits.lease.is_some();
        let opened = self.run_short(WorkKind::Open, move |_| {
            let file = open.file.reopen(flags)?;
            let attr = file.attr()?;
            Ok((OpenFile::new(file, flags, attr.ino, None, leases, descriptor), attr))
        });
        let (file, attr) = opened.await?;
        Ok((place.fill(Open::File(Arc::new(file)))?, attr))
    }

    /// Whether these flags make sense, and this client may have what they ask for.
    fn may_open(&self, flags: OpenFlags) -> FsResult<()> {
        if CHANGING.iter().any(|changing| flags.has(*changing)) {
            self.to_change()?;
        }
        let writes = flags.has(OpenFlags::WRITE);
        let only_writes = [OpenFlags::TRUNCATE, OpenFlags::APPEND];
        if !flags.is_known()
            || !(writes || flags.has(OpenFlags::READ))
            || !writes && only_writes.iter().any(|needs| flags.has(*needs))
        {
            let detail = format!("these flags make no sense: {:#x}", flags.0);
            return Err(FsError::new(Errno::INVAL, detail));
        }
        Ok(())
    }

    pub(super) async fn close(&self, number: u64) -> FsResult<()> {
        let open = self.session.files().remove(number)?;
        let staged = match &open {
            Open::File(file) => {
                self.core.locks.close(file.ino, self.session.id, number);
                file.staged.is_some()
            }
            Open::Directory(_) => false,
        };
        if staged {
            // Its key is to be free when the caller hears of this.
            let closed = self.run(0, move |_| {
                drop(open);
                Ok(())
            });
            return closed.await;
        }
        self.core.workers.close(self.session.id, open);
        Ok(())
    }

    pub(super) async fn read(&self, number: u64, offset: u64, len: u64) -> FsResult<Bytes> {
        let file = self.file(number)?;
        file.to_read()?;
        within_reach(offset, 0)?;
        let len = len.min(INLINE).min(i64::MAX as u64 - offset);
        if len == 0 {
            return Ok(Bytes::new());
        }
        self.earn(len).await;
        if len as usize <= AT_ONCE
            && let Some(read) = gather::read_at_once(&*file.file, offset, len as usize)
        {
            self.count_read(read.as_ref().map_or(0, |data| data.len() as u64));
            return read;
        }
        let memory = self.memory(len).await?;
        let (key, answer) = file.gather.add_read(offset, len as usize, memory);
        let (core, session) = (Arc::clone(&self.core), Arc::clone(&self.session));
        let undone = Arc::clone(&file.gather);
        let work = move || {
            let Gathered { count, bytes } = file.gather.read(key, &*file.file);
            for counters in [&core.total, &session.counters] {
                counters.read.fetch_add(bytes, Relaxed);
                counters.gathered.fetch_add(count as u64, Relaxed);
            }
        };
        self.core.workers.run_detached(&self.session, len, work, move || undone.forget(key));
        answer.await.unwrap_or_else(|_| Err(not_done()))
    }

    pub(super) async fn write(&self, number: u64, offset: u64, data: Bytes) -> FsResult<u64> {
        self.to_change()?;
        let file = self.file(number)?;
        file.to_write()?;
        short_enough(data.len())?;
        let len = data.len() as u64;
        let appends = file.appends();
        within_reach(if appends { 0 } else { offset }, len)?;
        if data.is_empty() {
            return Ok(offset);
        }
        self.earn(len).await;
        let memory = self.admit(len).await?;
        if appends {
            let _turn = file.appending.acquire().await;
            let end = self.run(len, move |_| {
                let _memory = memory;
                file.file.write_at(offset, &[IoSlice::new(&data)])
            });
            let end = end.await?;
            self.count_written(len);
            return Ok(end);
        }
        if data.len() <= AT_ONCE && self.core.workers.can_do_at_once(WorkKind::Write) {
            let written = self.core.workers.do_at_once(&self.session, WorkKind::Write, |_| {
                file.file.write_at(offset, &[IoSlice::new(&data)])
            })?;
            self.count_written(len);
            return Ok(written);
        }
        let (key, answer) = file.gather.add_write(offset, data, memory);
        let (core, session) = (Arc::clone(&self.core), Arc::clone(&self.session));
        let undone = Arc::clone(&file.gather);
        let work = move || {
            let write = || file.gather.write(key, &*file.file);
            let Gathered { count, bytes } = core.workers.watch(WorkKind::Write, write);
            for counters in [&core.total, &session.counters] {
                counters.written.fetch_add(bytes, Relaxed);
                counters.gathered.fetch_add(count as u64, Relaxed);
            }
        };
        self.core.workers.run_detached(&self.session, len, work, move || undone.forget(key));
        answer.await.unwrap_or_else(|_| Err(not_done()))
    }

    pub(super) async fn sync(&self, number: u64, data_only: bool) -> FsResult<()> {
        let file = self.file(number)?;
        self.run(0, move |_| file.file.sync(data_only)).await
    }

    pub(super) async fn allocate(
        &self,
        number: u64,
        how: Allocation,
        range: Extent,
    ) -> FsResult<()> {
        self.to_change()?;
        let file = self.file(number)?;
        file.to_write()?;
        sane(range)?;
        self.run(0, move |_| file.file.allocate(how, range)).await
    }

    pub(super) async fn extents(&self, number: u64, offset: u64) -> FsResult<Vec<Extent>> {
        let file = self.file(number)?;
        within_reach(offset, 0)?;
        self.run(0, move |_| {
            let mut extents = file.file.extents(offset, EXTENTS)?;
            extents.truncate(EXTENTS);
            Ok(extents)
        })
        .await
    }
}

impl OpenFile {
    pub(super) fn new(
        file: Arc<dyn crate::storage::StoredFile>,
        flags: OpenFlags,
        ino: u64,
        staged: Option<super::files::Staged>,
        leases: bool,
        descriptor: Descriptor,
    ) -> OpenFile {
        let appending = Semaphore::new(1, usize::MAX);
        let lock_loss = leases.then(Arc::<LockLoss>::default);
        let file = match &lock_loss {
            Some(lock_loss) => Arc::new(Leased { file, lock_loss: Arc::clone(lock_loss) }),
            None => file,
        };
        let (gather, _descriptor) = (Arc::default(), descriptor);
        OpenFile { file, flags, ino, gather, appending, staged, lock_loss, _descriptor }
    }
}

/// What was to be done by a thread was not.
fn not_done() -> FsError {
    stopped().about(|| "the storage panicked, or the session ended".to_owned())
}

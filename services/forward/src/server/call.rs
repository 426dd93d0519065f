//! A call that is served: whose it is, and what it may do.

use super::{
    budget::{InCall, Memory},
    config::INLINE,
    core::Core,
    descriptors::Descriptor,
    fair_share::Share,
    files::OpenFile,
    latencies::WorkKind,
    penalty,
    session::{Reserved, Session},
};
use crate::{FsError, FsResult, RelPath, protocol::Extent, semaphore::Permit, storage::Storage};
use rustix::io::Errno;
use std::{
    cell::Cell,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

/// A call that is served. Dropping it ends it.
pub(super) struct Call {
    pub(super) core: Arc<Core>,
    pub(super) session: Arc<Session>,
    /// Leave to be served: as a call of its session, and of its client.
    permit: Cell<Option<(Permit, Share)>>,
    /// What came within the call, as long as that counts as waiting.
    early: Cell<Option<InCall>>,
}

impl Call {
    /// Begins a call, when it is its turn; so many bytes that are worth counting came with it.
    pub(super) async fn begin(core: &Arc<Core>, session: u64, carried: usize) -> FsResult<Call> {
        let session = core.sessions.get(session)?;
        core.total.calls.fetch_add(1, Relaxed);
        session.counters.calls.fetch_add(1, Relaxed);
        session.calls.fetch_add(1, Relaxed);
        if core.config.limits.lease.is_some() {
            session.hear();
        }
        let (permit, early) = (Cell::default(), Cell::default());
        let call = Call { core: Arc::clone(core), session, permit, early };
        if carried > 0 {
            match core.budget.arrive(call.session.client, carried as u64) {
                Ok(early) => call.early.set(Some(early)),
                Err(error) => return call.end(Err(error)),
            }
        }
        let Some(permit) = call.session.serving.acquire().await else {
            let most = core.config.limits.calls_per_session;
            let detail = format!("the limit of {most} calls of a session, and as many that wait");
            return call.end(Err(FsError::new(Errno::NOBUFS, detail)));
        };
        let share = core.serving.take(call.session.client).await;
        call.permit.set(Some((permit, share)));
        if call.session.penalty.applies() {
            core.timer.sleep(penalty::PAUSE).await;
        }
        Ok(call)
    }

    /// Takes part in the count of what failed.
    pub(super) fn end<T>(&self, result: FsResult<T>) -> FsResult<T> {
        self.session.penalty.count(result.as_ref().err().map(FsError::errno));
        if result.is_err() {
            self.core.total.failed.fetch_add(1, Relaxed);
            self.session.counters.failed.fetch_add(1, Relaxed);
        }
        result
    }

    /// Lets other calls in: this one waits for something that they may have to bring about.
    pub(super) fn step_aside(&self) {
        self.permit.take();
    }

    /// Refuses what changes something, where nothing can be changed.
    pub(super) fn to_change(&self) -> FsResult<()> {
        match self.core.config.read_only {
            true => Err(FsError::new(Errno::ROFS, "the export is read-only")),
            false => Ok(()),
        }
    }

    /// Does what blocks, in its turn; see
    /// [`Workers::run`](super::workers::Workers::run).
    pub(super) async fn run<T: Send + 'static>(
        &self,
        bytes: u64,
        work: impl FnOnce(&dyn Storage) -> FsResult<T> + Send + 'static,
    ) -> FsResult<T> {
        self.core.workers.run(&self.session, bytes, work).await
    }

    /// Does what may block, but usually does not; see
    /// [`Workers::run_short`](super::workers::Workers::run_short).
    pub(super) async fn run_short<T: Send + 'static>(
        &self,
        kind: WorkKind,
        work: impl FnOnce(&dyn Storage) -> FsResult<T> + Send + 'static,
    ) -> FsResult<T> {
        self.core.workers.run_short(&self.session, kind, work).await
    }

    /// An open file.
    pub(super) fn file(&self, number: u64) -> FsResult<Arc<OpenFile>> {
        self.session.files().file(number)
    }

    /// A place, and a descriptor, for something that is about to be opened.
    pub(super) fn reserve(&self) -> FsResult<(Reserved, Descriptor)> {
        let place = Reserved::new(&self.session)?;
        Ok((place, self.core.descriptors.take(self.session.client)?))
    }

    /// Waits until another block of the client's may be on the way.
    pub(super) async fn turn_to_move(&self) -> Share {
        self.core.moving.take(self.session.client).await
    }

    /// Waits for memory: of the client's share.
    pub(super) async fn memory(&self, bytes: u64) -> FsResult<Memory> {
        self.core.budget.acquire(self.session.client, bytes).await
    }

    /// Waits until what came within the call counts as memory in use.
    pub(super) async fn admit(&self, bytes: u64) -> FsResult<Memory> {
        let memory = self.memory(bytes).await;
        self.early.take();
        memory
    }

    /// Waits until so many bytes may be moved.
    pub(super) async fn earn(&self, bytes: u64) {
        if let Some(rate) = &self.session.rate {
            let wait = rate.take(bytes);
            if wait > Duration::ZERO {
                self.core.timer.sleep(wait).await;
            }
        }
    }

    pub(super) fn count_read(&self, bytes: u64) {
        self.core.total.read.fetch_add(bytes, Relaxed);
        self.session.counters.read.fetch_add(bytes, Relaxed);
    }

    pub(super) fn count_written(&self, bytes: u64) {
        self.core.total.written.fetch_add(bytes, Relaxed);
        self.session.counters.written.fetch_add(bytes, Relaxed);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.session.calls.fetch_sub(1, Relaxed);
    }
}

/// A path of something below the root: what is made, moved or removed.
pub(super) fn entry(bytes: &[u8]) -> FsResult<RelPath> {
    let path = RelPath::parse(bytes)?;
    match path.is_root() {
        true => Err(FsError::new(Errno::BUSY, "the root of the export stays what it is")),
        false => Ok(path),
    }
}

/// The same of what is made anew: the root is there already.
pub(super) fn fresh(bytes: &[u8]) -> FsResult<RelPath> {
    let path = RelPath::parse(bytes)?;
    match path.is_root() {
        true => Err(FsError::new(Errno::EXIST, "the root of the export is there")),
        false => Ok(path),
    }
}

/// Data within a call is no longer than was agreed.
pub(super) fn short_enough(len: usize) -> FsResult<()> {
    match len as u64 <= INLINE {
        true => Ok(()),
        false => Err(FsError::new(
            Errno::MSGSIZE,
            format!("{len} bytes of data in a call, where the most are {INLINE}"),
        )),
    }
}

/// A part of a file that can be.
pub(super) fn within_reach(offset: u64, len: u64) -> FsResult<()> {
    match offset.checked_add(len) {
        Some(end) if end <= i64::MAX as u64 => Ok(()),
        _ => Err(FsError::new(Errno::FBIG, format!("no file reaches to {offset} + {len}"))),
    }
}

/// A part of a file that can be, and is not empty.
pub(super) fn sane(range: Extent) -> FsResult<()> {
    if range.len == 0 {
        return Err(FsError::new(Errno::INVAL, "a range of no bytes"));
    }
    within_reach(range.offset, range.len)
}

//! Work of a storage for sessions: by the threads of the pool where it blocks, on the engine's
//! thread where it is quick.

use super::{
    descriptors::Descriptors,
    errors::stopped,
    files::Open,
    latencies::{Latencies, WorkKind},
    pool::Pool,
    session::Session,
};
use crate::{FsError, FsResult, storage::Storage};
use futures_channel::oneshot;
use rustix::io::Errno;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

/// A storage, and the threads that work on it.
pub(super) struct Workers {
    storage: Arc<dyn Storage>,
    pool: Arc<Pool>,
    latencies: Latencies,
    descriptors: Arc<Descriptors>,
}

impl Workers {
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        pool: Arc<Pool>,
        descriptors: Arc<Descriptors>,
    ) -> Arc<Workers> {
        Arc::new(Workers { storage, pool, latencies: Latencies::default(), descriptors })
    }

    pub(super) fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// How many threads there are.
    pub(super) fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// How much work waits.
    pub(super) fn queued(&self) -> usize {
        self.pool.queued()
    }

    /// Drops what waits, and waits for the end of what is done now.
    pub(super) fn stop(&self) {
        self.pool.stop();
    }

    /// Does what blocks, on a thread of the pool. Dropping the future gives it up if it has not
    /// begun; work that has begun ends, and its result is dropped.
    pub(super) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        session: &Arc<Session>,
        bytes: u64,
        work: impl FnOnce(&dyn Storage) -> FsResult<T> + Send + 'static,
    ) -> FsResult<T> {
        let (sender, receiver) = oneshot::channel();
        let (workers, of) = (Arc::clone(self), Arc::clone(session));
        let work = move || {
            if !sender.is_canceled() {
                let _ = sender.send(workers.work(&of, work));
            }
        };
        self.pool.push(session.client, bytes, Box::new(work));
        receiver.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// Does what may block, but usually does not: at once, unless it has been slow lately, or other
    /// work waits.
    pub(super) async fn run_short<T: Send + 'static>(
        self: &Arc<Self>,
        session: &Arc<Session>,
        kind: WorkKind,
        work: impl FnOnce(&dyn Storage) -> FsResult<T> + Send + 'static,
    ) -> FsResult<T> {
        if self.can_do_at_once(kind) {
            return self.do_at_once(session, kind, work);
        }
        let workers = Arc::clone(self);
        self.run(session, 0, move |storage| workers.latencies.watch(kind, || work(storage))).await
    }

    /// Whether to do something at once: it has been quick lately, and nothing else waits.
    pub(super) fn can_do_at_once(&self, kind: WorkKind) -> bool {
        self.storage.is_quick() && self.latencies.is_quick(kind) && self.pool.queued() == 0
    }

    /// Does something on this thread.
    pub(super) fn do_at_once<T>(
        &self,
        session: &Arc<Session>,
        kind: WorkKind,
        work: impl FnOnce(&dyn Storage) -> FsResult<T>,
    ) -> FsResult<T> {
        self.work(session, |storage| self.latencies.watch(kind, || work(storage)))
    }

    /// Works on files for an open session.
    fn work<T>(
        &self,
        session: &Arc<Session>,
        work: impl FnOnce(&dyn Storage) -> FsResult<T>,
    ) -> FsResult<T> {
        let _busy = session.busy()?;
        let worked = catch_unwind(AssertUnwindSafe(|| work(&*self.storage)));
        worked.unwrap_or_else(panicked).map_err(|error| self.descriptors.explain(error))
    }

    /// Does what blocks, for an open session; `work` reports its result itself. Calls `undone`
    /// instead where the session has ended.
    pub(super) fn run_detached(
        &self,
        session: &Arc<Session>,
        bytes: u64,
        work: impl FnOnce() + Send + 'static,
        undone: impl FnOnce() + Send + 'static,
    ) {
        let of = Arc::clone(session);
        let work = move || match of.busy() {
            Ok(_busy) => {
                if catch_unwind(AssertUnwindSafe(work)).is_err() {
                    tracing::error!("the storage panicked");
                }
            }
            Err(_) => undone(),
        };
        self.pool.push(session.client, bytes, Box::new(work));
    }

    /// Closes a file of a session.
    pub(super) fn close(self: &Arc<Self>, session: u64, file: Open) {
        if self.can_do_at_once(WorkKind::Close) {
            return self.latencies.watch(WorkKind::Close, || drop(file));
        }
        let workers = Arc::clone(self);
        let close = move || workers.latencies.watch(WorkKind::Close, || drop(file));
        self.pool.push(session, 0, Box::new(close));
    }

    /// Does something of which it is to be known how long it takes.
    pub(super) fn watch<T>(&self, kind: WorkKind, work: impl FnOnce() -> T) -> T {
        self.latencies.watch(kind, work)
    }

    /// Has what was staged thrown away that was not touched for `lifetime`.
    pub(super) fn sweep(&self, lifetime: Duration) {
        let storage = Arc::clone(&self.storage);
        let work = move || match catch_unwind(AssertUnwindSafe(|| storage.sweep(lifetime))) {
            Ok(Ok(0)) => {}
            Ok(Ok(count)) => tracing::info!(count, "staged files removed that were not used"),
            Ok(Err(error)) => tracing::warn!(%error, "staged files cannot be looked through"),
            Err(_) => tracing::error!("the storage panicked"),
        };
        self.pool.push(0, 0, Box::new(work));
    }
}

fn panicked<T>(_: Box<dyn std::any::Any + Send>) -> FsResult<T> {
    Err(FsError::new(Errno::IO, "the storage panicked"))
}

#[cfg(test)]
mod tests {
    use super::{
        super::{config::Limits, locks::Locks, session::Introduction, sessions::Sessions},
        *,
    };
    use crate::{RelPath, protocol::*, storage::*};
    use petasos::fabric::Address;

    /// Nothing at all.
    struct Nothing;

    impl Storage for Nothing {
        fn describe(&self) -> String {
            "nothing".to_owned()
        }
        fn abilities(&self) -> Abilities {
            Abilities::default()
        }
        fn open(&self, _: &RelPath, _: OpenFlags, _: &Creation) -> FsResult<Arc<dyn StoredFile>> {
            panic!("as a storage must not")
        }
        fn open_dir(&self, _: &RelPath) -> FsResult<Box<dyn StoredDir>> {
            Err(Errno::NOENT.into())
        }
        fn stat(&self, _: &RelPath, _: bool) -> FsResult<Attr> {
            Err(Errno::NOENT.into())
        }
        fn set_attr(&self, _: &RelPath, _: &SetAttr, _: bool) -> FsResult<Attr> {
            Err(Errno::NOENT.into())
        }
        fn make_dir(&self, _: &RelPath, _: &Creation) -> FsResult<Attr> {
            Err(Errno::NOSPC.into())
        }
        fn rename(&self, _: &RelPath, _: &RelPath, _: RenameMode) -> FsResult<()> {
            Err(Errno::NOENT.into())
        }
        fn remove(&self, _: &RelPath, _: bool) -> FsResult<()> {
            Err(Errno::NOENT.into())
        }
        fn stat_fs(&self) -> FsResult<StatFs> {
            Ok(StatFs::default())
        }
        fn stage(&self, _: &StageKey) -> FsResult<Arc<dyn StoredFile>> {
            Err(Errno::NOSPC.into())
        }
        fn publish(&self, _: &StageKey, _: &RelPath, _: &Finish) -> FsResult<Attr> {
            Err(Errno::NOENT.into())
        }
        fn discard(&self, _: &StageKey) -> FsResult<()> {
            Ok(())
        }
        fn put(&self, _: &RelPath, _: &[u8], _: &Finish) -> FsResult<Attr> {
            Err(Errno::NOSPC.into())
        }
        fn sweep(&self, _: Duration) -> FsResult<usize> {
            Ok(0)
        }
    }

    fn workers_and_sessions() -> (Arc<Workers>, Sessions) {
        let pool = Arc::new(Pool::start(2, Duration::ZERO).unwrap());
        let sessions = Sessions::new(&Limits::default(), &Arc::new(Locks::new(8)), &pool);
        let workers = Workers::new(Arc::new(Nothing), pool, Descriptors::new(2));
        (workers, sessions.unwrap())
    }

    fn begun(sessions: &Sessions) -> Arc<Session> {
        let peer = Address::parse("self://client").unwrap();
        let (id, ticket) = sessions.offer(&peer).unwrap();
        let client = Introduction { name: String::new(), peer, directories: false };
        let _ended = sessions.begin(id, &ticket, client).unwrap();
        sessions.get(id).unwrap()
    }

    #[test]
    fn a_storage_that_panics_is_an_error() {
        let (workers, sessions) = workers_and_sessions();
        let session = begun(&sessions);
        for _ in 0..10 {
            let path = RelPath::root();
            let open = workers.run(&session, 0, move |storage| {
                storage.open(&path, OpenFlags::READ, &Creation::default()).map(drop)
            });
            let failed = wait_for(open).unwrap_err();
            assert!(failed.errno() == Errno::IO && failed.detail().contains("panicked"));
        }
        sessions.end_all();
        let late = workers.run(&session, 0, |_| Ok(()));
        assert_eq!(wait_for(late).unwrap_err().errno(), Errno::STALE);
    }

    /// Waits for what another thread does.
    fn wait_for<T>(future: impl Future<Output = T>) -> T {
        use futures_util::FutureExt;
        let mut future = Box::pin(future);
        loop {
            if let Some(output) = future.as_mut().now_or_never() {
                return output;
            }
            std::thread::yield_now();
        }
    }
}

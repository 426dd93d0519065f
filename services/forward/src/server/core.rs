//! What all endpoints of a server share.

use super::{
    blocks::Blocks,
    budget::Budget,
    config::{INLINE, ServerConfig, WINDOW},
    counters::Counting,
    descriptors::Descriptors,
    errors::{stale, stopped},
    fair_share::FairShare,
    files::{Keys, Open},
    locks::Locks,
    pace::{Chore, Pace},
    pool::Pool,
    session::{End, Session},
    tickets::Tickets,
};
use crate::{
    FsError, FsResult,
    protocol::{Hello, Status, Ticket, VERSION, Welcome},
    storage::Storage,
    timer::TimerThread,
};
use futures_channel::oneshot;
use petasos::fabric::Address;
use rustix::io::Errno;
use std::{
    collections::HashMap,
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Blocks on the way at a time, unless there are more clients.
const MOVING: usize = 32;

/// What a piece of work costs beside its bytes, in bytes.
const WORK: u64 = 16 << 10;

/// How often to look for staged files that were left.
const SWEEP: Duration = Duration::from_secs(3600);

/// One client has no more than this part of the sessions.
const SHARE: usize = 4;

/// The longest name of a client, in bytes.
const LONGEST_NAME: usize = 256;

type Sessions = HashMap<u64, Arc<Session>>;

/// What all endpoints of a server share.
pub(super) struct Core {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) config: ServerConfig,
    pub(super) pool: Pool,
    pub(super) pace: Pace,
    pub(super) budget: Arc<Budget>,
    pub(super) blocks: Arc<Blocks>,
    /// Calls that are served, and blocks on the way.
    pub(super) serving: Arc<FairShare>,
    pub(super) moving: Arc<FairShare>,
    pub(super) timer: Arc<TimerThread>,
    pub(super) locks: Locks,
    pub(super) keys: Arc<Keys>,
    pub(super) descriptors: Arc<Descriptors>,
    pub(super) total: Counting,
    sessions: RwLock<Sessions>,
    tickets: Tickets,
    lost: AtomicU64,
    stopping: AtomicBool,
    since: Instant,
    this: Weak<Core>,
}

impl Core {
    /// Starts its threads.
    pub(super) fn start(storage: Arc<dyn Storage>, config: ServerConfig) -> io::Result<Arc<Core>> {
        let timer = Arc::new(TimerThread::start()?);
        let pool = Pool::start(config.threads, config.spin)?;
        let budget = Budget::new(config.limits.memory);
        let tickets = Tickets::new()?;
        let core = Arc::new_cyclic(|this| Core {
            storage,
            pool,
            pace: Pace::default(),
            blocks: Blocks::new(Arc::clone(&budget), Arc::clone(&timer)),
            budget,
            serving: FairShare::new(config.limits.calls_per_session),
            moving: FairShare::new(MOVING),
            timer,
            locks: Locks::new(config.limits.locks_per_session),
            keys: Arc::default(),
            descriptors: Descriptors::new(config.threads),
            total: Counting::default(),
            sessions: RwLock::default(),
            tickets,
            lost: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            since: Instant::now(),
            this: Weak::clone(this),
            config,
        });
        if !core.config.read_only {
            core.sweep();
        }
        Ok(core)
    }

    fn sessions(&self) -> RwLockReadGuard<'_, Sessions> {
        self.sessions.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offers a session to a client that says hello. The server keeps nothing of that.
    pub(super) fn offer(&self, hello: &Hello, to: &Address) -> FsResult<Welcome> {
        if hello.version != VERSION {
            let detail = format!("the server speaks version {VERSION}, you {}", hello.version);
            return Err(FsError::new(Errno::PROTO, detail));
        }
        let session = {
            let sessions = self.sessions();
            // Others may be faster, but most clients for which there is no room learn it here.
            self.check_room(&sessions, to)?;
            self.fresh_id(&sessions)?
        };
        Ok(Welcome {
            session,
            ticket: self.tickets.offer(session, to),
            read_only: self.config.read_only,
            inline: INLINE,
            window: WINDOW,
            lease_ms: self.config.limits.lease.map_or(0, |lease| lease.as_millis() as u64),
            calls: u32::try_from(self.config.limits.calls_per_session).unwrap_or(u32::MAX),
            abilities: self.storage.abilities(),
        })
    }

    /// Begins a session that was offered; gives what will say that it ended.
    pub(super) fn begin(
        &self,
        id: u64,
        ticket: &Ticket,
        mut name: String,
        peer: Address,
        directories: bool,
    ) -> FsResult<oneshot::Receiver<FsResult<()>>> {
        self.tickets.check(id, ticket, &peer)?;
        let end = (0..=LONGEST_NAME).rev().find(|at| name.is_char_boundary(*at));
        name.truncate(end.unwrap_or(0));
        let mut sessions = self.sessions.write().unwrap_or_else(PoisonError::into_inner);
        if sessions.contains_key(&id) {
            return Err(FsError::new(Errno::BUSY, "the session is held already"));
        }
        let before = self.check_room(&sessions, &peer)?;
        let (mut session, ended) = Session::new(id, before, name, peer, self);
        session.directories = directories;
        sessions.insert(id, Arc::new(session));
        Ok(ended)
    }

    /// Whether another session can begin, by this client; gives one that it has already.
    fn check_room<'a>(
        &self,
        sessions: &'a Sessions,
        peer: &Address,
    ) -> FsResult<Option<&'a Session>> {
        if self.stopping.load(Relaxed) {
            return Err(stopped());
        }
        let limit = self.config.limits.sessions;
        if sessions.len() >= limit {
            let detail = format!("the limit of {limit} sessions is reached");
            return Err(FsError::new(Errno::AGAIN, detail));
        }
        let most = (limit / SHARE).max(1);
        let mut of_this = sessions.values().filter(|session| session.peer == *peer).peekable();
        let one = of_this.peek().map(|session| &***session);
        if of_this.count() >= most {
            let detail = format!("the limit of {most} sessions of one client is reached");
            return Err(FsError::new(Errno::AGAIN, detail));
        }
        Ok(one)
    }

    fn fresh_id(&self, sessions: &Sessions) -> FsResult<u64> {
        loop {
            let id =
                getrandom::u64().map_err(|error| FsError::new(Errno::IO, error.to_string()))?;
            if id != 0 && !sessions.contains_key(&id) {
                return Ok(id);
            }
        }
    }

    /// A session.
    pub(super) fn session(&self, id: u64) -> FsResult<Arc<Session>> {
        let found = self.sessions().get(&id).cloned();
        found.ok_or_else(|| if self.stopping.load(Relaxed) { stopped() } else { stale() })
    }

    /// Ends a session, if there is one.
    pub(super) fn end(&self, id: u64, how: End) {
        let mut sessions = self.sessions.write().unwrap_or_else(PoisonError::into_inner);
        let Some(session) = sessions.remove(&id) else { return };
        drop(sessions);
        if how == End::Lost {
            self.lost.fetch_add(1, Relaxed);
            tracing::info!(peer = %session.peer, "a session ended without a farewell");
        }
        session.end(self, how);
    }

    /// Ends all sessions, and takes no more.
    pub(super) fn end_all(&self) {
        let all = {
            let mut sessions = self.sessions.write().unwrap_or_else(PoisonError::into_inner);
            self.stopping.store(true, Relaxed);
            std::mem::take(&mut *sessions)
        };
        all.into_values().for_each(|session| session.end(self, End::Stop));
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
        let (core, of) = (Arc::clone(self), Arc::clone(session));
        let work = move || {
            if !sender.is_canceled() {
                let _ = sender.send(core.work(&of, work));
            }
        };
        self.pool.push(session.client, bytes + WORK, Box::new(work));
        receiver.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// Does what may block, but usually does not: at once, unless it has been slow lately, or other
    /// work waits.
    pub(super) async fn run_short<T: Send + 'static>(
        self: &Arc<Self>,
        session: &Arc<Session>,
        chore: Chore,
        work: impl FnOnce(&dyn Storage) -> FsResult<T> + Send + 'static,
    ) -> FsResult<T> {
        if self.can_do_at_once(chore) {
            return self.do_at_once(session, chore, work);
        }
        let core = Arc::clone(self);
        self.run(session, 0, move |storage| core.pace.watch(chore, || work(storage))).await
    }

    /// Whether to do something at once: it has been quick lately, and nothing else waits.
    pub(super) fn can_do_at_once(&self, chore: Chore) -> bool {
        self.storage.is_quick() && self.pace.is_quick(chore) && self.pool.queued() == 0
    }

    /// Does something on this thread.
    pub(super) fn do_at_once<T>(
        self: &Arc<Self>,
        session: &Arc<Session>,
        chore: Chore,
        work: impl FnOnce(&dyn Storage) -> FsResult<T>,
    ) -> FsResult<T> {
        self.work(session, |storage| self.pace.watch(chore, || work(storage)))
    }

    /// Works on files for an open session.
    fn work<T>(
        self: &Arc<Self>,
        session: &Arc<Session>,
        work: impl FnOnce(&dyn Storage) -> FsResult<T>,
    ) -> FsResult<T> {
        let _busy = session.busy(self)?;
        let worked = catch_unwind(AssertUnwindSafe(|| work(&*self.storage)));
        worked.unwrap_or_else(panicked).map_err(|error| self.descriptors.explain(error))
    }

    /// Does what blocks, for an open session; `work` reports its result itself. Calls `undone`
    /// instead where the session has ended.
    pub(super) fn run_detached(
        self: &Arc<Self>,
        session: &Arc<Session>,
        bytes: u64,
        work: impl FnOnce() + Send + 'static,
        undone: impl FnOnce() + Send + 'static,
    ) {
        let (core, of) = (Arc::clone(self), Arc::clone(session));
        let work = move || match of.busy(&core) {
            Ok(_busy) => {
                if catch_unwind(AssertUnwindSafe(work)).is_err() {
                    tracing::error!("the storage panicked");
                }
            }
            Err(_) => undone(),
        };
        self.pool.push(session.client, bytes + WORK, Box::new(work));
    }

    /// Closes a file of a session.
    pub(super) fn close(self: &Arc<Self>, session: u64, file: Open) {
        if self.can_do_at_once(Chore::Close) {
            return self.pace.watch(Chore::Close, || drop(file));
        }
        let core = Arc::clone(self);
        let close = move || core.pace.watch(Chore::Close, || drop(file));
        self.pool.push(session, WORK, Box::new(close));
    }

    /// Closes all files of a session: that may block.
    pub(super) fn close_all(&self, session: u64, files: Vec<Open>) {
        self.pool.push(session, WORK, Box::new(move || drop(files)));
    }

    /// Throws away what was staged long ago; now, and from time to time.
    fn sweep(&self) {
        let (storage, lifetime) = (Arc::clone(&self.storage), self.config.stage_lifetime);
        let work = move || match catch_unwind(AssertUnwindSafe(|| storage.sweep(lifetime))) {
            Ok(Ok(0)) => {}
            Ok(Ok(count)) => tracing::info!(count, "staged files removed that were not used"),
            Ok(Err(error)) => tracing::warn!(%error, "staged files cannot be looked through"),
            Err(_) => tracing::error!("the storage panicked"),
        };
        self.pool.push(0, WORK, Box::new(work));
        let this = Weak::clone(&self.this);
        self.timer.later(SWEEP, move || {
            if let Some(core) = this.upgrade() {
                core.sweep();
            }
        });
    }

    /// What the server does.
    pub(super) fn status(&self) -> Status {
        let mut sessions: Vec<_> = self.sessions().values().cloned().collect();
        sessions.sort_by_key(|session| session.since);
        Status {
            export: self.storage.describe(),
            read_only: self.config.read_only,
            uptime_ms: self.since.elapsed().as_millis() as u64,
            memory: self.budget.status(),
            early: self.budget.early(),
            queued: self.pool.queued() as u64,
            threads: self.pool.threads() as u32,
            total: self.total.read(),
            lost: self.lost.load(Relaxed),
            sessions: sessions.iter().map(|session| session.status(self)).collect(),
        }
    }
}

fn panicked<T>(_: Box<dyn std::any::Any + Send>) -> FsResult<T> {
    Err(FsError::new(Errno::IO, "the storage panicked"))
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Core({})", self.storage.describe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RelPath, protocol::*, storage::*};

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

    fn a_client() -> Address {
        Address::parse("self://client").unwrap()
    }

    fn begun(core: &Core) -> u64 {
        let welcome = core.offer(&Hello { version: VERSION }, &a_client()).unwrap();
        let begun = core.begin(welcome.session, &welcome.ticket, String::new(), a_client(), false);
        begun.map(|_| welcome.session).unwrap()
    }

    #[test]
    fn a_hello_alone_takes_no_room() {
        let mut config = ServerConfig::default();
        config.limits.sessions = 4;
        let core = Core::start(Arc::new(Nothing), config).unwrap();
        let hello = Hello { version: VERSION };
        for number in 0..1000 {
            let client = Address::parse(&format!("self://{number}")).unwrap();
            core.offer(&hello, &client).unwrap();
        }
        assert_eq!(core.status().sessions.len(), 0);
        let welcome = core.offer(&hello, &a_client()).unwrap();
        let begin = |from| core.begin(welcome.session, &welcome.ticket, String::new(), from, false);
        let thief = Address::parse("self://thief").unwrap();
        assert_eq!(begin(thief).unwrap_err().errno(), Errno::STALE);
        let _held = begin(a_client()).unwrap();
        assert_eq!(begin(a_client()).unwrap_err().errno(), Errno::BUSY);
        assert!(core.session(welcome.session).is_ok());
        assert_eq!(core.offer(&hello, &a_client()).unwrap_err().errno(), Errno::AGAIN);
    }

    #[test]
    fn a_storage_that_panics_is_an_error() {
        let core = Core::start(Arc::new(Nothing), ServerConfig::default()).unwrap();
        let session = core.session(begun(&core)).unwrap();
        for _ in 0..10 {
            let path = RelPath::root();
            let open = core.run(&session, 0, move |storage| {
                storage.open(&path, OpenFlags::READ, &Creation::default()).map(drop)
            });
            let failed = wait_for(open).unwrap_err();
            assert!(failed.errno() == Errno::IO && failed.detail().contains("panicked"));
        }
        core.end_all();
        let late = core.run(&session, 0, |_| Ok(()));
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

//! What all endpoints of a server share.

use super::{
    blocks::Blocks,
    budget::Budget,
    config::{INLINE, ServerConfig, WINDOW},
    counters::Counting,
    descriptors::Descriptors,
    fair_share::FairShare,
    files::Keys,
    locks::Locks,
    pool::Pool,
    sessions::Sessions,
    workers::Workers,
};
use crate::{
    FsError, FsResult,
    protocol::{Hello, Status, VERSION, Welcome},
    storage::Storage,
    timer::TimerThread,
};
use petasos::fabric::Address;
use rustix::io::Errno;
use std::{
    fmt, io,
    sync::Arc,
    time::{Duration, Instant},
};

/// Blocks on the way at a time, unless there are more clients.
const MOVING: usize = 32;

/// How often to look for staged files that were left.
const SWEEP: Duration = Duration::from_secs(3600);

/// What all endpoints of a server share.
pub(super) struct Core {
    pub(super) config: ServerConfig,
    pub(super) workers: Arc<Workers>,
    pub(super) sessions: Sessions,
    pub(super) budget: Arc<Budget>,
    pub(super) blocks: Arc<Blocks>,
    /// Calls that are served, and blocks on the way.
    pub(super) serving: Arc<FairShare>,
    pub(super) moving: Arc<FairShare>,
    pub(super) timer: Arc<TimerThread>,
    pub(super) locks: Arc<Locks>,
    pub(super) keys: Arc<Keys>,
    pub(super) descriptors: Arc<Descriptors>,
    pub(super) total: Counting,
    since: Instant,
}

impl Core {
    /// Starts its threads.
    pub(super) fn start(storage: Arc<dyn Storage>, config: ServerConfig) -> io::Result<Arc<Core>> {
        let timer = Arc::new(TimerThread::start()?);
        let pool = Arc::new(Pool::start(config.threads, config.spin)?);
        let budget = Budget::new(config.limits.memory);
        let locks = Arc::new(Locks::new(config.limits.locks_per_session));
        let descriptors = Descriptors::new(config.threads);
        let core = Arc::new(Core {
            sessions: Sessions::new(&config.limits, &locks, &pool)?,
            workers: Workers::new(storage, pool, Arc::clone(&descriptors)),
            blocks: Blocks::new(Arc::clone(&budget), Arc::clone(&timer)),
            budget,
            serving: FairShare::new(config.limits.calls_per_session),
            moving: FairShare::new(MOVING),
            timer,
            locks,
            keys: Arc::default(),
            descriptors,
            total: Counting::default(),
            since: Instant::now(),
            config,
        });
        if !core.config.read_only {
            core.sweep();
        }
        Ok(core)
    }

    /// Ends sessions first, then what works for them.
    pub(super) fn stop(&self) {
        self.sessions.end_all();
        // What threads do for calls comes to its end, what waits is answered as refused.
        self.timer.stop();
        self.workers.stop();
    }

    /// Offers a session to a client that says hello. The server keeps nothing of that.
    pub(super) fn offer(&self, hello: &Hello, to: &Address) -> FsResult<Welcome> {
        if hello.version != VERSION {
            let detail = format!("the server speaks version {VERSION}, you {}", hello.version);
            return Err(FsError::new(Errno::PROTO, detail));
        }
        let (session, ticket) = self.sessions.offer(to)?;
        Ok(Welcome {
            session,
            ticket,
            read_only: self.config.read_only,
            inline: INLINE,
            window: WINDOW,
            lease_ms: self.config.limits.lease.map_or(0, |lease| lease.as_millis() as u64),
            calls: u32::try_from(self.config.limits.calls_per_session).unwrap_or(u32::MAX),
            abilities: self.workers.storage().abilities(),
        })
    }

    /// Throws away what was staged long ago; now, and from time to time.
    fn sweep(self: &Arc<Self>) {
        self.workers.sweep(self.config.stage_lifetime);
        let this = Arc::downgrade(self);
        self.timer.later(SWEEP, move || {
            if let Some(core) = this.upgrade() {
                core.sweep();
            }
        });
    }

    /// What the server does.
    pub(super) fn status(&self) -> Status {
        let sessions = self.sessions.by_age();
        Status {
            export: self.workers.storage().describe(),
            read_only: self.config.read_only,
            uptime_ms: self.since.elapsed().as_millis() as u64,
            memory: self.budget.status(),
            early: self.budget.early(),
            queued: self.workers.queued() as u64,
            threads: self.workers.threads() as u32,
            total: self.total.read(),
            lost: self.sessions.lost(),
            sessions: sessions.iter().map(|session| session.status()).collect(),
        }
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Core({})", self.workers.storage().describe())
    }
}

//! A session: a client's life here.

use super::{
    config::Limits,
    counters::Counting,
    errors::{stale, stopped},
    files::{Files, Open},
    locks::Locks,
    penalty::Penalty,
    pool::Pool,
    rate::Rate,
};
use crate::{FsResult, protocol::SessionStatus, semaphore::Semaphore};
use futures_channel::oneshot;
use petasos::fabric::Address;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// The longest name of a client, in bytes.
const MAX_NAME: usize = 256;

/// What a client says of itself when it begins a session, and where it is.
#[derive(Debug)]
pub(super) struct Introduction {
    pub(super) name: String,
    pub(super) peer: Address,
    /// It wants to know what directories are in which it gives or takes names.
    pub(super) directories: bool,
}

/// A client's life here.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: u64,
    /// Whose it is: sessions of one address are of one client, and share its turns and its memory.
    pub(super) client: u64,
    pub(super) penalty: Arc<Penalty>,
    name: String,
    pub(super) peer: Address,
    /// The client wants to know what directories are in which it gives or takes names.
    pub(super) directories: bool,
    pub(super) since: Instant,
    /// When something was last heard from its client, in microseconds after the beginning.
    heard_us: AtomicU64,
    pub(super) counters: Counting,
    /// Calls under way.
    pub(super) calls: AtomicU64,
    /// Calls that are served now.
    pub(super) serving: Arc<Semaphore>,
    pub(super) rate: Option<Rate>,
    files: Mutex<Files>,
    life: Mutex<Life>,
    locks: Arc<Locks>,
    pool: Arc<Pool>,
}

#[derive(Debug, Default)]
struct Life {
    /// Things being done that must not outlive the session.
    busy: usize,
    /// Tells the call that holds the session that it has ended.
    held: Option<oneshot::Sender<FsResult<()>>>,
    over: bool,
}

/// How a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The client said so.
    Goodbye,
    /// The client is gone.
    Lost,
    /// The server ends.
    Stop,
}

impl Session {
    /// A session, perhaps of a client that has one, and what will say that it ended.
    pub(super) fn new(
        id: u64,
        before: Option<&Session>,
        client: Introduction,
        limits: &Limits,
        locks: Arc<Locks>,
        pool: Arc<Pool>,
    ) -> (Session, oneshot::Receiver<FsResult<()>>) {
        let Introduction { mut name, peer, directories } = client;
        let end = (0..=MAX_NAME).rev().find(|at| name.is_char_boundary(*at));
        name.truncate(end.unwrap_or(0));
        let (sender, ended) = oneshot::channel();
        let session = Session {
            id,
            client: before.map_or(id, |session| session.client),
            penalty: before.map(|session| Arc::clone(&session.penalty)).unwrap_or_default(),
            name,
            peer,
            directories,
            since: Instant::now(),
            heard_us: AtomicU64::new(0),
            counters: Counting::default(),
            calls: AtomicU64::new(0),
            serving: Semaphore::new(limits.calls_per_session, limits.calls_per_session),
            rate: limits.rate.map(Rate::new),
            files: Mutex::new(Files::new(limits.files_per_session)),
            life: Mutex::new(Life { held: Some(sender), ..Life::default() }),
            locks,
            pool,
        };
        (session, ended)
    }

    /// Something came from its client.
    pub(super) fn hear(&self) {
        self.heard_us.store(self.since.elapsed().as_micros() as u64, Relaxed);
    }

    /// How long nothing has come.
    pub(super) fn silent_for(&self) -> Duration {
        let heard = Duration::from_micros(self.heard_us.load(Relaxed));
        self.since.elapsed().saturating_sub(heard)
    }

    /// What it has open.
    pub(super) fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins something that must not outlive the session; an error if that is over. The rest of a
    /// session ends when nothing of the kind goes on any more.
    pub(super) fn busy(self: &Arc<Self>) -> FsResult<Busy> {
        let mut life = self.life();
        if life.over {
            return Err(stale());
        }
        life.busy += 1;
        Ok(Busy(Arc::clone(self)))
    }

    /// Ends it: nothing new begins. Files are closed, and locks free, when what goes on has ended.
    pub(super) fn end(&self, how: End) {
        let (held, idle) = {
            let mut life = self.life();
            if life.over {
                return;
            }
            life.over = true;
            (life.held.take(), life.busy == 0)
        };
        self.locks.give_up(self.id);
        if idle {
            self.finish();
        }
        if let Some(sender) = held {
            let _ = sender.send(if how == End::Stop { Err(stopped()) } else { Ok(()) });
        }
    }

    fn finish(&self) {
        let files = self.files().end();
        self.locks.end(self.id);
        if !files.is_empty() {
            // Closing may block.
            self.pool.push(self.id, 0, Box::new(move || drop(files)));
        }
    }

    /// Takes the locks that go with an open file. Blocks.
    pub(super) fn take_locks(&self, ino: u64, number: u64) {
        let file = self.files().file(number);
        if let Ok(file) = file
            && let Some(lock_loss) = &file.lock_loss
        {
            lock_loss.declare();
        }
        self.locks.close(ino, self.id, number);
    }

    pub(super) fn status(&self) -> SessionStatus {
        SessionStatus {
            name: self.name.clone(),
            peer: self.peer.to_string(),
            age_ms: self.since.elapsed().as_millis() as u64,
            files: self.files().len() as u64,
            locks: self.locks.count(self.id) as u64,
            calls: self.calls.load(Relaxed),
            counters: self.counters.read(),
        }
    }
}

/// Something that goes on and must not outlive its session.
#[derive(Debug)]
pub(super) struct Busy(Arc<Session>);

impl Drop for Busy {
    fn drop(&mut self) {
        let last = {
            let mut life = self.0.life();
            life.busy -= 1;
            life.over && life.busy == 0
        };
        if last {
            self.0.finish();
        }
    }
}

/// A place among the open files, for something that is about to be opened.
#[derive(Debug)]
pub(super) struct Reserved(Arc<Session>);

impl Reserved {
    pub(super) fn new(session: &Arc<Session>) -> FsResult<Reserved> {
        session.files().reserve()?;
        Ok(Reserved(Arc::clone(session)))
    }

    /// Gives what was opened a number.
    pub(super) fn fill(self, open: Open) -> FsResult<u64> {
        self.0.files().insert(open)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.0.files().unreserve();
    }
}

//! The sessions of a server: which there are, and which may begin.

use super::{
    config::Limits,
    errors::{stale, stopped},
    locks::Locks,
    pool::Pool,
    session::{End, Introduction, Session},
    tickets::Tickets,
};
use crate::{FsError, FsResult, protocol::Ticket};
use futures_channel::oneshot;
use petasos::fabric::Address;
use rustix::io::Errno;
use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// One client has no more than this part of the sessions.
const SHARE: usize = 4;

/// All sessions.
pub(super) struct Sessions {
    state: RwLock<State>,
    tickets: Tickets,
    limits: Limits,
    /// What a session needs to end: its locks are free then, and its files closed.
    locks: Arc<Locks>,
    pool: Arc<Pool>,
    lost: AtomicU64,
}

#[derive(Default)]
struct State {
    sessions: HashMap<u64, Arc<Session>>,
    /// The server ends: no session begins any more.
    stopping: bool,
}

impl Sessions {
    /// None yet.
    pub(super) fn new(
        limits: &Limits,
        locks: &Arc<Locks>,
        pool: &Arc<Pool>,
    ) -> io::Result<Sessions> {
        Ok(Sessions {
            state: RwLock::default(),
            tickets: Tickets::new()?,
            limits: limits.clone(),
            locks: Arc::clone(locks),
            pool: Arc::clone(pool),
            lost: AtomicU64::new(0),
        })
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offers a session to a client: its number, and what the client shows to begin it. Nothing is
    /// kept of that.
    pub(super) fn offer(&self, to: &Address) -> FsResult<(u64, Ticket)> {
        let session = {
            let state = self.read();
            // Others may be faster, but most clients for which there is no room learn it here.
            state.check_room(to, &self.limits)?;
            state.fresh_id()?
        };
        Ok((session, self.tickets.offer(session, to)))
    }

    /// Begins a session that was offered; gives what will say that it ended.
    pub(super) fn begin(
        &self,
        id: u64,
        ticket: &Ticket,
        client: Introduction,
    ) -> FsResult<oneshot::Receiver<FsResult<()>>> {
        self.tickets.check(id, ticket, &client.peer)?;
        let mut state = self.write();
        if state.sessions.contains_key(&id) {
            return Err(FsError::new(Errno::BUSY, "the session is held already"));
        }
        let before = state.check_room(&client.peer, &self.limits)?;
        let (locks, pool) = (Arc::clone(&self.locks), Arc::clone(&self.pool));
        let (session, ended) = Session::new(id, before, client, &self.limits, locks, pool);
        state.sessions.insert(id, Arc::new(session));
        Ok(ended)
    }

    /// A session.
    pub(super) fn get(&self, id: u64) -> FsResult<Arc<Session>> {
        let state = self.read();
        let found = state.sessions.get(&id).cloned();
        found.ok_or_else(|| if state.stopping { stopped() } else { stale() })
    }

    /// Ends a session, if there is one.
    pub(super) fn end(&self, id: u64, how: End) {
        let session = self.write().sessions.remove(&id);
        let Some(session) = session else { return };
        if how == End::Lost {
            self.lost.fetch_add(1, Relaxed);
            tracing::info!(peer = %session.peer, "a session ended without a goodbye");
        }
        session.end(how);
    }

    /// Ends all sessions, and takes no more.
    pub(super) fn end_all(&self) {
        let all = {
            let mut state = self.write();
            state.stopping = true;
            std::mem::take(&mut state.sessions)
        };
        all.into_values().for_each(|session| session.end(End::Stop));
    }

    /// All, the oldest first.
    pub(super) fn by_age(&self) -> Vec<Arc<Session>> {
        let mut sessions: Vec<_> = self.read().sessions.values().cloned().collect();
        sessions.sort_by_key(|session| session.since);
        sessions
    }

    /// How many ended without a goodbye.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
}

impl State {
    /// Whether another session can begin, by this client; gives one that it has already.
    fn check_room(&self, peer: &Address, limits: &Limits) -> FsResult<Option<&Session>> {
        if self.stopping {
            return Err(stopped());
        }
        let limit = limits.sessions;
        if self.sessions.len() >= limit {
            let detail = format!("the limit of {limit} sessions is reached");
            return Err(FsError::new(Errno::AGAIN, detail));
        }
        let most = (limit / SHARE).max(1);
        let mut of_this = self.sessions.values().filter(|session| session.peer == *peer).peekable();
        let one = of_this.peek().map(|session| &***session);
        if of_this.count() >= most {
            let detail = format!("the limit of {most} sessions of one client is reached");
            return Err(FsError::new(Errno::AGAIN, detail));
        }
        Ok(one)
    }

    fn fresh_id(&self) -> FsResult<u64> {
        loop {
            let id =
                getrandom::u64().map_err(|error| FsError::new(Errno::IO, error.to_string()))?;
            if id != 0 && !self.sessions.contains_key(&id) {
                return Ok(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn sessions(most: usize) -> Sessions {
        let limits = Limits { sessions: most, ..Limits::default() };
        let pool = Arc::new(Pool::start(1, Duration::ZERO).unwrap());
        Sessions::new(&limits, &Arc::new(Locks::new(8)), &pool).unwrap()
    }

    fn client(name: &str) -> Introduction {
        let peer = Address::parse(&format!("self://{name}")).unwrap();
        Introduction { name: String::new(), peer, directories: false }
    }

    #[test]
    fn a_hello_alone_takes_no_room() {
        let sessions = sessions(4);
        for number in 0..1000 {
            sessions.offer(&client(&number.to_string()).peer).unwrap();
        }
        assert_eq!(sessions.by_age().len(), 0);
        let (session, ticket) = sessions.offer(&client("client").peer).unwrap();
        let begin = |from| sessions.begin(session, &ticket, client(from));
        assert_eq!(begin("thief").unwrap_err().errno(), Errno::STALE);
        let _held = begin("client").unwrap();
        assert_eq!(begin("client").unwrap_err().errno(), Errno::BUSY);
        assert!(sessions.get(session).is_ok());
        assert_eq!(sessions.offer(&client("client").peer).unwrap_err().errno(), Errno::AGAIN);
    }
}

//! Accepting connections, also when no descriptor is left for them.
//!
//! A listener with a connection that cannot be accepted stays ready: a program that keeps polling
//! it uses a whole core, and the peer waits in vain. So one descriptor is kept in reserve. When
//! there is no other, it is closed for a moment, in which the connection is accepted, gets the
//! reason, and is closed; then the listener is not polled for [`Acceptor::PAUSE`].

use crate::Time;
use rustix::{
    event::{EventfdFlags, eventfd},
    io::Errno,
    net::{SocketFlags, accept_with},
    process::{Resource, getrlimit},
};
use std::{
    fmt,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

/// Accepts connections for a transport that listens.
#[derive(Debug)]
pub struct Acceptor {
    /// Given up to take a connection that cannot be kept.
    spare: Option<OwnedFd>,
    /// When the listener is to be polled again; `NEVER` while it is.
    resumes: Time,
    /// When the shortage may be logged again.
    logs: Time,
    tries: u64,
    turned_away: u64,
}

/// The result of accepting.
#[derive(Debug)]
pub enum Accepted {
    /// A connection, which neither blocks nor is inherited by other programs.
    Connection(OwnedFd),
    /// None waits.
    None,
    /// The process or the system has no descriptor or memory for one. The listener is not to be
    /// polled before [`Acceptor::resumes`].
    Exhausted(Shortage),
}

/// Of what there was not enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage(Errno);

impl Acceptor {
    /// How long a listener is not polled after a connection could not be kept.
    pub const PAUSE: Duration = Duration::from_millis(100);

    /// How often a shortage is logged at most.
    const LOG: Duration = Duration::from_secs(10);

    /// Connections that are turned away at a time.
    const AWAY: usize = 16;

    /// Takes a descriptor in reserve, if there is one.
    #[must_use]
    pub fn new() -> Acceptor {
        let (resumes, logs) = (Time::NEVER, Time::ZERO);
        Acceptor { spare: spare(), resumes, logs, tries: 0, turned_away: 0 }
    }

    /// Takes the next connection. Where it cannot be kept, `tell` may say so to processes that
    /// wait, before they are cut off; and nothing more is taken until [`Acceptor::resumes`].
    pub fn accept(
        &mut self,
        listener: impl AsFd,
        now: Time,
        tell: impl Fn(&OwnedFd, Shortage),
    ) -> Accepted {
        if self.is_paused(now) {
            return Accepted::None;
        }
        self.tries += 1;
        let shortage = match take(&listener) {
            Ok(connection) => {
                self.resumes = Time::NEVER;
                if self.spare.is_none() {
                    self.spare = spare();
                }
                return Accepted::Connection(connection);
            }
            Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                Shortage(error)
            }
            // The peer has given up, or a signal came: what else there is shows at the next poll.
            Err(_) => return Accepted::None,
        };
        self.resumes = now.after(Self::PAUSE);
        for _ in 0..Self::AWAY {
            drop(self.spare.take());
            self.tries += 1;
            let Ok(connection) = take(&listener) else { break };
            tell(&connection, shortage);
            drop(connection);
            self.turned_away += 1;
            self.spare = spare();
        }
        self.spare = self.spare.take().or_else(spare);
        if now >= self.logs {
            self.logs = now.after(Self::LOG);
            let turned_away = self.turned_away;
            tracing::warn!(turned_away, "connections cannot be taken: {shortage}");
        }
        Accepted::Exhausted(shortage)
    }

    /// Whether the listener is not to be polled.
    #[must_use]
    pub fn is_paused(&self, now: Time) -> bool {
        self.resumes != Time::NEVER && now < self.resumes
    }

    /// When the listener is to be polled again; [`Time::NEVER`] while it is polled.
    #[must_use]
    pub fn resumes(&self) -> Time {
        self.resumes
    }

    /// The listener is polled again.
    pub fn resume(&mut self) {
        self.resumes = Time::NEVER;
    }

    /// System calls that took a connection, or tried to.
    #[must_use]
    pub fn tries(&self) -> u64 {
        self.tries
    }

    /// Connections that could not be kept.
    #[must_use]
    pub fn turned_away(&self) -> u64 {
        self.turned_away
    }
}

impl Default for Acceptor {
    fn default() -> Acceptor {
        Acceptor::new()
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Errno::MFILE => {
                let limit = descriptor_limit();
                write!(f, "all {limit} descriptors of this process are in use (RLIMIT_NOFILE)")
            }
            Errno::NFILE => f.write_str("all descriptors of the system are in use (fs.file-max)"),
            _ => f.write_str("the system has no memory for another connection"),
        }
    }
}

fn take(listener: impl AsFd) -> Result<OwnedFd, Errno> {
    accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)
}

fn spare() -> Option<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC).ok()
}

/// How many descriptors this process may have: the soft limit of `RLIMIT_NOFILE`.
#[must_use]
pub fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How many connections that have not authenticated a listener may keep: as many as its settings
/// say, but no more than an eighth of all descriptors, so that they keep no other out.
#[must_use]
pub fn unauthenticated_limit(wanted: usize) -> usize {
    let eighth = usize::try_from(descriptor_limit() / 8).unwrap_or(usize::MAX);
    wanted.min(eighth).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::Read,
        net::{TcpListener, TcpStream},
    };

    #[test]
    fn what_waits_is_taken() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let mut acceptor = Acceptor::new();
        let accept = |acceptor: &mut Acceptor| {
            acceptor.accept(&listener, Time(1), |_, shortage| panic!("{shortage}"))
        };
        assert!(matches!(accept(&mut acceptor), Accepted::None));
        let mut caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let taken = accept(&mut acceptor);
        let Accepted::Connection(taken) = taken else { panic!("{taken:?}") };
        assert_eq!((acceptor.tries(), acceptor.turned_away()), (2, 0));
        assert_eq!(acceptor.resumes(), Time::NEVER);
        drop(taken);
        assert_eq!(caller.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn a_part_of_the_descriptors() {
        let eighth = usize::try_from(descriptor_limit() / 8).unwrap();
        assert_eq!(unauthenticated_limit(1), 1);
        assert_eq!(unauthenticated_limit(usize::MAX), eighth);
        assert_eq!(unauthenticated_limit(0), 1);
    }
}

//! The connection of an endpoint with its broker: made, and made anew.

use crate::{
    control::Control,
    memory::{Most, Registered},
    name::Name,
    socket::{self, Received},
    wire::{Encoded, Request},
};
use petasos_shm::link::{Broken, Link};
use rustix::{
    event::{PollFd, PollFlags, Timespec, epoll, poll},
    fd::OwnedFd,
    io::Errno,
};
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// The environment variable that says where the broker's socket is.
pub const BROKER: &str = "PETASOS_BROKER";
/// Where it is without one.
pub const DEFAULT_BROKER: &str = "/run/petasos/tenant.sock";
/// How long a broker may take to let an endpoint in.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where the broker's socket is, as far as the environment says.
#[must_use]
pub fn broker() -> String {
    let told = std::env::var(BROKER).ok().filter(|path| !path.is_empty());
    told.unwrap_or_else(|| DEFAULT_BROKER.to_owned())
}

/// A connection with a broker.
pub(crate) struct Session {
    pub(crate) socket: OwnedFd,
    pub(crate) link: Link,
    pub(crate) registered: Registered,
    /// How much memory may be registered.
    pub(crate) memory: Most,
    /// Whether the broker has let us in.
    pub(crate) welcome: bool,
    /// When it must have.
    until: Instant,
    /// Messages for which there was no room, and which cannot be given back.
    backlog: VecDeque<Vec<u8>>,
}

/// Why there is no session, or no more.
#[derive(Debug)]
pub(crate) enum Failed {
    /// Try again.
    Now(String),
    /// This name, or this process, is not let in.
    Refused(String),
}

impl Session {
    /// Begins: the broker has not answered yet.
    pub(crate) fn begin(
        broker: &str,
        name: Option<&Name>,
        epoll: &OwnedFd,
    ) -> Result<Session, Failed> {
        let failed = |error: Errno| {
            Failed::Now(format!(
                "no broker at {broker}: {error}; is `petasos broker` running, and its socket \
                 given into this container?"
            ))
        };
        let socket = socket::dial(broker).map_err(failed)?;
        let (file, link) = Link::create().map_err(failed)?;
        match socket::send(&socket, &Control::Hello(name.cloned()), Some(&file)) {
            // It has refused us by now, and why is there to be read.
            Err(Errno::PIPE | Errno::CONNRESET) => {}
            sent => sent.map_err(failed)?,
        }
        let data = epoll::EventData::new_u64(0);
        epoll::add(epoll, &socket, data, epoll::EventFlags::IN).map_err(failed)?;
        Ok(Session {
            socket,
            link,
            registered: Registered::default(),
            memory: Most::default(),
            welcome: false,
            until: Instant::now() + PATIENCE,
            backlog: VecDeque::new(),
        })
    }

    /// Waits until the broker has let us in: gives the name that this endpoint has.
    pub(crate) fn wait(&mut self) -> Result<Name, Failed> {
        loop {
            if let Some(name) = self.greeted()? {
                return Ok(name);
            }
            let left = self.until.saturating_duration_since(Instant::now());
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: 1_000_000 };
            let _ = poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&left));
        }
    }

    /// Whether the broker has let us in.
    pub(crate) fn greeted(&mut self) -> Result<Option<Name>, Failed> {
        match socket::receive(&self.socket) {
            Ok(Received::Message(Control::Welcome { name, memory, files }, None)) => {
                (self.welcome, self.memory) = (true, Most { bytes: memory, files });
                Ok(Some(name))
            }
            Ok(Received::Message(Control::Refused(why), _)) => Err(Failed::Refused(why)),
            Ok(Received::End) => Err(Failed::Now("the broker has ended".to_owned())),
            Err(Errno::AGAIN | Errno::INTR) if Instant::now() < self.until => Ok(None),
            Err(Errno::AGAIN | Errno::INTR) => {
                Err(Failed::Now(format!("the broker did not answer within {PATIENCE:?}")))
            }
            Ok(other) => Err(Failed::Now(format!("the broker said {other:?}"))),
            Err(error) => Err(Failed::Now(format!("the broker's socket: {error}"))),
        }
    }

    /// Reads what is there from the socket: doorbells, or why it has ended.
    pub(crate) fn drain(&mut self) -> Result<(), String> {
        loop {
            match socket::receive(&self.socket) {
                Ok(Received::Message(Control::Doorbell, None)) => {}
                Ok(Received::Message(Control::Refused(why), _)) => {
                    return Err(format!("the broker ended this endpoint: {why}"));
                }
                Ok(Received::End) => return Err("the broker has ended".to_owned()),
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Ok(other) => return Err(format!("the broker said {other:?}")),
                Err(error) => return Err(format!("the broker's socket: {error}")),
            }
        }
    }

    /// Wakes the broker, if it sleeps.
    pub(crate) fn wake(&mut self, due: bool) {
        if due || self.link.take_sleeper() {
            // If there is no room, doorbells are there.
            let _ = socket::send(&self.socket, &Control::Doorbell, None);
        }
    }

    fn put(&mut self, head: &[u8], rest: &[u8]) -> Result<bool, Broken> {
        let sent = self.link.send(&[head, rest])?
            || (self.link.starve()? && self.link.send(&[head, rest])?);
        if sent {
            self.wake(false);
        }
        Ok(sent)
    }

    /// Sends what has waited; true if nothing waits any more.
    pub(crate) fn flush(&mut self) -> Result<bool, Broken> {
        while let Some(first) = self.backlog.pop_front() {
            if !self.put(&first, &[])? {
                self.backlog.push_front(first);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sends a request, if there is room.
    pub(crate) fn offer(&mut self, request: &Request<'_>) -> Result<bool, Broken> {
        if !self.flush()? {
            return Ok(false);
        }
        let Encoded { head, rest } = request.encode();
        self.put(&head, rest)
    }

    /// Sends a request that belongs to a connection, now or later. Of these there are only a few
    /// for each.
    pub(crate) fn tell(&mut self, request: &Request<'_>) -> Result<(), Broken> {
        if !self.offer(request)? {
            self.backlog.push_back(request.encode().to_vec());
        }
        Ok(())
    }

    /// Whether something waits for room.
    pub(crate) fn is_behind(&self) -> bool {
        !self.backlog.is_empty()
    }
}

//! The clients of this node: programs of the job, and commands that look on, over a Unix socket in
//! the private directory. The kernel says whose process it is, and the token that it is of this
//! job; before both are checked nothing else of it is looked at.

use super::Daemon;
use crate::{
    Error, JobId,
    engine::ClientId,
    event::Event,
    message::{Answer, Request},
    net::{Frames, Stream},
};
use petasos_fabric::Time;
use petasos_macros::Wire;
use rustix::{net::sockopt::socket_peercred, process::geteuid};
use std::{io, os::unix::net::UnixStream, time::Duration};

/// The longest frame of a client.
pub(crate) const MAX_FRAME: usize = 64 << 20;
/// Clients at a time.
const MAX_CLIENTS: usize = 4096;
/// A client that reads so much less than it is sent is let go.
const MAX_BACKLOG: usize = 256 << 20;
/// From a client with so much unread, no more requests are taken.
const ENOUGH: usize = 1 << 20;
/// A process that dies closes its connection a moment before the system says how it ended.
const MOMENT: Duration = Duration::from_millis(100);

/// From a client, after the token.
#[derive(Wire, Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    pub(crate) id: u64,
    pub(crate) what: Request,
}

/// To a client.
#[derive(Wire, Clone, Debug, PartialEq)]
pub(crate) enum ToClient {
    Answer { id: u64, result: Result<Answer, Error> },
    Event { event: Event, only: Option<u64> },
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) frames: Frames,
    known: bool,
    rank: Option<u32>,
    /// It closed its connection; the engine hears of it at this time.
    pub(crate) closing: Option<Time>,
}

impl Client {
    /// Whether more is read of it.
    pub(crate) fn is_read(&self) -> bool {
        self.closing.is_none() && self.frames.backlog() < ENOUGH
    }
}

impl Daemon {
    /// A connection came in.
    pub(crate) fn accept_clients(&mut self) {
        while let Some(Ok((stream, _))) = self.listener.as_ref().map(|l| l.accept()) {
            if let Err(error) = self.accept_client(stream) {
                self.log(&format!("refused a client: {error}"));
            }
        }
    }

    fn accept_client(&mut self, stream: UnixStream) -> io::Result<()> {
        let peer = socket_peercred(&stream)?;
        if peer.uid != geteuid() {
            return Err(io::Error::other(format!("it is user {}'s", peer.uid.as_raw())));
        }
        if self.clients.len() >= MAX_CLIENTS {
            return Err(io::Error::other(format!("there are {MAX_CLIENTS} already")));
        }
        stream.set_nonblocking(true)?;
        self.next_client += 1;
        let frames = Frames::new(Stream::Unix(stream), MAX_FRAME);
        let client = Client { frames, known: false, rank: None, closing: None };
        self.clients.insert(self.next_client, client);
        Ok(())
    }

    /// A client wrote something, or is gone.
    pub(crate) fn read_client(&mut self, number: u64) {
        if let Err(error) = self.try_read(number) {
            if error.kind() != io::ErrorKind::UnexpectedEof
                && error.kind() != io::ErrorKind::ConnectionReset
            {
                self.log(&format!("a client is cut off: {error}"));
            }
            self.client_gone(number);
        }
    }

    fn try_read(&mut self, number: u64) -> io::Result<()> {
        let Some(client) = self.clients.get_mut(&number) else { return Ok(()) };
        let ended = match client.frames.fill() {
            Ok(false) => return Ok(()),
            Ok(true) => None,
            Err(error) => Some(error),
        };
        while let Some(client) = self.clients.get_mut(&number) {
            if !client.known {
                let Some(token) = client.frames.take_raw()? else { break };
                if !same(token, &self.token) {
                    return Err(io::Error::other("it does not have the token of this job"));
                }
                client.known = true;
                self.engine.client_opened(ClientId(number));
                continue;
            }
            let Some(Asked { id, what }) = client.frames.take()? else { break };
            if let Request::Connect(proc) = &what
                && proc.job != JobId::TOOLS
            {
                client.rank.get_or_insert(proc.rank);
            }
            self.engine.request(self.clock.now(), ClientId(number), id, what);
            self.pump();
        }
        ended.map_or(Ok(()), Err)
    }

    /// Its connection is closed: the engine hears of it when it is known how the process ended.
    pub(crate) fn client_gone(&mut self, number: u64) {
        let now = self.clock.now();
        let Some(client) = self.clients.get_mut(&number) else { return };
        let waits =
            client.rank.is_some_and(|r| self.ranks.get(&r).is_some_and(|r| r.ended.is_none()));
        client.closing = Some(if waits { now.after(MOMENT) } else { now });
        self.settle_clients(now);
    }

    /// A process ended, and its connections with it.
    pub(crate) fn close_clients_of(&mut self, rank: u32) {
        let now = self.clock.now();
        for client in self.clients.values_mut() {
            if client.rank == Some(rank) && client.closing.is_some() {
                client.closing = Some(now);
            }
        }
        self.settle_clients(now);
    }

    pub(crate) fn settle_clients(&mut self, now: Time) {
        let over = |client: &Client| client.closing.is_some_and(|at| at <= now);
        let gone: Vec<u64> =
            self.clients.iter().filter(|(_, c)| over(c)).map(|(number, _)| *number).collect();
        for number in gone {
            self.clients.remove(&number);
            self.engine.client_closed(now, ClientId(number));
        }
    }

    /// When [`Daemon::settle_clients`] is wanted.
    pub(crate) fn clients_deadline(&self) -> Time {
        self.clients.values().filter_map(|client| client.closing).min().unwrap_or(Time::NEVER)
    }

    /// Something for a client.
    pub(crate) fn to_client(&mut self, client: ClientId, what: &ToClient) {
        if let Some(client) = self.clients.get_mut(&client.0).filter(|c| c.closing.is_none()) {
            client.frames.push(what);
        }
    }

    /// Sends what waits for clients.
    pub(crate) fn flush_clients(&mut self) {
        let mut gone = Vec::new();
        for (number, client) in &mut self.clients {
            if client.closing.is_some() || client.frames.backlog() == 0 {
                continue;
            }
            if client.frames.flush().is_err() || client.frames.backlog() > MAX_BACKLOG {
                gone.push(*number);
            }
        }
        gone.into_iter().for_each(|number| self.client_gone(number));
    }
}

/// Whether two are the same, in a time that does not tell where they differ.
fn same(a: &[u8], b: &[u8; 32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

//! How clients connect: to a socket in the private directory, and those of the PMIx library over
//! loopback.

use super::{
    super::{
        Daemon,
        admission::{BATCH, QUEUE},
        directory::JobDirectory,
    },
    Client, Speaks,
};
use crate::{engine::ClientId, pmix41};
use petasos_fabric::{Owners, Time};
use petasos_pmix::server::{Frames, MAX_FRAME, Stream, greeting, random};
use rustix::{
    net::sockopt::socket_peercred,
    process::{geteuid, getpid},
    time::{ClockId, clock_gettime},
};
use std::{
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    time::Duration,
};

/// Where clients of this node connect, and how they prove that they are of the job.
#[derive(Debug)]
pub(in super::super) struct Listeners {
    token: [u8; 32],
    socket: Option<UnixListener>,
    /// For clients of the PMIx library.
    pmix41: Option<TcpListener>,
    /// Whose the connections of these are.
    owners: Owners,
}

impl Listeners {
    pub(in super::super) fn new() -> Listeners {
        Listeners { token: random(), socket: None, pmix41: None, owners: Owners::new() }
    }

    /// Listens from now on; where, and the token, is said in the private directory.
    pub(in super::super) fn open(&mut self, place: &JobDirectory) -> io::Result<()> {
        place.write("token", &self.token)?;
        let socket = UnixListener::bind(place.socket())?;
        socket.set_nonblocking(true)?;
        let pmix41 = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        pmix41.set_nonblocking(true)?;
        rustix::net::listen(&pmix41, QUEUE)?;
        let port = pmix41.local_addr()?.port();
        let uri = format!("pmix-server.{};tcp4://127.0.0.1:{port}", std::process::id());
        place.write("pmix41", uri.as_bytes())?;
        (self.socket, self.pmix41) = (Some(socket), Some(pmix41));
        Ok(())
    }

    /// Takes no connections any more.
    pub(in super::super) fn close(&mut self) {
        (self.socket, self.pmix41) = (None, None);
    }

    pub(in super::super) fn socket(&self) -> Option<&UnixListener> {
        self.socket.as_ref()
    }

    pub(in super::super) fn pmix41(&self) -> Option<&TcpListener> {
        self.pmix41.as_ref()
    }

    /// What a program says first that speaks PMI-1 over a connection which it inherits, as this
    /// rank.
    pub(in super::super) fn greeting(&self, rank: u32) -> Vec<u8> {
        greeting(&self.token, Some(rank))
    }

    /// What a client has said first: the rest, if the token comes first.
    pub(super) fn after_token<'a>(&self, said: &'a [u8]) -> io::Result<&'a [u8]> {
        let (token, rest) = said.split_at(said.len().min(self.token.len()));
        match same(token, &self.token) {
            true => Ok(rest),
            false => Err(io::Error::other("it does not have the token of this job")),
        }
    }

    /// By which socket of this machine a client holds its end of a connection.
    pub(super) fn socket_of(&mut self, far: SocketAddr, near: SocketAddr) -> Option<u32> {
        self.owners.socket_of(far, near)
    }
}

impl Daemon {
    /// A connection came in.
    pub(in super::super) fn accept_clients(&mut self) {
        for _ in 0..BATCH {
            let now = self.clock.now();
            let Some(listener) = &self.listeners.socket else { return };
            let stream = match self.admission.has_room(listener, now) {
                Ok(()) => listener.accept().map_err(|error| self.admission.failed(&error, now)),
                Err(why) => Err(why),
            };
            let stream = match stream {
                Ok((stream, _)) => stream,
                Err(why) => return why.into_iter().for_each(|why| self.log(&why)),
            };
            if let Err(error) = self.accept_client(stream) {
                self.refused(now, Duration::ZERO, &error);
            }
        }
    }

    /// A client was refused, which took so long.
    fn refused(&mut self, now: Time, took: Duration, why: &io::Error) {
        tracing::debug!(%why, "a client is refused");
        if self.admission.refused(now, took) {
            self.log(&format!("refused a client: {why}"));
        }
    }

    pub(in super::super) fn accept_client(&mut self, stream: UnixStream) -> io::Result<()> {
        let peer = socket_peercred(&stream)?;
        if peer.uid != geteuid() {
            return Err(io::Error::other(format!("it is user {}'s", peer.uid.as_raw())));
        }
        self.clients.check_room()?;
        stream.set_nonblocking(true)?;
        let mut frames = Frames::new(Stream::Unix(stream), MAX_FRAME);
        match peer.pid == getpid() {
            // The other end was made here, and is inherited: each message says whose it is.
            true => frames.note_senders(),
            false => frames.is_from(peer.pid),
        }
        let client = Client::new(frames, Speaks::Unknown, self.clock.now());
        let client = self.clients.add(client);
        tracing::debug!(client, process = peer.pid.as_raw_nonzero().get(), "connected");
        Ok(())
    }

    /// A client of the PMIx library came in, over loopback: the kernel says whose it is.
    pub(in super::super) fn accept_pmix41(&mut self) {
        for _ in 0..BATCH {
            let now = self.clock.now();
            let begun = cpu_time();
            if !self.admission.is_open_to_all(now) || !self.clients.have_few_unproven() {
                return;
            }
            let Some(listener) = &self.listeners.pmix41 else { return };
            let accepted = match self.admission.has_room(listener, now) {
                Ok(()) => listener.accept().map_err(|error| self.admission.failed(&error, now)),
                Err(why) => Err(why),
            };
            let (stream, from) = match accepted {
                Ok(accepted) => accepted,
                Err(why) => return why.into_iter().for_each(|why| self.log(&why)),
            };
            let mut accept = || -> io::Result<()> {
                if self.listeners.owners.of(from, stream.local_addr()?)? != geteuid().as_raw() {
                    return Err(io::Error::other("it is another user's"));
                }
                self.clients.check_room()?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)
            };
            if let Err(error) = accept() {
                drop(stream);
                self.refused(now, cpu_time().saturating_sub(begun), &error);
                continue;
            }
            let frames = Frames::new(Stream::Tcp(stream), MAX_FRAME);
            let around = self.surroundings();
            let directory = self.files.directory().map_or(Path::new(""), JobDirectory::path);
            let speaks = Speaks::Pmix41(pmix41::Session::new(self.me, directory, around));
            let client = self.clients.add(Client::new(frames, speaks, now));
            tracing::debug!(client, %from, "connected, to speak PMIx");
            self.engine.client_opened(ClientId(client));
            self.engine.may_return(ClientId(client));
        }
    }
}

/// How long this thread has run: what other processes do meanwhile is not its cost.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// Whether two are the same, in a time that does not tell where they differ.
fn same(a: &[u8], b: &[u8; 32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

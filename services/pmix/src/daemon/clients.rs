//! The clients of this node: programs of the job, and commands that look on, over a Unix socket in
//! the private directory. The kernel says whose process it is, and the token that it is of this
//! job; before both are checked nothing else of it is looked at.

use super::{
    Daemon,
    admission::{BATCH, MOST_UNPROVEN, PATIENCE},
    again::holder,
    place::Place,
};
use crate::{
    Error, JobId,
    engine::ClientId,
    event::Event,
    job::JobMap,
    message::{Answer, Request},
    net::{Frames, Stream},
    pmi1::{MAX_LINE, Session, Step},
    pmix41,
};
use petasos_fabric::Time;
use petasos_macros::Wire;
use rustix::{
    net::sockopt::socket_peercred,
    process::{Pid, geteuid, getpid},
    time::{ClockId, clock_gettime},
};
use std::{
    fs, io,
    os::unix::{fs::DirBuilderExt, net::UnixStream},
    path::Path,
    time::Duration,
};

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
pub(crate) enum Asked {
    /// A request, which is answered over the socket.
    Request { id: u64, what: Request },
    /// That it is done is said in shared memory, to many at once: see [`crate::shelf`]. All else comes over the socket.
    ByWord { id: u64, what: Request },
    /// That request's answer comes over the socket after all: who asked sleeps there now.
    OverSocket { id: u64 },
}

/// What of a client's requests is answered in shared memory: one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    None,
    /// This one will be.
    Waiting(u64),
    /// This one was, and may not have been seen.
    Said(u64),
}

/// To a client.
#[derive(Wire, Clone, Debug, PartialEq)]
pub(crate) enum ToClient {
    Answer { id: u64, result: Result<Answer, Error> },
    Event { event: Event, only: Option<u64> },
}

/// What a client speaks; it says so with the token.
#[derive(Debug)]
enum Speaks {
    /// It has not shown the token yet.
    Unknown,
    Native,
    /// With the number of its next request.
    Pmi1(Session, u64),
    /// OpenPMIx 4.1, over loopback; its job's namespace is its token.
    Pmix41(pmix41::Session),
}

/// What a client sends first: the token, and, if it speaks PMI-1, which rank it is.
pub(crate) fn greeting(token: &[u8], pmi1: Option<u32>) -> Vec<u8> {
    let rank = pmi1.map(u32::to_le_bytes);
    let len = (token.len() + rank.map_or(0, |rank| rank.len())) as u32;
    [&len.to_le_bytes()[..], token, rank.as_ref().map_or(&[], |rank| &rank[..])].concat()
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) frames: Frames,
    speaks: Speaks,
    rank: Option<u32>,
    word: Word,
    /// Until then it has to have proved that it is of the job; never: it has.
    prove_by: Time,
    /// It closed its connection; the engine hears of it at this time.
    pub(crate) closing: Option<Time>,
    /// It is among those that are waited for.
    pub(crate) watched: bool,
}

impl Client {
    fn new(frames: Frames, speaks: Speaks, now: Time) -> Client {
        Client {
            frames,
            speaks,
            rank: None,
            word: Word::None,
            prove_by: now.after(PATIENCE),
            closing: None,
            watched: false,
        }
    }

    fn say(&mut self, what: &ToClient) {
        let Err(error) = self.frames.push(what) else { return };
        // Events are never so long.
        if let ToClient::Answer { id, .. } = what {
            let _ = self.frames.push(&ToClient::Answer { id: *id, result: Err(error) });
        }
    }

    /// It looks no longer at the word: what was said there is said again.
    fn over_socket(&mut self, id: u64) {
        if self.word == Word::Said(id) {
            self.say(&ToClient::Answer { id, result: Ok(Answer::Done) });
        }
        if [Word::Said(id), Word::Waiting(id)].contains(&self.word) {
            self.word = Word::None;
        }
    }

    /// Whether more is read of it.
    pub(crate) fn is_read(&self) -> bool {
        self.closing.is_none() && self.frames.backlog() < ENOUGH
    }
}

impl Daemon {
    /// A connection came in.
    pub(crate) fn accept_clients(&mut self) {
        for _ in 0..BATCH {
            let now = self.clock.now();
            let Some(listener) = &self.listener else { return };
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

    /// Somebody was, which took so long.
    fn refused(&mut self, now: Time, took: Duration, why: &io::Error) {
        tracing::debug!(%why, "a client is refused");
        if self.admission.refused(now, took) {
            self.log(&format!("refused a client: {why}"));
        }
    }

    /// Whether more may come: of those that have not proved to be of the job there are only so many.
    pub(crate) fn has_few_unproven(&self) -> bool {
        let unproven =
            |client: &&Client| client.prove_by != Time::NEVER && client.closing.is_none();
        self.clients.values().filter(unproven).count() < MOST_UNPROVEN
    }

    pub(crate) fn accept_client(&mut self, stream: UnixStream) -> io::Result<()> {
        let peer = socket_peercred(&stream)?;
        if peer.uid != geteuid() {
            return Err(io::Error::other(format!("it is user {}'s", peer.uid.as_raw())));
        }
        if self.clients.len() >= MAX_CLIENTS {
            return Err(io::Error::other(format!("there are {MAX_CLIENTS} already")));
        }
        stream.set_nonblocking(true)?;
        self.next_client += 1;
        tracing::debug!(
            client = self.next_client,
            process = peer.pid.as_raw_nonzero().get(),
            "connected"
        );
        let mut frames = Frames::new(Stream::Unix(stream), MAX_FRAME);
        match peer.pid == getpid() {
            // The other end was made here, and is inherited: each message says whose it is.
            true => frames.note_senders(),
            false => frames.is_from(peer.pid),
        }
        let client = Client::new(frames, Speaks::Unknown, self.clock.now());
        self.clients.insert(self.next_client, client);
        Ok(())
    }

    /// A client of the PMIx library came in, over loopback: the kernel says whose it is.
    pub(crate) fn accept_pmix41(&mut self) {
        for _ in 0..BATCH {
            let now = self.clock.now();
            let begun = cpu_time();
            if !self.admission.is_open_to_all(now) || !self.has_few_unproven() {
                return;
            }
            let Some(listener) = &self.pmix41 else { return };
            let accepted = match self.admission.has_room(listener, now) {
                Ok(()) => listener.accept().map_err(|error| self.admission.failed(&error, now)),
                Err(why) => Err(why),
            };
            let (stream, from) = match accepted {
                Ok(accepted) => accepted,
                Err(why) => return why.into_iter().for_each(|why| self.log(&why)),
            };
            let mut accept = || -> io::Result<()> {
                if self.owners.of(from, stream.local_addr()?)? != geteuid().as_raw() {
                    return Err(io::Error::other("it is another user's"));
                }
                if self.clients.len() >= MAX_CLIENTS {
                    return Err(io::Error::other(format!("there are {MAX_CLIENTS} already")));
                }
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)
            };
            if let Err(error) = accept() {
                drop(stream);
                self.refused(now, cpu_time().saturating_sub(begun), &error);
                continue;
            }
            self.next_client += 1;
            let frames = Frames::new(Stream::Tcp(stream), MAX_FRAME);
            let around = self.surroundings();
            let directory = self.files.place().map_or(Path::new(""), Place::path);
            tracing::debug!(client = self.next_client, %from, "connected, to speak PMIx");
            let speaks = Speaks::Pmix41(pmix41::Session::new(self.me, directory, around));
            self.clients.insert(self.next_client, Client::new(frames, speaks, now));
            self.engine.client_opened(ClientId(self.next_client));
            self.engine.may_return(ClientId(self.next_client));
        }
    }

    /// A client wrote something, or is gone.
    pub(crate) fn read_client(&mut self, number: u64) {
        if let Err(error) = self.try_read(number) {
            if error.kind() != io::ErrorKind::UnexpectedEof
                && error.kind() != io::ErrorKind::ConnectionReset
            {
                self.cut_off(number, &error.to_string());
            }
            self.client_gone(number);
        }
    }

    /// A process has ended: what it said before that, such as that it finalizes, counts.
    pub(super) fn read_rest_of(&mut self, rank: u32) {
        let own = |client: &Client| client.rank == Some(rank) && client.closing.is_none();
        let own = self.clients.iter().filter(|(_, client)| own(client)).map(|(number, _)| *number);
        for number in own.collect::<Vec<_>>() {
            while let Ok(true) = self.try_read(number) {}
        }
    }

    /// A client did what it may not. If it is a rank, that has failed, whatever it makes of it.
    fn cut_off(&mut self, number: u64, why: &str) {
        let rank = self.clients.get(&number).and_then(|client| client.rank);
        match rank {
            Some(rank) => self.log(&format!("rank {rank} is cut off: {why}")),
            None => self.log(&format!("a client is cut off: {why}")),
        }
        tracing::debug!(client = number, ?rank, why, "cut off");
        self.has_failed(rank, format!("its connection was cut: {why}"));
    }

    /// A process has failed for this, also if it does not notice.
    fn has_failed(&mut self, rank: Option<u32>, why: String) {
        if let Some(rank) = rank {
            self.ranks.fail(rank, why);
        }
    }

    /// Says whether there was something to read.
    fn try_read(&mut self, number: u64) -> io::Result<bool> {
        let Some(client) = self.clients.get_mut(&number) else { return Ok(false) };
        let ended = match client.frames.fill() {
            Ok(false) => return Ok(false),
            Ok(true) => None,
            Err(error) => Some(error),
        };
        while let Some(client) = self.clients.get_mut(&number) {
            match &mut client.speaks {
                Speaks::Unknown => {
                    let Some(said) = client.frames.take_raw()? else { break };
                    let (token, rank) = said.split_at(said.len().min(self.token.len()));
                    if !same(token, &self.token) {
                        return Err(io::Error::other("it does not have the token of this job"));
                    }
                    client.speaks = match <[u8; 4]>::try_from(rank) {
                        Ok(rank) => Speaks::Pmi1(Session::new(u32::from_le_bytes(rank)), 0),
                        Err(_) if rank.is_empty() => Speaks::Native,
                        Err(_) => return Err(io::Error::other("it speaks an unknown protocol")),
                    };
                    if let Speaks::Pmi1(session, _) = &client.speaks {
                        client.rank = Some(session.rank());
                    }
                    client.prove_by = Time::NEVER;
                    let foreign = matches!(client.speaks, Speaks::Pmi1(..));
                    self.engine.client_opened(ClientId(number));
                    if foreign {
                        self.engine.may_return(ClientId(number));
                    }
                    continue;
                }
                Speaks::Native => {}
                Speaks::Pmi1(session, _) => {
                    let Some(line) = client.frames.take_line(MAX_LINE)? else { break };
                    let Some(job) = &self.job else { break };
                    let steps = session.line(&String::from_utf8_lossy(&line), job);
                    self.pmi1(number, steps);
                    continue;
                }
                Speaks::Pmix41(session) => {
                    let Some(job) = self.job.clone() else { break };
                    let taken = session.take(client.frames.come(), &job)?;
                    let Some((len, steps)) = taken else { break };
                    client.frames.skip(len);
                    client.prove_by = Time::NEVER;
                    if client.rank.is_none() {
                        let rank = session.rank();
                        client.rank = rank;
                        self.make_own_directory(rank, &job)?;
                    }
                    self.pmix41(number, steps);
                    continue;
                }
            }
            let Some(asked) = client.frames.take()? else { break };
            let (id, what) = match asked {
                Asked::Request { id, what } => (id, what),
                Asked::ByWord { id, what } => {
                    if self.shelf.is_some() && client.rank.is_some() {
                        client.word = Word::Waiting(id);
                    }
                    (id, what)
                }
                Asked::OverSocket { id } => {
                    client.over_socket(id);
                    continue;
                }
            };
            if let Request::Connect(proc) = &what
                && proc.job != JobId::TOOLS
            {
                client.rank.get_or_insert(proc.rank);
            }
            self.meet(number, &what);
            self.engine.request(self.clock.now(), ClientId(number), id, what);
            self.pump();
        }
        ended.map_or(Ok(true), Err)
    }

    /// Whether a client asks for what matters to who is which rank: see [`super::again`].
    fn meet(&mut self, number: u64, what: &Request) {
        match what {
            Request::Connect(proc) if proc.job != JobId::TOOLS => {
                let process = self.process_of(number, proc.rank, true);
                self.connects(number, proc.rank, process);
            }
            Request::Finalize => {
                let Some(rank) = self.clients.get(&number).and_then(|client| client.rank) else {
                    return;
                };
                let process = self.process_of(number, rank, false);
                self.finalizes(rank, process);
            }
            _ => {}
        }
    }

    /// The process that a client is. One that comes over loopback has to be looked for: when it connects, only if
    /// a process was the rank before.
    fn process_of(&mut self, number: u64, rank: u32, connects: bool) -> Option<Pid> {
        let client = self.clients.get(&number)?;
        let Some(stream) = client.frames.tcp() else { return client.frames.sender() };
        if connects && !self.ranks.was_a_client(rank) {
            return None;
        }
        let (far, near) = (stream.peer_addr().ok()?, stream.local_addr().ok()?);
        let first = self.ranks.running(rank)?;
        holder(first, self.owners.socket_of(far, near)?)
    }

    /// Where a process of the PMIx library may have files, of which it is told in its job's data.
    fn make_own_directory(&self, rank: Option<u32>, job: &JobMap) -> io::Result<()> {
        let (Some(rank), Some(place)) = (rank, self.files.place()) else { return Ok(()) };
        if job.node_of(rank) != Some(self.me) {
            return Ok(());
        }
        let own = pmix41::own_directory(&place.path().to_string_lossy(), rank);
        match fs::DirBuilder::new().mode(0o700).create(own) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    /// Its connection is closed: the engine hears of it when it is known how the process ended.
    pub(crate) fn client_gone(&mut self, number: u64) {
        let now = self.clock.now();
        let Some(client) = self.clients.get_mut(&number) else { return };
        let waits = client.rank.is_some_and(|rank| self.ranks.running(rank).is_some());
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

    /// The connections of a process that is gone go, also those that somebody has inherited.
    pub(crate) fn drop_clients_of(&mut self, rank: u32) {
        let now = self.clock.now();
        for client in self.clients.values_mut().filter(|client| client.rank == Some(rank)) {
            client.closing = Some(now);
        }
        self.settle_clients(now);
    }

    pub(crate) fn settle_clients(&mut self, now: Time) {
        for client in self.clients.values_mut().filter(|client| client.prove_by <= now) {
            (client.prove_by, client.closing) = (Time::NEVER, Some(now));
        }
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
        let next = |client: &Client| client.closing.unwrap_or(Time::NEVER).min(client.prove_by);
        self.clients.values().map(next).min().unwrap_or(Time::NEVER)
    }

    /// Something for a client.
    pub(crate) fn tell_client(&mut self, id: ClientId, what: &ToClient) {
        let open = self.clients.get_mut(&id.0).filter(|client| client.closing.is_none());
        let Some(client) = open else { return };
        match (&mut client.speaks, what) {
            (Speaks::Pmi1(session, _), ToClient::Answer { result, .. }) => {
                let steps = session.answered(result);
                let rank = session.rank();
                if let Err(error) = result {
                    self.explain_or_log(rank, error);
                }
                self.pmi1(id.0, steps);
            }
            (Speaks::Pmix41(session), ToClient::Answer { id: request, result }) => {
                let Some(job) = self.job.clone() else { return };
                let steps = session.answered(*request, result, &job);
                let rank = session.rank();
                if let Err(error) = result {
                    self.explain_refusal(rank, error);
                }
                self.pmix41(id.0, steps);
            }
            (Speaks::Pmix41(session), ToClient::Event { event, only }) => {
                let Some(job) = self.job.clone() else { return };
                let step = session.event(event, *only, &job);
                self.pmix41(id.0, step.into_iter().collect());
            }
            (Speaks::Pmi1(..), ToClient::Event { .. }) => {}
            (_, ToClient::Answer { id: request, result })
                if client.word == Word::Waiting(*request) =>
            {
                // Who sleeps there looks at his word, and at his socket.
                self.rings = true;
                match (result, self.shelf.as_mut(), client.rank) {
                    (Ok(Answer::Done), Some(shelf), Some(rank)) => {
                        shelf.done(rank, *request);
                        client.word = Word::Said(*request);
                    }
                    _ => {
                        client.word = Word::None;
                        client.say(what);
                    }
                }
            }
            _ => client.say(what),
        }
    }

    /// Does what a message of the PMIx library, or its answer, leads to.
    fn pmix41(&mut self, number: u64, steps: Vec<pmix41::Step>) {
        for step in steps {
            match step {
                pmix41::Step::Say(bytes) => {
                    if let Some(client) = self.clients.get_mut(&number) {
                        client.frames.push_raw(bytes);
                    }
                }
                pmix41::Step::Explain(why) => {
                    let rank = self.clients.get(&number).and_then(|client| client.rank);
                    self.explain_to(rank, &why);
                }
                pmix41::Step::Fail(why) => {
                    let rank = self.clients.get(&number).and_then(|client| client.rank);
                    self.explain_to(rank, &why);
                    self.has_failed(rank, why);
                }
                pmix41::Step::Ask(id, what) => {
                    self.meet(number, &what);
                    self.engine.request(self.clock.now(), ClientId(number), id, what);
                    self.pump();
                }
                pmix41::Step::Find(id, key, patience) => {
                    let Some(job) = self.job.as_ref().map(|job| job.id()) else { return };
                    let asker = (ClientId(number), id);
                    self.engine.get_any(self.clock.now(), asker, job, key, patience);
                    self.pump();
                }
            }
        }
    }

    /// Does what a line of PMI-1, or its answer, leads to.
    fn pmi1(&mut self, number: u64, steps: Vec<Step>) {
        for step in steps {
            let Some(client) = self.clients.get_mut(&number) else { return };
            let Speaks::Pmi1(session, next) = &mut client.speaks else { return };
            match step {
                Step::Say(line) => client.frames.push_raw(format!("{line}\n").into_bytes()),
                Step::Find(key) => {
                    let found = session.found(self.engine.find(JobId(0), &key));
                    self.pmi1(number, found);
                }
                Step::Ask(what) => {
                    *next += 1;
                    let id = *next;
                    self.meet(number, &what);
                    self.engine.request(self.clock.now(), ClientId(number), id, what);
                    self.pump();
                }
            }
        }
    }

    /// Sends what waits for clients.
    pub(crate) fn flush_clients(&mut self) {
        let mut gone = Vec::new();
        for (number, client) in &mut self.clients {
            if client.closing.is_some() || client.frames.backlog() == 0 {
                continue;
            }
            let (sent, left) = (client.frames.flush(), client.frames.backlog());
            if sent.is_err() || left > MAX_BACKLOG {
                gone.push((*number, sent.is_ok().then_some(left)));
            }
        }
        for (number, left) in gone {
            if let Some(left) = left {
                self.cut_off(number, &format!("it has not read {left} bytes that are for it"));
            }
            self.client_gone(number);
        }
        if std::mem::take(&mut self.rings)
            && let Some(shelf) = self.shelf.as_mut()
        {
            shelf.ring();
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

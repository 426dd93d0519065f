//! The clients of this node: programs of the job, and commands that look on, over a Unix socket in
//! the private directory. The kernel says whose process it is, and the token that it is of this
//! job; before both are checked nothing else of it is looked at.

mod accept;
mod requests;

use super::{
    Daemon,
    admission::{MOST_UNPROVEN, PATIENCE},
    watch::{self, Watch},
};
use crate::{engine::ClientId, pmi1::Session, pmix41};
pub(super) use accept::Listeners;
use petasos_fabric::Time;
use petasos_pmix::{
    message::Answer,
    server::{Frames, FromDaemon},
};
use std::{collections::BTreeMap, io, os::fd::AsFd, time::Duration};

/// Clients at a time.
const MAX_CLIENTS: usize = 4096;
/// A client that reads so much less than it is sent is let go.
const MAX_BACKLOG: usize = 256 << 20;
/// From a client with so much unread, no more requests are taken.
const ENOUGH: usize = 1 << 20;
/// A process that dies closes its connection a moment before the system says how it ended.
const MOMENT: Duration = Duration::from_millis(100);

/// What of a client's requests is answered in shared memory: one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    None,
    /// This one will be.
    Waiting(u64),
    /// This one was, and may not have been seen.
    Said(u64),
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

#[derive(Debug)]
struct Client {
    frames: Frames,
    speaks: Speaks,
    rank: Option<u32>,
    word: Word,
    /// Until then it has to have proved that it is of the job; never: it has.
    prove_by: Time,
    /// It closed its connection; the engine hears of it at this time.
    closing: Option<Time>,
    /// It is among those that are waited for.
    watched: bool,
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

    fn say(&mut self, what: &FromDaemon) {
        let Err(error) = self.frames.push(what) else { return };
        // Events are never so long.
        if let FromDaemon::Answer { id, .. } = what {
            let _ = self.frames.push(&FromDaemon::Answer { id: *id, result: Err(error) });
        }
    }

    /// It looks no longer at the word: what was said there is said again.
    fn over_socket(&mut self, id: u64) {
        if self.word == Word::Said(id) {
            self.say(&FromDaemon::Answer { id, result: Ok(Answer::Done) });
        }
        if [Word::Said(id), Word::Waiting(id)].contains(&self.word) {
            self.word = Word::None;
        }
    }

    /// Whether more is read of it.
    fn is_read(&self) -> bool {
        self.closing.is_none() && self.frames.backlog() < ENOUGH
    }
}

/// All clients of this node.
#[derive(Debug, Default)]
pub(super) struct Clients {
    all: BTreeMap<u64, Client>,
    last: u64,
    /// Something was said in shared memory to processes that may sleep.
    rings: bool,
}

impl Clients {
    /// # Errors
    /// If there are as many as there may be.
    fn check_room(&self) -> io::Result<()> {
        match self.all.len() < MAX_CLIENTS {
            true => Ok(()),
            false => Err(io::Error::other(format!("there are {MAX_CLIENTS} already"))),
        }
    }

    /// One more; gives its number.
    fn add(&mut self, client: Client) -> u64 {
        self.last += 1;
        self.all.insert(self.last, client);
        self.last
    }

    fn get(&self, number: u64) -> Option<&Client> {
        self.all.get(&number)
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut Client> {
        self.all.get_mut(&number)
    }

    fn rank_of(&self, number: u64) -> Option<u32> {
        self.get(number).and_then(|client| client.rank)
    }

    /// Those of a rank whose connections are open.
    fn of_rank(&self, rank: u32) -> Vec<u64> {
        let own = |client: &Client| client.rank == Some(rank) && client.closing.is_none();
        self.all.iter().filter(|(_, client)| own(client)).map(|(number, _)| *number).collect()
    }

    /// Whether more may come: of those that have not proved to be of the job there are only so
    /// many.
    pub(super) fn have_few_unproven(&self) -> bool {
        let unproven =
            |client: &&Client| client.prove_by != Time::NEVER && client.closing.is_none();
        self.all.values().filter(unproven).count() < MOST_UNPROVEN
    }

    /// Those that are over by now leave: which.
    fn settle(&mut self, now: Time) -> Vec<u64> {
        for client in self.all.values_mut().filter(|client| client.prove_by <= now) {
            (client.prove_by, client.closing) = (Time::NEVER, Some(now));
        }
        let over = |client: &Client| client.closing.is_some_and(|at| at <= now);
        let gone = self.all.iter().filter(|(_, client)| over(client)).map(|(number, _)| *number);
        let gone: Vec<u64> = gone.collect();
        gone.iter().for_each(|number| drop(self.all.remove(number)));
        gone
    }

    /// When that is wanted.
    pub(super) fn deadline(&self) -> Time {
        let next = |client: &Client| client.closing.unwrap_or(Time::NEVER).min(client.prove_by);
        self.all.values().map(next).min().unwrap_or(Time::NEVER)
    }

    /// Sends what waits for clients. Gives those to which it cannot be sent; or that do not read
    /// it, and how much that is.
    fn flush(&mut self) -> Vec<(u64, Option<usize>)> {
        let mut gone = Vec::new();
        for (number, client) in &mut self.all {
            if client.closing.is_some() || client.frames.backlog() == 0 {
                continue;
            }
            let (sent, left) = (client.frames.flush(), client.frames.backlog());
            if sent.is_err() || left > MAX_BACKLOG {
                gone.push((*number, sent.is_ok().then_some(left)));
            }
        }
        gone
    }

    /// Has those in the set of which more is read.
    pub(super) fn watch(&mut self, set: &Watch) {
        for (number, client) in &mut self.all {
            let wanted = client.is_read();
            set.set(&mut client.watched, wanted, client.frames.as_fd(), watch::CLIENT, *number);
        }
    }

    /// Connections of those to which more is to be sent.
    pub(super) fn unsent(&self) -> impl Iterator<Item = &Frames> {
        let open = self.all.values().filter(|client| client.closing.is_none());
        open.map(|client| &client.frames).filter(|frames| frames.backlog() > 0)
    }

    /// All connections are closed.
    pub(super) fn clear(&mut self) {
        self.all.clear();
    }
}

impl Daemon {
    /// Its connection is closed: the engine hears of it when it is known how the process ended.
    pub(super) fn client_gone(&mut self, number: u64) {
        let now = self.clock.now();
        let Some(client) = self.clients.get_mut(number) else { return };
        let waits = client.rank.is_some_and(|rank| self.ranks.running(rank).is_some());
        client.closing = Some(if waits { now.after(MOMENT) } else { now });
        self.settle_clients(now);
    }

    /// A process ended, and its connections with it.
    pub(super) fn close_clients_of(&mut self, rank: u32) {
        let now = self.clock.now();
        for client in self.clients.all.values_mut() {
            if client.rank == Some(rank) && client.closing.is_some() {
                client.closing = Some(now);
            }
        }
        self.settle_clients(now);
    }

    /// The connections of a process that is gone go, also those that another one has inherited.
    pub(super) fn drop_clients_of(&mut self, rank: u32) {
        let now = self.clock.now();
        for client in self.clients.all.values_mut().filter(|client| client.rank == Some(rank)) {
            client.closing = Some(now);
        }
        self.settle_clients(now);
    }

    /// Clients that are over leave, and the engine hears of it.
    pub(super) fn settle_clients(&mut self, now: Time) {
        for number in self.clients.settle(now) {
            self.engine.client_closed(now, ClientId(number));
        }
    }

    /// Sends what waits for clients.
    pub(super) fn flush_clients(&mut self) {
        for (number, left) in self.clients.flush() {
            if let Some(left) = left {
                self.cut_off(number, &format!("it has not read {left} bytes that are for it"));
            }
            self.client_gone(number);
        }
        if std::mem::take(&mut self.clients.rings)
            && let Some(datastore) = self.datastore.as_mut()
        {
            datastore.ring();
        }
    }
}

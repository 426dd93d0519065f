//! The broker's engine: tenants, their endpoints, and the virtual connections between them.
//!
//! A state machine without I/O or a clock. What tenants say goes in ([`Engine::attach`],
//! [`Engine::register`], [`Engine::handle`], [`Engine::detach`]), with the time; orders come out
//! ([`Engine::poll`]), one at a time, each of which is carried out and reported
//! ([`Engine::complete`]) before the next is asked for.
//!
//! A *port* is one endpoint of a tenant, with a ring each way. A *connection* goes one way, from a
//! port to another. The sender may have a *window* of bytes on their way, which the receiver has not
//! consumed; so the broker keeps no more than that for a connection, and a receiver that is stopped
//! stops what is sent to it, and nothing else.
//!
//! # The order of service
//!
//! Tenants by turns, by deficit round robin, and within each its connections in the same way: what a
//! tenant gets does not depend on how many connections others have. A tenant without tokens waits
//! for its time; a connection whose receiver has no room waits for that.
//!
//! # What is checked
//!
//! Everything that a tenant says, here, once: numbers, windows, lengths, and whether memory is its
//! own. One that breaks the rules is a [`Violation`]; its user detaches the port. That there is no
//! such connection any more is none: both sides may end one at once.

mod connection;
mod log;
mod requests;
mod schedule;
mod status;
#[cfg(test)]
mod tests;

use crate::{
    bucket::Bucket,
    config::{Config, Limits},
    rules::{Rules, Verdict},
};
use connection::{Connection, Side};
use log::{Log, What};
use petasos_fabric::Time;
use petasos_tenant::{
    Name,
    wire::{Answer, Piece},
};
use std::collections::{BTreeSet, HashMap, VecDeque};

pub use connection::Counters;
pub use log::Entry;
pub use requests::Violation;
pub use status::{ConnectionStatus, EndpointStatus, Status, TenantStatus};

/// An endpoint of a tenant: no other has or had this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortId(pub u64);

/// Refusals that wait to be told to one port. One that asks for more does not wait for answers.
const REFUSALS: usize = 256;
/// Connections of which something is to be said to a port that has no room, until no more are made
/// to it.
const UNREAD: usize = 64;

/// What is to be done. Report the outcome by [`Engine::complete`].
#[derive(Debug, PartialEq, Eq)]
pub enum Order<'a> {
    /// Put a message into the ring of a port.
    Send {
        /// The port.
        port: PortId,
        /// The message.
        answer: Answer<'a>,
    },
    /// Copy from memory of one port to memory of another. Both were checked to be within files that
    /// are registered, and to have the same length.
    Copy {
        /// Whose memory is read.
        from: PortId,
        /// Where it lies.
        source: &'a [Piece],
        /// Whose memory is written.
        to: PortId,
        /// Where it lies.
        target: &'a [Piece],
    },
    /// Put what lies in memory of one port into the ring of another, as [`Answer::Payload`].
    Payload {
        /// Whose memory is read.
        from: PortId,
        /// Where it lies.
        source: &'a [Piece],
        /// Whose ring it goes to.
        to: PortId,
        /// The number that the connection has there.
        connection: u64,
    },
}

/// How an order ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Well.
    Done,
    /// There is no room in the ring: [`Engine::room`] says when there is.
    Full,
    /// There is no such memory any more.
    Failed,
}

/// The order that was given last.
#[derive(Clone, Copy, Debug)]
enum Current {
    Refusal(PortId),
    Owed(u64, Side, Word),
    Item(u64),
    Fetch(u64),
}

/// One of the things that are owed to one side.
#[derive(Clone, Copy, Debug)]
enum Word {
    Incoming,
    Credit(u32),
    Returned,
    Fetched,
    End,
}

struct Tenant {
    name: String,
    limits: Limits,
    bytes: Bucket,
    messages: Bucket,
    ports: u32,
    /// Connections from it, and to it.
    made: u32,
    taken: u32,
    /// Windows of those from it.
    granted: u64,
    /// Memory that its ports may register.
    memory: Memory,
    /// Connections with work, and what is left of this turn.
    active: VecDeque<u64>,
    deficit: i64,
    /// Whether it is in the list of those to be served, or of those that wait for tokens.
    listed: bool,
    sent: Counters,
    received: Counters,
    refused: u64,
    violations: u64,
    throttled: u64,
}

/// How much memory may be registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Bytes of all files together.
    pub bytes: u64,
    /// Files.
    pub files: u32,
}

impl Memory {
    /// What the next port of a tenant gets, of which others have this.
    fn next(self, limits: &Limits) -> Memory {
        Memory {
            bytes: limits.registered_bytes.saturating_sub(self.bytes) / 4,
            files: limits.registered_files.saturating_sub(self.files) / 4,
        }
    }
}

struct Port {
    tenant: usize,
    name: Name,
    /// The last number of a connection that it made.
    last: u64,
    /// Connections by the number that it gave them.
    out: HashMap<u64, u64>,
    /// Connections to it.
    inward: BTreeSet<u64>,
    /// Registered files and their lengths.
    files: HashMap<u64, u64>,
    registered: u64,
    /// What it may register.
    memory: Memory,
    /// Whether its ring has no room.
    full: bool,
    refusals: VecDeque<(u64, String)>,
    owed: VecDeque<(u64, Side)>,
    /// Whether it is among those to which something is owed.
    noticed: bool,
    /// Connections that wait for room in its ring.
    blocked: Vec<u64>,
}

/// The engine.
pub struct Engine {
    rules: Rules,
    tenants: Vec<Tenant>,
    ports: HashMap<PortId, Port>,
    names: HashMap<Name, PortId>,
    connections: HashMap<u64, Connection>,
    /// The next port or connection.
    next: u64,
    /// Ports to which something is owed.
    noticed: VecDeque<PortId>,
    /// Tenants with work, by turns; and those that wait for tokens, until when.
    runnable: VecDeque<usize>,
    timed: Vec<(Time, usize)>,
    current: Option<Current>,
    log: Log,
    now: Time,
}

impl Engine {
    /// With the tenants and rules of a configuration, which was checked.
    #[must_use]
    pub fn new(config: &Config, now: Time) -> Engine {
        let tenant = |tenant: &crate::config::Tenant| Tenant {
            name: tenant.name.clone(),
            limits: tenant.limits,
            bytes: Bucket::new(tenant.limits.bytes_per_second, now),
            messages: Bucket::new(tenant.limits.messages_per_second, now),
            ports: 0,
            made: 0,
            taken: 0,
            granted: 0,
            memory: Memory::default(),
            active: VecDeque::new(),
            deficit: 0,
            listed: false,
            sent: Counters::default(),
            received: Counters::default(),
            refused: 0,
            violations: 0,
            throttled: 0,
        };
        Engine {
            rules: config.rules(),
            tenants: config.tenants.iter().map(tenant).collect(),
            ports: HashMap::new(),
            names: HashMap::new(),
            connections: HashMap::new(),
            next: 1,
            noticed: VecDeque::new(),
            runnable: VecDeque::new(),
            timed: Vec::new(),
            current: None,
            log: Log::default(),
            now,
        }
    }

    /// The rules and limits of another configuration with the same tenants. Connections that the
    /// rules do not allow any more are ended; limits hold for what comes.
    pub fn reload(&mut self, config: &Config, now: Time) {
        self.now = now;
        self.rules = config.rules();
        for (tenant, new) in self.tenants.iter_mut().zip(&config.tenants) {
            tenant.limits = new.limits;
            tenant.bytes.set_rate(new.limits.bytes_per_second, now);
            tenant.messages.set_rate(new.limits.messages_per_second, now);
        }
        let denied = |connection: &Connection| {
            // By their names: what one that is gone has sent is under way.
            let [from, to] = &connection.names;
            connection.licence.is_none() && self.rules.decide(from, to).0 == Verdict::Deny
        };
        let ended: Vec<u64> =
            self.connections.iter().filter(|(_, c)| denied(c)).map(|(id, _)| *id).collect();
        for id in ended {
            self.end(id, "the rules do not allow it any more");
        }
    }

    /// A tenant opens an endpoint: with this name, or with any.
    ///
    /// # Errors
    /// Why it is not let in, in words for its user.
    pub fn attach(
        &mut self,
        tenant: usize,
        name: Option<&Name>,
        now: Time,
    ) -> Result<(PortId, Name), String> {
        self.now = now;
        let whose = &mut self.tenants[tenant];
        if whose.ports >= whose.limits.endpoints {
            whose.refused += 1;
            return Err(format!(
                "the tenant {} has {} endpoints, its limit",
                whose.name, whose.ports
            ));
        }
        let id = PortId(self.next);
        let name = match name {
            Some(name) if name.tenant() != whose.name => {
                whose.refused += 1;
                return Err(format!("{name}: this is the socket of the tenant {}", whose.name));
            }
            Some(name) => name.clone(),
            None => Name::new(&format!("n{}", id.0), &whose.name).expect("a number is a name"),
        };
        if self.names.contains_key(&name) {
            whose.refused += 1;
            return Err(format!("{name}: there is such an endpoint already"));
        }
        let memory = whose.memory.next(&whose.limits);
        whose.memory.bytes += memory.bytes;
        whose.memory.files += memory.files;
        whose.ports += 1;
        self.next += 1;
        self.names.insert(name.clone(), id);
        let port = Port {
            tenant,
            name: name.clone(),
            last: 0,
            out: HashMap::new(),
            inward: BTreeSet::new(),
            files: HashMap::new(),
            registered: 0,
            memory,
            full: false,
            refusals: VecDeque::new(),
            owed: VecDeque::new(),
            noticed: false,
            blocked: Vec::new(),
        };
        self.ports.insert(id, port);
        Ok((id, name))
    }

    /// An endpoint has ended. What it had sent is still delivered.
    pub fn detach(&mut self, port: PortId, now: Time) {
        self.now = now;
        let Some(gone) = self.ports.remove(&port) else { return };
        self.names.remove(&gone.name);
        let tenant = &mut self.tenants[gone.tenant];
        tenant.ports -= 1;
        tenant.memory.bytes -= gone.memory.bytes;
        tenant.memory.files -= gone.memory.files;
        for id in gone.out.into_values() {
            self.close_from(id);
            self.forget_side(id, Side::From);
        }
        for id in gone.inward {
            self.close_to(id);
            self.forget_side(id, Side::To);
        }
        // Of connections that it had closed itself.
        gone.owed.into_iter().for_each(|(id, side)| self.forget_side(id, side));
    }

    /// A port broke the rules, and is detached.
    pub fn expel(&mut self, port: PortId, why: &str, now: Time) {
        if let Some(known) = self.ports.get(&port) {
            let (tenant, name) = (known.tenant, known.name.clone());
            self.tenants[tenant].violations += 1;
            tracing::warn!(endpoint = %name, why, "an endpoint broke the rules");
            self.log.add(now, What::Expelled, &name, &name, why, Counters::default());
        }
        self.detach(port, now);
    }

    /// A port passes memory.
    ///
    /// # Errors
    /// [`Violation`] if that is more than it may, or a number that it has used.
    pub fn register(&mut self, port: PortId, file: u64, len: u64) -> Result<(), Violation> {
        let Some(port) = self.ports.get_mut(&port) else { return Ok(()) };
        let most = port.memory.bytes;
        let all = port.registered.checked_add(len).filter(|all| *all <= most);
        let all = all.ok_or(Violation::Memory { len, registered: port.registered, most })?;
        if port.files.len() >= port.memory.files as usize {
            return Err(Violation::Files(port.memory.files));
        }
        if port.files.insert(file, len).is_some() {
            return Err(Violation::File(file));
        }
        port.registered = all;
        Ok(())
    }

    /// There is room in the ring of a port again.
    pub fn room(&mut self, id: PortId) {
        let Some(port) = self.ports.get_mut(&id) else { return };
        port.full = false;
        if !port.refusals.is_empty() || !port.owed.is_empty() {
            self.notice(id);
        }
        let Some(port) = self.ports.get_mut(&id) else { return };
        for blocked in std::mem::take(&mut port.blocked) {
            if let Some(connection) = self.connections.get_mut(&blocked) {
                connection.scheduled = false;
            }
            self.schedule(blocked);
        }
    }

    /// Whether a port waits for room.
    #[must_use]
    pub fn is_full(&self, port: PortId) -> bool {
        self.ports.get(&port).is_some_and(|port| port.full)
    }

    /// What a port may register.
    #[must_use]
    pub fn memory(&self, port: PortId) -> Memory {
        self.ports.get(&port).map(|port| port.memory).unwrap_or_default()
    }

    /// The name of a port.
    #[must_use]
    pub fn name(&self, port: PortId) -> Option<&Name> {
        self.ports.get(&port).map(|port| &port.name)
    }

    fn notice(&mut self, id: PortId) {
        if let Some(port) = self.ports.get_mut(&id)
            && !port.full
            && !std::mem::replace(&mut port.noticed, true)
        {
            self.noticed.push_back(id);
        }
    }

    /// Something is owed to one side of a connection.
    fn owe(&mut self, id: u64, side: Side) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let port = connection.port(side);
        let Some(to) = self.ports.get_mut(&port) else { return };
        if !std::mem::replace(&mut connection.owed(side).listed, true) {
            to.owed.push_back((id, side));
        }
        self.notice(port);
    }

    /// The port of one side is gone: nothing is owed to it.
    fn forget_side(&mut self, id: u64, side: Side) {
        if let Some(connection) = self.connections.get_mut(&id) {
            *connection.owed(side) = connection::Owed::default();
            match side {
                Side::From => connection.from_open = false,
                Side::To => connection.to_open = false,
            }
        }
        self.remove_if_over(id);
    }

    /// The sender closes: the receiver gets what was sent, and then the end.
    fn close_from(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        (connection.from_open, connection.over) = (false, true);
        if connection.to_open && connection.owed_to.end.is_none() {
            connection.closing.get_or_insert_default();
        }
        connection.owed_from.forgive();
        let mut owes = false;
        if let Some(loan) = &mut connection.loan {
            // Its memory is not to be read any more.
            connection.owed_from.returned = true;
            owes = true;
            loan.aborted = true;
            if loan.announced {
                connection.loan = None;
            }
        }
        let (from, number) = (connection.from, connection.number);
        if let Some(port) = self.ports.get_mut(&from) {
            port.out.remove(&number);
        }
        if owes {
            self.owe(id, Side::From);
        }
        self.end_licensed(id);
        self.go_on(id);
    }

    /// The receiver drops it, or is gone.
    fn close_to(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        (connection.to_open, connection.over) = (false, true);
        connection.closing = None;
        connection.queue.clear();
        connection.loan = None;
        connection.owed_to.forgive();
        if connection.fetching {
            // Nothing of its memory is written from now on: it waits to hear that.
            connection.owed_to.fetched = Some(false);
            self.owe(id, Side::To);
        }
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let owes = connection.from_open;
        if owes {
            connection.owed_from.end.get_or_insert_default();
        }
        let to = connection.to;
        if let Some(port) = self.ports.get_mut(&to) {
            port.inward.remove(&id);
        }
        if owes {
            self.owe(id, Side::From);
        }
        self.end_licensed(id);
        self.remove_if_over(id);
    }

    /// The broker ends a connection, both ways, with what is on its way.
    fn end(&mut self, id: u64, why: &str) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.queue.clear();
        connection.loan = None;
        connection.over = true;
        connection.closing = Some(why.to_owned());
        if connection.from_open {
            connection.owed_from.end = Some(why.to_owned());
            self.owe(id, Side::From);
        }
        self.end_licensed(id);
        self.go_on(id);
    }

    fn end_licensed(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        for licensed in std::mem::take(&mut connection.licensed) {
            self.end(licensed, "");
        }
    }

    /// After something of the queue is gone: tells the end, if that was the last.
    fn go_on(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let aborted = connection.queue.len() == 1
            && connection.loan.as_ref().is_some_and(|loan| loan.aborted && !loan.announced);
        if aborted {
            connection.queue.clear();
            connection.loan = None;
        }
        if connection.queue.is_empty()
            && connection.loan.is_none()
            && connection.to_open
            && let Some(why) = connection.closing.take()
        {
            connection.owed_to.end = Some(why);
            self.owe(id, Side::To);
        } else {
            self.schedule(id);
        }
        self.remove_if_over(id);
    }

    /// Removes a connection that neither side has, and of which nothing is left to be said. Until
    /// then it counts for the limits of its tenants; so does one that is still in the list of a port,
    /// which is as long as its tenant does not read: no list is longer than the limits say.
    fn remove_if_over(&mut self, id: u64) {
        let Some(connection) = self.connections.get(&id) else { return };
        let Connection { from_open, to_open, owed_from, owed_to, .. } = connection;
        let is_over = |owed: &connection::Owed| owed.is_nothing() && !owed.listed;
        if *from_open || *to_open || !is_over(owed_from) || !is_over(owed_to) {
            return;
        }
        let Some(connection) = self.connections.remove(&id) else { return };
        if connection.scheduled {
            self.tenants[connection.tenants[0]].active.retain(|other| *other != id);
            if let Some(port) = self.ports.get_mut(&connection.to) {
                port.blocked.retain(|other| *other != id);
            }
        }
        if let Some(licence) = connection.licence.and_then(|id| self.connections.get_mut(&id)) {
            licence.licensed.retain(|other| *other != id);
        }
        for (port, side) in [(connection.from, Side::From), (connection.to, Side::To)] {
            if let Some(port) = self.ports.get_mut(&port) {
                match side {
                    Side::From => port.out.remove(&connection.number).is_some(),
                    Side::To => port.inward.remove(&id),
                };
            }
        }
        let Connection { tenants: [from, to], .. } = connection;
        self.tenants[from].made -= 1;
        self.tenants[from].granted -= u64::from(connection.window);
        self.tenants[to].taken -= 1;
        let [from, to] = &connection.names;
        self.log.add(self.now, What::Ended, from, to, &connection.rule, connection.counters);
        tracing::debug!(%from, %to, bytes = connection.counters.bytes, "a connection has ended");
    }
}

impl Engine {
    /// The next thing to do, if there is one now; [`Engine::next_time`] says when there may be.
    ///
    /// # Panics
    /// If the outcome of the last one was not reported.
    pub fn poll(&mut self, now: Time) -> Option<Order<'_>> {
        assert!(self.current.is_none(), "the outcome of the last order is missing");
        self.now = now;
        let current = match self.next_owed() {
            Some(current) => current,
            None => self.next_item(now)?,
        };
        self.current = Some(current);
        Some(self.order(current))
    }

    /// What is owed to a port that has room.
    fn next_owed(&mut self) -> Option<Current> {
        while let Some(id) = self.noticed.front().copied() {
            let Some(port) = self.ports.get_mut(&id).filter(|port| !port.full) else {
                self.noticed.pop_front();
                if let Some(port) = self.ports.get_mut(&id) {
                    port.noticed = false;
                }
                continue;
            };
            if !port.refusals.is_empty() {
                return Some(Current::Refusal(id));
            }
            let Some((connection, side)) = port.owed.front().copied() else {
                port.noticed = false;
                self.noticed.pop_front();
                continue;
            };
            let owed = self.connections.get_mut(&connection).map(|c| c.owed(side));
            if let Some(owed) = owed {
                let word = match owed {
                    connection::Owed { incoming: true, .. } => Some(Word::Incoming),
                    connection::Owed { fetched: Some(_), .. } => Some(Word::Fetched),
                    connection::Owed { returned: true, .. } => Some(Word::Returned),
                    connection::Owed { end: Some(_), .. } => Some(Word::End),
                    connection::Owed { credit, .. } if *credit > 0 => Some(Word::Credit(*credit)),
                    _ => None,
                };
                if let Some(word) = word {
                    return Some(Current::Owed(connection, side, word));
                }
                owed.listed = false;
            }
            if let Some(port) = self.ports.get_mut(&id) {
                port.owed.pop_front();
            }
            self.remove_if_over(connection);
        }
        None
    }

    fn order(&self, current: Current) -> Order<'_> {
        let of = |id: u64| self.connections.get(&id).expect("a connection that has work");
        match current {
            Current::Refusal(port) => {
                let (connection, why) =
                    self.ports[&port].refusals.front().expect("a refusal waits").clone();
                Order::Send { port, answer: Answer::Ended { connection, why } }
            }
            Current::Owed(id, side, word) => {
                let connection = of(id);
                let number = match side {
                    Side::From => connection.number,
                    Side::To => id,
                };
                let answer = match (word, side) {
                    (Word::Incoming, _) => {
                        Answer::Incoming { connection: id, from: connection.names[0].clone() }
                    }
                    (Word::Credit(bytes), _) => Answer::Credit { connection: number, bytes },
                    (Word::Returned, _) => Answer::Returned { connection: number },
                    (Word::Fetched, _) => {
                        let done = connection.owed_to.fetched == Some(true);
                        Answer::Fetched { connection: id, done }
                    }
                    (Word::End, Side::From) => {
                        let why = connection.owed_from.end.clone().unwrap_or_default();
                        Answer::Ended { connection: number, why }
                    }
                    (Word::End, Side::To) => {
                        let why = connection.owed_to.end.clone().unwrap_or_default();
                        Answer::Over { connection: id, why }
                    }
                };
                Order::Send { port: connection.port(side), answer }
            }
            Current::Item(id) => {
                let connection = of(id);
                let (mark, bytes) = connection.queue.front().expect("something is queued");
                let answer = match (mark, &connection.loan) {
                    (connection::mark::LENT, Some(loan)) => {
                        Answer::Lent { connection: id, header: bytes, len: loan.len }
                    }
                    _ => Answer::Data { connection: id, bytes },
                };
                Order::Send { port: connection.to, answer }
            }
            Current::Fetch(id) => {
                let connection = of(id);
                let loan = connection.loan.as_ref().expect("a payload is asked for");
                let (from, to, source) = (connection.from, connection.to, &loan.source[..]);
                match &loan.fetch {
                    Some(connection::Fetch::Into(target)) => {
                        Order::Copy { from, source, to, target }
                    }
                    _ => Order::Payload { from, source, to, connection: id },
                }
            }
        }
    }

    /// How the last order ended.
    ///
    /// # Panics
    /// If there was none.
    pub fn complete(&mut self, outcome: Outcome) {
        let current = self.current.take().expect("an order was given");
        match current {
            Current::Refusal(port) => {
                if outcome == Outcome::Full {
                    return self.set_full(port);
                }
                if let Some(port) = self.ports.get_mut(&port) {
                    port.refusals.pop_front();
                }
            }
            Current::Owed(id, side, word) => {
                let Some(connection) = self.connections.get_mut(&id) else { return };
                if outcome == Outcome::Full {
                    let port = connection.port(side);
                    return self.set_full(port);
                }
                let owed = connection.owed(side);
                match word {
                    Word::Incoming => owed.incoming = false,
                    Word::Credit(bytes) => owed.credit -= bytes,
                    Word::Returned => owed.returned = false,
                    Word::Fetched => {
                        owed.fetched = None;
                        connection.fetching = false;
                    }
                    Word::End => {
                        owed.forgive();
                        connection.fetching &= side == Side::From;
                        match side {
                            Side::From => connection.from_open = false,
                            Side::To => connection.to_open = false,
                        }
                    }
                }
            }
            Current::Item(id) => self.item_done(id, outcome),
            Current::Fetch(id) => self.fetch_done(id, outcome),
        }
    }

    fn set_full(&mut self, id: PortId) {
        if let Some(port) = self.ports.get_mut(&id) {
            port.full = true;
        }
    }
}

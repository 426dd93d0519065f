//! What tenants say, checked.

use super::{
    Engine, PortId, REFUSALS, UNREAD,
    connection::{Connection, Counters, Fetch, Loan, MIN_WINDOW, Owed, PACKET, Side, mark},
    log::What,
};
use crate::rules::Verdict;
use petasos_fabric::Time;
use petasos_tenant::{
    Fifo, Name,
    wire::{Malformed, Piece, Pieces, Request, WINDOW, cost, total},
};

/// How a tenant broke the rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// It is no message.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A number that was used before.
    #[error("it made the connection {0} again")]
    Again(u64),
    /// A number that it never had.
    #[error("it has no connection {0}")]
    Unknown(u64),
    /// It sent more than it may.
    #[error("it sent {len} bytes on a connection, where {left} may be sent")]
    Window {
        /// Bytes of the packet.
        len: u64,
        /// Of its window.
        left: u32,
    },
    /// It gave back more than it had.
    #[error("it consumed {0} bytes more than it was given")]
    Credit(u32),
    /// It sent something while memory of a packet was lent.
    #[error("it sent a packet behind one whose payload is not fetched")]
    Behind,
    /// Memory that it has not registered.
    #[error("it has not registered the file {0}")]
    UnknownFile(u64),
    /// Memory beyond the end of a file.
    #[error("{offset}+{len} is beyond the {is} bytes of a file that it registered")]
    Beyond {
        /// Where, in bytes.
        offset: u64,
        /// How many.
        len: u64,
        /// Bytes of the file.
        is: u64,
    },
    /// A target of another length than the source.
    #[error("it wants a payload of {is} bytes in {wanted} bytes of memory")]
    Target {
        /// The payload's.
        is: u64,
        /// The memory's.
        wanted: u64,
    },
    /// It registered more memory than it may.
    #[error("it registered {len} bytes beside {registered}, where {most} are its limit")]
    Memory {
        /// Bytes of the file.
        len: u64,
        /// Bytes that it had registered.
        registered: u64,
        /// How many it may.
        most: u64,
    },
    /// It registered more files than it may: so many.
    #[error("it registered more than {0} files")]
    Files(u32),
    /// It registered a number that it had registered.
    #[error("it registered the file {0} again")]
    File(u64),
    /// It asks for connections and does not read the answers.
    #[error("it does not take the answers to its requests")]
    Flood,
}

impl Engine {
    /// A port says something.
    ///
    /// # Errors
    /// [`Violation`]: detach it. After [`Violation::UnknownFile`] nothing has changed, and the
    /// same may be passed again.
    pub fn handle(
        &mut self,
        port: PortId,
        request: &Request<'_>,
        now: Time,
    ) -> Result<(), Violation> {
        self.now = now;
        if !self.ports.contains_key(&port) {
            return Ok(());
        }
        match request {
            Request::Connect { connection, to } => self.connect(port, *connection, to),
            Request::Data { connection, bytes } => {
                let (len, cost) = (bytes.len() as u64, cost(bytes.len()));
                let Some(id) = self.sends(port, *connection, len, cost)? else {
                    return Ok(());
                };
                self.queue(id, mark::DATA, bytes, cost);
                Ok(())
            }
            Request::Lend { connection, header, payload } => {
                self.check(port, payload)?;
                let (len, cost) = (total(payload)?, cost(header.len()));
                let Some(id) = self.sends(port, *connection, len, cost)? else {
                    return Ok(());
                };
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.loan = Some(Loan {
                        source: payload.clone(),
                        len,
                        announced: false,
                        fetch: None,
                        aborted: false,
                    });
                }
                self.queue(id, mark::LENT, header, cost);
                Ok(())
            }
            Request::Close { connection } => {
                if let Some(id) = self.of(port, *connection)? {
                    self.close_from(id);
                }
                Ok(())
            }
            Request::Drop { connection } => {
                if self.to(port, *connection)?.is_some() {
                    self.close_to(*connection);
                }
                Ok(())
            }
            Request::Credit { connection: id, bytes } => {
                let Some(connection) = self.to(port, *id)? else { return Ok(()) };
                connection.delivered =
                    connection.delivered.checked_sub(*bytes).ok_or(Violation::Credit(*bytes))?;
                connection.used -= bytes;
                if connection.from_open && !connection.over {
                    // Of a sender that sends before it is told that it may: no more than there is.
                    let credit = connection.owed_from.credit.saturating_add(*bytes);
                    connection.owed_from.credit = credit.min(connection.window);
                    self.owe(*id, Side::From);
                }
                Ok(())
            }
            Request::Fetch { connection, into } => {
                self.check(port, into)?;
                self.fetch(port, *connection, Fetch::Into(into.clone()), Some(total(into)?))
            }
            Request::Take { connection } => self.fetch(port, *connection, Fetch::Take, None),
            Request::Forget { file } => {
                if let Some(port) = self.ports.get_mut(&port) {
                    let len = port.files.remove(file).ok_or(Violation::UnknownFile(*file))?;
                    port.registered -= len;
                }
                Ok(())
            }
        }
    }

    /// The connection that a port made under this number; `None` if it has ended.
    fn of(&self, port: PortId, number: u64) -> Result<Option<u64>, Violation> {
        let Some(port) = self.ports.get(&port) else { return Ok(None) };
        match port.out.get(&number) {
            None if number > port.last => Err(Violation::Unknown(number)),
            id => Ok(id.copied()),
        }
    }

    /// The connection to a port of this number; `None` if it has ended.
    fn to(&mut self, port: PortId, id: u64) -> Result<Option<&mut Connection>, Violation> {
        // Whether there was such a connection, and of others, is not said.
        if id >= self.next {
            return Err(Violation::Unknown(id));
        }
        Ok(self.connections.get_mut(&id).filter(|c| c.to == port && c.to_open))
    }

    /// Whether these pieces are memory of a port.
    fn check(&self, port: PortId, pieces: &Pieces) -> Result<(), Violation> {
        let Some(port) = self.ports.get(&port) else { return Ok(()) };
        for Piece { file, offset, len } in pieces.iter().copied() {
            let is = *port.files.get(&file).ok_or(Violation::UnknownFile(file))?;
            if offset.checked_add(len).is_none_or(|end| end > is) {
                return Err(Violation::Beyond { offset, len, is });
            }
        }
        Ok(())
    }

    fn connect(&mut self, from: PortId, number: u64, to: &Name) -> Result<(), Violation> {
        let Some(port) = self.ports.get_mut(&from) else { return Ok(()) };
        if number <= port.last {
            return Err(Violation::Again(number));
        }
        port.last = number;
        // To be asked is work as a message is, which the next messages wait for.
        self.tenants[port.tenant].messages.take(1);
        let (tenant, name) = (port.tenant, port.name.clone());
        let (rule, licence) = match self.may_connect(from, &name, to) {
            Ok(allowed) => allowed,
            Err(why) => return self.refuse(from, number, to, why),
        };
        let Some(target) = self.names.get(to).copied() else {
            return self.refuse(from, number, to, format!("no endpoint {to} here now"));
        };
        let there = &self.ports[&target];
        if there.full && there.owed.len() >= UNREAD {
            return self.refuse(from, number, to, format!("{to} does not read"));
        }
        let other = there.tenant;
        let (whose, theirs) = (&self.tenants[tenant], &self.tenants[other]);
        let left = whose.limits.outstanding_bytes.saturating_sub(whose.granted);
        let window = u32::try_from(left / 4).unwrap_or(WINDOW).clamp(MIN_WINDOW, WINDOW);
        let limit = if whose.made >= whose.limits.connections {
            Some(format!("the tenant {} has made {} connections", whose.name, whose.made))
        } else if u64::from(window) > left {
            Some(format!("the tenant {} has no more bytes outstanding to spare", whose.name))
        } else if theirs.taken >= theirs.limits.connections {
            Some(format!("the tenant {} has {} connections to it", theirs.name, theirs.taken))
        } else {
            None
        };
        if let Some(limit) = limit {
            return self.refuse(from, number, to, format!("{limit}, its limit"));
        }
        let id = self.next;
        self.next += 1;
        self.tenants[tenant].made += 1;
        self.tenants[tenant].granted += u64::from(window);
        self.tenants[other].taken += 1;
        if let Some(licence) = licence.and_then(|id| self.connections.get_mut(&id)) {
            licence.licensed.push(id);
        }
        tracing::debug!(from = %name, %to, rule, "a connection");
        self.log.add(self.now, What::Connected, &name, to, &rule, Counters::default());
        let connection = Connection {
            from,
            number,
            to: target,
            names: [name, to.clone()],
            tenants: [tenant, other],
            rule,
            licence,
            licensed: Vec::new(),
            queue: Fifo::default(),
            window,
            used: 0,
            delivered: 0,
            loan: None,
            fetching: false,
            over: false,
            from_open: true,
            to_open: true,
            closing: None,
            owed_from: Owed { credit: window, ..Owed::default() },
            owed_to: Owed { incoming: true, ..Owed::default() },
            scheduled: false,
            deficit: 0,
            counters: Counters::default(),
        };
        self.connections.insert(id, connection);
        for (port, side) in [(from, Side::From), (target, Side::To)] {
            if let Some(port) = self.ports.get_mut(&port) {
                match side {
                    Side::From => port.out.insert(number, id).is_none(),
                    Side::To => port.inward.insert(id),
                };
            }
            self.owe(id, side);
        }
        Ok(())
    }

    /// Whether the rules allow a connection: by which rule, or as the answer to which connection.
    fn may_connect(
        &self,
        from: PortId,
        name: &Name,
        to: &Name,
    ) -> Result<(String, Option<u64>), String> {
        let why = match self.rules.decide(name, to) {
            (Verdict::Allow, rule) => return Ok((rule, None)),
            (Verdict::Deny, why) => why,
        };
        // An endpoint that was connected to may answer, for as long as that connection is there.
        let target = self.names.get(to);
        let asks = |id: &&u64| {
            self.connections.get(id).is_some_and(|c| {
                Some(&c.from) == target && c.licence.is_none() && !c.over && c.licensed.is_empty()
            })
        };
        let licence = self.ports.get(&from).and_then(|port| port.inward.iter().find(asks));
        match licence {
            Some(id) => Ok((format!("the answer to {to}"), Some(*id))),
            None => Err(format!("from {name} to {to}: {why}")),
        }
    }

    fn refuse(
        &mut self,
        from: PortId,
        number: u64,
        to: &Name,
        why: String,
    ) -> Result<(), Violation> {
        let Some(port) = self.ports.get_mut(&from) else { return Ok(()) };
        if port.refusals.len() >= REFUSALS {
            return Err(Violation::Flood);
        }
        self.tenants[port.tenant].refused += 1;
        self.log.add(self.now, What::Refused, &port.name, to, &why, Counters::default());
        tracing::debug!(from = %port.name, %to, why, "a connection was refused");
        port.refusals.push_back((number, why));
        self.notice(from);
        Ok(())
    }

    /// A port sends a packet of `len` bytes that takes `cost` bytes of the window: on which
    /// connection, unless that has ended.
    fn sends(
        &mut self,
        port: PortId,
        number: u64,
        len: u64,
        cost: u32,
    ) -> Result<Option<u64>, Violation> {
        let Some(id) = self.of(port, number)? else { return Ok(None) };
        let Some(connection) = self.connections.get_mut(&id).filter(|c| !c.over) else {
            return Ok(None);
        };
        let left = connection.window - connection.used;
        if cost > left || len > PACKET as u64 {
            return Err(Violation::Window { len: len.max(cost as u64), left });
        }
        if connection.loan.is_some() {
            return Err(Violation::Behind);
        }
        Ok(Some(id))
    }

    fn queue(&mut self, id: u64, mark: u8, bytes: &[u8], cost: u32) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.queue.push(mark, &[bytes]);
            connection.used += cost;
        }
        self.schedule(id);
    }

    fn fetch(
        &mut self,
        port: PortId,
        id: u64,
        fetch: Fetch,
        wanted: Option<u64>,
    ) -> Result<(), Violation> {
        let Some(connection) = self.to(port, id)? else { return Ok(()) };
        connection.fetching = matches!(fetch, Fetch::Into(_));
        // None: the sender has ended meanwhile.
        let Some(loan) = connection.loan.as_mut().filter(|loan| loan.announced) else {
            return Ok(());
        };
        if let Some(wanted) = wanted.filter(|wanted| *wanted != loan.len) {
            return Err(Violation::Target { is: loan.len, wanted });
        }
        loan.fetch = Some(fetch);
        self.schedule(id);
        Ok(())
    }
}

//! The endpoint's side: lines over a broker.

use crate::{
    fifo::Fifo,
    name::{Asked, Name, SCHEME},
    session::{Failed, Session, broker},
    wire::{Answer, CREDIT, Request, WINDOW, cost},
};
use petasos_fabric::{AllocError, Region, Slice, Slices};
use petasos_plugin::{ConnectError, Lent, Medium, Readiness, Received, Sent, Transport};
use petasos_shm::link::{self, Broken};
use rustix::{
    event::epoll,
    fd::{AsFd, BorrowedFd, OwnedFd},
};
use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

/// The longest packet, in bytes: two pages more than a fragment of 128 KiB.
const PACKET: usize = (128 << 10) + 2048;
/// Connections that others made and that were not accepted yet.
const WAITING: usize = 1024;
/// Messages of the broker taken in one pass.
const TURN: usize = 64;
/// Passes after which the socket is looked at, though nothing was slept: whether the broker lives.
const SELDOM: u32 = 4096;
/// The time between attempts to reach a broker.
const RETRY: Duration = Duration::from_millis(50);
/// How long the end of a line waits for the broker to let go of memory.
const PATIENCE: Duration = Duration::from_secs(1);

/// What waits to be received.
mod mark {
    pub(super) const DATA: u8 = 0;
    pub(super) const LENT: u8 = 1;
    pub(super) const PAYLOAD: u8 = 2;
    pub(super) const FETCHED: u8 = 3;
}

/// An endpoint at a broker, for [`Packets`](petasos_plugin::Packets).
pub struct Tenant {
    name: Name,
    broker: String,
    session: Option<Session>,
    /// When to look for a broker again, and why there is none.
    retry: Instant,
    why: String,
    epoll: OwnedFd,
    /// Whether this side told the broker that it sleeps.
    asleep: bool,
    passes: u32,
    /// The next connection's number.
    next: u64,
    /// By number.
    lines: Vec<Option<Line>>,
    /// Lines of this side, by the number of their connection.
    outward: HashMap<u64, u32>,
    inward: HashMap<u64, Inward>,
    /// Memory of lines that have ended, which the broker may still write, as it does not answer.
    kept: HashMap<u64, Slices>,
    /// Connections that others made, to be accepted.
    waiting: VecDeque<u64>,
    /// Lines on which there may be something, each once.
    ready: Vec<u32>,
    /// Lines that wait for room.
    full: Vec<u32>,
    message: Vec<u8>,
}

enum Line {
    Out(Outward),
    In(u64),
}

/// A line that this side made.
struct Outward {
    connection: u64,
    /// Bytes that may be sent before some were consumed.
    window: u32,
    full: bool,
    listed: bool,
    /// Why it has ended, if it has.
    ended: Option<String>,
    /// Whether the broker has memory of a packet.
    lent: bool,
}

/// A connection that another endpoint made.
#[derive(Default)]
struct Inward {
    inbox: Fifo,
    line: Option<u32>,
    listed: bool,
    /// Bytes for which no credit was given.
    consumed: u32,
    /// Why it has ended, if it has.
    over: Option<String>,
    /// Memory that the broker writes.
    fetching: Option<Slices>,
}

impl Transport for Tenant {
    const SCHEME: &'static str = SCHEME;
    const TITLE: &'static str = "the host's broker, for containers";
    const ANY: &'static str = "tenant://*";

    fn open(address: &str) -> Result<Tenant, String> {
        let asked = Asked::parse(address).map_err(|error| error.to_string())?;
        let broker = asked.broker.unwrap_or_else(broker);
        let system = |error: rustix::io::Errno| error.to_string();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system)?;
        let begun = Session::begin(&broker, asked.name.as_ref(), &epoll);
        let welcome = begun.and_then(|mut session| session.wait().map(|name| (name, session)));
        let (name, session) = welcome.map_err(|failed| match failed {
            Failed::Now(why) | Failed::Refused(why) => why,
        })?;
        Ok(Tenant {
            name,
            broker,
            session: Some(session),
            retry: Instant::now(),
            why: String::new(),
            epoll,
            asleep: false,
            passes: 0,
            next: 1,
            lines: Vec::new(),
            outward: HashMap::new(),
            inward: HashMap::new(),
            kept: HashMap::new(),
            waiting: VecDeque::new(),
            ready: Vec::new(),
            full: Vec::new(),
            message: Vec::new(),
        })
    }
}

impl Tenant {
    fn put_line(&mut self, line: u32, is: Line) {
        let index = line as usize;
        self.lines.resize_with(self.lines.len().max(index + 1), || None);
        self.lines[index] = Some(is);
    }

    fn out(&mut self, line: u32) -> Option<&mut Outward> {
        match self.lines.get_mut(line as usize) {
            Some(Some(Line::Out(out))) => Some(out),
            _ => None,
        }
    }

    /// A line of this side has something to report.
    fn list_out(&mut self, line: u32) {
        if let Some(out) = self.out(line)
            && !std::mem::replace(&mut out.listed, true)
        {
            self.ready.push(line);
        }
    }

    /// The broker is no more, or broke the rules: all connections have ended.
    fn end_session(&mut self, why: &str) {
        self.session = None;
        self.asleep = false;
        self.retry = Instant::now();
        why.clone_into(&mut self.why);
        for line in 0..self.lines.len() as u32 {
            if let Some(out) = self.out(line) {
                out.lent = false;
                out.ended.get_or_insert_with(|| why.to_owned());
                self.list_out(line);
            }
        }
        for connection in self.inward.keys().copied().collect::<Vec<_>>() {
            self.over(connection, why.to_owned());
        }
        self.outward.clear();
        self.kept.clear();
    }

    /// What the link says, or the end of the session.
    fn checked<T>(&mut self, result: Option<Result<T, Broken>>) -> Option<T> {
        match result? {
            Ok(value) => Some(value),
            Err(broken) => {
                self.end_session(&format!("the broker broke the rules of the rings: {broken}"));
                None
            }
        }
    }

    fn tell(&mut self, request: &Request<'_>) {
        let told = self.session.as_mut().map(|session| session.tell(request));
        self.checked(told);
    }

    fn offer(&mut self, request: &Request<'_>) -> Option<bool> {
        let offered = self.session.as_mut().map(|session| session.offer(request));
        self.checked(offered)
    }

    /// Makes the session anew, if it is time.
    fn reconnect(&mut self) {
        if let Some(session) = &mut self.session {
            match session.greeted() {
                Ok(Some(name)) if name == self.name => return,
                Ok(None) => return,
                Ok(Some(other)) => self.why = format!("the broker calls this endpoint {other}"),
                Err(Failed::Now(why) | Failed::Refused(why)) => self.why = why,
            }
            self.session = None;
        }
        let now = Instant::now();
        if now < self.retry {
            return;
        }
        self.retry = now + RETRY;
        match Session::begin(&self.broker, Some(&self.name), &self.epoll) {
            Ok(session) => self.session = Some(session),
            Err(Failed::Now(why) | Failed::Refused(why)) => self.why = why,
        }
    }

    /// Takes what the broker has sent.
    fn pump(&mut self) {
        if !self.session.as_ref().is_some_and(|session| session.welcome) {
            return self.reconnect();
        }
        let Some(session) = &mut self.session else { return };
        self.passes = self.passes.wrapping_add(1);
        let mut ended = None;
        if std::mem::take(&mut self.asleep) {
            session.link.awake();
            ended = session.drain().err();
        } else if self.passes.is_multiple_of(SELDOM) {
            ended = session.drain().err();
        }
        // What it sent before its end counts.
        let most = if ended.is_some() { usize::MAX } else { TURN };
        let mut message = std::mem::take(&mut self.message);
        for _ in 0..most {
            let received = self.session.as_mut().map(|session| session.link.receive(&mut message));
            if self.checked(received) != Some(true) {
                break;
            }
            match Answer::decode(&message) {
                Ok(answer) => self.take(answer),
                Err(error) => {
                    self.end_session(&format!("the broker said what it may not say: {error}"));
                }
            }
        }
        self.message = message;
        if let Some(why) = ended {
            return self.end_session(&why);
        }
        if let Some(session) = &mut self.session {
            let room = session.link.take_room();
            if room {
                session.wake(true);
            }
            let flushed = session.flush();
            if self.checked(Some(flushed)) == Some(true) && !self.full.is_empty() {
                // If there is none yet, it is to be reported again.
                let has = self.session.as_mut().map(|session| session.link.starve());
                if self.checked(has) == Some(true) {
                    std::mem::take(&mut self.full).into_iter().for_each(|line| self.list_out(line));
                }
            }
        }
    }

    fn take(&mut self, answer: Answer<'_>) {
        match answer {
            Answer::Incoming { connection, .. } => {
                if self.waiting.len() >= WAITING {
                    return self.tell(&Request::Drop { connection });
                }
                self.inward.insert(connection, Inward::default());
                self.waiting.push_back(connection);
            }
            Answer::Data { connection, bytes } => self.arrived(connection, mark::DATA, &[bytes]),
            Answer::Lent { connection, header, len } => {
                self.arrived(connection, mark::LENT, &[&len.to_le_bytes(), header]);
            }
            Answer::Payload { connection, bytes } => {
                self.arrived(connection, mark::PAYLOAD, &[bytes]);
            }
            Answer::Fetched { connection, done } => {
                self.kept.remove(&connection);
                if let Some(inward) = self.inward.get_mut(&connection) {
                    inward.fetching = None;
                }
                match done {
                    true => self.arrived(connection, mark::FETCHED, &[]),
                    false => self.over(connection, String::new()),
                }
            }
            Answer::Over { connection, why } => self.over(connection, why),
            Answer::Ended { connection, why } => {
                if let Some(line) = self.outward.remove(&connection)
                    && let Some(out) = self.out(line)
                {
                    (out.ended, out.lent) = (Some(why), false);
                    self.list_out(line);
                }
            }
            Answer::Credit { connection, bytes } => {
                if let Some(line) = self.outward.get(&connection).copied()
                    && let Some(out) = self.out(line)
                {
                    out.window = out.window.saturating_add(bytes).min(WINDOW);
                    if out.full {
                        self.list_out(line);
                    }
                }
            }
            Answer::Returned { connection } => {
                if let Some(line) = self.outward.get(&connection).copied()
                    && let Some(out) = self.out(line)
                {
                    // There may be room, as far as the program knows.
                    (out.lent, out.full) = (false, true);
                    self.list_out(line);
                }
            }
        }
    }

    /// Something of a connection came.
    fn arrived(&mut self, connection: u64, mark: u8, parts: &[&[u8]]) {
        let Some(inward) = self.inward.get_mut(&connection) else { return };
        inward.inbox.push(mark, parts);
        inward.list(&mut self.ready);
    }

    fn over(&mut self, connection: u64, why: String) {
        self.kept.remove(&connection);
        let Some(inward) = self.inward.get_mut(&connection) else { return };
        inward.over.get_or_insert(why);
        inward.fetching = None;
        inward.list(&mut self.ready);
    }

    /// What the next `receive` of this connection gives.
    fn receive_from(&mut self, connection: u64, into: &mut [u8]) -> Received {
        let Some(inward) = self.inward.get_mut(&connection) else {
            return Received::Closed(String::new());
        };
        let Some((mark, bytes)) = inward.inbox.front() else {
            return match &inward.over {
                Some(why) => Received::Closed(why.clone()),
                None => Received::Later,
            };
        };
        let (received, cost) = match (mark, bytes.split_first_chunk::<8>()) {
            (mark::LENT, Some((len, header))) => {
                let Some(room) = into.get_mut(..header.len()) else {
                    return too_long(header.len());
                };
                room.copy_from_slice(header);
                let payload = usize::try_from(u64::from_le_bytes(*len)).unwrap_or(usize::MAX);
                let cost = cost(header.len());
                (Received::Lent { header: header.len(), payload }, cost)
            }
            (mark::FETCHED, _) => (Received::Fetched, 0),
            _ => {
                let Some(room) = into.get_mut(..bytes.len()) else { return too_long(bytes.len()) };
                room.copy_from_slice(bytes);
                let cost = if mark == mark::DATA { cost(bytes.len()) } else { 0 };
                (Received::Packet(bytes.len()), cost)
            }
        };
        inward.inbox.pop();
        inward.consumed += cost;
        if inward.consumed >= CREDIT && inward.over.is_none() {
            let bytes = std::mem::take(&mut inward.consumed);
            self.tell(&Request::Credit { connection, bytes });
        }
        received
    }

    /// Waits until the broker has let go of memory of a line that ends. `within` says whether it
    /// has some.
    fn wait_for_memory(&mut self, within: impl Fn(&Tenant) -> bool) {
        let begin = Instant::now();
        while within(self) && begin.elapsed() < PATIENCE {
            self.pump();
            std::thread::yield_now();
        }
    }
}

/// A packet for which the program has no room: none of this protocol.
fn too_long(len: usize) -> Received {
    Received::Closed(format!("a packet of {len} bytes came"))
}

impl Inward {
    fn list(&mut self, ready: &mut Vec<u32>) {
        if let Some(line) = self.line
            && !std::mem::replace(&mut self.listed, true)
        {
            ready.push(line);
        }
    }
}

impl Medium for Tenant {
    fn address(&self) -> String {
        self.name.url()
    }

    fn max_packet(&self) -> usize {
        PACKET
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn connect(&mut self, line: u32, to: &str) -> Result<(), ConnectError> {
        let malformed = |why: String| ConnectError::Malformed(why);
        let asked = Asked::parse(to).map_err(|error| malformed(error.to_string()))?;
        let to = asked.name.ok_or_else(|| malformed("it names no endpoint".to_owned()))?;
        if !self.session.as_ref().is_some_and(|session| session.welcome) {
            return Err(ConnectError::Refused(self.why.clone()));
        }
        let connection = self.next;
        if self.offer(&Request::Connect { connection, to }) != Some(true) {
            return Err(ConnectError::Refused("the broker does not keep up".to_owned()));
        }
        self.next += 1;
        self.outward.insert(connection, line);
        // The broker grants a window when it has made the connection.
        let out =
            Outward { connection, window: 0, full: false, listed: false, ended: None, lent: false };
        self.put_line(line, Line::Out(out));
        Ok(())
    }

    fn accept(&mut self, line: u32) -> bool {
        while let Some(connection) = self.waiting.pop_front() {
            if let Some(inward) = self.inward.get_mut(&connection) {
                inward.line = Some(line);
                inward.listed = true;
                self.ready.push(line);
                self.put_line(line, Line::In(connection));
                return true;
            }
        }
        false
    }

    fn send(&mut self, line: u32, packet: &[u8]) -> Sent {
        let Some(out) = self.out(line) else { return Sent::Closed(String::new()) };
        if let Some(why) = &out.ended {
            return Sent::Closed(why.clone());
        }
        let (connection, cost) = (out.connection, cost(packet.len()));
        let fits = out.window >= cost;
        if fits && self.offer(&Request::Data { connection, bytes: packet }) == Some(true) {
            if let Some(out) = self.out(line) {
                (out.window, out.full) = (out.window - cost, false);
            }
            return Sent::All;
        }
        self.wait_for_room(line, fits)
    }

    fn receive(&mut self, line: u32, into: &mut [u8]) -> Received {
        match self.lines.get(line as usize) {
            Some(Some(Line::In(connection))) => self.receive_from(*connection, into),
            Some(Some(Line::Out(Outward { ended: None, .. }))) => Received::Later,
            Some(Some(Line::Out(Outward { ended: Some(why), .. }))) => {
                Received::Closed(why.clone())
            }
            _ => Received::Closed(String::new()),
        }
    }

    fn shut(&mut self, line: u32) {
        match self.lines.get_mut(line as usize).and_then(Option::take) {
            Some(Line::Out(out)) => {
                let connection = out.connection;
                if out.ended.is_none() {
                    self.tell(&Request::Close { connection });
                }
                if out.lent {
                    // Nothing of the memory may be read once the operation has ended.
                    self.lines[line as usize] = Some(Line::Out(out));
                    self.wait_for_memory(|tenant| {
                        let out = tenant.lines[line as usize].as_ref();
                        matches!(out, Some(Line::Out(Outward { lent: true, .. })))
                    });
                    self.lines[line as usize] = None;
                }
                self.outward.remove(&connection);
            }
            Some(Line::In(connection)) => {
                if self.inward.get(&connection).is_some_and(|inward| inward.over.is_none()) {
                    self.tell(&Request::Drop { connection });
                }
                // The broker answers that at once, however slow the sender is.
                let is_within = |inward: &Inward| inward.fetching.is_some();
                self.wait_for_memory(|tenant| {
                    tenant.inward.get(&connection).is_some_and(is_within)
                });
                let memory = self.inward.remove(&connection).and_then(|inward| inward.fetching);
                if let Some(memory) = memory {
                    // Unless it is stopped: then it may write there when it goes on, and the memory
                    // stays until it says that it does not.
                    self.kept.insert(connection, memory);
                }
            }
            None => {}
        }
    }

    fn poll(&mut self, ready: &mut Readiness<'_>) -> Result<(), String> {
        self.pump();
        if !self.waiting.is_empty() {
            ready.acceptable();
        }
        // Lines are reported until there is nothing on them; those that had no turn are first.
        let mut listed = std::mem::take(&mut self.ready);
        let mut kept = Vec::with_capacity(listed.len());
        let mut rest = Vec::new();
        for (nth, line) in listed.iter().copied().enumerate() {
            if ready.room() == 0 {
                rest = listed.split_off(nth);
                break;
            }
            match self.lines.get_mut(line as usize) {
                Some(Some(Line::In(connection))) => {
                    let Some(inward) = self.inward.get_mut(connection) else { continue };
                    if inward.inbox.is_empty() && inward.over.is_none() {
                        inward.listed = false;
                        continue;
                    }
                    ready.readable(line);
                    kept.push(line);
                }
                Some(Some(Line::Out(out))) => {
                    if out.ended.is_some() {
                        ready.readable(line);
                        kept.push(line);
                    } else {
                        if std::mem::take(&mut out.full) {
                            ready.writable(line);
                        }
                        out.listed = false;
                    }
                }
                _ => {}
            }
        }
        // What came to be listed meanwhile is behind them.
        rest.append(&mut kept);
        rest.append(&mut self.ready);
        self.ready = rest;
        Ok(())
    }

    fn arm(&mut self) -> Option<Duration> {
        let dead = |tenant: &mut Tenant| tenant.session.as_mut()?.registered.take_dead();
        while let Some(file) = dead(self) {
            self.tell(&Request::Forget { file });
        }
        let Some(session) = self.session.as_mut().filter(|session| session.welcome) else {
            return Some(RETRY);
        };
        if !self.ready.is_empty() || !self.waiting.is_empty() {
            return None;
        }
        if !session.link.sleep() {
            session.link.awake();
            return None;
        }
        self.asleep = true;
        Some(if session.is_behind() { RETRY } else { Duration::MAX })
    }

    fn alloc(&mut self, len: usize) -> Option<Result<Region, AllocError>> {
        Some(link::alloc(len))
    }

    fn lend(&mut self, line: u32, header: &[u8], payload: &[Slice]) -> Lent {
        let Some(out) = self.out(line) else { return Lent::Closed(String::new()) };
        if let Some(why) = &out.ended {
            return Lent::Closed(why.clone());
        }
        let (connection, cost) = (out.connection, cost(header.len()));
        let fits = out.window >= cost;
        let Some(session) = &mut self.session else { return Lent::No };
        let located = session.registered.locate(payload, session.memory, &session.socket);
        let Some(payload) = located else { return Lent::No };
        if fits && self.offer(&Request::Lend { connection, header, payload }) == Some(true) {
            if let Some(out) = self.out(line) {
                (out.window, out.full, out.lent) = (out.window - cost, false, true);
            }
            return Lent::Taken;
        }
        match self.wait_for_room(line, fits) {
            Sent::Closed(why) => Lent::Closed(why),
            _ => Lent::Later,
        }
    }

    fn is_lent(&self, line: u32) -> bool {
        let out = self.lines.get(line as usize).and_then(Option::as_ref);
        matches!(out, Some(Line::Out(Outward { lent: true, .. })))
    }

    fn fetch(&mut self, line: u32, into: Option<&[Slice]>) {
        let Some(Some(Line::In(connection))) = self.lines.get(line as usize) else { return };
        let connection = *connection;
        let Some(session) = &mut self.session else { return };
        let located =
            into.and_then(|into| session.registered.locate(into, session.memory, &session.socket));
        match (located, into) {
            (Some(pieces), Some(slices)) => {
                if let Some(inward) = self.inward.get_mut(&connection) {
                    inward.fetching = Some(slices.iter().cloned().collect());
                }
                self.tell(&Request::Fetch { connection, into: pieces });
            }
            _ => self.tell(&Request::Take { connection }),
        }
    }
}

impl Tenant {
    /// There was no room for a packet: its line is reported when there is. `fits` says whether that
    /// is for room in the ring.
    fn wait_for_room(&mut self, line: u32, fits: bool) -> Sent {
        let Some(out) = self.out(line) else { return Sent::Closed(String::new()) };
        if let Some(why) = &out.ended {
            return Sent::Closed(why.clone());
        }
        out.full = true;
        if fits && !self.full.contains(&line) {
            self.full.push(line);
        }
        Sent::Later
    }
}

//! A client's connection to its daemon, or to a PMIx server, for any number of threads: one of the
//! waiting threads reads for all.

use crate::{
    Error,
    event::Event,
    message::{Answer, Request},
    native::{Asked, Frames, FromDaemon, MAX_FRAME, Spin, Stream, greeting},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    collections::{HashMap, VecDeque},
    io::{self, Write},
    os::unix::net::UnixStream,
    path::Path,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{JobError, completion::SharedCompletion, lock, pmix};

/// How often the reading thread checks whether the connection was closed, which does not wake it.
const CHECK: Duration = Duration::from_millis(200);

/// The input of the thread that runs event handlers, in order.
#[derive(Debug)]
pub(super) enum Item {
    /// The registration of this handler is complete.
    Active(u64),
    /// An event came.
    Event { event: Event, only: Option<u64> },
    /// This process raised an event.
    Own(Event),
}

/// The messages that have come and were not taken.
#[derive(Debug, Default)]
struct Inbox {
    answers: HashMap<u64, Result<Answer, Error>>,
    /// Requests that register a handler, and those handlers.
    registering: HashMap<u64, u64>,
    items: VecDeque<Item>,
}

impl Inbox {
    fn put(&mut self, message: FromDaemon) {
        match message {
            FromDaemon::Answer { id, result } => {
                // Queued before the events that follow it.
                if let (Some(handler), Ok(_)) = (self.registering.remove(&id), &result) {
                    self.items.push_back(Item::Active(handler));
                }
                self.answers.insert(id, result);
            }
            FromDaemon::Event { event, only } => self.items.push_back(Item::Event { event, only }),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    last_number: u64,
    inbox: Inbox,
    /// A thread reads.
    reading: bool,
    /// How many threads wait for it.
    waiting: usize,
    /// Why there is no connection any more.
    closed: Option<String>,
}

/// The protocol on a connection.
#[derive(Debug)]
enum Protocol {
    Native,
    Pmix(Box<pmix::Dialect>),
}

#[derive(Debug)]
pub(super) struct Connection {
    protocol: Protocol,
    state: Mutex<State>,
    changed: Condvar,
    reader: Mutex<Frames>,
    spin: Mutex<Spin>,
    writer: Mutex<Frames>,
    pub(super) completion: SharedCompletion,
}

impl Connection {
    /// Connects to the daemon at this socket, with the token of the job.
    pub(super) fn connect(socket: &Path, token: &[u8]) -> io::Result<Connection> {
        let mut stream = UnixStream::connect(socket)?;
        stream.write_all(&greeting(token, None))?;
        Connection::new(Stream::Unix(stream), Protocol::Native)
    }

    /// Takes over a connection to a PMIx server.
    pub(super) fn pmix(stream: Stream, dialect: pmix::Dialect) -> io::Result<Connection> {
        Connection::new(stream, Protocol::Pmix(Box::new(dialect)))
    }

    fn new(stream: Stream, protocol: Protocol) -> io::Result<Connection> {
        let reader = Frames::new(stream.try_clone()?, MAX_FRAME);
        reader.set_patience(CHECK)?;
        let reader = Mutex::new(reader);
        let writer = Mutex::new(Frames::new(stream, MAX_FRAME));
        let completion = SharedCompletion::default();
        // No number is that of another process's request: see `completion.rs`.
        let last_number = match &protocol {
            Protocol::Native => completion.first_number(),
            Protocol::Pmix(_) => 0,
        };
        let state = Mutex::new(State { last_number, ..State::default() });
        let (changed, spin) = (Condvar::new(), Mutex::default());
        Ok(Connection { protocol, state, changed, reader, spin, writer, completion })
    }

    /// Sends a request, and waits for the answer. After `patience` the daemon counts as silent.
    pub(super) fn call(&self, what: Request, patience: Duration) -> Result<Answer, JobError> {
        let id = self.number();
        if let Request::Register { handler, .. } = &what {
            lock(&self.state).inbox.registering.insert(id, *handler);
        }
        let sent = {
            let mut writer = lock(&self.writer);
            match &self.protocol {
                Protocol::Native => {
                    if let Err(error) = writer.push(&Asked::Request { id, what }) {
                        lock(&self.state).inbox.registering.remove(&id);
                        return Err(JobError::Refused(error));
                    }
                }
                Protocol::Pmix(dialect) => {
                    if let Some(answer) = dialect.push(&mut writer, id, what)? {
                        lock(&self.state).inbox.put(answer);
                    }
                }
            }
            writer.flush()
        };
        if let Err(error) = sent {
            return Err(self.lost(&error));
        }
        self.answer(id, patience)
    }

    /// The number of the next request.
    pub(super) fn number(&self) -> u64 {
        let mut state = lock(&self.state);
        state.last_number += 1;
        state.last_number
    }

    /// Sends a message to a daemon.
    pub(super) fn send(&self, what: &Asked) -> Result<(), JobError> {
        let sent = {
            let mut writer = lock(&self.writer);
            writer.push(what).map_err(JobError::Refused)?;
            writer.flush()
        };
        sent.map(drop).map_err(|error| self.lost(&error))
    }

    /// Waits for the answer to a request.
    pub(super) fn answer(&self, id: u64, patience: Duration) -> Result<Answer, JobError> {
        let until = Instant::now() + patience;
        let answer = self.wait(Some(until), |state| state.inbox.answers.remove(&id));
        answer?.ok_or(JobError::Silent(patience))?.map_err(JobError::Refused)
    }

    /// Yields the processor. Says whether to poll once more, for a thread that began to poll at
    /// `since`.
    pub(super) fn keep_polling(&self, since: Instant) -> bool {
        lock(&self.spin).again(since)
    }

    /// Whether an answer has come, or none will come. Does not wait.
    pub(super) fn is_answered(&self, id: u64) -> bool {
        let answered =
            |state: &State| state.closed.is_some() || state.inbox.answers.contains_key(&id);
        let mut state = lock(&self.state);
        if !answered(&state) && !state.reading {
            state = self.read_for_all(state, || self.read_now());
        }
        answered(&state)
    }

    /// The next input of the thread that runs handlers; `None`: there is no connection any more.
    pub(super) fn next_item(&self) -> Option<Item> {
        self.wait(None, |state| state.inbox.items.pop_front()).ok().flatten()
    }

    /// Queues input for that thread.
    pub(super) fn queue_item(&self, item: Item) {
        lock(&self.state).inbox.items.push_back(item);
        self.changed.notify_all();
    }

    /// Closes the connection, and wakes waiting threads.
    pub(super) fn close(&self) {
        lock(&self.state).closed.get_or_insert_with(|| "this process has finalized".to_owned());
        self.changed.notify_all();
    }

    fn lost(&self, error: &io::Error) -> JobError {
        let why = match error.kind() {
            io::ErrorKind::UnexpectedEof => "it has ended".to_owned(),
            _ => error.to_string(),
        };
        lock(&self.state).closed.get_or_insert(why.clone());
        self.changed.notify_all();
        JobError::Lost(why)
    }

    /// Waits until something is found in the state. One of the waiting threads reads.
    fn wait<T>(
        &self,
        until: Option<Instant>,
        mut found: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<Option<T>, JobError> {
        let mut state = lock(&self.state);
        loop {
            if let Some(found) = found(&mut state) {
                return Ok(Some(found));
            }
            if let Some(why) = &state.closed {
                return Err(JobError::Lost(why.clone()));
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            let left = left.unwrap_or(Duration::MAX).min(CHECK);
            if state.reading {
                state.waiting += 1;
                let waited = self.changed.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                state.waiting -= 1;
                continue;
            }
            state = self.read_for_all(state, || self.read(left));
        }
    }

    /// Reads without the lock, for all threads that wait.
    fn read_for_all<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        read: impl FnOnce() -> io::Result<Vec<FromDaemon>>,
    ) -> MutexGuard<'a, State> {
        state.reading = true;
        drop(state);
        let read = read();
        state = lock(&self.state);
        state.reading = false;
        match read {
            Ok(messages) => messages.into_iter().for_each(|message| state.inbox.put(message)),
            Err(error) => {
                drop(state);
                let _ = self.lost(&error);
                state = lock(&self.state);
            }
        }
        if state.waiting > 0 {
            self.changed.notify_all();
        }
        state
    }

    /// Reads what is there now.
    fn read_now(&self) -> io::Result<Vec<FromDaemon>> {
        let mut reader = lock(&self.reader);
        if reader.fill()? { self.take(&mut reader) } else { Ok(Vec::new()) }
    }

    fn read(&self, patience: Duration) -> io::Result<Vec<FromDaemon>> {
        let mut reader = lock(&self.reader);
        let since = Instant::now();
        while lock(&self.spin).again(since) {
            if reader.fill()? {
                return self.take(&mut reader);
            }
        }
        // Where many threads share a processor, one call that sleeps and reads costs least.
        let came = match patience < CHECK {
            true => {
                let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(patience.subsec_nanos()) };
                // Read what is there, whatever the reason for waking.
                let _ = poll(&mut [PollFd::new(&*reader, PollFlags::IN)], Some(&wait));
                reader.fill()?
            }
            false => reader.fill_slowly()?,
        };
        if came { self.take(&mut reader) } else { Ok(Vec::new()) }
    }

    /// The complete messages.
    fn take(&self, reader: &mut Frames) -> io::Result<Vec<FromDaemon>> {
        let mut messages = Vec::new();
        let mut take = || match &self.protocol {
            Protocol::Native => reader.take(),
            Protocol::Pmix(dialect) => dialect.take(reader),
        };
        while let Some(message) = take()? {
            messages.push(message);
        }
        Ok(messages)
    }
}

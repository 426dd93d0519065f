//! A client's connection to its daemon, or to a PMIx server, for any number of threads: a thread
//! that waits reads for all.

use crate::{
    Error,
    daemon::{Asked, FromDaemon, MAX_CLIENT_FRAME, greeting},
    event::Event,
    message::{Answer, Request},
    net::{Frames, Looking, Stream},
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

use super::{JobError, pmix, word::ByWord};

/// Closing does not wake the reader: it checks so often.
const TURN: Duration = Duration::from_millis(200);

/// What the thread that runs event handlers gets, in order.
#[derive(Debug)]
pub(super) enum Item {
    /// The registration of this handler is complete.
    Active(u64),
    /// An event came.
    Event { event: Event, only: Option<u64> },
    /// This process made an event.
    Own(Event),
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    answers: HashMap<u64, Result<Answer, Error>>,
    /// Requests that register a handler.
    registering: HashMap<u64, u64>,
    items: VecDeque<Item>,
    /// A thread reads.
    reading: bool,
    /// So many wait for it.
    waiting: usize,
    /// There is no connection any more.
    closed: Option<String>,
}

/// What is spoken on a connection.
#[derive(Debug)]
enum Speaks {
    Native,
    Pmix(Box<pmix::Dialect>),
}

#[derive(Debug)]
pub(super) struct Link {
    speaks: Speaks,
    state: Mutex<State>,
    changed: Condvar,
    reader: Mutex<Frames>,
    looking: Mutex<Looking>,
    writer: Mutex<Frames>,
    /// What waits for no message.
    pub(super) by_word: ByWord,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// Connects to the daemon at this socket, with the token of the job.
    pub(super) fn connect(socket: &Path, token: &[u8]) -> io::Result<Link> {
        let mut stream = UnixStream::connect(socket)?;
        stream.write_all(&greeting(token, None))?;
        Link::new(Stream::Unix(stream), Speaks::Native)
    }

    /// A connection to a PMIx server that has been made.
    pub(super) fn pmix(stream: Stream, dialect: pmix::Dialect) -> io::Result<Link> {
        Link::new(stream, Speaks::Pmix(Box::new(dialect)))
    }

    fn new(stream: Stream, speaks: Speaks) -> io::Result<Link> {
        let reader = Frames::new(stream.try_clone()?, MAX_CLIENT_FRAME);
        reader.set_patience(TURN)?;
        let reader = Mutex::new(reader);
        let writer = Mutex::new(Frames::new(stream, MAX_CLIENT_FRAME));
        let by_word = ByWord::default();
        // No number is that of another process's request: see `word.rs`.
        let next = match &speaks {
            Speaks::Native => by_word.first(),
            Speaks::Pmix(_) => 0,
        };
        let state = Mutex::new(State { next, ..State::default() });
        let (changed, looking) = (Condvar::new(), Mutex::default());
        Ok(Link { speaks, state, changed, reader, looking, writer, by_word })
    }

    /// Asks, and waits for the answer; the daemon gives one, or is held for lost after `patience`.
    pub(super) fn call(&self, what: Request, patience: Duration) -> Result<Answer, JobError> {
        let id = self.number();
        if let Request::Register { handler, .. } = &what {
            lock(&self.state).registering.insert(id, *handler);
        }
        let sent = {
            let mut writer = lock(&self.writer);
            match &self.speaks {
                Speaks::Native => {
                    if let Err(error) = writer.push(&Asked::Request { id, what }) {
                        lock(&self.state).registering.remove(&id);
                        return Err(JobError::Refused(error));
                    }
                }
                Speaks::Pmix(dialect) => {
                    if let Some(answer) = dialect.push(&mut writer, id, what)? {
                        lock(&self.state).take(answer);
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
        state.next += 1;
        state.next
    }

    /// Says something to a daemon.
    pub(super) fn say(&self, what: &Asked) -> Result<(), JobError> {
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
        let answer = self.wait(Some(until), |state| state.answers.remove(&id));
        answer?.ok_or(JobError::Silent(patience))?.map_err(JobError::Refused)
    }

    /// Offers the processor, for a thread that has polled since then; false: it is not worth while
    /// any more.
    pub(super) fn looks_on(&self, since: Instant) -> bool {
        lock(&self.looking).goes_on(since)
    }

    /// Whether an answer has come, or none will: without waiting for it.
    pub(super) fn is_answered(&self, id: u64) -> bool {
        let answered = |state: &State| state.closed.is_some() || state.answers.contains_key(&id);
        let mut state = lock(&self.state);
        if !answered(&state) && !state.reading {
            state = self.turn(state, || self.glance());
        }
        answered(&state)
    }

    /// The next thing for the thread that runs handlers; `None`: there is no connection any more.
    pub(super) fn next_item(&self) -> Option<Item> {
        self.wait(None, |state| state.items.pop_front()).ok().flatten()
    }

    /// Puts something in line for that thread.
    pub(super) fn put_item(&self, item: Item) {
        lock(&self.state).items.push_back(item);
        self.changed.notify_all();
    }

    /// Ends: waiting threads are told.
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

    /// Waits for something in the state; one of the waiting threads reads.
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
            let left = left.unwrap_or(Duration::MAX).min(TURN);
            if state.reading {
                state.waiting += 1;
                let waited = self.changed.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                state.waiting -= 1;
                continue;
            }
            state = self.turn(state, || self.read(left));
        }
    }

    /// One reads for all.
    fn turn<'a>(
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
            Ok(messages) => messages.into_iter().for_each(|message| state.take(message)),
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

    /// What is there now.
    fn glance(&self) -> io::Result<Vec<FromDaemon>> {
        let mut reader = lock(&self.reader);
        if reader.fill()? { self.take(&mut reader) } else { Ok(Vec::new()) }
    }

    fn read(&self, patience: Duration) -> io::Result<Vec<FromDaemon>> {
        let mut reader = lock(&self.reader);
        let since = Instant::now();
        while lock(&self.looking).goes_on(since) {
            if reader.fill()? {
                return self.take(&mut reader);
            }
        }
        // Where many take turns on a processor, a call that sleeps and reads is all that is made.
        let came = match patience < TURN {
            true => {
                let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(patience.subsec_nanos()) };
                // Whatever woke it, what is there is read.
                let _ = poll(&mut [PollFd::new(&*reader, PollFlags::IN)], Some(&wait));
                reader.fill()?
            }
            false => reader.fill_slowly()?,
        };
        if came { self.take(&mut reader) } else { Ok(Vec::new()) }
    }

    /// The messages that have come whole.
    fn take(&self, reader: &mut Frames) -> io::Result<Vec<FromDaemon>> {
        let mut messages = Vec::new();
        let mut take = || match &self.speaks {
            Speaks::Native => reader.take(),
            Speaks::Pmix(dialect) => dialect.take(reader),
        };
        while let Some(message) = take()? {
            messages.push(message);
        }
        Ok(messages)
    }
}

impl State {
    fn take(&mut self, message: FromDaemon) {
        match message {
            FromDaemon::Answer { id, result } => {
                // In line with the events that follow it.
                if let (Some(handler), Ok(_)) = (self.registering.remove(&id), &result) {
                    self.items.push_back(Item::Active(handler));
                }
                self.answers.insert(id, result);
            }
            FromDaemon::Event { event, only } => self.items.push_back(Item::Event { event, only }),
        }
    }
}

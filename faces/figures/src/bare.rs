//! Both sides of a channel without RPC: messages and gets through the fabric contract.
//!
//! The first byte of a message says what the server does with it.

use crate::{
    exit::{Code, Failure, Outcome},
    limits::{self, Plan, pin},
    message,
};
use petasos::fabric::{
    Access, Address, Clock, Done, Endpoint, Event, InjectError, Key, Lease, Operation, Peer,
    Region, Remote, RemoteSpan, Slice, Support, Time, Token,
};
use std::{
    collections::VecDeque,
    io, mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Comes back as it is. Empty messages do so as well.
pub const ECHO: u8 = 0;
/// Is taken, without an answer.
pub const TAKE: u8 = 1;
/// Is taken, and answered with a byte: all before it has been taken as well.
pub const LAST: u8 = 2;
/// Asks for a key to memory: a length of 8 bytes, and whether it shall be the transport's.
const MEMORY: u8 = 3;

/// Is taken like [`TAKE`], and worked on for so long: microseconds in the two bytes that follow.
pub const WORK: u8 = 4;

/// In each so many bytes of laid out memory the first one is 1, and the others are 0.
pub const PAGE: usize = 4096;

/// How long connecting, or an answer, may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Passes between two readings of the clock.
const PASSES: u32 = 256;

/// Messages in a row after which the endpoint is driven whatever comes.
const IN_A_ROW: u32 = 64;

/// The most memory that a client is given.
const MOST_MEMORY: u64 = 1 << 30;

/// An endpoint that is driven here.
pub struct End {
    endpoint: Box<dyn Endpoint>,
    clock: Clock,
    now: Time,
    passes: u32,
    in_a_row: u32,
    alone: bool,
    message: Lease,
    events: Vec<Event>,
    come: VecDeque<(Peer, Lease)>,
    done: u64,
    mapped: Option<Region>,
    failed: Option<Failure>,
}

impl End {
    /// `alone`: the other side needs this core as well.
    pub fn new(endpoint: Box<dyn Endpoint>, alone: bool) -> End {
        let clock = Clock::start();
        End {
            endpoint,
            clock,
            now: clock.now(),
            passes: 0,
            in_a_row: 0,
            alone,
            message: Lease::default(),
            events: Vec::new(),
            come: VecDeque::new(),
            done: 0,
            mapped: None,
            failed: None,
        }
    }

    pub fn address(&self) -> &Address {
        self.endpoint.address()
    }

    /// The longest message.
    pub fn longest(&self) -> usize {
        self.endpoint.capabilities().limits.max_inject
    }

    /// The next message, if one has come.
    fn next(&mut self) -> Option<(Peer, Lease)> {
        if let Some(first) = self.come.pop_front() {
            return Some(first);
        }
        if self.in_a_row < IN_A_ROW
            && let Some(peer) = self.endpoint.poll_message(&mut self.message)
        {
            self.in_a_row += 1;
            return Some((peer, mem::take(&mut self.message)));
        }
        self.in_a_row = 0;
        self.pass();
        self.come.pop_front()
    }

    /// Moves everything on.
    fn pass(&mut self) {
        self.passes = self.passes.wrapping_add(1);
        if self.passes.is_multiple_of(PASSES) {
            self.now = self.clock.now();
        }
        let busy = self.endpoint.progress(self.now, 64, &mut self.events);
        for event in self.events.drain(..) {
            match event {
                Event::Message { peer, message } => self.come.push_back((peer, message)),
                Event::Done { result: Ok(done), .. } => {
                    self.done += 1;
                    if let Done::Mapped(memory) = done {
                        self.mapped = Some(memory);
                    }
                }
                Event::Done { result: Err(error), .. } => {
                    self.failed = Some(Failure::new(Code::Failed, error));
                }
                Event::PeerLost { reason, .. } => {
                    self.failed = Some(Failure::new(Code::Unreachable, reason));
                }
                _ => {}
            }
        }
        if !busy {
            if self.alone { thread::yield_now() } else { std::hint::spin_loop() }
        }
    }

    /// Sends a message, waiting for room.
    fn send(&mut self, peer: Peer, message: &[u8]) -> Outcome {
        loop {
            match self.endpoint.inject(peer, &[message]) {
                Ok(()) => return Ok(()),
                Err(InjectError::Full) => self.pass(),
                Err(error) => {
                    return Err(self
                        .failed
                        .take()
                        .unwrap_or_else(|| Failure::new(Code::Failed, error)));
                }
            }
        }
    }

    /// Drives until `ready`, which is asked often.
    fn until<T>(&mut self, what: &str, mut ready: impl FnMut(&mut End) -> Option<T>) -> Outcome<T> {
        let mut begin: Option<Instant> = None;
        for turn in 1_u64.. {
            if let Some(found) = ready(self) {
                return Ok(found);
            }
            if let Some(failure) = self.failed.take() {
                return Err(failure.within(what));
            }
            // The clock is not part of what is measured.
            if turn % (1 << 20) == 0 && begin.get_or_insert_with(Instant::now).elapsed() > PATIENCE
            {
                break;
            }
        }
        Err(Failure::new(Code::Unreachable, format!("{what}: nothing for {PATIENCE:?}")))
    }
}

/// The client's side, connected.
pub struct Client {
    end: End,
    peer: Peer,
}

/// Memory of the server that can be read.
pub struct Target {
    remote: Remote,
    bytes: usize,
}

impl Client {
    pub fn connect(mut end: End, to: &Address) -> Outcome<Client> {
        let peer =
            end.endpoint.resolve(to, PATIENCE).map_err(Failure::system("a bare endpoint"))?;
        let mut client = Client { end, peer };
        client.round_trip(&[])?;
        Ok(client)
    }

    pub fn longest(&self) -> usize {
        self.end.longest()
    }

    /// Sends a message and waits for one.
    pub fn round_trip(&mut self, message: &[u8]) -> Outcome<Lease> {
        self.end.send(self.peer, message)?;
        self.end.until("a message over the bare channel", |end| Some(end.next()?.1))
    }

    /// Has messages of so many bytes come back: the median time of one, in nanoseconds.
    pub fn echo(&mut self, plan: &Plan, bytes: usize) -> Outcome<f64> {
        let mut message = message::message(bytes);
        if let Some(first) = message.first_mut() {
            *first = ECHO;
        }
        let found = limits::round_trips(plan, "bare", "", || {
            let came = self.round_trip(&message)?;
            match came.len() == bytes && came.last() == message.last() {
                true => Ok(()),
                false => Err(Failure::new(Code::Mismatch, "another message came back")),
            }
        })?;
        Ok(found.median)
    }

    /// Sends one message so many times, and waits until the last one has come.
    pub fn stream(&mut self, message: &mut [u8], times: usize) -> Outcome {
        self.stream_of(TAKE, message, times).map(drop)
    }

    /// The same with messages of a kind, the last one aside: how many had to wait for room.
    pub fn stream_of(&mut self, kind: u8, message: &mut [u8], times: usize) -> Outcome<usize> {
        if let Some(first) = message.first_mut() {
            *first = kind;
        }
        let mut waited = 0;
        for _ in 1..times {
            if !self.offer(message)? {
                waited += 1;
                self.end.send(self.peer, message)?;
            }
        }
        if let Some(first) = message.first_mut() {
            *first = LAST;
        }
        self.round_trip(message)?;
        Ok(waited)
    }

    /// Sends a message if there is room, and else moves on.
    pub fn offer(&mut self, message: &[u8]) -> Outcome<bool> {
        match self.end.endpoint.inject(self.peer, &[message]) {
            Ok(()) => Ok(true),
            Err(InjectError::Full) => {
                self.end.pass();
                self.end.failed.take().map_or(Ok(false), Err)
            }
            Err(error) => {
                Err(self.end.failed.take().unwrap_or_else(|| Failure::new(Code::Failed, error)))
            }
        }
    }

    /// Whether a message has come.
    pub fn hears(&mut self) -> Outcome<bool> {
        let came = self.end.next().is_some();
        self.end.failed.take().map_or(Ok(came), Err)
    }

    /// Has the server lay out memory.
    pub fn memory(&mut self, bytes: usize, of_transport: bool) -> Outcome<Target> {
        let mut request = vec![MEMORY];
        request.extend((bytes as u64).to_le_bytes());
        request.push(u8::from(of_transport));
        let answer = self.round_trip(&request)?.to_vec();
        let key = Key::from_bytes(answer).map_err(Failure::system("a key to memory"))?;
        let remote = self.end.endpoint.import(&key).map_err(Failure::system("a key to memory"))?;
        Ok(Target { remote, bytes })
    }

    /// Whether memory of the transport's at the other side can be mapped.
    pub fn can_map(&self) -> bool {
        self.end.endpoint.capabilities().map != Support::None
    }

    /// Maps that memory, which is the transport's.
    pub fn map(&mut self, target: &Target) -> Outcome<Region> {
        let map = Operation::Map { token: Token(0), remote: target.remote };
        let mut operations = VecDeque::from([map]);
        self.end.until("mapping over the bare channel", |end| {
            if !operations.is_empty() {
                end.endpoint.submit(&mut operations);
            }
            end.pass();
            end.mapped.take()
        })
    }

    /// Reads the begin of that memory into each of the pieces, all at a time.
    pub fn get(&mut self, target: &Target, into: &[Slice]) -> Outcome {
        let wanted = self.end.done + into.len() as u64;
        let get = |(at, local): (usize, &Slice)| Operation::Get {
            token: Token(at as u64),
            remote: target.remote,
            local: [local.clone()].into_iter().collect(),
            spans: [RemoteSpan { offset: 0, len: local.len().min(target.bytes) as u64 }]
                .into_iter()
                .collect(),
        };
        let mut operations: VecDeque<Operation> = into.iter().enumerate().map(get).collect();
        self.end.until("a get over the bare channel", |end| {
            if !operations.is_empty() {
                end.endpoint.submit(&mut operations);
            }
            end.pass();
            (end.done >= wanted).then_some(())
        })
    }
}

/// A thread that answers on a bare endpoint, until it is dropped.
pub struct Answering {
    address: Address,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Answering {
    pub fn start(end: End, core: Option<usize>) -> io::Result<Answering> {
        let stop = Arc::new(AtomicBool::new(false));
        let (address, stopped) = (end.address().clone(), Arc::clone(&stop));
        let answer = move || {
            pin(core);
            answer(end, &stopped);
        };
        let thread = thread::Builder::new().name("bare".to_owned()).spawn(answer)?;
        Ok(Answering { address, stop, thread: Some(thread) })
    }

    pub fn address(&self) -> &Address {
        &self.address
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic has been reported where it happened.
            let _ = thread.join();
        }
    }
}

fn answer(mut end: End, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let Some((peer, message)) = end.next() else { continue };
        // A client that is gone, or asks for what cannot be, gets no answer: the others go on.
        let _ = match message.first() {
            Some(&TAKE) => Ok(()),
            Some(&WORK) => {
                work(&message);
                Ok(())
            }
            Some(&LAST) => end.send(peer, &[LAST]),
            Some(&MEMORY) => {
                lay_out(&mut end, &message).and_then(|key| end.send(peer, key.as_bytes()))
            }
            _ => end.send(peer, &message),
        };
        end.failed = None;
    }
}

/// What a receiver does with a message, without looking at others meanwhile.
fn work(request: &[u8]) {
    if let [_, low, high, ..] = *request {
        let end = Instant::now() + Duration::from_micros(u16::from_le_bytes([low, high]).into());
        while Instant::now() < end {
            std::hint::spin_loop();
        }
    }
}

/// Memory for a client, which stays until the endpoint ends.
fn lay_out(end: &mut End, request: &[u8]) -> Outcome<Key> {
    let bad = || Failure::new(Code::Failed, "a request for memory that is none");
    let (_, rest) = request.split_first().ok_or_else(bad)?;
    let (len, of_transport) = rest.split_first_chunk::<8>().ok_or_else(bad)?;
    let len = u64::from_le_bytes(*len);
    if !(1..=MOST_MEMORY).contains(&len) {
        return Err(bad());
    }
    let memory = match of_transport {
        [0] => Region::zeroed(len as usize),
        _ => {
            end.endpoint.alloc(len as usize).map_err(Failure::system("memory of the transport"))?
        }
    };
    // A word in each page says that it is there.
    for at in (0..memory.len()).step_by(PAGE) {
        memory.write(at, &[1]);
    }
    let region = end.endpoint.register(&memory.whole(), Access::READ);
    let region = region.map_err(Failure::system("opening memory"))?;
    end.endpoint.export(region).map_err(Failure::system("a key to memory"))
}

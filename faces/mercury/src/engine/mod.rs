//! The endpoint of a class, and what is under way with it: behind one lock, driven by whichever
//! thread makes progress.

mod backlog;
mod calls;
mod transfers;

use crate::{
    abi::Code,
    address::AddrRef,
    handle::HandleRef,
    queue::{Counted, Entry, Queue},
    quick::Quick,
};
use backlog::Backlog;
use calls::Call;
pub(crate) use calls::Request;
use petasos_fabric::{
    Address, Clock, Done, Endpoint, Event, Lease, OpError, OpErrorKind, Operation, Peer, Region,
    Sleep, Time, Token,
    driver::{Armed, Driven},
};
use slab::Slab;
use std::{
    collections::{HashMap, HashSet},
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};
use transfers::Ask;
use transfers::Transfer;

/// How long a peer that is connected for the first time may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// Messages that one pass takes, before it looks at everything else.
const BATCH: usize = 32;
/// Of passes that find messages, one in so many looks at everything else as well.
const MOST_SHORT: u32 = 8;
/// Requests that wait to be called back, from which on messages are copied rather than kept: the
/// endpoint has so many to lend, for responses, too.
const KEEP: usize = 512;
/// Requests that wait to be called back, at most: what comes then is refused, with `HG_BUSY`.
const MOST_REQUESTS: usize = 1 << 16;
/// The longest input or output that is taken, in bytes.
const LONGEST: u64 = 1 << 30;
/// Bytes of these that arrive, or wait to be called back, of all peers together.
const MOST_LONG: u64 = 4 << 30;

/// Counts for `HG_Class_get_counters`. They order nothing.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) req_sent: AtomicU64,
    pub(crate) req_recv: AtomicU64,
    pub(crate) resp_sent: AtomicU64,
    pub(crate) resp_recv: AtomicU64,
    pub(crate) req_extra: AtomicU64,
    pub(crate) resp_extra: AtomicU64,
    pub(crate) active: AtomicU64,
    pub(crate) copied: AtomicU64,
    pub(crate) bulk: AtomicU64,
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// How something went that a thread waits for: a code, or [`UNDER_WAY`].
pub(crate) type Outcome = Arc<AtomicU32>;
/// Not over yet.
pub(crate) const UNDER_WAY: u32 = u32::MAX;

/// What a thread waits for.
#[derive(Clone)]
pub(crate) enum Wait {
    /// Something to call back.
    Entry(Arc<Queue>),
    /// The end of something.
    End(Outcome),
}

/// What an operation of the endpoint's is for.
enum Pending {
    /// A request was sent: an error is its call's, and any end if it has no response.
    Request(u64),
    /// A response was sent: the handle's callback.
    Response(HandleRef),
    /// The rest of a request that came.
    RequestBody(Box<calls::Incoming>),
    /// The rest of a response that came: of this call, whose code it has.
    ResponseBody { sequence: u64, region: Region, counted: Counted },
    /// A part of a transfer.
    Part(u64),
    /// A thread waits for it.
    Waited(Outcome),
    /// None does.
    Ignored,
}

/// The driven part of a class.
pub(crate) struct Engine {
    endpoint: Box<dyn Endpoint>,
    clock: Clock,
    events: Vec<Event>,
    message: Lease,
    /// What the endpoint had no room for yet.
    backlog: Backlog,
    pending: Slab<Pending>,
    calls: Slab<Call>,
    transfers: Slab<Transfer>,
    /// Makes numbers of calls and transfers new.
    generation: u32,
    queues: [Option<Arc<Queue>>; 256],
    /// Addresses of peers that have sent requests.
    sources: HashMap<Peer, AddrRef, Quick>,
    /// Peers to which something was sent that no answer will confirm.
    unsure: HashSet<Peer, Quick>,
    /// Requests that wait to be called back.
    waiting: Arc<AtomicU64>,
    /// Bytes of long ones that arrive or wait.
    long: Arc<AtomicU64>,
    /// Bytes of the longest request, with its header: no handle has room for more.
    max_input: usize,
    counters: Arc<Counters>,
    /// What addresses that are made here are of.
    class: usize,
    listen: bool,
    max_inject: usize,
    max_transfer: u64,
    max_pieces: usize,
    news: bool,
    used: bool,
    /// Short passes since the last full one.
    short: u32,
    /// The program sleeps on a descriptor, which the endpoint may not make readable if it is used.
    outside: bool,
}

/// What an engine shares with the rest of its class.
pub(crate) struct Shares {
    pub(crate) counters: Arc<Counters>,
    pub(crate) waiting: Arc<AtomicU64>,
    /// Bytes of the longest request, with its header.
    pub(crate) max_input: usize,
    /// The class, exposed.
    pub(crate) class: usize,
    pub(crate) listen: bool,
}

impl Engine {
    pub(crate) fn new(endpoint: Box<dyn Endpoint>, shares: Shares) -> Engine {
        let limits = endpoint.capabilities().limits;
        let Shares { counters, waiting, max_input, class, listen } = shares;
        Engine {
            endpoint,
            clock: Clock::start(),
            events: Vec::new(),
            message: Lease::default(),
            backlog: Backlog::default(),
            pending: Slab::new(),
            calls: Slab::new(),
            transfers: Slab::new(),
            generation: 0,
            queues: [const { None }; 256],
            sources: HashMap::default(),
            unsure: HashSet::default(),
            waiting,
            long: Arc::default(),
            max_input,
            counters,
            class,
            listen,
            max_inject: limits.max_inject,
            max_transfer: limits.max_transfer,
            max_pieces: limits.max_pieces.max(1),
            news: false,
            used: false,
            short: 0,
            outside: false,
        }
    }

    pub(crate) fn address(&self) -> &Address {
        self.endpoint.address()
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.endpoint.fd()
    }

    /// The queue of a context that is there from now on, or no more.
    pub(crate) fn set_queue(&mut self, id: u8, queue: Option<Arc<Queue>>) {
        self.queues[usize::from(id)] = queue;
    }

    pub(crate) fn has_queue(&self, id: u8) -> bool {
        self.queues[usize::from(id)].is_some()
    }

    /// Something to call back.
    pub(crate) fn push(&mut self, queue: &Queue, entry: Entry) {
        queue.push(entry);
        self.news = true;
    }

    /// Called first by each use of the endpoint.
    fn touch(&mut self) {
        self.used = true;
        if self.outside {
            self.outside = false;
            self.queues.iter().flatten().for_each(|queue| queue.rouse());
        }
    }

    /// The next number of a call or transfer, at this place of its table.
    fn number(&mut self, at: usize) -> u64 {
        self.generation = self.generation.wrapping_add(1) & 0x00ff_ffff;
        u64::from(self.generation) << 32 | at as u64
    }

    fn token(&mut self, what: Pending) -> Token {
        Token(self.pending.insert(what) as u64)
    }

    /// Hands an operation to the endpoint, or keeps it until there is room.
    fn submit(&mut self, operation: Operation) {
        self.touch();
        if self.backlog.has(operation.target()) {
            return self.backlog.push(operation);
        }
        if let Err(refused) = self.endpoint.try_submit(operation) {
            self.backlog.push(refused.operation);
        }
    }

    /// Asks an operation to end.
    fn end(&mut self, token: Token) {
        self.touch();
        if !self.backlog.remove(token) {
            return self.endpoint.cancel(token);
        }
        self.done(token, Err(OpError::local(OpErrorKind::Cancelled)));
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Message { peer, message } => self.message(peer, message),
            Event::LongMessage { peer, header, body, len } => {
                self.long_message(peer, *header, body, len);
            }
            Event::Done { token, result } => self.done(token, result),
            Event::PeerLost { peer, reason } => self.lost(peer, &reason),
            _ => {}
        }
    }

    fn done(&mut self, token: Token, result: Result<Done, OpError>) {
        let Some(what) = self.pending.try_remove(token.0 as usize) else { return };
        match what {
            Pending::Request(sequence) => self.is_sent(sequence, failure(&result)),
            Pending::Response(handle) => self.call_back(handle, Entry::Respond, failure(&result)),
            Pending::RequestBody(incoming) => self.request_is_here(*incoming, result.is_ok()),
            Pending::ResponseBody { sequence, region, counted } => {
                // Here it is the handle's, which the program has asked to fill.
                drop(counted);
                self.response_is_here(sequence, region, failure(&result));
            }
            Pending::Part(transfer) => self.part_done(transfer, token, failure(&result)),
            Pending::Waited(outcome) => {
                outcome.store(failure(&result), Ordering::Release);
                self.news = true;
            }
            Pending::Ignored => {}
        }
    }

    /// Before the program sleeps on a context's descriptor: whether it may, and for how long.
    pub(crate) fn arm_outside(&mut self) -> Sleep {
        // What waits for room is no reason to stay awake: the endpoint signals that there is some.
        let sleep = self.endpoint.arm(self.clock.now());
        self.outside = sleep != Sleep::Busy;
        sleep
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }
}

/// The code of a result.
fn failure(result: &Result<Done, OpError>) -> Code {
    match result {
        Ok(_) => crate::abi::SUCCESS,
        Err(error) => code(&error.kind),
    }
}

/// An error of the fabric's, in the words of Mercury.
fn code(kind: &OpErrorKind) -> Code {
    match kind {
        OpErrorKind::PeerLost(_) | OpErrorKind::UnknownPeer => crate::abi::HOSTUNREACH,
        OpErrorKind::Cancelled => crate::abi::CANCELED,
        OpErrorKind::Denied { .. } => crate::abi::PERMISSION,
        OpErrorKind::StaleKey | OpErrorKind::UnknownRegion => crate::abi::FAULT,
        OpErrorKind::OutOfBounds { .. } => crate::abi::OVERFLOW,
        OpErrorKind::Unsupported(_) => crate::abi::OPNOTSUPPORTED,
        OpErrorKind::Busy | OpErrorKind::StillReached => crate::abi::BUSY,
        OpErrorKind::TooLarge { .. } => crate::abi::MSGSIZE,
        _ => crate::abi::PROTOCOL_ERROR,
    }
}

impl Driven for Engine {
    type Wait = Wait;

    fn pass(&mut self, full: bool) -> bool {
        // A thread that sleeps has to arm the endpoint again: what comes next may not signal.
        self.touch();
        let mut busy = false;
        for _ in 0..BATCH {
            let Some(peer) = self.endpoint.poll_message(&mut self.message) else { break };
            busy = true;
            let message = std::mem::take(&mut self.message);
            self.message(peer, message);
        }
        self.short = if full { 0 } else { self.short.wrapping_add(1) };
        if busy && !self.short.is_multiple_of(MOST_SHORT) && self.backlog.is_empty() {
            return true;
        }
        let mut events = std::mem::take(&mut self.events);
        busy |= self.endpoint.progress(self.clock.now(), 64, &mut events);
        for event in events.drain(..) {
            self.event(event);
        }
        self.events = events;
        if !self.backlog.is_empty() {
            self.backlog.submit(&mut *self.endpoint);
        }
        busy
    }

    #[inline]
    fn is_ready(&mut self, what: &Wait) -> bool {
        match what {
            Wait::Entry(queue) => queue.len() > 0,
            Wait::End(outcome) => outcome.load(Ordering::Acquire) != UNDER_WAY,
        }
    }

    fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    fn relax(&self) {
        self.endpoint.relax();
    }

    fn arm(&mut self) -> Armed {
        self.used = false;
        let now = self.clock.now();
        match self.endpoint.arm(now) {
            Sleep::Busy => Armed::Busy,
            Sleep::Until(Time::NEVER) => Armed::For(None),
            Sleep::Until(until) => Armed::For(Some(until.since(now))),
        }
    }

    fn was_used(&self) -> bool {
        self.used
    }
}

//! The state of an engine, and one pass over it.
//!
//! Parts that user code can reach while others are in use have cells of their own; none is
//! borrowed while user code runs.

use crate::{
    EngineConfig, Stats,
    call::Calls,
    clock::EngineClock,
    inbound::Served,
    operation::Operations,
    peers::{Peers, SELF},
    tasks::Tasks,
    timers::{Due, Timers},
    wake::{EngineWaker, MainWaker},
};
use petasos_fabric::{Address, Endpoint, Event, Lease, LostReason, Operation, Peer, Token};
use petasos_wire::rpc::{self, Frame};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    fmt,
    ops::Deref,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
};

/// Work for an engine from another thread.
pub(crate) type Command = Box<dyn FnOnce(&Rc<Inner>) + Send>;

/// What other threads hand over; closed once the engine has ended.
pub(crate) struct Commands {
    pub(crate) queue: Mutex<Option<Vec<Command>>>,
    pub(crate) waker: Arc<EngineWaker>,
}

pub(crate) struct Inner {
    pub(crate) endpoint: RefCell<Box<dyn Endpoint>>,
    pub(crate) config: EngineConfig,
    pub(crate) address: Address,
    pub(crate) max_frame: usize,
    pub(crate) clock: EngineClock,
    pub(crate) peers: RefCell<Peers>,
    pub(crate) calls: RefCell<Calls>,
    pub(crate) served: RefCell<Served>,
    pub(crate) operations: RefCell<Operations>,
    pub(crate) timers: RefCell<Timers>,
    pub(crate) tasks: Tasks,
    pub(crate) waker: Arc<EngineWaker>,
    pub(crate) main: Arc<MainWaker>,
    pub(crate) commands: Arc<Commands>,
    pub(crate) stats: RefCell<Stats>,
    submitted: RefCell<VecDeque<Operation>>,
    events: RefCell<Vec<Event>>,
    loopback: RefCell<VecDeque<Vec<u8>>>,
    buffers: RefCell<Vec<Vec<u8>>>,
    turning: Cell<bool>,
}

/// Buffers kept for reuse, and the largest that is.
const KEPT_BUFFERS: usize = 64;
const KEPT_BUFFER_LEN: usize = 64 * 1024;

impl Inner {
    pub(crate) fn new(
        endpoint: Box<dyn Endpoint>,
        config: EngineConfig,
        clock: EngineClock,
    ) -> Rc<Inner> {
        let address = endpoint.address().clone();
        let waker = EngineWaker::new(endpoint.notifier());
        let limits = endpoint.capabilities().limits;
        Rc::new(Inner {
            max_frame: limits.max_inject,
            clock,
            peers: RefCell::new(Peers::new(address.clone())),
            calls: RefCell::default(),
            served: RefCell::default(),
            operations: RefCell::default(),
            timers: RefCell::default(),
            tasks: Tasks::default(),
            main: MainWaker::new(Arc::clone(&waker)),
            commands: Arc::new(Commands {
                queue: Mutex::new(Some(Vec::new())),
                waker: Arc::clone(&waker),
            }),
            waker,
            stats: RefCell::default(),
            submitted: RefCell::default(),
            events: RefCell::default(),
            loopback: RefCell::default(),
            buffers: RefCell::default(),
            turning: Cell::new(false),
            endpoint: RefCell::new(endpoint),
            config,
            address,
        })
    }

    /// One pass: everything moves on by a bounded amount. False if there was nothing to do, or
    /// when it is called by something that runs within a pass.
    pub(crate) fn turn(self: &Rc<Self>) -> bool {
        if self.turning.replace(true) {
            return false;
        }
        let ticked = self.clock.pass();
        let mut busy = self.flush_operations();
        let mut events = self.events.take();
        let now = self.clock.coarse();
        busy |= self.endpoint.borrow_mut().progress(now, self.config.budget, &mut events);
        for event in events.drain(..) {
            self.handle(event);
        }
        *self.events.borrow_mut() = events;
        busy |= self.deliver_loopback();
        if self.waker_is_set() || self.tasks.has_fresh() {
            busy |= self.run_commands();
            busy |= self.tasks.run(&self.waker, self.config.budget);
        }
        if ticked {
            self.expire();
        }
        self.turning.set(false);
        busy
    }

    fn waker_is_set(&self) -> bool {
        self.waker.is_set()
    }

    fn run_commands(self: &Rc<Self>) -> bool {
        let commands = {
            let mut queue = self.commands.queue.lock().unwrap_or_else(PoisonError::into_inner);
            match queue.as_mut() {
                Some(commands) if !commands.is_empty() => std::mem::take(commands),
                _ => return false,
            }
        };
        for command in commands {
            command(self);
        }
        true
    }

    fn handle(self: &Rc<Self>, event: Event) {
        match event {
            Event::Message { peer, message } => self.take_frame(peer, Body::leased(message)),
            Event::Done { token, result } => self.operations.borrow_mut().complete(token, result),
            Event::Writable { peer } => self.unpark(peer),
            Event::PeerLost { peer, reason } => self.lose(peer, &reason),
            Event::PeerUp { peer, .. } => self.meet(peer),
            // Nobody here uses long messages or puts with event.
            _ => {}
        }
    }

    /// Makes sure that there is a record of the peer.
    pub(crate) fn meet(&self, peer: Peer) {
        if self.peers.borrow_mut().get(peer).is_some() {
            return;
        }
        let info = self.endpoint.borrow().peer(peer);
        if let Some(info) = info {
            self.peers.borrow_mut().add(peer, info.address);
        }
    }

    fn take_frame(self: &Rc<Self>, peer: Peer, body: Body) {
        let frame = match rpc::decode(&body) {
            Ok(frame) => frame,
            Err(error) => {
                self.stats.borrow_mut().garbage += 1;
                tracing::warn!(?peer, %error, "a frame was not understood");
                return;
            }
        };
        match frame {
            Frame::Request(request, rest) => {
                let start = body.len() - rest.len();
                self.serve_request(peer, &request, body.from(start));
            }
            Frame::Response(response, rest) => {
                let start = body.len() - rest.len();
                self.take_response(peer, &response, body.from(start));
            }
            Frame::Cancel(call) => self.cancel_served(peer, call),
            Frame::Release(call) => {
                let lent = self.peers.borrow_mut().get(peer).and_then(|r| r.lent.remove(&call));
                if let Some(region) = lent {
                    self.deregister_later(region);
                }
            }
        }
    }

    fn deliver_loopback(self: &Rc<Self>) -> bool {
        let count = self.loopback.borrow().len();
        for _ in 0..count {
            let Some(frame) = self.loopback.borrow_mut().pop_front() else { break };
            self.take_frame(SELF, Body::owned(frame));
        }
        count > 0
    }

    /// Sends a frame, or parks it behind others when the transport has no room.
    pub(crate) fn send_frame(&self, peer: Peer, parts: &[&[u8]]) {
        if peer == SELF {
            self.loopback.borrow_mut().push_back(parts.concat());
            // The next pass must not be slept away.
            self.waker.ring();
            return;
        }
        let mut peers = self.peers.borrow_mut();
        let Some(record) = peers.get(peer) else { return };
        if record.parked.is_empty() {
            use petasos_fabric::InjectError::{Full, PeerLost, UnknownPeer};
            match self.endpoint.borrow_mut().inject(peer, parts) {
                Ok(()) | Err(PeerLost | UnknownPeer) => return,
                Err(Full) => {}
                Err(error) => {
                    tracing::error!(%error, "a frame was not sent");
                    return;
                }
            }
        }
        record.parked.push_back(parts.concat());
    }

    fn unpark(&self, peer: Peer) {
        let mut peers = self.peers.borrow_mut();
        let Some(record) = peers.get(peer) else { return };
        while let Some(frame) = record.parked.front() {
            let sent = self.endpoint.borrow_mut().inject(peer, &[frame]);
            if sent == Err(petasos_fabric::InjectError::Full) {
                return;
            }
            record.parked.pop_front();
        }
    }

    pub(crate) fn submit(&self, operation: Operation) {
        self.submitted.borrow_mut().push_back(operation);
        self.flush_operations();
    }

    fn flush_operations(&self) -> bool {
        let mut submitted = self.submitted.borrow_mut();
        let before = submitted.len();
        if before > 0
            && let Ok(mut endpoint) = self.endpoint.try_borrow_mut()
        {
            endpoint.submit(&mut submitted);
        }
        submitted.len() < before
    }

    pub(crate) fn cancel_operation(&self, token: Token) {
        // What the endpoint has not accepted yet must be accepted before it can be cancelled.
        self.flush_operations();
        let mut submitted = self.submitted.borrow_mut();
        if let Some(at) = submitted.iter().position(|operation| operation.token() == token) {
            submitted.remove(at);
            drop(submitted);
            let error = petasos_fabric::OpError::local(petasos_fabric::OpErrorKind::Cancelled);
            self.operations.borrow_mut().complete(token, Err(error));
            return;
        }
        drop(submitted);
        self.endpoint.borrow_mut().cancel(token);
    }

    /// Frees all that was kept for a peer, and ends its calls.
    pub(crate) fn lose(self: &Rc<Self>, peer: Peer, reason: &LostReason) {
        let record = self.peers.borrow_mut().remove(peer);
        let Some(record) = record else { return };
        tracing::debug!(peer = %record.address, %reason, "a peer is lost");
        self.stats.borrow_mut().peers_lost += 1;
        for region in record.lent.values() {
            self.deregister_later(*region);
        }
        self.end_calls(peer, &record.address, reason);
        self.end_served(peer);
        self.endpoint.borrow_mut().forget(peer);
    }

    fn expire(self: &Rc<Self>) {
        let now = self.clock.coarse();
        let over = {
            let (calls, served) = (self.calls.borrow(), self.served.borrow());
            let alive = |due| match due {
                Due::Call(slot, serial) => calls.is_waiting(slot, serial),
                Due::Served(slot, serial) => served.is_running(slot, serial),
            };
            let mut timers = self.timers.borrow_mut();
            let over = timers.expired(now, alive);
            timers.sweep(calls.len() + served.len(), alive);
            over
        };
        for due in over {
            match due {
                Due::Call(slot, serial) => self.call_is_late(slot, serial),
                Due::Served(slot, serial) => self.served_is_late(slot, serial),
            }
        }
    }

    /// Reads the clock and ends what is late.
    pub(crate) fn tick(self: &Rc<Self>) {
        self.clock.read();
        self.expire();
    }

    /// An empty buffer.
    pub(crate) fn buffer(&self) -> Vec<u8> {
        self.buffers.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes a buffer back for reuse.
    pub(crate) fn recycle(&self, mut buffer: Vec<u8>) {
        let mut buffers = self.buffers.borrow_mut();
        if buffers.len() < KEPT_BUFFERS && buffer.capacity() <= KEPT_BUFFER_LEN {
            buffer.clear();
            buffers.push(buffer);
        }
    }

    /// Ends everything: what waits gets an error, tasks are dropped.
    pub(crate) fn shut_down(self: &Rc<Self>) {
        let commands = self.commands.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(commands);
        self.main.set();
        self.end_all_calls();
        let served = self.served.take();
        drop(served);
        self.tasks.clear();
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine({})", self.address)
    }
}

/// The bytes of arguments or a result: a message on loan or a vector, from some offset on.
#[derive(Debug)]
pub(crate) struct Body {
    source: Source,
    start: usize,
}

#[derive(Debug)]
enum Source {
    Leased(Lease),
    Owned(Vec<u8>),
}

impl Body {
    pub(crate) fn leased(lease: Lease) -> Body {
        Body { source: Source::Leased(lease), start: 0 }
    }

    pub(crate) fn owned(bytes: Vec<u8>) -> Body {
        Body { source: Source::Owned(bytes), start: 0 }
    }

    /// The rest from `start` on.
    fn from(mut self, start: usize) -> Body {
        self.start += start;
        self
    }
}

impl Deref for Body {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.source {
            Source::Leased(lease) => &lease[self.start..],
            Source::Owned(bytes) => &bytes[self.start..],
        }
    }
}

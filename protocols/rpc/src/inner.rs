//! The state of an engine, and one pass over it.
//!
//! Parts that user code can reach while others are in use have cells of their own; none is
//! borrowed while user code runs.

use crate::{
    EngineConfig,
    body::Body,
    calls::Calls,
    clock::EngineClock,
    idle::Looking,
    operation::Operations,
    peers::{Peers, Reached, Record, SELF},
    served::Served,
    stats::Counters,
    tasks::{Task, Tasks},
    timers::{Due, Timers},
    wake::{EngineWaker, MainWaker},
};
use petasos_fabric::{
    Address, Buffer, Done, Endpoint, Event, InjectError, Lease, LostReason, Operation, Peer, Token,
    Tuning, spare_vec,
};
use petasos_wire::rpc::{self, CallId, Frame, FrameError};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    fmt,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError},
    task::Waker,
    time::Duration,
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
    /// How long to look again before sleeping; `None` for ever.
    pub(crate) spin: Option<Duration>,
    pub(crate) address: Address,
    /// The longest frame, and the longest with arguments or a result in it.
    pub(crate) max_frame: usize,
    pub(crate) full_frame: usize,
    pub(crate) clock: EngineClock,
    pub(crate) looking: Looking,
    pub(crate) peers: RefCell<Peers>,
    /// Addresses at which there was a peer.
    pub(crate) reached: RefCell<Reached>,
    pub(crate) calls: RefCell<Calls>,
    pub(crate) served: RefCell<Served>,
    pub(crate) operations: RefCell<Operations>,
    pub(crate) timers: RefCell<Timers>,
    pub(crate) tasks: Tasks,
    pub(crate) waker: Arc<EngineWaker>,
    pub(crate) main: Arc<MainWaker>,
    /// The same, as futures know it.
    pub(crate) main_waker: Waker,
    pub(crate) commands: Arc<Commands>,
    pub(crate) stats: Counters,
    /// The message that a pass takes in. What it is about is done before the next one, but for the
    /// result of the one call whose caller blocks on the engine: that stays until it is decoded.
    pub(crate) message: RefCell<Lease>,
    /// That call, or none.
    pub(crate) unread: Cell<CallId>,
    submitted: RefCell<VecDeque<Operation>>,
    events: Cell<Vec<Event>>,
    loopback: RefCell<VecDeque<Vec<u8>>>,
    /// Peers for which frames are pending, as the transport had no room.
    congested: Cell<u32>,
    /// The buffer in which the next frame is put together: one is enough, as a rule.
    spare: Cell<Vec<u8>>,
    turning: Cell<bool>,
    /// A handler begins right now: it is at work, though its call is not noted yet.
    pub(crate) beginning: Cell<bool>,
}

/// Of so many passes, one moves the transport on even if there were messages.
const FULL: u32 = 16;
/// The largest buffer that is kept for reuse.
const KEPT_BUFFER_LEN: usize = 64 * 1024;
/// Room for the longest header.
const HEADERS: usize = 128;
/// Whatever is said about lending: what says where something lies has to fit.
const LEAST_FULL: usize = 1024;

impl Inner {
    pub(crate) fn new(
        endpoint: Box<dyn Endpoint>,
        config: EngineConfig,
        clock: EngineClock,
    ) -> Rc<Inner> {
        let address = endpoint.address().clone();
        let waker = EngineWaker::new(endpoint.notifier());
        let main = MainWaker::new(Arc::clone(&waker));
        let limits = endpoint.capabilities().limits;
        let tuned = || Tuning::of_machine().lend_above(address.scheme());
        let lend_above = config.lend_above.or_else(tuned).unwrap_or(usize::MAX);
        Rc::new(Inner {
            max_frame: limits.max_inject,
            full_frame: limits.max_inject.min(lend_above.max(LEAST_FULL)),
            spin: config.idle.spin(),
            clock,
            looking: Looking::default(),
            peers: RefCell::new(Peers::new(address.clone())),
            reached: RefCell::default(),
            calls: RefCell::new(Calls::new(Arc::clone(&main))),
            served: RefCell::default(),
            operations: RefCell::default(),
            timers: RefCell::default(),
            tasks: Tasks::default(),
            main_waker: futures_util::task::waker(Arc::clone(&main)),
            main,
            commands: Arc::new(Commands {
                queue: Mutex::new(Some(Vec::new())),
                waker: Arc::clone(&waker),
            }),
            waker,
            stats: Counters::default(),
            message: RefCell::default(),
            unread: Cell::new(rpc::NOBODY),
            submitted: RefCell::default(),
            events: Cell::default(),
            loopback: RefCell::default(),
            congested: Cell::new(0),
            spare: Cell::default(),
            turning: Cell::new(false),
            beginning: Cell::new(false),
            endpoint: RefCell::new(endpoint),
            config,
            address,
        })
    }

    /// One pass: everything moves on by a bounded amount. False if there was nothing to do, or
    /// when it is called by something that runs within a pass.
    pub(crate) fn turn(self: &Rc<Self>) -> bool {
        let Some(_turning) = Turning::begin(&self.turning) else { return false };
        let ticked = self.clock.pass();
        let mut busy = self.take_messages();
        // Where messages never end, all else moves on nevertheless.
        if !busy || self.clock.passes().is_multiple_of(FULL) {
            busy |= self.progress();
        }
        // A thread that leaves something to be done rings.
        if self.waker.is_set() {
            busy |= self.do_chores();
        }
        if ticked {
            self.expire();
        }
        busy
    }

    /// Takes the messages that need no event.
    #[inline]
    fn take_messages(self: &Rc<Self>) -> bool {
        // A result is being decoded out of it, by code that drives the engine.
        let Ok(mut message) = self.message.try_borrow_mut() else { return false };
        if self.unread.get() != rpc::NOBODY {
            self.put_away(&mut message);
        }
        let mut taken = 0;
        while taken < self.config.budget {
            let from = self.endpoint.borrow_mut().poll_message(&mut message);
            let Some(peer) = from else { break };
            if self.take_only_result(peer, &message) {
                return true;
            }
            self.take_frame_here(peer, &mut message);
            taken += 1;
        }
        message.release();
        taken > 0
    }

    /// Takes in the result for which the future waits that blocks on the engine, if this is it and
    /// no other call is under way. It is not moved, and nothing else is looked at before it is
    /// taken.
    #[inline(always)]
    fn take_only_result(&self, peer: Peer, message: &Lease) -> bool {
        let Some(response) = rpc::plain_response(message) else { return false };
        let only = self.calls.borrow_mut().answer_only(peer, response.call);
        if only {
            self.unread.set(response.call);
            self.main.wake_at_home();
            self.return_credit(peer, Some(response.window));
        }
        only
    }

    /// Makes room for other messages.
    #[cold]
    fn put_away(&self, message: &mut Lease) {
        let body = Body::new(std::mem::take(message), rpc::RESPONSE_LEN);
        self.calls.borrow_mut().keep(self.unread.replace(rpc::NOBODY), body);
    }

    /// Moves the transport on, and does what it says.
    #[inline]
    fn progress(self: &Rc<Self>) -> bool {
        let mut busy = self.flush_operations();
        let mut events = self.events.take();
        let now = self.clock.coarse();
        busy |= self.endpoint.borrow_mut().progress(now, self.config.budget, &mut events);
        for event in &mut events {
            self.handle(event);
        }
        events.clear();
        self.events.set(events);
        busy
    }

    /// Does what was left to be done: calls to ourselves, work from other threads, tasks.
    fn do_chores(self: &Rc<Self>) -> bool {
        // Taken before, so that a ring in the meantime is heard in the next pass.
        let rung = self.waker.take();
        self.deliver_loopback();
        self.run_commands();
        self.tasks.run(&self.waker, self.config.budget);
        rung
    }

    /// Runs a future beside others.
    pub(crate) fn spawn(&self, task: Task) {
        self.tasks.spawn(task);
        self.waker.ring();
    }

    fn run_commands(self: &Rc<Self>) {
        let commands = {
            let mut queue = self.commands.queue.lock().unwrap_or_else(PoisonError::into_inner);
            queue.as_mut().map(std::mem::take).unwrap_or_default()
        };
        for command in commands {
            command(self);
        }
    }

    #[inline]
    fn handle(self: &Rc<Self>, event: &mut Event) {
        match event {
            Event::Message { peer, message } => self.take_frame(*peer, message),
            Event::Done { token, result } => {
                let result = std::mem::replace(result, Ok(Done::Put));
                self.completed(*token, result);
            }
            Event::Writable { peer } => self.unpark(*peer),
            Event::PeerLost { peer, reason } => self.lose(*peer, reason),
            Event::PeerUp { peer, .. } => {
                self.meet(*peer);
                if let Some(record) = self.peers.borrow_mut().get(*peer) {
                    record.was_up = true;
                    // A program that asks for it again may know of its end before this engine does.
                    self.reached.borrow_mut().note(&record.address);
                }
            }
            // Nothing here uses long messages or puts with event.
            _ => {}
        }
    }

    /// Makes sure that there is a record of the peer; false if there is no such peer.
    pub(crate) fn meet(&self, peer: Peer) -> bool {
        let mut peers = self.peers.borrow_mut();
        if !peers.knows(peer) {
            let Some(info) = self.endpoint.borrow().peer(peer) else { return false };
            peers.add(peer, info.address);
        }
        true
    }

    /// Takes in a frame; takes the message if it is kept.
    #[inline(never)]
    fn take_frame(self: &Rc<Self>, peer: Peer, message: &mut Lease) {
        self.take_frame_here(peer, message);
    }

    /// The same, as a part of its caller.
    #[inline(always)]
    fn take_frame_here(self: &Rc<Self>, peer: Peer, message: &mut Lease) {
        let frame = &**message;
        if let Some(request) = rpc::plain_request(frame) {
            self.serve_request(peer, &request, message, rpc::REQUEST_LEN);
        } else if let Some(response) = rpc::plain_response(frame) {
            self.take_response(peer, &response, message, rpc::RESPONSE_LEN);
        } else {
            self.take_any_frame(peer, message);
        }
    }

    /// The same for frames that are not like most.
    #[inline(never)]
    fn take_any_frame(self: &Rc<Self>, peer: Peer, message: &mut Lease) {
        match rpc::decode(message) {
            Ok(Frame::Request(request, rest)) => {
                let start = message.len() - rest.len();
                self.serve_request(peer, &request, message, start);
            }
            Ok(Frame::Response(response, rest)) => {
                let start = message.len() - rest.len();
                self.take_response(peer, &response, message, start);
            }
            Ok(Frame::Cancel(call)) => self.cancel_served(peer, call),
            Ok(Frame::Release(call)) => {
                let lent = self.peers.borrow_mut().get(peer).and_then(|r| r.lent.remove(&call));
                if let Some(region) = lent {
                    self.deregister_later(region);
                }
            }
            Err(error) => self.ignore(peer, error),
        }
    }

    #[cold]
    fn ignore(&self, peer: Peer, error: FrameError) {
        self.stats.garbage.count();
        tracing::warn!(?peer, %error, "a frame was not understood");
    }

    fn deliver_loopback(self: &Rc<Self>) {
        let count = self.loopback.borrow().len();
        for _ in 0..count {
            let Some(frame) = self.loopback.borrow_mut().pop_front() else { break };
            self.take_frame(SELF, &mut Lease::from(frame));
        }
    }

    /// Sends a frame to a peer, if there is one.
    #[inline]
    pub(crate) fn send_frame(&self, peer: Peer, frame: &[u8]) {
        self.send_parts(peer, &[frame]);
    }

    /// The same for a frame in parts.
    #[inline]
    pub(crate) fn send_parts(&self, peer: Peer, parts: &[&[u8]]) {
        // Mostly nothing is pending for any peer. Then the transport alone has to know the peer.
        if self.congested.get() != 0 || peer == SELF || !self.inject(peer, parts) {
            self.send_later(peer, parts);
        }
    }

    /// Sends a frame that may have to wait for others before it, or for room.
    #[cold]
    fn send_later(&self, peer: Peer, parts: &[&[u8]]) {
        if let Some(record) = self.peers.borrow_mut().get(peer) {
            self.transmit(record, parts);
        }
    }

    /// Sends a frame, or parks it behind others when the transport has no room.
    #[inline(always)]
    pub(crate) fn transmit(&self, record: &mut Record, parts: &[&[u8]]) {
        if !record.direct || !self.inject(record.peer, parts) {
            self.put_aside(record, parts.concat());
        }
    }

    /// Hands a frame to the transport. False if it has no room.
    #[inline(always)]
    fn inject(&self, peer: Peer, parts: &[&[u8]]) -> bool {
        let sent = self.endpoint.borrow_mut().inject(peer, parts);
        // Compared with this alone, as a jump through a table of all errors would take longer.
        sent.is_ok() || self.is_in_vain(sent)
    }

    /// Whether there is no use in sending it later.
    #[cold]
    fn is_in_vain(&self, sent: Result<(), InjectError>) -> bool {
        match sent {
            Err(InjectError::Full) => return false,
            Ok(()) | Err(InjectError::PeerLost | InjectError::UnknownPeer) => {}
            Err(error) => tracing::error!(%error, "a frame was not sent"),
        }
        true
    }

    /// Keeps a frame for later: for when there is room, or, to ourselves, for the next pass.
    #[cold]
    fn put_aside(&self, record: &mut Record, frame: Vec<u8>) {
        if record.peer != SELF {
            self.congested.update(|peers| peers + u32::from(record.direct));
            record.direct = false;
            return record.parked.push_back(frame);
        }
        self.loopback.borrow_mut().push_back(frame);
        // The next pass must not be slept away.
        self.waker.ring();
    }

    fn unpark(&self, peer: Peer) {
        let mut peers = self.peers.borrow_mut();
        let Some(record) = peers.get(peer) else { return };
        while let Some(frame) = record.parked.front() {
            let sent = self.endpoint.borrow_mut().inject(peer, &[frame]);
            if sent == Err(InjectError::Full) {
                return;
            }
            record.parked.pop_front();
        }
        self.congested.update(|peers| peers - u32::from(!record.direct));
        record.direct = true;
    }

    pub(crate) fn address_of(&self, peer: Peer) -> Address {
        let peers = self.peers.try_borrow_mut().ok();
        let known = peers.and_then(|mut peers| Some(peers.get(peer)?.address.clone()));
        known.unwrap_or_else(|| self.address.clone())
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
            self.completed(token, Err(error));
            return;
        }
        drop(submitted);
        self.endpoint.borrow_mut().cancel(token);
    }

    /// Frees all that was kept for a peer, and ends its calls.
    pub(crate) fn lose(self: &Rc<Self>, peer: Peer, reason: &LostReason) {
        let record = self.peers.borrow_mut().remove(peer);
        let Some(record) = record else { return };
        if record.was_up {
            self.reached.borrow_mut().note(&record.address);
        }
        tracing::debug!(peer = %record.address, %reason, "a peer is lost");
        self.stats.peers_lost.count();
        self.congested.update(|peers| peers - u32::from(!record.direct));
        for region in record.lent.values() {
            self.deregister_later(*region);
        }
        self.end_calls(peer, reason);
        self.end_served(peer);
        self.endpoint.borrow_mut().forget(peer);
    }

    fn expire(self: &Rc<Self>) {
        let now = self.clock.coarse();
        let (over, woken) = {
            let (mut calls, served) = (self.calls.borrow_mut(), self.served.borrow());
            let mut timers = self.timers.borrow_mut();
            calls.take_recent(|limit, call| {
                timers.add(limit, Due::Call(call.slot, call.generation));
            });
            let alive = |due| match due {
                Due::Call(slot, generation) => calls.is_waiting(CallId { slot, generation }),
                Due::Served(slot, serial) => served.is_running(slot, serial),
            };
            let over = timers.expired(now, alive);
            timers.sweep(calls.len() + served.len(), alive);
            (over, timers.sleepers.due(now))
        };
        woken.into_iter().for_each(Waker::wake);
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
    #[inline]
    pub(crate) fn buffer(&self) -> Vec<u8> {
        self.spare.take()
    }

    /// The same, for a frame with about so many bytes behind its header.
    #[inline]
    pub(crate) fn buffer_for(&self, len: usize) -> Vec<u8> {
        if len > KEPT_BUFFER_LEN - HEADERS {
            return spare_vec(len + HEADERS);
        }
        self.buffer()
    }

    /// Takes a buffer back for reuse.
    #[inline]
    pub(crate) fn recycle(&self, mut buffer: Vec<u8>) {
        if buffer.capacity() <= KEPT_BUFFER_LEN {
            buffer.clear();
            self.spare.set(buffer);
        } else {
            drop(Buffer::from(buffer));
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

/// A pass under way; over also when a task's panic goes through it.
struct Turning<'a>(&'a Cell<bool>);

impl Turning<'_> {
    /// None within a pass.
    #[inline]
    fn begin(turning: &Cell<bool>) -> Option<Turning<'_>> {
        (!turning.replace(true)).then_some(Turning(turning))
    }
}

impl Drop for Turning<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine({})", self.address)
    }
}

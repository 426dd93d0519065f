//! The state of an engine, and one pass over it.
//!
//! Each part owns its cells, and none is borrowed while user code runs: that may call the engine
//! while other parts are in use.

use crate::{
    EngineConfig, Usage,
    body::Kept,
    bulk::Lendings,
    calls::Calls,
    clock::EngineClock,
    commands::Commands,
    frames::Frames,
    loan::Given,
    operation::Operations,
    outbox::Outbox,
    peers::{Peers, Record, SELF},
    received::Received,
    served::Served,
    stats::Counters,
    tasks::{Task, Tasks},
    timers::{Due, Timers},
    transport::Transport,
};
use petasos_fabric::{
    Address, Done, Endpoint, Event, Lease, LostReason, Peer, RegionId, ResolveError,
    driver::{Kick, MainKick, Spin},
};
use petasos_wire::rpc::{self, CallId, Frame, FrameError, Response};
use std::{
    cell::{Cell, RefCell},
    fmt,
    rc::Rc,
    sync::Arc,
    task::Waker,
};

pub(crate) struct Inner {
    pub(crate) config: EngineConfig,
    pub(crate) address: Address,
    pub(crate) clock: EngineClock,
    pub(crate) transport: Transport,
    pub(crate) frames: Frames,
    outbox: Outbox,
    pub(crate) received: Received,
    pub(crate) kept: Kept,
    pub(crate) peers: RefCell<Peers>,
    pub(crate) calls: RefCell<Calls>,
    pub(crate) served: Served,
    pub(crate) operations: Operations,
    pub(crate) lendings: Lendings,
    pub(crate) given: Given,
    pub(crate) timers: RefCell<Timers>,
    tasks: Tasks,
    pub(crate) commands: Arc<Commands>,
    pub(crate) waker: Arc<Kick>,
    pub(crate) main: Arc<MainKick>,
    /// The same, as futures know it.
    pub(crate) main_waker: Waker,
    pub(crate) spin: RefCell<Spin>,
    pub(crate) stats: Counters,
    in_pass: Cell<bool>,
}

/// Of so many passes, one moves the transport on even if there were messages.
const FULL: u32 = 16;

impl Inner {
    pub(crate) fn new(
        endpoint: Box<dyn Endpoint>,
        config: EngineConfig,
        clock: EngineClock,
    ) -> Rc<Inner> {
        let address = endpoint.address().clone();
        let limits = &endpoint.capabilities().limits;
        let (max_inject, kept) = (limits.max_inject, Kept::new(limits));
        let waker = Kick::new(endpoint.notifier());
        let main = MainKick::new(Arc::clone(&waker));
        Rc::new(Inner {
            clock,
            transport: Transport::new(endpoint),
            frames: Frames::new(max_inject, config.lend_above, address.scheme()),
            outbox: Outbox::new(Arc::clone(&waker)),
            received: Received::default(),
            kept,
            peers: RefCell::new(Peers::new(address.clone())),
            calls: RefCell::new(Calls::new(Arc::clone(&main))),
            served: Served::default(),
            operations: Operations::default(),
            lendings: Lendings::default(),
            given: Given::default(),
            timers: RefCell::default(),
            tasks: Tasks::new(Arc::clone(&waker)),
            commands: Commands::new(Arc::clone(&waker)),
            waker,
            main_waker: Waker::from(Arc::clone(&main)),
            main,
            spin: RefCell::new(Spin::new(config.idle.spin())),
            stats: Counters::default(),
            in_pass: Cell::new(false),
            config,
            address,
        })
    }

    /// One pass: everything moves on by a bounded amount. False if there was nothing to do, or
    /// when it is called by something that runs within a pass.
    pub(crate) fn progress(self: &Rc<Self>) -> bool {
        let Some(_pass) = Pass::begin(&self.in_pass) else { return false };
        let ticked = self.clock.pass();
        let mut busy = self.take_messages();
        // Even if there is never an end to messages, all else moves on.
        if !busy || self.clock.passes().is_multiple_of(FULL) {
            busy |= self.progress_transport();
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

    // What arrives.

    /// Takes the messages that need no event.
    #[inline]
    fn take_messages(self: &Rc<Self>) -> bool {
        let Some(mut message) = self.received.room() else { return false };
        if self.received.has_unread() {
            self.keep_unread(&mut message);
        }
        let mut taken = 0;
        while taken < self.config.budget {
            let Some(peer) = self.transport.poll_message(&mut message) else { break };
            if self.take_frame_inline(peer, &mut message, true) {
                return true;
            }
            taken += 1;
        }
        message.release();
        taken > 0
    }

    /// Takes in the result that the future waits for which blocks on the engine, if this is it and
    /// no other call is under way. The message is not moved, and no other is taken before it is
    /// read.
    #[inline(always)]
    fn take_only_result(&self, peer: Peer, response: &Response) -> bool {
        let only = self.calls.borrow_mut().answer_only(peer, response.call);
        if only {
            self.received.leave_unread(response.call);
            self.main.wake_at_home();
            self.return_credit(peer, Some(response.window));
        }
        only
    }

    /// Keeps the unread result with its call, to make room for other messages.
    #[cold]
    fn keep_unread(&self, message: &mut Lease) {
        let (call, body) = self.received.take_unread(message, &self.kept);
        self.calls.borrow_mut().keep(call, body);
    }

    /// Moves the transport on, and handles its events.
    #[inline]
    fn progress_transport(self: &Rc<Self>) -> bool {
        let (now, budget) = (self.clock.coarse(), self.config.budget);
        self.transport.progress(now, budget, |event| self.handle(event))
    }

    #[inline]
    fn handle(self: &Rc<Self>, event: &mut Event) {
        match event {
            Event::Message { peer, message } => self.take_frame(*peer, message),
            Event::Done { token, result } => {
                let result = std::mem::replace(result, Ok(Done::Put));
                self.operations.complete(&self.transport, *token, result);
            }
            Event::Writable { peer } => {
                if let Some(record) = self.peers.borrow_mut().get(*peer) {
                    self.outbox.resume(&self.transport, record);
                }
            }
            Event::PeerLost { peer, reason } => self.peer_lost(*peer, reason),
            Event::PeerUp { peer, .. } => {
                self.ensure_peer(*peer);
                self.peers.borrow_mut().set_up(*peer);
            }
            // Nothing here uses long messages or puts with event.
            _ => {}
        }
    }

    /// Takes in a frame; takes the message if it is kept.
    #[inline(never)]
    fn take_frame(self: &Rc<Self>, peer: Peer, message: &mut Lease) {
        self.take_frame_inline(peer, message, false);
    }

    /// The same, as a part of its caller. True if the message may stay, and does: it is to be read,
    /// and no other is to be taken before.
    #[inline(always)]
    fn take_frame_inline(self: &Rc<Self>, peer: Peer, message: &mut Lease, may_stay: bool) -> bool {
        let frame = &**message;
        if let Some(request) = rpc::plain_request(frame) {
            self.serve_request(peer, &request, message, rpc::REQUEST_LEN);
        } else if let Some(response) = rpc::plain_response(frame) {
            if may_stay && self.take_only_result(peer, &response) {
                return true;
            }
            self.take_response(peer, response, message, rpc::RESPONSE_LEN);
        } else {
            self.take_any_frame(peer, message);
        }
        false
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
                self.take_response(peer, response, message, start);
            }
            Ok(Frame::Cancel(call)) => self.cancel_served(peer, call),
            Ok(Frame::Release(call)) => {
                let mut peers = self.peers.borrow_mut();
                let lent = peers.get(peer).and_then(|record| record.take_result(call));
                drop(peers);
                if let Some(region) = lent {
                    self.deregister(region);
                }
            }
            Ok(Frame::GiveBack(key)) => {
                if !self.take_back(key) {
                    self.stats.garbage.count();
                }
            }
            Err(error) => self.drop_garbage(peer, error),
        }
    }

    #[cold]
    fn drop_garbage(&self, peer: Peer, error: FrameError) {
        self.stats.garbage.count();
        tracing::warn!(?peer, %error, "a frame was not understood");
    }

    // What goes.

    /// Sends a frame to a peer, if there is one.
    #[inline]
    pub(crate) fn send_frame(&self, peer: Peer, frame: &[u8]) {
        self.send_parts(peer, &[frame]);
    }

    /// The same for a frame in parts.
    #[inline]
    pub(crate) fn send_parts(&self, peer: Peer, parts: &[&[u8]]) {
        self.outbox.send(&self.transport, &self.peers, peer, parts);
    }

    /// The same for a peer whose record is at hand.
    #[inline(always)]
    pub(crate) fn transmit(&self, record: &mut Record, parts: &[&[u8]]) {
        self.outbox.transmit(&self.transport, record, parts);
    }

    /// Deregisters a region; the engine finishes that by itself.
    pub(crate) fn deregister(&self, region: RegionId) {
        self.operations.close(&self.transport, region, None);
    }

    // Peers.

    /// Makes sure that there is a record of the peer; false if there is no such peer.
    pub(crate) fn ensure_peer(&self, peer: Peer) -> bool {
        let mut peers = self.peers.borrow_mut();
        if !peers.knows(peer) {
            let Some(address) = self.transport.address_of(peer) else { return false };
            peers.add(peer, address);
        }
        true
    }

    /// The peer at an address, which may not have started yet.
    pub(crate) fn resolve(&self, address: &Address) -> Result<Peer, ResolveError> {
        let was_reached = || self.peers.borrow().was_reached(address);
        let EngineConfig { patience, refused, .. } = self.config;
        self.transport.resolve(address, patience, refused, was_reached)
    }

    pub(crate) fn address_of(&self, peer: Peer) -> Address {
        let peers = self.peers.try_borrow_mut().ok();
        let known = peers.and_then(|mut peers| Some(peers.get(peer)?.address().clone()));
        known.unwrap_or_else(|| self.address.clone())
    }

    /// Frees all that was kept for a peer, and ends its calls.
    pub(crate) fn peer_lost(self: &Rc<Self>, peer: Peer, reason: &LostReason) {
        let record = self.peers.borrow_mut().remove(peer);
        let Some(record) = record else { return };
        tracing::debug!(peer = %record.address(), %reason, "a peer is lost");
        self.stats.peers_lost.count();
        self.outbox.forget(&record);
        for region in record.lent_results() {
            self.deregister(region);
        }
        self.end_calls(peer, reason);
        self.end_served(peer);
        self.given.lose(peer);
        self.transport.forget(peer);
    }

    // What is due.

    /// Does what was left to be done: calls to ourselves, work from other threads, tasks.
    fn do_chores(self: &Rc<Self>) -> bool {
        // Taken before, so that a ring in the meantime is noticed in the next pass.
        let rung = self.waker.take();
        self.deliver_loopback();
        for command in self.commands.take() {
            command(self);
        }
        self.tasks.run(self.config.budget);
        rung
    }

    fn deliver_loopback(self: &Rc<Self>) {
        for _ in 0..self.outbox.loopback_len() {
            let Some(frame) = self.outbox.next_loopback() else { break };
            self.take_frame(SELF, &mut Lease::from(frame));
        }
    }

    /// Runs a future beside others.
    pub(crate) fn spawn(&self, task: Task) {
        self.tasks.spawn(task);
    }

    fn expire(self: &Rc<Self>) {
        let now = self.clock.coarse();
        let (over, woken) = {
            let (mut calls, served) = (self.calls.borrow_mut(), &self.served);
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

    /// What is under way now.
    pub(crate) fn usage(&self) -> Usage {
        let mut usage = Usage {
            calls: self.calls.borrow().len(),
            serving: usize::from(self.served.is_in_handler()),
            operations: self.operations.len(),
            tasks: self.tasks.len(),
            given: self.given.len(),
            ..Usage::default()
        };
        self.peers.borrow().count(&mut usage);
        usage
    }

    /// Ends everything: what waits gets an error, tasks are dropped.
    pub(crate) fn shut_down(self: &Rc<Self>) {
        self.commands.close();
        self.main.set();
        self.end_all_calls();
        self.served.clear();
        self.tasks.clear();
    }
}

/// A pass under way; over also when a task's panic goes through it.
struct Pass<'a>(&'a Cell<bool>);

impl Pass<'_> {
    /// None within a pass.
    #[inline]
    fn begin(in_pass: &Cell<bool>) -> Option<Pass<'_>> {
        (!in_pass.replace(true)).then_some(Pass(in_pass))
    }
}

impl Drop for Pass<'_> {
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

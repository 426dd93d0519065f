//! An engine as its Python objects share it: what has arrived, what has finished, what is lent.

use crate::{
    buffer,
    decode::{self, Opener},
    encode::encode,
    errors,
    home::Home,
    incoming::Incoming,
    operation::Task,
};
use petasos::{Engine, Failure, Incoming as Request, Responder, Slice, fabric::memory::Releases};
use pyo3::{exceptions::PyRuntimeError, prelude::*, types::PyTuple};
use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    future::{Future, poll_fn},
    pin::Pin,
    rc::{Rc, Weak},
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

/// How often a thread that waits looks for signals, as of Ctrl-C.
const TICK: Duration = Duration::from_millis(100);
/// How long one pump goes on: then other tasks of the event loop run. A pass is longer where it
/// moves much data.
const PUMP: Duration = Duration::from_micros(500);

pub(crate) struct State {
    pub(crate) home: Arc<Home>,
    max_body: u64,
    /// `None` once it is closed.
    engine: RefCell<Option<Engine>>,
    releases: RefCell<Option<Releases>>,
    arrived: RefCell<VecDeque<Arrived>>,
    /// Of the thread that waits, woken when a call arrives.
    waiter: RefCell<Option<Waker>>,
    /// Calls whose callers do not wait any more.
    withdrawn: RefCell<Vec<u64>>,
    /// What is to be called for one of these.
    on_withdrawal: RefCell<HashMap<u64, Py<PyAny>>>,
    finished: RefCell<VecDeque<Rc<Task>>>,
    handlers: RefCell<Vec<Served>>,
    /// What is lent for as long as the program wants it, closed with the engine.
    pub(crate) lendings: Lendings,
    holders: RefCell<Holders>,
    serial: Cell<u64>,
    tick: RefCell<Option<petasos::Sleep>>,
    in_handler: Cell<bool>,
    armed: Cell<bool>,
    scratch: RefCell<Vec<u8>>,
    /// What makes an awaitable of an operation, where an event loop drives the engine.
    awaitable: RefCell<Option<Py<PyAny>>>,
}

/// What an object of Python holds of the engine, and with it the endpoint: let go when that is
/// closed.
pub(crate) struct Held<T>(Rc<RefCell<Option<T>>>);

impl<T: Clone> Held<T> {
    pub(crate) fn get(&self) -> PyResult<T> {
        self.0.borrow().clone().ok_or_else(errors::closed)
    }
}

/// What lets go when the engine is closed.
pub(crate) trait LetGo {
    fn let_go(&self);
}

impl<T> LetGo for RefCell<Option<T>> {
    fn let_go(&self) {
        let value = self.take();
        drop(value);
    }
}

/// All that may have to let go.
#[derive(Default)]
struct Holders {
    weak: Vec<Weak<dyn LetGo>>,
    /// At this length those that are gone are forgotten.
    sweep_at: usize,
}

/// What the engine keeps for the program until that lets go.
#[derive(Default)]
pub(crate) struct Lendings {
    entries: RefCell<HashMap<u64, Box<dyn std::any::Any>>>,
    next: Cell<u64>,
}

impl Lendings {
    pub(crate) fn add(&self, lending: impl std::any::Any) -> u64 {
        let key = self.next.replace(self.next.get() + 1);
        self.entries.borrow_mut().insert(key, Box::new(lending));
        key
    }

    pub(crate) fn take<T: 'static>(&self, key: u64) -> Option<T> {
        let entry = self.entries.borrow_mut().remove(&key)?;
        entry.downcast().ok().map(|entry| *entry)
    }

    /// Looks at one.
    pub(crate) fn with<T: 'static, R>(&self, key: u64, look: impl FnOnce(&T) -> R) -> Option<R> {
        self.entries.borrow().get(&key)?.downcast_ref().map(look)
    }
}

/// What serves a method.
#[derive(Clone)]
pub(crate) struct Served(Rc<Handler>);

pub(crate) struct Handler {
    pub(crate) call: Py<PyAny>,
    /// It gets the arguments, and its value is the result; otherwise it gets the call.
    pub(crate) plain: bool,
    /// How many arguments it takes.
    pub(crate) least: usize,
    pub(crate) most: usize,
}

/// A call that waits to be handled.
pub(crate) struct Arrived {
    pub(crate) request: Request,
    pub(crate) responder: Responder,
    pub(crate) serial: u64,
    handler: usize,
}

/// A closure that is run at once, on this thread, without the interpreter.
struct InPlace<F>(F);

// SAFETY: `State::detached` passes it to `Python::detach`, which calls it on the thread that it is
// called on, before it returns. What it reaches holds Python objects, but uses none meanwhile: it
// only moves them.
unsafe impl<F> Send for InPlace<F> {}

impl<F: FnOnce() -> R, R> InPlace<F> {
    fn run(self) -> InPlace<R> {
        InPlace((self.0)())
    }
}

impl State {
    pub(crate) fn new(engine: Engine, max_body: u64) -> Rc<State> {
        let home = Home::here();
        home.set_engine(engine.handle());
        Rc::new(State {
            home,
            max_body,
            engine: RefCell::new(Some(engine)),
            releases: RefCell::new(Some(Releases::new())),
            arrived: RefCell::default(),
            waiter: RefCell::default(),
            withdrawn: RefCell::default(),
            on_withdrawal: RefCell::default(),
            finished: RefCell::default(),
            handlers: RefCell::default(),
            lendings: Lendings::default(),
            holders: RefCell::default(),
            serial: Cell::new(0),
            tick: RefCell::default(),
            in_handler: Cell::new(false),
            armed: Cell::new(false),
            scratch: RefCell::default(),
            awaitable: RefCell::default(),
        })
    }

    /// The engine, unless it is closed.
    pub(crate) fn engine(&self) -> PyResult<Engine> {
        self.engine.borrow().clone().ok_or_else(errors::closed)
    }

    /// With what descriptors of results are opened.
    pub(crate) fn opener(self: &Rc<Self>) -> PyResult<Opener> {
        Ok(Opener { state: Rc::clone(self), engine: self.engine()? })
    }

    /// Holds a part of the engine until it is closed.
    pub(crate) fn hold<T: 'static>(&self, value: T) -> Held<T> {
        let held = Rc::new(RefCell::new(Some(value)));
        let weak: Weak<RefCell<Option<T>>> = Rc::downgrade(&held);
        self.let_go_at_the_end(weak);
        Held(held)
    }

    /// Has something let go when the engine is closed.
    pub(crate) fn let_go_at_the_end(&self, holder: Weak<dyn LetGo>) {
        let mut holders = self.holders.borrow_mut();
        if holders.weak.len() >= holders.sweep_at {
            holders.weak.retain(|weak| weak.strong_count() > 0);
            holders.sweep_at = 64 + 2 * holders.weak.len();
        }
        holders.weak.push(holder);
    }

    pub(crate) fn lend(&self, memory: &Bound<'_, PyAny>, writable: bool) -> PyResult<Slice> {
        let releases = self.releases.borrow();
        buffer::lend(memory, writable, releases.as_ref().ok_or_else(errors::closed)?)
    }

    /// Encodes a value, and hands the bytes to `then`.
    pub(crate) fn encoded<R>(
        &self,
        value: &Bound<'_, PyAny>,
        then: impl FnOnce(&[u8]) -> R,
    ) -> PyResult<R> {
        /// More than this is not kept for the next one.
        const KEPT: usize = 1 << 20;
        // Encoding may call code of the program, and that this again.
        let mut scratch = self.scratch.take();
        scratch.clear();
        let encoded = encode(value, &mut scratch);
        let result = encoded.map(|()| then(&scratch));
        if scratch.capacity() <= KEPT {
            self.scratch.replace(scratch);
        }
        result
    }

    /// Runs what moves data, or waits, without the interpreter.
    fn detached<R>(py: Python<'_>, work: impl FnOnce() -> R) -> R {
        let work = InPlace(work);
        py.detach(move || work.run()).0
    }

    // Serving.

    /// Serves a method. False if it is served already.
    pub(crate) fn serve(
        self: &Rc<Self>,
        method: petasos::Method,
        provider: u16,
        handler: Handler,
    ) -> PyResult<bool> {
        let engine = self.engine()?;
        let at = self.handlers.borrow().len();
        let state = Rc::downgrade(self);
        let added = engine.register(method, provider, move |request: Request| {
            let work = Self::arrive(&state, at, request);
            Box::pin(work) as petasos::HandlerFuture
        });
        if added {
            self.handlers.borrow_mut().push(Served(Rc::new(handler)));
        }
        Ok(added)
    }

    /// Queues a call, within a pass and without the interpreter. The future is its answer.
    fn arrive(state: &Weak<State>, handler: usize, request: Request) -> Waited {
        let Some(here) = state.upgrade() else {
            let ended = Failure::Failed("the engine has ended".to_owned());
            return Waited { reply: Box::pin(async { Err(ended) }), serial: 0, state: Weak::new() };
        };
        let serial = here.serial.get() + 1;
        here.serial.set(serial);
        let reply = request.later(|request, responder| {
            let arrived = Arrived { request, responder, serial, handler };
            here.arrived.borrow_mut().push_back(arrived);
        });
        here.wake();
        Waited { reply, serial, state: Weak::clone(state) }
    }

    fn wake(&self) {
        if let Some(waiter) = self.waiter.take() {
            waiter.wake();
        }
    }

    /// What a task has done is to be told.
    pub(crate) fn finish(&self, task: Rc<Task>) {
        self.finished.borrow_mut().push_back(task);
        self.wake();
    }

    /// Handles one of the calls that have arrived. False if there is none.
    fn handle_one(self: &Rc<Self>, py: Python<'_>) -> PyResult<bool> {
        let Some(arrived) = self.arrived.borrow_mut().pop_front() else { return Ok(false) };
        if arrived.responder.is_cancelled() {
            return Ok(true);
        }
        let Served(handler) = self.handlers.borrow()[arrived.handler].clone();
        let before = self.in_handler.replace(true);
        let handled = self.handle(py, &handler, arrived);
        self.in_handler.set(before);
        handled.map(|()| true)
    }

    fn handle(
        self: &Rc<Self>,
        py: Python<'_>,
        handler: &Handler,
        arrived: Arrived,
    ) -> PyResult<()> {
        let Arrived { request, responder, serial, .. } = arrived;
        let engine = request.context().engine();
        let opener = Opener { state: Rc::clone(self), engine };
        let arguments = match decode::arguments(py, &request, Some(&opener)) {
            Ok(arguments) => arguments,
            Err(error) => {
                let text = error.value(py).to_string();
                responder.respond(Err(Failure::BadArguments(text)));
                return Ok(());
            }
        };
        if !(handler.least..=handler.most).contains(&arguments.len()) {
            let (got, least, most) = (arguments.len(), handler.least, handler.most);
            let text = format!("{got} arguments, where {least} to {most} are taken");
            responder.respond(Err(Failure::BadArguments(text)));
            return Ok(());
        }
        let arguments = PyTuple::new(py, arguments)?;
        if !handler.plain {
            let incoming = Incoming::new(self, &request, responder, serial, arguments.unbind());
            let begun = handler.call.bind(py).call1((Bound::new(py, incoming)?,));
            return begun.map(drop);
        }
        let result = handler.call.bind(py).call1(arguments);
        let reply = result.and_then(|result| self.encoded(&result, <[u8]>::to_vec));
        match reply {
            Ok(reply) => responder.respond(Ok(reply)),
            Err(error) => {
                responder.respond(Err(errors::failure(py, &error)));
                if !errors::is_ordinary(py, &error) {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Has `call` called when the caller does not wait any more.
    pub(crate) fn on_withdrawal(&self, serial: u64, call: Py<PyAny>) {
        self.on_withdrawal.borrow_mut().insert(serial, call);
    }

    pub(crate) fn answered(&self, serial: u64) {
        self.on_withdrawal.borrow_mut().remove(&serial);
    }

    // Driving.

    /// What is left to be done with the interpreter after the engine was driven.
    fn settle(self: &Rc<Self>, py: Python<'_>) {
        self.home.welcome();
        self.drain();
        let withdrawn = self.withdrawn.take();
        for serial in withdrawn {
            let call = self.on_withdrawal.borrow_mut().remove(&serial);
            if let Some(call) = call
                && let Err(error) = call.call0(py)
            {
                error.write_unraisable(py, None);
            }
        }
        while let Some(task) = { self.finished.borrow_mut().pop_front() } {
            if let Err(error) = task.tell(py, self) {
                error.write_unraisable(py, None);
            }
        }
    }

    /// Gives back the memory of objects that the network does not use any more.
    pub(crate) fn drain(&self) {
        // One at a time: an object that is dropped with its memory may run code of the program,
        // which may come back here.
        let next = || self.releases.borrow().as_ref()?.take();
        while let Some(owner) = next() {
            drop(owner);
        }
    }

    /// The largest that is taken into memory, in bytes.
    pub(crate) fn max_body(&self) -> u64 {
        self.max_body
    }

    /// Blocks until `work` is ready, drives the engine meanwhile, and handles the calls that
    /// arrive, one after the other; within a handler they wait.
    pub(crate) fn wait<T>(
        self: &Rc<Self>,
        py: Python<'_>,
        work: &mut (impl Future<Output = T> + Unpin),
    ) -> PyResult<T> {
        let engine = self.engine()?;
        let handles = !self.in_handler.get();
        if self.awaitable.borrow().is_some() {
            let text = "an event loop drives this engine: await what it does";
            return Err(PyRuntimeError::new_err(text));
        }
        loop {
            let event = Self::detached(py, || {
                engine.block_on(poll_fn(|context| self.poll(context, work, handles, &engine)))
            });
            self.settle(py);
            match event {
                Event::Done(output) => return Ok(output),
                Event::Arrived => drop(self.handle_one(py)?),
                Event::Tick => py.check_signals()?,
            }
        }
    }

    fn poll<T>(
        &self,
        context: &mut Context<'_>,
        work: &mut (impl Future<Output = T> + Unpin),
        handles: bool,
        engine: &Engine,
    ) -> Poll<Event<T>> {
        if let Poll::Ready(output) = Pin::new(work).poll(context) {
            return Poll::Ready(Event::Done(output));
        }
        if handles && !self.arrived.borrow().is_empty() {
            return Poll::Ready(Event::Arrived);
        }
        let mut tick = self.tick.borrow_mut();
        let sleep = tick.get_or_insert_with(|| engine.sleep(TICK));
        if Pin::new(sleep).poll(context).is_ready() || !self.withdrawn.borrow().is_empty() {
            *tick = None;
            return Poll::Ready(Event::Tick);
        }
        self.waiter.replace(Some(context.waker().clone()));
        Poll::Pending
    }

    /// Drives the engine without blocking, for an event loop: tells what has finished, handles what
    /// has arrived. Returns how long the loop may sleep on the descriptor, or `None` if there is
    /// more to do.
    pub(crate) fn pump(self: &Rc<Self>, py: Python<'_>) -> PyResult<Option<Duration>> {
        let engine = self.engine()?;
        if self.armed.replace(false) {
            engine.awake();
        }
        let begun = Instant::now();
        loop {
            let mut busy = Self::detached(py, || {
                let mut busy = false;
                while engine.progress() && begun.elapsed() < PUMP {
                    busy = true;
                }
                busy
            });
            self.settle(py);
            while self.handle_one(py)? {
                busy = true;
            }
            if self.engine.borrow().is_none() {
                return Ok(None);
            }
            if !busy {
                let longest = engine.arm();
                self.armed.set(longest.is_some());
                return Ok(longest);
            }
            if begun.elapsed() >= PUMP {
                return Ok(None);
            }
        }
    }

    /// What is under way.
    pub(crate) fn usage(&self) -> PyResult<petasos::Usage> {
        Ok(self.engine()?.usage())
    }

    /// An event loop drives it from now on: `make` makes an awaitable of an operation.
    pub(crate) fn set_awaitable(&self, make: Py<PyAny>) {
        self.awaitable.replace(Some(make));
    }

    pub(crate) fn awaitable(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.awaitable.borrow().as_ref().map(|make| make.clone_ref(py))
    }

    /// How many pieces of memory of Python objects the network has.
    pub(crate) fn lent(&self) -> usize {
        self.releases.borrow().as_ref().map_or(0, Releases::lent)
    }

    /// Ends the engine: what is under way fails, and memory that is lent comes back, for which this
    /// waits no longer than `patience`. What a peer still reaches then stays as it is for the rest
    /// of the process.
    pub(crate) fn close(self: &Rc<Self>, py: Python<'_>, patience: Duration) {
        let Some(engine) = self.engine.borrow_mut().take() else { return };
        if self.armed.replace(false) {
            engine.awake();
        }
        let kept = self.lendings.entries.take();
        drop(kept);
        let holders = std::mem::take(&mut self.holders.borrow_mut().weak);
        holders.iter().filter_map(Weak::upgrade).for_each(|holder| holder.let_go());
        // Calls that come meanwhile are neither handled nor refused: with the endpoint their callers
        // lose the peer.
        let end = Instant::now() + patience;
        loop {
            let busy = Self::detached(py, || engine.progress());
            self.settle(py);
            let quiet = engine.usage().operations == 0 && self.lent() == 0;
            if (quiet && !busy) || Instant::now() >= end {
                break;
            }
            if !busy {
                py.detach(|| std::thread::sleep(Duration::from_micros(100)));
            }
        }
        engine.shut_down();
        let arrived = self.arrived.take();
        drop(arrived);
        self.settle(py);
        self.tick.take();
        let handlers = self.handlers.take();
        let withdrawals = (self.on_withdrawal.take(), self.awaitable.take());
        // Before the endpoint: what a peer could still write to is then never freed.
        let releases = self.releases.take();
        drop(releases);
        Self::detached(py, || drop(engine));
        self.home.close();
        drop((handlers, withdrawals));
    }
}

/// What ends a wait.
enum Event<T> {
    Done(T),
    Arrived,
    Tick,
}

/// The answer of a call that is being handled. When it is dropped before, the caller has cancelled
/// the call, is lost, or its time is over.
struct Waited {
    reply: petasos::HandlerFuture,
    serial: u64,
    state: Weak<State>,
}

impl Future for Waited {
    type Output = petasos::Reply;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<petasos::Reply> {
        let polled = self.reply.as_mut().poll(context);
        if polled.is_ready() {
            self.state = Weak::new();
        }
        polled
    }
}

impl Drop for Waited {
    fn drop(&mut self) {
        if let Some(state) = self.state.upgrade() {
            state.withdrawn.borrow_mut().push(self.serial);
            state.wake();
        }
    }
}

//! Calls from others: finding the handler, running it, answering.

use crate::{
    Context, Failure, Incoming, Method,
    inner::{Body, Inner},
    timers::Due,
};
use futures_util::future::{AbortHandle, Abortable};
use petasos_fabric::{Access, LostReason, Peer, Region};
use petasos_wire::rpc::{self, CallId, Remote, Request, Response, Status, Trace};
use slab::Slab;
use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    panic::AssertUnwindSafe,
    pin::Pin,
    rc::Rc,
    task::{Context as PollContext, Poll, Waker},
    time::{Duration, Instant},
};
use tracing::Instrument;

/// What a handler gives in the end: the bytes of the result.
pub type Reply = Result<Vec<u8>, Failure>;

/// A handler at work. Dropped when the caller cancels, is lost, or the deadline is over.
pub type HandlerFuture = Pin<Box<dyn Future<Output = Reply>>>;

/// Serves one method. Any function from [`Incoming`] to a [`HandlerFuture`] does.
pub trait Handler {
    /// Begins to serve a call. The future is polled at once; an answer that is there then leaves
    /// at once.
    fn call(&self, incoming: Incoming) -> HandlerFuture;
}

impl<F: Fn(Incoming) -> HandlerFuture> Handler for F {
    fn call(&self, incoming: Incoming) -> HandlerFuture {
        self(incoming)
    }
}

/// The methods that are served, and the calls in progress.
#[derive(Default)]
pub(crate) struct Served {
    methods: HashMap<u64, Entry, BuildHasherDefault<NoHash>>,
    running: Slab<Running>,
    by_call: HashMap<(Peer, u32), usize>,
    serial: u64,
}

struct Entry {
    method: Method,
    providers: Vec<(u16, Rc<dyn Handler>)>,
}

/// A call in progress whose handler waits for something.
struct Running {
    serial: u64,
    answer: Answer,
    abort: AbortHandle,
    context: Context,
}

/// What it takes to answer a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    peer: Peer,
    call: CallId,
    one_way: bool,
    checked: bool,
    method: &'static str,
    started: Option<Instant>,
}

/// Method ids are hashes already.
#[derive(Default)]
struct NoHash(u64);

impl Hasher for NoHash {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

impl Served {
    pub(crate) fn len(&self) -> usize {
        self.running.len()
    }

    pub(crate) fn is_running(&self, slot: u32, serial: u64) -> bool {
        self.running.get(slot as usize).is_some_and(|running| running.serial == serial)
    }

    /// Adds a handler; false if the method has one under this provider, or if another method has
    /// the same id.
    pub(crate) fn add(&mut self, method: Method, provider: u16, handler: Rc<dyn Handler>) -> bool {
        let free = self.is_free(&method, provider);
        if free {
            let entry = self.methods.entry(method.id);
            let entry = entry.or_insert_with(|| Entry { method, providers: Vec::new() });
            entry.providers.push((provider, handler));
        }
        free
    }

    pub(crate) fn is_free(&self, method: &Method, provider: u16) -> bool {
        self.methods.get(&method.id).is_none_or(|entry| {
            entry.method == *method && entry.providers.iter().all(|(id, _)| *id != provider)
        })
    }

    pub(crate) fn remove(&mut self, method: Method, provider: u16) {
        if let Some(entry) = self.methods.get_mut(&method.id) {
            entry.providers.retain(|(id, _)| *id != provider);
            if entry.providers.is_empty() {
                self.methods.remove(&method.id);
            }
        }
    }

    fn find(&self, request: &Request) -> Result<(Rc<dyn Handler>, Method), Refusal> {
        let entry = self.methods.get(&request.method).ok_or(Refusal::plain(Status::NoMethod))?;
        if entry.method.signature != request.signature {
            let ours = entry.method.signature.to_le_bytes().to_vec();
            return Err(Refusal { status: Status::Signature, body: ours });
        }
        let provider = entry.providers.iter().find(|(id, _)| *id == request.provider);
        let (_, handler) = provider.ok_or(Refusal::plain(Status::NoProvider))?;
        Ok((Rc::clone(handler), entry.method))
    }

    fn take(&mut self, at: usize, serial: u64) -> Option<Running> {
        if !self.is_running(at as u32, serial) {
            return None;
        }
        let running = self.running.remove(at);
        self.by_call.remove(&(running.answer.peer, running.answer.call.slot));
        Some(running)
    }
}

/// An answer that is not a result.
struct Refusal {
    status: Status,
    body: Vec<u8>,
}

impl Refusal {
    fn plain(status: Status) -> Refusal {
        Refusal { status, body: Vec::new() }
    }
}

impl Inner {
    pub(crate) fn serve_request(self: &Rc<Self>, peer: Peer, request: &Request, body: Body) {
        let mut answer = Answer {
            peer,
            call: request.call,
            one_way: request.one_way,
            checked: request.checked,
            method: "",
            started: None,
        };
        let found = self.served.borrow().find(request);
        let (handler, method) = match found {
            Ok(found) => found,
            Err(refusal) => {
                self.meet(peer);
                return self.refuse(answer, refusal);
            }
        };
        answer.method = method.name;
        answer.started = self.config.measure.then(Instant::now);
        if !self.admit(peer) {
            let millis = u32::try_from(self.config.retry_after.as_millis()).unwrap_or(u32::MAX);
            let body = millis.max(1).to_le_bytes().to_vec();
            return self.refuse(answer, Refusal { status: Status::Busy, body });
        }
        let context = Context::new(Rc::clone(self), peer, request, method);
        let mut work: HandlerFuture = if request.overflow {
            let (inner, context) = (Rc::clone(self), context.clone());
            Box::pin(async move {
                let body = inner.fetch_arguments(&body).await?;
                handler.call(Incoming::new(context, body)).await
            })
        } else {
            // Making the future may panic, too.
            let incoming = Incoming::new(context.clone(), body);
            match std::panic::catch_unwind(AssertUnwindSafe(|| handler.call(incoming))) {
                Ok(work) => work,
                Err(panic) => return self.answer(answer, Err(panicked(&*panic))),
            }
        };
        if let Some(trace) = request.trace {
            work = traced(work, trace, method.name);
        }
        // Polled at once; a handler that need not wait never becomes a task. One that waits is
        // polled again as a task, with a waker that means something.
        let mut at_once = PollContext::from_waker(Waker::noop());
        match poll_caught(&mut work, &mut at_once) {
            Poll::Ready(reply) => self.answer(answer, reply),
            Poll::Pending => self.run(answer, request.left_us, work, context),
        }
    }

    /// Whether the peer may have one more call in progress here; counts it.
    fn admit(&self, peer: Peer) -> bool {
        let mut peers = self.peers.borrow_mut();
        if peers.get(peer).is_none() {
            drop(peers);
            self.meet(peer);
            peers = self.peers.borrow_mut();
        }
        let Some(record) = peers.get(peer) else { return false };
        // Answers that the peer does not read and results that it does not fetch count as well; an
        // answer may be both.
        let used = record.serving as usize + record.parked.len().max(record.lent.len());
        let limit = usize::from(self.config.calls_per_peer);
        if used >= limit || self.served.borrow().len() >= self.config.calls_in_all {
            return false;
        }
        record.serving += 1;
        true
    }

    fn run(self: &Rc<Self>, answer: Answer, left_us: u32, work: HandlerFuture, context: Context) {
        let (abort, registration) = AbortHandle::new_pair();
        let mut served = self.served.borrow_mut();
        served.serial += 1;
        let serial = served.serial;
        let at = served.running.insert(Running { serial, answer, abort, context });
        if !answer.one_way {
            served.by_call.insert((answer.peer, answer.call.slot), at);
        }
        drop(served);
        if left_us > 0 {
            let left = Duration::from_micros(left_us.into());
            self.timers.borrow_mut().add(left, Due::Served(at as u32, serial));
        }
        let inner = Rc::clone(self);
        let work = Abortable::new(Caught(work), registration);
        self.tasks.spawn(Box::pin(async move {
            // Aborted: whoever did that has seen to the answer.
            if let Ok(reply) = work.await
                && inner.served.borrow_mut().take(at, serial).is_some()
            {
                inner.answer(answer, reply);
            }
        }));
    }

    /// Answers a call that was admitted.
    fn answer(self: &Rc<Self>, answer: Answer, reply: Reply) {
        if let Some(record) = self.peers.borrow_mut().get(answer.peer) {
            record.serving = record.serving.saturating_sub(1);
        }
        let mut stats = self.stats.borrow_mut();
        stats.calls_served += 1;
        if let Some(started) = answer.started {
            stats.record(answer.method, started.elapsed());
        }
        drop(stats);
        match reply {
            Ok(body) => self.answer_ok(answer, body),
            Err(failure) => {
                self.stats.borrow_mut().calls_failed += 1;
                let (status, text) = match failure {
                    Failure::Failed(text) => (Status::Failed, text),
                    Failure::BadArguments(text) => (Status::BadArguments, text),
                    Failure::TooLarge(text) => (Status::TooLarge, text),
                    Failure::Busy => (Status::Busy, "\u{1}\0\0\0".to_owned()),
                };
                self.refuse(answer, Refusal { status, body: text.into_bytes() });
            }
        }
    }

    fn answer_ok(self: &Rc<Self>, answer: Answer, body: Vec<u8>) {
        if answer.one_way {
            return self.recycle(body);
        }
        let mut response = self.response(answer, Status::Ok);
        if response.header_len() + body.len() <= self.max_frame {
            self.respond(answer.peer, &response, &body);
            return self.recycle(body);
        }
        let len = body.len() as u64;
        match self.lend(&Region::from_vec(body).whole(), Access::READ) {
            Ok((region, key)) => {
                let mut remote = Vec::new();
                Remote { len, key: key.as_bytes() }.encode(&mut remote);
                let unreachable = match self.peers.borrow_mut().get(answer.peer) {
                    // A caller who uses the same slot twice has lost the first result.
                    Some(record) => record.lent.insert(answer.call, region),
                    None => Some(region),
                };
                if let Some(region) = unreachable {
                    self.deregister_later(region);
                }
                response.overflow = true;
                self.respond(answer.peer, &response, &remote);
            }
            Err(error) => {
                let body = format!("the result could not be lent: {error}").into_bytes();
                self.refuse(answer, Refusal { status: Status::Failed, body });
            }
        }
    }

    /// Answers with something that is no result.
    fn refuse(self: &Rc<Self>, answer: Answer, refusal: Refusal) {
        if answer.one_way {
            self.stats.borrow_mut().one_way_dropped += 1;
            return;
        }
        let response = self.response(answer, refusal.status);
        let room = self.max_frame - response.header_len();
        let body = &refusal.body[..refusal.body.len().min(room).min(1024)];
        self.respond(answer.peer, &response, body);
        self.check_patience(answer.peer);
    }

    /// Cuts off a peer that goes on asking without reading the answers.
    fn check_patience(self: &Rc<Self>, peer: Peer) {
        let limit = 2 * usize::from(self.config.calls_per_peer) + 64;
        let parked = self.peers.borrow_mut().get(peer).map_or(0, |record| record.parked.len());
        if parked > limit {
            tracing::warn!(?peer, "a peer that reads no answers is cut off");
            self.lose(peer, &LostReason::Protocol("it reads no answers".to_owned()));
        }
    }

    fn response(&self, answer: Answer, status: Status) -> Response {
        Response {
            call: answer.call,
            status,
            overflow: false,
            checked: answer.checked,
            window: self.config.calls_per_peer,
        }
    }

    fn respond(&self, peer: Peer, response: &Response, body: &[u8]) {
        if !response.checked {
            return self.send_frame(peer, &[&response.header(), body]);
        }
        let mut frame = self.buffer();
        response.encode(&mut frame);
        let len = frame.len();
        frame.extend_from_slice(body);
        rpc::seal(&mut frame, len);
        self.send_frame(peer, &[&frame]);
        self.recycle(frame);
    }

    pub(crate) fn cancel_served(self: &Rc<Self>, peer: Peer, call: CallId) {
        let served = self.served.borrow();
        let Some(&at) = served.by_call.get(&(peer, call.slot)) else { return };
        let running = &served.running[at];
        if running.answer.call != call {
            return;
        }
        let serial = running.serial;
        drop(served);
        self.stats.borrow_mut().cancelled_by_caller += 1;
        self.stop(at, serial, Status::Cancelled);
    }

    pub(crate) fn served_is_late(self: &Rc<Self>, slot: u32, serial: u64) {
        self.stats.borrow_mut().served_too_late += 1;
        self.stop(slot as usize, serial, Status::Deadline);
    }

    /// Stops a handler, and answers with `status`.
    fn stop(self: &Rc<Self>, at: usize, serial: u64, status: Status) {
        let running = self.served.borrow_mut().take(at, serial);
        let Some(running) = running else { return };
        running.context.cancel();
        running.abort.abort();
        if let Some(record) = self.peers.borrow_mut().get(running.answer.peer) {
            record.serving = record.serving.saturating_sub(1);
        }
        self.refuse(running.answer, Refusal::plain(status));
    }

    /// Stops what is done for a peer that is gone.
    pub(crate) fn end_served(&self, peer: Peer) {
        let mut served = self.served.borrow_mut();
        let served = &mut *served;
        let mut stopped = Vec::new();
        served.running.retain(|_, running| {
            let keep = running.answer.peer != peer;
            if !keep {
                running.context.cancel();
                stopped.push(running.abort.clone());
                served.by_call.remove(&(peer, running.answer.call.slot));
            }
            keep
        });
        stopped.iter().for_each(AbortHandle::abort);
    }
}

/// The handler within a span that belongs to the caller's trace.
fn traced(work: HandlerFuture, trace: Trace, method: &'static str) -> HandlerFuture {
    let (id, parent) = (trace.trace, trace.span);
    let span = tracing::debug_span!(
        target: "petasos::serve", "serve", method,
        trace = format_args!("{id:032x}"), parent = format_args!("{parent:016x}"),
    );
    if span.is_disabled() { work } else { Box::pin(work.instrument(span)) }
}

/// A handler whose panics are failures.
struct Caught(HandlerFuture);

impl Future for Caught {
    type Output = Reply;
    fn poll(mut self: Pin<&mut Self>, context: &mut PollContext<'_>) -> Poll<Reply> {
        poll_caught(&mut self.0, context)
    }
}

fn poll_caught(work: &mut HandlerFuture, context: &mut PollContext<'_>) -> Poll<Reply> {
    let polled = std::panic::catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
    polled.unwrap_or_else(|panic| Poll::Ready(Err(panicked(&*panic))))
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Failure {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    Failure::Failed(format!("it panicked: {text}"))
}

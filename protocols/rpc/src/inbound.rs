//! Calls from peers: admitting them, running their handlers, answering.

use crate::{
    Arrival, Context, Failure, HandlerFuture, Reply,
    body::Body,
    handler::{Begin, at_once},
    inner::Inner,
    outbound::after_header,
    registry::Provider,
    served::{Answer, Refusal, Running, Ticket},
    timers::Due,
};
use futures_util::future::{AbortHandle, Abortable};
use petasos_fabric::{Access, Lease, LostReason, Peer, Slice};
use petasos_wire::rpc::{self, CallId, Remote, Request, Response, Status, Trace};
use std::{
    mem,
    panic::AssertUnwindSafe,
    pin::Pin,
    rc::Rc,
    task::{Context as PollContext, Poll},
    time::{Duration, Instant},
};
use tracing::{Instrument, Span};

impl Inner {
    /// Serves a call whose arguments begin at `start` in the message.
    #[inline(always)]
    pub(crate) fn serve_request(
        self: &Rc<Self>,
        peer: Peer,
        request: &Request,
        message: &mut Lease,
        start: usize,
    ) {
        let Some(provider) = self.served.find(request) else {
            return self.refuse_unserved(peer, *request);
        };
        let mut answer = Answer::new(peer, request, provider.method.name);
        if self.served.len() >= self.config.calls_in_all || !self.admits(peer) {
            return self.refuse_busy(answer);
        }
        if self.config.measure {
            answer.started = Some(Instant::now());
        }
        if request.overflow || request.trace.is_some() {
            let body = Body::kept(std::mem::take(message), start, &self.kept);
            return self.serve_any(answer, provider, *request, body);
        }
        let arrival = Arrival {
            inner: self,
            answer: &answer,
            encoding: request.encoding,
            method: &provider.method,
            message,
            start,
            context: None,
            in_task: false,
        };
        self.served.enter_handler();
        // Stored in place: as the result of `catch_unwind` it would be moved three times. The value
        // that is overwritten has nothing to drop.
        let mut begin = Begin::Answered;
        let call = || mem::forget(mem::replace(&mut begin, provider.handler.call(arrival).0));
        if let Err(panic) = std::panic::catch_unwind(AssertUnwindSafe(call)) {
            begin = Begin::Replied(Err(panicked(&*panic)));
        }
        match begin {
            Begin::Answered => mem::forget(begin),
            begin => self.go_on(answer, request.left_us, begin),
        }
    }

    /// Goes on with a call whose handler has returned, and did not send the answer itself.
    #[inline(never)]
    fn go_on(self: &Rc<Self>, answer: Answer, left_us: u32, begin: Begin) {
        match begin {
            // The answer was sent, whatever the handler did afterwards.
            _ if !self.served.leave_handler() => {}
            Begin::Answered => {}
            Begin::Framed(frame) => self.answer_framed(answer, frame),
            Begin::Replied(reply) => self.answer(answer, reply),
            Begin::Waiting(work, context) => self.run(answer, left_us, work, context),
        }
    }

    /// Serves a call that belongs to a trace, or whose arguments have to be fetched.
    #[cold]
    fn serve_any(
        self: &Rc<Self>,
        answer: Answer,
        provider: Rc<Provider>,
        request: Request,
        body: Body,
    ) {
        let (inner, peer) = (Rc::clone(self), answer.peer);
        let span = request.trace.map_or(Span::none(), |trace| span(trace, answer.method));
        let context = Context::new(Rc::clone(self), peer, &request, &provider.method);
        let known = context.clone();
        let work = async move {
            let mut body = match request.overflow {
                true => inner.fetch_arguments(peer, body).await?,
                false => body,
            };
            let arrival = Arrival {
                inner: &inner,
                answer: &answer,
                encoding: request.encoding,
                method: &provider.method,
                start: body.start,
                message: &mut body.message,
                context: Some(known),
                in_task: true,
            };
            match provider.handler.call(arrival).0 {
                Begin::Replied(reply) => reply,
                Begin::Waiting(work, _) => work.await,
                Begin::Answered | Begin::Framed(_) => unreachable!("it was made in a task"),
            }
        };
        let mut work: HandlerFuture = Box::pin(work.instrument(span));
        self.served.enter_handler();
        let polled = poll_caught(&mut work, &mut at_once());
        self.served.leave_handler();
        match polled {
            Poll::Ready(reply) => self.answer(answer, reply),
            Poll::Pending => self.run(answer, request.left_us, work, Some(context)),
        }
    }

    /// Refuses a request that is not served.
    #[cold]
    fn refuse_unserved(self: &Rc<Self>, peer: Peer, request: Request) {
        self.ensure_peer(peer);
        let refusal = self.served.refusal(&request);
        self.refuse(Answer::new(peer, &request, ""), refusal);
    }

    /// Whether the peer may have one more call in progress here.
    #[inline(always)]
    fn admits(&self, peer: Peer) -> bool {
        let mut peers = self.peers.borrow_mut();
        let Some(record) = peers.get(peer) else {
            drop(peers);
            return self.admits_unknown(peer);
        };
        record.used() < usize::from(self.config.calls_per_peer)
    }

    /// The same for a peer of which there is no record before its first call.
    #[cold]
    fn admits_unknown(&self, peer: Peer) -> bool {
        self.ensure_peer(peer) && self.admits(peer)
    }

    /// Goes on with a call that waits for something, as a task.
    fn run(
        self: &Rc<Self>,
        answer: Answer,
        left_us: u32,
        work: HandlerFuture,
        context: Option<Context>,
    ) {
        if let Some(record) = self.peers.borrow_mut().get(answer.peer) {
            record.begin_serving();
        }
        let (abort, registration) = AbortHandle::new_pair();
        let ticket = self.served.begin(answer, abort, context);
        if left_us > 0 {
            let left = Duration::from_micros(left_us.into());
            self.timers.borrow_mut().add(left, Due::Served(ticket.slot, ticket.serial));
        }
        let inner = Rc::clone(self);
        let work = Abortable::new(Caught(work), registration);
        self.spawn(Box::pin(async move {
            // If it was aborted, the code that did that has sent the answer.
            if let Ok(reply) = work.await
                && inner.ended(ticket).is_some()
            {
                inner.answer(answer, reply);
            }
        }));
    }

    /// A call in progress is over: it no longer counts.
    fn ended(&self, ticket: Ticket) -> Option<Running> {
        let running = self.served.end(ticket)?;
        if let Some(record) = self.peers.borrow_mut().get(running.answer.peer) {
            record.end_serving();
        }
        Some(running)
    }

    /// Sends a complete response, if nothing else has to be done with it. False if something has.
    #[inline(never)]
    pub(crate) fn answer_plainly(&self, answer: &Answer, frame: &[u8]) -> bool {
        let plain = !(answer.one_way | answer.checked) && self.frames.fits_inline(frame.len());
        // Not if the call was answered before.
        if plain && self.served.is_in_handler() {
            self.send_frame(answer.peer, frame);
            self.served.leave_handler();
            self.served_one(answer);
        }
        plain
    }

    /// The same with a response whose last bytes are not in the frame.
    #[cold]
    #[inline(never)]
    pub(crate) fn answer_in_two(&self, answer: &Answer, frame: &[u8], rest: &[u8]) -> bool {
        let fits = self.frames.fits_inline(frame.len() + rest.len());
        let plain = fits && !(answer.one_way | answer.checked);
        if plain && self.served.leave_handler() {
            self.send_parts(answer.peer, &[frame, rest]);
            self.served_one(answer);
        }
        plain
    }

    /// Sends a response that is complete but for its checksum.
    fn answer_framed(self: &Rc<Self>, answer: Answer, mut frame: Vec<u8>) {
        let header = rpc::response_len(answer.checked);
        self.served_one(&answer);
        if !answer.one_way && !self.frames.fits_inline(frame.len()) {
            return self.answer_lent(answer, &after_header(frame, header));
        }
        if !answer.one_way {
            if answer.checked {
                rpc::seal(&mut frame, header);
            }
            self.send_frame(answer.peer, &frame);
        }
        self.frames.recycle(frame);
    }

    /// Counts a call that was served.
    #[inline]
    fn served_one(&self, answer: &Answer) {
        self.stats.calls_served.count();
        if let Some(started) = answer.started {
            self.stats.record(answer.method, started.elapsed());
        }
    }

    /// Answers a call that was admitted.
    fn answer(self: &Rc<Self>, answer: Answer, reply: Reply) {
        self.served_one(&answer);
        let failure = match reply {
            Ok(body) => return self.answer_ok(answer, body),
            Err(failure) => failure,
        };
        self.stats.calls_failed.count();
        let (status, text) = match failure {
            Failure::Failed(text) => (Status::Failed, text),
            Failure::BadArguments(text) => (Status::BadArguments, text),
            Failure::TooLarge(text) => (Status::TooLarge, text),
            Failure::Busy => (Status::Busy, "\u{1}\0\0\0".to_owned()),
        };
        self.refuse(answer, Refusal { status, body: text.into_bytes() });
    }

    fn answer_ok(self: &Rc<Self>, answer: Answer, body: Vec<u8>) {
        if answer.one_way {
            return self.frames.recycle(body);
        }
        let response = self.response(answer.call, Status::Ok, answer.checked);
        if self.frames.fits_inline(response.header_len() + body.len()) {
            return self.respond(answer.peer, &response, body);
        }
        self.answer_lent(answer, &after_header(body, 0));
    }

    /// Answers with a result that does not fit: it is lent, and the caller fetches it.
    fn answer_lent(self: &Rc<Self>, answer: Answer, result: &Slice) {
        match self.transport.export(result, Access::READ) {
            Ok((region, key)) => {
                let mut remote = Vec::new();
                Remote { len: result.len() as u64, key: key.as_bytes() }.encode(&mut remote);
                let unreachable = match self.peers.borrow_mut().get(answer.peer) {
                    // A caller that uses the same id twice loses the first result.
                    Some(record) => record.lend_result(answer.call, region),
                    None => Some(region),
                };
                if let Some(region) = unreachable {
                    self.deregister(region);
                }
                let mut response = self.response(answer.call, Status::Ok, answer.checked);
                response.overflow = true;
                self.respond(answer.peer, &response, remote);
            }
            Err(error) => {
                let body = format!("the result could not be lent: {error}").into_bytes();
                self.refuse(answer, Refusal { status: Status::Failed, body });
            }
        }
    }

    #[cold]
    fn refuse_busy(self: &Rc<Self>, answer: Answer) {
        let millis = u32::try_from(self.config.retry_after.as_millis()).unwrap_or(u32::MAX);
        let body = millis.max(1).to_le_bytes().to_vec();
        self.refuse(answer, Refusal { status: Status::Busy, body });
    }

    /// Answers with an error.
    #[cold]
    fn refuse(self: &Rc<Self>, answer: Answer, mut refusal: Refusal) {
        if answer.one_way {
            self.stats.one_way_dropped.count();
            return;
        }
        let response = self.response(answer.call, refusal.status, answer.checked);
        let room = self.frames.max_len() - response.header_len();
        refusal.body.truncate(room.min(1024));
        self.respond(answer.peer, &response, refusal.body);
        self.check_patience(answer.peer);
    }

    /// Disconnects a peer that keeps sending requests without reading the answers.
    fn check_patience(self: &Rc<Self>, peer: Peer) {
        let limit = 2 * usize::from(self.config.calls_per_peer) + 64;
        let deferred = self.peers.borrow_mut().get(peer).map_or(0, |record| record.deferred_len());
        if deferred > limit {
            tracing::warn!(?peer, "a peer that reads no answers is disconnected");
            self.peer_lost(peer, &LostReason::Protocol("it reads no answers".to_owned()));
        }
    }

    #[inline]
    pub(crate) fn response(&self, call: CallId, status: Status, checked: bool) -> Response {
        Response { call, status, overflow: false, checked, window: self.config.calls_per_peer }
    }

    /// Sends a response.
    fn respond(&self, peer: Peer, response: &Response, mut body: Vec<u8>) {
        if response.checked {
            let mut frame = Vec::with_capacity(response.header_len() + body.len());
            response.encode(&mut frame);
            frame.append(&mut body);
            rpc::seal(&mut frame, response.header_len());
            return self.send_frame(peer, &frame);
        }
        self.send_parts(peer, &[&response.header(), &body]);
        self.frames.recycle(body);
    }

    pub(crate) fn cancel_served(self: &Rc<Self>, peer: Peer, call: CallId) {
        let named = self.served.named(peer, call);
        if let Some(ticket) = named {
            self.stats.cancelled_by_caller.count();
            self.stop(ticket, Status::Cancelled);
        }
    }

    pub(crate) fn served_is_late(self: &Rc<Self>, slot: u32, serial: u64) {
        self.stats.served_too_late.count();
        self.stop(Ticket { slot, serial }, Status::Deadline);
    }

    /// Stops a handler, and answers with `status`.
    fn stop(self: &Rc<Self>, ticket: Ticket, status: Status) {
        if let Some(running) = self.ended(ticket) {
            running.stop();
            self.refuse(running.answer, Refusal::plain(status));
        }
    }

    /// Stops the handlers of a peer that is lost.
    pub(crate) fn end_served(&self, peer: Peer) {
        let ended = self.served.end_all(peer);
        ended.iter().for_each(Running::stop);
    }
}

/// The span of a call that belongs to the caller's trace.
fn span(trace: Trace, method: &'static str) -> Span {
    let (id, parent) = (trace.trace, trace.span);
    tracing::debug_span!(
        target: "petasos::serve", "serve", method,
        trace = format_args!("{id:032x}"), parent = format_args!("{parent:016x}"),
    )
}

/// A handler's future whose panics become failures.
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

#[cold]
fn panicked(panic: &(dyn std::any::Any + Send)) -> Failure {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
    Failure::Failed(format!("it panicked: {text}"))
}

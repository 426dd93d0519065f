//! Handlers: what serves a method.

use crate::{Context, Failure, Incoming, Method, body::Body, inner::Inner, served::Answer};
use petasos_fabric::Lease;
use petasos_wire::{
    DecodeError, Encoding, Wire, encode_header_into, from_bytes,
    rpc::{self, Frame, Status},
};
use std::{
    fmt,
    pin::Pin,
    rc::Rc,
    task::{Context as PollContext, Poll, Waker},
};

/// The outcome of a handler: the bytes of the result, in the encoding of the call.
pub type Reply = Result<Vec<u8>, Failure>;

/// A handler at work. Dropped when the caller cancels, the caller is lost, or the deadline passes.
pub type HandlerFuture = Pin<Box<dyn Future<Output = Reply>>>;

/// Serves one method.
///
/// Any function from [`Incoming`] to a [`HandlerFuture`] is one; [`serve`](crate::serve) and
/// [`typed`](crate::typed) make one of a function of decoded arguments, at less cost, and
/// [`bytes()`] one of a function of bytes.
///
/// ```
/// use petasos_rpc::{CallOptions, Context, Engine, EngineConfig, Method, serve};
///
/// # let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
/// let engine = Engine::new(endpoint, EngineConfig::default());
/// const GREET: Method = Method::raw("Greeter::greet").of::<String, String>();
/// let greet = serve(|context: Context, name: String| async move {
///     format!("{name}, you call from {}", context.peer())
/// });
/// assert!(engine.register(GREET, 0, greet));
///
/// let target = engine.target(engine.address());
/// let call = target.call::<_, String>(GREET, &CallOptions::default(), &"Ada".to_owned());
/// assert!(engine.block_on(call)?.starts_with("Ada, you call from self://"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Handler {
    /// Begins to serve a call. A handler that need not wait answers before it returns.
    fn call(&self, arrival: Arrival<'_>) -> Begun;
}

impl<F: Fn(Incoming) -> HandlerFuture> Handler for F {
    fn call(&self, mut arrival: Arrival<'_>) -> Begun {
        let (context, body) = (arrival.context(), arrival.take_body());
        let mut work = self(Incoming::new(context, body));
        match work.as_mut().poll(&mut at_once()) {
            Poll::Ready(reply) => arrival.done(reply),
            Poll::Pending => arrival.wait(work),
        }
    }
}

/// Makes a handler of an async function from the bytes of the arguments to those of the result: for
/// methods whose types are not known when the program is built. See [`Method::named`].
pub fn bytes<F, W>(serve: F) -> impl Handler
where
    F: Fn(Incoming) -> W + 'static,
    W: Future<Output = Reply> + 'static,
{
    move |incoming: Incoming| -> HandlerFuture { Box::pin(serve(incoming)) }
}

/// For the first poll of a handler. One that need not wait never becomes a task; one that waits is
/// polled again as a task, with a waker of its own.
#[inline]
pub(crate) fn at_once() -> PollContext<'static> {
    PollContext::from_waker(Waker::noop())
}

/// A call that has arrived, as a [`Handler`] gets it.
pub struct Arrival<'a> {
    pub(crate) inner: &'a Rc<Inner>,
    pub(crate) answer: &'a Answer,
    pub(crate) encoding: Encoding,
    pub(crate) method: &'a Method,
    /// The whole message, and where the arguments begin in it.
    pub(crate) message: &'a mut Lease,
    pub(crate) start: usize,
    /// Made when it is asked for; present from the beginning if the call is served by a task.
    pub(crate) context: Option<Context>,
    pub(crate) in_task: bool,
}

impl Arrival<'_> {
    /// Which peer calls, and how; may be kept for any time.
    #[inline]
    pub fn context(&mut self) -> Context {
        if self.context.is_none() {
            // Few handlers ask: reading the header again is cheaper than keeping all of it at hand.
            let Ok(Frame::Request(request, _)) = rpc::decode(self.message) else {
                unreachable!("it was decoded before");
            };
            let inner = Rc::clone(self.inner);
            self.context = Some(Context::new(inner, self.answer.peer, &request, self.method));
        }
        self.context.clone().expect("it was made just now")
    }

    /// The arguments.
    ///
    /// # Errors
    /// If the bytes are not an `A` in the encoding of the call.
    #[inline]
    pub fn decode<A: Wire>(&self) -> Result<A, DecodeError> {
        from_bytes(self.encoding, &self.message[self.start..])
    }

    fn take_body(&mut self) -> Body {
        Body::kept(std::mem::take(self.message), self.start, &self.inner.kept)
    }

    /// Ends the call with this result, encoded as the caller wants it. It is sent at once where
    /// that is possible; the handler may tidy up afterwards.
    #[inline]
    #[must_use]
    pub fn reply<R: Wire>(&self, result: &R) -> Begun {
        let Arrival { inner, answer, encoding, in_task, .. } = *self;
        let mut frame = inner.frames.buffer_for(result.encoded_len_hint());
        if !in_task {
            inner.response(answer.call, Status::Ok, answer.checked).encode(&mut frame);
        }
        let rest = encode_header_into(encoding, result, &mut frame);
        if !rest.is_empty() {
            if !in_task && inner.answer_in_two(answer, &frame, rest) {
                inner.frames.recycle(frame);
                return Begun(Begin::Answered);
            }
            frame.extend_from_slice(rest);
        }
        if in_task {
            return Begun(Begin::Replied(Ok(frame)));
        }
        if !inner.answer_plainly(answer, &frame) {
            return Begun(Begin::Framed(frame));
        }
        inner.frames.recycle(frame);
        Begun(Begin::Answered)
    }

    /// Ends the call with this reply.
    #[inline]
    #[must_use]
    pub fn done(&self, reply: Reply) -> Begun {
        Begun(Begin::Replied(reply))
    }

    /// Ends the call when this future is ready.
    #[must_use]
    pub fn wait(&mut self, work: HandlerFuture) -> Begun {
        Begun(Begin::Waiting(work, self.context.take()))
    }
}

impl fmt::Debug for Arrival<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call of {} by {}", self.method.name, self.inner.address_of(self.answer.peer))
    }
}

/// How a handler began: see [`Arrival::reply`], [`Arrival::done`], [`Arrival::wait`].
pub struct Begun(pub(crate) Begin);

pub(crate) enum Begin {
    /// Done, and the answer is sent.
    Answered,
    /// Done: a response, complete but for its checksum.
    Framed(Vec<u8>),
    /// Done.
    Replied(Reply),
    /// It goes on as a task, with its context if it has one.
    Waiting(HandlerFuture, Option<Context>),
}

impl fmt::Debug for Begun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Begin::Answered | Begin::Framed(_) | Begin::Replied(_) => "Begun(done)",
            Begin::Waiting(..) => "Begun(waiting)",
        })
    }
}

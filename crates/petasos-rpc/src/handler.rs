//! What serves a method.

use crate::{Context, Failure, Incoming, Method, body::Body, inner::Inner};
use petasos_fabric::{Lease, Peer};
use petasos_wire::{
    DecodeError, Wire, encode_into, from_bytes,
    rpc::{Request, Status},
};
use std::{
    fmt,
    pin::Pin,
    rc::Rc,
    task::{Context as PollContext, Poll, Waker},
};

/// What a handler gives in the end: the bytes of the result.
pub type Reply = Result<Vec<u8>, Failure>;

/// A handler at work. Dropped when the caller cancels, is lost, or the deadline is over.
pub type HandlerFuture = Pin<Box<dyn Future<Output = Reply>>>;

/// Serves one method.
///
/// Any function from [`Incoming`] to a [`HandlerFuture`] does; [`typed`](crate::typed) makes one of
/// a function of decoded arguments, at less cost.
pub trait Handler {
    /// Begins to serve a call. What is done at once is answered at once.
    fn call(&self, arrival: Arrival<'_>) -> Begun;
}

impl<F: Fn(Incoming) -> HandlerFuture> Handler for F {
    fn call(&self, mut arrival: Arrival<'_>) -> Begun {
        let context = arrival.context();
        let body = arrival.take_body();
        let mut work = self(Incoming::new(context, body));
        match work.as_mut().poll(&mut at_once()) {
            Poll::Ready(reply) => arrival.done(reply),
            Poll::Pending => arrival.wait(work),
        }
    }
}

/// The first poll of a handler: one that need not wait never becomes a task. One that waits is
/// polled again as a task, with a waker that means something.
#[inline]
pub(crate) fn at_once() -> PollContext<'static> {
    PollContext::from_waker(Waker::noop())
}

/// A call that is there to be served.
pub struct Arrival<'a> {
    pub(crate) inner: &'a Rc<Inner>,
    pub(crate) peer: Peer,
    pub(crate) request: &'a Request,
    pub(crate) method: &'a Method,
    /// The whole message, and where the arguments begin in it.
    pub(crate) message: &'a mut Lease,
    pub(crate) start: usize,
    /// Made when somebody asks for it.
    pub(crate) context: Option<Context>,
}

impl Arrival<'_> {
    /// Who calls, and how; to be kept as long as anybody likes.
    #[inline]
    pub fn context(&mut self) -> Context {
        let Arrival { inner, peer, request, method, context, .. } = self;
        context
            .get_or_insert_with(|| Context::new(Rc::clone(inner), *peer, request, method))
            .clone()
    }

    /// The arguments.
    #[inline]
    pub fn decode<A: Wire>(&self) -> Result<A, DecodeError> {
        from_bytes(self.request.encoding, &self.message[self.start..])
    }

    fn take_body(&mut self) -> Body {
        Body::new(std::mem::take(self.message), self.start)
    }

    /// The call is done with this result, encoded as the caller wants it.
    #[inline]
    #[must_use]
    pub fn reply<R: Wire>(&self, result: &R) -> Begun {
        let Arrival { inner, request, .. } = self;
        let mut frame = inner.buffer_for(result.encoded_len_hint());
        inner.response(request.call, Status::Ok, request.checked).encode(&mut frame);
        encode_into(request.encoding, result, &mut frame);
        Begun(Begin::Framed(frame))
    }

    /// The call is done.
    #[inline]
    #[must_use]
    pub fn done(&self, reply: Reply) -> Begun {
        Begun(Begin::Replied(reply))
    }

    /// The call is done when this future is.
    #[must_use]
    pub fn wait(&mut self, work: HandlerFuture) -> Begun {
        Begun(Begin::Waiting(work, self.context.take()))
    }
}

impl fmt::Debug for Arrival<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call of {} by {}", self.method.name, self.inner.address_of(self.peer))
    }
}

/// How far a handler came at once: see [`Arrival::reply`], [`Arrival::done`], [`Arrival::wait`].
pub struct Begun(pub(crate) Begin);

pub(crate) enum Begin {
    /// Done: a whole response, but for its checksum.
    Framed(Vec<u8>),
    /// Done.
    Replied(Reply),
    /// It goes on as a task, and with its context, if it has one.
    Waiting(HandlerFuture, Option<Context>),
}

impl fmt::Debug for Begun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Begin::Framed(_) | Begin::Replied(_) => "Begun(done)",
            Begin::Waiting(..) => "Begun(waiting)",
        })
    }
}

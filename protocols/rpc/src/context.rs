//! What a handler knows about the call that it serves.

use crate::{Engine, Failure, Method, Reply, body::Body, inner::Inner};
use futures_channel::oneshot;
use petasos_fabric::{Address, Peer};
use petasos_wire::{
    DecodeError, Encoding, Wire, encode_into, from_bytes,
    rpc::{Request, Trace},
};
use std::{cell::Cell, fmt, ops::Deref, rc::Rc, time::Duration};

/// The call being served: which peer calls, how, and whether it still waits. Cheap to clone.
///
/// ```
/// use petasos_rpc::{Context, service};
///
/// #[service]
/// trait Mirror {
///     /// A parameter of this type is not an argument of the call: the server adds it.
///     async fn peer(&self, context: Context) -> String;
/// }
///
/// struct Service;
///
/// impl Mirror for Service {
///     async fn peer(&self, context: Context) -> String {
///         format!("{} called by {}", context.method().name, context.peer())
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Context(Rc<State>);

struct State {
    inner: Rc<Inner>,
    peer: Peer,
    method: Method,
    provider: u16,
    encoding: Encoding,
    left_us: u32,
    trace: Option<Trace>,
    cancelled: Cell<bool>,
}

impl Context {
    pub(crate) fn new(inner: Rc<Inner>, peer: Peer, request: &Request, method: &Method) -> Context {
        Context(Rc::new(State {
            inner,
            peer,
            method: *method,
            provider: request.provider,
            encoding: request.encoding,
            left_us: request.left_us,
            trace: request.trace,
            cancelled: Cell::new(false),
        }))
    }

    pub(crate) fn caller(&self) -> Peer {
        self.0.peer
    }

    /// The caller no longer waits for the answer.
    pub(crate) fn cancel(&self) {
        self.0.cancelled.set(true);
    }

    /// Where the call came from.
    #[must_use]
    pub fn peer(&self) -> Address {
        self.0.inner.address_of(self.0.peer)
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> Method {
        self.0.method
    }

    /// The provider that was called.
    #[must_use]
    pub fn provider(&self) -> u16 {
        self.0.provider
    }

    /// How the arguments are encoded, and the result is to be.
    #[must_use]
    pub fn encoding(&self) -> Encoding {
        self.0.encoding
    }

    /// The time limit that the caller gave, counted from the arrival; `None` without a limit.
    #[must_use]
    pub fn time_limit(&self) -> Option<Duration> {
        (self.0.left_us > 0).then(|| Duration::from_micros(self.0.left_us.into()))
    }

    /// Whether the caller no longer waits for the answer: it cancelled the call, its deadline has
    /// passed, or the caller is lost. The handler's future is dropped soon; code that does not wait
    /// can check here.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.get()
    }

    /// The trace that the call belongs to: pass it on to calls made on its behalf.
    #[must_use]
    pub fn trace(&self) -> Option<Trace> {
        self.0.trace
    }

    /// The engine that serves the call: to open bulk memory, and to call others.
    #[must_use]
    pub fn engine(&self) -> Engine {
        Engine::of_call(Rc::clone(&self.0.inner), self.0.peer)
    }

    /// A result, encoded as the caller wants it.
    ///
    /// # Errors
    /// None; a `Result` because handlers return one.
    pub fn reply<R: Wire>(&self, result: &R) -> Reply {
        let mut buffer = self.0.inner.frames.buffer();
        encode_into(self.0.encoding, result, &mut buffer);
        Ok(buffer)
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call of {} by {}", self.0.method.name, self.peer())
    }
}

/// A call that arrived: its context, and the bytes of the arguments, to which it dereferences. See
/// [`Responder`] for an example. It may be kept for any time: other messages come nevertheless.
#[derive(Debug)]
pub struct Incoming {
    context: Context,
    body: Body,
}

impl Incoming {
    pub(crate) fn new(context: Context, body: Body) -> Incoming {
        Incoming { context, body }
    }

    /// Which peer calls, and how.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The context, and the decoded arguments.
    ///
    /// # Errors
    /// If the bytes are not an `A` in the encoding of the call.
    pub fn decode<A: Wire>(self) -> Result<(Context, A), DecodeError> {
        let arguments = from_bytes(self.context.encoding(), &self.body)?;
        Ok((self.context, arguments))
    }

    /// A future for a call that is answered later, perhaps from another thread: `serve` gets the
    /// call and a [`Responder`], and returns at once. Dropping the future makes the answer of the
    /// responder void.
    #[must_use]
    pub fn later(self, serve: impl FnOnce(Incoming, Responder)) -> crate::HandlerFuture {
        let (sender, receiver) = oneshot::channel();
        serve(self, Responder { sender });
        Box::pin(async {
            let dropped = || Err(Failure::Failed("the handler dropped the call".to_owned()));
            receiver.await.unwrap_or_else(|_| dropped())
        })
    }
}

impl Deref for Incoming {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.body
    }
}

/// Answers one call, from any thread, at any time. If it is dropped without an answer, the caller
/// gets [`CallError::Failed`](crate::CallError::Failed).
///
/// ```
/// use petasos_rpc::{CallOptions, Engine, EngineConfig, Incoming, Method};
///
/// # let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
/// # let engine = Engine::new(endpoint, EngineConfig::default());
/// let hash = Method::named("Slow::sum");
/// engine.register(hash, 0, |call: Incoming| {
///     call.later(|call, responder| {
///         let bytes = call.to_vec();
///         // The engine serves other calls while this thread works.
///         std::thread::spawn(move || {
///             let sum = bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
///             responder.respond(Ok(vec![sum]));
///         });
///     })
/// });
/// let target = engine.target(engine.address());
/// let call = target.call_bytes(hash, &CallOptions::default(), &[1, 2, 3]);
/// assert_eq!(engine.block_on(call)?, [6]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Responder {
    sender: oneshot::Sender<Reply>,
}

impl Responder {
    /// Answers. The answer to a call that was cancelled is dropped.
    pub fn respond(self, reply: Reply) {
        let _ = self.sender.send(reply);
    }

    /// Whether the caller no longer waits for the answer.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.sender.is_canceled()
    }
}

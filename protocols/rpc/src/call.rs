//! A call under way, as its caller holds it.

use crate::{
    CallError, Method, Target,
    body::Body,
    calls::{About, Outcome},
    inner::Inner,
};
use petasos_fabric::Address;
use petasos_wire::{
    DecodeError,
    rpc::{CallId, Status},
};
use std::{
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

/// A call under way: resolves to the bytes of the result. See [`Target::call_bytes`].
///
/// Dropping it cancels the call: the target is told, and drops the handler's future. The caller
/// does not learn whether the handler had done its work already.
///
/// ```
/// use petasos_rpc::{CallOptions, Engine, EngineConfig, Method, bytes};
/// use std::time::Duration;
///
/// # let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
/// let engine = Engine::new(endpoint, EngineConfig::default());
/// let slow = Method::named("Slow::wait");
/// engine.register(slow, 0, bytes(|call| async move {
///     call.context().engine().sleep(Duration::from_secs(60)).await;
///     Ok(Vec::new())
/// }));
/// let target = engine.target(engine.address());
/// let call = target.call_bytes(slow, &CallOptions::default(), b"");
/// // Some passes, in which the handler begins to wait.
/// while engine.progress() {}
/// assert_eq!(engine.usage().serving, 1);
/// // The target drops the handler's future.
/// call.cancel();
/// while engine.progress() {}
/// assert_eq!((engine.usage().serving, engine.stats().calls_cancelled), (0, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a call that is dropped is cancelled"]
pub struct Call {
    target: Target,
    state: State,
}

#[derive(Debug)]
enum State {
    /// It has a slot.
    Started(CallId),
    /// It could not be sent.
    Failed(Box<CallError>),
    Over,
}

impl Call {
    #[inline]
    pub(crate) fn new(target: Target, started: Result<CallId, CallError>) -> Call {
        let state = match started {
            Ok(id) => State::Started(id),
            Err(error) => State::Failed(Box::new(error)),
        };
        Call { target, state }
    }

    /// Polls for the result, which `decode` makes of its bytes. The long parts are functions of
    /// their own, so that this one is inlined into the function that polls.
    #[inline(always)]
    pub(crate) fn poll_result<R>(
        &mut self,
        context: &mut Context<'_>,
        decode: impl FnOnce(&[u8]) -> Result<R, DecodeError>,
    ) -> Poll<Result<R, CallError>> {
        let State::Started(id) = self.state else { return Poll::Ready(Err(self.start_error())) };
        let inner = self.target.inner();
        let decoded = if inner.received.begin_reading(id) {
            inner.received.read(decode)
        } else {
            match self.wait(id, context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(body)) => decode(&body),
                Poll::Ready(None) => return Poll::Ready(Err(self.failure(id))),
            }
        };
        match decoded {
            Ok(result) => {
                self.state = State::Over;
                self.target.inner().calls.borrow_mut().close_answered(id);
                Poll::Ready(Ok(result))
            }
            Err(reason) => Poll::Ready(Err(self.bad_result(id, reason))),
        }
    }

    /// Notes the waker if there is no outcome yet; otherwise returns the result, if it is one. A
    /// function of its own, as it is the same for all types of results.
    #[inline(never)]
    fn wait(&self, id: CallId, context: &Context<'_>) -> Poll<Option<Body>> {
        let inner = self.target.inner();
        let mut calls = inner.calls.borrow_mut();
        if calls.wait(id, context.waker(), &inner.main_waker) {
            return Poll::Pending;
        }
        Poll::Ready(calls.take_result(id))
    }

    #[cold]
    #[inline(never)]
    fn start_error(&mut self) -> CallError {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Failed(error) => *error,
            _ => panic!("a call is polled after it ended"),
        }
    }

    /// The error for an outcome that is no result. The call is over then.
    #[cold]
    #[inline(never)]
    fn failure(&mut self, id: CallId) -> CallError {
        self.state = State::Over;
        let (outcome, body, about) = self.target.inner().calls.borrow_mut().take_outcome(id);
        about.error(self.target.address(), outcome, &body)
    }

    /// The error for a result that cannot be decoded. The call is over then.
    #[cold]
    #[inline(never)]
    fn bad_result(&mut self, id: CallId, reason: DecodeError) -> CallError {
        self.state = State::Over;
        let mut calls = self.target.inner().calls.borrow_mut();
        let About { method, .. } = calls.about(id);
        calls.close_answered(id);
        let peer = self.target.address().clone();
        CallError::BadResult { peer, method: method.name, reason }
    }

    pub(crate) fn inner(&self) -> &Rc<Inner> {
        self.target.inner()
    }

    /// Its id, if it has a slot.
    pub(crate) fn id(&self) -> Option<CallId> {
        match self.state {
            State::Started(id) => Some(id),
            State::Failed(_) | State::Over => None,
        }
    }

    /// Cancels the call, here and at the target. The same as dropping it.
    pub fn cancel(self) {}
}

impl Future for Call {
    type Output = Result<Vec<u8>, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_result(context, |body| Ok(body.to_vec()))
    }
}

impl Drop for Call {
    #[inline]
    fn drop(&mut self) {
        // Most calls have ended: these are dropped without calling a function.
        if let State::Started(id) = self.state {
            self.target.inner().abandon(id);
        }
    }
}

impl About {
    /// The error for this outcome of a call to `peer`.
    fn error(self, peer: &Address, outcome: Outcome, body: &[u8]) -> CallError {
        let About { method: Method { name: method, .. }, timeout, .. } = self;
        let refusal = |status| self.refusal(peer, status, body);
        let peer = || peer.clone();
        match outcome {
            Outcome::Answer(status) => refusal(status),
            Outcome::TooLate => CallError::Deadline { peer: peer(), method, timeout },
            Outcome::PeerLost(reason) => CallError::PeerLost { peer: peer(), method, reason },
            Outcome::TooLarge(reason) => CallError::TooLarge { peer: peer(), method, reason },
            Outcome::Unfetched(reason) => CallError::Transfer { peer: peer(), method, reason },
            Outcome::EngineEnded => CallError::EngineEnded,
        }
    }

    /// The error for a status that the target sent.
    fn refusal(self, peer: &Address, status: Status, body: &[u8]) -> CallError {
        /// The longest text of a peer that is passed on, in bytes.
        const LONGEST: usize = 1024;
        let text = || String::from_utf8_lossy(&body[..body.len().min(LONGEST)]).into_owned();
        let About { method: Method { name: method, signature, .. }, provider, timeout } = self;
        let peer = peer.clone();
        match status {
            Status::NoMethod => CallError::NoSuchMethod { peer, method },
            Status::NoProvider => CallError::NoSuchProvider { peer, method, provider },
            Status::Signature => {
                let theirs = body.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
                CallError::SignatureMismatch { peer, method, ours: signature, theirs }
            }
            Status::Busy => {
                let millis = body.first_chunk().map_or(1, |bytes| u32::from_le_bytes(*bytes));
                CallError::Busy { peer, method, retry_after: Duration::from_millis(millis.into()) }
            }
            Status::BadArguments => CallError::BadArguments { peer, method, reason: text() },
            Status::Deadline => CallError::Deadline { peer, method, timeout },
            Status::TooLarge => CallError::TooLarge { peer, method, reason: text() },
            Status::Cancelled => CallError::Cancelled { peer, method },
            Status::Failed | Status::Ok => CallError::Failed { peer, method, reason: text() },
        }
    }
}

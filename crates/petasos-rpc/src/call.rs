//! A call under way, as its caller holds it.

use crate::{CallError, Method, Target, calls::Outcome};
use petasos_wire::{
    DecodeError,
    rpc::{CallId, NOBODY, RESPONSE_LEN, Status},
};
use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

/// A call under way: resolves to the bytes of the result.
///
/// Dropping it cancels the call: the target is told, and drops the handler's future. Whether the
/// handler had already done its work cannot be known then.
#[derive(Debug)]
#[must_use = "a call that is dropped is cancelled"]
pub struct Call {
    ticket: Ticket,
    state: State,
}

/// What was called, whom, and how: for errors about it.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) target: Target,
    pub(crate) method: Method,
    pub(crate) provider: u16,
    pub(crate) timeout: Duration,
}

#[derive(Debug)]
enum State {
    /// It has a slot.
    Started(CallId),
    /// It never began.
    Failed(Box<CallError>),
    Over,
}

impl Call {
    #[inline]
    pub(crate) fn new(ticket: Ticket, started: Result<CallId, CallError>) -> Call {
        let state = match started {
            Ok(id) => State::Started(id),
            Err(error) => State::Failed(Box::new(error)),
        };
        Call { ticket, state }
    }

    /// Polls for the result, which `decode` makes of its bytes.
    #[inline]
    pub(crate) fn poll_result<R>(
        &mut self,
        context: &mut Context<'_>,
        decode: impl FnOnce(&[u8], &Ticket) -> Result<R, CallError>,
    ) -> Poll<Result<R, CallError>> {
        let State::Started(id) = self.state else { return Poll::Ready(Err(self.never_began())) };
        let inner = self.ticket.target.inner();
        if inner.unread.get() == id {
            self.state = State::Over;
            inner.unread.set(NOBODY);
            inner.calls.borrow_mut().close_answered(id);
            let message = inner.message.borrow();
            return Poll::Ready(decode(&message[RESPONSE_LEN..], &self.ticket));
        }
        let mut calls = inner.calls.borrow_mut();
        if calls.wait(id, context.waker(), &inner.main_waker) {
            return Poll::Pending;
        }
        let (outcome, body) = calls.take_outcome(id);
        drop(calls);
        self.state = State::Over;
        Poll::Ready(match outcome {
            Outcome::Answer(Status::Ok) => decode(&body, &self.ticket),
            outcome => Err(self.ticket.error(outcome, &body)),
        })
    }

    #[cold]
    fn never_began(&mut self) -> CallError {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Failed(error) => *error,
            _ => panic!("a call is polled after it ended"),
        }
    }

    /// Cancels the call, here and at the target. The same as dropping it.
    pub fn cancel(self) {}
}

impl Future for Call {
    type Output = Result<Vec<u8>, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_result(context, |body, _| Ok(body.to_vec()))
    }
}

impl Drop for Call {
    #[inline]
    fn drop(&mut self) {
        if let State::Started(id) = self.state {
            self.ticket.target.inner().abandon(id);
        }
    }
}

impl Ticket {
    /// The error that an undecodable result is.
    #[cold]
    pub(crate) fn bad_result(&self, reason: DecodeError) -> CallError {
        let (peer, method) = (self.target.address().clone(), self.method.name);
        CallError::BadResult { peer, method, reason }
    }

    /// The error that this outcome is.
    #[cold]
    fn error(&self, outcome: Outcome, body: &[u8]) -> CallError {
        let Ticket { method: Method { name: method, .. }, timeout, .. } = *self;
        let peer = self.target.address().clone();
        match outcome {
            Outcome::Answer(status) => self.refusal(status, body),
            Outcome::TooLate => CallError::Deadline { peer, method, timeout },
            Outcome::PeerLost(reason) => CallError::PeerLost { peer, method, reason },
            Outcome::TooLarge(reason) => CallError::TooLarge { peer, method, reason },
            Outcome::Unfetched(reason) => CallError::Transfer { peer, method, reason },
            Outcome::EngineGone => CallError::EngineGone,
        }
    }

    /// The error behind a status of the target's.
    fn refusal(&self, status: Status, body: &[u8]) -> CallError {
        /// The longest text of a peer's that is passed on.
        const LONGEST: usize = 1024;
        let text = || String::from_utf8_lossy(&body[..body.len().min(LONGEST)]).into_owned();
        let Ticket { method: Method { name: method, signature, .. }, provider, timeout, .. } =
            *self;
        let peer = self.target.address().clone();
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

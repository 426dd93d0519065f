//! Calls with types: what `#[service]` makes stands on this.

use crate::{Call, CallError, CallOptions, Context, HandlerFuture, Incoming, Method, Target};
use petasos_wire::{Encoding, Wire, encode_into, from_bytes};
use std::{
    marker::PhantomData,
    pin::Pin,
    task::{Context as PollContext, Poll},
};

impl Target {
    /// Calls a method. The future need not be polled for the call to be under way; dropping it
    /// cancels the call, here and at the target.
    pub fn call<A: Wire, R: Wire>(
        &self,
        method: Method,
        options: &CallOptions,
        arguments: &A,
    ) -> TypedCall<R> {
        let call = self.call_raw(method, options, |encoding, out| {
            encode_into(encoding, arguments, out);
        });
        TypedCall { call, encoding: options.encoding, result: PhantomData }
    }

    /// Tells a method something; see [`Target::notify_raw`].
    pub fn notify<A: Wire>(
        &self,
        method: Method,
        options: &CallOptions,
        arguments: &A,
    ) -> Result<(), CallError> {
        self.notify_raw(method, options, |encoding, out| encode_into(encoding, arguments, out))
    }
}

/// A call under way whose result is an `R`. Dropping it cancels the call.
#[derive(Debug)]
#[must_use = "a call that is dropped is cancelled"]
pub struct TypedCall<R> {
    call: Call,
    encoding: Encoding,
    result: PhantomData<fn() -> R>,
}

impl<R: Wire> Future for TypedCall<R> {
    type Output = Result<R, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut PollContext<'_>) -> Poll<Self::Output> {
        let encoding = self.encoding;
        self.call.poll_body(context).map(|body| {
            from_bytes(encoding, &body?).map_err(|reason| {
                let (peer, method) = self.call.describe();
                CallError::BadResult { peer, method, reason }
            })
        })
    }
}

/// Makes a handler of an async function from decoded arguments to a result.
pub fn serve<A, R, F, W>(serve: F) -> impl Fn(Incoming) -> HandlerFuture
where
    A: Wire + 'static,
    R: Wire + 'static,
    F: Fn(Context, A) -> W,
    W: Future<Output = R> + 'static,
{
    move |incoming| match incoming.decode::<A>() {
        Ok((context, arguments)) => {
            let work = serve(context.clone(), arguments);
            Box::pin(async move { context.reply(&work.await) })
        }
        Err(error) => Box::pin(std::future::ready(Err(error.into()))),
    }
}

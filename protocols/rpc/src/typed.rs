//! Typed calls and handlers: the code that `#[service]` generates uses these.

use crate::{
    Arrival, Begun, Call, CallError, CallOptions, Context, Failure, Handler, Method, Reply, Target,
    handler::at_once, inner::Inner,
};
use petasos_wire::{Encoding, Wire, encode_header_into, encode_into, from_bytes};
use pin_project_lite::pin_project;
use std::{
    cell::Cell,
    marker::PhantomData,
    pin::Pin,
    rc::Rc,
    task::{Context as PollContext, Poll, ready},
};

impl Target {
    /// Calls a method. The future need not be polled for the call to be under way; dropping it
    /// cancels the call, here and at the target.
    #[inline]
    pub fn call<A: Wire, R: Wire>(
        &self,
        method: Method,
        options: &CallOptions,
        arguments: &A,
    ) -> TypedCall<R> {
        let len = arguments.encoded_len_hint();
        let call = self.call_with(method, options, len, |encoding, out| {
            encode_header_into(encoding, arguments, out)
        });
        TypedCall { call, encoding: options.encoding, result: PhantomData }
    }

    /// Makes a one-way call; see [`Target::notify_raw`].
    ///
    /// # Errors
    /// As [`Target::notify_raw`].
    pub fn notify<A: Wire>(
        &self,
        method: Method,
        options: &CallOptions,
        arguments: &A,
    ) -> Result<(), CallError> {
        self.notify_raw(method, options, |encoding, out| encode_into(encoding, arguments, out))
    }
}

/// A call under way whose result is an `R`: see [`Target::call`]. Dropping it cancels the call.
#[derive(Debug)]
#[must_use = "a call that is dropped is cancelled"]
pub struct TypedCall<R> {
    call: Call,
    encoding: Encoding,
    result: PhantomData<fn() -> R>,
}

impl<R> TypedCall<R> {
    /// The call, whatever its result is.
    pub(crate) fn call(&self) -> &Call {
        &self.call
    }
}

impl<R: Wire> Future for TypedCall<R> {
    type Output = Result<R, CallError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut PollContext<'_>) -> Poll<Self::Output> {
        let encoding = self.encoding;
        self.call.poll_result(context, |body| from_bytes(encoding, body))
    }
}

/// Makes a handler of an async function from decoded arguments to a result: see [`Handler`] for an
/// example. The arguments are a tuple if there are several.
pub fn serve<A, R, F, W>(serve: F) -> impl Handler
where
    A: Wire + 'static,
    R: Wire + 'static,
    F: Fn(Context, A) -> W + 'static,
    W: Future<Output = R> + 'static,
{
    typed(move |arrival: &mut Arrival<'_>, arguments| {
        let work = serve(arrival.context(), arguments);
        async { Ok(work.await) }
    })
}

/// Makes a handler of a function from decoded arguments to a future of the result. Where the
/// [`Context`] is not asked for, and the future need not wait, serving a call allocates nothing.
pub fn typed<A, R, F, W>(serve: F) -> impl Handler
where
    A: Wire + 'static,
    R: Wire + 'static,
    F: Fn(&mut Arrival<'_>, A) -> W + 'static,
    W: Future<Output = Result<R, Failure>> + 'static,
{
    Typed { serve, spare: Cell::new(None), arguments: PhantomData }
}

struct Typed<A, F, W> {
    serve: F,
    /// Room for the future of a call: that of the last call that did not have to wait.
    spare: Cell<Option<Pin<Box<Work<W>>>>>,
    arguments: PhantomData<fn(A)>,
}

pin_project! {
    /// A handler's future, and how its result is to be encoded should it have to wait.
    struct Work<W> {
        #[pin]
        future: Option<W>,
        encoding: Encoding,
        engine: Option<Rc<Inner>>,
    }
}

impl<A, R, F, W> Handler for Typed<A, F, W>
where
    A: Wire,
    R: Wire + 'static,
    F: Fn(&mut Arrival<'_>, A) -> W,
    W: Future<Output = Result<R, Failure>> + 'static,
{
    #[inline]
    fn call(&self, mut arrival: Arrival<'_>) -> Begun {
        let arguments = match arrival.decode::<A>() {
            Ok(arguments) => arguments,
            Err(error) => return arrival.done(Err(error.into())),
        };
        let mut work = self.spare.take().unwrap_or_else(Work::empty);
        // Nothing happens between its construction and its move into place, so that the compiler
        // constructs it there.
        let future = (self.serve)(&mut arrival, arguments);
        match work.as_mut().begin(future) {
            Poll::Ready(result) => {
                // The answer is sent first.
                let begun = match result {
                    Ok(result) => arrival.reply(&result),
                    Err(failure) => arrival.done(Err(failure)),
                };
                work.as_mut().project().future.set(None);
                self.spare.set(Some(work));
                begun
            }
            Poll::Pending => {
                let this = work.as_mut().project();
                *this.encoding = arrival.encoding;
                *this.engine = Some(Rc::clone(arrival.inner));
                arrival.wait(work)
            }
        }
    }
}

impl<W: Future> Work<W> {
    #[cold]
    fn empty() -> Pin<Box<Work<W>>> {
        Box::pin(Work { future: None, encoding: Encoding::Native, engine: None })
    }

    /// Puts the future in place, and polls it for the first time.
    #[inline]
    fn begin(self: Pin<&mut Self>, future: W) -> Poll<W::Output> {
        let mut this = self.project();
        this.future.set(Some(future));
        let future = this.future.as_pin_mut().expect("it was set just now");
        future.poll(&mut at_once())
    }
}

impl<W: Future<Output = Result<R, Failure>>, R: Wire> Future for Work<W> {
    type Output = Reply;

    fn poll(self: Pin<&mut Self>, context: &mut PollContext<'_>) -> Poll<Reply> {
        let this = self.project();
        let future = this.future.as_pin_mut().expect("it waits, so it is there");
        let result = ready!(future.poll(context))?;
        let mut body =
            this.engine.as_ref().map(|engine| engine.frames.buffer()).unwrap_or_default();
        encode_into(*this.encoding, &result, &mut body);
        Poll::Ready(Ok(body))
    }
}

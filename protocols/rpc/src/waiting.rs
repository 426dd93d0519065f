//! Looking at a call under way, and waiting for it for a time, without an end of it.

use crate::{Call, Engine, TypedCall, inner::Inner};
use std::{
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

/// Whether `poll_ready` is ready within `time`, counted from the first poll of this.
pub(crate) async fn ready_within(
    inner: &Rc<Inner>,
    time: Duration,
    mut poll_ready: impl FnMut(&mut Context<'_>) -> Poll<()>,
) -> bool {
    let mut sleep = Engine::borrowed(Rc::clone(inner)).sleep(time);
    poll_fn(|context| {
        if poll_ready(context).is_ready() {
            return Poll::Ready(true);
        }
        Pin::new(&mut sleep).poll(context).map(|()| false)
    })
    .await
}

impl Call {
    /// Whether the outcome is known: then the future is ready. It changes only while the engine is
    /// driven. Over as well if the outcome was taken.
    ///
    /// ```
    /// use petasos_rpc::{CallOptions, Engine, EngineConfig, Method, bytes};
    /// use std::time::Duration;
    ///
    /// # let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
    /// let engine = Engine::new(endpoint, EngineConfig::default());
    /// let nap = Method::named("Nap::take");
    /// engine.register(nap, 0, bytes(|call| async move {
    ///     call.context().engine().sleep(Duration::from_millis(50)).await;
    ///     Ok(vec![7])
    /// }));
    /// let target = engine.target(engine.address());
    /// let mut call = target.call_bytes(nap, &CallOptions::default(), b"");
    ///
    /// // The answer is not there yet, and the call goes on.
    /// assert!(!call.is_ready());
    /// assert!(!call.wait_for(Duration::from_millis(1)));
    /// // Something else is done, and then it is there.
    /// assert!(engine.block_on(call.ready_within(Duration::from_secs(10))));
    /// assert!(call.is_ready());
    /// assert_eq!(engine.block_on(call)?, [7]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.id().is_none_or(|id| self.inner().calls.borrow().is_ended(id))
    }

    /// Waits until the outcome is known, for up to `time` from the first poll: resolves to whether
    /// it is. The call goes on in either case.
    ///
    /// Dropping this future does not cancel the call; dropping the call does.
    pub fn ready_within(&mut self, time: Duration) -> impl Future<Output = bool> {
        let call = &*self;
        ready_within(call.inner(), time, |context| call.poll_ready(context))
    }

    /// The same for a thread that blocks, and drives the engine meanwhile.
    ///
    /// # Panics
    /// If it is called within a handler or a task of the same engine.
    pub fn wait_for(&mut self, time: Duration) -> bool {
        Engine::borrowed(Rc::clone(self.inner())).block_on(self.ready_within(time))
    }

    /// Ready when the outcome is known, which stays where it is.
    pub(crate) fn poll_ready(&self, context: &Context<'_>) -> Poll<()> {
        let Some(id) = self.id() else { return Poll::Ready(()) };
        let inner = self.inner();
        match inner.calls.borrow_mut().wait(id, context.waker(), &inner.main_waker) {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    }
}

impl<R> TypedCall<R> {
    /// As [`Call::is_ready`].
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.call().is_ready()
    }

    /// As [`Call::ready_within`]: dropping this future does not cancel the call.
    pub fn ready_within(&mut self, time: Duration) -> impl Future<Output = bool> {
        let call = self.call();
        ready_within(call.inner(), time, |context| call.poll_ready(context))
    }

    /// As [`Call::wait_for`].
    ///
    /// # Panics
    /// If it is called within a handler or a task of the same engine.
    pub fn wait_for(&mut self, time: Duration) -> bool {
        Engine::borrowed(Rc::clone(self.call().inner())).block_on(self.ready_within(time))
    }
}

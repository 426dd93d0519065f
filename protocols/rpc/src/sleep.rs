//! Sleep and time limits for futures that the engine drives: handlers, tasks, the future of
//! `block_on`.

use crate::{Engine, inner::Inner};
use petasos_fabric::Time;
use pin_project_lite::pin_project;
use std::{
    fmt,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

impl Engine {
    /// A future that is ready after `duration`, counted from now on, and never earlier. For
    /// handlers ([`Context::engine`](crate::Context::engine)), tasks, and what [`Engine::block_on`]
    /// drives; no other runtime is needed.
    ///
    /// The engine reads the clock at least every 64 passes, and sleeps no longer than until then.
    /// So the future is late by as long as the engine's other work takes in between. Dropping it
    /// ends the sleep.
    ///
    /// ```
    /// # use petasos_rpc::{Context, service};
    /// # use std::time::Duration;
    /// #[service]
    /// trait Nap {
    ///     async fn nap(&self, context: Context, millis: u64) -> u64;
    /// }
    ///
    /// struct Couch;
    ///
    /// impl Nap for Couch {
    ///     async fn nap(&self, context: Context, millis: u64) -> u64 {
    ///         // Other calls are served meanwhile.
    ///         context.engine().sleep(Duration::from_millis(millis)).await;
    ///         millis
    ///     }
    /// }
    /// ```
    pub fn sleep(&self, duration: Duration) -> Sleep {
        let until = self.inner().clock.read().after(duration);
        self.sleep_until(until)
    }

    /// The same, until this time of [`Engine::now`]. At once if that has passed.
    pub fn sleep_until(&self, until: Time) -> Sleep {
        let inner = Rc::clone(self.inner());
        let entry = inner.timers.borrow_mut().sleepers.add(until);
        Sleep { inner, entry }
    }

    /// The time of this engine's clock, which it reads.
    #[must_use]
    pub fn now(&self) -> Time {
        self.inner().clock.read()
    }

    /// Limits `future` to `time` from now on: resolves to its output, or to [`Elapsed`] if it is
    /// not ready by then. Dropping this drops the future, and so cancels a call.
    ///
    /// A single call has a time limit already: see [`CallOptions`](crate::CallOptions).
    ///
    /// ```
    /// # use petasos_rpc::{Elapsed, Engine, EngineConfig};
    /// # use std::time::Duration;
    /// # let address = "self://*".parse()?;
    /// # let endpoint = Box::new(petasos_self::Local::open(&address)?);
    /// let engine = Engine::new(endpoint, EngineConfig::default());
    /// let never = std::future::pending::<()>();
    /// let over = engine.block_on(engine.limit(Duration::from_millis(5), never));
    /// assert_eq!(over, Err(Elapsed(Duration::from_millis(5))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn limit<F: Future>(&self, time: Duration, future: F) -> Limited<F> {
        Limited { future, sleep: self.sleep(time), time }
    }
}

/// Ready when its time has come: see [`Engine::sleep`]. Dropping it ends the sleep.
#[must_use = "a sleep does nothing unless it is awaited"]
pub struct Sleep {
    inner: Rc<Inner>,
    entry: (Time, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut timers = self.inner.timers.borrow_mut();
        match timers.sleepers.wait(self.entry, context.waker()) {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let waker = self.inner.timers.borrow_mut().sleepers.remove(self.entry);
        // The waker's code may run, now that nothing is borrowed.
        drop(waker);
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sleep(until {:?})", self.entry.0)
    }
}

/// A future was not ready within its time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not ready within {0:?}")]
pub struct Elapsed(pub Duration);

pin_project! {
    /// A future with a time limit: see [`Engine::limit`]. Dropping it drops the future.
    #[derive(Debug)]
    #[must_use = "a future does nothing unless it is awaited"]
    pub struct Limited<F> {
        #[pin]
        future: F,
        sleep: Sleep,
        time: Duration,
    }
}

impl<F: Future> Future for Limited<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(context) {
            return Poll::Ready(Ok(output));
        }
        Pin::new(this.sleep).poll(context).map(|()| Err(Elapsed(*this.time)))
    }
}

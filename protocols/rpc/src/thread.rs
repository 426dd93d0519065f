//! Engines with a thread of their own, and handles for other threads.

use crate::{Engine, EngineConfig, commands::Commands, inner::Inner};
use futures_channel::oneshot;
use petasos_fabric::{Address, Endpoint};
use std::{
    fmt,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    thread::JoinHandle,
    time::{Duration, Instant},
};

/// Pieces of work that may wait for an engine's thread.
const MOST: usize = 65_536;

/// A handle to an engine of another thread: [`Engine::handle`] and [`EngineThread::handle`] give
/// it. Cheap to clone. It does not keep the engine from ending: after that, work ends with
/// [`ThreadError::Ended`].
///
/// ```
/// use petasos_rpc::{EngineConfig, EngineThread, ThreadError};
///
/// let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
/// let thread = EngineThread::start(endpoint, EngineConfig::default(), |_| {})?;
/// let workers: Vec<_> = (0..3)
///     .map(|_| thread.handle().clone())
///     .map(|handle| std::thread::spawn(move || handle.run(|e| async move { e.usage() }).wait()))
///     .collect();
/// for worker in workers {
///     assert_eq!(worker.join().unwrap()?.calls, 0);
/// }
/// let handle = thread.handle().clone();
/// drop(thread);
/// assert_eq!(handle.run(|_| async {}).wait(), Err(ThreadError::Ended));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct EngineHandle {
    commands: Arc<Commands>,
    address: Address,
}

/// Why work on an engine's thread has no output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ThreadError {
    /// The engine has ended, before or during the work.
    #[error("the engine has ended")]
    Ended,
    /// 65,536 pieces of work wait for the engine's thread: try again later.
    #[error("{MOST} pieces of work wait for the engine")]
    Full,
}

impl EngineHandle {
    pub(crate) fn new(inner: &Rc<Inner>) -> EngineHandle {
        let commands = Arc::clone(&inner.commands);
        EngineHandle { commands, address: inner.address.clone() }
    }

    /// Where others reach the engine.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Runs `work` on the engine's thread: it gets the engine, and makes a future that the engine
    /// drives. Gives a future of its output, for any executor, or to wait for with
    /// [`Running::wait`]. Dropping that does not end the work. At most 65,536 pieces of work wait
    /// for the thread to begin them; more end at once with [`ThreadError::Full`].
    pub fn run<F, W, T>(&self, work: F) -> Running<T>
    where
        F: FnOnce(Engine) -> W + Send + 'static,
        W: Future<Output = T> + 'static,
        T: Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        // If the engine has ended, the work is dropped, and with it the sender of its output.
        let work = Box::new(move |inner: &Rc<Inner>| {
            let work = work(Engine::borrowed(Rc::clone(inner)));
            inner.spawn(Box::pin(async move {
                let _ = sender.send(work.await);
            }));
        });
        let full = !self.commands.push(work, MOST);
        Running { receiver, full }
    }

    /// Asks the engine to end.
    pub fn shut_down(&self) {
        self.commands.push(Box::new(|inner| inner.shut_down()), usize::MAX);
    }

    fn is_ended(&self) -> bool {
        self.commands.is_closed()
    }
}

impl fmt::Debug for EngineHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EngineHandle({})", self.address)
    }
}

/// Work on an engine's thread: a future of its output, or of an error if the engine ended.
///
/// Dropping it does not end the work; its output is dropped.
#[derive(Debug)]
#[must_use]
pub struct Running<T> {
    receiver: oneshot::Receiver<T>,
    /// The work was not queued.
    full: bool,
}

impl<T> Running<T> {
    /// Blocks this thread until the work is done. Not to be called on an engine's thread.
    ///
    /// # Errors
    /// [`ThreadError::Ended`] if the engine has ended, [`ThreadError::Full`] if the work was not
    /// taken.
    pub fn wait(mut self) -> Result<T, ThreadError> {
        loop {
            if let Some(output) = self.wait_for(Duration::MAX) {
                return output;
            }
        }
    }

    /// Blocks this thread until the work is done, but for no longer than `time`: `None` if it is
    /// not done then. The work goes on, and may be waited for again. Its output is given once. Not
    /// to be called on an engine's thread.
    ///
    /// # Errors
    /// As [`Running::wait`].
    ///
    /// ```
    /// use petasos_rpc::{EngineConfig, EngineThread};
    /// use std::time::Duration;
    ///
    /// let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
    /// let thread = EngineThread::start(endpoint, EngineConfig::default(), |_| {})?;
    /// let mut nap = thread.handle().run(|engine| async move {
    ///     engine.sleep(Duration::from_millis(50)).await;
    ///     7
    /// });
    /// assert_eq!(nap.wait_for(Duration::ZERO), None);
    /// assert_eq!(nap.wait_for(Duration::from_secs(10)), Some(Ok(7)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_for(&mut self, time: Duration) -> Option<Result<T, ThreadError>> {
        struct Unpark(std::thread::Thread);
        impl std::task::Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Arc::new(Unpark(std::thread::current())).into();
        let mut context = Context::from_waker(&waker);
        let end = Instant::now().checked_add(time);
        loop {
            if let Poll::Ready(output) = Pin::new(&mut *self).poll(&mut context) {
                return Some(output);
            }
            match end.map(|end| end.saturating_duration_since(Instant::now())) {
                None => std::thread::park(),
                Some(Duration::ZERO) => return None,
                Some(left) => std::thread::park_timeout(left),
            }
        }
    }
}

impl<T> Future for Running<T> {
    type Output = Result<T, ThreadError>;
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let error = if self.full { ThreadError::Full } else { ThreadError::Ended };
        Pin::new(&mut self.receiver).poll(context).map_err(|_| error)
    }
}

/// An engine with a thread of its own, which polls for a while and then sleeps, as
/// [`EngineConfig::idle`] says. Dropping it ends the engine and waits for the thread.
///
/// ```
/// use petasos_rpc::{CallOptions, EngineConfig, EngineThread, Method, serve};
///
/// # let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
/// const ADD: Method = Method::typed("Sum::add", 0, 0);
/// let server = EngineThread::start(endpoint, EngineConfig::default(), |engine| {
///     engine.register(ADD, 0, serve(|_, (a, b): (u64, u64)| async move { a + b }));
/// })?;
///
/// // A call from any thread: the work is done on the engine's.
/// let sum = server.handle().run(|engine| async move {
///     let target = engine.target(engine.address());
///     target.call::<_, u64>(ADD, &CallOptions::default(), &(40u64, 2u64)).await
/// });
/// assert_eq!(sum.wait()??, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct EngineThread {
    handle: EngineHandle,
    thread: Option<JoinHandle<()>>,
}

impl EngineThread {
    /// Starts the thread; `set_up` runs on it first, to register what is served.
    ///
    /// # Errors
    /// If the system has no thread to give, or `set_up` panics.
    pub fn start(
        endpoint: Box<dyn Endpoint>,
        config: EngineConfig,
        set_up: impl FnOnce(&Engine) + Send + 'static,
    ) -> std::io::Result<EngineThread> {
        let (sender, receiver) = std::sync::mpsc::channel();
        let serve = move || {
            let engine = Engine::new(endpoint, config);
            set_up(&engine);
            let handle = engine.handle();
            let ended = handle.clone();
            if sender.send(handle).is_ok() {
                // This is polled when the engine ends.
                engine.block_on(std::future::poll_fn(|_| {
                    if ended.is_ended() { Poll::Ready(()) } else { Poll::Pending }
                }));
            }
        };
        let thread = std::thread::Builder::new().name("petasos-engine".to_owned()).spawn(serve)?;
        let handle = receiver.recv().map_err(|_| std::io::Error::other("the set-up panicked"))?;
        Ok(EngineThread { handle, thread: Some(thread) })
    }

    /// A handle for any thread.
    #[must_use]
    pub fn handle(&self) -> &EngineHandle {
        &self.handle
    }
}

impl Drop for EngineThread {
    fn drop(&mut self) {
        self.handle.shut_down();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

//! The engine as programs see it.

use crate::{
    Array, Borrowed, Bulk, BulkError, BulkHandle, EngineConfig, EngineHandle, Exported, Handler,
    Loan, Method, Number, Pieces, RemoteBulk, RemoteMemory, ServeError, Stats, Target, Usage,
    clock::EngineClock, inner::Inner,
};
use petasos_fabric::{
    Access, Address, AddressError, AllocError, Capabilities, Endpoint, Key, Peer, Region, Slice,
    Time, driver::Idle,
};
use std::{
    os::fd::OwnedFd,
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

/// Makes and serves calls over one endpoint. Belongs to one thread; cheap to clone.
///
/// Nothing happens unless the engine is driven, in one of three ways:
///
/// * [`Engine::block_on`] drives it until a future is ready;
/// * an event loop of the program's own calls [`Engine::progress`] until there is nothing to do,
///   then [`Engine::arm`]; if that allows sleep, it waits until [`Engine::fd`] is readable, calls
///   [`Engine::awake`], and begins again;
/// * [`EngineThread`](crate::EngineThread) gives it a thread.
///
/// When the last clone is dropped, the engine ends: calls under way fail, handlers are dropped.
/// A handler that holds a clone keeps the engine alive; [`Engine::shut_down`] ends it nevertheless.
///
/// ```
/// use petasos_rpc::{Engine, EngineConfig, service};
///
/// #[service]
/// trait Doubler {
///     async fn double(&self, number: u64) -> u64;
/// }
///
/// struct Twice;
///
/// impl Doubler for Twice {
///     async fn double(&self, number: u64) -> u64 {
///         2 * number
///     }
/// }
///
/// let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
/// let engine = Engine::new(endpoint, EngineConfig::default());
/// Twice.serve(&engine, 0)?;
/// // An engine may call itself; others call it at the same address.
/// let doubler = DoublerClient::new(&engine, engine.address());
/// assert_eq!(engine.block_on(doubler.double(21))?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Engine {
    inner: Rc<Inner>,
    /// For the engine of a handler: the peer that made the call.
    caller: Option<Peer>,
    /// Ends the engine with its last owner. Engines of handlers own nothing.
    _owner: Option<Rc<Owner>>,
}

#[derive(Debug)]
struct Owner(Rc<Inner>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.shut_down();
    }
}

impl Engine {
    /// An engine for this endpoint.
    #[must_use]
    pub fn new(endpoint: Box<dyn Endpoint>, config: EngineConfig) -> Engine {
        Engine::owning(Inner::new(endpoint, config, EngineClock::machine()))
    }

    /// An engine whose time the program sets with [`Engine::set_time`], as on the simulated
    /// network.
    #[must_use]
    pub fn with_given_time(endpoint: Box<dyn Endpoint>, config: EngineConfig, now: Time) -> Engine {
        Engine::owning(Inner::new(endpoint, config, EngineClock::given(now)))
    }

    fn owning(inner: Rc<Inner>) -> Engine {
        let owner = Some(Rc::new(Owner(Rc::clone(&inner))));
        Engine { inner, caller: None, _owner: owner }
    }

    pub(crate) fn borrowed(inner: Rc<Inner>) -> Engine {
        Engine { inner, caller: None, _owner: None }
    }

    /// For the handler of a call of this peer.
    pub(crate) fn of_call(inner: Rc<Inner>, caller: Peer) -> Engine {
        Engine { inner, caller: Some(caller), _owner: None }
    }

    pub(crate) fn inner(&self) -> &Rc<Inner> {
        &self.inner
    }

    /// The address at which peers reach this engine.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.inner.address
    }

    /// What the endpoint can do with every peer.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.inner.transport.capabilities()
    }

    /// The target at an address. The first call makes the connection.
    #[must_use]
    pub fn target(&self, address: &Address) -> Target {
        Target::new(Rc::clone(&self.inner), address.clone())
    }

    /// The same for an address from a configuration or a command line: a `&str`, a `String`, or an
    /// [`Address`].
    ///
    /// # Errors
    /// If it is not an address. Whether there is a peer shows with the first call.
    ///
    /// ```
    /// # use petasos_rpc::{Engine, EngineConfig, service};
    /// # let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
    /// # let engine = Engine::new(endpoint, EngineConfig::default());
    /// # #[service]
    /// # trait Greeter {
    /// #     async fn greet(&self, name: String) -> String;
    /// # }
    /// let greeter = GreeterClient::at(engine.lookup("shm://greeter")?);
    /// assert!(engine.lookup("greeter").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lookup<A>(&self, address: A) -> Result<Target, AddressError>
    where
        A: TryInto<Address>,
        AddressError: From<A::Error>,
    {
        Ok(Target::new(Rc::clone(&self.inner), address.try_into()?))
    }

    /// Serves a method under a provider id. False if it is served under that id already, or if
    /// another method has the same hash. See [`Method`] for an example.
    pub fn register(&self, method: Method, provider: u16, handler: impl Handler + 'static) -> bool {
        self.inner.served.add(provider, method, Box::new(handler))
    }

    /// Checks that these methods can be registered.
    ///
    /// # Errors
    /// [`ServeError`] with the first method that is served under this provider, or whose id belongs
    /// to another method.
    pub fn check_free(&self, methods: &[Method], provider: u16) -> Result<(), ServeError> {
        self.inner.served.check_free(methods, provider)
    }

    /// Stops to serve a method; calls in progress finish.
    pub fn unregister(&self, method: Method, provider: u16) {
        self.inner.served.remove(method, provider);
    }

    /// Runs a future beside others, as long as the engine is driven. It is dropped when the engine
    /// ends.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        self.inner.spawn(Box::pin(future));
    }

    /// Allocates `len` bytes of the transport's memory, zeroed: peers can map it
    /// ([`RemoteMemory::map`]) where the transport can do that.
    ///
    /// # Errors
    /// [`AllocError::BadLength`] for no bytes, or more than an address space holds;
    /// [`AllocError::System`] if there is no such memory.
    pub fn alloc(&self, len: usize) -> Result<Region, AllocError> {
        self.inner.transport.alloc(len)
    }

    /// Describes memory that peers read or write as bulk data of a call. See [`Bulk`] for an
    /// example.
    ///
    /// # Errors
    /// [`BulkError::Register`] if the endpoint has no room for another region, or memory that may
    /// only be read is to be written; [`BulkError::TooManyPieces`] for more pieces than
    /// [`EngineConfig::bulk_pieces`].
    pub fn bulk(&self, memory: impl Into<Slice>, access: Access) -> Result<Bulk, BulkError> {
        Bulk::new(&self.inner, memory.into(), access)
    }

    /// The same for memory in any number of pieces, which are contiguous to peers: as
    /// [`Engine::bulk`] with [`Pieces`].
    ///
    /// # Errors
    /// As [`Engine::bulk`].
    pub fn bulk_of(&self, pieces: &[Slice], access: Access) -> Result<Bulk, BulkError> {
        self.bulk(Pieces::of(pieces.iter().cloned()), access)
    }

    /// Opens bulk memory that a peer described. In the engine of a handler
    /// ([`Context::engine`](crate::Context::engine)), memory of the caller is reached over the
    /// connection by which the call came; all other memory at the address of its owner.
    ///
    /// # Errors
    /// [`BulkError::Import`] if the descriptor is damaged, or names no route that this endpoint
    /// has; [`BulkError::OutOfBounds`] if it says more than its key allows. Whether the memory is
    /// still open is known to the transfers only.
    pub fn open(&self, handle: &BulkHandle) -> Result<RemoteBulk, BulkError> {
        RemoteBulk::open(&self.inner, handle, self.caller)
    }

    /// An array of `len` numbers, all zero, in memory of the transport, which peers read in place.
    /// See [`Array`] for an example.
    ///
    /// # Errors
    /// [`BulkError::TooLarge`] for more than an address space holds; [`BulkError::Register`] if
    /// there is no such memory, or the endpoint has no room for another region.
    pub fn array<T: Number>(&self, len: usize) -> Result<Array<T>, BulkError> {
        Array::new(&self.inner, len)
    }

    /// Borrows an array of a peer: maps it, to be read in place, where the transport can do that
    /// with its owner's memory, and else pulls a copy of at most
    /// [`EngineConfig::max_body`](crate::EngineConfig::max_body) bytes. It is reached as
    /// [`Engine::open`] says.
    ///
    /// Dropping the future ends what is under way.
    ///
    /// # Errors
    /// As [`Engine::open`] and [`RemoteBulk::pull`]; [`BulkError::Transfer`] if the owner has
    /// closed the array.
    pub fn borrow<T: Number>(
        &self,
        loan: &Loan<T>,
    ) -> impl Future<Output = Result<Borrowed<T>, BulkError>> + use<T> {
        let (inner, loan, caller) = (Rc::clone(&self.inner), loan.clone(), self.caller);
        async move { Borrowed::open(&inner, &loan, caller).await }
    }

    /// Tells the owner of an array that this reader is done with it, which it was given
    /// ([`Array::give`]): the owner closes it, before the time is over for which it would be kept.
    /// An array that the owner keeps itself stays open.
    ///
    /// A copy that was borrowed stays readable, and so does what is read in place, which holds its
    /// memory until it is dropped. What is said twice, or late, changes nothing; an owner that is
    /// lost, or stopped, is not waited for.
    ///
    /// # Errors
    /// As [`Engine::open`]: this is no loan, or its owner cannot be resolved.
    pub fn give_back<T: Number>(&self, loan: &Loan<T>) -> Result<(), BulkError> {
        self.open(loan.handle())?.release();
        Ok(())
    }

    /// Opens memory to put, get and atomics of peers. See [`RemoteMemory`] for an example.
    ///
    /// # Errors
    /// As [`Engine::bulk`].
    pub fn export(&self, memory: impl Into<Slice>, access: Access) -> Result<Exported, BulkError> {
        crate::memory::export(&self.inner, &memory.into(), access)
    }

    /// Prepares access to memory that a peer exported; it is reached as [`Engine::open`] says.
    ///
    /// # Errors
    /// [`BulkError::Import`] if the key is damaged, or names no route that this endpoint has.
    pub fn import(&self, key: &Key) -> Result<RemoteMemory, BulkError> {
        RemoteMemory::new(Rc::clone(&self.inner), key, self.caller)
    }

    /// A handle for other threads.
    #[must_use]
    pub fn handle(&self) -> EngineHandle {
        EngineHandle::new(&self.inner)
    }

    /// One pass: makes progress by a bounded amount, without blocking. False if there was nothing
    /// to do.
    pub fn progress(&self) -> bool {
        self.inner.progress()
    }

    /// Sets the time, for engines made with [`Engine::with_given_time`]. It never goes back.
    pub fn set_time(&self, now: Time) {
        self.inner.clock.set(now);
    }

    /// Prepares to sleep on [`Engine::fd`]: returns the longest time to sleep, or `None` if there
    /// is something to do. Call [`Engine::awake`] after the sleep.
    ///
    /// ```
    /// use petasos_rpc::{Engine, EngineConfig};
    /// use std::time::Duration;
    ///
    /// # let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
    /// let engine = Engine::new(endpoint, EngineConfig::default());
    /// let nap = engine.sleep(Duration::from_millis(5));
    /// engine.spawn(async move { nap.await });
    /// // An event loop: here it has nothing else to do.
    /// while engine.usage().tasks > 0 {
    ///     if engine.progress() {
    ///         continue;
    ///     }
    ///     if let Some(longest) = engine.arm() {
    ///         // In a real loop: wait for `engine.fd()`, with this as the time limit.
    ///         std::thread::sleep(longest.min(Duration::from_millis(1)));
    ///         engine.awake();
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn arm(&self) -> Option<Duration> {
        let inner = &self.inner;
        if !inner.waker.fall_asleep() {
            return None;
        }
        inner.tick();
        let now = inner.clock.coarse();
        // A deadline that passed just now may have woken a task.
        if inner.waker.is_set() {
            inner.waker.awake();
            return None;
        }
        let Some(until) = inner.transport.arm(now) else {
            inner.waker.awake();
            return None;
        };
        Some(until.min(inner.timers.borrow().next(now)).since(now))
    }

    /// To be called after sleep.
    pub fn awake(&self) {
        self.inner.waker.awake();
        self.inner.tick();
    }

    /// A descriptor to sleep on until it is readable: a duplicate, which the caller closes. `None`
    /// if the transport has none.
    #[must_use]
    pub fn fd(&self) -> Option<OwnedFd> {
        self.inner.transport.fd()
    }

    /// Drives the engine until `future` is ready; in between it idles as [`EngineConfig::idle`]
    /// says.
    ///
    /// # Panics
    /// If it is called within a handler or a task of the same engine.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let inner = &self.inner;
        let main = &inner.main;
        let mut context = Context::from_waker(&inner.main_waker);
        let mut future = std::pin::pin!(future);
        inner.spin.borrow_mut().reset();
        main.set();
        loop {
            if main.take() {
                if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                    return output;
                }
                inner.spin.borrow_mut().reset();
            }
            if self.progress() {
                inner.spin.borrow_mut().reset();
            } else if !main.is_set() {
                self.idle();
            }
        }
    }

    /// After a pass in which there was nothing to do: polls again soon, or sleeps.
    fn idle(&self) {
        let mut spin = self.inner.spin.borrow_mut();
        match spin.idle() {
            Idle::Poll => return self.inner.transport.relax(),
            Idle::Yield => return spin.yield_now(),
            Idle::Sleep => drop(spin),
        }
        let Some(longest) = self.arm() else { return };
        self.inner.transport.sleep(longest);
        self.awake();
    }

    /// Counters since the start.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.inner.stats.read()
    }

    /// What is under way now.
    #[must_use]
    pub fn usage(&self) -> Usage {
        self.inner.usage()
    }

    /// Ends the engine, even if clones of it remain: calls under way fail with
    /// [`CallError::EngineEnded`](crate::CallError::EngineEnded), handlers are dropped.
    pub fn shut_down(&self) {
        self.inner.shut_down();
    }
}

//! Calls that lend memory: `#[bulk]` parameters become these.

use super::{
    Bulk, BulkHandle, Pieces, Released,
    closing::{Closing, Lending},
};
use crate::{CallError, CallOptions, Engine, Method, Target, TypedCall, inner::Inner, waiting};
use petasos_fabric::{Access, Region, Slice};
use petasos_wire::Wire;
use smallvec::SmallVec;
use std::{
    fmt,
    marker::PhantomData,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

/// Memory into which the target of a call pushes: borrowed from the caller, which reads the data
/// there afterwards.
///
/// Implemented for `&Region`, `&Slice` and `&Pieces`. Memory passed by value would be lost, and the
/// data with it:
///
/// ```compile_fail,E0277
/// use petasos_rpc::{Lent, fabric::Region};
///
/// Lent::push(vec![0; 1000]);
/// ```
///
/// ```
/// use petasos_rpc::{Lent, fabric::Region};
///
/// let into = Region::zeroed(1000);
/// Lent::push(&into);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no memory that the caller can read after the call",
    label = "the data that the target pushes would be lost with it",
    note = "lend memory that you keep: `let into = Region::zeroed(LEN);`, then pass `&into`, and \
            read it when the call has ended"
)]
pub trait Destination<'m>: sealed::Sealed {
    /// The memory.
    fn slice(&self) -> Slice;
}

impl<'m> Destination<'m> for &'m Region {
    fn slice(&self) -> Slice {
        self.whole()
    }
}

impl<'m> Destination<'m> for &'m Slice {
    fn slice(&self) -> Slice {
        Slice::clone(self)
    }
}

impl<'m> Destination<'m> for &'m Pieces {
    fn slice(&self) -> Slice {
        self.as_slice().clone()
    }
}

mod sealed {
    use super::Pieces;
    use petasos_fabric::{Region, Slice};

    pub trait Sealed {}
    impl Sealed for &Region {}
    impl Sealed for &Slice {}
    impl Sealed for &Pieces {}
}

/// Memory that a call lends to its target: see [`Target::call_lending`].
#[derive(Debug)]
pub struct Lent<'m> {
    memory: Slice,
    access: Access,
    borrowed: PhantomData<&'m Slice>,
}

impl<'m> Lent<'m> {
    /// For the target to read. The call owns it until it has ended.
    pub fn pull(memory: impl Into<Slice>) -> Lent<'static> {
        Lent { memory: memory.into(), access: Access::READ, borrowed: PhantomData }
    }

    /// For the target to write.
    pub fn push(memory: impl Destination<'m>) -> Lent<'m> {
        Lent { memory: memory.slice(), access: Access::WRITE, borrowed: PhantomData }
    }
}

impl Target {
    /// Calls a method and lends it memory; `arguments` builds the arguments from the descriptors of
    /// the memory. `#[service]` generates such calls for methods with `#[bulk]` parameters.
    ///
    /// The call is under way when this returns, as with [`Target::call`]; the future reports errors
    /// of the memory, too. Dropping it cancels the call, here and at the target; the engine keeps
    /// the memory until the network no longer uses it.
    ///
    /// ```
    /// use petasos_rpc::{
    ///     BulkHandle, CallOptions, Context, Engine, EngineConfig, Lent, Method, serve,
    /// };
    ///
    /// # let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
    /// let engine = Engine::new(endpoint, EngineConfig::default());
    /// let sum = Method::named("Sum::of").of::<BulkHandle, u64>();
    /// engine.register(sum, 0, serve(|context: Context, handle: BulkHandle| async move {
    ///     // The interface of an application would have these errors in its result.
    ///     let remote = context.engine().open(&handle).expect("a descriptor of the caller");
    ///     let data = remote.pull(0, remote.len()).await.expect("memory of the caller");
    ///     data.to_vec().iter().map(|byte| u64::from(*byte)).sum::<u64>()
    /// }));
    ///
    /// let target = engine.target(engine.address());
    /// let memory = [Lent::pull(vec![1; 100_000])];
    /// let call = target.call_lending(sum, &CallOptions::default(), memory, |[handle]| handle);
    /// let total: u64 = engine.block_on(call)?;
    /// assert_eq!(total, 100_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn call_lending<'m, const N: usize, A: Wire, R: Wire>(
        &self,
        method: Method,
        options: &CallOptions,
        memory: [Lent<'m>; N],
        arguments: impl FnOnce([BulkHandle; N]) -> A,
    ) -> BulkCall<'m, R> {
        let lend = |lent: Lent<'m>| self.lend(method, lent.memory, lent.access);
        let lent: Result<SmallVec<[Bulk; 1]>, CallError> = memory.into_iter().map(lend).collect();
        let inner = Rc::clone(self.inner());
        let (state, lent) = match lent {
            Ok(lent) => {
                let handles = std::array::from_fn(|at| lent[at].handle());
                let call = self.call(method, options, &arguments(handles));
                let lent: Lendings = lent.into_iter().map(Bulk::into_lending).collect();
                let open: SmallVec<[_; 1]> = lent.iter().flatten().cloned().collect();
                inner.lend_to(call.call().id(), &open);
                (State::Calling(call), lent)
            }
            Err(error) => (State::Failed(Box::new(error)), SmallVec::new()),
        };
        BulkCall { state, lent, closed: 0, inner, borrowed: PhantomData }
    }
}

/// The memory of each argument, where there is any to be reached.
type Lendings = SmallVec<[Option<Rc<Lending>>; 1]>;

/// A call under way that lends memory, and whose result is an `R`: see [`Target::call_lending`].
/// When the future is ready, no peer accesses the memory any more, unless one that is stopped still
/// reaches it: then the engine keeps the memory until that peer has left.
///
/// Dropping it cancels the call; the engine keeps the memory until the network no longer uses it.
#[must_use = "a call that is dropped is cancelled"]
pub struct BulkCall<'m, R> {
    state: State<R>,
    lent: Lendings,
    /// How many of these are closed.
    closed: usize,
    inner: Rc<Inner>,
    /// The caller reads after the call what the target pushed, so the memory outlives this.
    borrowed: PhantomData<&'m Slice>,
}

enum State<R> {
    /// With the call ends the lending, whatever becomes of this.
    Calling(TypedCall<R>),
    /// The outcome is known; it is returned when no access can land any more.
    Closing(Result<R, CallError>),
    /// It could not be sent.
    Failed(Box<CallError>),
    Over,
}

/// Nothing in it is pinned: the result is moved.
impl<R> Unpin for BulkCall<'_, R> {}

impl<R> BulkCall<'_, R> {
    /// Whether the outcome is known and no peer accesses the memory any more: then the future is
    /// ready. It changes only while the engine is driven.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let answered = match &self.state {
            State::Calling(call) => call.is_ready(),
            State::Closing(_) | State::Failed(_) | State::Over => true,
        };
        answered && self.lent.iter().flatten().all(|lending| lending.is_settled())
    }

    /// Waits until the future is ready, for up to `time` from the first poll: resolves to whether
    /// it is. The call goes on in either case.
    ///
    /// Dropping this future does not cancel the call; dropping the call does.
    pub fn ready_within(&mut self, time: Duration) -> impl Future<Output = bool> {
        let call = &*self;
        waiting::ready_within(&call.inner, time, |context| call.poll_ready(context))
    }

    /// The same for a thread that blocks, and drives the engine meanwhile.
    ///
    /// # Panics
    /// If it is called within a handler or a task of the same engine.
    pub fn wait_for(&mut self, time: Duration) -> bool {
        Engine::borrowed(Rc::clone(&self.inner)).block_on(self.ready_within(time))
    }

    fn poll_ready(&self, context: &mut Context<'_>) -> Poll<()> {
        if let State::Calling(call) = &self.state {
            ready!(call.call().poll_ready(context));
        }
        for lending in &self.lent {
            let _ = ready!(Pin::new(&mut Closing::of(lending.clone())).poll(context));
        }
        Poll::Ready(())
    }

    /// Ready when the memory of one `#[bulk]` argument, the first of which is 0, is the program's
    /// alone again. That is before the call is answered if the target has given it back: memory to
    /// be pulled as soon as it is pulled and the method has to wait, all other memory when the
    /// handler says so ([`RemoteBulk::release`](crate::RemoteBulk::release)).
    ///
    /// # Panics
    /// If the call lends no such argument.
    pub fn released(&self, argument: usize) -> Released {
        let lending = match self.state {
            State::Failed(_) => None,
            _ => self.lent[argument].clone(),
        };
        Released::new(lending, &self.inner)
    }
}

impl<R: Wire> Future for BulkCall<'_, R> {
    type Output = Result<R, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Calling(call) = &mut self.state {
            let result = ready!(Pin::new(call).poll(context));
            self.state = State::Closing(result);
        }
        if let State::Closing(_) = self.state {
            while let Some(next) = self.lent.get(self.closed) {
                // If a peer still reaches the memory, the engine waits for it.
                let _ = ready!(Pin::new(&mut Closing::of(next.clone())).poll(context));
                self.closed += 1;
            }
        }
        match std::mem::replace(&mut self.state, State::Over) {
            State::Closing(result) => Poll::Ready(result),
            State::Failed(error) => Poll::Ready(Err(*error)),
            _ => panic!("a call is polled after it ended"),
        }
    }
}

impl<R> fmt::Debug for BulkCall<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Calling(_) => "BulkCall(under way)",
            State::Closing(_) => "BulkCall(answered)",
            State::Failed(_) => "BulkCall(failed)",
            State::Over => "BulkCall(over)",
        })
    }
}

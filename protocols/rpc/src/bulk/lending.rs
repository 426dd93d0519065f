//! Calls that lend memory: what `#[bulk]` parameters become.

use super::{
    Bulk, BulkHandle,
    descriptor::{Closing, MAX_PIECES},
};
use crate::{CallError, CallOptions, Method, Target, TypedCall};
use petasos_fabric::{Access, Region, Slice};
use petasos_wire::Wire;
use smallvec::SmallVec;
use std::{
    fmt,
    marker::PhantomData,
    pin::Pin,
    task::{Context, Poll, ready},
};

/// Memory to which the target of a call pushes: borrowed from the caller, which sees there what
/// came.
///
/// Of `&Region` and `&Slice`. Memory that is given away with the call would be lost with what came:
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
    message = "`{Self}` is no memory that the caller sees again after the call",
    label = "what the target pushes would be lost with it",
    note = "lend memory that you keep: `let into = Region::zeroed(LEN);`, then pass `&into`, and read it \
            when the call has ended"
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

mod sealed {
    use petasos_fabric::{Region, Slice};

    pub trait Sealed {}
    impl Sealed for &Region {}
    impl Sealed for &Slice {}
}

/// Memory that a call lends to its target.
#[derive(Debug)]
pub struct Lent<'m> {
    memory: Slice,
    access: Access,
    borrowed: PhantomData<&'m Slice>,
}

impl<'m> Lent<'m> {
    /// For the target to read. It is the call's until that has ended.
    pub fn pull(memory: impl Into<Slice>) -> Lent<'static> {
        Lent { memory: memory.into(), access: Access::READ, borrowed: PhantomData }
    }

    /// For the target to write.
    pub fn push(memory: impl Destination<'m>) -> Lent<'m> {
        Lent { memory: memory.slice(), access: Access::WRITE, borrowed: PhantomData }
    }
}

impl Target {
    /// Calls a method to which memory is lent; `arguments` makes the arguments of the descriptors
    /// of the memory. `#[service]` writes such calls for methods with `#[bulk]` parameters.
    ///
    /// The call is under way when this returns, as [`Target::call`] is; what is wrong with the
    /// memory is told by the future. Dropping that cancels the call, here and at the target, and
    /// leaves the memory to the engine until the network has let go of it.
    pub fn call_lending<'m, const N: usize, A: Wire, R: Wire>(
        &self,
        method: Method,
        options: &CallOptions,
        memory: [Lent<'m>; N],
        arguments: impl FnOnce([BulkHandle; N]) -> A,
    ) -> BulkCall<'m, R> {
        const { assert!(N <= MAX_PIECES, "a call lends a few pieces of memory") };
        let lend = |lent: Lent<'m>| self.lend(method, lent.memory, lent.access);
        let lent: Result<SmallVec<[Bulk; 2]>, CallError> = memory.into_iter().map(lend).collect();
        let state = match lent {
            Ok(lent) => {
                let handles = std::array::from_fn(|at| lent[at].handle());
                let call = self.call(method, options, &arguments(handles));
                State::Calling(call, lent)
            }
            Err(error) => State::Failed(Box::new(error)),
        };
        BulkCall { state, borrowed: PhantomData }
    }
}

/// A call under way to which memory is lent, and whose result is an `R`. The memory is one's own
/// again when the future is ready, unless a peer that is stopped still reaches it: then the engine
/// keeps it until that has left.
///
/// Dropping it cancels the call; the engine keeps the memory until the network has let go.
#[must_use = "a call that is dropped is cancelled"]
pub struct BulkCall<'m, R> {
    state: State<R>,
    /// What the target pushes is looked at after the call, so the memory outlives this.
    borrowed: PhantomData<&'m Slice>,
}

enum State<R> {
    /// Dropped in this order: what is lent is closed when the target has been told.
    Calling(TypedCall<R>, SmallVec<[Bulk; 2]>),
    /// The outcome is known; no access may land any more when it is given.
    Closing(Result<R, CallError>, SmallVec<[Closing; 2]>),
    /// It never began.
    Failed(Box<CallError>),
    Over,
}

/// Nothing in it is pinned: the result is moved.
impl<R> Unpin for BulkCall<'_, R> {}

impl<R: Wire> Future for BulkCall<'_, R> {
    type Output = Result<R, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Calling(call, lent) = &mut self.state {
            let result = ready!(Pin::new(call).poll(context));
            let closing = lent.drain(..).map(Bulk::start_closing).collect();
            self.state = State::Closing(result, closing);
        }
        if let State::Closing(_, closing) = &mut self.state {
            while let Some(last) = closing.last_mut() {
                // A peer that still reaches the memory is the engine's to wait for.
                let _ = ready!(Pin::new(last).poll(context));
                closing.pop();
            }
        }
        match std::mem::replace(&mut self.state, State::Over) {
            State::Closing(result, _) => Poll::Ready(result),
            State::Failed(error) => Poll::Ready(Err(*error)),
            _ => panic!("a call is polled after it ended"),
        }
    }
}

impl<R> fmt::Debug for BulkCall<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Calling(..) => "BulkCall(under way)",
            State::Closing(..) => "BulkCall(answered)",
            State::Failed(_) => "BulkCall(failed)",
            State::Over => "BulkCall(over)",
        })
    }
}

//! Calling one method of one target.

use crate::{
    errors::Trouble,
    home::Owned,
    operation::{self, Done, Operation, Work},
    state::{Held, State},
};
use petasos::{CallError, CallOptions, Method, Target};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::{cell::Cell, rc::Rc, time::Duration};

/// How long a call without an answer waits to leave, if its options do not say that.
const LEAVING: Duration = Duration::from_secs(30);

/// A method that no peer has.
const ARRIVED: Method = Method::raw("petasos.python::arrived");

/// A method at a target, to be called.
#[pyclass(frozen, module = "petasos._native")]
pub(crate) struct Calls(Owned<Rc<Inner>>);

struct Inner {
    state: Rc<State>,
    target: Held<Target>,
    /// With the signature that the target has, once that is known.
    method: Cell<Method>,
    ours: u64,
    /// Whether the target has answered since it was found.
    known: Cell<bool>,
    options: CallOptions,
}

impl Calls {
    pub(crate) fn new(
        state: &Rc<State>,
        target: Target,
        method: Method,
        signature: u64,
        options: CallOptions,
    ) -> Calls {
        let inner = Inner {
            state: Rc::clone(state),
            target: state.hold(target),
            method: Cell::new(Method { signature, ..method }),
            ours: signature,
            known: Cell::new(false),
            options,
        };
        Calls(Owned::new(&state.home, Rc::new(inner)))
    }
}

impl Inner {
    /// The call is under way when this returns.
    fn begin(self: &Rc<Self>, arguments: &Bound<'_, PyTuple>) -> PyResult<Work> {
        let (target, method) = (self.target.get()?, self.method.get());
        self.state.encoded(arguments, |bytes| {
            let call = target.call_bytes(method, &self.options, bytes);
            let again = (!self.known.get()).then(|| bytes.to_vec());
            let calls = Rc::clone(self);
            Box::pin(async move {
                let mut result = call.await;
                if let Some(bytes) = again
                    && let Err(CallError::SignatureMismatch { ours, theirs, .. }) = result
                    && (ours == 0 || theirs == 0)
                {
                    // One of the two has none: there is nothing to be compared.
                    let method = Method { signature: theirs, ..method };
                    calls.method.set(method);
                    result = target.call_bytes(method, &calls.options, &bytes).await;
                }
                calls.learn(&result);
                result.map(Done::Body).map_err(Trouble::from)
            }) as Work
        })
    }

    /// What the outcome says of the target: another one may be found at the address of a peer that
    /// is lost.
    fn learn(&self, result: &Result<Vec<u8>, CallError>) {
        match result {
            Ok(_) => self.known.set(true),
            Err(CallError::PeerLost { .. }) => {
                self.known.set(false);
                self.method.set(Method { signature: self.ours, ..self.method.get() });
            }
            Err(_) => {}
        }
    }
}

#[pymethods]
impl Calls {
    /// Calls, blocks until the answer is there, and returns the result.
    fn call(&self, py: Python<'_>, arguments: &Bound<'_, PyTuple>) -> PyResult<Py<PyAny>> {
        let inner = self.0.get()?;
        let work = inner.begin(arguments)?;
        operation::wait(py, &inner.state, work)
    }

    /// Calls: the call is under way when this returns.
    fn start(&self, arguments: &Bound<'_, PyTuple>) -> PyResult<Operation> {
        let inner = self.0.get()?;
        Ok(Operation::new(&inner.state, inner.begin(arguments)?))
    }

    /// Calls without an answer. The handler runs at most once. Returns when the message has left,
    /// as when the peer is connected; where an event loop drives the engine, at once.
    fn notify(&self, py: Python<'_>, arguments: &Bound<'_, PyTuple>) -> PyResult<()> {
        let inner = self.0.get()?;
        let engine = inner.state.engine()?;
        let (target, method, options) = (inner.target.get()?, inner.method.get(), &inner.options);
        let sent = inner.state.encoded(arguments, |bytes| {
            target.notify_raw(method, options, |_, out| out.extend_from_slice(bytes))
        })?;
        sent.map_err(Trouble::from)?;
        if inner.state.awaitable(py).is_some() {
            return Ok(());
        }
        let limit = options.timeout.unwrap_or(LEAVING);
        if !inner.known.get() {
            // The engine is driven until there is a connection, and the message has arrived: an
            // answer comes after it, whatever that says.
            let options = CallOptions::default().timeout(limit);
            let mut first = target.call_bytes(ARRIVED, &options, &[]);
            let answer = inner.state.wait(py, &mut first)?;
            inner.known.set(matches!(answer, Ok(_) | Err(CallError::NoSuchMethod { .. })));
        }
        if engine.usage().deferred > 0 {
            let left = async {
                while engine.usage().deferred > 0 {
                    engine.sleep(Duration::from_millis(1)).await;
                }
            };
            // Whether it arrives is not known in any case.
            let _ = inner.state.wait(py, &mut Box::pin(engine.limit(limit, left)))?;
        }
        Ok(())
    }
}

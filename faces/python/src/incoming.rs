//! A call that a handler answers later: a coroutine, or another thread.

use crate::{encode::encode, errors, home::Owned, state::State};
use petasos::{Failure, Incoming as Request, Responder};
use pyo3::{prelude::*, types::PyTuple};
use std::{
    rc::{Rc, Weak},
    sync::{Mutex, PoisonError},
};

/// A call that has arrived: its arguments, what is known about it, and its answer, which any thread
/// may give. If it is dropped without one, the caller gets a `RemoteError`.
#[pyclass(frozen, module = "petasos._native")]
pub(crate) struct Incoming {
    #[pyo3(get)]
    arguments: Py<PyTuple>,
    /// The address of the process that calls.
    #[pyo3(get)]
    peer: String,
    /// What it calls, as `Service::method`.
    #[pyo3(get)]
    method: String,
    /// The provider that it calls.
    #[pyo3(get)]
    provider: u16,
    /// The time that the caller gives, in seconds from the arrival on; `None` without a limit.
    #[pyo3(get)]
    timeout: Option<f64>,
    responder: Mutex<Option<Responder>>,
    serial: u64,
    state: Owned<Weak<State>>,
}

impl Incoming {
    pub(crate) fn new(
        state: &Rc<State>,
        request: &Request,
        responder: Responder,
        serial: u64,
        arguments: Py<PyTuple>,
    ) -> Incoming {
        let context = request.context();
        Incoming {
            arguments,
            peer: context.peer().as_str().to_owned(),
            method: context.method().name.to_owned(),
            provider: context.provider(),
            timeout: context.time_limit().map(|limit| limit.as_secs_f64()),
            responder: Mutex::new(Some(responder)),
            serial,
            state: Owned::new(&state.home, Rc::downgrade(state)),
        }
    }

    fn answer(&self, reply: petasos::Reply) {
        let responder = self.responder.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(responder) = responder {
            responder.respond(reply);
        }
        // From another thread what is to be called then is told for nothing, and does nothing.
        if let Ok(state) = self.state.get()
            && let Some(state) = state.upgrade()
        {
            state.answered(self.serial);
        }
    }
}

#[pymethods]
impl Incoming {
    /// Answers with a value. A second answer, and one to a caller that does not wait any more, is
    /// dropped.
    fn respond(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut bytes = Vec::new();
        encode(value, &mut bytes)?;
        self.answer(Ok(bytes));
        Ok(())
    }

    /// Answers with an exception: the caller gets its type and text.
    fn fail(&self, py: Python<'_>, error: &Bound<'_, PyAny>) {
        let error = PyErr::from_value(error.clone());
        self.answer(Err(errors::failure(py, &error)));
    }

    /// Answers that the arguments are wrong.
    fn refuse(&self, text: String) {
        self.answer(Err(Failure::BadArguments(text)));
    }

    /// Whether the caller does not wait any more: it cancelled the call, is lost, or the time is
    /// over.
    fn cancelled(&self) -> bool {
        let responder = self.responder.lock().unwrap_or_else(PoisonError::into_inner);
        responder.as_ref().is_some_and(Responder::is_cancelled)
    }

    /// Has `call` called, without arguments, if that happens before the answer.
    fn on_cancel(&self, call: Py<PyAny>) -> PyResult<()> {
        if let Some(state) = self.state.get()?.upgrade() {
            state.on_withdrawal(self.serial, call);
        }
        Ok(())
    }
}

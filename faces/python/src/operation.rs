//! Operations under way: calls and transfers, to be waited for by a thread or by asyncio.

use crate::{
    decode,
    errors::{self, Trouble},
    exposed,
    home::Owned,
    numbers::Element,
    state::{LetGo, State},
};
use petasos::Region;
use pyo3::{IntoPyObjectExt, exceptions::PyRuntimeError, intern, prelude::*};
use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    pin::Pin,
    rc::{Rc, Weak},
    task::{Poll, Waker},
    time::Duration,
};

/// What an operation gives.
pub(crate) enum Done {
    Nothing,
    /// The bytes of a result.
    Body(Vec<u8>),
    /// Memory that was pulled.
    Pulled(Region),
    /// An array, and whether it is read in place.
    Array {
        region: Region,
        element: Element,
        shape: Vec<u64>,
        in_place: bool,
    },
}

pub(crate) type Outcome = Result<Done, Trouble>;
pub(crate) type Work = Pin<Box<dyn Future<Output = Outcome>>>;

impl Done {
    fn into_object(self, py: Python<'_>, state: &Rc<State>) -> PyResult<Py<PyAny>> {
        match self {
            Done::Nothing => Ok(py.None()),
            Done::Body(bytes) => {
                let opener = state.opener().ok();
                Ok(decode::decode(py, &bytes, opener.as_ref())?.unbind())
            }
            Done::Pulled(region) => exposed::view(py, region)?.into_py_any(py),
            Done::Array { region, element, shape, in_place } => {
                let memory = exposed::memory(py, region, element, &shape, !in_place)?;
                (decode::present(&memory)?, in_place).into_py_any(py)
            }
        }
    }
}

/// An operation that asyncio waits for.
pub(crate) struct Task {
    work: RefCell<Option<Work>>,
    waker: RefCell<Option<Waker>>,
    outcome: RefCell<Option<Outcome>>,
    /// The future of the event loop.
    future: Py<PyAny>,
}

impl Task {
    /// Polls the work as a task of the engine, without the interpreter.
    async fn run(task: Rc<Task>, state: Weak<State>) {
        // Dropped with the engine, before the work is done.
        let ended = Ended { task: Rc::clone(&task), state };
        let outcome = poll_fn(|context| {
            let mut work = task.work.borrow_mut();
            // It was cancelled.
            let Some(under_way) = work.as_mut() else { return Poll::Ready(None) };
            let polled = under_way.as_mut().poll(context).map(Some);
            task.waker.replace(polled.is_pending().then(|| context.waker().clone()));
            polled
        });
        if let Some(outcome) = outcome.await {
            let over = task.work.take();
            drop(over);
            ended.tell(outcome);
        }
    }

    /// Sets the result of the loop's future, unless that is cancelled.
    pub(crate) fn tell(&self, py: Python<'_>, state: &Rc<State>) -> PyResult<()> {
        let Some(outcome) = self.outcome.take() else { return Ok(()) };
        let future = self.future.bind(py);
        if future.call_method0(intern!(py, "done"))?.is_truthy()? {
            return Ok(());
        }
        let result = outcome.map_err(PyErr::from).and_then(|done| done.into_object(py, state));
        match result {
            Ok(value) => future.call_method1(intern!(py, "set_result"), (value,))?,
            Err(error) => future.call_method1(intern!(py, "set_exception"), (error.value(py),))?,
        };
        Ok(())
    }

    fn cancel(&self) {
        // Dropped after the cell is free: that is what cancels.
        let work = self.work.take();
        drop(work);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// Tells the end of a task, also of one that the engine drops when it ends.
struct Ended {
    task: Rc<Task>,
    state: Weak<State>,
}

impl Ended {
    fn tell(&self, outcome: Outcome) {
        self.task.outcome.replace(Some(outcome));
        if let Some(state) = self.state.upgrade() {
            state.finish(Rc::clone(&self.task));
        }
    }
}

impl Ended {
    fn close(&self) {
        // It is gone if it is done, or was cancelled.
        let work = self.task.work.take();
        if work.is_some() {
            self.tell(Err(Trouble::Call(petasos::CallError::EngineEnded)));
        }
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.close();
    }
}

/// A call or a transfer that is under way. Dropping it cancels it.
#[pyclass(frozen, name = "Pending", module = "petasos._native")]
pub(crate) struct Operation(Owned<Rc<Inner>>);

struct Inner {
    state: Rc<State>,
    stage: RefCell<Stage>,
}

enum Stage {
    /// Nothing waits for it yet.
    Begun(Work),
    /// Asyncio does.
    Awaited(Rc<Task>),
    /// It is waited for, or over.
    Over,
    /// The engine was closed before.
    Closed,
}

impl Operation {
    pub(crate) fn new(state: &Rc<State>, work: Work) -> Operation {
        let inner = Inner { state: Rc::clone(state), stage: RefCell::new(Stage::Begun(work)) };
        let inner = Rc::new(inner);
        let holder: Weak<Inner> = Rc::downgrade(&inner);
        state.let_go_at_the_end(holder);
        Operation(Owned::new(&state.home, inner))
    }
}

/// Blocks until the work is done.
pub(crate) fn wait(py: Python<'_>, state: &Rc<State>, mut work: Work) -> PyResult<Py<PyAny>> {
    let outcome = state.wait(py, &mut work)?;
    drop(work);
    outcome?.into_object(py, state)
}

/// What a method returns that waits for its work: the result, or what the event loop awaits.
pub(crate) fn conclude(py: Python<'_>, state: &Rc<State>, work: Work) -> PyResult<Py<PyAny>> {
    match state.awaitable(py) {
        None => wait(py, state, work),
        Some(make) => make.call1(py, (Bound::new(py, Operation::new(state, work))?,)),
    }
}

impl LetGo for Inner {
    fn let_go(&self) {
        match self.stage.replace(Stage::Closed) {
            Stage::Begun(work) => drop(work),
            Stage::Awaited(task) => {
                Ended { task, state: Rc::downgrade(&self.state) }.close();
            }
            Stage::Over | Stage::Closed => {}
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Stage::Awaited(task) = self.stage.get_mut() {
            task.cancel();
        }
    }
}

/// Why an operation cannot be waited for.
fn taken(stage: &Stage) -> PyErr {
    match stage {
        Stage::Closed => errors::closed(),
        _ => PyRuntimeError::new_err("it is waited for already, or over"),
    }
}

#[pymethods]
impl Operation {
    /// Blocks until it is over, and returns its result.
    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let Inner { state, stage } = &**self.0.get()?;
        match stage.replace(Stage::Over) {
            Stage::Begun(work) => wait(py, state, work),
            was => {
                let error = taken(&was);
                stage.replace(was);
                Err(error)
            }
        }
    }

    /// Blocks for `seconds` at most: whether it is over then. It goes on.
    #[pyo3(signature = (seconds = 0.0))]
    fn done(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let Inner { state, stage } = &**self.0.get()?;
        let mut work = match stage.replace(Stage::Over) {
            Stage::Begun(work) => work,
            was => {
                let error = taken(&was);
                stage.replace(was);
                return Err(error);
            }
        };
        let time = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let mut sleep = state.engine()?.sleep(time);
        let mut done = None;
        let mut either = poll_fn(|context| {
            if let Poll::Ready(outcome) = work.as_mut().poll(context) {
                done = Some(outcome);
                return Poll::Ready(());
            }
            Pin::new(&mut sleep).poll(context)
        });
        let waited = state.wait(py, &mut either);
        let is_over = done.is_some();
        let work = match done {
            Some(outcome) => Box::pin(async { outcome }),
            None => work,
        };
        stage.replace(Stage::Begun(work));
        waited.map(|()| is_over)
    }

    /// Has the result, or the exception, set in a future of the event loop that drives the engine.
    fn notify(&self, future: Py<PyAny>) -> PyResult<()> {
        let Inner { state, stage } = &**self.0.get()?;
        let engine = state.engine()?;
        let work = match stage.replace(Stage::Over) {
            Stage::Begun(work) => work,
            was => {
                let error = taken(&was);
                stage.replace(was);
                return Err(error);
            }
        };
        let task = Rc::new(Task {
            work: RefCell::new(Some(work)),
            waker: RefCell::default(),
            outcome: RefCell::default(),
            future,
        });
        engine.spawn(Task::run(Rc::clone(&task), Rc::downgrade(state)));
        stage.replace(Stage::Awaited(task));
        Ok(())
    }

    /// Ends it: a call is cancelled at the target, too. The engine keeps memory that it moves until
    /// the network does not use it any more.
    fn cancel(&self) -> PyResult<()> {
        match self.0.get()?.stage.replace(Stage::Over) {
            Stage::Awaited(task) => task.cancel(),
            Stage::Begun(work) => drop(work),
            was @ (Stage::Over | Stage::Closed) => {
                self.0.get()?.stage.replace(was);
            }
        }
        Ok(())
    }
}

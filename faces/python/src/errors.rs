//! Errors as exceptions of `petasos.errors`, which name the peer and the remedy.

use petasos::{BulkError, CallError, Failure};
use pyo3::{
    exceptions::PyException,
    prelude::*,
    sync::PyOnceLock,
    types::{PyDict, PyString},
};

/// Makes an exception of a class of `petasos.errors`, with attributes.
fn make(class: &'static str, text: &str, with: &[(&str, Field<'_>)]) -> PyErr {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    Python::attach(|py| {
        let made = (|| {
            let module =
                MODULE.get_or_try_init(py, || py.import("petasos.errors").map(Bound::unbind))?;
            let fields = PyDict::new(py);
            for (name, value) in with {
                match value {
                    Field::Text(text) => fields.set_item(name, text)?,
                    Field::Seconds(seconds) => fields.set_item(name, seconds)?,
                    Field::Number(number) => fields.set_item(name, number)?,
                }
            }
            module.bind(py).call_method1("_make", (class, text, fields))
        })();
        made.map_or_else(|error| error, PyErr::from_value)
    })
}

enum Field<'a> {
    Text(&'a str),
    Seconds(f64),
    Number(u64),
}

/// An exception without attributes.
pub(crate) fn plain(class: &'static str, text: &str) -> PyErr {
    make(class, text, &[])
}

pub(crate) fn forked() -> PyErr {
    let text = "this engine belongs to the parent process: open one of its own after the fork, or \
                start processes with multiprocessing's method 'spawn' or 'forkserver'";
    plain("ForkedError", text)
}

pub(crate) fn wrong_thread() -> PyErr {
    let text = "an engine and all that is of it belong to the thread that opened it: open one in \
                each thread, or hand the work to the engine's thread";
    plain("WrongThreadError", text)
}

pub(crate) fn closed() -> PyErr {
    plain("EngineClosedError", "the engine is closed")
}

/// What ends an operation other than its result.
#[derive(Debug)]
pub(crate) enum Trouble {
    Call(CallError),
    Bulk(BulkError),
}

impl From<CallError> for Trouble {
    fn from(error: CallError) -> Trouble {
        Trouble::Call(error)
    }
}

impl From<BulkError> for Trouble {
    fn from(error: BulkError) -> Trouble {
        Trouble::Bulk(error)
    }
}

impl From<Trouble> for PyErr {
    fn from(trouble: Trouble) -> PyErr {
        match trouble {
            Trouble::Call(error) => call(&error),
            Trouble::Bulk(error) => bulk(&error),
        }
    }
}

fn call(error: &CallError) -> PyErr {
    use Field::{Number, Seconds, Text};
    let text = error.to_string();
    let of = |class, peer: &petasos::Address, method: &str, more: Option<(&str, Field<'_>)>| {
        let mut fields = vec![("peer", Text(peer.as_str())), ("method", Text(method))];
        fields.extend(more);
        make(class, &text, &fields)
    };
    match error {
        CallError::Deadline { peer, method, timeout } => {
            of("DeadlineExceeded", peer, method, Some(("timeout", Seconds(timeout.as_secs_f64()))))
        }
        CallError::PeerLost { peer, method, reason } => {
            of("PeerLost", peer, method, Some(("reason", Text(&reason.to_string()))))
        }
        CallError::Unresolved { peer, method, .. } => of("AddressError", peer, method, None),
        CallError::Busy { peer, method, retry_after } => {
            of("Busy", peer, method, Some(("retry_after", Seconds(retry_after.as_secs_f64()))))
        }
        CallError::NoSuchMethod { peer, method } => of("NoSuchMethod", peer, method, None),
        CallError::NoSuchProvider { peer, method, provider } => {
            let number = ("provider", Number(u64::from(*provider)));
            of("NoSuchProvider", peer, method, Some(number))
        }
        CallError::SignatureMismatch { peer, method, .. } => {
            of("SignatureMismatch", peer, method, None)
        }
        CallError::Cancelled { peer, method } => of("CallCancelled", peer, method, None),
        CallError::Failed { peer, method, reason } => {
            of("RemoteError", peer, method, Some(("reason", Text(reason))))
        }
        CallError::BadArguments { peer, method, reason } => {
            of("BadArguments", peer, method, Some(("reason", Text(reason))))
        }
        CallError::BadResult { peer, method, .. } => of("DecodeError", peer, method, None),
        CallError::TooLarge { peer, method, .. } => of("TooLarge", peer, method, None),
        CallError::Transfer { peer, method, .. } => of("TransferError", peer, method, None),
        CallError::EngineEnded => closed(),
        _ => plain("PetasosError", &text),
    }
}

fn bulk(error: &BulkError) -> PyErr {
    let text = error.to_string();
    match error {
        BulkError::Transfer(failed) => {
            let peer = failed.peer.as_ref().map_or("", |peer| peer.as_str());
            let lost = matches!(failed.kind, petasos::fabric::OpErrorKind::PeerLost(_));
            let class = if lost { "PeerLost" } else { "TransferError" };
            make(class, &text, &[("peer", Field::Text(peer))])
        }
        BulkError::TooLarge { .. } | BulkError::TooManyPieces { .. } => plain("TooLarge", &text),
        BulkError::EngineEnded => closed(),
        _ => plain("TransferError", &text),
    }
}

/// What precedes the type of an exception that a handler in Python has raised.
const RAISED: &str = "python ";

/// What the caller is told of an exception that a handler raised: its type and text.
pub(crate) fn failure(py: Python<'_>, error: &PyErr) -> Failure {
    let kind = error.get_type(py).name().map_or_else(|_| "Exception".into(), text_of);
    let text = error.value(py).str().map_or_else(|_| "its text failed".into(), text_of);
    match kind.as_str() {
        "BadArguments" => Failure::BadArguments(text),
        "Busy" => Failure::Busy,
        _ => Failure::Failed(format!("{RAISED}{kind}: {text}")),
    }
}

fn text_of(text: Bound<'_, PyString>) -> String {
    text.to_string_lossy().into_owned()
}

/// Whether a handler's exception is its program's, and not meant to end that program.
pub(crate) fn is_ordinary(py: Python<'_>, error: &PyErr) -> bool {
    error.is_instance_of::<PyException>(py)
}

//! Petasos for Python: the part of the package `petasos` that is not Python.
//!
//! An engine is a [`petasos::Engine`], which belongs to the thread that opened it, and is driven
//! there: by a call that blocks, or by asyncio on the engine's descriptor. It is driven without the
//! interpreter's lock. Within a pass no object of Python is used: a call that arrives is queued, and
//! handled after the pass ([`state`]). Memory of Python objects is lent as regions whose owners
//! return by a queue, so it stays exported until the network has let go of it ([`buffer`]).

mod array;
mod buffer;
mod bulk;
mod call;
mod codec;
mod decode;
mod encode;
mod engine;
mod errors;
mod exposed;
mod fork;
mod home;
mod incoming;
mod job;
mod numbers;
mod operation;
mod state;

use pyo3::prelude::*;

#[pymodule(gil_used = true)]
mod _native {
    use super::*;

    #[pymodule_export]
    use super::array::{Array, Loan};
    #[pymodule_export]
    use super::bulk::{Bulk, Remote};
    #[pymodule_export]
    use super::call::Calls;
    #[pymodule_export]
    use super::engine::Engine;
    #[pymodule_export]
    use super::incoming::Incoming;
    #[pymodule_export]
    use super::job::Job;
    #[pymodule_export]
    use super::operation::Operation;

    /// The hash by which both sides of a call compare names and signatures.
    #[pyfunction]
    fn hash_name(text: &str) -> u64 {
        petasos::wire::hash_name(text)
    }

    /// The bytes of a value, as an argument or a result has them.
    #[pyfunction]
    fn encode<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, pyo3::types::PyBytes>> {
        let mut bytes = Vec::new();
        crate::encode::encode(value, &mut bytes)?;
        Ok(pyo3::types::PyBytes::new(value.py(), &bytes))
    }

    /// The value of bytes.
    #[pyfunction]
    fn decode<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        crate::decode::decode(py, bytes, None)
    }

    #[pymodule_init]
    fn init() -> PyResult<()> {
        fork::refuse_other_interpreters()?;
        petasos::prepare();
        fork::watch();
        Ok(())
    }
}

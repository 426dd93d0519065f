//! The job that this process is a rank of.

use crate::{engine::seconds, errors};
use petasos::pmix::{
    Error, FenceOptions, GetOptions, Job as Ranks, JobError, Scope, Value, event::Range,
    message::Persistence,
};
use pyo3::{
    IntoPyObjectExt,
    exceptions::PyTypeError,
    prelude::*,
    types::{PyBool, PyBytes, PyFloat, PyInt, PyList, PyString},
};
use std::time::Duration;

/// A rank of a job of `petasos run`, `mpirun` or `mpiexec`. Any thread may use it.
#[pyclass(frozen, module = "petasos._native")]
pub(crate) struct Job(&'static Ranks);

fn failed(error: JobError) -> PyErr {
    let class = match &error {
        JobError::NoJob => "NoJobError",
        JobError::Refused(Error::FenceTimeout { .. } | Error::GetTimeout { .. }) => "JobTimeout",
        JobError::Refused(Error::LookupTimeout { .. }) => "JobTimeout",
        _ => "JobError",
    };
    errors::plain(class, &error.to_string())
}

fn value_of(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    if let Ok(truth) = object.cast::<PyBool>() {
        Ok(Value::Bool(truth.is_true()))
    } else if object.is_instance_of::<PyInt>() {
        match object.extract::<i64>() {
            Ok(number) => Ok(Value::Int(number)),
            Err(_) => Ok(Value::Uint(object.extract()?)),
        }
    } else if let Ok(number) = object.cast::<PyFloat>() {
        Ok(Value::Real(number.value()))
    } else if let Ok(text) = object.cast::<PyString>() {
        Ok(Value::Text(text.to_cow()?.into_owned()))
    } else if let Ok(bytes) = object.cast::<PyBytes>() {
        Ok(Value::Bytes(bytes.as_bytes().to_vec()))
    } else {
        let kind = object.get_type();
        let text = format!("{kind} is no value of a job: bool, int, float, str and bytes are");
        Err(PyTypeError::new_err(text))
    }
}

fn object_of(py: Python<'_>, value: Value) -> PyResult<Bound<'_, PyAny>> {
    match value {
        Value::Bool(truth) => truth.into_bound_py_any(py),
        Value::Int(number) => number.into_bound_py_any(py),
        Value::Uint(number) => number.into_bound_py_any(py),
        Value::Real(number) => number.into_bound_py_any(py),
        Value::Text(text) => text.into_bound_py_any(py),
        Value::Bytes(bytes) => Ok(PyBytes::new(py, &bytes).into_any()),
        // Lists come from this user's processes, and are not nested deep by them.
        Value::List(items) => {
            let items: Vec<_> =
                items.into_iter().map(|item| object_of(py, item)).collect::<PyResult<_>>()?;
            Ok(PyList::new(py, items)?.into_any())
        }
        other => other.to_string().into_bound_py_any(py),
    }
}

fn patience(timeout: Option<f64>) -> PyResult<Option<Duration>> {
    timeout.map(|time| seconds("timeout", time)).transpose()
}

#[pymethods]
impl Job {
    /// Joins the job, the first time.
    #[new]
    fn new(py: Python<'_>) -> PyResult<Job> {
        py.detach(petasos::job).map(Job).map_err(failed)
    }

    /// The rank of this process, from 0 on.
    #[getter]
    fn rank(&self) -> u32 {
        self.0.rank()
    }

    /// How many ranks there are.
    #[getter]
    fn size(&self) -> u32 {
        self.0.size()
    }

    /// How often this rank was started again.
    #[getter]
    fn restarts(&self) -> u32 {
        self.0.restarts()
    }

    /// The address of a rank's endpoint.
    fn peer(&self, py: Python<'_>, rank: u32) -> PyResult<String> {
        let address = py.detach(|| self.0.peer(rank)).map_err(failed)?;
        Ok(address.as_str().to_owned())
    }

    /// Puts a value on this rank's business card, for all others to get after a commit.
    fn put(&self, key: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.0.put(Scope::Global, key, value_of(value)?);
        Ok(())
    }

    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.commit()).map_err(failed)
    }

    /// A value of another rank's business card, waited for in seconds.
    fn get<'py>(
        &self,
        py: Python<'py>,
        rank: u32,
        key: &str,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let how = GetOptions { timeout: patience(timeout)?, ..GetOptions::default() };
        let value = py.detach(|| self.0.get_with(rank, key, how)).map_err(failed)?;
        object_of(py, value)
    }

    /// Waits until all ranks have called this, in seconds; with their business cards or without.
    fn fence(&self, py: Python<'_>, timeout: Option<f64>, cards: bool) -> PyResult<()> {
        let timeout = patience(timeout)?;
        let how = FenceOptions { timeout, without_cards: !cards, ..FenceOptions::default() };
        py.detach(|| self.0.fence_with(how)).map_err(failed)
    }

    /// Publishes a value for all processes of the launcher, until this one ends.
    fn publish(&self, py: Python<'_>, key: &str, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let value = value_of(value)?;
        py.detach(|| self.0.publish(key, value, Range::Session, Persistence::Process))
            .map_err(failed)
    }

    /// A published value, waited for in seconds, and the process that published it.
    fn lookup<'py>(
        &self,
        py: Python<'py>,
        key: &str,
        timeout: Option<f64>,
    ) -> PyResult<(Bound<'py, PyAny>, String)> {
        let wait = patience(timeout)?;
        let (value, owner) = py.detach(|| self.0.lookup(key, wait)).map_err(failed)?;
        Ok((object_of(py, value)?, owner.to_string()))
    }

    fn unpublish(&self, py: Python<'_>, key: &str) -> PyResult<()> {
        py.detach(|| self.0.unpublish(key)).map_err(failed)
    }

    /// Leaves the job: a rank that ends without has failed.
    fn finalize(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.finalize()).map_err(failed)
    }

    /// Ends the job, with this status and message.
    fn abort(&self, py: Python<'_>, status: i32, message: &str) -> PyResult<()> {
        py.detach(|| self.0.abort(status, message)).map_err(failed)
    }
}

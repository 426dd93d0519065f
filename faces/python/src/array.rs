//! Arrays in memory of the transport, which peers read where they lie.

use crate::{
    codec,
    decode::{self, Opener},
    errors::{self, Trouble},
    exposed,
    home::Owned,
    numbers::{self, Element},
    operation::{self, Done},
    state::{Held, State},
};
use petasos::{
    Access, BulkError, Exported, Region,
    fabric::{Key, OpError, OpErrorKind},
};
use pyo3::{exceptions::PyValueError, prelude::*, types::PyTuple};
use std::rc::Rc;

/// An array that peers read in place, until it is closed or dropped.
#[pyclass(frozen, module = "petasos._native")]
pub(crate) struct Array {
    /// What travels: its kind, shape and key.
    loan: Vec<u8>,
    element: Element,
    shape: Vec<u64>,
    region: Region,
    lent: Owned<Lent>,
}

struct Lent {
    state: Rc<State>,
    key: Option<u64>,
}

impl Drop for Lent {
    fn drop(&mut self) {
        drop(self.key.map(|key| self.state.lendings.take::<Exported>(key)));
    }
}

impl Array {
    pub(crate) fn new(state: &Rc<State>, element: Element, shape: Vec<u64>) -> PyResult<Array> {
        let bytes = numbers::bytes(element, &shape).filter(|_| shape.len() <= numbers::DIMENSIONS);
        let bytes = bytes.ok_or_else(|| PyValueError::new_err("there can be no such array"))?;
        let engine = state.engine()?;
        let mut loan = Vec::new();
        codec::put_shape(&mut loan, element, &shape);
        let (mut region, mut key) = (Region::from_vec(Vec::new()), None);
        // No transport has memory of no bytes, and no peer need reach it.
        if bytes > 0 {
            region = engine
                .alloc(bytes)
                .map_err(|error| errors::plain("TransferError", &error.to_string()))?;
            let exported = engine.export(region.clone(), Access::READ).map_err(Trouble::from)?;
            loan.extend_from_slice(exported.key().as_bytes());
            key = Some(state.lendings.add(exported));
        }
        let lent = Owned::new(&state.home, Lent { state: Rc::clone(state), key });
        Ok(Array { loan, element, shape, region, lent })
    }

    /// What travels in its place.
    pub(crate) fn loan(&self) -> &[u8] {
        &self.loan
    }
}

#[pymethods]
impl Array {
    /// The array: of numpy, or a memoryview. It may outlive this.
    fn view<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let memory = exposed::memory(py, self.region.clone(), self.element, &self.shape, true)?;
        decode::present(&memory)
    }

    /// Its length in each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// What its numbers are, as numpy names it.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.element.name()
    }

    /// Its length in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.region.len()
    }

    /// Closes it, and waits until no peer can begin to read it any more.
    fn close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let Lent { state, key } = self.lent.get()?;
        let exported = key.and_then(|key| state.lendings.take::<Exported>(key));
        let closing = exported.map(Exported::close);
        let work = async {
            if let Some(closing) = closing {
                closing.await?;
            }
            Ok(Done::Nothing)
        };
        operation::conclude(py, state, Box::pin(work))
    }
}

/// An array of a peer, to be borrowed.
#[pyclass(frozen, module = "petasos._native")]
pub(crate) struct Loan {
    loan: Vec<u8>,
    element: Element,
    shape: Vec<u64>,
    bytes: usize,
    owned: Owned<Lender>,
}

struct Lender {
    state: Rc<State>,
    /// That of the call, where it came with one.
    engine: Held<petasos::Engine>,
    /// None of an array of no bytes.
    key: Option<Key>,
}

impl Loan {
    /// What a peer sent. An error says what is wrong with it.
    pub(crate) fn new(
        opener: &Opener,
        element: Element,
        shape: Vec<u64>,
        key: &[u8],
        loan: &[u8],
    ) -> Result<Loan, String> {
        let bytes = numbers::bytes(element, &shape).ok_or("an array of no possible length")?;
        let key = match bytes {
            0 => None,
            _ => Some(Key::from_bytes(key.to_vec()).map_err(|error| error.to_string())?),
        };
        let state = Rc::clone(&opener.state);
        let home = state.home.clone();
        let owned =
            Owned::new(&home, Lender { engine: state.hold(opener.engine.clone()), state, key });
        Ok(Loan { loan: loan.to_vec(), element, shape, bytes, owned })
    }

    pub(crate) fn loan(&self) -> &[u8] {
        &self.loan
    }
}

#[pymethods]
impl Loan {
    /// Its length in each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// What its numbers are, as numpy names it.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.element.name()
    }

    /// Its length in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.bytes
    }

    /// Waits for the array, to be read where it lies, or else a copy of it, and whether it is in
    /// place.
    fn borrow(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let Lender { state, engine, key } = self.owned.get()?;
        let engine = engine.get()?;
        let (element, shape, bytes) = (self.element, self.shape.clone(), self.bytes);
        let limit = state.max_body();
        let remote = match key {
            Some(key) => Some(engine.import(key).map_err(Trouble::from)?),
            None => None,
        };
        let work = async move {
            let (region, in_place) = match remote {
                None => (Region::from_vec(Vec::new()), true),
                Some(remote) => fetch(remote, bytes, limit).await?,
            };
            Ok(Done::Array { region, element, shape, in_place })
        };
        operation::conclude(py, state, Box::pin(work))
    }
}

/// The memory itself, or a copy of it.
async fn fetch(
    remote: petasos::RemoteMemory,
    bytes: usize,
    limit: u64,
) -> Result<(Region, bool), Trouble> {
    let (len, bound) = (bytes as u64, remote.len());
    if len > bound {
        return Err(BulkError::OutOfBounds { offset: 0, len, bound }.into());
    }
    match remote.map().await {
        Ok(region) if region.len() >= bytes && region.host_ptr().is_some() => {
            return Ok((region, true));
        }
        Ok(_) => {}
        Err(BulkError::Transfer(error))
            if matches!(error.kind, OpErrorKind::Unsupported(_) | OpErrorKind::System(_)) => {}
        Err(error) => return Err(error.into()),
    }
    if len > limit {
        return Err(BulkError::TooLarge { len, limit }.into());
    }
    let region = Region::try_zeroed(bytes).map_err(|error| {
        BulkError::Transfer(OpError::local(OpErrorKind::System(error.to_string())))
    })?;
    remote.get(0, region.whole()).await?;
    Ok((region, false))
}

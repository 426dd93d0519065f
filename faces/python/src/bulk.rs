//! Memory that is lent, and that of peers.

use crate::{
    decode::Opener,
    errors::Trouble,
    home::Owned,
    operation::{self, Done, Operation, Work},
    state::{Held, State},
};
use petasos::{
    Access, BulkError, RemoteBulk,
    wire::{Encoding, to_vec},
};
use pyo3::prelude::*;
use std::rc::Rc;

/// Memory of an object that peers read or write: until it is closed or dropped.
#[pyclass(frozen, module = "petasos._native")]
pub(crate) struct Bulk {
    descriptor: Vec<u8>,
    /// Its length in bytes.
    #[pyo3(get)]
    nbytes: u64,
    lent: Owned<Lent>,
}

struct Lent {
    state: Rc<State>,
    key: u64,
}

impl Drop for Lent {
    fn drop(&mut self) {
        // The engine keeps the memory until no access can land any more.
        drop(self.state.lendings.take::<petasos::Bulk>(self.key));
    }
}

impl Bulk {
    pub(crate) fn lend(
        state: &Rc<State>,
        memory: &Bound<'_, PyAny>,
        access: Access,
    ) -> PyResult<Bulk> {
        let engine = state.engine()?;
        let slice = state.lend(memory, access.allows(Access::WRITE))?;
        let bulk = engine.bulk(slice, access).map_err(Trouble::from)?;
        // Short memory that is only read travels within the descriptor, and is free again.
        state.drain();
        let (descriptor, nbytes) = (to_vec(Encoding::Native, &bulk.handle()), bulk.len());
        let lent = Lent { state: Rc::clone(state), key: state.lendings.add(bulk) };
        Ok(Bulk { descriptor, nbytes, lent: Owned::new(&state.home, lent) })
    }

    pub(crate) fn descriptor(&self) -> &[u8] {
        &self.descriptor
    }
}

#[pymethods]
impl Bulk {
    fn __len__(&self) -> usize {
        self.nbytes as usize
    }

    /// Closes it, and waits until no access can land any more.
    fn close(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let Lent { state, key } = self.lent.get()?;
        let closing = state.lendings.take::<petasos::Bulk>(*key).map(petasos::Bulk::close);
        let work = async {
            if let Some(closing) = closing {
                closing.await?;
            }
            Ok(Done::Nothing)
        };
        operation::conclude(py, state, Box::pin(work))
    }

    /// Waits until the target has given the memory back, or it was closed.
    fn released(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let Lent { state, key } = self.lent.get()?;
        let released = state.lendings.with(*key, petasos::Bulk::released);
        let work = async {
            if let Some(released) = released {
                released.await;
            }
            Ok(Done::Nothing)
        };
        operation::conclude(py, state, Box::pin(work))
    }
}

/// Memory that a peer lends, as an argument or a result.
#[pyclass(frozen, module = "petasos._native")]
pub(crate) struct Remote {
    descriptor: Vec<u8>,
    /// Its length in bytes.
    #[pyo3(get)]
    nbytes: u64,
    /// What may be done with it: `"r"`, `"w"` or `"rw"`.
    #[pyo3(get)]
    access: &'static str,
    remote: Owned<(Rc<State>, Held<RemoteBulk>)>,
}

impl Remote {
    pub(crate) fn new(opener: &Opener, remote: RemoteBulk, descriptor: &[u8]) -> Remote {
        let access =
            match (remote.access().allows(Access::READ), remote.access().allows(Access::WRITE)) {
                (true, true) => "rw",
                (true, false) => "r",
                (false, true) => "w",
                (false, false) => "",
            };
        let state = Rc::clone(&opener.state);
        let home = state.home.clone();
        Remote {
            descriptor: descriptor.to_vec(),
            nbytes: remote.len(),
            access,
            remote: Owned::new(&home, (Rc::clone(&state), state.hold(remote))),
        }
    }

    pub(crate) fn descriptor(&self) -> &[u8] {
        &self.descriptor
    }
}

#[pymethods]
impl Remote {
    fn __len__(&self) -> usize {
        self.nbytes as usize
    }

    /// Fills the memory of an object with the peer's, from `offset` on, in bytes.
    #[pyo3(signature = (memory, offset = 0))]
    fn pull_into(
        &self,
        py: Python<'_>,
        memory: &Bound<'_, PyAny>,
        offset: u64,
    ) -> PyResult<Py<PyAny>> {
        let (state, work) = self.start_pull(memory, offset)?;
        operation::conclude(py, state, work)
    }

    /// The same: the transfer is under way when this returns.
    #[pyo3(signature = (memory, offset = 0))]
    fn begin_pull_into(&self, memory: &Bound<'_, PyAny>, offset: u64) -> PyResult<Operation> {
        let (state, work) = self.start_pull(memory, offset)?;
        Ok(Operation::new(state, work))
    }

    /// Writes the memory of an object to the peer's, at `offset`, in bytes.
    #[pyo3(signature = (memory, offset = 0))]
    fn push_from(
        &self,
        py: Python<'_>,
        memory: &Bound<'_, PyAny>,
        offset: u64,
    ) -> PyResult<Py<PyAny>> {
        let (state, work) = self.start_push(memory, offset)?;
        operation::conclude(py, state, work)
    }

    /// The same: the transfer is under way when this returns.
    #[pyo3(signature = (memory, offset = 0))]
    fn begin_push_from(&self, memory: &Bound<'_, PyAny>, offset: u64) -> PyResult<Operation> {
        let (state, work) = self.start_push(memory, offset)?;
        Ok(Operation::new(state, work))
    }

    /// Pulls `length` bytes from `offset` on, all by default, into new memory: a memoryview.
    #[pyo3(signature = (offset = 0, length = None))]
    fn pull(&self, py: Python<'_>, offset: u64, length: Option<u64>) -> PyResult<Py<PyAny>> {
        let (state, remote) = self.remote.get()?;
        let remote = remote.get()?;
        let length = length.unwrap_or(self.nbytes.saturating_sub(offset));
        let pull = remote.pull(offset, length);
        let work = async { Ok(Done::Pulled(pull.await?)) };
        operation::conclude(py, state, Box::pin(work))
    }

    /// All of it in blocks of `size` bytes, `depth` of which are on the way while one is used: an
    /// iterator, or an asynchronous one, of memoryviews, each good until the next one.
    #[pyo3(signature = (size = 1 << 20, depth = 4))]
    fn blocks<'py>(
        this: &Bound<'py, Self>,
        size: u64,
        depth: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = this.py();
        let (state, _) = this.get().remote.get()?;
        let make = state.awaitable(py);
        py.import("petasos._blocks")?.call_method1("blocks", (this, size, depth, make))
    }

    /// Gives the memory back to its owner, before the call is answered.
    fn release(&self) -> PyResult<()> {
        self.remote.get()?.1.get()?.release();
        Ok(())
    }
}

impl Remote {
    fn start_pull(&self, memory: &Bound<'_, PyAny>, offset: u64) -> PyResult<(&Rc<State>, Work)> {
        let (state, remote) = self.remote.get()?;
        let remote = remote.get()?;
        let transfer = remote.pull_into(offset, state.lend(memory, true)?);
        Ok((state, Box::pin(over(transfer))))
    }

    fn start_push(&self, memory: &Bound<'_, PyAny>, offset: u64) -> PyResult<(&Rc<State>, Work)> {
        let (state, remote) = self.remote.get()?;
        let remote = remote.get()?;
        let transfer = remote.push(offset, state.lend(memory, false)?);
        Ok((state, Box::pin(over(transfer))))
    }
}

/// A transfer without the memory that it gives back: that goes to its object.
async fn over(
    transfer: impl Future<Output = Result<petasos::Slice, BulkError>>,
) -> Result<Done, Trouble> {
    drop(transfer.await?);
    Ok(Done::Nothing)
}

//! Operations of this process, and the memory for them.

use super::{Interface, PASSES};
use crate::{Descriptor, Error, Handle, Operation, Quiet, descriptor::Bound};

/// Memory descriptors and operations.
impl Interface {
    /// Binds memory for operations of this process.
    ///
    /// # Errors
    /// [`Error::Handle`] for a stale queue or counter, [`Error::NoSpace`] beyond
    /// `limits.descriptors`, [`Error::Argument`] for the address space of the process.
    pub fn bind(&self, descriptor: Descriptor) -> Result<Handle<Descriptor>, Error> {
        if descriptor.memory.may_fault() {
            return Err(Error::Argument("the address space is no memory of a descriptor"));
        }
        let mut state = self.lock();
        state.events.check(descriptor.queue, descriptor.counter)?;
        let quiet = descriptor.quiet.with(Quiet::PORTALS_4);
        state.descriptors.bind(Bound::new(Descriptor { quiet, ..descriptor }))
    }

    /// Releases a descriptor, and gives it back. Takes in what has come first; refused while
    /// operations need the descriptor.
    ///
    /// # Errors
    /// [`Error::Handle`] if the handle is stale, [`Error::InUse`] while operations need it: try
    /// again.
    pub fn release(&self, descriptor: Handle<Descriptor>) -> Result<Descriptor, Error> {
        self.with_state(|state| {
            let mut passes = 0;
            while state.descriptors.bound(descriptor)?.is_in_use() {
                if passes >= PASSES || !state.pass() {
                    return Err(Error::InUse("the descriptor"));
                }
                passes += 1;
            }
            let bound = state.descriptors.remove(descriptor);
            Ok(bound.ok_or(Error::Handle("a descriptor"))?.spec)
        })
    }

    /// Starts an operation. Its events say how it ended.
    ///
    /// # Errors
    /// [`Error::Handle`] for a stale descriptor, [`Error::OutOfBounds`] beyond its end,
    /// [`Error::Process`] if the target is unknown, [`Error::NoSpace`] beyond `limits.operations`,
    /// [`Error::AtomicTooLong`], [`Error::ReadOnly`] or [`Error::Argument`]. The operation was not
    /// started, and no event comes.
    pub fn start(&self, operation: Operation) -> Result<(), Error> {
        self.with_state(|state| state.start(&operation))
    }

    /// Starts operations one after the other, under one lock, up to the first that is refused. All
    /// before that were started.
    ///
    /// # Errors
    /// The number of the operation that was refused, from 0, and why, as [`Interface::start`].
    pub fn start_all(
        &self,
        operations: impl IntoIterator<Item = Operation>,
    ) -> Result<(), (usize, Error)> {
        self.with_state(|state| {
            let mut numbered = operations.into_iter().enumerate();
            numbered.try_for_each(|(number, operation)| {
                state.start(&operation).map_err(|error| (number, error))
            })
        })
    }
}

//! The reader's side.

use super::number::{self, Number};
use crate::{BulkError, BulkHandle, Loan, RemoteBulk, inner::Inner};
use petasos_fabric::{OpErrorKind, Peer, Region};
use std::{fmt, marker::PhantomData, rc::Rc};

/// An array of another process, to be read: [`Engine::borrow`](crate::Engine::borrow) gives it.
/// Cheap to clone.
///
/// Read in place, it shows what its owner changes meanwhile, and two reads of a number may differ:
/// copy what has to stay ([`Borrowed::to_vec`]). A copy that was pulled does not change. It may be
/// kept for as long as one likes, also when the owner has closed the array or ended: it holds the
/// memory that it shows.
#[derive(Clone)]
pub struct Borrowed<T> {
    memory: Region,
    len: usize,
    in_place: bool,
    numbers: PhantomData<fn() -> T>,
}

impl<T: Number> Borrowed<T> {
    pub(crate) async fn open(
        inner: &Rc<Inner>,
        loan: &Loan<T>,
        from: Option<Peer>,
    ) -> Result<Borrowed<T>, BulkError> {
        let handle: &BulkHandle = loan.handle();
        let bytes = handle.len();
        let remote = RemoteBulk::open(inner, handle, from)?;
        let (memory, in_place) = match remote.map().await {
            Some(Ok(memory)) if memory.len() as u64 == bytes => (memory, true),
            Some(Err(error)) if !cannot_be_mapped(&error) => return Err(error),
            _ => (remote.pull(0, bytes).await?, false),
        };
        // What is in memory has a length of this machine.
        let len = bytes as usize / size_of::<T>();
        Ok(Borrowed { memory, len, in_place, numbers: PhantomData })
    }

    /// How many numbers it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether it is read where it lies, in memory of its owner's; if not it is a copy.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        self.in_place
    }

    /// The number at this place; `None` beyond the end.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<T> {
        (at < self.len).then(|| {
            let mut number = [T::default()];
            self.read(at, &mut number);
            number[0]
        })
    }

    /// Copies numbers out, from the place `at` on.
    ///
    /// # Panics
    /// If that is beyond its end.
    pub fn read(&self, at: usize, into: &mut [T]) {
        let end = at.checked_add(into.len()).filter(|&end| end <= self.len);
        assert!(
            end.is_some(),
            "{at}+{} is beyond the {} numbers of an array",
            into.len(),
            self.len
        );
        number::read(&self.memory, at, into);
    }

    /// Gives `look` all numbers part by part, from the first to the last: where a part begins, and
    /// a copy of it, of 8 KiB or less, which is in the nearest cache. So each line of the array is
    /// read once.
    pub fn each_part(&self, look: impl FnMut(usize, &[T])) {
        number::each_part(&self.memory, self.len, look);
    }

    /// A copy of all of it.
    #[must_use]
    pub fn to_vec(&self) -> Vec<T> {
        let mut all = vec![T::default(); self.len];
        self.read(0, &mut all);
        all
    }
}

impl<T> fmt::Debug for Borrowed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.in_place { "in place" } else { "a copy" };
        write!(f, "Borrowed({} numbers, {how})", self.len)
    }
}

/// Whether memory can be pulled nevertheless: the transport maps none, or not this one.
fn cannot_be_mapped(error: &BulkError) -> bool {
    let BulkError::Transfer(error) = error else { return false };
    matches!(error.kind, OpErrorKind::Unsupported(_) | OpErrorKind::System(_))
}

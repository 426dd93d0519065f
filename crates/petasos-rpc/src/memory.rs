//! Memory that others reach with put, get and atomics: the one-sided side of the engine.

use crate::{BulkError, inner::Inner};
use petasos_fabric::{
    Access, AtomicOp, AtomicType, Done, Key, Level, OpError, OpErrorKind, Operation, Peer, Region,
    RegionId, Remote, RemoteSpan, Slice,
};
use smallvec::{SmallVec, smallvec};
use std::rc::Rc;

/// Memory that is open to others until this is dropped or closed.
#[derive(Debug)]
pub struct Exported {
    inner: Rc<Inner>,
    region: RegionId,
    key: Key,
    closed: bool,
}

impl Exported {
    pub(crate) fn new(inner: Rc<Inner>, region: RegionId, key: Key) -> Exported {
        Exported { inner, region, key, closed: false }
    }

    /// The key to it, for others.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Closes it; afterwards no access can land any more. Dropping the future leaves that to the
    /// engine.
    ///
    /// # Errors
    /// After some seconds with [`OpErrorKind::StillReached`], which names a peer that is stopped or in the middle of a
    /// copy: the engine keeps the memory, lets nobody new in, and closes it as soon as that peer has left.
    pub async fn close(mut self) -> Result<(), BulkError> {
        self.closed = true;
        self.inner.deregister(self.region).await?;
        Ok(())
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        if !self.closed {
            self.inner.deregister_later(self.region);
        }
    }
}

/// An imported key, released when dropped.
#[derive(Debug)]
pub(crate) struct Imported {
    inner: Rc<Inner>,
    pub(crate) remote: Remote,
}

impl Drop for Imported {
    fn drop(&mut self) {
        self.inner.endpoint.borrow_mut().release(self.remote);
    }
}

impl Inner {
    /// A key that came from this peer, if anybody knows from whom.
    pub(crate) fn import(
        self: &Rc<Self>,
        key: &Key,
        from: Option<Peer>,
    ) -> Result<Imported, BulkError> {
        let mut endpoint = self.endpoint.borrow_mut();
        let remote = match from {
            Some(from) => endpoint.import_from(key, from)?,
            None => endpoint.import(key)?,
        };
        Ok(Imported { inner: Rc::clone(self), remote })
    }
}

/// Somebody else's memory, by a key that he gave.
///
/// All operations own the memory they work on and give it back; dropping a future asks for its
/// end, and the memory stays with the engine until the network let go.
#[derive(Debug)]
pub struct RemoteMemory {
    inner: Rc<Inner>,
    imported: Imported,
}

impl RemoteMemory {
    pub(crate) fn new(
        inner: Rc<Inner>,
        key: &Key,
        from: Option<Peer>,
    ) -> Result<RemoteMemory, BulkError> {
        let imported = inner.import(key, from)?;
        Ok(RemoteMemory { inner, imported })
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.imported.remote.len
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads from `offset` on, as much as `into` holds.
    pub async fn get(&self, offset: u64, into: Slice) -> Result<Slice, BulkError> {
        let remote = self.imported.remote;
        let (local, spans) = (smallvec![into.clone()], span(offset, &into));
        self.inner.operate(|token| Operation::Get { token, remote, local, spans }).await?;
        Ok(into)
    }

    /// Writes at `offset`; complete when the target's program would see it.
    pub async fn put(&self, offset: u64, from: Slice) -> Result<Slice, BulkError> {
        let remote = self.imported.remote;
        let (local, spans) = (smallvec![from.clone()], span(offset, &from));
        let level = Level::Visible;
        let put = |token| Operation::Put { token, remote, local, spans, level, event: None };
        self.inner.operate(put).await?;
        Ok(from)
    }

    /// Changes elements atomically, and gives the old values, little-endian. `compare` is for
    /// `CompareSwap`, else empty.
    pub async fn atomic(
        &self,
        offset: u64,
        op: AtomicOp,
        kind: AtomicType,
        operand: &[u8],
        compare: &[u8],
    ) -> Result<SmallVec<[u8; 16]>, BulkError> {
        let remote = self.imported.remote;
        let (operand, compare) = (operand.into(), compare.into());
        let atomic = |token| Operation::Atomic {
            token,
            remote,
            offset,
            op,
            kind,
            operand,
            compare,
            fetch: true,
        };
        match self.inner.operate(atomic).await? {
            Done::Fetched(old) => Ok(old),
            _ => Ok(SmallVec::new()),
        }
    }

    /// Maps the memory, to read it in place with no copy at all: where the transport can, and the
    /// owner took it from the transport (`Engine::alloc`). The owner may change it at any time.
    pub async fn map(&self) -> Result<Region, BulkError> {
        let remote = self.imported.remote;
        match self.inner.operate(|token| Operation::Map { token, remote }).await? {
            Done::Mapped(region) => Ok(region),
            _ => Err(OpError::local(OpErrorKind::Unsupported("mapping")).into()),
        }
    }
}

fn span(offset: u64, memory: &Slice) -> petasos_fabric::Spans {
    smallvec![RemoteSpan { offset, len: memory.len() as u64 }]
}

/// Opens memory to others.
pub(crate) fn export(
    inner: &Rc<Inner>,
    memory: &Slice,
    access: Access,
) -> Result<Exported, BulkError> {
    let (region, key) = inner.lend(memory, access)?;
    Ok(Exported::new(Rc::clone(inner), region, key))
}

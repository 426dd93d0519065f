//! Memory that peers access with put, get and atomics: the one-sided part of the engine.

use crate::{BulkError, inner::Inner, operation::Pending};
use petasos_fabric::{
    Access, AtomicOp, AtomicType, Done, Key, Level, OpError, OpErrorKind, Operation, Peer, Region,
    RegionId, Remote, RemoteSpan, Slice,
};
use smallvec::{SmallVec, smallvec};
use std::rc::Rc;

/// Memory that is open to peers until this is dropped or closed: see [`RemoteMemory`] for an
/// example.
///
/// When it is dropped, the engine keeps the memory until no remote access can land any more.
#[derive(Debug)]
pub struct Exported {
    inner: Rc<Inner>,
    memory: Slice,
    region: RegionId,
    key: Key,
    closed: bool,
}

impl Exported {
    /// The memory: what peers write to it is seen here.
    #[must_use]
    pub fn memory(&self) -> &Slice {
        &self.memory
    }

    /// The key to it, to be sent to peers.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Closes it; when the future is ready, no access can land any more. If the future is dropped,
    /// the engine closes it nevertheless.
    ///
    /// # Errors
    /// After some seconds with [`OpErrorKind::StillReached`], which names a peer that is stopped or
    /// in the middle of a copy: the engine keeps the memory, admits no new access, and closes it as
    /// soon as that peer has left.
    pub fn close(self) -> impl Future<Output = Result<(), BulkError>> + use<> {
        let closing = self.start_closing();
        async {
            closing.await?;
            Ok(())
        }
    }

    /// The same, as the fabric operation.
    pub(crate) fn start_closing(mut self) -> Pending {
        self.closed = true;
        Pending::closing(&self.inner, self.region)
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        if !self.closed {
            self.inner.deregister(self.region);
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
        self.inner.transport.release(self.remote);
    }
}

impl Imported {
    /// Imports a key, which came `from` this peer if that is known.
    pub(crate) fn new(
        inner: &Rc<Inner>,
        key: &Key,
        from: Option<Peer>,
    ) -> Result<Imported, BulkError> {
        let remote = inner.transport.import(key, from)?;
        Ok(Imported { inner: Rc::clone(inner), remote })
    }
}

/// Memory of another process, by a key that it gave.
///
/// An operation is under way when the method has returned; its future waits for the end, and gives
/// back the memory. Dropping the future cancels the operation; the engine keeps the memory until
/// the network no longer uses it.
///
/// ```
/// use petasos_rpc::{Access, Engine, EngineConfig, Region, fabric::{AtomicOp, AtomicType}};
///
/// # let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
/// # let engine = Engine::new(endpoint, EngineConfig::default());
/// let counter = Region::zeroed(8);
/// let exported = engine.export(counter.clone(), Access::ALL)?;
/// // The key travels to the other process as bytes of a call; here it stays.
/// let remote = engine.import(exported.key())?;
/// let five = 5u64.to_le_bytes();
/// let add = remote.atomic(0, AtomicOp::Sum, AtomicType::U64, &five, &[]);
/// assert_eq!(engine.block_on(add)?[..], 0u64.to_le_bytes());
/// assert_eq!(counter.to_vec(), five);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
        let imported = Imported::new(&inner, key, from)?;
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

    /// Reads from `offset` on, in bytes, as much as `into` holds.
    ///
    /// Dropping the future cancels the operation; the engine keeps the memory until the network no
    /// longer uses it.
    ///
    /// # Errors
    /// [`BulkError::Transfer`] with what the fabric says: beyond the end, without the right, the
    /// memory is closed, the peer is lost.
    pub fn get(
        &self,
        offset: u64,
        into: Slice,
    ) -> impl Future<Output = Result<Slice, BulkError>> + use<> {
        let remote = self.imported.remote;
        let (local, spans) = (smallvec![into.clone()], span(offset, &into));
        let get =
            Pending::submit(&self.inner, |token| Operation::Get { token, remote, local, spans });
        giving_back(get, into)
    }

    /// Writes all of `from` at `offset`, in bytes; complete when the owner's program would see it.
    ///
    /// Dropping the future cancels the operation; parts of the data may have arrived then.
    ///
    /// # Errors
    /// As [`RemoteMemory::get`].
    pub fn put(
        &self,
        offset: u64,
        from: Slice,
    ) -> impl Future<Output = Result<Slice, BulkError>> + use<> {
        let remote = self.imported.remote;
        let (local, spans) = (smallvec![from.clone()], span(offset, &from));
        let level = Level::Visible;
        let put = |token| Operation::Put { token, remote, local, spans, level, event: None };
        giving_back(Pending::submit(&self.inner, put), from)
    }

    /// Changes elements at `offset`, in bytes, atomically; resolves to their old values,
    /// little-endian. `operand` is one element or more; `compare` as many for `CompareSwap`, and
    /// otherwise empty.
    ///
    /// Dropping the future leaves open whether it took effect.
    ///
    /// # Errors
    /// As [`RemoteMemory::get`]; also if `offset` is not aligned to the type, or the operand is
    /// longer than `limits.max_atomic` bytes.
    pub fn atomic(
        &self,
        offset: u64,
        op: AtomicOp,
        kind: AtomicType,
        operand: &[u8],
        compare: &[u8],
    ) -> impl Future<Output = Result<SmallVec<[u8; 16]>, BulkError>> + use<> {
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
        let atomic = Pending::submit(&self.inner, atomic);
        async {
            match atomic.await? {
                Done::Fetched(old) => Ok(old),
                _ => Ok(SmallVec::new()),
            }
        }
    }

    /// Maps the memory, to read it in place without a copy: where the transport can, and the owner
    /// allocated it with [`Engine::alloc`](crate::Engine::alloc). The owner may change it at any
    /// time.
    ///
    /// Dropping the future cancels the operation.
    ///
    /// # Errors
    /// As [`RemoteMemory::get`]; [`OpErrorKind::Unsupported`] where the transport cannot map this
    /// memory.
    pub fn map(&self) -> impl Future<Output = Result<Region, BulkError>> + use<> {
        map(&self.inner, self.imported.remote)
    }
}

/// Maps memory of a peer.
pub(crate) fn map(
    inner: &Rc<Inner>,
    remote: Remote,
) -> impl Future<Output = Result<Region, BulkError>> + use<> {
    let map = Pending::submit(inner, |token| Operation::Map { token, remote });
    async {
        match map.await? {
            Done::Mapped(region) => Ok(region),
            _ => Err(OpError::local(OpErrorKind::Unsupported("mapping")).into()),
        }
    }
}

/// Waits for an operation, and gives back the memory that it worked on.
async fn giving_back(operation: Pending, memory: Slice) -> Result<Slice, BulkError> {
    operation.await?;
    Ok(memory)
}

fn span(offset: u64, memory: &Slice) -> petasos_fabric::Spans {
    smallvec![RemoteSpan { offset, len: memory.len() as u64 }]
}

/// Opens memory to peers.
pub(crate) fn export(
    inner: &Rc<Inner>,
    memory: &Slice,
    access: Access,
) -> Result<Exported, BulkError> {
    let (region, key) = inner.transport.export(memory, access)?;
    Ok(Exported { inner: Rc::clone(inner), memory: memory.clone(), region, key, closed: false })
}

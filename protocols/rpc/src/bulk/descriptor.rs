//! The origin's side of bulk transfer: memory, and its descriptor.

use super::{
    closing::{Closing, Lending, Released},
    pieces,
};
use crate::{BulkError, inner::Inner, memory::Exported};
use bytes::Bytes;
use petasos_fabric::{Access, Slice};
use petasos_macros::Wire;
use std::rc::Rc;

/// Local memory, in one piece or several ([`Pieces`](crate::Pieces)), that peers may read or write
/// until this is dropped or closed. To them the pieces are contiguous.
///
/// Keep it for as long as peers need the memory: at least until the call is answered.
/// When it is dropped, the engine keeps the memory until no access can land any more.
///
/// ```
/// use petasos_rpc::{Access, Engine, EngineConfig, Region};
///
/// # let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
/// # let engine = Engine::new(endpoint, EngineConfig::default());
/// // The side that has the memory makes a descriptor, and sends it as an argument of a call.
/// let memory = Region::from_vec(vec![7; 1 << 20]);
/// let bulk = engine.bulk(memory, Access::READ)?;
/// let handle = bulk.handle();
///
/// // The side that gets the descriptor moves the data.
/// let remote = engine.open(&handle)?;
/// let got = engine.block_on(remote.pull(1000, 24))?;
/// assert_eq!(got.to_vec(), [7; 24]);
///
/// // Afterwards no access can land any more.
/// engine.block_on(bulk.close())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Bulk {
    inner: Rc<Inner>,
    /// None if there is nothing to be reached: no bytes, or they travel within the descriptor.
    lending: Option<Rc<Lending>>,
    handle: BulkHandle,
}

/// A descriptor of bulk memory: an argument or result like others.
///
/// It may be passed on: any process that has it can reach the memory, for as long as its [`Bulk`]
/// lives. A descriptor of read-only memory of up to
/// [`EngineConfig::bulk_inline`](crate::EngineConfig::bulk_inline) bytes carries the data itself.
/// [`Engine::open`](crate::Engine::open) checks the descriptor that a peer sent.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "petasos_wire")]
pub struct BulkHandle {
    pub(super) memory: Option<Lendable>,
    /// The data itself, when it is small and only to be read.
    pub(super) inline: Option<Bytes>,
    pub(super) access: u8,
}

/// The memory that a descriptor is of.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "petasos_wire")]
pub(super) struct Lendable {
    pub(super) len: u64,
    pub(super) key: Bytes,
}

impl Bulk {
    pub(crate) fn new(inner: &Rc<Inner>, memory: Slice, access: Access) -> Result<Bulk, BulkError> {
        let (pieces, limit) = (pieces::count(&memory), inner.config.bulk_pieces);
        if pieces > limit {
            return Err(BulkError::TooManyPieces { pieces, limit });
        }
        let mut handle = BulkHandle { memory: None, inline: None, access: access.bits() };
        if access == Access::READ && memory.len() <= inner.config.bulk_inline {
            handle.inline = Some(Bytes::from(memory.to_vec()));
            return Ok(Bulk { inner: Rc::clone(inner), lending: None, handle });
        }
        let mut lending = None;
        if !memory.is_empty() {
            let open = inner.open_lending(&memory, access)?;
            handle.memory = Some(Lendable::new(memory.len(), open.key()));
            lending = Some(open);
        }
        Ok(Bulk { inner: Rc::clone(inner), lending, handle })
    }

    /// The descriptor to send to the process that moves the data.
    #[must_use]
    pub fn handle(&self) -> BulkHandle {
        self.handle.clone()
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.handle.len()
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory, piece by piece: what peers write to it is seen here. Empty if the descriptor
    /// carries the data itself, which peers only read, and once the target has given the memory
    /// back.
    pub fn pieces(&self) -> impl Iterator<Item = Slice> {
        let memory = self.lending.as_ref().and_then(|lending| lending.memory());
        memory.into_iter().flat_map(|memory| pieces::each(&memory))
    }

    /// Ready when the memory is the program's alone again: a target that has the descriptor gave it
    /// back ([`RemoteBulk::release`](crate::RemoteBulk::release)), or this was closed or dropped.
    pub fn released(&self) -> Released {
        Released::new(self.lending.clone(), &self.inner)
    }

    /// Closes it; when the future is ready, no access can land any more. If the future is dropped,
    /// the engine closes it nevertheless.
    ///
    /// # Errors
    /// As [`Exported::close`](crate::Exported::close).
    pub fn close(self) -> impl Future<Output = Result<(), BulkError>> + use<> {
        let closing = Closing::of(self.lending.clone());
        drop(self);
        closing
    }

    /// What was lent, to be closed by the engine when the call has ended to which it is lent.
    pub(super) fn into_lending(mut self) -> Option<Rc<Lending>> {
        self.lending.take()
    }
}

impl Drop for Bulk {
    fn drop(&mut self) {
        if let Some(lending) = &self.lending {
            self.inner.close_lending(lending);
        }
    }
}

impl Lendable {
    fn new(len: usize, key: &Bytes) -> Lendable {
        Lendable { len: len as u64, key: key.clone() }
    }
}

impl BulkHandle {
    /// Of no memory.
    pub(crate) fn nothing() -> BulkHandle {
        BulkHandle { memory: None, inline: None, access: Access::READ.bits() }
    }

    /// Of memory that is open for reading.
    pub(crate) fn of(exported: &Exported) -> BulkHandle {
        let memory = Lendable::new(exported.memory().len(), exported.key().as_bytes());
        BulkHandle { memory: Some(memory), ..BulkHandle::nothing() }
    }

    /// Its length in bytes, as its maker says.
    #[must_use]
    pub fn len(&self) -> u64 {
        let inline = self.inline.as_ref().map_or(0, |bytes| bytes.len() as u64);
        let memory = self.memory.as_ref().map_or(0, |memory| memory.len);
        inline.saturating_add(memory)
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

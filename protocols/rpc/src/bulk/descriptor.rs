//! The origin's side of bulk transfer: memory, and its descriptor.

use super::pieces;
use crate::{BulkError, inner::Inner, memory::Exported, operation::Pending};
use bytes::Bytes;
use petasos_fabric::{Access, Slice};
use petasos_macros::Wire;
use std::{
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

/// Local memory, in one piece or several ([`Pieces`](crate::Pieces)), that peers may read or write until this is
/// dropped or closed. To them the pieces are contiguous.
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
    exported: Option<Exported>,
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
            return Ok(Bulk { exported: None, handle });
        }
        if memory.is_empty() {
            return Ok(Bulk { exported: None, handle });
        }
        let exported = crate::memory::export(inner, &memory, access)?;
        handle.memory = Some(Lendable::of(&exported));
        Ok(Bulk { exported: Some(exported), handle })
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
    /// carries the data itself, which peers only read.
    pub fn pieces(&self) -> impl Iterator<Item = Slice> {
        self.exported.iter().flat_map(|exported| pieces::each(exported.memory()))
    }

    /// Closes it; when the future is ready, no access can land any more. If the future is dropped,
    /// the engine closes it nevertheless.
    ///
    /// # Errors
    /// As [`Exported::close`].
    pub fn close(self) -> impl Future<Output = Result<(), BulkError>> + use<> {
        self.start_closing()
    }

    pub(crate) fn start_closing(self) -> Closing {
        Closing(self.exported.map(Exported::start_closing))
    }
}

/// Bulk memory that is being closed.
#[derive(Debug)]
pub(crate) struct Closing(Option<Pending>);

impl Future for Closing {
    type Output = Result<(), BulkError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(pending) = &mut self.0 else { return Poll::Ready(Ok(())) };
        let closed = ready!(Pin::new(pending).poll(context));
        self.0 = None;
        Poll::Ready(closed.map(drop).map_err(BulkError::from))
    }
}

impl Lendable {
    fn of(exported: &Exported) -> Lendable {
        let (len, key) = (exported.memory().len() as u64, exported.key().as_bytes().clone());
        Lendable { len, key }
    }
}

impl BulkHandle {
    /// Of no memory.
    pub(crate) fn nothing() -> BulkHandle {
        BulkHandle { memory: None, inline: None, access: Access::READ.bits() }
    }

    /// Of memory that is open for reading.
    pub(crate) fn of(exported: &Exported) -> BulkHandle {
        BulkHandle { memory: Some(Lendable::of(exported)), ..BulkHandle::nothing() }
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

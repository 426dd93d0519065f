//! The origin's side of bulk transfer: memory, and its descriptor.

use crate::{BulkError, inner::Inner, memory::Exported, operation::Pending};
use bytes::Bytes;
use petasos_fabric::{Access, Slice};
use petasos_macros::Wire;
use std::{
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

/// Pieces that one bulk descriptor may have.
pub(crate) const MAX_PIECES: usize = 64;

/// Local memory, in one piece or several, that peers may read or write until this is dropped or
/// closed. To them the pieces are contiguous.
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
    exported: Vec<Exported>,
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
    pub(super) pieces: Vec<Piece>,
    /// The data itself, when it is small and only to be read.
    pub(super) inline: Option<Bytes>,
    pub(super) access: u8,
}

/// One piece of bulk memory.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
#[wire(crate = "petasos_wire")]
pub(super) struct Piece {
    pub(super) len: u64,
    pub(super) key: Bytes,
}

impl Bulk {
    pub(crate) fn new(
        inner: &Rc<Inner>,
        pieces: &[Slice],
        access: Access,
    ) -> Result<Bulk, BulkError> {
        if pieces.len() > MAX_PIECES {
            let (len, limit) = (pieces.len() as u64, MAX_PIECES as u64);
            return Err(BulkError::TooLarge { len, limit });
        }
        let total: usize = pieces.iter().map(Slice::len).sum();
        if access == Access::READ && total <= inner.config.bulk_inline {
            let inline = pieces.iter().flat_map(Slice::to_vec).collect::<Vec<u8>>();
            let inline = Some(Bytes::from(inline));
            let handle = BulkHandle { pieces: Vec::new(), inline, access: access.bits() };
            return Ok(Bulk { exported: Vec::new(), handle });
        }
        let mut handle = BulkHandle { pieces: Vec::new(), inline: None, access: access.bits() };
        let mut exported = Vec::with_capacity(pieces.len());
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            let export = crate::memory::export(inner, piece, access)?;
            let key = export.key().as_bytes().clone();
            handle.pieces.push(Piece { len: piece.len() as u64, key });
            exported.push(export);
        }
        Ok(Bulk { exported, handle })
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
    pub fn pieces(&self) -> impl Iterator<Item = &Slice> {
        self.exported.iter().map(Exported::memory)
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
        let pieces = self.exported.into_iter().map(Exported::start_closing).collect();
        Closing { pieces, next: 0, failed: None }
    }
}

/// The pieces of bulk memory that are being closed, all at a time.
#[derive(Debug)]
pub(crate) struct Closing {
    pieces: Vec<Pending>,
    next: usize,
    /// The first failure.
    failed: Option<BulkError>,
}

impl Future for Closing {
    type Output = Result<(), BulkError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        while let Some(piece) = this.pieces.get_mut(this.next) {
            if let Err(error) = ready!(Pin::new(piece).poll(context)) {
                this.failed.get_or_insert(error.into());
            }
            this.next += 1;
        }
        Poll::Ready(this.failed.take().map_or(Ok(()), Err))
    }
}

impl BulkHandle {
    /// Of no memory.
    pub(crate) fn nothing() -> BulkHandle {
        BulkHandle { pieces: Vec::new(), inline: None, access: Access::READ.bits() }
    }

    /// Of memory that is open for reading.
    pub(crate) fn of(exported: &Exported) -> BulkHandle {
        let (len, key) = (exported.memory().len() as u64, exported.key().as_bytes().clone());
        BulkHandle { pieces: vec![Piece { len, key }], ..BulkHandle::nothing() }
    }

    /// Its length in bytes, as its maker says.
    #[must_use]
    pub fn len(&self) -> u64 {
        let inline = self.inline.as_ref().map_or(0, |bytes| bytes.len() as u64);
        self.pieces.iter().fold(inline, |sum, piece| sum.saturating_add(piece.len))
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

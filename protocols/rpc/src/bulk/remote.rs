//! The target's side of bulk transfer: moving the data.

use super::{BulkHandle, descriptor::MAX_PIECES};
use crate::{BulkError, inner::Inner, memory::Imported, operation::Pending};
use bytes::Bytes;
use petasos_fabric::{Access, Key, Level, Operation, Peer, Region, RemoteSpan, Slice};
use smallvec::{SmallVec, smallvec};
use std::rc::Rc;

/// The bulk memory of a peer, open for transfers. Cheap to clone.
///
/// A transfer is under way when the method has returned; its future waits for the end, and gives
/// back the local memory. Dropping the future cancels the transfer; the engine keeps the memory
/// until the network no longer uses it.
///
/// ```
/// use petasos_rpc::{Access, Engine, EngineConfig, Region};
///
/// # let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
/// # let engine = Engine::new(endpoint, EngineConfig::default());
/// let memory = Region::zeroed(1 << 20);
/// let bulk = engine.bulk(memory.clone(), Access::WRITE)?;
///
/// let remote = engine.open(&bulk.handle())?;
/// let source = Region::from_vec(b"hello".to_vec());
/// // Ready when the owner's program would see it; the source comes back.
/// let source = engine.block_on(remote.push(100, source.whole()))?;
/// assert_eq!(source.len(), 5);
/// assert_eq!(memory.slice(100, 5).unwrap().to_vec(), b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct RemoteBulk {
    shared: Rc<Shared>,
}

#[derive(Debug)]
struct Shared {
    inner: Rc<Inner>,
    pieces: SmallVec<[(u64, Imported); 1]>,
    inline: Bytes,
    len: u64,
    access: Access,
}

/// In which direction the data moves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Pull,
    Push,
}

impl RemoteBulk {
    pub(crate) fn open(
        inner: &Rc<Inner>,
        handle: &BulkHandle,
        from: Option<Peer>,
    ) -> Result<RemoteBulk, BulkError> {
        if handle.pieces.len() > MAX_PIECES {
            let (len, limit) = (handle.pieces.len() as u64, MAX_PIECES as u64);
            return Err(BulkError::TooLarge { len, limit });
        }
        let mut pieces = SmallVec::new();
        let mut len = 0u64;
        for piece in &handle.pieces {
            let imported = Imported::new(inner, &Key::from_bytes(piece.key.clone())?, from)?;
            let bound = imported.remote.len;
            let sum = len.checked_add(piece.len).filter(|_| piece.len <= bound);
            len = sum.ok_or(BulkError::OutOfBounds { offset: 0, len: piece.len, bound })?;
            pieces.push((piece.len, imported));
        }
        let inline = handle.inline.clone().unwrap_or_default();
        if !inline.is_empty() {
            len = inline.len() as u64;
        }
        let access = Access::from_bits(handle.access).unwrap_or(Access::NONE);
        let inner = Rc::clone(inner);
        Ok(RemoteBulk { shared: Rc::new(Shared { inner, pieces, inline, len, access }) })
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.shared.len
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What may be done with it.
    #[must_use]
    pub fn access(&self) -> Access {
        self.shared.access
    }

    /// Pulls `len` bytes from `offset` on into new memory. At most
    /// [`EngineConfig::max_body`](crate::EngineConfig::max_body) bytes: use [`RemoteBulk::blocks`]
    /// for more.
    ///
    /// Dropping the future cancels the transfer; the engine keeps the memory until the network no
    /// longer uses it.
    ///
    /// # Errors
    /// [`BulkError::TooLarge`] beyond that limit, [`BulkError::OutOfBounds`] beyond the end of the
    /// bulk memory, [`BulkError::Transfer`] if the peer is lost or has closed the memory.
    pub fn pull(
        &self,
        offset: u64,
        len: u64,
    ) -> impl Future<Output = Result<Region, BulkError>> + use<> {
        let limit = self.shared.inner.config.max_body;
        let begun = match len > limit {
            true => Err(BulkError::TooLarge { len, limit }),
            false => self.check(offset, len).and_then(|()| {
                let region = Region::from_vec(vec![0; len as usize]);
                Ok((self.transfer(Direction::Pull, offset, region.whole())?, region))
            }),
        };
        async {
            let (transfer, region) = begun?;
            transfer.await?;
            Ok(region)
        }
    }

    /// Pulls from `offset` on, in bytes, as much as `into` holds.
    ///
    /// Dropping the future cancels the transfer; the engine keeps the memory until the network no
    /// longer uses it.
    ///
    /// # Errors
    /// [`BulkError::OutOfBounds`] beyond the end of the bulk memory, [`BulkError::Transfer`] if the
    /// peer is lost or has closed the memory.
    pub fn pull_into(
        &self,
        offset: u64,
        into: Slice,
    ) -> impl Future<Output = Result<Slice, BulkError>> + use<> {
        let begun = self.transfer(Direction::Pull, offset, into);
        async { begun?.await }
    }

    /// Pushes all of `from` to `offset`, in bytes; complete when the origin's program would see it.
    ///
    /// Dropping the future cancels the transfer; parts of the data may have arrived then.
    ///
    /// # Errors
    /// As [`RemoteBulk::pull_into`], and [`BulkError::ReadOnly`] if the data travelled within the
    /// descriptor.
    pub fn push(
        &self,
        offset: u64,
        from: Slice,
    ) -> impl Future<Output = Result<Slice, BulkError>> + use<> {
        let begun = self.transfer(Direction::Push, offset, from);
        async { begun?.await }
    }

    /// Local memory of the same length, zeroed, to be filled and pushed. At most
    /// `EngineConfig::max_body` bytes.
    ///
    /// # Errors
    /// [`BulkError::TooLarge`] beyond that limit.
    pub fn local(&self) -> Result<Region, BulkError> {
        let (len, limit) = (self.len(), self.shared.inner.config.max_body);
        if len > limit {
            return Err(BulkError::TooLarge { len, limit });
        }
        Ok(Region::from_vec(vec![0; len as usize]))
    }

    /// Maps all of it, to be read in place; `None` if it is not just one piece of memory.
    pub(crate) async fn map(&self) -> Option<Result<Region, BulkError>> {
        let [(len, imported)] = &self.shared.pieces[..] else { return None };
        // The key may be to more than the descriptor says.
        let remote = imported.remote;
        if remote.len != *len || !self.shared.inline.is_empty() {
            return None;
        }
        Some(crate::memory::map(&self.shared.inner, remote).await)
    }

    /// Starts a pull; the transfer is under way before the future is polled.
    pub(super) fn start_pull(&self, offset: u64, into: Slice) -> Result<Transfer, BulkError> {
        self.transfer(Direction::Pull, offset, into)
    }

    /// Starts a push.
    pub(super) fn start_push(&self, offset: u64, from: Slice) -> Result<Transfer, BulkError> {
        self.transfer(Direction::Push, offset, from)
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), BulkError> {
        let bound = self.shared.len;
        let within = offset.checked_add(len).is_some_and(|end| end <= bound);
        if within { Ok(()) } else { Err(BulkError::OutOfBounds { offset, len, bound }) }
    }

    fn transfer(
        &self,
        direction: Direction,
        offset: u64,
        memory: Slice,
    ) -> Result<Transfer, BulkError> {
        self.check(offset, memory.len() as u64)?;
        let shared = &self.shared;
        let mut parts = SmallVec::new();
        if !shared.inline.is_empty() {
            if direction == Direction::Push {
                return Err(BulkError::ReadOnly);
            }
            // Checked above: the offset is within data that is in memory.
            let from = offset as usize;
            memory.write(0, &shared.inline[from..from + memory.len()]);
            return Ok(Transfer { parts, memory, next: 0 });
        }
        let (mut at, mut done) = (offset, 0);
        for (len, imported) in &shared.pieces {
            if at >= *len {
                at -= *len;
                continue;
            }
            if done == memory.len() {
                break;
            }
            let part = (*len - at).min((memory.len() - done) as u64) as usize;
            let local = smallvec![memory.part(done, part).expect("a part of the memory")];
            let spans = smallvec![RemoteSpan { offset: at, len: part as u64 }];
            let remote = imported.remote;
            parts.push(Pending::submit(&shared.inner, |token| match direction {
                Direction::Pull => Operation::Get { token, remote, local, spans },
                Direction::Push => {
                    let level = Level::Visible;
                    Operation::Put { token, remote, local, spans, level, event: None }
                }
            }));
            done += part;
            at = 0;
        }
        Ok(Transfer { parts, memory, next: 0 })
    }
}

/// A transfer under direction: one operation a piece. Gives the memory back.
#[derive(Debug)]
pub(super) struct Transfer {
    parts: SmallVec<[Pending; 1]>,
    memory: Slice,
    next: usize,
}

impl Future for Transfer {
    type Output = Result<Slice, BulkError>;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        use std::task::Poll;
        while self.next < self.parts.len() {
            let next = self.next;
            match std::pin::Pin::new(&mut self.parts[next]).poll(context) {
                Poll::Ready(Ok(_)) => self.next += 1,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(self.memory.clone()))
    }
}

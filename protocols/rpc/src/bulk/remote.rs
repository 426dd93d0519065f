//! The target's side of bulk transfer: moving the data.

use super::BulkHandle;
use crate::{BulkError, inner::Inner, memory::Imported, operation::Pending};
use bytes::Bytes;
use petasos_fabric::{
    Access, Key, Level, OpError, OpErrorKind, Operation, Peer, Region, RemoteSpan, Slice,
};
use smallvec::smallvec;
use std::{
    cell::Cell,
    hint::black_box,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, ready},
};

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
    /// None if it has no bytes, or these travelled within the descriptor.
    memory: Option<Imported>,
    inline: Bytes,
    len: u64,
    access: Access,
    /// To be sent when the memory is given back; none if the data travelled within the descriptor.
    key: Bytes,
    released: Cell<bool>,
}

/// From so many bytes on it is seen first whether there is such memory.
const LARGE: usize = 1 << 20;

/// Zeroes, as many as a peer says: where there is no such memory, that is an error, and not the end
/// of the process.
fn zeroes(len: u64) -> Result<Region, BulkError> {
    let len = len as usize;
    let mut room = Vec::<u8>::new();
    // The optimiser would leave out what is not used.
    if len >= LARGE && black_box(&mut room).try_reserve_exact(len).is_err() {
        let none = OpErrorKind::System(format!("no memory of {len} bytes"));
        return Err(OpError::local(none).into());
    }
    drop(black_box(room));
    Ok(Region::from_vec(vec![0; len]))
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
        let (mut memory, mut len, mut key) = (None, 0, Bytes::new());
        if let Some(lent) = &handle.memory {
            let imported = Imported::new(inner, &Key::from_bytes(lent.key.clone())?, from)?;
            let bound = imported.remote.len;
            if lent.len > bound {
                return Err(BulkError::OutOfBounds { offset: 0, len: lent.len, bound });
            }
            (memory, len, key) = (Some(imported), lent.len, lent.key.clone());
        }
        let inline = handle.inline.clone().unwrap_or_default();
        if !inline.is_empty() {
            len = inline.len() as u64;
        }
        let access = Access::from_bits(handle.access).unwrap_or(Access::NONE);
        let inner = Rc::clone(inner);
        let released = Cell::new(false);
        let shared = Shared { inner, memory, inline, len, access, key, released };
        Ok(RemoteBulk { shared: Rc::new(shared) })
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
    /// bulk memory, [`BulkError::Transfer`] if the peer is lost or has closed the memory, or if there
    /// is no memory here.
    pub fn pull(
        &self,
        offset: u64,
        len: u64,
    ) -> impl Future<Output = Result<Region, BulkError>> + use<> {
        let limit = self.shared.inner.config.max_body;
        let begun = match len > limit {
            true => Err(BulkError::TooLarge { len, limit }),
            false => self.check(offset, len).and_then(|()| {
                let region = zeroes(len)?;
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
    /// [`BulkError::TooLarge`] beyond that limit, [`BulkError::Transfer`] if there is no memory.
    pub fn local(&self) -> Result<Region, BulkError> {
        let (len, limit) = (self.len(), self.shared.inner.config.max_body);
        if len > limit {
            return Err(BulkError::TooLarge { len, limit });
        }
        zeroes(len)
    }

    /// Maps all of it, to be read in place; `None` if the data travelled within the descriptor, or
    /// the key is to more.
    pub(crate) async fn map(&self) -> Option<Result<Region, BulkError>> {
        let remote = self.shared.memory.as_ref()?.remote;
        if remote.len != self.shared.len || !self.shared.inline.is_empty() {
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

    /// Gives the memory back to its owner, before the call is answered: the owner closes it now,
    /// and its program may use it again ([`Released`](crate::Released)). Whoever has the descriptor
    /// may say that, for all that have it. What is said twice, or late, changes nothing.
    ///
    /// To be called when the transfers have ended: those that are under way may fail, and those
    /// that begin afterwards fail with [`BulkError::Released`], or at the owner.
    ///
    /// ```
    /// use petasos_rpc::{Access, BulkError, Engine, EngineConfig, Region};
    ///
    /// # let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
    /// # let engine = Engine::new(endpoint, EngineConfig::default());
    /// let bulk = engine.bulk(Region::zeroed(1 << 20), Access::READ)?;
    /// let remote = engine.open(&bulk.handle())?;
    /// let data = engine.block_on(remote.pull(0, 1 << 20))?;
    /// remote.release();
    /// engine.block_on(bulk.released());
    /// let error = engine.block_on(remote.pull(0, 1)).unwrap_err();
    /// assert!(matches!(error, BulkError::Released));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn release(&self) {
        let Shared { inner, memory, key, released, .. } = &*self.shared;
        if released.replace(true) {
            return;
        }
        let Some(imported) = memory else { return };
        // What is lent by this engine itself is closed at once.
        if !inner.take_back(key) {
            inner.give_back(imported.remote.peer, key);
        }
    }

    fn check(&self, offset: u64, len: u64) -> Result<(), BulkError> {
        if self.shared.released.get() {
            return Err(BulkError::Released);
        }
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
        if !shared.inline.is_empty() {
            if direction == Direction::Push {
                return Err(BulkError::ReadOnly);
            }
            // Checked above: the offset is within data that is in memory.
            let from = offset as usize;
            memory.write(0, &shared.inline[from..from + memory.len()]);
            return Ok(Transfer { operation: None, memory });
        }
        let Some(imported) = shared.memory.as_ref().filter(|_| !memory.is_empty()) else {
            return Ok(Transfer { operation: None, memory });
        };
        let remote = imported.remote;
        let local = smallvec![memory.clone()];
        let spans = smallvec![RemoteSpan { offset, len: memory.len() as u64 }];
        let operation = Pending::submit(&shared.inner, |token| match direction {
            Direction::Pull => Operation::Get { token, remote, local, spans },
            Direction::Push => {
                let level = Level::Visible;
                Operation::Put { token, remote, local, spans, level, event: None }
            }
        });
        Ok(Transfer { operation: Some(operation), memory })
    }
}

/// A transfer under way. Gives the memory back.
#[derive(Debug)]
pub(super) struct Transfer {
    /// None if there was nothing to be moved.
    operation: Option<Pending>,
    memory: Slice,
}

impl Future for Transfer {
    type Output = Result<Slice, BulkError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(operation) = &mut self.operation {
            ready!(Pin::new(operation).poll(context))?;
            self.operation = None;
        }
        Poll::Ready(Ok(self.memory.clone()))
    }
}

/// Awaits a method. If it has to wait for anything, the memory that was pulled for it is given back
/// to the caller meanwhile. For the code that `#[service]` generates.
#[doc(hidden)]
pub async fn release_while<M: Future>(method: M, pulled: &[RemoteBulk]) -> M::Output {
    let (mut method, mut pulled) = (pin!(method), pulled.iter());
    std::future::poll_fn(|context| {
        let polled = method.as_mut().poll(context);
        if polled.is_pending() {
            pulled.by_ref().for_each(RemoteBulk::release);
        }
        polled
    })
    .await
}

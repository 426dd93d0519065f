//! Targets: the peers to which calls are made.

use crate::{
    Bulk, BulkError, Call, CallError, CallOptions, Method,
    calls::About,
    inner::Inner,
    peers::{NO_PEER, SELF},
};
use petasos_fabric::{Access, Address, Peer, Slice};
use petasos_wire::Encoding;
use std::{cell::Cell, fmt, rc::Rc};

/// The target of calls: an address, and the peer found there. Cheap to clone; belongs to its
/// engine.
///
/// When the peer is lost, its calls fail; the next call resolves the address again, and so finds a
/// server that was restarted there. [`Refused`](crate::Refused) says what happens while no process
/// listens there.
///
/// ```
/// use petasos_rpc::{CallOptions, Engine, EngineConfig, Method, serve};
///
/// # let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
/// # let engine = Engine::new(endpoint, EngineConfig::default());
/// let len = Method::named("Text::len").of::<String, u64>();
/// engine.register(len, 0, serve(|_, text: String| async move { text.len() as u64 }));
///
/// let target = engine.lookup(engine.address().as_str())?;
/// let options = CallOptions::default();
/// // Both are under way before the first is awaited.
/// let (first, second) = (
///     target.call::<_, u64>(len, &options, &"one".to_owned()),
///     target.call::<_, u64>(len, &options, &"three".to_owned()),
/// );
/// assert_eq!(engine.block_on(first)? + engine.block_on(second)?, 8);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Target {
    shared: Rc<Shared>,
}

struct Shared {
    inner: Rc<Inner>,
    address: Address,
    peer: Cell<Peer>,
}

impl Target {
    pub(crate) fn new(inner: Rc<Inner>, address: Address) -> Target {
        Target { shared: Rc::new(Shared { inner, address, peer: Cell::new(NO_PEER) }) }
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.shared.address
    }

    #[inline]
    pub(crate) fn inner(&self) -> &Rc<Inner> {
        &self.shared.inner
    }

    /// Calls a method; resolves to the bytes of the result. `arguments` appends the bytes of the
    /// arguments, in the encoding that it gets, to a buffer.
    ///
    /// The future need not be polled for the call to be under way. Dropping it cancels the call,
    /// here and at the target.
    #[inline]
    pub fn call_raw(
        &self,
        method: Method,
        options: &CallOptions,
        arguments: impl FnOnce(Encoding, &mut Vec<u8>),
    ) -> Call {
        self.call_with(method, options, 0, |encoding, out| {
            arguments(encoding, out);
            &[]
        })
    }

    /// The same with the bytes of the arguments, encoded as the options say.
    ///
    /// Dropping the future cancels the call, here and at the target.
    pub fn call_bytes(&self, method: Method, options: &CallOptions, arguments: &[u8]) -> Call {
        self.call_raw(method, options, |_, out| out.extend_from_slice(arguments))
    }

    /// The same, for about `len` bytes of arguments, the last of which may be returned instead of
    /// appended.
    #[inline]
    pub(crate) fn call_with<'a>(
        &self,
        method: Method,
        options: &CallOptions,
        len: usize,
        arguments: impl FnOnce(Encoding, &mut Vec<u8>) -> &'a [u8],
    ) -> Call {
        let timeout = options.timeout.unwrap_or(self.inner().config.timeout);
        let frame = self.inner().frames.buffer_for(len);
        let about = About { method, provider: options.provider, timeout };
        let id = self.inner().start(self, about, options, frame, arguments);
        Call::new(self.clone(), id)
    }

    /// Makes a one-way call: there is no answer. The handler runs at most once, and not at all if
    /// the target is busy. An error means that the call was not sent.
    ///
    /// # Errors
    /// [`CallError::Unresolved`] if the address is not for this transport, [`CallError::TooLarge`]
    /// if the arguments do not fit a message, [`CallError::Busy`] if
    /// [`EngineConfig::queue_per_peer`](crate::EngineConfig::queue_per_peer) frames wait for the
    /// peer. No error says whether it arrived.
    pub fn notify_raw(
        &self,
        method: Method,
        options: &CallOptions,
        arguments: impl FnOnce(Encoding, &mut Vec<u8>),
    ) -> Result<(), CallError> {
        self.inner().start_one_way(self, &method, options, arguments)
    }

    /// Lends memory to a call of `method`, which is named in the error.
    ///
    /// # Errors
    /// [`CallError::Transfer`] if the memory cannot be registered; [`CallError::TooLarge`] for more
    /// pieces than [`EngineConfig::bulk_pieces`](crate::EngineConfig::bulk_pieces).
    pub fn lend(&self, method: Method, memory: Slice, access: Access) -> Result<Bulk, CallError> {
        Bulk::new(self.inner(), memory, access).map_err(|error| {
            let (peer, method, reason) = (self.address().clone(), method.name, error.to_string());
            match error {
                BulkError::TooManyPieces { .. } => CallError::TooLarge { peer, method, reason },
                _ => CallError::Transfer { peer, method, reason },
            }
        })
    }

    /// The peer that was resolved last: it may have been lost meanwhile, or there may be none.
    #[inline]
    pub(crate) fn last_peer(&self) -> Peer {
        self.shared.peer.get()
    }

    /// The peer that is called, which has a record.
    pub(crate) fn peer(&self, method: &Method) -> Result<Peer, CallError> {
        let peer = self.last_peer();
        if self.inner().peers.borrow().knows(peer) {
            return Ok(peer);
        }
        self.find(method)
    }

    #[cold]
    fn find(&self, method: &Method) -> Result<Peer, CallError> {
        let (inner, address) = (self.inner(), self.address());
        let peer = if *address == inner.address {
            SELF
        } else {
            inner.resolve(address).map_err(|error| CallError::Unresolved {
                peer: address.clone(),
                method: method.name,
                reason: error.to_string(),
            })?
        };
        let mut peers = inner.peers.borrow_mut();
        if !peers.knows(peer) {
            peers.add(peer, address.clone());
        }
        self.shared.peer.set(peer);
        Ok(peer)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({})", self.address())
    }
}

//! Memory that is lent: open until its owner closes it, or the target gives it back.

use crate::{BulkError, inner::Inner};
use bytes::Bytes;
use petasos_fabric::{Access, OpError, RegionId, Slice};
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    fmt, mem,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

/// Memory that peers reach by a key. It knows nothing of the engine, which holds it until it is
/// closed.
#[derive(Debug)]
pub(crate) struct Lending {
    region: RegionId,
    key: Bytes,
    phase: Cell<Phase>,
    /// Until it is closed.
    memory: RefCell<Option<Slice>>,
    /// Why it could not be closed yet, or was not there any more.
    failed: RefCell<Option<OpError>>,
    wakers: RefCell<Vec<Waker>>,
}

/// In order: none is left for one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// The key is revoked, or soon is; an access may still be under way.
    Closing,
    Closed,
}

impl Lending {
    pub(super) fn key(&self) -> &Bytes {
        &self.key
    }

    /// The memory, until it is closed.
    pub(super) fn memory(&self) -> Option<Slice> {
        self.memory.borrow().clone()
    }

    /// A peer still reaches it: the engine goes on.
    pub(crate) fn still_reached(&self, error: OpError) {
        *self.failed.borrow_mut() = Some(error);
        self.wake();
    }

    /// No access can land any more.
    pub(crate) fn closed(&self, error: Option<OpError>) {
        self.phase.set(Phase::Closed);
        *self.failed.borrow_mut() = error;
        drop(self.memory.take());
        self.wake();
    }

    fn wake(&self) {
        mem::take(&mut *self.wakers.borrow_mut()).into_iter().for_each(Waker::wake);
    }

    fn is_closed(&self) -> bool {
        self.phase.get() == Phase::Closed
    }

    /// Whether a wait for its end is over: it is closed, or a peer still reaches it.
    pub(super) fn is_settled(&self) -> bool {
        self.is_closed() || self.failed.borrow().is_some()
    }

    /// Has the waker woken when anything becomes known of its end.
    fn wait(&self, waker: &Waker) {
        let mut wakers = self.wakers.borrow_mut();
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
        }
    }
}

/// What is lent and open, by key.
#[derive(Debug, Default)]
pub(crate) struct Lendings(RefCell<HashMap<Bytes, Rc<Lending>>>);

impl Lendings {
    fn add(&self, lending: &Rc<Lending>) {
        self.0.borrow_mut().insert(lending.key.clone(), Rc::clone(lending));
    }

    fn remove(&self, key: &[u8]) -> Option<Rc<Lending>> {
        self.0.borrow_mut().remove(key)
    }
}

impl Inner {
    /// Opens memory to peers.
    pub(super) fn open_lending(
        &self,
        memory: &Slice,
        access: Access,
    ) -> Result<Rc<Lending>, BulkError> {
        let (region, key) = self.transport.export(memory, access)?;
        let lending = Rc::new(Lending {
            region,
            key: key.as_bytes().clone(),
            phase: Cell::new(Phase::Open),
            memory: RefCell::new(Some(memory.clone())),
            failed: RefCell::default(),
            wakers: RefCell::default(),
        });
        self.lendings.add(&lending);
        Ok(lending)
    }

    /// Closes it, unless that was begun. The engine finishes that by itself.
    pub(crate) fn close_lending(&self, lending: &Rc<Lending>) {
        if lending.phase.get() == Phase::Open {
            lending.phase.set(Phase::Closing);
            self.lendings.remove(&lending.key);
            self.operations.close(&self.transport, lending.region, Some(Rc::clone(lending)));
        }
    }

    /// A peer says that it is done with the memory that this key is to. Who has a key may use the
    /// memory, and so may say that; its word counts for no more than that the memory is closed now,
    /// as it is at the end of the call. False if there is no such memory, or not any more.
    pub(crate) fn take_back(&self, key: &[u8]) -> bool {
        let Some(lending) = self.lendings.remove(key) else {
            let given = self.given.take_back(key);
            if given {
                self.stats.lent_released.count();
            }
            return given;
        };
        self.stats.lent_released.count();
        self.close_lending(&lending);
        true
    }
}

/// Bulk memory that is being closed: ready when it is, or with an error when a peer still reaches
/// it after a while.
#[derive(Debug)]
pub(crate) struct Closing(Option<Rc<Lending>>);

impl Closing {
    /// Waits for the end of this, which another thread begins.
    pub(super) fn of(lending: Option<Rc<Lending>>) -> Closing {
        Closing(lending)
    }
}

impl Future for Closing {
    type Output = Result<(), BulkError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(lending) = &self.0 else { return Poll::Ready(Ok(())) };
        if let Some(error) = &*lending.failed.borrow() {
            return Poll::Ready(Err(error.clone().into()));
        }
        if lending.is_closed() {
            return Poll::Ready(Ok(()));
        }
        lending.wait(context.waker());
        Poll::Pending
    }
}

/// Ready when memory that was lent is the program's alone again: when its target has given it back
/// ([`RemoteBulk::release`](crate::RemoteBulk::release)), or else the call or the [`Bulk`] has
/// ended, and no access can land any more. [`BulkCall::released`] and [`Bulk::released`] give it.
///
/// It need not be polled, and dropping it changes nothing. A peer that is stopped in the middle of
/// an access delays it until that peer has left.
///
/// [`Bulk`]: crate::Bulk
/// [`Bulk::released`]: crate::Bulk::released
/// [`BulkCall::released`]: crate::BulkCall::released
///
/// ```
/// use petasos_rpc::{Context, Engine, EngineConfig, Region, service};
/// use std::time::Duration;
///
/// #[service]
/// trait Archive {
///     /// Data that is pulled is given back as soon as the method has to wait.
///     async fn store(&self, context: Context, #[bulk(pull)] data: Region) -> u64;
/// }
///
/// struct Slow;
///
/// impl Archive for Slow {
///     async fn store(&self, context: Context, data: Region) -> u64 {
///         context.engine().sleep(Duration::from_millis(20)).await;
///         data.len() as u64
///     }
/// }
///
/// # let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
/// let engine = Engine::new(endpoint, EngineConfig::default());
/// Slow.serve(&engine, 0)?;
/// let archive = ArchiveClient::new(&engine, engine.address());
///
/// let data = Region::from_vec(vec![1; 100_000]);
/// let call = archive.store(data.clone());
/// engine.block_on(call.released(0));
/// assert!(!call.is_ready());
/// // The next step of a computation may write here, while the call is still under way.
/// let mut memory = data.into_exclusive().expect("it is ours alone");
/// memory.fill(2);
/// assert_eq!(engine.block_on(call)?, 100_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "it says when the memory may be used again"]
pub struct Released {
    lending: Option<Rc<Lending>>,
    /// What is awaited goes on as long as there is an engine.
    _engine: Rc<Inner>,
}

impl Released {
    pub(super) fn new(lending: Option<Rc<Lending>>, engine: &Rc<Inner>) -> Released {
        Released { lending, _engine: Rc::clone(engine) }
    }

    /// Whether the memory is the program's alone again. The engine has to be driven for that to
    /// change.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.lending.as_ref().is_none_or(|lending| lending.is_closed())
    }
}

impl Future for Released {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match self.lending.as_ref().filter(|lending| !lending.is_closed()) {
            None => Poll::Ready(()),
            Some(lending) => {
                lending.wait(context.waker());
                Poll::Pending
            }
        }
    }
}

impl fmt::Debug for Released {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Released({})", self.is_ready())
    }
}

//! Submitting from other threads: a queue beside the endpoint, and its notifier.

use crate::{Endpoint, Notifier, Operation, Token};
use std::{
    collections::{HashSet, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

/// The `Send + Sync` handle: operations pushed here are submitted by the thread that drives the
/// endpoint, which is woken if it sleeps. Their completions come out there, too.
#[derive(Clone, Debug)]
pub struct Submitter {
    shared: Arc<Shared>,
    notifier: Notifier,
}

/// Operations that wait to be submitted at a time.
const MOST: usize = 65_536;

/// Why an operation was not handed over, with the operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotSubmitted {
    /// 65,536 operations wait for the driver: try again later.
    #[error("{MOST} operations wait for the driver")]
    Full(Operation),
    /// The driver has ended.
    #[error("the driver is gone")]
    Gone(Operation),
}

impl NotSubmitted {
    /// The operation.
    #[must_use]
    pub fn into_operation(self) -> Operation {
        match self {
            NotSubmitted::Full(operation) | NotSubmitted::Gone(operation) => operation,
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    operations: VecDeque<Operation>,
    /// Each once.
    cancels: HashSet<Token>,
    /// Operations that the driver has taken, and the endpoint had no room for.
    waiting: usize,
    closed: bool,
}

impl Submitter {
    /// Hands over an operation. At most 65,536 wait at a time, those included for which the
    /// endpoint has no room.
    ///
    /// # Errors
    /// If there are so many, or if the driver has ended; then the operation comes back.
    pub fn submit(&self, operation: Operation) -> Result<(), NotSubmitted> {
        let mut queue = self.shared.lock();
        if queue.closed {
            return Err(NotSubmitted::Gone(operation));
        }
        if queue.operations.len() + queue.waiting >= MOST {
            return Err(NotSubmitted::Full(operation));
        }
        queue.operations.push_back(operation);
        drop(queue);
        self.notifier.notify();
        Ok(())
    }

    /// Asks that the operation with this token end soon.
    pub fn cancel(&self, token: Token) {
        self.shared.lock().cancels.insert(token);
        self.notifier.notify();
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The driver's side: call [`Handoff::drain`] before each `progress`, and do not sleep while it
/// says that something is left.
///
/// ```
/// use petasos_fabric::{Access, Endpoint, Handoff, Operation, Region, Token};
/// use std::time::Duration;
///
/// let mut endpoint = petasos_self::Local::open(&"self://*".parse()?)?;
/// let region = endpoint.register(&Region::zeroed(8).whole(), Access::READ)?;
/// let mut handoff = Handoff::new(&endpoint);
/// let submitter = handoff.submitter();
/// let close = Operation::Deregister { token: Token(1), region, patience: Duration::from_secs(1) };
/// let other = std::thread::spawn(move || submitter.submit(close));
/// other.join().expect("the thread does not panic")?;
/// // The thread that drives submits them, before each pass.
/// let all_taken = !handoff.drain(&mut endpoint);
/// assert!(all_taken);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Handoff {
    submitter: Submitter,
    waiting: VecDeque<Operation>,
}

impl Handoff {
    /// A queue for this endpoint.
    #[must_use]
    pub fn new(endpoint: &dyn Endpoint) -> Handoff {
        let shared = Arc::new(Shared::default());
        let submitter = Submitter { shared, notifier: endpoint.notifier() };
        Handoff { submitter, waiting: VecDeque::new() }
    }

    /// A handle for other threads.
    #[must_use]
    pub fn submitter(&self) -> Submitter {
        self.submitter.clone()
    }

    /// Submits the operations of other threads, and then their requests to cancel. True if
    /// the endpoint had no room for all: progress, and drain again.
    pub fn drain(&mut self, endpoint: &mut dyn Endpoint) -> bool {
        let mut queue = self.submitter.shared.lock();
        self.waiting.append(&mut queue.operations);
        let cancels = std::mem::take(&mut queue.cancels);
        // So many as it holds until the endpoint has taken some.
        let before = self.waiting.len();
        queue.waiting = before;
        drop(queue);
        if !self.waiting.is_empty() {
            endpoint.submit(&mut self.waiting);
        }
        for token in cancels {
            endpoint.cancel(token);
        }
        let left = self.waiting.len();
        if left != before {
            self.submitter.shared.lock().waiting = left;
        }
        left > 0
    }
}

impl Drop for Handoff {
    fn drop(&mut self) {
        let mut queue = self.submitter.shared.lock();
        queue.closed = true;
        queue.operations.clear();
    }
}

//! Submitting from other threads: a queue beside the endpoint, and its notifier.

use crate::{Endpoint, Notifier, Operation, Token};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

/// The `Send + Sync` handle: operations pushed here are submitted by the thread that drives the
/// endpoint, which is woken if it sleeps. Their completions come out there, too.
#[derive(Clone, Debug)]
pub struct Submitter {
    shared: Arc<Shared>,
    notifier: Notifier,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    operations: VecDeque<Operation>,
    cancels: Vec<Token>,
    closed: bool,
}

impl Submitter {
    /// Hands over an operation; gives it back when the driver is gone.
    pub fn submit(&self, operation: Operation) -> Result<(), Operation> {
        let mut queue = self.shared.lock();
        if queue.closed {
            return Err(operation);
        }
        queue.operations.push_back(operation);
        drop(queue);
        self.notifier.notify();
        Ok(())
    }

    /// Asks that the operation with this token end soon.
    pub fn cancel(&self, token: Token) {
        self.shared.lock().cancels.push(token);
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

    /// Submits what came from other threads, and then passes on their wishes to cancel. True if
    /// the endpoint had no room for all: progress, and drain again.
    pub fn drain(&mut self, endpoint: &mut dyn Endpoint) -> bool {
        let mut queue = self.submitter.shared.lock();
        self.waiting.append(&mut queue.operations);
        let cancels = std::mem::take(&mut queue.cancels);
        drop(queue);
        if !self.waiting.is_empty() {
            endpoint.submit(&mut self.waiting);
        }
        for token in cancels {
            endpoint.cancel(token);
        }
        !self.waiting.is_empty()
    }
}

impl Drop for Handoff {
    fn drop(&mut self) {
        let mut queue = self.submitter.shared.lock();
        queue.closed = true;
        queue.operations.clear();
    }
}

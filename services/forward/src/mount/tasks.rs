//! The tasks of a mount on its engine's thread: how many run, and how much of what they do is at
//! the server at a time.

use crate::semaphore::{Permit, Semaphore};
use futures_channel::oneshot;
use std::{
    cell::{Cell, RefCell},
    sync::Arc,
};

/// Counts the tasks of a mount, and bounds what they ask of the server.
pub(super) struct Tasks {
    requests: Arc<Semaphore>,
    transfers: Arc<Semaphore>,
    running: Cell<usize>,
    /// Dropped when none runs any more.
    quiet: RefCell<Option<oneshot::Sender<()>>>,
}

impl Tasks {
    /// Where the server takes so many calls at a time: a third of them move blocks.
    pub(super) fn new(calls: usize) -> Tasks {
        Tasks {
            requests: Semaphore::new(calls - calls / 3, usize::MAX),
            transfers: Semaphore::new(calls / 3, usize::MAX),
            running: Cell::default(),
            quiet: RefCell::default(),
        }
    }

    /// Waits until another request may be at the server. `None` never comes: any number may wait.
    pub(super) async fn request(&self) -> Option<Permit> {
        self.requests.acquire().await
    }

    /// Waits until another block may be on its way.
    pub(super) async fn transfer(&self) -> Option<Permit> {
        self.transfers.acquire().await
    }

    /// A task begins.
    pub(super) fn begin(&self) {
        self.running.set(self.running.get() + 1);
    }

    /// A task has ended. True if no other one runs.
    pub(super) fn end(&self) -> bool {
        self.running.set(self.running.get() - 1);
        let quiet = self.running.get() == 0;
        if quiet {
            self.quiet.take();
        }
        quiet
    }

    /// Waits until none runs any more.
    pub(super) async fn quiet(&self) {
        while self.running.get() > 0 {
            let (sender, quiet) = oneshot::channel();
            self.quiet.replace(Some(sender));
            let _ = quiet.await;
        }
    }
}

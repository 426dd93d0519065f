//! Threads that one object starts, and waits for at its end.

use std::{
    io,
    sync::{Mutex, PoisonError},
    thread::{Builder, JoinHandle, current},
};

/// The threads of one object.
#[derive(Debug, Default)]
pub(crate) struct Threads(Mutex<Vec<JoinHandle<()>>>);

impl Threads {
    /// Starts one more.
    pub(crate) fn start(
        &self,
        name: String,
        run: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let thread = Builder::new().name(name).spawn(run)?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
        Ok(())
    }

    /// Waits until they have ended, once they were told to: but for the calling one, which may be
    /// the last to use their object.
    pub(crate) fn join(&self) {
        let threads = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads.into_iter().filter(|thread| thread.thread().id() != current().id()) {
            // A panic has been reported by the thread.
            let _ = thread.join();
        }
    }
}

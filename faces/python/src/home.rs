//! Values that belong to one thread, held by Python objects, which may be dropped by any.
//!
//! An engine and all that is of it belong to the thread that made it. The interpreter drops an
//! object wherever its last reference goes, or a cycle is collected. So what an object holds goes
//! home to be dropped: it waits there until its engine is driven the next time.

use crate::{errors, fork};
use petasos::EngineHandle;
use pyo3::PyResult;
use std::{
    any::Any,
    mem::ManuallyDrop,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    thread::{self, ThreadId},
};

/// The thread of an engine, in the process that opened it.
pub(crate) struct Home {
    thread: ThreadId,
    forks: u64,
    /// `None` once the engine is closed: what comes then is leaked.
    strays: Mutex<Option<Vec<Stray>>>,
    engine: OnceLock<EngineHandle>,
}

/// A value on its way home.
struct Stray(#[expect(dead_code, reason = "dropped at home")] Box<dyn Any>);

// SAFETY: no other thread uses the value: `Owned` put it here, and only `Home::welcome` and
// `Home::close`, which check the thread, take it out. A `Home` that is dropped before was closed or
// holds none; see `Home::drop`.
unsafe impl Send for Stray {}

impl Home {
    pub(crate) fn here() -> Arc<Home> {
        fork::watch();
        Arc::new(Home {
            thread: thread::current().id(),
            forks: fork::generation(),
            strays: Mutex::new(Some(Vec::new())),
            engine: OnceLock::new(),
        })
    }

    /// The engine that is woken when something comes home.
    pub(crate) fn set_engine(&self, engine: EngineHandle) {
        let _ = self.engine.set(engine);
    }

    /// Checks that this is the engine's thread, and its process.
    #[inline]
    pub(crate) fn check(&self) -> PyResult<()> {
        if fork::generation() != self.forks {
            return Err(errors::forked());
        }
        match thread::current().id() == self.thread {
            true => Ok(()),
            false => Err(errors::wrong_thread()),
        }
    }

    fn is_here(&self) -> bool {
        fork::generation() == self.forks && thread::current().id() == self.thread
    }

    fn strays(&self) -> MutexGuard<'_, Option<Vec<Stray>>> {
        self.strays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops what other threads have sent home. To be called there.
    pub(crate) fn welcome(&self) {
        if !self.is_here() {
            return;
        }
        let strays = match self.strays().as_mut() {
            Some(strays) if !strays.is_empty() => std::mem::take(strays),
            _ => return,
        };
        drop(strays);
    }

    /// The same, for the last time.
    pub(crate) fn close(&self) {
        if self.is_here() {
            let strays = self.strays().take();
            drop(strays);
        }
    }

    fn send(&self, value: Box<dyn Any>) {
        let mut strays = self.strays();
        // In a child that was forked the value is a copy whose thread is not there.
        match strays.as_mut().filter(|_| fork::generation() == self.forks) {
            Some(strays) => strays.push(Stray(value)),
            None => std::mem::forget(value),
        }
        drop(strays);
        if let Some(engine) = self.engine.get().filter(|_| fork::generation() == self.forks) {
            drop(engine.run(|_| async {}));
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // The thread has ended without having closed it: none is right for these.
        let strays = self.strays.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        std::mem::forget(strays);
    }
}

/// A value of one thread, in an object of any.
pub(crate) struct Owned<T: 'static> {
    home: Arc<Home>,
    value: ManuallyDrop<T>,
}

// SAFETY: the value is reached by `get`, which checks the thread, and dropped there: `drop` sends
// it home from any other.
unsafe impl<T> Send for Owned<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Owned<T> {}

impl<T> Owned<T> {
    /// To be called at home.
    pub(crate) fn new(home: &Arc<Home>, value: T) -> Owned<T> {
        debug_assert!(home.is_here());
        Owned { home: Arc::clone(home), value: ManuallyDrop::new(value) }
    }

    /// The value, on its thread; elsewhere an error that says so.
    #[inline]
    pub(crate) fn get(&self) -> PyResult<&T> {
        self.home.check()?;
        Ok(&self.value)
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: this is the only place where it is taken, and it is not used afterwards.
        let value = unsafe { ManuallyDrop::take(&mut self.value) };
        match self.home.is_here() {
            true => drop(value),
            false => self.home.send(Box::new(value)),
        }
    }
}

//! Futures that the engine polls: handlers that wait, transfers, what users spawn.

use futures_util::{Stream, stream::FuturesUnordered};
use petasos_fabric::driver::Kick;
use std::{
    cell::RefCell,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

pub(crate) type Task = Pin<Box<dyn Future<Output = ()>>>;

pub(crate) struct Tasks {
    running: RefCell<FuturesUnordered<Task>>,
    /// Spawned while others run.
    fresh: RefCell<Vec<Task>>,
    kick: Arc<Kick>,
    /// The same, as futures know it.
    waker: Waker,
}

impl Tasks {
    /// Tasks of the engine that this wakes.
    pub(crate) fn new(kick: Arc<Kick>) -> Tasks {
        let (running, fresh) = (RefCell::default(), RefCell::default());
        Tasks { running, fresh, waker: Waker::from(Arc::clone(&kick)), kick }
    }

    /// Adds a task, and wakes the engine to run it.
    pub(crate) fn spawn(&self, task: Task) {
        self.fresh.borrow_mut().push(task);
        self.kick.ring();
    }

    pub(crate) fn len(&self) -> usize {
        self.running.try_borrow().map_or(1, |running| running.len()) + self.fresh.borrow().len()
    }

    /// Polls what is ready, about `budget` times at most. What is left makes the engine wake again.
    pub(crate) fn run(&self, budget: usize) {
        // Not to be entered by a task that drives the engine.
        let Ok(mut running) = self.running.try_borrow_mut() else { return };
        running.extend(self.fresh.borrow_mut().drain(..));
        let _others = RingOnPanic(&self.kick);
        let mut context = Context::from_waker(&self.waker);
        for _ in 0..budget {
            match Pin::new(&mut *running).poll_next(&mut context) {
                Poll::Ready(Some(())) => {}
                Poll::Ready(None) | Poll::Pending => return,
            }
            running.extend(self.fresh.borrow_mut().drain(..));
        }
        self.kick.ring();
    }

    /// Drops all tasks.
    pub(crate) fn clear(&self) {
        self.fresh.borrow_mut().clear();
        if let Ok(mut running) = self.running.try_borrow_mut() {
            running.clear();
        }
    }
}

/// A task's panic must not make the others wait that were ready as well.
struct RingOnPanic<'a>(&'a Kick);

impl Drop for RingOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.ring();
        }
    }
}

//! A gate that lets so many in at a time: a server refuses more calls than a session may have.

use futures_channel::oneshot;
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
};

/// Lets so many in; who comes later waits in line.
pub(super) struct Gate {
    free: Cell<usize>,
    line: RefCell<VecDeque<oneshot::Sender<()>>>,
}

/// Leave to be inside, until it is dropped.
pub(super) struct Pass<'a>(&'a Gate);

impl Gate {
    pub(super) fn new(most: usize) -> Gate {
        Gate { free: Cell::new(most.max(1)), line: RefCell::default() }
    }

    /// Waits for leave to enter.
    pub(super) async fn enter(&self) -> Pass<'_> {
        if self.free.get() == 0 {
            let (sender, turn) = oneshot::channel();
            self.line.borrow_mut().push_back(sender);
            // Who leaves hands his place on.
            if turn.await.is_ok() {
                return Pass(self);
            }
        }
        self.free.set(self.free.get().saturating_sub(1));
        Pass(self)
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        loop {
            let Some(next) = self.0.line.borrow_mut().pop_front() else { break };
            if next.send(()).is_ok() {
                return;
            }
        }
        self.0.free.set(self.0.free.get() + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn so_many_in_order() {
        let gate = Gate::new(2);
        let first = gate.enter().now_or_never().unwrap();
        let _second = gate.enter().now_or_never().unwrap();
        let mut third = Box::pin(gate.enter());
        let mut fourth = Box::pin(gate.enter());
        assert!(third.as_mut().now_or_never().is_none());
        assert!(fourth.as_mut().now_or_never().is_none());
        // One who no longer waits takes nothing along.
        drop(third);
        drop(first);
        let fourth = fourth.now_or_never().unwrap();
        assert!(gate.enter().now_or_never().is_none());
        drop(fourth);
        assert!(gate.enter().now_or_never().is_some());
    }
}

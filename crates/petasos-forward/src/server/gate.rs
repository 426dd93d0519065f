//! A gate that lets so many in at a time; who comes later waits in line.

use futures_channel::oneshot;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Lets `most` in at a time.
#[derive(Debug)]
pub(super) struct Gate {
    state: Mutex<State>,
    line: usize,
}

#[derive(Debug)]
struct State {
    free: usize,
    waiting: VecDeque<oneshot::Sender<Pass>>,
}

/// Leave to be inside. Dropping it lets the next one in.
#[derive(Debug)]
pub(super) struct Pass(Arc<Gate>);

impl Gate {
    /// A gate for `most` inside, and at most `line` who wait.
    pub(super) fn new(most: usize, line: usize) -> Arc<Gate> {
        let state = State { free: most.max(1), waiting: VecDeque::new() };
        Arc::new(Gate { state: Mutex::new(state), line })
    }

    /// Waits for leave to enter; `None` if the line is full. Dropping the future leaves the line.
    pub(super) async fn enter(self: &Arc<Self>) -> Option<Pass> {
        let receiver = {
            let mut state = self.lock();
            if state.free > 0 {
                state.free -= 1;
                return Some(Pass(Arc::clone(self)));
            }
            if state.waiting.len() >= self.line {
                state.waiting.retain(|sender| !sender.is_canceled());
                if state.waiting.len() >= self.line {
                    return None;
                }
            }
            let (sender, receiver) = oneshot::channel();
            state.waiting.push_back(sender);
            receiver
        };
        receiver.await.ok()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        let next = loop {
            match state.waiting.pop_front() {
                Some(sender) if sender.is_canceled() => {}
                Some(sender) => break sender,
                None => {
                    state.free += 1;
                    return;
                }
            }
        };
        drop(state);
        // Who left the line this very moment drops the pass, and so lets the next one in.
        drop(next.send(Pass(Arc::clone(&self.0))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn in_order_and_whoever_leaves_the_line_takes_nothing_along() {
        let gate = Gate::new(1, 2);
        let first = gate.enter().now_or_never().unwrap().unwrap();
        let mut second = Box::pin(gate.enter());
        let mut third = Box::pin(gate.enter());
        assert!(second.as_mut().now_or_never().is_none());
        assert!(third.as_mut().now_or_never().is_none());
        assert!(gate.enter().now_or_never().unwrap().is_none(), "the line is full");
        drop(second);
        drop(first);
        let third = third.now_or_never().unwrap().unwrap();
        let mut fourth = Box::pin(gate.enter());
        assert!(fourth.as_mut().now_or_never().is_none());
        drop(third);
        // It has the pass, and never hears of it.
        drop(fourth);
        assert!(gate.enter().now_or_never().unwrap().is_some());
    }
}

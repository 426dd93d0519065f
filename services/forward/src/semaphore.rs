//! A counting semaphore of futures: so many go on at a time, the others wait in order.

use futures_channel::oneshot;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// So many permits; futures that wait get them in the order in which they came.
#[derive(Debug)]
pub(crate) struct Semaphore {
    state: Mutex<State>,
    most_waiting: usize,
}

#[derive(Debug)]
struct State {
    free: usize,
    waiting: VecDeque<oneshot::Sender<Permit>>,
}

/// A permit. Dropping it gives it to the next that waits.
#[derive(Debug)]
pub(crate) struct Permit(Arc<Semaphore>);

impl Semaphore {
    /// As many permits, at least one, for which no more than `most_waiting` futures wait.
    pub(crate) fn new(permits: usize, most_waiting: usize) -> Arc<Semaphore> {
        let state = State { free: permits.max(1), waiting: VecDeque::new() };
        Arc::new(Semaphore { state: Mutex::new(state), most_waiting })
    }

    /// Waits for a permit; `None` if too many wait. Dropping the future ends the wait.
    pub(crate) async fn acquire(self: &Arc<Self>) -> Option<Permit> {
        let receiver = {
            let mut state = self.lock();
            if state.free > 0 {
                state.free -= 1;
                return Some(Permit(Arc::clone(self)));
            }
            if state.waiting.len() >= self.most_waiting {
                state.waiting.retain(|sender| !sender.is_canceled());
                if state.waiting.len() >= self.most_waiting {
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

impl Drop for Permit {
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
        // If the wait was given up this very moment, the permit is dropped, and goes to the next.
        drop(next.send(Permit(Arc::clone(&self.0))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn in_order_and_a_wait_given_up_takes_nothing_along() {
        let semaphore = Semaphore::new(1, 2);
        let first = semaphore.acquire().now_or_never().unwrap().unwrap();
        let mut second = Box::pin(semaphore.acquire());
        let mut third = Box::pin(semaphore.acquire());
        assert!(second.as_mut().now_or_never().is_none());
        assert!(third.as_mut().now_or_never().is_none());
        assert!(semaphore.acquire().now_or_never().unwrap().is_none(), "too many wait");
        drop(second);
        drop(first);
        let third = third.now_or_never().unwrap().unwrap();
        let mut fourth = Box::pin(semaphore.acquire());
        assert!(fourth.as_mut().now_or_never().is_none());
        drop(third);
        // It has the permit, and is dropped before it is polled again.
        drop(fourth);
        assert!(semaphore.acquire().now_or_never().unwrap().is_some());
    }

    #[test]
    fn so_many_at_a_time() {
        let semaphore = Semaphore::new(2, usize::MAX);
        let first = semaphore.acquire().now_or_never().unwrap();
        let second = semaphore.acquire().now_or_never().unwrap();
        assert!(semaphore.acquire().now_or_never().is_none());
        drop((first, second));
        let _third = semaphore.acquire().now_or_never().unwrap().unwrap();
        assert!(semaphore.acquire().now_or_never().unwrap().is_some());
    }
}

//! A timer thread: runs short actions at their time, and sleeps until the next one.

use crate::threads::Threads;
use futures_channel::oneshot;
use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

type Action = Box<dyn FnOnce() + Send>;

/// Runs actions later, on a thread of its own.
pub(crate) struct TimerThread {
    shared: Arc<Shared>,
    thread: Threads,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    /// By time, and in order of arrival.
    due: BTreeMap<(Instant, u64), Action>,
    serial: u64,
    stopped: bool,
}

impl TimerThread {
    /// The one that all in this process share. It never ends. `None` where the
    /// system gave no thread.
    pub(crate) fn of_process() -> Option<&'static TimerThread> {
        static TIMER: OnceLock<Option<TimerThread>> = OnceLock::new();
        TIMER.get_or_init(|| TimerThread::start().ok()).as_ref()
    }

    /// Starts the thread.
    pub(crate) fn start() -> io::Result<TimerThread> {
        let shared = Arc::<Shared>::default();
        let serving = Arc::clone(&shared);
        let thread = Threads::default();
        thread.start("forward-timer".to_owned(), move || serving.serve())?;
        Ok(TimerThread { shared, thread })
    }

    /// Runs a short action after so long. It must not panic. After the end of the timer it is
    /// dropped.
    pub(crate) fn later(&self, after: Duration, action: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.lock();
        if state.stopped {
            return;
        }
        let at = Instant::now() + after;
        let first = state.due.first_key_value().is_none_or(|((first, _), _)| at < *first);
        state.serial += 1;
        let serial = state.serial;
        state.due.insert((at, serial), Box::new(action));
        drop(state);
        if first {
            self.shared.wake.notify_one();
        }
    }

    /// Waits for so long, or until the end of the timer.
    pub(crate) async fn sleep(&self, time: Duration) {
        let (sender, receiver) = oneshot::channel::<()>();
        self.later(time, move || drop(sender));
        let _ = receiver.await;
    }

    /// Drops what was to be done, and waits for what is done now, unless that is what calls this.
    pub(crate) fn stop(&self) {
        let dropped = {
            let mut state = self.shared.lock();
            state.stopped = true;
            std::mem::take(&mut state.due)
        };
        self.shared.wake.notify_all();
        drop(dropped);
        self.thread.join();
    }
}

impl Drop for TimerThread {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut state = self.lock();
        while !state.stopped {
            let next = state.due.first_key_value().map(|((at, _), _)| *at);
            let left = next.map(|at| at.saturating_duration_since(Instant::now()));
            state = match left {
                None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => {
                    let action = state.due.pop_first();
                    drop(state);
                    if let Some((_, action)) = action {
                        action();
                    }
                    self.lock()
                }
                Some(left) => {
                    self.wake.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

impl fmt::Debug for TimerThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TimerThread")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn in_order_of_time() {
        let timer = TimerThread::start().unwrap();
        let (sender, receiver) = channel();
        for millis in [30u64, 10, 20] {
            let sender = sender.clone();
            timer.later(Duration::from_millis(millis), move || sender.send(millis).unwrap());
        }
        timer.later(Duration::from_secs(3600), move || drop(sender));
        assert!(receiver.iter().take(3).eq([10, 20, 30]));
        timer.stop();
        assert!(receiver.recv().is_err());
    }
}

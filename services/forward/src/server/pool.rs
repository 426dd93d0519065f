//! Threads for work that blocks: what a storage does.

use super::round_robin::RoundRobin;
use crate::threads::Threads;
use std::{
    fmt, io,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// What a piece of work costs beside its bytes, in bytes.
const WORK: u64 = 16 << 10;

/// Work. It must not panic.
pub(super) type Work = Box<dyn FnOnce() + Send>;

/// A number of threads, which take work by deficit round robin among the clients.
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Threads,
    count: usize,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    /// How much waits: for threads that poll without taking the lock.
    queued: AtomicUsize,
    spin: Duration,
}

struct State {
    queues: RoundRobin<Work>,
    sleeping: usize,
    /// Whether a thread polls for work without sleeping: one at a time, to spare processors.
    spinning: bool,
    stopped: bool,
}

impl Pool {
    /// Starts the threads.
    pub(super) fn start(count: usize, spin: Duration) -> io::Result<Pool> {
        let state =
            State { queues: RoundRobin::new(), sleeping: 0, spinning: false, stopped: false };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            wake: Condvar::new(),
            queued: AtomicUsize::new(0),
            spin,
        });
        let count = count.max(1);
        let pool = Pool { shared, threads: Threads::default(), count };
        for number in 0..count {
            let shared = Arc::clone(&pool.shared);
            pool.threads.start(format!("forward-disk-{number}"), move || shared.serve())?;
        }
        Ok(pool)
    }

    /// How many threads there are.
    pub(super) fn threads(&self) -> usize {
        self.count
    }

    /// How much work waits.
    pub(super) fn queued(&self) -> usize {
        self.shared.queued.load(Relaxed)
    }

    /// Has work done for `of` that moves so many bytes. After the end of the pool it is dropped.
    pub(super) fn push(&self, of: u64, bytes: u64, work: Work) {
        let mut state = self.shared.lock();
        if state.stopped {
            drop(state);
            return drop(work);
        }
        state.queues.push(of, bytes.saturating_add(WORK), work);
        let queued = state.queues.len();
        self.shared.queued.store(queued, Relaxed);
        // The thread that polls for work takes one piece of it.
        let wake = state.sleeping > 0 && (!state.spinning || queued > 1);
        drop(state);
        if wake {
            self.shared.wake.notify_one();
        }
    }

    /// Drops what waits, and waits for the end of what is done now: but for the work that calls
    /// this.
    pub(super) fn stop(&self) {
        let waiting = {
            let mut state = self.shared.lock();
            state.stopped = true;
            self.shared.queued.store(0, Relaxed);
            state.queues.clear()
        };
        self.shared.wake.notify_all();
        drop(waiting);
        self.threads.join();
    }
}

impl Drop for Pool {
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
        loop {
            if let Some(work) = state.queues.pop() {
                self.queued.store(state.queues.len(), Relaxed);
                drop(state);
                work();
                state = self.lock();
            } else if state.stopped {
                return;
            } else if !state.spinning && !self.spin.is_zero() {
                state.spinning = true;
                drop(state);
                let found = self.spin();
                state = self.lock();
                state.spinning = false;
                if !found && state.queues.len() == 0 && !state.stopped {
                    state = self.sleep(state);
                }
            } else {
                state = self.sleep(state);
            }
        }
    }

    fn sleep<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.sleeping += 1;
        let mut state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.sleeping -= 1;
        state
    }

    /// Polls for work without sleeping, for a short time.
    fn spin(&self) -> bool {
        let start = Instant::now();
        loop {
            for _ in 0..16 {
                if self.queued.load(Relaxed) > 0 {
                    return true;
                }
                std::hint::spin_loop();
            }
            if start.elapsed() >= self.spin {
                return false;
            }
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} threads, {} queued)", self.count, self.queued())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn all_work_is_done_by_some_thread() {
        for spin in [0, 50] {
            let pool = Pool::start(3, Duration::from_micros(spin)).unwrap();
            let (sender, receiver) = channel();
            for number in 0..2000u64 {
                let sender = sender.clone();
                pool.push(number % 7, 1, Box::new(move || sender.send(number).unwrap()));
                if number % 100 == 0 {
                    std::thread::sleep(Duration::from_micros(100));
                }
            }
            let mut came: Vec<u64> = receiver.iter().take(2000).collect();
            came.sort_unstable();
            assert!(came.into_iter().eq(0..2000));
            pool.stop();
            let (sender, receiver) = channel::<()>();
            pool.push(0, 0, Box::new(move || sender.send(()).unwrap()));
            assert!(receiver.recv().is_err(), "dropped after the end");
        }
    }

    #[test]
    fn work_comes_while_all_sleep() {
        let pool = Pool::start(2, Duration::ZERO).unwrap();
        for _ in 0..50 {
            std::thread::sleep(Duration::from_millis(1));
            let (sender, receiver) = channel();
            pool.push(1, 1, Box::new(move || sender.send(()).unwrap()));
            receiver.recv().unwrap();
        }
    }
}

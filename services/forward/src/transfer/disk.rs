//! Threads that read and write local files, so that the engine's thread never waits for a disk.

use futures_channel::oneshot;
use std::{
    collections::VecDeque,
    io,
    panic::resume_unwind,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

type Job = Box<dyn FnOnce() + Send>;

/// A few threads. They end when this is dropped and their work is done.
pub(super) struct Disk {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
    closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, job: Job) {
        let mut queue = self.lock();
        queue.jobs.push_back(job);
        let idle = queue.idle > 0;
        drop(queue);
        if idle {
            self.work.notify_one();
        }
    }

    fn work(&self) {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                job();
                queue = self.lock();
            } else if queue.closed {
                return;
            } else {
                queue.idle += 1;
                queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
                queue.idle -= 1;
            }
        }
    }
}

impl Disk {
    pub(super) fn start(threads: usize) -> io::Result<Disk> {
        let disk = Disk { shared: Arc::default() };
        for _ in 0..threads {
            let shared = Arc::clone(&disk.shared);
            thread::Builder::new().name("disk".to_owned()).spawn(move || shared.work())?;
        }
        Ok(disk)
    }

    /// Does a piece of work on one of the threads. Dropping the future lets the work end unheard.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move || {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            // It is not awaited any more.
            let _ = sender.send(done);
        });
        self.shared.add(job);
        match receiver.await.expect("a job is done before its thread ends") {
            Ok(done) => done,
            Err(panic) => resume_unwind(panic),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
    }
}

/// Waits for so long, on a thread of its own: for what happens rarely.
pub(super) async fn pause(time: Duration) {
    let (sender, receiver) = oneshot::channel();
    let sleep = move || {
        thread::sleep(time);
        // It is not awaited any more.
        let _ = sender.send(());
    };
    if thread::Builder::new().spawn(sleep).is_ok() {
        // It cannot end without having sent.
        let _ = receiver.await;
    }
}

/// Holds threads back, so that no more than so many bytes a second go past.
pub(super) struct Rate {
    per_second: u64,
    /// When all is paid for that went past.
    even: Mutex<Instant>,
}

impl Rate {
    pub(super) fn new(per_second: u64) -> Rate {
        Rate { per_second: per_second.max(1), even: Mutex::new(Instant::now()) }
    }

    /// Blocks until so many bytes may go past.
    pub(super) fn pay(&self, bytes: u64) {
        let time = Duration::from_secs_f64(bytes as f64 / self.per_second as f64);
        let now = Instant::now();
        let mut even = self.even.lock().unwrap_or_else(PoisonError::into_inner);
        *even = (*even).max(now) + time;
        let wait = even.saturating_duration_since(now);
        drop(even);
        thread::sleep(wait);
    }
}

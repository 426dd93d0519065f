//! All interleavings of a few threads, with few preemptions: loom finds one that sleeps for ever.

use super::*;
use crate::EventCount;
use loom::{sync::atomic::AtomicUsize, thread};

/// What has come, by place; the bed is woken when it is armed, as the descriptor would.
struct Net {
    came: [AtomicUsize; 2],
    armed: EventCount,
}

struct Counts {
    net: Arc<Net>,
    seen: [usize; 2],
    added: usize,
    news: bool,
}

impl Driven for Counts {
    /// A place.
    type Wait = usize;

    fn pass(&mut self, _: bool) -> bool {
        let seen = [0, 1].map(|at| self.net.came[at].load(Ordering::SeqCst));
        let busy = seen != self.seen;
        (self.seen, self.news) = (seen, self.news | busy);
        busy
    }

    fn is_ready(&mut self, what: &usize) -> bool {
        self.seen[*what] + self.added > 0
    }

    fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    fn relax(&self) {}

    fn arm(&mut self) -> Armed {
        self.net.armed.fall_asleep();
        if self.pass(true) { Armed::Busy } else { Armed::For(None) }
    }

    fn was_used(&self) -> bool {
        false
    }
}

fn driver() -> (Arc<Driver<Counts>>, Arc<Net>) {
    let words = || AtomicUsize::new(0);
    let net = Arc::new(Net { came: [words(), words()], armed: EventCount::default() });
    let counts = Counts { net: net.clone(), seen: [0; 2], added: 0, news: false };
    (Arc::new(Driver::new(counts, None, Some(Duration::ZERO)).unwrap()), net)
}

impl Net {
    fn send(&self, driver: &Driver<Counts>, place: usize) {
        self.came[place].fetch_add(1, Ordering::SeqCst);
        if self.armed.rouse() {
            driver.bed.wake();
        }
    }
}

fn wait(driver: &Driver<Counts>, place: usize) {
    // In the model time never passes.
    assert!(driver.wait(Duration::MAX, &place).is_ready());
}

fn explore(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(check);
}

/// Two threads wait, each for something else, and the driving goes from one to the other.
#[test]
fn no_thread_that_waits_is_left_behind() {
    explore(2, || {
        let (driver, net) = driver();
        let theirs = driver.clone();
        let other = thread::spawn(move || wait(&theirs, 1));
        let (sending, sent) = (driver.clone(), net);
        let sender = thread::spawn(move || {
            sent.send(&sending, 0);
            sent.send(&sending, 1);
        });
        wait(&driver, 0);
        other.join().unwrap();
        sender.join().unwrap();
        assert!(driver.lock().core_is_empty());
    });
}

/// What one thread changes under the lock ends the sleep of another, wherever it sleeps.
#[test]
fn no_change_is_slept_through() {
    explore(2, || {
        let (driver, _) = driver();
        let theirs = driver.clone();
        let other = thread::spawn(move || wait(&theirs, 1));
        let changing = driver.clone();
        let change = thread::spawn(move || {
            let mut counts = changing.lock();
            (counts.added, counts.news) = (1, true);
        });
        wait(&driver, 0);
        other.join().unwrap();
        change.join().unwrap();
    });
}

use super::*;
use std::{
    collections::VecDeque,
    sync::{
        Mutex as StdMutex,
        atomic::{AtomicBool, AtomicUsize},
        mpsc,
    },
    thread,
    time::Instant,
};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(30);

/// What comes from outside: tokens, and the descriptor that says so once it is armed.
#[derive(Default)]
struct Net {
    came: StdMutex<(VecDeque<usize>, bool)>,
    fd: Option<crate::EventFd>,
}

impl Net {
    fn send(&self, token: usize) {
        let mut came = self.came.lock().unwrap();
        came.0.push_back(token);
        if std::mem::take(&mut came.1) {
            self.fd.as_ref().unwrap().signal();
        }
    }
}

/// Counts what comes for each of eight places. It signals only while it is armed, and not used.
struct Counts {
    net: Arc<Net>,
    counts: [usize; 8],
    news: bool,
    used: bool,
    panic: bool,
    asked: Arc<AtomicUsize>,
}

impl Driven for Counts {
    /// A place, and the count there.
    type Wait = (usize, usize);

    fn pass(&mut self, _: bool) -> bool {
        assert!(!std::mem::take(&mut self.panic), "as it was told");
        let mut came = self.net.came.lock().unwrap();
        (self.used, came.1) = (true, false);
        if let Some(fd) = &self.net.fd {
            fd.take();
        }
        let busy = !came.0.is_empty();
        for place in came.0.drain(..) {
            self.counts[place] += 1;
            self.news = true;
        }
        busy
    }

    fn is_ready(&mut self, what: &(usize, usize)) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.counts[what.0] >= what.1
    }

    fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    fn arm(&mut self) -> Armed {
        let mut came = self.net.came.lock().unwrap();
        if !came.0.is_empty() {
            return Armed::Busy;
        }
        (self.used, came.1) = (false, true);
        Armed::For(None)
    }

    fn was_used(&self) -> bool {
        self.used
    }
}

impl Counts {
    /// Another thread uses the endpoint: it signals no more until it is armed again.
    fn submit(&mut self, place: usize) {
        self.used = true;
        let mut came = self.net.came.lock().unwrap();
        came.1 = false;
        came.0.push_back(place);
    }
}

fn driver(spin: Duration) -> (Arc<Driver<Counts>>, Arc<Net>) {
    let fd = crate::EventFd::new().unwrap();
    let duplicate = std::os::fd::AsFd::as_fd(&fd).try_clone_to_owned().unwrap();
    let net = Arc::new(Net { fd: Some(fd), ..Net::default() });
    let asked = Arc::default();
    let (counts, news) = ([0; 8], false);
    let counts = Counts { net: net.clone(), counts, news, used: false, panic: false, asked };
    (Arc::new(Driver::new(counts, Some(duplicate), Some(spin)).unwrap()), net)
}

/// Until so many threads sleep or wait.
fn until_waiting(driver: &Driver<Counts>, waiting: usize) {
    let begin = Instant::now();
    while driver.core.lock().unwrap().turn.waiters.len() != waiting {
        assert!(begin.elapsed() < LONG, "they do not come to rest");
        thread::yield_now();
    }
}

/// Threads that wait for these, each sending its name when it has it.
fn waiting(
    driver: &Arc<Driver<Counts>>,
    whats: &[(usize, usize)],
) -> (mpsc::Receiver<usize>, Vec<thread::JoinHandle<bool>>) {
    let (sender, receiver) = mpsc::channel();
    let spawn = |(name, what): (usize, &(usize, usize))| {
        let (driver, sender, what) = (driver.clone(), sender.clone(), *what);
        let thread = thread::spawn(move || {
            let ready = driver.wait(LONG, &what).is_ready();
            sender.send(name).unwrap();
            ready
        });
        // In the order of their names, mostly.
        thread::sleep(Duration::from_millis(1));
        thread
    };
    let threads = whats.iter().enumerate().map(spawn).collect();
    (receiver, threads)
}

fn all_ready(threads: Vec<thread::JoinHandle<bool>>) {
    assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
}

#[test]
fn those_are_woken_for_whom_there_is_something() {
    for spin in [Duration::ZERO, SHORT] {
        let (driver, net) = driver(spin);
        let (done, threads) = waiting(&driver, &[(0, 1), (1, 1), (2, 1), (3, 1)]);
        until_waiting(&driver, 4);
        // In another order than they came, so that driving goes from one to the next, too.
        for place in [2, 0, 3, 1] {
            net.send(place);
            assert_eq!(done.recv_timeout(LONG).unwrap(), place);
            assert!(done.try_recv().is_err(), "no other");
        }
        all_ready(threads);
        assert!(driver.core.lock().unwrap().turn.waiters.is_empty());
    }
}

#[test]
fn no_more_threads_are_woken_than_have_to() {
    let (driver, net) = driver(Duration::ZERO);
    let whats: Vec<_> = (0..8).map(|place| (place, 1)).collect();
    let (done, threads) = waiting(&driver, &whats);
    until_waiting(&driver, 8);
    let asked = driver.lock().asked.clone();
    asked.store(0, Ordering::Relaxed);
    net.send(7);
    assert_eq!(done.recv_timeout(LONG).unwrap(), 7);
    until_waiting(&driver, 7);
    // The one that drove asked for each; woken were it, and the one that had news, which looked.
    let asked = asked.load(Ordering::Relaxed);
    assert!(asked <= 8 + 4, "{asked}");
    (0..7).for_each(|place| net.send(place));
    all_ready(threads);
}

#[test]
fn a_change_by_another_thread_ends_the_sleep_of_one_that_drives() {
    let (driver, _) = driver(Duration::ZERO);
    let (done, threads) = waiting(&driver, &[(0, 1), (1, 2)]);
    until_waiting(&driver, 2);
    // A change that the endpoint knows nothing of.
    let change = |place: usize| {
        let mut counts = driver.lock();
        (counts.counts[place], counts.news) = (2, true);
    };
    // The last that came sleeps on the descriptor, and then the other does.
    change(1);
    assert_eq!(done.recv_timeout(LONG).unwrap(), 1);
    until_waiting(&driver, 1);
    // What is submitted while the one that drives sleeps.
    driver.lock().submit(0);
    assert_eq!(done.recv_timeout(LONG).unwrap(), 0);
    all_ready(threads);
}

#[test]
fn time_ends_waiting_whoever_drives() {
    for spin in [Duration::ZERO, SHORT, LONG] {
        let (driver, net) = driver(spin);
        let begin = Instant::now();
        thread::scope(|scope| {
            for place in 0..4 {
                let driver = &driver;
                scope.spawn(move || {
                    let begin = Instant::now();
                    assert!(!driver.wait(SHORT, &(place, 1)).is_ready());
                    assert!(begin.elapsed() >= SHORT);
                });
            }
            // Also while messages never end.
            while begin.elapsed() < SHORT * 2 {
                net.send(7);
                thread::yield_now();
            }
        });
        assert!(begin.elapsed() < LONG / 2);
        assert!(!driver.wait(Duration::ZERO, &(0, 1)).is_ready());
        net.send(0);
        assert!(driver.wait(Duration::ZERO, &(0, 1)).is_ready());
    }
}

#[test]
fn after_a_panic_the_next_drives() {
    let (driver, net) = driver(Duration::ZERO);
    let first = driver.clone();
    let first = thread::spawn(move || first.wait(LONG, &(0, 1)).is_ready());
    until_waiting(&driver, 1);
    let (done, threads) = waiting(&driver, &[(1, 1)]);
    driver.lock().panic = true;
    // One of the two drives, and panics; the other gets what it waits for.
    net.send(0);
    net.send(1);
    let mut outcomes = vec![first.join()];
    outcomes.extend(threads.into_iter().map(thread::JoinHandle::join));
    let ready = outcomes.iter().filter(|outcome| matches!(outcome, Ok(true))).count();
    assert!(ready == 1 && outcomes.iter().any(Result::is_err), "{outcomes:?}");
    drop(done);
    net.send(2);
    assert!(driver.wait(LONG, &(2, 1)).is_ready(), "and the lock is free");
}

#[test]
fn a_thread_that_serves_leaves_driving_to_others_and_takes_it_back() {
    for spin in [Duration::ZERO, SHORT] {
        let (driver, net) = driver(spin);
        let stop = Arc::new(AtomicBool::new(false));
        let (served, ends) = (driver.clone(), stop.clone());
        let server = thread::spawn(move || served.serve(|| ends.load(Ordering::Relaxed)));
        let came = |place, count| {
            let begin = Instant::now();
            while driver.lock().counts[place] < count {
                assert!(begin.elapsed() < LONG);
                thread::yield_now();
            }
        };
        for round in 1..20 {
            net.send(0);
            came(0, round);
            let (done, threads) = waiting(&driver, &[(1, round), (2, round)]);
            net.send(2);
            net.send(1);
            all_ready(threads);
            drop(done);
        }
        stop.store(true, Ordering::Relaxed);
        driver.interrupt();
        server.join().unwrap();
        // From now on no thread drives but those that wait.
        net.send(3);
        assert!(driver.wait(LONG, &(3, 1)).is_ready());
    }
}

/// Threads that come and go, over hundreds of turns, with one that submits and one that reads.
#[test]
fn many_threads_at_once() {
    for spin in [Duration::ZERO, Duration::from_micros(20)] {
        let (driver, net) = driver(spin);
        thread::scope(|scope| {
            for place in 0..4 {
                let (driver, net) = (&driver, &net);
                scope.spawn(move || {
                    for round in 1..=500 {
                        match round % 3 {
                            0 => driver.lock().submit(place),
                            1 => net.send(place),
                            _ => net.send((place + 1) % 4),
                        }
                        if round % 3 == 2 {
                            // That is for the neighbour; mine comes from the other side.
                            driver.progress();
                        }
                        assert!(driver.wait(LONG, &(place, round)).is_ready(), "{place} {round}");
                    }
                });
            }
        });
        assert_eq!(driver.lock().counts[..4], [500; 4]);
    }
}

//! Waking the one thread to which an engine belongs: there a flag is enough; other threads must end
//! its sleep.
//!
//! An engine and the futures that it drives never leave their thread, and most wake-ups happen
//! there: an answer arrived in a pass. Then there is nothing to order against other cores, and no
//! barrier is needed.

use super::sync::{AtomicBool, Ordering, fence, this_thread};
use crate::Notifier;
use Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::{sync::Arc, task::Wake};

/// Raised on its home thread or elsewhere; taken on its home thread.
#[derive(Debug)]
struct Flag {
    home: usize,
    /// Raised on the home thread: no other writes it.
    local: AtomicBool,
    elsewhere: AtomicBool,
}

impl Flag {
    /// Its home is the thread that makes it.
    fn new() -> Flag {
        let (local, elsewhere) = (AtomicBool::new(false), AtomicBool::new(false));
        Flag { home: this_thread(), local, elsewhere }
    }

    fn is_home(&self) -> bool {
        this_thread() == self.home
    }

    /// To be called elsewhere.
    fn raise_elsewhere(&self) {
        // Swapped, not stored: when several threads have raised it, the thread that takes it then
        // follows all of them, not only the last.
        self.elsewhere.swap(true, Release);
    }

    #[inline]
    fn is_raised(&self) -> bool {
        self.local.load(Relaxed) || self.elsewhere.load(Acquire)
    }

    /// Whether it was raised, until now.
    #[inline]
    fn take(&self) -> bool {
        let local = self.local.load(Relaxed);
        if local {
            self.local.store(false, Relaxed);
        }
        // What was done before each raising is seen from now on.
        let elsewhere = self.elsewhere.load(Acquire) && self.elsewhere.swap(false, AcqRel);
        local || elsewhere
    }
}

/// Says that some task of an engine is to be polled, and ends its thread's sleep. Belongs to the
/// thread that makes it; any thread rings.
///
/// ```
/// use petasos_fabric::{Clock, Endpoint, driver::Kick};
///
/// let mut endpoint = petasos_self::Local::open(&"self://*".parse()?)?;
/// let kick = Kick::new(endpoint.notifier());
/// let theirs = kick.clone();
/// let other = std::thread::spawn(move || theirs.ring());
/// // The engine's thread, when it has nothing to do:
/// if kick.fall_asleep() {
///     endpoint.arm(Clock::start().now());
///     // ... and here it sleeps on the endpoint's descriptor.
///     kick.awake();
/// }
/// other.join().expect("the thread does not panic");
/// assert!(kick.take(), "there is something to do");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Kick {
    ready: Flag,
    sleeping: AtomicBool,
    notifier: Notifier,
}

impl Kick {
    /// Of the engine of this thread, whose endpoint has this notifier.
    #[must_use]
    pub fn new(notifier: Notifier) -> Arc<Kick> {
        Arc::new(Kick { ready: Flag::new(), sleeping: AtomicBool::new(false), notifier })
    }

    /// Something is to be polled. A system call only while the engine sleeps.
    pub fn ring(&self) {
        if self.ready.is_home() {
            // Only this thread announces sleep.
            self.ready.local.store(true, Relaxed);
        } else {
            self.ready.raise_elsewhere();
            // Pairs with the fence of `fall_asleep`: either this thread sees the engine asleep, or
            // the engine sees the flag.
            fence(SeqCst);
        }
        if self.sleeping.load(Relaxed) {
            self.notifier.notify();
        }
    }

    /// Whether something is to be polled.
    #[must_use]
    #[inline]
    pub fn is_set(&self) -> bool {
        self.ready.is_raised()
    }

    /// Whether something was to be polled, until now.
    pub fn take(&self) -> bool {
        self.ready.take()
    }

    /// Announces sleep. False if there is something to do after all: then it is not asleep.
    #[must_use]
    pub fn fall_asleep(&self) -> bool {
        self.sleeping.store(true, Relaxed);
        fence(SeqCst);
        let quiet = !self.ready.is_raised();
        if !quiet {
            self.awake();
        }
        quiet
    }

    /// The sleep is over, or did not come about.
    pub fn awake(&self) {
        self.sleeping.store(false, Relaxed);
    }
}

impl Wake for Kick {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

/// Says that the future is to be polled for which the engine's thread itself waits, as in a
/// `block_on`. Belongs to the thread that makes it.
#[derive(Debug)]
pub struct MainKick {
    ready: Flag,
    engine: Arc<Kick>,
}

impl MainKick {
    /// Of the engine of this thread.
    #[must_use]
    pub fn new(engine: Arc<Kick>) -> Arc<MainKick> {
        Arc::new(MainKick { ready: Flag::new(), engine })
    }

    /// Has the future polled. To be called at home.
    pub fn set(&self) {
        self.ready.local.store(true, Relaxed);
    }

    /// Whether the future is to be polled.
    #[must_use]
    #[inline]
    pub fn is_set(&self) -> bool {
        self.ready.is_raised()
    }

    /// Whether the future was to be polled, until now.
    #[inline]
    pub fn take(&self) -> bool {
        self.ready.take()
    }

    /// Has the future polled, whatever the engine is about to do. To be called at home.
    #[inline]
    pub fn wake_at_home(&self) {
        self.set();
        // `block_on` checks the flag before it idles, unless it was about to sleep.
        if self.engine.sleeping.load(Relaxed) {
            self.engine.ring();
        }
    }
}

impl Wake for MainKick {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.ready.is_home() {
            return self.wake_at_home();
        }
        self.ready.raise_elsewhere();
        self.engine.ring();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Notify;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Notify for Counted {
        fn notify(&self) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    fn wakers() -> (Arc<Counted>, Arc<Kick>, Arc<MainKick>) {
        let counted = Arc::new(Counted::default());
        let engine = Kick::new(Notifier::new(counted.clone()));
        (counted, engine.clone(), MainKick::new(engine))
    }

    #[test]
    fn rung_at_home_and_elsewhere() {
        let (counted, engine, _) = wakers();
        for elsewhere in [false, true] {
            if elsewhere {
                std::thread::scope(|scope| scope.spawn(|| engine.ring()).join().unwrap());
            } else {
                engine.ring();
            }
            assert!(engine.is_set() && !engine.fall_asleep() && engine.take());
            assert!(!engine.is_set() && !engine.take());
        }
        assert_eq!(counted.0.load(SeqCst), 0, "the engine was awake");
    }

    #[test]
    fn sleep_ends_wherever_it_is_rung() {
        let (counted, engine, main) = wakers();
        assert!(engine.fall_asleep());
        engine.ring();
        std::thread::scope(|scope| scope.spawn(|| engine.ring()).join().unwrap());
        assert_eq!(counted.0.load(SeqCst), 2);
        assert!(engine.take());
        // A deadline that ends while the engine falls asleep.
        MainKick::wake_by_ref(&main);
        assert!(counted.0.load(SeqCst) == 3 && main.is_set() && engine.is_set());
    }

    #[test]
    fn awake_the_future_of_block_on_needs_no_ring() {
        let (counted, engine, main) = wakers();
        MainKick::wake_by_ref(&main);
        assert!(main.take() && !main.take() && !engine.is_set());
        std::thread::scope(|scope| scope.spawn(|| MainKick::wake_by_ref(&main)).join().unwrap());
        assert!(main.take() && !main.take() && engine.is_set());
        assert_eq!(counted.0.load(SeqCst), 0);
    }
}

#[cfg(all(test, loom))]
mod interleavings {
    use super::*;
    use crate::Notify;
    use loom::{
        sync::{Notify as Doorbell, atomic::AtomicU64},
        thread,
    };

    /// An engine with its future of `block_on`, and what other threads leave for the two.
    struct Engine {
        doorbell: Doorbell,
        /// Left before the engine is rung.
        mail: [AtomicU64; 2],
        /// Left before the future is woken.
        result: AtomicU64,
    }

    /// The doorbell of a transport: a thread that sleeps on it wakes.
    struct Rung(Arc<Engine>);

    impl Notify for Rung {
        fn notify(&self) {
            self.0.doorbell.notify();
        }
    }

    impl Engine {
        fn new() -> (Arc<Engine>, Arc<Kick>, Arc<MainKick>) {
            let words = || AtomicU64::new(0);
            let mail = [words(), words()];
            let engine = Arc::new(Engine { doorbell: Doorbell::new(), mail, result: words() });
            let waker = Kick::new(Notifier::new(Arc::new(Rung(engine.clone()))));
            (engine, waker.clone(), MainKick::new(waker))
        }

        /// The loop of `block_on`, reduced to what wakes it: reads the mail only when the engine
        /// was rung, and the result only when the future was woken. Loom finds a model that sleeps
        /// for ever.
        fn until(&self, waker: &Kick, main: &MainKick, mail: u64, result: u64) {
            main.set();
            let mut seen = 0;
            loop {
                if main.take() && seen == mail && self.result.load(Relaxed) == result {
                    return;
                }
                if waker.take() {
                    seen = self.mail.iter().map(|word| word.load(Relaxed)).sum();
                    if seen == mail {
                        main.wake_at_home();
                    }
                } else if !main.is_set() && waker.fall_asleep() {
                    self.doorbell.wait();
                    waker.awake();
                }
            }
        }
    }

    /// All interleavings with three preemptions.
    fn explore(check: impl Fn() + Sync + Send + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(check);
    }

    /// Two threads have something for the engine: what each left before it rang is found.
    #[test]
    fn no_ring_is_slept_through() {
        explore(|| {
            let (engine, waker, main) = Engine::new();
            let senders = [0, 1].map(|at| {
                let (engine, waker) = (engine.clone(), waker.clone());
                thread::spawn(move || {
                    engine.mail[at].store(1, Relaxed);
                    waker.ring();
                })
            });
            engine.until(&waker, &main, 2, 0);
            for sender in senders {
                sender.join().unwrap();
            }
        });
    }

    /// One thread has the result that the future of `block_on` waits for, another rings the engine.
    #[test]
    fn no_result_is_slept_through() {
        explore(|| {
            let (engine, waker, main) = Engine::new();
            let (theirs, woken) = (engine.clone(), main.clone());
            let waking = thread::spawn(move || {
                theirs.result.store(1, Relaxed);
                MainKick::wake_by_ref(&woken);
            });
            let (theirs, rung) = (engine.clone(), waker.clone());
            let ringing = thread::spawn(move || {
                theirs.mail[0].store(1, Relaxed);
                rung.ring();
            });
            engine.until(&waker, &main, 1, 1);
            waking.join().unwrap();
            ringing.join().unwrap();
        });
    }

    /// A ring is noticed once, and not again.
    #[test]
    fn a_ring_is_taken_once() {
        loom::model(|| {
            let (_, waker, _) = Engine::new();
            let theirs = waker.clone();
            let sender = thread::spawn(move || theirs.ring());
            let early = waker.take();
            sender.join().unwrap();
            assert!(waker.take() != early && !waker.is_set() && waker.fall_asleep());
        });
    }
}

//! Waking an engine: from its own thread a flag is enough, from others its sleep must end.
//!
//! An engine and the futures that it drives never leave their thread, and most of what wakes them
//! happens there: an answer came in a pass. Then there is nothing to order against other cores, and
//! no barrier is paid for.

use futures_util::task::ArcWake;
use petasos_fabric::Notifier;
use std::{
    ptr,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
        },
    },
};

/// Tells living threads apart, at the price of an address.
fn this_thread() -> usize {
    thread_local! {
        static MARK: u8 = const { 0 };
    }
    MARK.with(|mark| ptr::from_ref(mark).addr())
}

/// Raised on one thread, at home, or elsewhere; taken at home.
#[derive(Debug)]
struct Flag {
    home: usize,
    /// Raised at home: nobody else writes it.
    here: AtomicBool,
    elsewhere: AtomicBool,
}

impl Flag {
    /// Its home is the thread that makes it.
    fn new() -> Flag {
        let (here, elsewhere) = (AtomicBool::new(false), AtomicBool::new(false));
        Flag { home: this_thread(), here, elsewhere }
    }

    fn is_home(&self) -> bool {
        this_thread() == self.home
    }

    #[inline]
    fn is_raised(&self) -> bool {
        self.here.load(Relaxed) || self.elsewhere.load(Acquire)
    }

    /// Whether it was raised, until now.
    #[inline]
    fn take(&self) -> bool {
        let here = self.here.load(Relaxed);
        if here {
            self.here.store(false, Relaxed);
        }
        // Swapped, so that what was done before the last raising is seen from now on.
        let elsewhere = self.elsewhere.load(Acquire) && self.elsewhere.swap(false, AcqRel);
        here || elsewhere
    }
}

/// Says that some task of the engine is to be polled.
#[derive(Debug)]
pub(crate) struct EngineWaker {
    ready: Flag,
    sleeping: AtomicBool,
    notifier: Notifier,
}

impl EngineWaker {
    /// Of the engine of this thread.
    pub(crate) fn new(notifier: Notifier) -> Arc<EngineWaker> {
        Arc::new(EngineWaker { ready: Flag::new(), sleeping: AtomicBool::new(false), notifier })
    }

    /// Something is to be polled. A system call only while the engine sleeps.
    pub(crate) fn ring(&self) {
        if self.ready.is_home() {
            self.ready.here.store(true, Relaxed);
        } else {
            // Together with `fall_asleep`: either this sees the engine asleep, or it sees this.
            self.ready.elsewhere.store(true, SeqCst);
        }
        if self.sleeping.load(SeqCst) {
            self.notifier.notify();
        }
    }

    /// Whether something is to be polled.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.ready.is_raised()
    }

    /// Whether something was to be polled, until now.
    pub(crate) fn take(&self) -> bool {
        self.ready.take()
    }

    /// Announces sleep. False if there is something to do after all.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.sleeping.store(true, SeqCst);
        let quiet = !self.ready.here.load(Relaxed) && !self.ready.elsewhere.load(SeqCst);
        if !quiet {
            self.sleeping.store(false, Release);
        }
        quiet
    }

    pub(crate) fn awake(&self) {
        self.sleeping.store(false, Release);
    }
}

impl ArcWake for EngineWaker {
    fn wake_by_ref(this: &Arc<EngineWaker>) {
        this.ring();
    }
}

/// Says that the future that `block_on` waits for is to be polled.
#[derive(Debug)]
pub(crate) struct MainWaker {
    ready: Flag,
    engine: Arc<EngineWaker>,
}

impl MainWaker {
    pub(crate) fn new(engine: Arc<EngineWaker>) -> Arc<MainWaker> {
        Arc::new(MainWaker { ready: Flag::new(), engine })
    }

    /// Has the future polled. To be called at home.
    pub(crate) fn set(&self) {
        self.ready.here.store(true, Relaxed);
    }

    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.ready.is_raised()
    }

    #[inline]
    pub(crate) fn take(&self) -> bool {
        self.ready.take()
    }

    /// Has the future polled, whatever the engine is about to do. To be called at home.
    #[inline]
    pub(crate) fn wake_at_home(&self) {
        self.set();
        // `block_on` looks before it rests, unless it was about to sleep.
        if self.engine.sleeping.load(Relaxed) {
            self.engine.ring();
        }
    }
}

impl ArcWake for MainWaker {
    fn wake_by_ref(this: &Arc<MainWaker>) {
        if this.ready.is_home() {
            return this.wake_at_home();
        }
        this.ready.elsewhere.store(true, SeqCst);
        this.engine.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use petasos_fabric::Notify;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Notify for Counted {
        fn notify(&self) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    fn wakers() -> (Arc<Counted>, Arc<EngineWaker>, Arc<MainWaker>) {
        let counted = Arc::new(Counted::default());
        let engine = EngineWaker::new(Notifier::new(counted.clone()));
        (counted, engine.clone(), MainWaker::new(engine))
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
        assert_eq!(counted.0.load(SeqCst), 0, "nobody slept");
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
        MainWaker::wake_by_ref(&main);
        assert!(counted.0.load(SeqCst) == 3 && main.is_set() && engine.is_set());
    }

    #[test]
    fn awake_the_future_of_block_on_needs_no_other_word() {
        let (counted, engine, main) = wakers();
        MainWaker::wake_by_ref(&main);
        assert!(main.take() && !main.take() && !engine.is_set());
        std::thread::scope(|scope| scope.spawn(|| MainWaker::wake_by_ref(&main)).join().unwrap());
        assert!(main.take() && !main.take() && engine.is_set());
        assert_eq!(counted.0.load(SeqCst), 0);
    }
}

//! Waking an engine: from its own thread a flag is enough, from others its sleep must end.

use futures_util::task::ArcWake;
use petasos_fabric::Notifier;
use std::sync::{
    Arc,
    atomic::{
        AtomicBool,
        Ordering::{Acquire, Release, SeqCst},
    },
};

/// Says that some task of the engine is to be polled.
#[derive(Debug)]
pub(crate) struct EngineWaker {
    ready: AtomicBool,
    sleeping: AtomicBool,
    notifier: Notifier,
}

impl EngineWaker {
    pub(crate) fn new(notifier: Notifier) -> Arc<EngineWaker> {
        let (ready, sleeping) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(EngineWaker { ready, sleeping, notifier })
    }

    /// Something is to be polled. A system call only while the engine sleeps.
    pub(crate) fn ring(&self) {
        // Together with `fall_asleep`: either this sees the engine asleep, or it sees this.
        self.ready.store(true, SeqCst);
        if self.sleeping.load(SeqCst) {
            self.notifier.notify();
        }
    }

    /// Whether something is to be polled.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.ready.load(Acquire)
    }

    /// Whether something was to be polled, until now.
    pub(crate) fn take(&self) -> bool {
        self.ready.load(Acquire) && {
            self.ready.store(false, SeqCst);
            true
        }
    }

    /// Announces sleep. False if there is something to do after all.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.sleeping.store(true, SeqCst);
        let quiet = !self.ready.load(SeqCst);
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
    ready: AtomicBool,
    engine: Arc<EngineWaker>,
}

impl MainWaker {
    pub(crate) fn new(engine: Arc<EngineWaker>) -> Arc<MainWaker> {
        Arc::new(MainWaker { ready: AtomicBool::new(false), engine })
    }

    pub(crate) fn set(&self) {
        self.ready.store(true, Release);
    }

    pub(crate) fn take(&self) -> bool {
        self.ready.load(Acquire) && {
            self.ready.store(false, SeqCst);
            true
        }
    }
}

impl ArcWake for MainWaker {
    fn wake_by_ref(this: &Arc<MainWaker>) {
        this.ready.store(true, SeqCst);
        this.engine.ring();
    }
}

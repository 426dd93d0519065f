//! A thread that waits while another drives.

use super::{
    Idle, Spin,
    sync::{AtomicBool, AtomicU8, Condvar, Mutex, Ordering, PoisonError},
};
use std::time::{Duration, Instant};

/// Why a thread was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Woken {
    /// What it waits for is there, or was a moment ago.
    Ready = 1,
    /// No thread drives: it is to do so.
    Heir = 2,
}

/// Not woken.
const WAITS: u8 = 0;

/// A thread that waits, and the event of its own on which it sleeps.
#[derive(Debug)]
pub(super) struct Waiter<W> {
    /// For what; a thread that serves waits for nothing but the driving.
    pub(super) what: Option<W>,
    woken: AtomicU8,
    /// Whether the thread sleeps in the bed; written and read under the driver's lock.
    pub(super) in_bed: AtomicBool,
    /// Whether it sleeps on the signal.
    asleep: Mutex<bool>,
    signal: Condvar,
}

impl<W> Waiter<W> {
    pub(super) fn new(what: Option<W>) -> Waiter<W> {
        Waiter {
            what,
            woken: AtomicU8::new(WAITS),
            in_bed: AtomicBool::new(false),
            asleep: Mutex::new(false),
            signal: Condvar::new(),
        }
    }

    /// Wakes the thread, unless it sleeps in the bed: that is to be woken then.
    pub(super) fn wake(&self, why: Woken) {
        self.woken.store(why as u8, Ordering::Release);
        let asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        if *asleep {
            drop(asleep);
            self.signal.notify_one();
        }
    }

    fn is_woken(&self) -> bool {
        self.woken.load(Ordering::Acquire) != WAITS
    }

    /// Whether it was to drive; counts as not woken from now on.
    pub(super) fn take_woken(&self) -> bool {
        self.woken.swap(WAITS, Ordering::AcqRel) == Woken::Heir as u8
    }

    /// Waits until it is woken, or for so long: looks at its own word for as long as `spin` says,
    /// which takes nothing from the thread that drives, and then sleeps.
    pub(super) fn wait(&self, spin: &mut Spin, longest: Option<Duration>) {
        let end = longest.and_then(|longest| Instant::now().checked_add(longest));
        let rest = || end.map(|end| end.saturating_duration_since(Instant::now()));
        while !self.is_woken() {
            match spin.idle() {
                Idle::Poll => std::hint::spin_loop(),
                Idle::Yield => spin.yield_now(),
                Idle::Sleep => break,
            }
            if spin.passes().is_multiple_of(64) && rest() == Some(Duration::ZERO) {
                return;
            }
        }
        let mut asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        *asleep = true;
        while !self.is_woken() {
            asleep = match rest() {
                None => self.signal.wait(asleep).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => break,
                Some(rest) => {
                    let waited = self.signal.wait_timeout(asleep, rest);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        *asleep = false;
    }
}

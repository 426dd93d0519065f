//! An eventcount: between an engine that is about to sleep and threads that have work for it.
//!
//! A thread that falls asleep announces that, and then checks once more for work; a thread that has
//! work leaves it, and then checks whether the other sleeps. So one of the two sees the other, and
//! no work is slept through; and of several threads that have work one rings the doorbell.

#[cfg(not(all(loom, test)))]
use std::sync::atomic::{AtomicBool, Ordering, fence};

#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicBool, Ordering, fence};

/// Whether a thread sleeps, and whether there is a wake-up for it. For transports, which have the
/// doorbell: a descriptor, say, that is written to when one of these says so.
///
/// ```
/// use petasos_fabric::EventCount;
///
/// let count = EventCount::default();
/// // Another thread leaves work before this one sleeps: no bell is needed, the last look finds it.
/// assert!(!count.wake());
/// count.fall_asleep();
/// assert!(count.take_wakeup());
/// // Work that comes after that look rings the bell, once for this sleep.
/// assert!(count.wake() && !count.wake());
/// count.awake();
/// ```
#[derive(Debug)]
pub struct EventCount {
    sleeping: AtomicBool,
    woken: AtomicBool,
}

impl Default for EventCount {
    fn default() -> EventCount {
        EventCount { sleeping: AtomicBool::new(false), woken: AtomicBool::new(false) }
    }
}

impl EventCount {
    /// Announces a sleep: look after it whether there is anything, [`EventCount::take_wakeup`]
    /// included.
    pub fn fall_asleep(&self) {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The sleep is over, or did not come about.
    #[inline]
    pub fn awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// Whether there was a wake-up since this was last asked. What was done before it is seen now.
    pub fn take_wakeup(&self) -> bool {
        self.woken.swap(false, Ordering::AcqRel)
    }

    /// Leaves a wake-up, from any thread. True if the doorbell is to be rung.
    #[must_use]
    pub fn wake(&self) -> bool {
        self.woken.swap(true, Ordering::Release);
        self.rouse()
    }

    /// Work was left, for which a thread that falls asleep checks. True if the doorbell is to be
    /// rung: no other thread does for this sleep.
    #[must_use]
    #[inline]
    pub fn rouse(&self) -> bool {
        fence(Ordering::SeqCst);
        self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::AcqRel)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_rings_for_a_sleep() {
        let sleepers = EventCount::default();
        assert!(!sleepers.wake() && !sleepers.rouse(), "no thread sleeps");
        sleepers.fall_asleep();
        assert!(sleepers.take_wakeup() && !sleepers.take_wakeup());
        assert!(sleepers.wake() && !sleepers.wake() && !sleepers.rouse());
        sleepers.awake();
        sleepers.fall_asleep();
        sleepers.awake();
        assert!(!sleepers.rouse());
    }
}

#[cfg(all(test, loom))]
mod interleavings {
    use super::*;
    use loom::{
        sync::{Arc, atomic::AtomicU64},
        thread,
    };

    /// A sleep, and whether it would have lasted: nothing was seen, and it was not rung for.
    #[test]
    fn no_sleeper_misses_a_wakeup() {
        loom::model(|| {
            let sleepers = Arc::new(EventCount::default());
            let done = Arc::new(AtomicU64::new(0));
            let notifiers: Vec<_> = (0..2)
                .map(|_| {
                    let (sleepers, done) = (sleepers.clone(), done.clone());
                    thread::spawn(move || {
                        done.fetch_add(1, Ordering::Relaxed);
                        u64::from(sleepers.wake())
                    })
                })
                .collect();
            sleepers.fall_asleep();
            let woken = sleepers.take_wakeup();
            assert!(!woken || done.load(Ordering::Relaxed) > 0, "what was done is seen");
            let rung: u64 = notifiers.into_iter().map(|thread| thread.join().unwrap()).sum();
            assert!(rung <= 1, "one rings for a sleep");
            assert!(woken || rung == 1);
        });
    }

    #[test]
    fn no_sleeper_misses_mail() {
        loom::model(|| {
            let sleepers = Arc::new(EventCount::default());
            let mail = Arc::new(AtomicU64::new(0));
            let theirs = (sleepers.clone(), mail.clone());
            let sender = thread::spawn(move || {
                let (sleepers, mail) = theirs;
                mail.store(1, Ordering::Relaxed);
                sleepers.rouse()
            });
            sleepers.fall_asleep();
            let seen = mail.load(Ordering::Relaxed) > 0;
            let rung = sender.join().unwrap();
            assert!(seen || rung);
        });
    }

    /// Awake and asleep again, while another thread has something.
    #[test]
    fn the_next_sleep_is_rung_for_as_well() {
        loom::model(|| {
            let sleepers = Arc::new(EventCount::default());
            let theirs = sleepers.clone();
            let notifier = thread::spawn(move || theirs.wake());
            sleepers.fall_asleep();
            let mut woken = sleepers.take_wakeup();
            sleepers.awake();
            sleepers.fall_asleep();
            woken |= sleepers.take_wakeup();
            let rung = notifier.join().unwrap();
            assert!(woken || rung);
        });
    }
}

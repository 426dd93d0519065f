//! What is driven, locked.

use super::{
    Armed, Core, Driven, Driver,
    sync::{MutexGuard, Ordering},
    turn::Role,
    waiter::Waiter,
};
use std::{
    fmt,
    ops::{Deref, DerefMut},
    sync::Arc,
};

/// What a [`Driver`] drives, for the one thread that has locked it. Gives access to it, as
/// [`Driver::lock`] and [`Driver::wait`] say.
///
/// Dropping it wakes the threads for whom there is something now, and, if this thread has driven,
/// one that drives from now on. Also when it is dropped by a panic.
pub struct Guard<'a, D: Driven> {
    driver: &'a Driver<D>,
    core: MutexGuard<'a, Core<D>>,
    /// The turn of this thread, if it drives.
    turn: Option<u64>,
    ready: bool,
}

impl<'a, D: Driven> Guard<'a, D> {
    #[inline]
    pub(super) fn new(driver: &'a Driver<D>, core: MutexGuard<'a, Core<D>>) -> Guard<'a, D> {
        Guard { driver, core, turn: None, ready: false }
    }

    /// Whether there is what was waited for; not so if time was over before.
    #[must_use]
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    #[inline]
    pub(super) fn look(&mut self, what: &D::Wait) -> bool {
        self.ready = self.core.driven.is_ready(what);
        self.ready
    }

    #[inline]
    pub(super) fn pass(&mut self, full: bool) -> bool {
        let core = &mut *self.core;
        core.turn.passes = core.turn.passes.wrapping_add(1);
        core.turn.used = true;
        core.driven.pass(full)
    }

    #[inline]
    pub(super) fn passes(&self) -> u32 {
        self.core.turn.passes
    }

    pub(super) fn relax(&self) {
        self.core.driven.relax();
    }

    pub(super) fn arm(&mut self) -> Armed {
        self.core.driven.arm()
    }

    // Turns.

    /// Whether it is this thread's turn to drive, still.
    #[inline]
    pub(super) fn has_turn(&self) -> bool {
        self.turn.is_some_and(|turn| self.core.turn.is_at(turn))
    }

    /// Begins to drive, if this thread may.
    #[inline]
    pub(super) fn begin(&mut self, role: Role, fresh: bool) -> bool {
        self.turn = self.core.turn.take(role, fresh);
        if self.turn.is_some() && self.core.turn.sleeper_is_replaced() {
            self.wake_bed();
        }
        self.turn.is_some()
    }

    /// Does something without the lock, and keeps the turn as far as others let it.
    pub(super) fn unlocked(mut self, work: impl FnOnce()) -> Guard<'a, D> {
        let (driver, turn) = (self.driver, self.turn.take());
        drop(self);
        work();
        let mut guard = driver.lock();
        guard.turn = turn;
        guard
    }

    // Waiting.

    pub(super) fn register(&mut self, waiter: &Arc<Waiter<D::Wait>>) {
        self.core.turn.register(waiter);
    }

    pub(super) fn arrive(&mut self, waiter: &Arc<Waiter<D::Wait>>) {
        self.core.turn.arrive(waiter);
    }

    // The bed.

    pub(super) fn is_bed_taken(&self) -> bool {
        self.core.turn.bed.is_some()
    }

    pub(super) fn driver_sleeps(&self) -> bool {
        self.core.turn.driver_sleeps()
    }

    /// This thread, whose turn it is, will sleep in the bed.
    pub(super) fn lie_down(&mut self, waiter: &Arc<Waiter<D::Wait>>) {
        waiter.in_bed.store(true, Ordering::Relaxed);
        let turn = &mut self.core.turn;
        turn.register(waiter);
        (turn.bed, turn.kicked, turn.used) = (self.turn, false, false);
    }

    pub(super) fn rise(&mut self, waiter: &Arc<Waiter<D::Wait>>) {
        waiter.in_bed.store(false, Ordering::Relaxed);
        self.core.turn.bed = None;
        self.core.turn.arrive(waiter);
        self.core.driven.awake();
    }

    /// Wakes the thread in the bed, once.
    fn wake_bed(&mut self) {
        if self.core.turn.bed.is_some() && !std::mem::replace(&mut self.core.turn.kicked, true) {
            self.driver.bed.wake();
        }
    }

    pub(super) fn kick(&mut self) {
        self.wake_bed();
    }

    // News.

    /// Wakes the threads for whom there is something.
    #[inline]
    pub(super) fn tell(&mut self) {
        if !self.core.turn.waiters.is_empty() && self.core.driven.take_news() {
            self.tell_all();
        }
    }

    #[inline(never)]
    fn tell_all(&mut self) {
        let Core { driven, turn } = &mut *self.core;
        turn.used = true;
        if turn.wake_if(|what| what.is_some_and(|what| driven.is_ready(what))) {
            self.wake_bed();
        }
    }

    pub(super) fn wake_servers(&mut self) {
        if self.core.turn.wake_if(|what| what.is_none()) {
            self.wake_bed();
        }
    }

    /// What this thread leaves behind is seen to.
    #[inline(never)]
    fn leave(&mut self) {
        if let Some(turn) = self.turn {
            self.core.turn.end(turn);
        }
        // After a panic, what is driven is not asked for anything: the next thread does that.
        if !std::thread::panicking() {
            self.tell();
            let used = self.core.turn.used && self.core.driven.was_used();
            if used && self.core.turn.driver_sleeps() {
                self.wake_bed();
            }
        }
        if self.core.turn.wake_heir() {
            self.wake_bed();
        }
    }
}

impl<D: Driven> Drop for Guard<'_, D> {
    #[inline]
    fn drop(&mut self) {
        if !self.core.turn.waiters.is_empty() {
            self.leave();
        } else if let Some(turn) = self.turn {
            // Mostly no other thread waits.
            self.core.turn.end(turn);
        }
    }
}

impl<D: Driven> Deref for Guard<'_, D> {
    type Target = D;
    #[inline]
    fn deref(&self) -> &D {
        &self.core.driven
    }
}

impl<D: Driven> DerefMut for Guard<'_, D> {
    #[inline]
    fn deref_mut(&mut self) -> &mut D {
        self.core.turn.used = true;
        &mut self.core.driven
    }
}

impl<D: Driven> fmt::Debug for Guard<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard")
    }
}

#[cfg(all(test, loom))]
impl<D: Driven> Guard<'_, D> {
    pub(super) fn core_is_empty(&self) -> bool {
        self.core.turn.waiters.is_empty()
    }
}

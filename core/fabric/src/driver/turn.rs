//! Whose turn it is to drive, and who waits meanwhile.

use super::{
    sync::Ordering,
    waiter::{Waiter, Woken},
};
use std::sync::Arc;

/// For what a thread drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// For what it waits for.
    Waits,
    /// For others: it leaves the driving to each thread that waits.
    Serves,
}

/// All of it lies behind the driver's lock.
#[derive(Debug)]
pub(super) struct Turn<W> {
    /// How often a thread began to drive: whose turn it is, if a thread drives.
    term: u64,
    driver: Option<Role>,
    /// The turn of the thread that sleeps in the bed. It may have lost it.
    pub(super) bed: Option<u64>,
    /// Whether that thread was woken.
    pub(super) kicked: bool,
    /// Whether what is driven may have been used since that thread armed it.
    pub(super) used: bool,
    /// Whether a thread was woken to drive, and has not come yet.
    heir: bool,
    /// Threads that sleep, or look at their own words: each is woken for a reason of its own, and
    /// then is here no longer.
    pub(super) waiters: Vec<Arc<Waiter<W>>>,
    /// Passes so far.
    pub(super) passes: u32,
}

impl<W> Default for Turn<W> {
    fn default() -> Turn<W> {
        Turn {
            term: 0,
            driver: None,
            bed: None,
            kicked: false,
            used: false,
            heir: false,
            waiters: Vec::new(),
            passes: 0,
        }
    }
}

impl<W> Turn<W> {
    /// Begins to drive, if the calling thread may; `fresh`: it has just come. Gives its turn.
    ///
    /// A thread that has just come drives rather than one that sleeps, as it polls for a while. So
    /// it is not for the other to wake up first, and to pass on what has come.
    #[inline]
    pub(super) fn take(&mut self, role: Role, fresh: bool) -> Option<u64> {
        let may = match (role, self.driver) {
            (Role::Waits, None | Some(Role::Serves)) => true,
            (Role::Waits, Some(Role::Waits)) => fresh && self.driver_sleeps(),
            (Role::Serves, driver) => driver.is_none() && !self.heir,
        };
        may.then(|| {
            self.term += 1;
            self.driver = Some(role);
            self.term
        })
    }

    /// Whether this turn is not over.
    #[inline]
    pub(super) fn is_at(&self, term: u64) -> bool {
        self.term == term && self.driver.is_some()
    }

    /// Ends a turn, unless it was ended by another thread.
    #[inline]
    pub(super) fn end(&mut self, term: u64) {
        if self.term == term {
            self.driver = None;
        }
    }

    /// Whether the thread that drives sleeps in the bed.
    pub(super) fn driver_sleeps(&self) -> bool {
        self.driver.is_some() && self.bed == Some(self.term)
    }

    /// Whether the thread in the bed has lost its turn: it does not know yet.
    pub(super) fn sleeper_is_replaced(&self) -> bool {
        self.bed.is_some_and(|term| !self.is_at(term))
    }

    /// A thread waits from now on.
    pub(super) fn register(&mut self, waiter: &Arc<Waiter<W>>) {
        if !self.waiters.iter().any(|known| Arc::ptr_eq(known, waiter)) {
            self.waiters.push(Arc::clone(waiter));
        }
    }

    /// It waits no more, for now: it was woken, or its time is over.
    pub(super) fn arrive(&mut self, waiter: &Arc<Waiter<W>>) {
        self.waiters.retain(|known| !Arc::ptr_eq(known, waiter));
        if waiter.take_woken() {
            self.heir = false;
        }
    }

    /// Wakes the threads for which this is true. True if the one in the bed is among them.
    pub(super) fn wake_if(&mut self, mut is: impl FnMut(Option<&W>) -> bool) -> bool {
        let mut in_bed = false;
        self.waiters.retain(|waiter| {
            let wake = is(waiter.what.as_ref());
            if wake {
                in_bed |= waiter.in_bed.load(Ordering::Relaxed);
                waiter.wake(Woken::Ready);
            }
            !wake
        });
        in_bed
    }

    /// If no thread drives, wakes one that waits to do so: the first that waits for something, or
    /// else one that serves. True if it lies in the bed.
    pub(super) fn wake_heir(&mut self) -> bool {
        if self.driver.is_some() || self.heir || self.waiters.is_empty() {
            return false;
        }
        let at = self.waiters.iter().position(|waiter| waiter.what.is_some()).unwrap_or(0);
        let waiter = self.waiters.remove(at);
        self.heir = true;
        waiter.wake(Woken::Heir);
        waiter.in_bed.load(Ordering::Relaxed)
    }
}

//! What a thread has while it drives or waits: how long it polls, and how long it waits.

use super::{Spin, waiter::Waiter};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Passes between two reads of the clock.
const CLOCK: u32 = 32;

/// What a thread has while it drives or waits.
pub(super) struct Seat<W> {
    pub(super) spin: Spin,
    /// Made when it first sleeps, or waits for another.
    waiter: Option<Arc<Waiter<W>>>,
    /// Passes so far when it last made one.
    pub(super) passes: u32,
}

impl<W: Clone> Seat<W> {
    pub(super) fn new(spin: Option<Duration>) -> Seat<W> {
        Seat { spin: Spin::new(spin), waiter: None, passes: 0 }
    }

    pub(super) fn waiter(&mut self, what: Option<&W>) -> &Arc<Waiter<W>> {
        self.waiter.get_or_insert_with(|| Arc::new(Waiter::new(what.cloned())))
    }
}

/// How long a thread waits; counted from when the clock is first read, after some passes.
pub(super) struct Limit {
    timeout: Duration,
    end: Option<Option<Instant>>,
    passes: u32,
    over: bool,
}

impl Limit {
    pub(super) fn new(timeout: Duration) -> Limit {
        Limit { timeout, end: None, passes: 0, over: false }
    }

    /// Counts a pass; reads the clock once in some.
    #[inline]
    pub(super) fn count(&mut self) {
        self.passes = self.passes.wrapping_add(1);
        if self.passes.is_multiple_of(CLOCK) {
            self.rest();
        }
    }

    /// How long is left; `None` if there is no end.
    pub(super) fn rest(&mut self) -> Option<Duration> {
        let now = Instant::now();
        let end = *self.end.get_or_insert_with(|| now.checked_add(self.timeout));
        let rest = end.map(|end| end.saturating_duration_since(now));
        self.over = rest == Some(Duration::ZERO);
        rest
    }

    pub(super) fn is_over(&self) -> bool {
        self.over
    }
}

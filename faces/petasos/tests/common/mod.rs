//! An endpoint whose counters can be seen while an engine has it.

use petasos::fabric::{Endpoint, Event, Time, delegate};
use std::sync::{Arc, Mutex};

pub(crate) struct Watched<E, C> {
    inner: E,
    look: fn(&E) -> C,
    seen: Arc<Mutex<C>>,
}

impl<E: Endpoint, C> Watched<E, C> {
    /// The endpoint, and where its counters are found from now on.
    pub(crate) fn new(inner: E, look: fn(&E) -> C) -> (Watched<E, C>, Arc<Mutex<C>>) {
        let seen = Arc::new(Mutex::new(look(&inner)));
        (Watched { inner, look, seen: Arc::clone(&seen) }, seen)
    }
}

impl<E: Endpoint, C: Send> Endpoint for Watched<E, C> {
    fn progress(&mut self, now: Time, budget: usize, events: &mut Vec<Event>) -> bool {
        let worked = self.inner.progress(now, budget, events);
        *self.seen.lock().unwrap() = (self.look)(&self.inner);
        worked
    }

    delegate! {
        inner: address incarnation capabilities resolve peer forget inject submit cancel arm fd
        notifier alloc register export import release
    }
}

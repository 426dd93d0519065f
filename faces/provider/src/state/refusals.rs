//! Counts the connections that TCP has refused, for the log of the endpoint's end.

use petasos_fabric::{Endpoint, Event, Time, delegate};
use petasos_tcp::TcpEndpoint;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// How many there were: read by whoever opened the endpoint.
#[derive(Clone, Debug, Default)]
pub(crate) struct Refusals(Arc<AtomicU64>);

impl Refusals {
    /// Of the connections since the endpoint was opened, as of its last pass.
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The endpoint, whose count is seen while another one has it.
pub(super) struct Counted {
    inner: TcpEndpoint,
    refusals: Refusals,
}

impl Counted {
    pub(super) fn new(inner: TcpEndpoint) -> (Counted, Refusals) {
        let refusals = Refusals::default();
        (Counted { inner, refusals: refusals.clone() }, refusals)
    }
}

impl Endpoint for Counted {
    fn progress(&mut self, now: Time, budget: usize, events: &mut Vec<Event>) -> bool {
        let worked = self.inner.progress(now, budget, events);
        if worked {
            self.refusals.0.store(self.inner.counters().refused, Relaxed);
        }
        worked
    }

    delegate! {
        inner: address incarnation capabilities resolve peer forget inject submit cancel
        poll_message linger arm fd notifier alloc register export import release
    }
}

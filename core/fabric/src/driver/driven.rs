//! What is driven.

use std::time::Duration;

/// What is driven: an endpoint, or a protocol's state with its endpoint.
pub trait Driven {
    /// What a thread may wait for.
    type Wait: Clone;

    /// One pass: moves on by a bounded amount, never blocks, and says whether there was anything to
    /// do. If not `full`, a short pass will do, as mostly a message is waited for: one in four idle
    /// passes is full.
    fn pass(&mut self, full: bool) -> bool;

    /// Whether a thread that waits for this has to wait no longer.
    fn is_ready(&mut self, what: &Self::Wait) -> bool;

    /// Whether anything happened since the last call for which a thread may wait.
    fn take_news(&mut self) -> bool;

    /// A spin hint between two passes: see [`Endpoint::relax`](crate::Endpoint::relax).
    fn relax(&self) {
        std::hint::spin_loop();
    }

    /// Prepares to sleep, as [`Endpoint::arm`](crate::Endpoint::arm) does.
    fn arm(&mut self) -> Armed;

    /// Whether the endpoint was used since it was armed, so that it may not signal its descriptor.
    /// Asked only if a thread has had mutable access since: the answer yes is always right.
    fn was_used(&self) -> bool {
        true
    }

    /// A sleep is over: time has passed.
    fn awake(&mut self) {}
}

/// What [`Driven::arm`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// There is something to do: do not sleep.
    Busy,
    /// Sleep until the descriptor is readable, or for so long (`None`: for good).
    For(Option<Duration>),
    /// Sleep until another thread ends it ([`Driver::kick`](super::Driver::kick)), whatever comes to
    /// the endpoint.
    Deaf,
}

//! Waking an engine that sleeps, from any thread.

use std::sync::Arc;

/// Wakes the driver of one endpoint. Provided by transports; see [`Notifier`].
pub trait Notify: Send + Sync {
    /// Makes the endpoint's sleep end, now or, if it is not asleep, the next one at once.
    /// Never blocks; calls may be merged; harmless after the endpoint is gone.
    fn notify(&self);
}

/// A handle that wakes an endpoint's driver. Cheap to clone, usable from any thread.
#[derive(Clone)]
pub struct Notifier(Arc<dyn Notify>);

impl Notifier {
    /// Wraps what the transport has.
    #[must_use]
    pub fn new(notify: Arc<dyn Notify>) -> Notifier {
        Notifier(notify)
    }

    /// Wakes the driver. Costs a system call at most, none while the driver is awake where the
    /// transport can tell.
    pub fn notify(&self) {
        self.0.notify();
    }
}

impl std::fmt::Debug for Notifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Notifier")
    }
}

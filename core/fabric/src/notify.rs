//! Waking the driver of an endpoint, from any thread.

use std::sync::Arc;

/// Wakes the driver of one endpoint. Provided by transports; see [`Notifier`].
pub trait Notify: Send + Sync {
    /// Makes the endpoint's sleep end, now or, if it is not asleep, the next one at once.
    /// Never blocks; calls may be merged; harmless after the endpoint has ended.
    fn notify(&self);
}

/// A handle that wakes an endpoint's driver. Cheap to clone, usable from any thread.
///
/// ```
/// use petasos_fabric::{Clock, Endpoint, Sleep};
///
/// let mut endpoint = petasos_self::Local::open(&"self://*".parse()?)?;
/// let notifier = endpoint.notifier();
/// let work = std::thread::spawn(move || notifier.notify());
/// // The driver sleeps as `arm` says; here it only waits for the thread.
/// if let Sleep::Until(_) = endpoint.arm(Clock::start().now()) {
///     work.join().expect("the thread does not panic");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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

//! So many bytes a second.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// What may be used at once after a pause, in time.
const BURST: Duration = Duration::from_millis(100);

/// So many bytes a second, and no more for long.
#[derive(Debug)]
pub(super) struct Rate {
    bytes_per_second: u64,
    /// When all that was granted will have been earned.
    earned: Mutex<Instant>,
}

impl Rate {
    pub(super) fn new(bytes_per_second: u64) -> Rate {
        Rate { bytes_per_second: bytes_per_second.max(1), earned: Mutex::new(Instant::now()) }
    }

    /// Takes so many bytes: gives how long to wait before they are used.
    pub(super) fn take(&self, bytes: u64) -> Duration {
        self.take_at(bytes, Instant::now())
    }

    fn take_at(&self, bytes: u64, now: Instant) -> Duration {
        let mut earned = self.earned.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = (*earned).max(now);
        *earned = begin + Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
        begin.saturating_duration_since(now + BURST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_earned() {
        let rate = Rate::new(1000);
        let now = Instant::now();
        let waits: Vec<_> = (0..4).map(|_| rate.take_at(100, now).as_millis()).collect();
        assert!(waits[0] == 0 && waits[3] >= 199 && waits[3] <= 201, "{waits:?}");
        assert_eq!(rate.take_at(100, now + Duration::from_secs(9)), Duration::ZERO);
    }
}

//! Limits how often something that may happen often is logged.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Between two lines of the log.
const PAUSE: Duration = Duration::from_secs(10);

/// When a line was last logged.
#[derive(Debug, Default)]
pub(super) struct LogLimit(Mutex<Option<Instant>>);

impl LogLimit {
    /// Logs a line, unless one was logged less than ten seconds ago.
    pub(super) fn log(&self, log: impl FnOnce()) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.is_none_or(|last| last.elapsed() >= PAUSE) {
            *last = Some(Instant::now());
            drop(last);
            log();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_in_a_while() {
        let (limit, mut said) = (LogLimit::default(), 0);
        for _ in 0..3 {
            limit.log(|| said += 1);
        }
        assert_eq!(said, 1);
    }
}

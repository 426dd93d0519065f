//! What may happen often, and is logged seldom.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Between two lines of the log.
const PAUSE: Duration = Duration::from_secs(10);

/// When something was logged.
#[derive(Debug, Default)]
pub(super) struct Seldom(Mutex<Option<Instant>>);

impl Seldom {
    /// Logs it, unless it was logged a moment ago.
    pub(super) fn say(&self, log: impl FnOnce()) {
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
        let (seldom, mut said) = (Seldom::default(), 0);
        for _ in 0..3 {
            seldom.say(|| said += 1);
        }
        assert_eq!(said, 1);
    }
}
